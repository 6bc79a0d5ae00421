"""least-cost in a chain: what a plan with it looks like, what it leaves to the others, and who decides without it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.pod import HostPort
from chalicelib.model.policy import Mode, NodePrices, Options, Policy
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

PRICES = NodePrices(cpu=1.0, memory=0.125, gpu=10.0)


def planned(built: ClusterBuilder, *expanders: str, prices: NodePrices | None = PRICES, **options: Any) -> Plan:
    """The plan by a chain of expanders."""
    named = msgspec.structs.replace(Options(), expander=expanders, **options)
    policy = Policy(name="test", mode=Mode.ACTIVE, options=named, prices=prices)
    return plan_cluster(built.snapshot(), policy, Memory(), NOW, 0)[0]


def shop() -> ClusterBuilder:
    """Pods with much memory and pods with many cores, groups for either, and one in between that both fit exactly."""
    return (
        cluster()
        .group("compute", template=node("c", cpu="8", memory="8Gi"))
        .group("memory", template=node("m", cpu="2", memory="64Gi"))
        .group("balanced", template=node("b", cpu="8", memory="64Gi"))
        .pending(10, "6", "2Gi", name="cores", owner="cores")
        .pending(10, "2", "60Gi", name="heap", owner="heap")
    )


def skipped(plan: Plan) -> bool:
    """Whether the plan says that least-cost was passed over."""
    return any(
        note.code is ReasonCode.EXPANDER_SKIPPED and note.params["expander"] == "least-cost" for note in plan.notes
    )


def test_the_cheapest_mix_is_planned_and_every_pod_has_its_place() -> None:
    plan = planned(shop(), "least-cost")
    assert growth(plan) == {"balanced": (10, 20)}
    assert sum(len(promise.pods) for promise in plan.promises) == 20
    assert not plan.unschedulable
    assert not skipped(plan)


def test_a_mix_beats_the_best_single_group() -> None:
    """One large node and one small: a chain that picks group by group buys two large ones or nine small ones."""
    built = (
        cluster()
        .group("large", template=node("l", cpu="8", memory="32Gi"))
        .group("small", template=node("s", cpu="1", memory="4Gi"))
        .pending(9, "1", "1Gi")
    )
    prices = NodePrices(instance_types={}, cpu=0.9, memory=0.0, node=0.2)
    assert growth(planned(built, "least-cost", prices=prices)) == {"large": (1, 8), "small": (1, 1)}


def test_without_prices_the_next_in_the_chain_decides_and_the_plan_says_so() -> None:
    plan = planned(shop(), "least-cost", "most-pods", prices=None)
    assert growth(plan) == growth(planned(shop(), "most-pods"))
    assert skipped(plan)


def test_without_the_solver_the_next_in_the_chain_decides_and_the_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # an import of it fails
    plan = planned(shop(), "least-cost", "most-pods")
    assert growth(plan) == growth(planned(shop(), "most-pods"))
    assert skipped(plan)


def test_the_limits_of_the_cluster_are_kept() -> None:
    plan = planned(shop(), "least-cost", max_nodes_total=7)
    assert sum(nodes for nodes, _ in growth(plan).values()) == 7
    assert growth(plan) == {"balanced": (7, 14)}, "seven nodes take most pods if each takes two"


def test_pods_it_cannot_weigh_are_placed_by_the_rest_of_the_chain() -> None:
    built = shop().pending(3, "1", "1Gi", name="edge", owner="edge", ports=(HostPort(8080),))
    plan = planned(built, "least-cost")
    assert not plan.unschedulable
    assert sum(len(promise.pods) for promise in plan.promises) == 23
