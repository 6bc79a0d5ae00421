"""The fault test itself: many seeds of many steps, and the same rules under hypothesis, which finds the shortest story.

The seeds are plain runs: hypothesis' own bookkeeping costs as much as the steps do, and 500 seeds are to take minutes.
What it is good for, shrinking, it does in the last test, with few and short runs.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.run import play
from tests.faults.stateful import StatefulFaults

SEEDS, PER_TEST = 500, 10
SLOW_SEEDS, PER_SLOW_TEST = 20_000, 250
HAPPEN = ("tainted", "evicted", "grown", "node gone by remove")


def _hold(first: int, count: int) -> None:
    """All of these seeds; and things happened in them, else they would prove nothing."""
    seen = Counter[str]()
    for seed in range(first, first + count):
        played = play(seed)
        assert not played.broken, played.broken
        seen.update(played.counts)
    assert all(seen[what] for what in HAPPEN), seen


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_promises_hold_whatever_goes_wrong(first: int) -> None:
    _hold(first, PER_TEST)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEEDS, SLOW_SEEDS, PER_SLOW_TEST))
def test_promises_hold_in_thousands_of_runs(first: int) -> None:
    _hold(first, PER_SLOW_TEST)


def test_promises_hold_in_runs_that_hypothesis_draws() -> None:
    run_state_machine_as_test(
        StatefulFaults,
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
