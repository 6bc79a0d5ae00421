"""Whether what is in a zip can run in Lambda: the processor of every binary, and the Python of every compiled module.

A wheel for another processor or Python is not noticed before the function's first call, where the import fails.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

_MAGIC = b"\x7fELF"
_HEAD = 20  # bytes: identity, type, machine
_CLASS_64, _LITTLE_ENDIAN = 2, 1
#: e_machine of an ELF file, by Lambda's name of the processor.
_MACHINE = {"x86_64": 62, "arm64": 183}
_TAGGED = re.compile(r"\.cpython-(\d+)[.-]")


def foreign(archive: Path, architecture: str, runtime: str) -> Iterator[str]:
    """Each entry of the zip that cannot run there, with the reason, sorted.

    architecture: arm64 or x86_64. runtime: as Lambda names it (python3.12).
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
    """The processor's number; None where the head is cut short or of another class than 64 bits, little endian."""
    if len(head) < _HEAD or (head[4], head[5]) != (_CLASS_64, _LITTLE_ENDIAN):
        return None
    machine: int = struct.unpack_from("<H", head, 18)[0]
    return machine
