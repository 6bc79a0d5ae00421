"""The artifact under test: built once per state of the sources, whoever of the parallel workers comes first.

Packaging takes a quarter of a minute, so its result is kept in build/.cache under a fingerprint of everything that goes
into it, and a lock lets the other workers wait for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chalice
from infra.aws.package import ROOT, package

CACHE = ROOT / "build" / ".cache"
KEPT = 3        # artifacts of earlier states


class Artifact:
    """What infra.aws.package made of one stage, and the zip's contents where Lambda would put them."""

    def __init__(self, folder: Path) -> None:
        self.zip = folder / "deployment.zip"
        self.task = folder / "task"
        self.sam: dict[str, Any] = json.loads((folder / "sam.json").read_text())


def artifact(stage: str) -> Artifact:
    """The artifact of a stage, built now if the sources have changed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{stage}-{_fingerprint()}"
    with _locked(CACHE / "lock"):
        if not (folder / "task").is_dir():
            _forget_old(stage)
            package(stage, folder)
            with zipfile.ZipFile(folder / "deployment.zip") as archive:
                archive.extractall(folder / "task.part")
            (folder / "task.part").rename(folder / "task")
    return Artifact(folder)


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.version_info[:2]} {chalice.__version__}".encode())
    sources = [ROOT / "app.py", ROOT / "requirements.txt"]
    sources += [*(ROOT / "chalicelib").rglob("*.py"), *(ROOT / ".chalice").glob("*.json")]
    sources += [*(ROOT / "infra" / "aws").glob("*")]
    for source in sorted(path for path in sources if path.is_file()):
        digest.update(str(source.relative_to(ROOT)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _forget_old(stage: str) -> None:
    old = sorted(CACHE.glob(f"{stage}-*"), key=os.path.getmtime)[:-KEPT]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
