"""Price after consolidation: of Karpenter's rules, of removals alone, and the bound
that no rules can go below.

Every planner's answers are applied to the same generated cluster until nothing more happens. A
referee binds the pods that move: by LeastAllocated alone, or with OUTSCALER_SCORES=default by all
scores of the scheduler's default profile. All runs of an input are made in one process, so that
their times compare.
"""

from __future__ import annotations

import os
import time
from functools import cache

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.consolidation import move_search as search
from chalicelib.plan.removal.consolidation.move_search import MOST_CANDIDATES
from tests.benchmarks.consolidation_bound import PriceBound, lower_bound
from tests.benchmarks.consolidation_clusters import ClusterShape, compare, generate, small_clusters
from tests.benchmarks.consolidation_ends import (
    ONLY_OURS,
    POLICY,
    QUIET_PASSES,
    SPARING,
    UNSTEERED,
)
from tests.benchmarks.consolidation_trace import (
    STRATEGIES,
    TraceOutcome,
    replay,
    trace,
    trace_table,
)
from tests.benchmarks.consolidation_world import (
    History,
    Karpenter,
    Outscaler,
    World,
    run_to_the_end,
    table,
)
from tests.benchmarks.scheduler_referee import SchedulerScores
from tests.differential.karpenter import MICRO, KarpenterRules
from tests.reference_data import needs_shared

SCORES = SchedulerScores(os.environ.get("OUTSCALER_SCORES", "least-allocated"))
OF_BOUND = 1.03
"""Price after one pass as a multiple of the bound."""
OF_BOUND_AT_THE_END = 1.07
"""The same of the end that a horizon of 5,000 nodes foresees."""
OF_KARPENTER = 1.0
"""The price at the end as a multiple of what Karpenter's rules reach with as many disrupted
pods."""
OF_UNSTEERED = 2.0
"""CPU of the slowest pass as a multiple of the first one without marks."""
INPUTS = {1000: ClusterShape(1000), 5000: ClusterShape(5000, pools=5)}


@cache
def cluster(nodes: int) -> Snapshot:
    return generate(INPUTS[nodes])


@cache
def bound(nodes: int, disrupted: int | None = None) -> PriceBound:
    return lower_bound(cluster(nodes), POLICY, disrupted=disrupted)


@cache
def peers(nodes: int) -> dict[str, History]:
    """What others reach."""
    snapshot = cluster(nodes)
    return {
        "removals only": run_to_the_end(World(snapshot, scores=SCORES), Outscaler(POLICY)),
        "Karpenter's rules": run_to_the_end(
            World(snapshot, scores=SCORES), Karpenter(POLICY, KarpenterRules(), commands=1)
        ),
        "Karpenter's rules, Balanced": run_to_the_end(
            World(snapshot, scores=SCORES),
            Karpenter(POLICY, KarpenterRules(balanced=2.0), commands=1),
        ),
    }


def start(nodes: int) -> int:
    return World(cluster(nodes)).price


def report(nodes: int, ends: dict[str, History]) -> None:
    """Prints the ends, the bound, and what each reaches within the same
    numbers of disrupted pods."""
    lowest = bound(nodes)
    print(
        f"\n{table(ends, start(nodes))}\nbound {lowest.price:,.2f}, "
        f"{lowest.price / lowest.start:.3f} of the start\n"
    )
    counts = [round(lowest.disrupted * part / 4) for part in range(1, 6)]
    print(f"| Disrupted pods at most | Bound | {' | '.join(ends)} |\n|{'---|' * (len(ends) + 2)}")
    for count in counts:
        prices = [
            bound(nodes, count).price,
            *(history.price_within(count) / MICRO for history in ends.values()),
        ]
        print(f"| {count:,} | {' | '.join(f'{price:,.2f}' for price in prices)} |")


@pytest.mark.parametrize("nodes", INPUTS)
def test_no_rules_go_below_the_bound(nodes: int) -> None:
    ends = peers(nodes)
    lowest = bound(nodes)
    report(nodes, ends)
    assert len(ends) > 1
    for history in ends.values():
        assert history.price_within(10**9) / MICRO >= lowest.price * (1 - 1e-6)
        assert history.last.price < start(nodes)
        disrupted = history.last.disrupted
        assert history.price_within(disrupted) / MICRO >= bound(nodes, disrupted).price * (1 - 1e-6)


@pytest.mark.parametrize("nodes", INPUTS)
def test_first_pass_without_marks_is_close_to_the_bound(nodes: int) -> None:
    """The bound is of one pass, in which PodDisruptionBudgets limit what may move,
    with as many disrupted pods."""
    unsteered = msgspec.structs.replace(ONLY_OURS, consolidation=UNSTEERED.consolidation)
    world, strategy = World(cluster(nodes), scores=SCORES), Outscaler(unsteered)
    seconds = strategy.act(world)
    price, disrupted = world.price / MICRO, len(world.moves)
    least = lower_bound(cluster(nodes), ONLY_OURS, one_pass=True, disrupted=disrupted).price
    print(
        f"\n{nodes:,} nodes: {start(nodes) / MICRO:,.2f} to {price:,.2f} in one pass, "
        f"{price / least:.3f} x the bound "
        f"{least:,.2f} with as many disrupted pods ({disrupted:,}); {seconds:.2f} s CPU of planning"
    )
    assert price <= OF_BOUND * least


def test_steer_15_horizon_of_5_000_nodes_is_near_the_bound_and_found_in_time() -> None:
    lowest, steered = bound(5000).price, Outscaler(SPARING)
    seconds, unsteered = (
        strategy.act(World(cluster(5000), scores=SCORES))
        for strategy in (steered, Outscaler(UNSTEERED))
    )
    assert steered.plan is not None
    assert steered.plan.consolidation is not None
    horizon = steered.plan.consolidation.horizon
    assert horizon is not None
    share = horizon.end / lowest
    print(
        f"\n5,000 nodes: the horizon ends at {horizon.end:,.2f}, {share:.3f} x the bound; a pass "
        f"with its search takes {seconds:.1f} s of CPU, the first without marks {unsteered:.1f} s"
    )
    assert share <= OF_BOUND_AT_THE_END
    assert seconds <= OF_UNSTEERED * unsteered


def test_consolidation_ends_below_karpenter_with_as_many_disrupted_pods() -> None:
    ours, ten_percent = (
        run_to_the_end(World(cluster(1000), scores=SCORES), Outscaler(policy), quiet=QUIET_PASSES)
        for policy in (ONLY_OURS, SPARING)
    )
    report(1000, {**peers(1000), "consolidation": ours, "consolidation, budget 10 %": ten_percent})
    end = ours.last
    karpenter = peers(1000)["Karpenter's rules"].price_within(end.disrupted) / MICRO
    price = end.price / MICRO
    share = f"{price / karpenter:.3f} x Karpenter's {karpenter:,.2f}"
    print(f"with {end.disrupted:,} disrupted pods: ours {price:,.2f}, {share}")
    assert price < OF_KARPENTER * karpenter
    assert ours.ended
    assert ours.slowest <= OF_UNSTEERED * Outscaler(UNSTEERED).act(World(cluster(1000)))


@needs_shared
@pytest.mark.parametrize("hours", [6.0, 72.0])
def test_hours_of_a_trace_under_the_rules_of_others(hours: float) -> None:
    task_trace = trace(hours)
    outcomes = {name: replay(task_trace, STRATEGIES[name]()) for name in ("removals", "karpenter")}
    print(f"\n{len(task_trace.pods)} tasks in {hours:g} hours\n{trace_table(outcomes)}")
    assert outcomes["removals"].consolidated_young == 0
    assert outcomes["removals"].moved == 0
    assert outcomes["karpenter"].disrupted > outcomes["removals"].disrupted


@needs_shared
@pytest.mark.parametrize("hours", [6.0, 72.0])
def test_consolidation_of_a_trace_neither_churns_nor_moves_pods_too_often(hours: float) -> None:
    task_trace = trace(hours)
    outcomes: dict[str, TraceOutcome] = {
        name: replay(task_trace, STRATEGIES[name]())
        for name in ("removals", "karpenter", "consolidation")
    }
    print(f"\n{len(task_trace.pods)} tasks in {hours:g} hours\n{trace_table(outcomes)}")
    ours = outcomes["consolidation"]
    assert ours.consolidated_young == 0, "a bought node is needed for minNodeAge at least"
    assert ours.moved <= 4, "movesPerPodPerDay"
    assert ours.price <= outcomes["removals"].price
    assert ours.disrupted < outcomes["karpenter"].disrupted


def test_karpenter_is_cheaper_than_removals_on_small_clusters() -> None:
    def removals(snapshot: Snapshot) -> float:
        return (
            run_to_the_end(World(snapshot, scores=SCORES), Outscaler(POLICY)).price_within(10**9)
            / MICRO
        )

    def karpenter(snapshot: Snapshot) -> float:
        rules = KarpenterRules(budget="100%")
        return (
            run_to_the_end(
                World(snapshot, scores=SCORES), Karpenter(POLICY, rules, commands=1)
            ).price_within(10**9)
            / MICRO
        )

    compared = compare(karpenter, removals, small_clusters(100))
    print(f"\n{compared}")
    assert len(compared.margins) == 100
    assert compared.first < compared.second


def test_programme_brings_more_than_greedy_choice_and_never_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gain(most: int, snapshot: Snapshot) -> tuple[int, float]:
        """What a plan brings, in millionths, and its CPU seconds."""
        monkeypatch.setattr(search, "MOST_CANDIDATES", most)
        started = time.process_time()
        plan, _ = plan_cluster(snapshot, ONLY_OURS, Memory(), snapshot.taken_at, 0)
        assert plan.consolidation is not None
        return round(
            MICRO * sum(move.gain for move in plan.consolidation.moves)
        ), time.process_time() - started

    pairs = [
        (gain(MOST_CANDIDATES, snapshot), gain(0, snapshot)) for snapshot in small_clusters(500)
    ]
    more, less = (
        sum(sign * (ours[0] - greedy[0]) > 0 for ours, greedy in pairs) for sign in (1, -1)
    )
    ratios = [
        sum(ours[at] for ours, _ in pairs) / sum(greedy[at] for _, greedy in pairs) for at in (0, 1)
    ]
    print(
        f"\n{len(pairs)} clusters: gain {ratios[0]:.3f} x greedy choice, larger in {more}, smaller "
        f"in {less}; "
        f"{ratios[1]:.2f} x the CPU"
    )
    assert len(pairs) == 500
    assert less == 0
    assert ratios[0] > 1.03
