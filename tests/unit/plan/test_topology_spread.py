"""Topology spread on existing, upcoming and new nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.model.node import HOSTNAME_LABEL, Taint
from chalicelib.model.pod import Toleration
from chalicelib.model.selector import NodeTerm, Requirement, Selector
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    even,
    expected,
    growth,
    having,
    node,
    tally,
    words,
)
from tests.cases import each_row
from tests.unit.plan.placement_cases import FITS, WAYS, answer, crowd

RACK = "rack"
SKEW = "node(s) didn't match pod topology spread constraints"
LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
X = having(app="x")
A, B, C = {ZONE: "a"}, {ZONE: "b"}, {ZONE: "c"}
Build = Callable[[], ClusterBuilder]


def _says(found: str, why: str) -> bool:
    """Checks that the answer and the reason agree; for an upcoming node only yes or no is known."""
    return found == why or (found == "no" and why != FITS)


def _x(**zones: int) -> Build:
    """That many pods app=x in each zone."""
    return lambda: crowd(zones, owner="x")


def _by_zone(skew: int = 1, **more: Any) -> dict[str, Any]:
    """A pod app=x that spreads over zones."""
    selector = more.pop("selector", X)
    return {"owner": "x", "spread": (even(ZONE, selector, skew, **more),)}


STRANGER = {**_by_zone(), "owner": "y"}


@each_row("way", WAYS)
@each_row(
    ("build", "pod", "labels", "why"),
    [
        pytest.param(_x(a=3, b=1), _by_zone(), A, SKEW, id="P24-the-fuller-zone"),
        pytest.param(_x(a=3, b=1), _by_zone(), B, FITS, id="P24-the-emptier-zone"),
        pytest.param(_x(a=3, b=1), _by_zone(3), A, FITS, id="P24-a-larger-skew"),
        pytest.param(_x(a=2, b=2), _by_zone(), A, FITS, id="P25-level-without-zone-c"),
        pytest.param(_x(a=2, b=2), _by_zone(), C, FITS, id="P25-new-zone-c"),
        pytest.param(_x(a=2, b=2, c=0), _by_zone(), C, FITS, id="P25-zone-c-in-the-snapshot"),
        pytest.param(_x(a=2, b=2, c=0), _by_zone(), A, SKEW, id="P25-zone-c-holds-the-others-back"),
        pytest.param(_x(a=1, b=1), _by_zone(min_domains=3), A, SKEW, id="P26-too-few-zones"),
        pytest.param(_x(a=1, b=1), _by_zone(min_domains=3), C, FITS, id="P26-the-third-zone"),
        pytest.param(_x(a=1, b=1), _by_zone(min_domains=2), A, FITS, id="P26-enough-zones"),
        pytest.param(_x(a=1, b=1), _by_zone(2, min_domains=3), A, FITS, id="P26-minimum-is-nought"),
        pytest.param(_x(a=2, b=1), STRANGER, A, FITS, id="P27-it-does-not-count-itself"),
        pytest.param(_x(a=3, b=1), STRANGER, A, SKEW, id="P27-others-are-uneven"),
        pytest.param(_x(a=3, b=1), STRANGER, B, FITS, id="P27-the-emptier-zone"),
        pytest.param(_x(a=1, b=1), _by_zone(), {"other": "label"}, LABEL, id="P28-no-zone-label"),
    ],
)
def test_spread_domain_may_exceed_the_minimum_by_the_max_skew(
    build: Build, pod: dict[str, Any], labels: dict[str, str], why: str, way: str
) -> None:
    assert _says(answer(build(), way, labels, **pod), why)


@each_row("way", WAYS)
def test_pods_on_nodes_without_the_topology_label_are_in_no_spread_domain(way: str) -> None:
    build = crowd({"a": 1, "b": 1}, owner="x").node("bare", "0").running("bare", 9, owner="x")
    assert answer(build, way, A, **_by_zone()) == FITS


def _zone_and_host(labels: Mapping[str, str]) -> ClusterBuilder:
    """Hosts h1 (zone a) and h2 (zone b) with one pod x each; only h1 has room. A third
    host is full and has no x."""
    build = (
        cluster().node("h1", "1", zone="a").node("h2", "0", zone="b").node("h3", "0", labels=labels)
    )
    build.running("h1", 1, owner="x").running("h2", 1, owner="x")
    return build.pending(1, "1", owner="x", spread=(even(ZONE, X), even(HOSTNAME_LABEL, X)))


def test_node_that_lacks_one_of_two_topology_keys_counts_for_no_constraint() -> None:
    assert _zone_and_host({}).plan().fits_existing
    held = _zone_and_host({ZONE: "b"}).plan()
    assert tally(held)[SKEW] == 1, (
        "with a zone, the third host's name is a domain with no pod, and h1 would be 2 ahead"
    )


SOFT, HARD = Taint("k", "PreferNoSchedule"), Taint("k", "NoSchedule")
TOLERANT = {"tolerations": (Toleration("k", "Exists"),)}


def _tainted(taint: Taint) -> Build:
    def build() -> ClusterBuilder:
        return crowd({"a": 1, "b": 1}, owner="x").node("c", "0", zone="c", taints=[taint])

    return build


@each_row("way", WAYS)
@each_row(
    ("build", "pod", "why"),
    [
        pytest.param(_tainted(HARD), _by_zone(), SKEW, id="P30-by-default-it-counts"),
        pytest.param(
            _tainted(HARD), _by_zone(node_taints_policy="Honor"), FITS, id="P30-Honor-leaves-it-out"
        ),
        pytest.param(
            _tainted(HARD),
            {**_by_zone(node_taints_policy="Honor"), **TOLERANT},
            SKEW,
            id="P30-Honor-but-tolerated",
        ),
        pytest.param(
            _tainted(SOFT),
            _by_zone(node_taints_policy="Honor"),
            SKEW,
            id="P30-a-soft-taint-is-none",
        ),
    ],
)
def test_spread_over_tainted_nodes_follows_node_taints_policy(
    build: Build, pod: dict[str, Any], why: str, way: str
) -> None:
    assert _says(answer(build(), way, A, **pod), why)


_NOT_C = {"required_affinity": (NodeTerm((Requirement(ZONE, "NotIn", ("c",)),)),)}


@each_row("way", WAYS)
@each_row(
    ("pod", "why"),
    [
        pytest.param({**_by_zone(), **_NOT_C}, FITS, id="affinity-honoured-by-default"),
        pytest.param(
            {**_by_zone(node_affinity_policy="Ignore"), **_NOT_C}, SKEW, id="affinity-ignored"
        ),
        pytest.param(
            {**_by_zone(), "node_selector": {"pool": "1"}}, FITS, id="selector-honoured-by-default"
        ),
        pytest.param(
            {**_by_zone(node_affinity_policy="Ignore"), "node_selector": {"pool": "1"}},
            SKEW,
            id="selector-ignored",
        ),
    ],
)
def test_spread_over_ineligible_nodes_follows_node_affinity_policy(
    pod: dict[str, Any], why: str, way: str
) -> None:
    build = cluster()
    for zone, labels in (("a", {"pool": "1"}), ("b", {"pool": "1"}), ("c", {})):
        build.node(f"full-{zone}", "0", zone=zone, labels=labels)
    build.running("full-a", 1, owner="x").running("full-b", 1, owner="x")
    assert _says(answer(build, way, {ZONE: "a", "pool": "1"}, **pod), why)


@each_row("way", WAYS)
@each_row(
    "more",
    [
        pytest.param({"pod": {"deleted": NOW - 5}}, id="P31-terminating"),
        pytest.param({"namespace": "elsewhere"}, id="P31-another-namespace"),
    ],
)
def test_pods_that_do_not_count_for_a_spread(more: dict[str, Any], way: str) -> None:
    build = crowd({"a": 1, "b": 1}, owner="x")
    assert answer(crowd({"a": 5}, build, owner="x", **more), way, A, **_by_zone()) == FITS
    assert (
        answer(crowd({"a": 5}, crowd({"a": 1, "b": 1}, owner="x"), owner="x"), way, A, **_by_zone())
        != FITS
    )


def _hash(value: str) -> dict[str, Any]:
    return {"labels": {"app": "x", **({"pod-template-hash": value} if value else {})}}


@each_row("way", WAYS)
@each_row(
    ("mine", "keys", "why"),
    [
        pytest.param("new", ("pod-template-hash",), FITS, id="P32-only-pods-of-its-hash"),
        pytest.param("old", ("pod-template-hash",), SKEW, id="P32-the-old-hash"),
        pytest.param(
            "", ("pod-template-hash",), SKEW, id="P32-a-pod-without-the-label-ignores-the-key"
        ),
        pytest.param("new", (), SKEW, id="P32-without-keys"),
    ],
)
def test_match_label_keys_of_a_spread(mine: str, keys: tuple[str, ...], why: str, way: str) -> None:
    build = crowd({"b": 0}, crowd({"a": 2}, owner="old", **_hash("old")))
    assert _says(
        answer(build, way, A, **_hash(mine), spread=(even(ZONE, X, match_label_keys=keys),)), why
    )


@each_row("way", WAYS)
def test_soft_spread_constraint_excludes_no_node(way: str) -> None:
    assert answer(_x(a=9, b=0)(), way, A, owner="x", preferred_spread=(even(ZONE, X),)) == FITS
    assert answer(_x(a=9, b=0)(), way, {}, owner="x", preferred_spread=(even(ZONE, X),)) == FITS


@each_row("way", WAYS)
@each_row(
    ("selector", "why"),
    [
        pytest.param(None, FITS, id="no-selector-counts-nobody"),
        pytest.param(Selector(), FITS, id="an-empty-selector-counts-nobody"),
        pytest.param(Selector((Requirement("app", "Exists"),)), SKEW, id="exists"),
        pytest.param(Selector((Requirement("app", "NotIn", ("x",)),)), FITS, id="not-in"),
    ],
)
def test_spread_label_selectors(selector: Selector | None, why: str, way: str) -> None:
    assert _says(answer(_x(a=5, b=0)(), way, A, **_by_zone(selector=selector)), why)


@each_row("way", WAYS)
@each_row(
    ("labels", "why"),
    [
        pytest.param({ZONE: "a", RACK: "2"}, FITS, id="both-hold"),
        pytest.param({ZONE: "a", RACK: "1"}, SKEW, id="the-rack-is-ahead"),
        pytest.param({ZONE: "b", RACK: "2"}, SKEW, id="the-zone-is-ahead"),
        pytest.param({ZONE: "a"}, LABEL, id="one-label-missing"),
    ],
)
def test_two_spread_constraints_must_both_hold(labels: dict[str, str], why: str, way: str) -> None:
    build = cluster()
    for zone, rack, pods in (("a", "1", 1), ("a", "2", 0), ("b", "1", 1), ("b", "2", 1)):
        build.node(f"full-{zone}{rack}", "0", labels={ZONE: zone, RACK: rack})
        if pods:
            build.running(f"full-{zone}{rack}", pods, owner="x")
    assert _says(answer(build, way, labels, owner="x", spread=(even(ZONE, X), even(RACK, X))), why)


# -- many pods at once


def _zones(names: str, cpu: str = "2") -> ClusterBuilder:
    build = cluster()
    for zone in names:
        build.group(zone, template=node("t", cpu, "64Gi", zone=zone))
    return build


def test_pods_are_spread_over_groups_of_three_zones() -> None:
    plan = crowd({"a": 0, "b": 0, "c": 0}, _zones("abc")).pending(9, "1", **_by_zone()).plan()
    assert growth(plan) == {"a": (2, 3), "b": (2, 3), "c": (2, 3)}


def test_zone_without_nodes_is_not_a_spread_domain_and_gets_no_node() -> None:
    """As in the scheduler: while only zone a has nodes, it may have any number."""
    assert growth(_zones("ab").pending(8, "1", **_by_zone()).plan()) == {"a": (4, 8)}


def test_new_pods_go_to_the_spread_domain_with_the_fewest_pods() -> None:
    build = crowd({"a": 2, "b": 2}, _zones("abc"), owner="x")
    plan = build.pending(4, "1", **_by_zone()).plan()
    assert {zone: pods for zone, (_, pods) in growth(plan).items()} in (
        {"a": 1, "c": 3},
        {"b": 1, "c": 3},
        {"a": 1, "b": 1, "c": 2},
    )
    assert not plan.unschedulable


def test_zone_that_cannot_grow_limits_other_zones_to_its_count_plus_the_skew() -> None:
    build = crowd({"c": 1}, _zones("ab"), owner="x")
    plan = build.pending(9, "1", **_by_zone()).plan()
    assert growth(plan) == {"a": (1, 2), "b": (1, 2)}
    assert [len(each.pods) for each in plan.unschedulable] == [5]
    assert words(plan) == {"a": [SKEW], "b": [SKEW]}


def test_pods_with_min_domains_are_placed_in_new_zones_together() -> None:
    plan = _zones("abc").pending(3, "1", **_by_zone(min_domains=3)).plan()
    assert growth(plan) == dict.fromkeys("abc", (1, 1))
    assert {group.option_pods for group in plan.groups} == {1}, "each group alone is good for one"
    short = _zones("ab").pending(3, "1", **_by_zone(min_domains=3)).plan()
    assert growth(short) == {"a": (1, 1), "b": (1, 1)}
    assert words(short) == {"a": [SKEW], "b": [SKEW]}


def test_new_hosts_of_one_plan_are_filled_evenly() -> None:
    build = cluster().group("g", template=node("t", "4", "64Gi"))
    plan = build.pending(8, "1", owner="x", spread=(even(HOSTNAME_LABEL, X),)).plan()
    assert growth(plan) == {"g": (2, 8)}


def test_full_existing_host_limits_new_hosts_to_the_skew() -> None:
    build = cluster().node("full", "0").group("g", template=node("t", "4", "64Gi"))
    plan = build.pending(6, "1", owner="x", spread=(even(HOSTNAME_LABEL, X, 2),)).plan()
    assert growth(plan) == {"g": (3, 6)}, "two on each"


def test_zone_and_host_spread_hold_together() -> None:
    build = crowd({"a": 0, "b": 0}, _zones("ab", "8"))
    plan = build.pending(
        8, "1", owner="x", spread=(even(ZONE, X), even(HOSTNAME_LABEL, X, 2))
    ).plan()
    assert growth(plan) == {"a": (2, 4), "b": (2, 4)}, (
        "the full hosts, without a pod, hold each new one at two"
    )


def test_placements_respect_the_max_skew() -> None:
    plan = (
        crowd({"a": 1, "b": 0, "c": 0}, _zones("abc", "1"), owner="x")
        .pending(7, "1", **_by_zone())
        .plan()
    )
    counts = {"a": 1, "b": 0, "c": 0}
    for place in expected(plan).values():
        counts[place[0]] += 1
    assert sum(counts.values()) == 8
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("daemons", "bought"), [(0, (6, 6)), (1, (6, 6)), (2, None)])
def test_new_host_takes_uncounted_pods_unless_its_daemons_are_uneven(
    daemons: int, bought: tuple[int, int] | None
) -> None:
    """The full host has no pod app=y, and every new host has as many as there are DaemonSets."""
    build = cluster().node("full", "0").group("g", template=node("t"))
    for number in range(daemons):
        build.daemonset(f"d{number}", labels={"app": "y"})
    rule = even(HOSTNAME_LABEL, having(app="y"))
    plan = build.pending(6, "1", owner="x", namespace="kube-system", spread=(rule,)).plan()
    assert growth(plan) == ({"g": bought} if bought else {})
    if not bought:
        assert words(plan) == {"g": [SKEW]}
