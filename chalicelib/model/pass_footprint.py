"""How much memory the passes of one cluster take, and whether the next one needs the large function.

Most clusters are small, and a function is paid for by its memory. So each pass leaves its peak behind, and the small
`reconcile` function reads it before the next pass. Two bounds keep a cluster from changing sides with every pass:

    small ──► large   the peak was over GROWN of the small function's memory, or the last pass did not end
    large ──► small   the peak is under SHRUNK of it, and KEPT has passed since a pass did not end

A pass that runs out of memory cannot record it: the kernel kills the process. So a pass counts itself when it begins,
and takes the count back when it ends.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import msgspec

GROWN, SHRUNK = 0.6, 0.4
"""Shares of the small function's memory; docs/performance.md has the measurements that they rest on."""

KEPT = 6 * 3600.0
"""Seconds for which the large function is used after a pass that did not end, whatever its peak is there: it may have
run out of time, not of memory."""

STEP = 8
"""MB; a stored peak is a multiple of it, so that equal passes leave equal rows."""

_MOST = 1 << 20  # MB; a row that says more is not believed


class Reading(msgspec.Struct, frozen=True):
    """The peak of one pass in MB: between `least` and `most`.

    A process keeps memory of the passes before. It is in the process's peak and may not have been needed by this pass.
    """

    least: int
    most: int


class PassMemory(msgspec.Struct, frozen=True):
    """What is known of a cluster's passes. peak: MB, 0 where none is known. size: MB of the function that made the last
    pass. unended: passes that began since one ended. large_until: epoch seconds, 0.0 for not at all."""

    peak: int = 0
    size: int = 0
    unended: int = 0
    large_until: float = 0.0


def after(before: PassMemory, reading: Reading | None, size: int, now: float) -> PassMemory:
    """What is known when a pass has ended. before: as it was when the pass had begun and counted itself. reading: None
    where it was not measured. size: MB of this function. now: epoch seconds."""
    peak = before.peak
    if reading is not None:
        peak = max(reading.least, min(peak or reading.most, reading.most))
        peak = -(-peak // STEP) * STEP
    if before.unended > 1:
        until = now + KEPT
    else:
        until = before.large_until if _is_ahead(before.large_until, now) else 0.0
    return PassMemory(peak=peak, size=size, large_until=until)


def why_large(known: PassMemory, size: int, now: float, *, died: bool) -> str:
    """Why the next pass needs the large function, "" where it does not.

    size: MB of the small function, 0 where that is not known. died: the last pass began and did not end.
    """
    if size <= 0:
        return ""
    if died:
        return "the last pass did not end"
    if _is_ahead(known.large_until, now):
        return "a pass did not end on the small function"
    share = SHRUNK if known.size > size else GROWN
    if size * share < known.peak <= _MOST:
        return f"the last pass took {known.peak} MB of {size}"
    return ""


def _is_ahead(until: float, now: float) -> bool:
    """Whether that instant is still to come. One that is further ahead than any pass writes is not believed."""
    return now < until <= now + KEPT + 60.0
