"""Time to find every unneeded node and the number found, compared with upstream without its limits.

The inputs are half empty (40% requested on average, five levels from 20 to 60%), with budgets on
30% of the ReplicaSets and a pod that blocks a drain on 4% of the nodes (from the reference data).
Upstream's figures are wall seconds of its best run and the most nodes that any of its runs found;
ours are CPU seconds of a whole plan. The limits are for a machine with two cores and are asserted
with a margin for a busy machine.
"""

from __future__ import annotations

import gc
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.benchmarks.test_planning import BUSY, NOW, generate
from tests.reference_data import needs_shared

# multiple of the plain input's time that rules between pods may cost; upstream: 15 times
MOST_FOR_RULES = 3.0


class Input(msgspec.Struct, frozen=True):
    """One input. limit: seconds of planning; upstream: wall seconds of its best run, 0: not
    measured; found: the most unneeded nodes of its runs."""

    nodes: int
    limit: float
    upstream: float
    found: int
    variant: str = "plain"
    times: int = 5

    @property
    def name(self) -> str:
        """The name used in docs/performance.md."""
        return f"{self.nodes:,} nodes half empty" + (
            "" if self.variant == "plain" else f", {self.variant}"
        )


SMALL = Input(1000, 0.3, 0.57, 145)
MIDDLE = Input(5000, 2.0, 12.1, 776, times=3)
LARGE = Input(15000, 8.0, 137.0, 2270, times=1)
AFFINITY = Input(1000, MOST_FOR_RULES * 0.3, 8.84, 142, variant="affinity")
AFFINITY_MIDDLE = Input(5000, MOST_FOR_RULES * 2.0, 0.0, 0, variant="affinity", times=2)
AFFINITY_LARGE = Input(15000, MOST_FOR_RULES * 8.0, 0.0, 0, variant="affinity", times=1)


def made(out: Path, given: Input) -> Path:
    """The folder of an input, made by the reference data's own generator."""
    return generate(
        out / "down",
        nodes=given.nodes,
        utilization=0.4,
        jitter=0.2,
        pdbs=True,
        variant=given.variant,
    )


@cache
def measured(given: Input) -> tuple[Plan, float]:
    """The plan and the CPU seconds of planning, the minimum of several runs. There is no clock,
    so no time limit applies."""
    with TemporaryDirectory() as folder:
        snapshot = read(made(Path(folder), given), node_groups=None, cluster="bench", taken_at=NOW)
    best, plan = 1e9, None
    for _ in range(given.times):
        gc.collect()
        started = time.process_time()
        plan, _memory = plan_cluster(snapshot, Policy("bench"), Memory(), NOW, 0)
        best = min(best, time.process_time() - started)
    assert plan is not None
    return plan, best


def report(given: Input, plan: Plan, seconds: float) -> None:
    """Prints one line per input."""
    beside = f" = 1/{given.upstream / seconds:.1f} of upstream's best run" if given.upstream else ""
    print(
        f"\n{given.name}: plan {seconds:.3f} s{beside}, limit {given.limit:g} s; "
        f"{len(plan.unneeded):,} unneeded nodes, upstream {given.found or 'not measured'}"
    )


@needs_shared
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(SMALL, id=SMALL.name),
        pytest.param(AFFINITY, id=AFFINITY.name),
        pytest.param(MIDDLE, id=MIDDLE.name),
        pytest.param(LARGE, id=LARGE.name),
    ],
)
def test_removal_planning_time_of_every_candidate_in_one_pass(given: Input) -> None:
    plan, seconds = measured(given)
    report(given, plan, seconds)
    assert len(plan.unneeded) >= given.found, "upstream's best run finds more"
    assert seconds < min(given.limit * BUSY, given.upstream), "never slower than upstream"


@needs_shared
@pytest.mark.parametrize(
    ("plain", "ruled"),
    [
        pytest.param(SMALL, AFFINITY, id=AFFINITY.name),
        pytest.param(MIDDLE, AFFINITY_MIDDLE, id=AFFINITY_MIDDLE.name),
        pytest.param(LARGE, AFFINITY_LARGE, id=AFFINITY_LARGE.name),
    ],
)
def test_rules_between_pods_triple_the_removal_planning_time_at_most(
    plain: Input, ruled: Input
) -> None:
    _, without = measured(plain)
    plan, seconds = measured(ruled)
    report(ruled, plan, seconds)
    print(
        f"{seconds / without:.2f} x the plain input (upstream at 1,000 nodes: {8.84 / 0.57:.1f} x)"
    )
    assert seconds <= MOST_FOR_RULES * without


@needs_shared
def test_unneeded_nodes_are_found_again_in_the_next_pass() -> None:
    """Nodes remembered as unneeded are found again. Otherwise timers would never expire
    (docs/reference/scale-down.md "Unneeded timers")."""
    with TemporaryDirectory() as folder:
        snapshot = read(made(Path(folder), SMALL), node_groups=None, cluster="bench", taken_at=NOW)
    first, after = plan_cluster(snapshot, Policy("bench"), Memory(), NOW, 0)
    second, _ = plan_cluster(snapshot, Policy("bench"), after, NOW + 60, 0)
    assert second.unneeded == first.unneeded
