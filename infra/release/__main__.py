"""`python -m infra.release --out dist`: the command behind `make release`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import chalicelib
from infra.aws.wheels import MACHINES, PackagingFailed
from infra.release.build import release, section
from infra.release.errors import ReleaseRefused
from infra.tools.interruptible import run

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit codes: 0 success, 2 if the release is refused, with the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.release", description="make the files of a release"
    )
    parser.add_argument("--out", default=ROOT / "dist", type=Path, help="where to put them (dist)")
    parser.add_argument(
        "--architecture",
        action="append",
        choices=sorted(MACHINES),
        default=None,
        help="a processor to make a zip for; may be given twice (both)",
    )
    parser.add_argument(
        "--allow-dirty",
        action="store_true",
        help="also of a tree that is not committed, and without a section of CHANGELOG.md",
    )
    parser.add_argument(
        "--expect-tag",
        metavar="TAG",
        default="",
        help="refuse unless this is the version with a v before it",
    )
    parser.add_argument(
        "--notes",
        action="store_true",
        help="print the version's section of CHANGELOG.md, and no more",
    )
    given, version = parser.parse_args(arguments), chalicelib.__version__
    try:
        if given.expect_tag and given.expect_tag != f"v{version}":
            raise ReleaseRefused(
                f"the tag is {given.expect_tag} and the version is {version}; tag v{version}"
            )
        if given.notes:
            sys.stdout.write(section((ROOT / "CHANGELOG.md").read_text("utf-8"), version))
            return 0
        names = release(
            ROOT,
            given.out,
            version,
            sorted(set(given.architecture or MACHINES)),
            allow_dirty=given.allow_dirty,
        )
    except (ReleaseRefused, PackagingFailed) as refused:
        sys.stderr.write(f"{refused}\n")
        return 2
    sys.stdout.write("".join(f"{given.out / name}\n" for name in names))
    return 0


if __name__ == "__main__":
    run(main)
