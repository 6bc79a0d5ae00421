"""The commit that is released, as a folder that holds its files and nothing else.

What git ignores, when files were written and what the user's umask left of their modes must not reach a release, or two
clones of one commit would give different bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec

from infra.release.errors import ReleaseRefused

_EARLIEST = 315_532_800  # epoch seconds of 1980-01-01, before which a zip knows no dates
_PLAIN, _EXECUTABLE = 0o644, 0o755


class Checkout(msgspec.Struct, frozen=True):
    """The tree that is released. commit: its hash; epoch: seconds of the commit; dirty: files that are not committed,
    as git names them."""

    root: Path
    commit: str
    epoch: int
    dirty: tuple[str, ...]


def checkout(root: Path) -> Checkout:
    """What git knows of the tree. Raises ReleaseRefused outside of a repository and before the first commit."""
    commit, epoch = _git(root, "log", "-1", "--format=%H %ct").split()
    dirty = tuple(line for line in _git(root, "status", "--porcelain", "--untracked-files=normal").splitlines() if line)
    return Checkout(root, commit, max(_EARLIEST, int(epoch)), dirty)


def export(source: Checkout, target: Path) -> None:
    """Copy the files of the tree, those that are not committed too; all get one date and one of two modes."""
    names = _git(source.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in sorted({name for name in names if name}):
        original, copy = source.root / name, target / name
        if not original.is_file():
            continue  # deleted and not committed, or a link to a folder
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
