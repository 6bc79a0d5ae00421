"""The fault test: many seeds of many steps, and the same rules under hypothesis, which finds the shortest sequence.

The seeds are plain runs: hypothesis' own bookkeeping costs as much as the steps. The
last test uses hypothesis with few and short runs, for its shrinking.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.amounts import examples
from tests.faults.run import play
from tests.faults.stateful import StatefulFaults

SEEDS, PER_TEST = 20, 5
SLOW_SEEDS, PER_SLOW_TEST = 20_000, 250
HAPPEN = ("tainted", "evicted", "grown", "node gone by remove")


def _hold(first: int, count: int) -> None:
    """Runs all of these seeds and checks that events happened in them, since an empty run proves nothing."""
    seen = Counter[str]()
    for seed in range(first, first + count):
        played = play(seed)
        assert not played.broken, played.broken
        seen.update(played.counts)
    assert all(seen[what] for what in HAPPEN), seen


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_invariants_hold_under_random_faults(first: int) -> None:
    _hold(first, PER_TEST)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEEDS, SLOW_SEEDS, PER_SLOW_TEST))
def test_invariants_hold_in_thousands_of_runs_with_random_faults(first: int) -> None:
    _hold(first, PER_SLOW_TEST)


@pytest.mark.more
def test_invariants_hold_in_runs_drawn_by_hypothesis() -> None:
    run_state_machine_as_test(
        StatefulFaults,
        settings=settings(
            max_examples=examples(3, 12),
            stateful_step_count=examples(20, 40),
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
