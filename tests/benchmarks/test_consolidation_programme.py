"""The consolidation programme: CPU seconds, the distance to its bound, and what first
fit reaches, in one run.

The inputs are random half-empty clusters of four shapes in three zones (see programme_instances),
with 60 classes. In "old", the nodes of two shapes cost twice what the same shape costs today, so
that purchases pay. The limits of time are for a machine with two cores and are asserted with a
margin for a busy machine.
"""

from __future__ import annotations

import time

import msgspec
import pytest

from chalicelib.plan.packing.problem import PackingProblem
from chalicelib.plan.removal.consolidation.programme import Programme
from tests.benchmarks.test_planning import BUSY
from tests.unit.plan.programme_instances import first_fit_removals, half_empty, never

COMPONENTS = 17  # of 300 nodes each: 5,000 nodes


class Measured(msgspec.Struct, frozen=True):
    """One problem. bound, tight, robust: gains; seconds of each: tight includes the bound."""

    bound: float
    tight: int
    robust: int
    tight_seconds: float
    robust_seconds: float


def measured(given: PackingProblem) -> Measured:
    """Bound, a tight proposal and a robust one."""
    started = time.process_time()
    tried = Programme(given, rounds=10, branches=2000, stop=never)
    bound, tight = tried.bound, tried.propose()
    between = time.process_time()
    robust = tried.propose(robust=True)
    ended = time.process_time()
    assert tight is not None
    assert robust is not None
    return Measured(bound, tight.gain, robust.gain, between - started, ended - between)


@pytest.mark.parametrize("old", [1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_thousand_nodes_in_one_problem(seed: int, old: float) -> None:
    got = measured(half_empty(seed, 1000, old=old))
    print(
        f"\n1,000 nodes, seed {seed}, old nodes x {old:g}: {got.tight / got.bound:.4f} of the "
        "bound in "
        f"{got.tight_seconds:.2f} s; robust {got.robust / got.bound:.4f} in "
        f"{got.robust_seconds:.2f} s more"
    )
    assert got.tight >= 0.96 * got.bound
    assert got.tight_seconds < 1.5 * BUSY
    assert got.robust_seconds < 1.5 * BUSY


def test_five_thousand_nodes_in_components() -> None:
    got = [measured(half_empty(seed, 300, old=1.0 + seed % 2)) for seed in range(COMPONENTS)]
    tight, robust = (sum(one.tight_seconds for one in got), sum(one.robust_seconds for one in got))
    share = sum(one.tight for one in got) / sum(one.bound for one in got)
    print(
        f"\n{COMPONENTS} x 300 nodes: {share:.4f} of the bound in {tight:.2f} s; robust in "
        f"{robust:.2f} s more"
    )
    assert share > 0.96
    assert tight + robust < 10 * BUSY


@pytest.mark.parametrize(("nodes", "count"), [(10, 60), (30, 40), (100, 30)])
@pytest.mark.parametrize("old", [1.0, 2.0])
def test_programme_beats_first_fit(nodes: int, count: int, old: float) -> None:
    programme, greedy, bounds, better, seconds = 0, 0, 0.0, 0, 0.0
    for seed in range(count):
        given = half_empty(seed, nodes, 12, old=old)
        started = time.process_time()
        tried = Programme(given, rounds=10, branches=2000, stop=never)
        bounds += tried.bound
        plan, first_fit = tried.propose(), first_fit_removals(given)
        seconds += time.process_time() - started
        gain = plan.gain if plan else 0
        programme, greedy, better = (
            programme + gain,
            greedy + first_fit,
            better + (gain > first_fit),
        )
        assert gain >= first_fit or not tried.proven, seed
    print(
        f"\n{count} x {nodes} nodes, old nodes x {old:g}: {programme / greedy:.3f} x the gain of "
        "first fit, better in "
        f"{better}, {programme / bounds:.4f} of the first bound; {seconds / count:.3f} s each"
    )
    assert programme > greedy
