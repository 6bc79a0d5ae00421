"""Exports the released commit to a folder that contains only its files.

Ignored files, file times and modes that depend on the user's umask must not affect a release; otherwise two clones of
one commit would give different bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec

from infra.release.errors import ReleaseRefused

_EARLIEST = 315_532_800  # epoch seconds of 1980-01-01, the earliest date in a zip
_PLAIN, _EXECUTABLE = 0o644, 0o755


class Checkout(msgspec.Struct, frozen=True):
    """The tree to release. commit: its hash. epoch: seconds of the commit. dirty: uncommitted files, as git names
    them."""

    root: Path
    commit: str
    epoch: int
    dirty: tuple[str, ...]


def checkout(root: Path) -> Checkout:
    """Read the state of the tree from git. Raises ReleaseRefused outside a repository and before the first commit."""
    commit, epoch = _git(root, "log", "-1", "--format=%H %ct").split()
    dirty = tuple(line for line in _git(root, "status", "--porcelain", "--untracked-files=normal").splitlines() if line)
    return Checkout(root, commit, max(_EARLIEST, int(epoch)), dirty)


def export(source: Checkout, target: Path) -> None:
    """Copy the files of the tree, including uncommitted ones. All get the same date and one of two modes."""
    names = _git(source.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
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
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseRefused(f"git {arguments[0]}: {done.stderr.strip() or 'failed'}; release from a clone")
    return done.stdout
