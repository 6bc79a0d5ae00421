"""The artifact under test, built once per state of the sources by the first
of the parallel workers.

Packaging takes a quarter of a minute, so the result is kept in build/.cache under a fingerprint of
all its inputs, and a lock makes the other workers wait for the first.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import chalice

from infra.aws.package import ROOT, package, template
from infra.aws.publish import published
from infra.aws.template_check import translate
from infra.aws.wheels import host_architecture

CACHE = ROOT / "build" / ".cache"
KEPT = 3  # artifacts of earlier sources and of the other processor


class Artifact:
    """The output of infra.aws.package: templates by stage, the zip, and its
    contents as unpacked by Lambda."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.zip, self.task = folder, folder / "deployment.zip", folder / "task"

    def sam(self, stage: str) -> dict[str, Any]:
        """The SAM template of a stage."""
        made: dict[str, Any] = json.loads((self.folder / f"{stage}.json").read_text())
        return made

    def translated(self, stage: str) -> dict[str, Any]:
        """The CloudFormation template that SAM makes of a stage's template; a copy
        that the caller may change."""
        return copy.deepcopy(_translated(self, stage))

    def published(self, stage: str) -> dict[str, Any]:
        """The published template of a stage; a copy that the caller may change."""
        return copy.deepcopy(_published(self, stage))


@cache
def _translated(built: Artifact, stage: str) -> dict[str, Any]:
    return translate(built.sam(stage))


@cache
def _published(built: Artifact, stage: str) -> dict[str, Any]:
    return published(built.sam(stage))


@lru_cache(maxsize=2)
def artifact(architecture: str = "") -> Artifact:
    """The artifact of the current sources; both stages have the same code.

    architecture: empty for this machine's processor. The other one only has the zip and stage
    prod's template, since its functions cannot run here.
    """
    architecture = architecture or host_architecture()
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{_fingerprint()}-{architecture}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _forget_old()
            with _all_or_nothing(folder) as part:
                _build(part, architecture)
    return Artifact(folder)


def _build(folder: Path, architecture: str) -> None:
    package("prod", folder, architecture)
    (folder / "sam.json").rename(folder / "prod.json")
    if architecture != host_architecture():
        shutil.rmtree(folder / "project")
        return
    template("dev", folder / "dev", folder / "project")
    (folder / "dev" / "sam.json").rename(folder / "dev.json")
    with zipfile.ZipFile(folder / "deployment.zip") as archive:
        archive.extractall(folder / "task")
    shutil.rmtree(folder / "dev")
    shutil.rmtree(folder / "project")


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.version_info[:2]} {chalice.__version__}".encode())
    sources = [ROOT / "app.py", ROOT / "requirements.txt", *(ROOT / ".chalice").glob("*.json")]
    sources += [*(ROOT / "chalicelib").rglob("*.py"), *(ROOT / "infra" / "aws").rglob("*.*")]
    for source in sorted(source for source in sources if "__pycache__" not in source.parts):
        digest.update(str(source.relative_to(ROOT)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _forget_old() -> None:
    folders = [path for path in CACHE.iterdir() if path.is_dir()]
    for folder in sorted(folders, key=os.path.getmtime)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _all_or_nothing(folder: Path) -> Iterator[Path]:
    """A folder that appears under its name only when it is complete."""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    yield part
    part.rename(folder)
