"""The folder of a capture: writes it so that an interruption never leaves a half file or a mixture of two captures.

`capture-info` marks a folder as a capture and names the lists that could not be read. It is written first, as
incomplete, and last, as complete; the reader refuses an incomplete capture. A folder without it is never written to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.snapshot import MissingData
from chalicelib.net.bounded_files import content

INFO, CAPTURED_AT = "capture-info", "captured-at"
_KIND = "outscaler/capture"
_MOST_BYTES = 2**20
_TEMPORARY = ".outscaler-capture-"


class _NotRead(msgspec.Struct, frozen=True):
    kind: str
    detail: str
    name: str = ""
    place: str = ""
    weakens: tuple[str, ...] = ()


class _Info(msgspec.Struct, frozen=True):
    kind: str
    complete: bool
    notRead: tuple[_NotRead, ...] = ()  # noqa: N815 - the document's own word


def claim(folder: Path) -> None:
    """Check that a capture may be written to a folder: it does not exist, is empty, or is a capture. Raises BadInput,
    OSError."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInput(str(folder), "is not a directory", "name a folder that does not exist yet")
    others = [path.name for path in folder.iterdir() if not path.name.startswith(_TEMPORARY)]
    if others and _info(folder) is None:
        raise BadInput(
            str(folder),
            "is not empty, and `outscaler capture` did not make it",
            "name a folder that does not exist yet",
        )


def write(folder: Path, files: Mapping[str, bytes], stale: frozenset[str], missing: tuple[MissingData, ...]) -> None:
    """Write these files, readable only by their owner. stale: names of an older capture's files to remove. Other files
    of the folder, such as manifest.json, stay. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for left in folder.glob(f"{_TEMPORARY}*"):
        left.unlink(missing_ok=True)
    _replace(folder / INFO, _encoded(_Info(_KIND, complete=False)))
    for name in sorted(stale - files.keys()):
        (folder / name).unlink(missing_ok=True)
    for name, data in files.items():
        _replace(folder / name, data)
    lists = tuple(_NotRead(gap.kind, gap.detail, gap.name, gap.place, gap.affected_decisions) for gap in missing)
    _replace(folder / INFO, _encoded(_Info(_KIND, complete=True, notRead=lists)))


def missing(folder: Path) -> tuple[MissingData, ...]:
    """Return the lists that could not be read when the folder was captured; () if it is not a capture. Raises
    BadInput for an incomplete capture."""
    info = _info(folder)
    if info is None:
        return ()
    if not info.complete:
        raise BadInput(str(folder), "is an incomplete capture, because it was interrupted", "capture the cluster again")
    return tuple(
        MissingData(each.kind, each.detail, name=each.name, place=each.place, affected_decisions=each.weakens)
        for each in info.notRead
    )


def _info(folder: Path) -> _Info | None:
    path = folder / INFO
    if not path.is_file():
        return None
    try:
        info = msgspec.json.decode(content(path, _MOST_BYTES), type=_Info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return info if info.kind == _KIND else None


def _encoded(info: _Info) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=1) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: under another name, which is then renamed."""
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
