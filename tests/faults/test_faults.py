"""The fault test: many seeds of many steps, and the same rules under hypothesis, which
finds the shortest sequence.

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

SEEDS, PER_TEST = 25, 5
SLOW_SEEDS, PER_SLOW_TEST = 20_000, 250
HAPPEN = ("tainted", "evicted", "grown", "node gone by remove")
REPLACING_SEEDS, PER_REPLACING_TEST = 75, 25
SLOW_REPLACING_SEEDS = 20_000
REPLACED = (
    "nodes bought by replacements",
    "nodes drained by replacements",
    "replacements of consolidation finished",
    "notices",
    "machines taken back",
    "node gone as interrupted",
    "node gone as repair",
    "node gone as expired",
    "node gone as drifted",
)


def _hold(first: int, count: int, *, consolidates: bool = False) -> None:
    """Runs all of these seeds and checks that events happened in them, since an
    empty run proves nothing."""
    seen = Counter[str]()
    for seed in range(first, first + count):
        played = play(seed, consolidates=consolidates)
        assert not played.broken, played.broken
        seen.update(played.counts)
    happen = (*HAPPEN, *REPLACED) if consolidates else HAPPEN
    assert all(seen[what] for what in happen), seen


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_invariants_hold_under_random_faults(first: int) -> None:
    _hold(first, PER_TEST)


@pytest.mark.parametrize("first", range(0, REPLACING_SEEDS, PER_REPLACING_TEST))
def test_invariants_hold_under_random_faults_while_nodes_are_replaced(first: int) -> None:
    _hold(first, PER_REPLACING_TEST, consolidates=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(REPLACING_SEEDS, SLOW_REPLACING_SEEDS, PER_SLOW_TEST))
def test_invariants_hold_in_thousands_of_runs_that_replace_nodes(first: int) -> None:
    _hold(first, PER_SLOW_TEST, consolidates=True)


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
