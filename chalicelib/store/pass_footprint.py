"""Records how much memory the passes of one cluster use, to decide whether the next one
needs the large function.

Most clusters are small, and the price of a function depends on its memory. Each pass therefore
stores its peak, and the small `reconcile` function reads it before the next pass. Two bounds
prevent a cluster from alternating between the functions:

    small ──► large   the peak was over GROWN of the small function's memory, or
                      the last pass did not end
    large ──► small   the peak is under SHRUNK of it, and KEPT has passed since a pass did not end

A pass that runs out of memory cannot record it, because the kernel kills the process. Each pass
therefore increments a counter when it begins, and resets it when it ends.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import msgspec

GROWN, SHRUNK = 0.6, 0.4
"""Shares of the small function's memory, based on the measurements in docs/performance.md."""

KEPT = 6 * 3600.0
"""Seconds for which the large function is used after a pass that did not end, whatever its
peak there: the pass may have run out of time and not of memory."""

STEP = 8
"""MB; stored peaks are rounded to a multiple of this, so that similar passes store equal rows."""

_MOST = 1 << 20  # MB; a row with a larger value is ignored


class Reading(msgspec.Struct, frozen=True):
    """The peak of one pass in MB: between `least` and `most`.

    A process keeps memory from earlier passes. It is part of the process's peak, but this
    pass may not have needed it.
    """

    least: int
    most: int


class PassMemory(msgspec.Struct, frozen=True):
    """The record of a cluster's passes. peak: MB, 0 if unknown. size: MB of the function
    that ran the last pass. unended: passes started since one ended. large_until: epoch
    seconds, 0.0: not required."""

    peak: int = 0
    size: int = 0
    unended: int = 0
    large_until: float = 0.0


def after(
    old_memory: PassMemory, reading: Reading | None, size: int, now: float, *, partial: bool = False
) -> PassMemory:
    """Return the record at the end of a pass. old_memory: the record after the pass had started and
    counted itself. reading: None if it was not measured. size: MB of this function. now: epoch
    seconds. partial: the pass has read changes only; the next one may have to read everything, so
    the peak does not fall."""
    peak = old_memory.peak
    if reading is not None and partial:
        peak = max(peak, -(-reading.least // STEP) * STEP)
    elif reading is not None:
        peak = max(reading.least, min(peak or reading.most, reading.most))
        peak = -(-peak // STEP) * STEP
    if old_memory.unended > 1:
        until = now + KEPT
    else:
        until = old_memory.large_until if _is_ahead(old_memory.large_until, now) else 0.0
    return PassMemory(peak=peak, size=size, large_until=until)


def why_large(memory: PassMemory, size: int, now: float, *, died: bool) -> str:
    """Return why the next pass needs the large function, "" if it does not.

    size: MB of the small function, 0 if unknown. died: the last pass started and did not end.
    """
    if size <= 0:
        return ""
    if died:
        return "the last pass did not end"
    if _is_ahead(memory.large_until, now):
        return "a pass did not end on the small function"
    share = SHRUNK if memory.size > size else GROWN
    if size * share < memory.peak <= _MOST:
        return f"the last pass took {memory.peak} MB of {size}"
    return ""


def _is_ahead(until: float, now: float) -> bool:
    """Return whether that instant is in the future. One further ahead than
    any pass writes is ignored."""
    return now < until <= now + KEPT + 60.0
