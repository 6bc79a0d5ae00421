"""least-cost in an expander chain: its plan, what it leaves to other expanders, and
the fallback without it.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.pod import HostPort
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

PRICES = NodePrices(cpu=1.0, memory=0.125, gpu=10.0)


def planned(
    built: ClusterBuilder, *expanders: str, prices: NodePrices | None = PRICES, **options: Any
) -> Plan:
    """Plans with a chain of expanders."""
    named = msgspec.structs.replace(Options(), expander=expanders, **options)
    policy = Policy(name="test", mode=Mode.ACTIVE, options=named, prices=prices)
    return plan_cluster(built.snapshot(), policy, Memory(), NOW, 0)[0]


def shop() -> ClusterBuilder:
    """Memory-heavy and cpu-heavy pods, a group for each, and a balanced
    group that fits both exactly."""
    return (
        cluster()
        .group("compute", template=node("c", cpu="8", memory="8Gi"))
        .group("memory", template=node("m", cpu="2", memory="64Gi"))
        .group("balanced", template=node("b", cpu="8", memory="64Gi"))
        .pending(10, "6", "2Gi", name="cores", owner="cores")
        .pending(10, "2", "60Gi", name="heap", owner="heap")
    )


def skipped(plan: Plan) -> bool:
    """Whether the plan reports that least-cost was skipped."""
    return any(
        note.code is ReasonCode.EXPANDER_SKIPPED and note.params["expander"] == "least-cost"
        for note in plan.notes
    )


def test_least_cost_plans_the_cheapest_mix_and_places_every_pod() -> None:
    plan = planned(shop(), "least-cost")
    assert growth(plan) == {"balanced": (10, 20)}
    assert sum(len(promise.pods) for promise in plan.promises) == 20
    assert not plan.unschedulable
    assert not skipped(plan)


def test_least_cost_chain_mixes_groups_where_that_beats_the_best_single_group() -> None:
    """One large node and one small one. Choosing group by group would buy two
    large or nine small nodes."""
    built = (
        cluster()
        .group("large", template=node("l", cpu="8", memory="32Gi"))
        .group("small", template=node("s", cpu="1", memory="4Gi"))
        .pending(9, "1", "1Gi")
    )
    prices = NodePrices(instance_types={}, cpu=0.9, memory=0.0, node=0.2)
    assert growth(planned(built, "least-cost", prices=prices)) == {"large": (1, 8), "small": (1, 1)}


def test_chain_without_prices_skips_least_cost_and_reports_it() -> None:
    plan = planned(shop(), "least-cost", "most-pods", prices=None)
    assert growth(plan) == growth(planned(shop(), "most-pods"))
    assert skipped(plan)


def test_chain_without_the_solver_skips_least_cost_and_reports_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # importing it fails
    plan = planned(shop(), "least-cost", "most-pods")
    assert growth(plan) == growth(planned(shop(), "most-pods"))
    assert skipped(plan)


def test_least_cost_chain_respects_cluster_limits() -> None:
    plan = planned(shop(), "least-cost", max_nodes_total=7)
    assert sum(nodes for nodes, _ in growth(plan).values()) == 7
    assert growth(plan) == {"balanced": (7, 14)}, "seven nodes take most pods if each takes two"


def test_pods_unsupported_by_least_cost_are_placed_by_the_rest_of_the_chain() -> None:
    built = shop().pending(3, "1", "1Gi", name="edge", owner="edge", ports=(HostPort(8080),))
    plan = planned(built, "least-cost")
    assert not plan.unschedulable
    assert sum(len(promise.pods) for promise in plan.promises) == 23


def test_mix_of_least_cost_yields_where_other_pods_make_it_dearer() -> None:
    """For the plain pods alone the large node is cheapest (3.9), and the pods with a host port then
    need four tiny ones (4.8). Four small nodes (8.0) take both."""
    prices = {"tiny": 1.2, "small": 2.0, "large": 3.9}
    built = cluster()
    for name, cpu in (("tiny", "1"), ("small", "2"), ("large", "4")):
        built.group(
            name, template=node(name, cpu, labels={"node.kubernetes.io/instance-type": name})
        )
    built.pending(4, "1", name="plain", owner="plain")
    built.pending(4, "1", name="edge", owner="edge", ports=(HostPort(80),))
    priced = NodePrices(instance_types=prices, cpu=1.0)
    assert growth(planned(built, "least-cost", "least-waste", prices=priced)) == {"small": (4, 8)}
