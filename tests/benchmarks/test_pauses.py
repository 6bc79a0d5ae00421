"""What pauses of an API server cost warm passes, in virtual time.

A pass every ten seconds follows 2,000 pods, of which 20 have changed a second before. An object of
a list takes 0.1 ms. `python -m pytest -s tests/benchmarks/test_pauses.py` prints the changes that
were missed, and the seconds of a pass.
"""

from __future__ import annotations

import random

import pytest

from tests.property.pausing_server import (
    FollowedServer,
    Pauses,
    PausingServer,
    VirtualTime,
    healthy,
)

PASSES, PODS, CHANGES = 200, 2_000, 20


def uniform(seed: int) -> Pauses:
    generator = random.Random(seed)
    return lambda: generator.uniform(0.2, 5.0)


def rare(seed: int) -> Pauses:
    generator = random.Random(seed)
    return lambda: generator.uniform(0.2, 5.0) if generator.random() < 1 / 500 else healthy()


@pytest.mark.parametrize(
    ("name", "pause", "first", "most"),
    [
        ("no pauses", healthy, healthy, 0.20),
        ("0.2 to 5 s before one change of 500", rare(1), healthy, 0.60),
        ("0.2 to 5 s between any two changes", uniform(2), healthy, 0.60),
        ("0.2 to 5 s before every change", uniform(3), uniform(4), 0.60),
    ],
)
@pytest.mark.parametrize("marks", [False, True], ids=["no-bookmarks", "bookmarks"])
def test_changes_missed_and_seconds_of_a_pass(
    name: str, pause: Pauses, first: Pauses, most: float, marks: bool
) -> None:
    time = VirtualTime()
    process = FollowedServer(PausingServer(time, PODS, pause, first=first, marks=marks), time)
    for _ in range(PASSES):
        process.run(CHANGES)
    seconds = process.seconds / PASSES
    print(
        f"\n{name}, {'with' if marks else 'without'} bookmarks: "
        f"{1000 * process.missed / PASSES:.0f} changes missed in "
        f"1,000 passes of {1000 * CHANGES:,}, {seconds:.2f} s a pass"
    )
    assert len(process.missed_passes) <= 1
    assert seconds < most
