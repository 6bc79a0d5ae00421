"""Topology spread: cases P24 to P33."""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers.scheduler.topology_spread import MISMATCH, MISSING_LABEL
from infra.emulators.kube.objects import KubeObject
from tests.unit.emulators.controllers.objects import HOST, ZONE, expression, fitting, node, node_terms, pod, reasons

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
    return [pod(f"{zone}-{i}", on=f"{zone}1", labels=labels or X) for zone, n in counts.items() for i in range(n)]


A, B, C = node("a1", "a"), node("b1", "b"), node("c1", "c")


def test_skew_over_the_minimum_p24() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread()])
    assert reasons(asking, [A, B], placed(a=3, b=1)) == {"a1": [MISMATCH], "b1": []}


def test_a_new_empty_domain_takes_the_pod_p25() -> None:
    assert fitting(pod(labels=X, topologySpreadConstraints=[spread()]), [A, B, C], placed(a=2, b=2)) == {"c1"}


def test_too_few_domains_count_as_an_empty_one_p26() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread(minDomains=3)])
    assert not fitting(asking, [A, B], placed(a=1, b=1))
    assert fitting(asking, [A, B, C], placed(a=1, b=1)) == {"c1"}


def test_a_pod_outside_its_own_selector_adds_nothing_p27() -> None:
    asking = pod(labels={"app": "y"}, topologySpreadConstraints=[spread()])
    assert fitting(asking, [A, B], placed(a=2, b=1)) == {"a1", "b1"}


def test_node_without_the_key_p28() -> None:
    bare = node("bare1")
    asking = pod(labels=X, topologySpreadConstraints=[spread()])
    assert reasons(asking, [A, bare], placed(a=1, bare=5)) == {"a1": [], "bare1": [MISSING_LABEL]}


def test_a_node_must_have_every_key_to_count_p29() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread(), spread(HOST)])
    bare = node("bare1")  # a hostname, no zone: neither its 0 pods nor its host lower a minimum
    assert fitting(asking, [A, B, bare], placed(a=1, b=1)) == {"a1", "b1"}


def test_taints_policy_p30() -> None:
    tainted = node("t1", "t", taints=[{"key": "k", "effect": "NoSchedule"}])
    nodes, there = [A, B, tainted], placed(a=1, b=1)
    assert not fitting(pod(labels=X, topologySpreadConstraints=[spread()]), nodes, there)
    honoring = pod(labels=X, topologySpreadConstraints=[spread(nodeTaintsPolicy="Honor")])
    assert fitting(honoring, nodes, there) == {"a1", "b1"}


def test_affinity_policy() -> None:
    only = node_terms({"matchExpressions": [expression(ZONE, "In", "a")]})
    honoring = pod(labels=X, affinity=only, topologySpreadConstraints=[spread()])
    assert fitting(honoring, [A, B], placed(a=1)) == {"a1"}
    ignoring = pod(labels=X, affinity=only, topologySpreadConstraints=[spread(nodeAffinityPolicy="Ignore")])
    assert not fitting(ignoring, [A, B], placed(a=1))


def test_terminating_and_foreign_pods_are_not_counted_p31() -> None:
    there = [
        *placed(a=1, b=1),
        pod("going", on="b1", labels=X, terminating=True),
        pod("foreign", on="b1", labels=X, namespace="other"),
    ]
    assert fitting(pod(labels=X, topologySpreadConstraints=[spread()]), [A, B], there) == {"a1", "b1"}


def test_label_keys_p32() -> None:
    constraint = spread(matchLabelKeys=["hash"])
    there = placed({"app": "x", "hash": "old"}, a=3)
    newer = pod(labels={"app": "x", "hash": "new"}, topologySpreadConstraints=[constraint])
    keyless = pod(labels=X, topologySpreadConstraints=[constraint])
    assert fitting(newer, [A, B], there) == {"a1", "b1"}
    assert fitting(keyless, [A, B], there) == {"b1"}


def test_schedule_anyway_has_no_effect_p33() -> None:
    soft = pod(labels=X, topologySpreadConstraints=[spread(whenUnsatisfiable="ScheduleAnyway")])
    assert fitting(soft, [A, B], placed(a=9)) == {"a1", "b1"}


def test_an_empty_selector_counts_nobody_but_the_pod_itself() -> None:
    asking = pod(labels=X, topologySpreadConstraints=[spread(labelSelector={})])
    assert fitting(asking, [A, B], placed(a=9)) == {"a1", "b1"}
