"""Checks that the contents of a zip can run in Lambda: the processor of every binary and the Python
version of every compiled module.

A wheel for another processor or Python version fails only when the deployed function
imports it for the first time.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

_MAGIC = b"\x7fELF"
_HEAD = 20  # bytes: identification, type, machine
_CLASS_64, _LITTLE_ENDIAN = 2, 1
#: Lambda's name of a processor -> e_machine of an ELF file.
_MACHINE = {"x86_64": 62, "arm64": 183}
_TAGGED = re.compile(r"\.cpython-(\d+)[.-]")


def foreign(archive: Path, architecture: str, runtime: str) -> Iterator[str]:
    """Return each entry of the zip that cannot run in Lambda, with the reason, sorted.

    architecture: arm64 or x86_64. runtime: Lambda's name of it (python3.12).
    """
    tag = runtime.removeprefix("python").replace(".", "")
    with zipfile.ZipFile(archive) as opened:
        for name in sorted(opened.namelist()):
            found = _TAGGED.search(name)
            if found is not None and found[1] != tag:
                yield f"{name} is for Python {found[1][0]}.{found[1][1:]}"
            with opened.open(name) as entry:
                head = entry.read(_HEAD)
            if head.startswith(_MAGIC) and _machine(head) != _MACHINE[architecture]:
                yield f"{name} is not for {architecture}"


def _machine(head: bytes) -> int | None:
    """Return the processor number of an ELF header, None if the header is truncated or
    not 64-bit little-endian."""
    if len(head) < _HEAD or (head[4], head[5]) != (_CLASS_64, _LITTLE_ENDIAN):
        return None
    machine: int = struct.unpack_from("<H", head, 18)[0]
    return machine
