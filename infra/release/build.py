"""Builds the files of a release from an export of the commit: the same commit gives the same bytes.

Every file is built by the command that a user would run (`python -m infra.aws.package`, `pip
wheel`), in the export, so that nothing of the working tree, its environment or the machine's paths
is included. The Python version that runs this module is the version of the functions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from infra.aws.publish import zip_name
from infra.aws.wheels import Wheel
from infra.release.assets import chart, plugin, schema
from infra.release.errors import ReleaseRefused
from infra.release.sbom import bill

SUMS = "SHA256SUMS"
_STAGE = "prod"
_OURS = ("deployment-*.zip", "outscaler-*", SUMS)


class BuildJob(msgspec.Struct, frozen=True):
    """One release being built. source: the export. scratch: the folder where zips are
    built. out: the output folder."""

    version: str
    checkout: Checkout
    architectures: Sequence[str]
    source: Path
    scratch: Path
    out: Path

    def built(self, architecture: str) -> Path:
        """Return the build folder of a processor."""
        return self.scratch / architecture


Step = tuple[str, Callable[[BuildJob], None]]
"""What a step makes, and its function."""


def _check(found: Checkout, version: str) -> None:
    if found.dirty:
        more = f" and {len(found.dirty) - 1} more" if len(found.dirty) > 1 else ""
        raise ReleaseRefused(
            f"{found.dirty[0].strip()}{more}: not committed; commit or remove it, or try the "
            "release "
            "out by --allow-dirty"
        )
    changelog = found.root / "CHANGELOG.md"
    section(changelog.read_text("utf-8") if changelog.exists() else "", version)


def _zips(job: BuildJob) -> None:
    for architecture in job.architectures:
        _run(
            job,
            "-m",
            "infra.aws.package",
            "--stage",
            _STAGE,
            "--architecture",
            architecture,
            "--out",
            str(job.built(architecture)),
        )
        shutil.copyfile(
            job.built(architecture) / "deployment.zip", job.out / zip_name(architecture)
        )


def _template(job: BuildJob) -> None:
    """Write the published template. It expects the zips under their names in one
    folder of a bucket. The processor is a parameter, and the runtime is the Python
    version that built the zips."""
    _run(
        job,
        "-m",
        "infra.aws.publish",
        str(job.built(job.architectures[0]) / "sam.json"),
        "--out",
        str(job.out / f"outscaler-{job.version}-template.json"),
    )


def _wheel(job: BuildJob) -> None:
    _run(
        job,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--no-cache-dir",
        "--wheel-dir",
        str(job.out),
        ".",
    )


def _cluster_tools(job: BuildJob) -> None:
    """Write the chart, the plugin of kubectl with its manifest, and the schema of policies."""
    name, epoch = f"outscaler-{job.version}", job.checkout.epoch
    packed, manifest = plugin(job.source, job.version, epoch)
    (job.out / f"{name}.tgz").write_bytes(chart(job.source, job.version, epoch))
    (job.out / f"{name}-kubectl.tar.gz").write_bytes(packed)
    (job.out / f"{name}-krew.yaml").write_text(manifest, "utf-8")
    (job.out / f"{name}-policy.schema.json").write_text(schema(), "utf-8")


def _bill(job: BuildJob) -> None:
    wheels = {
        each: msgspec.convert(
            json.loads((job.built(each) / "wheels.json").read_text()), list[Wheel]
        )
        for each in job.architectures
    }
    made = bill(job.version, job.checkout.epoch, wheels)
    (job.out / f"outscaler-{job.version}.cdx.json").write_text(made, "utf-8")


def _sums(job: BuildJob) -> None:
    """Write checksums in the format of `sha256sum --check`."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(job.out.iterdir())
    ]
    (job.out / SUMS).write_text("".join(lines))


#: The steps of a release, in order: later steps read what earlier ones made.
STEPS: tuple[Step, ...] = (
    ("zips", _zips),
    ("template", _template),
    ("wheel", _wheel),
    ("chart, plugin and schema", _cluster_tools),
    ("bill of materials", _bill),
    ("checksums", _sums),
)


def release(
    root: Path,
    out: Path,
    version: str,
    architectures: Sequence[str],
    *,
    allow_dirty: bool,
    steps: Sequence[Step] = STEPS,
) -> list[str]:
    """Build every file, put all of them into `out` and return their names.

    steps: those of STEPS to run. allow_dirty: also from a tree with uncommitted changes, and
    without a section of CHANGELOG.md.
    Raises ReleaseRefused; then `out` is unchanged.
    """
    found = checkout(root)
    if not allow_dirty:
        _check(found, version)
    with tempfile.TemporaryDirectory(prefix="outscaler-release-") as folder:
        job = BuildJob(
            version,
            found,
            architectures,
            Path(folder) / "source",
            Path(folder) / "build",
            Path(folder) / "dist",
        )
        for each in (job.source, job.scratch, job.out):
            each.mkdir()
        export(found, job.source)
        for _, step in steps:
            step(job)
        names = sorted(path.name for path in job.out.iterdir())
        out.mkdir(parents=True, exist_ok=True)
        for old in (path for pattern in _OURS for path in out.glob(pattern)):
            old.unlink()
        for name in names:
            shutil.copyfile(job.out / name, out / name)
    return names


def _run(job: BuildJob, *arguments: str) -> None:
    environment = os.environ | {
        "SOURCE_DATE_EPOCH": str(job.checkout.epoch),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=job.source,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseRefused(
            f"python {' '.join(arguments[:3])} failed:\n{done.stdout}{done.stderr}"
        )


_HEADING = re.compile(r"^## \[?([^\]\s]+)\]?(?: - (\d{4}-\d{2}-\d{2}))?\s*$", re.MULTILINE)


def section(text: str, version: str) -> str:
    """Return the text below `## [1.2.3] - 2030-01-31` (also without brackets or
    date), up to the next release.

    Raises ReleaseRefused if the version has no section, several, or an empty one.
    """
    headings = list(_HEADING.finditer(text))
    found = [index for index, heading in enumerate(headings) if heading[1] == version]
    if not found:
        raise ReleaseRefused(
            f"CHANGELOG.md has no section of {version}; write one below `## [{version}] - "
            "YYYY-MM-DD`"
        )
    if len(found) > 1:
        raise ReleaseRefused(f"CHANGELOG.md has {len(found)} sections of {version}; make them one")
    [index] = found
    end = headings[index + 1].start() if index + 1 < len(headings) else len(text)
    written = text[headings[index].end() : end].strip()
    if not written:
        raise ReleaseRefused(
            f"CHANGELOG.md: the section of {version} is empty; say what users notice"
        )
    return written + "\n"


_EARLIEST = 315_532_800  # epoch seconds of 1980-01-01, the earliest date in a zip
_PLAIN, _EXECUTABLE = 0o644, 0o755


class Checkout(msgspec.Struct, frozen=True):
    """The tree to release. commit: its hash. epoch: seconds of the commit. dirty: uncommitted
    files, as git names them."""

    root: Path
    commit: str
    epoch: int
    dirty: tuple[str, ...]


def checkout(root: Path) -> Checkout:
    """Read the state of the tree from git. Raises ReleaseRefused outside a repository and
    before the first commit."""
    commit, epoch = _git(root, "log", "-1", "--format=%H %ct").split()
    dirty = tuple(
        line
        for line in _git(root, "status", "--porcelain", "--untracked-files=normal").splitlines()
        if line
    )
    return Checkout(root, commit, max(_EARLIEST, int(epoch)), dirty)


def export(source: Checkout, target: Path) -> None:
    """Copy the files of the tree, including uncommitted ones. All get the same
    date and one of two modes."""
    names = _git(source.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split(
        "\0"
    )
    for name in sorted({name for name in names if name}):
        original, copy = source.root / name, target / name
        if not original.is_file():
            continue  # deleted but not committed, or a link to a folder
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, copy)
        copy.chmod(_EXECUTABLE if original.stat().st_mode & 0o100 else _PLAIN)
    for folder, _, files in os.walk(target, topdown=False):
        for each in (*files, "."):
            os.utime(Path(folder) / each, (source.epoch, source.epoch))


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseRefused(
            f"git {arguments[0]}: {done.stderr.strip() or 'failed'}; release from a clone"
        )
    return done.stdout
