"""The worked scale-up examples of docs/reference are planned, and their
numbers equal the planner's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Volume
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.model.storage import Claim, PersistentVolume, Storage
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    even,
    growth,
    having,
    near,
    node,
    verdict,
)

RULES = Path(__file__).resolve().parents[2] / "docs"


def _example() -> ClusterBuilder:
    build = (
        cluster()
        .node("small-0", "2", "8Gi", group="small")
        .node("large-0", "8", "16Gi", group="large")
    )
    build.running("small-0", 1, "1900m", "7Gi").running("large-0", 1, "7800m", "15Gi")
    build.daemonset("logs", "100m", "128Mi").group("small", max=10).group("large", max=10)
    return build.pending(7, "600m", "1Gi", name="web").pending(
        2, "1500m", "3Gi", name="api", owner="api"
    )


def test_docs_estimator_example() -> None:
    plan = _example().plan()
    could = {
        each.group: (each.option_nodes, each.option_pods, round(each.waste or 0, 4))
        for each in plan.groups
    }
    assert could == {"small": (5, 9, 0.955), "large": (1, 9, 0.2875)}
    assert growth(plan) == {"large": (1, 9)}


def test_docs_estimator_example_under_a_limit() -> None:
    plan = _example().plan(max_nodes_total=2)
    assert growth(plan) == {}
    assert {
        reason.code
        for verdict in plan.unschedulable
        for reasons in verdict.reasons.values()
        for reason in reasons
    } == {ReasonCode.MAX_NODES_TOTAL}


def _zones() -> ClusterBuilder:
    """Two groups, each in its own zone, all nodes full."""
    build = cluster()
    for zone in "ab":
        build.node(f"{zone}-0", "2", "8Gi", zone=zone, group=f"g-{zone}").group(f"g-{zone}", max=10)
        build.running(f"{zone}-0", 1, "1900m", "7Gi")
    return build


_WEB = having(app="web")


@pytest.mark.parametrize(
    ("pods", "rule", "grown", "said"),
    [
        (5, {"spread": (even(ZONE, _WEB),)}, {"g-a": (1, 3), "g-b": (1, 2)}, None),
        (3, {"pod_anti_affinity": (near(HOSTNAME_LABEL, _WEB),)}, {"g-a": (3, 3)}, None),
        (
            3,
            {"pod_anti_affinity": (near(ZONE, _WEB),)},
            {"g-a": (1, 1), "g-b": (1, 1)},
            ReasonCode.POD_ANTI_AFFINITY,
        ),
        (3, {"pod_affinity": (near(ZONE, having(app="nobody")),)}, {}, ReasonCode.POD_AFFINITY),
    ],
    ids=["spread", "a node each", "a zone each", "near nobody"],
)
def test_docs_pod_affinity_and_spread_examples(
    pods: int, rule: dict[str, Any], grown: dict[str, tuple[int, int]], said: ReasonCode | None
) -> None:
    plan = _zones().pending(pods, "600m", "1Gi", name="web", owner="web", **rule).plan()
    assert growth(plan) == grown
    assert len(plan.unschedulable) == (said is not None)
    if said is not None:
        assert _said(plan) == {"g-a": [said], "g-b": [said]}


def _said(plan: Plan) -> dict[str, list[ReasonCode]]:
    return {
        group: [reason.code for reason in reasons]
        for group, reasons in verdict(plan).reasons.items()
    }


@pytest.mark.parametrize(
    ("balanced", "grown"), [(False, {"g-a": (2, 6)}), (True, {"g-a": (1, 3), "g-b": (1, 3)})]
)
def test_docs_balancing_example(balanced: bool, grown: dict[str, tuple[int, int]]) -> None:
    plan = (
        _zones()
        .pending(6, "600m", "1Gi", name="web", owner="web")
        .plan(balance_similar_node_groups=balanced)
    )
    assert growth(plan) == grown


def _one_claim_elsewhere() -> Storage:
    """A claim bound to a volume that is usable only in zone `z`, and labelled accordingly."""
    there = NodeTerm((Requirement(ZONE, "In", ("z",)),))
    volume = PersistentVolume("pv", labels={ZONE: "z"}, node_terms=(there,))
    return Storage(claims=(Claim("default", "data", volume="pv"),), volumes=(volume,))


# Pods that fit nowhere, in the order in which the page lists the predicates.
_WISHES: tuple[tuple[str, dict[str, Any], ReasonCode], ...] = (
    ("NodeAffinity", {"node_selector": {"disk": "none"}}, ReasonCode.NODE_AFFINITY),
    ("NodeResourcesFit", {"cpu": "64"}, ReasonCode.INSUFFICIENT),
    (
        "VolumeBinding",
        {"volumes": (Volume("data", "persistentVolumeClaim", claim="data"),)},
        ReasonCode.VOLUME_NODE_AFFINITY,
    ),
    ("PodTopologySpread", {"spread": (even("nowhere", _WEB),)}, ReasonCode.TOPOLOGY_LABEL),
    (
        "InterPodAffinity",
        {"pod_affinity": (near(ZONE, having(app="nobody")),)},
        ReasonCode.POD_AFFINITY,
    ),
)


@pytest.mark.parametrize("first", range(len(_WISHES)), ids=[name for name, _, _ in _WISHES])
def test_docs_first_failing_predicate_is_the_first_listed(first: int) -> None:
    text = (RULES / "reference/scheduling.md").read_text("utf-8")
    table = text.partition("\n## Predicates\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| \d+ \| `(\w+)` \|", table, re.MULTILINE)
    assert [name for name in listed if name in {name for name, _, _ in _WISHES}] == [
        name for name, _, _ in _WISHES
    ]
    wishes: dict[str, Any] = {"cpu": "600m", "memory": "1Gi", "owner": "web"}
    for _, wish, _ in _WISHES[first:]:
        wishes |= wish
    build = _zones()
    build.more["storage"] = _one_claim_elsewhere()
    code = _WISHES[first][2]
    said = _said(build.pending(1, **wishes).plan())
    assert {group: codes[0] for group, codes in said.items()} == {"g-a": code, "g-b": code}


def _lopsided() -> ClusterBuilder:
    """Pods with large cpu requests, pods with large memory requests, and a group for each;
    all nodes cost the same."""
    build = cluster()
    for name, cpu, memory in (("cores", "8", "16Gi"), ("memory", "4", "64Gi")):
        build.group(
            name,
            max=50,
            template=node("t", cpu, memory, labels={"node.kubernetes.io/instance-type": name}),
        )
    build.pending(20, "2", "1Gi", name="solver", owner="solver")
    return build.pending(20, "200m", "8Gi", name="cache", owner="cache")


@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_docs_least_cost_example_of_a_mix(expander: str) -> None:
    table = (
        (RULES / "reference/expanders.md")
        .read_text("utf-8")
        .partition("## least-cost\n")[2]
        .partition("\n## ")[0]
    )
    [reported] = re.findall(
        rf"^\| `{expander}` \| (\d+) \| (\d+) \| (\d+) \|$", table, re.MULTILINE
    )
    policy = Policy(
        name="shop",
        options=Options(expander=(expander,)),
        prices=NodePrices(instance_types={"cores": 1.0, "memory": 1.0}),
    )
    plan, _ = plan_cluster(_lopsided().snapshot(), policy, Memory(), NOW, 0)
    grown = {name: nodes for name, (nodes, _) in growth(plan).items()}
    assert sum(pods for _, pods in growth(plan).values()) == 40
    assert [grown.get("cores", 0), grown.get("memory", 0), sum(grown.values())] == [
        int(each) for each in reported
    ]
