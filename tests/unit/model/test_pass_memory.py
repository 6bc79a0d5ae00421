"""Records of the memory that passes take, and the function size they select for the next pass."""

from __future__ import annotations

from chalicelib.store.pass_footprint import KEPT, PassMemory, Reading, after, why_large
from tests.cases import each_row

NOW = 1_795_245_660.0


@each_row(
    ("known", "size", "died", "large"),
    [
        (PassMemory(), 512, False, False),
        (PassMemory(peak=307, size=512), 512, False, False),
        (PassMemory(peak=308, size=512), 512, False, True),
        # of a pass whose function size was unknown
        (PassMemory(peak=308, size=0), 512, False, True),
        (PassMemory(peak=205, size=3008), 512, False, True),
        (PassMemory(peak=204, size=3008), 512, False, False),
        # the small function's memory was increased
        (PassMemory(peak=308, size=512), 1024, False, False),
        (PassMemory(peak=64, size=512), 512, True, True),
        (PassMemory(peak=64, size=3008, large_until=NOW + 1), 512, False, True),
        (PassMemory(peak=64, size=3008, large_until=NOW), 512, False, False),
        (PassMemory(large_until=NOW + KEPT + 100), 512, False, False),  # never written by a pass
        (PassMemory(peak=1 << 40), 512, False, False),
        (PassMemory(peak=-5, large_until=-1.0), 512, False, False),
        (PassMemory(peak=5000), 0, True, False),  # a function that does not know its own memory
    ],
)
def test_pass_memory_selects_the_large_function(
    known: PassMemory, size: int, died: bool, large: bool
) -> None:
    assert bool(why_large(known, size, NOW, died=died)) is large


@each_row(
    ("before", "reading", "peak"),
    [
        (0, Reading(100, 100), 104),  # rounded up, so that equal passes write equal rows
        (0, Reading(90, 400), 400),  # unknown, so the safe bound applies
        (96, Reading(90, 400), 96),  # another cluster's memory is still in the process
        (400, Reading(90, 96), 96),
        (96, Reading(300, 400), 304),
        (400, None, 400),
    ],
)
def test_pass_memory_peak_is_limited_to_the_proven_part(
    before: int, reading: Reading | None, peak: int
) -> None:
    assert after(PassMemory(peak=before, unended=1), reading, 512, NOW).peak == peak


def test_pass_memory_after_a_crash_keeps_the_large_function_for_hours() -> None:
    known = after(PassMemory(unended=2), None, 3008, NOW)
    assert known.large_until == NOW + KEPT
    later = after(PassMemory(unended=1, large_until=known.large_until), None, 3008, NOW + 60)
    assert later.large_until == known.large_until
    assert after(later, None, 512, NOW + KEPT).large_until == 0.0
