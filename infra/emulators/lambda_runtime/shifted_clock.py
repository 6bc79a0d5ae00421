"""Loaded into a function's process before the runtime client: shifts `time.time` by the
offset in the file `clock`.

This lets hours pass in a test without waiting. The file is in the folder of this module, contains
one little-endian double in seconds, and may change at any time.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

NAME, LENGTH = "clock", 8


def install(place: Path) -> None:
    """Shift the process's clock from now on by the offset in that file."""
    with place.open("rb") as file:
        view = mmap.mmap(file.fileno(), LENGTH, access=mmap.ACCESS_READ)
    read, real = struct.Struct("<d").unpack_from, time.time

    def shifted() -> float:
        return real() + float(read(view)[0])

    time.time = shifted
