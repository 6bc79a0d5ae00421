"""What is remembered of the memory that passes take, and which function it sends the next pass to."""

from __future__ import annotations

from chalicelib.model.pass_footprint import KEPT, PassMemory, Reading, after, why_large
from tests.cases import each_row

NOW = 1_795_245_660.0


@each_row(
    ("known", "size", "died", "large"),
    [
        (PassMemory(), 512, False, False),
        (PassMemory(peak=307, size=512), 512, False, False),
        (PassMemory(peak=308, size=512), 512, False, True),
        (PassMemory(peak=308, size=0), 512, False, True),  # of a pass whose function had no known memory
        (PassMemory(peak=205, size=3008), 512, False, True),
        (PassMemory(peak=204, size=3008), 512, False, False),
        (PassMemory(peak=308, size=512), 1024, False, False),  # the small function was given more
        (PassMemory(peak=64, size=512), 512, True, True),
        (PassMemory(peak=64, size=3008, large_until=NOW + 1), 512, False, True),
        (PassMemory(peak=64, size=3008, large_until=NOW), 512, False, False),
        (PassMemory(large_until=NOW + KEPT + 100), 512, False, False),  # no pass writes that
        (PassMemory(peak=1 << 40), 512, False, False),
        (PassMemory(peak=-5, large_until=-1.0), 512, False, False),
        (PassMemory(peak=5000), 0, True, False),  # a function that does not know its own memory
    ],
)
def test_which_passes_need_the_large_function(known: PassMemory, size: int, died: bool, large: bool) -> None:
    assert bool(why_large(known, size, NOW, died=died)) is large


@each_row(
    ("before", "reading", "peak"),
    [
        (0, Reading(100, 100), 104),  # rounded up, so that equal passes leave equal rows
        (0, Reading(90, 400), 400),  # nothing is known, so the safe bound
        (96, Reading(90, 400), 96),  # another cluster's memory is still in the process
        (400, Reading(90, 96), 96),
        (96, Reading(300, 400), 304),
        (400, None, 400),
    ],
)
def test_a_peak_is_kept_within_what_the_reading_proves(before: int, reading: Reading | None, peak: int) -> None:
    assert after(PassMemory(peak=before, unended=1), reading, 512, NOW).peak == peak


def test_a_pass_that_followed_a_death_keeps_the_large_function_for_hours() -> None:
    known = after(PassMemory(unended=2), None, 3008, NOW)
    assert known.large_until == NOW + KEPT
    later = after(PassMemory(unended=1, large_until=known.large_until), None, 3008, NOW + 60)
    assert later.large_until == known.large_until
    assert after(later, None, 512, NOW + KEPT).large_until == 0.0
