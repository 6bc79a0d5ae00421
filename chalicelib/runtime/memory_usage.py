"""Measures the peak memory of one pass, as the kernel counts it for this process.

`ru_maxrss` is the highest value of the process's life, which in a warm process may come from an
earlier pass of another cluster. The kernel's peak is therefore reset before each pass where this is
permitted, and memory retained from earlier passes is reported as uncertain
(model/pass_footprint.Reading). Where /proc cannot be read, nothing is measured.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from chalicelib.model.errors import MemoryExceeded
from chalicelib.store.pass_footprint import Reading

_PROCESS = Path("/proc/self")
_SET_BACK = "5"  # proc(5), clear_refs: sets the peak to the resident size
_KILOBYTES_PER_MB = 1024
READING = 0.75
"""Share of a function's memory that its process may have when it reads a cluster;
planning needs the rest."""
_GROWN = 32  # MB; a process that has grown less in this pass reuses memory of earlier ones


class MemoryGauge:
    """Measures one process, which makes one pass at a time. process: its directory in
    /proc; None: nothing is measured, because outside Lambda a process's memory does not
    belong to its passes alone."""

    def __init__(self, process: Path | None = _PROCESS) -> None:
        self._process = process
        self._least_ever = self._began = 0

    def begin(self) -> None:
        """Start measuring a pass."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):  # the peak is not reset, and the reading is less certain
            (self._process / "clear_refs").write_text(_SET_BACK, "ascii")
        self._began = self._read().get("VmRSS", 0)
        self._least_ever = min(self._least_ever or self._began, self._began)

    def check(self, size: int) -> None:
        """Raise MemoryExceeded where this pass has grown beyond its share.
        size: MB of the function."""
        resident, most = self._read().get("VmRSS", 0) // _KILOBYTES_PER_MB, int(size * READING)
        if size and self._began and resident > max(most, self._began // _KILOBYTES_PER_MB + _GROWN):
            raise MemoryExceeded(
                f"the cluster's lists need more than {most} MB of the {size} MB of this function"
            )

    def end(self) -> Reading | None:
        """Return the peak since `begin`; None where it cannot be measured."""
        peak = self._read().get("VmHWM", 0)
        if not (peak and self._began):
            return None
        retained = max(0, self._began - self._least_ever)
        return Reading(
            least=max(0, peak - retained) // _KILOBYTES_PER_MB, most=-(-peak // _KILOBYTES_PER_MB)
        )

    def _read(self) -> dict[str, int]:
        """Return sizes in kB by their names in proc(5)."""
        if self._process is None:
            return {}
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
