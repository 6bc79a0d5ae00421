"""Loaded into a function's process before the runtime client: `time.time` is ahead by what the file `clock` says.

So hours pass in a test without waiting. The file lies beside this module, holds one little-endian double, in seconds,
and may change at any moment.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

NAME, LENGTH = "clock", 8


def install(place: Path) -> None:
    """Shift the process's clock by what that file says from now on."""
    with place.open("rb") as file:
        view = mmap.mmap(file.fileno(), LENGTH, access=mmap.ACCESS_READ)
    read, real = struct.Struct("<d").unpack_from, time.time

    def shifted() -> float:
        return real() + float(read(view)[0])

    time.time = shifted
