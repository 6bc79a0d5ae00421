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
from tests.faults.mark_checks import SWITCHES
from tests.faults.run import play
from tests.faults.stateful import StatefulFaults

SEEDS, PER_TEST = 10, 5
SLOW_SEEDS, PER_SLOW_TEST = 20_000, 250
HAPPEN = ("tainted", "evicted", "grown", "node gone by remove")
REPLACING_SEEDS, PER_REPLACING_TEST = 40, 40
SLOW_REPLACING_SEEDS = 20_000
SLOW_MANAGED_SEEDS = 2_550
STEERED_SEEDS, PER_STEERED_TEST = 20, 10
SLOW_STEERED_SEEDS, PER_SLOW_STEERED_TEST = 220, 20
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

MANAGED = (
    "tainted",
    "evicted",
    "own groups opened",
    "own groups grown",
    "own nodes gone",
    "continued in time after a kill",
)
MANAGED_SEEDS = (
    *(("exoscale", first, False) for first in (10, 15)),
    *(("cherryservers", first, False) for first in (20, 25)),
    ("exoscale", 40, True),
    ("cherryservers", 45, True),
)
"""Provider of managed pools, the first of PER_TEST seeds, and whether nodes are replaced."""
PROVIDERS = ("exoscale", "cherryservers")
STEERED = ("drains of a horizon planned", "marks refused", "marks stripped", "marks taken off")
TAKEN_BACK = tuple(f"marks taken back by {switch}" for switch in SWITCHES)


def _hold(first: int, count: int, *, consolidates: bool = False, provider: str = "") -> None:
    """Runs all of these seeds and checks that events happened in them, since an
    empty run proves nothing."""
    seen = Counter[str]()
    for seed in range(first, first + count):
        played = play(seed, consolidates=consolidates, provider=provider)
        assert not played.broken, played.broken
        seen.update(played.counts)
    happen: tuple[str, ...] = (*HAPPEN, *REPLACED) if consolidates else HAPPEN
    happen = MANAGED if provider else happen
    assert all(seen[what] for what in happen), seen


def _hold_steered(first: int, count: int) -> None:
    """Runs these seeds with steering: at least half of them have a horizon and its marks."""
    seen, marking = Counter[str](), 0
    for seed in range(first, first + count):
        played = play(seed, steers=True)
        assert not played.broken, played.broken
        seen.update(played.counts)
        marking += {"horizons begun", "marks written"} <= played.counts.keys()
    assert 2 * marking >= count, seen
    assert all(seen[what] for what in STEERED), seen
    assert any(seen[what] for what in TAKEN_BACK), seen


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_invariants_hold_under_random_faults(first: int) -> None:
    _hold(first, PER_TEST)


@pytest.mark.parametrize("first", range(0, REPLACING_SEEDS, PER_REPLACING_TEST))
def test_invariants_hold_under_random_faults_while_nodes_are_replaced(first: int) -> None:
    _hold(first, PER_REPLACING_TEST, consolidates=True)


@pytest.mark.parametrize(("provider", "first", "consolidates"), MANAGED_SEEDS)
def test_invariants_hold_under_random_faults_while_groups_are_opened(
    provider: str, first: int, consolidates: bool
) -> None:
    _hold(first, PER_TEST, consolidates=consolidates, provider=provider)


@pytest.mark.parametrize("first", range(0, STEERED_SEEDS, PER_STEERED_TEST))
def test_invariants_hold_under_random_faults_while_the_scheduler_is_steered(first: int) -> None:
    _hold_steered(first, PER_STEERED_TEST)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(STEERED_SEEDS, SLOW_STEERED_SEEDS, PER_SLOW_STEERED_TEST))
def test_invariants_hold_in_hundreds_of_runs_that_steer_the_scheduler(first: int) -> None:
    _hold_steered(first, PER_SLOW_STEERED_TEST)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(50, SLOW_REPLACING_SEEDS, PER_SLOW_TEST))
def test_invariants_hold_in_thousands_of_runs_that_replace_nodes(first: int) -> None:
    _hold(first, PER_SLOW_TEST, consolidates=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(30, SLOW_SEEDS, PER_SLOW_TEST))
def test_invariants_hold_in_thousands_of_runs_with_random_faults(first: int) -> None:
    _hold(first, PER_SLOW_TEST)


@pytest.mark.slow
@pytest.mark.parametrize("consolidates", [False, True])
@pytest.mark.parametrize("first", range(50, SLOW_MANAGED_SEEDS, PER_SLOW_TEST))
@pytest.mark.parametrize("provider", PROVIDERS)
def test_invariants_hold_in_thousands_of_runs_that_open_groups(
    provider: str, first: int, consolidates: bool
) -> None:
    _hold(first, PER_SLOW_TEST, consolidates=consolidates, provider=provider)


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
