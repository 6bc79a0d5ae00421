"""Unneeded nodes: simulation order, timers across passes, and nodes not
simulated for lack of time.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, Taint
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.candidates import Candidate, find_candidates, utilization_reason
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.simulate import Search, TrialResult
from chalicelib.plan.simulation.cluster_builder import build as build_simulated
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ZONE, ClusterBuilder, cluster, even, having, stays

_POLICY = Policy("test", options=Options())


def _known(**since: float) -> Memory:
    return Memory(
        nodes={
            name: NodeMemory(unneeded_since=NOW - age, confirmed_at=NOW - 20)
            for name, age in since.items()
        }
    )


def _budget_for_one_or_two() -> ClusterBuilder:
    """One disruption left in each of two budgets: `big` needs both, `a` and `b` one each."""
    build = cluster().node("home", "8", "64Gi")
    for name, owners in (("a", ["x"]), ("b", ["y"]), ("big", ["x", "y"])):
        build.node(name, group="g")
        for owner in owners:
            build.running(name, 1, "50m", owner=owner)
    build.group("g")
    return build.budget("for-x", 1, having(app="x")).budget("for-y", 1, having(app="y"))


def test_node_that_uses_least_of_a_scarce_pdb_is_simulated_first() -> None:
    assert _budget_for_one_or_two().plan().unneeded == ("a", "b")


def test_unneeded_node_keeps_its_timer_even_if_other_nodes_would_free_more() -> None:
    plan, after = _budget_for_one_or_two().decide(_known(big=300.0))
    assert plan.unneeded == ("big",)
    assert after.nodes["big"].unneeded_since == NOW - 300.0


def test_pdb_allowances_are_reset_for_each_simulation_order() -> None:
    """The first order fails for one node, so others are tried; their result must not depend on
    disruptions that the first order used."""
    plan = _budget_for_one_or_two().plan(unneeded=7200, max_drain_parallelism=5)
    assert sorted(removal.node for removal in plan.removals) == ["a", "b"]
    assert stays(plan)["big"] == "BlockedByPod"


def test_evicted_pods_go_to_nodes_that_stay() -> None:
    """40 nodes may all be removed, one stays; no pod is moved to a node that is removed later."""
    build = cluster().node("zz-home", "16", "64Gi", pods=200)
    for at in range(40):
        build.node(f"n{at:02d}", group="g").running(f"n{at:02d}", 1, "100m", owner=f"o{at}")
    plan = build.group("g").plan(
        unneeded=7200, max_drain_parallelism=40, max_scale_down_parallelism=40
    )
    assert len(plan.removals) == 40
    assert {to for removal in plan.removals for to in removal.destinations.values()} == {"zz-home"}


def test_large_cluster_is_filled_in_order_and_no_pod_is_omitted() -> None:
    build = cluster()
    for at in range(300):
        build.node(f"stay{at:03d}", "1").running(f"stay{at:03d}", 1, "800m", owner=f"s{at}")
        build.node(f"go{at:03d}", group="g").running(f"go{at:03d}", 2, "100m", owner=f"g{at}")
    plan = build.group("g").plan(
        unneeded=7200, max_drain_parallelism=300, max_scale_down_parallelism=300
    )
    assert len(plan.removals) == 300
    on: dict[str, int] = {}
    for removal in plan.removals:
        for to in removal.destinations.values():
            on[to] = on.get(to, 0) + 1
    assert set(on) <= {f"stay{at:03d}" for at in range(300)}
    assert max(on.values()) <= 2, "200m are free on each"


def test_destinations_are_updated_when_a_pods_new_host_is_removed_too() -> None:
    plan = (
        cluster()
        .node("a", group="g")
        .node("b", group="g")
        .node("c", "1", group="g")
        .group("g")
        .running("a", 1, "100m", owner="x")
        .running("b", 1, "200m", owner="y")
        .running("c", 1, "300m", owner="z")
        .plan(unneeded=7200, max_drain_parallelism=9)
    )
    gone = {removal.node for removal in plan.removals}
    assert len(gone) == 2, "everything fits on one"
    assert {to for removal in plan.removals for to in removal.destinations.values()} == {
        "a",
        "b",
        "c",
    } - gone


def test_node_not_simulated_for_lack_of_time_keeps_its_timer_and_reports_it() -> None:
    build = cluster().node("home", "8", "64Gi")
    for at in range(4):
        build.node(f"n{at}", group="g").running(f"n{at}", 1, "100m", owner=f"o{at}")
    seconds = itertools.count(0, 20)  # each clock reading is 20 s later
    memory = _known(n3=500.0)
    plan, after = plan_cluster(
        build.group("g").snapshot(), _POLICY, memory, NOW, 0, clock=lambda: float(next(seconds))
    )
    late = [
        verdict.node
        for verdict in plan.unremovable
        if verdict.reason.code is ReasonCode.NOT_EVALUATED
    ]
    assert late
    assert "n3" not in late, "what was unneeded is looked at first"
    assert after.nodes["n3"].unneeded_since == NOW - 500.0
    left = cluster().node("home", "8", "64Gi").node("n", group="g").group("g").snapshot()
    _, kept = plan_cluster(
        left,
        msgspec.structs.replace(_POLICY, options=Options(scale_down_simulation_timeout=0.0)),
        _known(n=500.0),
        NOW,
        0,
        clock=lambda: float(next(seconds)),
    )
    assert kept.nodes["n"] == NodeMemory(unneeded_since=NOW - 480.0, confirmed_at=NOW), (
        "20 s without a look"
    )


@pytest.mark.parametrize(
    ("age", "ttl", "counted"),
    [
        (400, 900.0, 400.0),
        (400, 0.0, 0.0),
        (901, 900.0, 0.0),
        (-50, 900.0, 0.0),
    ],
    ids=["young enough", "off", "too old", "from the future"],
)
def test_soft_taint_time_is_used_where_memory_has_no_timer(
    age: int, ttl: float, counted: float
) -> None:
    soft = Taint(DELETION_CANDIDATE, "PreferNoSchedule", str(int(NOW) - age))
    _, after = (
        cluster()
        .node("n", group="g", taints=[soft])
        .group("g")
        .decide(node_deletion_candidate_ttl=ttl)
    )
    assert after.nodes["n"].unneeded_since == NOW - counted
    _, known = (
        cluster()
        .node("n", group="g", taints=[soft])
        .group("g")
        .decide(_known(n=60.0), node_deletion_candidate_ttl=ttl)
    )
    assert known.nodes["n"].unneeded_since == NOW - 60.0, "what memory knows is better"


def test_recently_unremovable_node_still_reports_its_reason() -> None:
    build = (
        cluster()
        .node("n", group="g")
        .node("m", group="g")
        .group("g")
        .running("n", 1, "100m", owner="x", safe_to_evict="false")
    )
    _, after = build.decide()
    again = build.plan(after, now=NOW + 60)
    (verdict,) = (each for each in again.unremovable if each.node == "n")
    assert verdict.reason.code is ReasonCode.RECENTLY_UNREMOVABLE
    assert verdict.pod == "default/r-00000"
    assert "NotSafeToEvictAnnotation" in sentence(verdict.reason)
    assert "looked at again after" in sentence(verdict.reason)


def test_drain_above_the_remaining_pdb_allowance_goes_last() -> None:
    build = cluster().node("home", "8", "64Gi").node("a", group="g").node("b", group="g").group("g")
    build.running("a", 2, "50m", owner="x").running("b", 1, "50m", owner="y")
    build.budget("for-x", 1, having(app="x")).budget("for-y", 1, having(app="y"))
    plan = build.plan(unneeded=7200, max_drain_parallelism=1)
    assert plan.unneeded == ("a", "b")
    assert [removal.node for removal in plan.removals] == ["b"], "D12: allowed, but risky"


@pytest.mark.parametrize(
    ("policy", "whole", "goes"),
    [
        ("AlwaysAllow", False, True),
        ("IfHealthyBudget", True, True),
        ("IfHealthyBudget", False, False),
        ("", True, True),
        ("", False, False),
    ],
)
def test_unready_pod_uses_no_disruption_where_its_pdb_says_so(
    policy: str,
    whole: bool,
    goes: bool,
) -> None:
    build = cluster().node("home", "8", "64Gi").node("n", group="g").group("g")
    build.running("n", 1, "50m", owner="x", pod={"unready": True}).budget("b", 0, having(app="x"))
    build.budgets[0] = msgspec.structs.replace(
        build.budgets[0], unhealthy_policy=policy, whole=whole
    )
    assert build.plan().unneeded == (("n",) if goes else ())


def test_node_with_expected_pods_stays_and_its_timer_is_paused() -> None:
    build = (
        cluster()
        .node("n", group="g")
        .node("full", group="g")
        .group("g")
        .running("full", 1, "1", owner="keeper")
    )
    plan, after = build.pending(1, "100m", owner="new").decide(_known(n=500.0))
    assert stays(plan)["n"] == "PromisedToPendingPods"
    assert after.nodes["n"] == NodeMemory(unneeded_since=NOW - 480.0, confirmed_at=NOW)


def _trial_of(build: ClusterBuilder) -> tuple[TrialResult, list[Candidate], SimulatedCluster]:
    state = build_cluster_state(build.snapshot(), _POLICY, Memory(), NOW)
    simulated = build_simulated(state, (), ResourceColumns(state.snapshot.classes))
    pdbs = RemovalLimits(state).pdbs
    candidates, _ = find_candidates(state, simulated, pdbs, utilization_reason)
    return Search(state, simulated, pdbs, candidates, lambda: False).best(), candidates, simulated


def _open(simulated: SimulatedCluster) -> set[str]:
    return {name for name, row in simulated.table.index.items() if simulated.open[row]}


def _free(simulated: SimulatedCluster, name: str) -> int:
    return int(simulated.table.free[simulated.table.index[name], simulated.table.columns.at("cpu")])


def test_trial_repeated_for_some_of_its_removals_leaves_the_cluster_as_after_them() -> None:
    build = cluster().node("home", "8", "64Gi").node("a", group="g").node("b", group="g")
    for name in ("a", "b"):
        build.running(name, 1, "300m", owner=f"of-{name}")
    result, candidates, simulated = _trial_of(build.group("g"))
    assert (_open(simulated), _free(simulated, "home")) == ({"home"}, 7400)
    chosen = [removal for removal in result.removals if removal.node.name == "b"]
    assert result.keep(chosen, candidates) == chosen
    assert (_open(simulated), _free(simulated, "home")) == ({"home", "a"}, 7700)


def test_trial_stays_as_it_was_if_a_chosen_removal_is_only_possible_with_the_others() -> None:
    """The pod of b may go to the first zone only when the third one, which has none, is gone."""
    level = even(ZONE, having(app="web"), node_taints_policy="Honor")
    build = (
        cluster()
        .node("home", "8", "64Gi", zone="z1")
        .running("home", 1, "300m", owner="web", spread=(level,))
    )
    build.node("b", group="g", zone="z2").running("b", 1, "300m", owner="web", spread=(level,))
    build.node("a", "100m", group="g", zone="z3").group("g")
    result, candidates, simulated = _trial_of(build)
    assert [removal.node.name for removal in result.removals] == ["a", "b"]
    assert _open(simulated) == {"home"}
    chosen = [removal for removal in result.removals if removal.node.name == "b"]
    assert result.keep(chosen, candidates) == chosen
    assert (_open(simulated), _free(simulated, "home")) == ({"home"}, 7400)
