"""The peak of one pass's memory, as the kernel counts it for this process.

`ru_maxrss` says the highest that the process ever had, which in a warm process may be an earlier pass of another
cluster. So the mark is set back before each pass where the kernel permits it, and what the process had kept from
earlier passes is told as uncertain (model/pass_memory.Reading). Where /proc cannot be read nothing is measured.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from chalicelib.model.pass_footprint import Reading

_PROCESS = Path("/proc/self")
_SET_BACK = "5"  # proc(5), clear_refs: the peak becomes what is resident now
_KILOBYTES_PER_MB = 1024


class Gauge:
    """For one process, which makes one pass at a time. process: its folder in /proc."""

    def __init__(self, process: Path = _PROCESS) -> None:
        self._process = process
        self._least_ever = self._began = 0

    def begin(self) -> None:
        """A pass begins."""
        with contextlib.suppress(OSError):  # the mark stays, and the reading is less certain
            (self._process / "clear_refs").write_text(_SET_BACK, "ascii")
        self._began = self._read().get("VmRSS", 0)
        self._least_ever = min(self._least_ever or self._began, self._began)

    def end(self) -> Reading | None:
        """The peak since `begin`; None where it cannot be measured."""
        peak = self._read().get("VmHWM", 0)
        if not (peak and self._began):
            return None
        kept = max(0, self._began - self._least_ever)
        return Reading(least=max(0, peak - kept) // _KILOBYTES_PER_MB, most=-(-peak // _KILOBYTES_PER_MB))

    def _read(self) -> dict[str, int]:
        """Sizes in kB, by their names in proc(5)."""
        try:
            lines = (self._process / "status").read_text("ascii", "replace").splitlines()
        except OSError:
            return {}
        parts = (line.split() for line in lines)
        return {
            part[0].rstrip(":"): int(part[1])
            for part in parts
            if len(part) == 3 and part[2] == "kB" and part[1].isdigit()
        }
