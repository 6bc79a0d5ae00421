"""Pending pods and pods of draining nodes go to nodes that stay anyway before
nodes that may be removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from chalicelib.model.pod import PreferredTerm
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.plan.demand.pending_pods import collect_pending_pods
from chalicelib.plan.scale_up.placement.every_order import _RandomNumbers, _SchedulerScore
from chalicelib.plan.simulation.cluster_builder import build as build_cluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW, ZONE, ClusterBuilder, cluster, even, expected, having


def two(**more: Any) -> ClusterBuilder:
    """`a` is empty and removable; the keywords describe `b`; `g` may shrink to zero."""
    build = cluster().node("a", "4", group="g").node("b", "4", group="g", **more)
    return build.group("g", max=2)


@pytest.mark.parametrize("drained", [False, True])
def test_pod_goes_to_a_blocked_node_so_the_empty_node_can_be_removed(drained: bool) -> None:
    build = two(annotations={SCALE_DOWN_DISABLED: "true"})
    if drained:
        build.node("c", "4", group="h", taints=[Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW)))])
        build.running("c", 1, "1").group("h", max=1)
    else:
        build.pending(1, "1")
    plan = build.plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"b"}
    assert "a" in plan.unneeded


def test_pod_goes_to_a_node_in_use_before_an_empty_one() -> None:
    plan = two().running("b", 1, "2500m").pending(1, "1").plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"b"}
    assert plan.unneeded == ("a",)


def test_removable_node_with_the_only_room_stays() -> None:
    plan = two().running("b", 1, "3500m").pending(1, "1").plan(unneeded=3600.0)
    assert set(expected(plan).values()) == {"a"}
    assert plan.unneeded == ()


def test_no_pod_stays_pending_for_the_sake_of_a_removal() -> None:
    plan = two(annotations={SCALE_DOWN_DISABLED: "true"}).pending(5, "1").plan(unneeded=3600.0)
    assert len(plan.fits_existing) == 5
    assert set(expected(plan).values()) == {"a", "b"}


def test_orders_are_drawn_with_splitmix64() -> None:
    """The same draws on every machine and in every release: Vigna's
    reference values for the state 0."""
    numbers = _RandomNumbers(7)
    numbers._state = 0
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [numbers.random() for _ in expected] == [(value >> 11) / 2**53 for value in expected]


# -- the scheduler's choice among nodes, as far as it is simulated


def chosen(build: ClusterBuilder, *placed: str) -> set[str]:
    """The nodes that the scheduler may choose for the last pod, after pods of its
    owner were placed on these."""
    snapshot = build.snapshot()
    state = build_cluster_state(snapshot, Policy("test"), Memory(), NOW)
    simulated = build_cluster(
        state, collect_pending_pods(state).nominated, ResourceColumns(snapshot.classes)
    )
    score, nodes, cls = _SchedulerScore(simulated), simulated.table.nodes, snapshot.pods[-1].cls
    score.begin(0.0)
    for name in placed:
        score.put(cls, simulated.table.index[name])
    return {
        nodes[score.best(cls, np.arange(len(nodes)), _RandomNumbers(seed))].name
        for seed in range(20)
    }


def in_zones(*zones: str, **more: Any) -> ClusterBuilder:
    """Equal nodes n0, n1 … in these zones; the keywords describe the last."""
    build = cluster()
    for at, zone in enumerate(zones):
        build.node(f"n{at}", "4", labels={ZONE: zone}, **(more if at == len(zones) - 1 else {}))
    return build


def test_scheduler_chooses_any_of_equal_nodes() -> None:
    assert chosen(in_zones("a", "b").pending(1, "1")) == {"n0", "n1"}


def test_scheduler_follows_a_preferred_affinity_where_no_node_has_a_taint() -> None:
    preferred = PreferredTerm(1, NodeTerm((Requirement(ZONE, "In", ("b",)),)))
    assert chosen(in_zones("a", "b").pending(1, "1", preferred_nodes=(preferred,))) == {"n1"}


def test_scheduler_avoids_a_soft_taint_where_no_pod_prefers_a_node() -> None:
    assert chosen(
        in_zones("a", "a", taints=[Taint("old", "PreferNoSchedule")]).pending(1, "1")
    ) == {"n0"}


def test_scheduler_spreads_an_owners_pods_over_zones() -> None:
    assert chosen(in_zones("a", "a", "b").pending(2, "1", owner="web"), "n0") == {"n2"}


def test_scheduler_weighs_each_soft_spread_by_the_number_of_its_domains() -> None:
    """The weight is log(domains + 2): 7 pods on one of three nodes and in one of two zones weigh
    more than 15 in the other zone, although they would not with log(domains + 3)."""
    build = in_zones("a", "b", "b").running("n0", 7, owner="x").running("n2", 15, owner="x")
    spread = tuple(even(key, having(app="x")) for key in (ZONE, HOSTNAME_LABEL))
    assert chosen(build.pending(1, owner="y", preferred_spread=spread)) == {"n1"}
