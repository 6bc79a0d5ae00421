"""Makes the recordings of plans, with the code of the tree that it runs in.

    python -m tests.recorded.record              write tests/recorded/plans.sha256 and plans.json.gz
    python -m tests.recorded.record --to DIR     write every document into DIR, to
                                                 compare two trees with diff -r

Recordings are made with the code of the commit before a change that must not change plans:
`git worktree add DIR COMMIT`, copy tests/recorded into it, run this there, and
copy what was written back.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from tests.recorded.plans import cases, record

HERE = Path(__file__).parent
DIGESTS, EXAMPLES = HERE / "plans.sha256", HERE / "plans.json.gz"
SHOWN = (
    "random/0",
    "random/9",
    "random/12",
    "random/15",
    "random/33",
    "random/60",
    "random/123",
    "random/147",
    "random/164",
    "random/166",
    "shop-busy/least-waste",
    "shop-busy/compared",
    "shop-quiet/unneeded",
    "settled/2040/least-cost",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record every case; the captured ones must be there."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.recorded.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", type=Path)
    to = parser.parse_args(arguments).to
    lines, shown = [], {}
    for case in cases():
        made = record(case)
        lines.append(f"{case.name} {made.read} {made.answered}\n")
        if case.name in SHOWN:
            shown[case.name] = made.documents.decode()
        if to is not None:
            file = to / f"{case.name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(made.documents)
    if to is None:
        DIGESTS.write_text("".join(lines))
        EXAMPLES.write_bytes(
            gzip.compress(json.dumps(shown, sort_keys=True, indent=1).encode(), 9, mtime=0)
        )


if __name__ == "__main__":
    main()
