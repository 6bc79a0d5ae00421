"""Pod topology spread constraints."""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers.scheduler.predicates import MISMATCH, MISSING_LABEL
from infra.emulators.kube.objects import KubeObject
from tests.unit.emulators.controllers.objects import (
    HOST,
    ZONE,
    expression,
    fitting,
    node,
    node_terms,
    pod,
    reasons,
)

X = {"app": "x"}


def spread(key: str = ZONE, **more: Any) -> KubeObject:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": X},
        **more,
    }


def placed(labels: dict[str, str] | None = None, **counts: int) -> list[KubeObject]:
    return [
        pod(f"{zone}-{i}", on=f"{zone}1", labels=labels or X)
        for zone, n in counts.items()
        for i in range(n)
    ]


A, B, C = node("a1", "a"), node("b1", "b"), node("c1", "c")


def test_scheduler_spread_skew_over_the_minimum() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread()])
    assert reasons(asking, [A, B], placed(a=3, b=1)) == {"a1": [MISMATCH], "b1": []}


def test_scheduler_spread_new_empty_domain_takes_the_pod() -> None:
    assert fitting(
        pod(labels=X, topologySpreadConstraints=[spread()]), [A, B, C], placed(a=2, b=2)
    ) == {"c1"}


def test_scheduler_spread_too_few_domains_count_as_an_empty_one() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread(minDomains=3)])
    assert not fitting(asking, [A, B], placed(a=1, b=1))
    assert fitting(asking, [A, B, C], placed(a=1, b=1)) == {"c1"}


def test_scheduler_spread_pod_outside_its_own_selector_adds_nothing() -> None:
    asking = pod(labels={"app": "y"}, topologySpreadConstraints=[spread()])
    assert fitting(asking, [A, B], placed(a=2, b=1)) == {"a1", "b1"}


def test_scheduler_spread_node_without_the_topology_key() -> None:
    bare = node("bare1")
    asking = pod(labels=X, topologySpreadConstraints=[spread()])
    assert reasons(asking, [A, bare], placed(a=1, bare=5)) == {"a1": [], "bare1": [MISSING_LABEL]}


def test_scheduler_spread_counts_only_nodes_with_every_topology_key() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread(), spread(HOST)])
    # has a hostname but no zone: neither its 0 pods nor its hostname lowers a minimum
    bare = node("bare1")
    assert fitting(asking, [A, B, bare], placed(a=1, b=1)) == {"a1", "b1"}


def test_scheduler_spread_node_taints_policy() -> None:
    tainted = node("t1", "t", taints=[{"key": "k", "effect": "NoSchedule"}])
    nodes, there = [A, B, tainted], placed(a=1, b=1)
    assert not fitting(pod(labels=X, topologySpreadConstraints=[spread()]), nodes, there)
    honoring = pod(labels=X, topologySpreadConstraints=[spread(nodeTaintsPolicy="Honor")])
    assert fitting(honoring, nodes, there) == {"a1", "b1"}


def test_scheduler_spread_node_affinity_policy() -> None:
    only = node_terms({"matchExpressions": [expression(ZONE, "In", "a")]})
    honoring = pod(labels=X, affinity=only, topologySpreadConstraints=[spread()])
    assert fitting(honoring, [A, B], placed(a=1)) == {"a1"}
    ignoring = pod(
        labels=X, affinity=only, topologySpreadConstraints=[spread(nodeAffinityPolicy="Ignore")]
    )
    assert not fitting(ignoring, [A, B], placed(a=1))


def test_scheduler_spread_ignores_terminating_and_foreign_pods() -> None:
    there = [
        *placed(a=1, b=1),
        pod("going", on="b1", labels=X, terminating=True),
        pod("foreign", on="b1", labels=X, namespace="other"),
    ]
    assert fitting(pod(labels=X, topologySpreadConstraints=[spread()]), [A, B], there) == {
        "a1",
        "b1",
    }


def test_scheduler_spread_match_label_keys() -> None:
    constraint = spread(matchLabelKeys=["hash"])
    there = placed({"app": "x", "hash": "old"}, a=3)
    newer = pod(labels={"app": "x", "hash": "new"}, topologySpreadConstraints=[constraint])
    keyless = pod(labels=X, topologySpreadConstraints=[constraint])
    assert fitting(newer, [A, B], there) == {"a1", "b1"}
    assert fitting(keyless, [A, B], there) == {"b1"}


def test_scheduler_spread_schedule_anyway_has_no_effect() -> None:
    soft = pod(labels=X, topologySpreadConstraints=[spread(whenUnsatisfiable="ScheduleAnyway")])
    assert fitting(soft, [A, B], placed(a=9)) == {"a1", "b1"}


def test_scheduler_spread_empty_selector_counts_only_the_pod_itself() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread(labelSelector={})])
    assert fitting(asking, [A, B], placed(a=9)) == {"a1", "b1"}
