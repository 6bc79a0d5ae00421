"""Inter-pod affinity and anti-affinity on existing, upcoming and new nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.node import HOSTNAME_LABEL, TO_BE_DELETED, Taint
from chalicelib.model.selector import Requirement, Selector
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    expected,
    growth,
    having,
    near,
    node,
    tally,
    verdict,
    words,
)
from tests.cases import each_row
from tests.unit.plan.placement_cases import FITS, WAYS, answer, crowd

RACK = "rack"
A, B, NOWHERE = {ZONE: "a"}, {ZONE: "b"}, {"other": "label"}
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
THEIRS = "node(s) didn't satisfy existing pods anti-affinity rules"
X, DB = having(app="x"), having(app="db")


def _says(found: str, why: str) -> bool:
    """Checks that the answer and the reason agree; for an upcoming node only yes or no is known."""
    return found == why or (found == "no" and why != FITS)


def _db() -> ClusterBuilder:
    return crowd({"a": 1, "b": 0}, owner="db")


def _halves() -> ClusterBuilder:
    """Zone a: one pod with l=1 and another with m=1. Zone b: one pod with both."""
    build = crowd({"a": 1}, owner="l", labels={"l": "1"})
    crowd({"a": 1}, build, owner="m", labels={"m": "1"})
    return crowd({"b": 1}, build, owner="both", labels={"l": "1", "m": "1"})


def _jealous(**more: Any) -> ClusterBuilder:
    """A pod in zone a with anti-affinity to app=x in its zone."""
    return crowd({"a": 1, "b": 0}, owner="keeper", pod_anti_affinity=(near(ZONE, X),), **more)


NEAR_DB: dict[str, Any] = {"pod_affinity": (near(ZONE, DB),)}
NEAR_X: dict[str, Any] = {"pod_affinity": (near(ZONE, X),)}
TWO_TERMS: dict[str, Any] = {"pod_affinity": (near(ZONE, having(l="1")), near(ZONE, having(m="1")))}
AWAY_FROM_DB: dict[str, Any] = {"pod_anti_affinity": (near(ZONE, DB),)}


@each_row("way", WAYS)
@each_row(
    ("build", "pod", "labels", "why"),
    [
        pytest.param(_db, NEAR_DB, A, FITS, id="P18-its-zone"),
        pytest.param(_db, NEAR_DB, B, AFFINITY, id="P18-another-zone"),
        pytest.param(_db, NEAR_DB, NOWHERE, AFFINITY, id="P18-no-zone-label"),
        pytest.param(cluster, {**NEAR_X, "owner": "x"}, A, FITS, id="P19-the-first-of-its-kind"),
        pytest.param(
            cluster,
            {**NEAR_X, "owner": "x"},
            NOWHERE,
            AFFINITY,
            id="P19-even-the-first-needs-the-label",
        ),
        pytest.param(
            cluster, {**NEAR_X, "owner": "y"}, A, AFFINITY, id="P20-the-first-of-another-kind"
        ),
        pytest.param(_halves, TWO_TERMS, A, AFFINITY, id="P21-no-pod-matches-both-terms"),
        pytest.param(_halves, TWO_TERMS, B, FITS, id="P21-one-pod-matches-both-terms"),
        pytest.param(_jealous, {"owner": "x"}, A, THEIRS, id="P22-their-zone"),
        pytest.param(_jealous, {"owner": "x"}, B, FITS, id="P22-another-zone"),
        pytest.param(_jealous, {"owner": "x"}, NOWHERE, FITS, id="P22-no-zone"),
        pytest.param(_jealous, {"owner": "y"}, A, FITS, id="P22-a-pod-that-is-not-meant"),
        pytest.param(_db, AWAY_FROM_DB, A, ANTI, id="anti-its-zone"),
        pytest.param(_db, AWAY_FROM_DB, B, FITS, id="anti-another-zone"),
        pytest.param(_db, AWAY_FROM_DB, NOWHERE, FITS, id="anti-no-zone-label"),
    ],
)
def test_pod_affinity_depends_on_the_pods_already_in_the_domain(
    build: Callable[[], ClusterBuilder],
    pod: dict[str, Any],
    labels: dict[str, str],
    why: str,
    way: str,
) -> None:
    assert _says(answer(build(), way, labels, **pod), why)


def _without_hostname(build: ClusterBuilder, name: str) -> ClusterBuilder:
    at = next(at for at, each in enumerate(build.nodes) if each.name == name)
    labels = {key: value for key, value in build.nodes[at].labels.items() if key != HOSTNAME_LABEL}
    build.nodes[at] = msgspec.structs.replace(build.nodes[at], labels=labels)
    return build


def test_node_without_the_topology_label_passes_pod_anti_affinity() -> None:
    def build() -> ClusterBuilder:
        return (
            cluster()
            .node("n", "1")
            .running("n", 1, owner="x")
            .pending(1, "1", owner="x", pod_anti_affinity=(near(HOSTNAME_LABEL, X),))
        )

    assert not build().plan().fits_existing
    assert _without_hostname(build(), "n").plan().fits_existing


# -- namespaces of a term


SPACES: dict[str, dict[str, str]] = {
    "blue": {"team": "blue"},
    "red": {"team": "red"},
    "default": {},
}


@each_row("way", WAYS)
@each_row(
    ("lives_in", "term", "why"),
    [
        pytest.param("blue", {}, AFFINITY, id="its-own-namespace-only"),
        pytest.param("default", {}, FITS, id="its-own-namespace"),
        pytest.param("blue", {"namespaces": ("blue",)}, FITS, id="named"),
        pytest.param("red", {"namespaces": ("blue",)}, AFFINITY, id="not-named"),
        pytest.param(
            "default", {"namespaces": ("blue",)}, AFFINITY, id="its-own-is-not-added-to-those-named"
        ),
        pytest.param("blue", {"namespace_selector": having(team="blue")}, FITS, id="selected"),
        pytest.param(
            "red", {"namespace_selector": having(team="blue")}, AFFINITY, id="not-selected"
        ),
        pytest.param(
            "red", {"namespace_selector": Selector()}, FITS, id="an-empty-selector-is-everywhere"
        ),
        pytest.param(
            "red",
            {"namespaces": ("red",), "namespace_selector": having(team="blue")},
            FITS,
            id="named-or-selected",
        ),
        pytest.param(
            "unread", {"namespace_selector": Selector()}, FITS, id="a-namespace-that-was-not-read"
        ),
    ],
)
def test_namespaces_of_a_pod_affinity_term(
    lives_in: str, term: dict[str, Any], why: str, way: str
) -> None:
    build = crowd({"a": 1}, owner="db", namespace=lives_in)
    build.more["namespaces"] = SPACES
    assert _says(answer(build, way, A, pod_affinity=(near(ZONE, DB, **term),)), why)


@each_row("way", WAYS)
@each_row(("namespace", "why"), [("blue", THEIRS), ("red", FITS)])
def test_anti_affinity_of_existing_pods_applies_only_in_its_namespaces(
    namespace: str, why: str, way: str
) -> None:
    term = near(ZONE, X, namespace_selector=having(team="blue"))
    build = crowd({"a": 1}, owner="keeper", pod_anti_affinity=(term,))
    build.more["namespaces"] = SPACES
    assert _says(answer(build, way, A, owner="x", namespace=namespace), why)


def test_each_namespace_is_compared_with_a_namespace_selector() -> None:
    keeper = near(ZONE, X, namespace_selector=having(team="blue"))
    build = (
        cluster()
        .node("n", "2", labels=A)
        .running("n", 1, "0", owner="keeper", pod_anti_affinity=(keeper,))
    )
    build.more["namespaces"] = SPACES
    for namespace in ("blue", "red"):
        build.pending(1, "1", owner="x", namespace=namespace)
    assert [pod.partition("/")[0] for pod in build.plan().fits_existing] == ["red"]


@each_row("way", WAYS)
@each_row(
    ("selector", "why"),
    [
        pytest.param(None, AFFINITY, id="no-selector-matches-nobody"),
        pytest.param(Selector(), FITS, id="an-empty-selector-matches-everybody"),
        pytest.param(Selector((Requirement("app", "Exists"),)), FITS, id="exists"),
        pytest.param(Selector((Requirement("app", "NotIn", ("db",)),)), AFFINITY, id="not-in"),
    ],
)
def test_pod_affinity_label_selectors(selector: Selector | None, why: str, way: str) -> None:
    assert _says(
        answer(
            crowd({"a": 1}, owner="db"), way, A, owner="db", pod_affinity=(near(ZONE, selector),)
        ),
        why,
    )


# -- several terms and keys


@each_row("way", WAYS)
@each_row(
    ("labels", "why"),
    [
        pytest.param({ZONE: "a", RACK: "1"}, FITS, id="both"),
        pytest.param({ZONE: "a", RACK: "2"}, AFFINITY, id="another-rack"),
        pytest.param({ZONE: "b", RACK: "1"}, AFFINITY, id="another-zone"),
        pytest.param({ZONE: "a"}, AFFINITY, id="no-rack"),
    ],
)
def test_every_topology_key_of_pod_affinity_needs_a_match(
    labels: dict[str, str], why: str, way: str
) -> None:
    build = (
        cluster().node("full", "0", labels={ZONE: "a", RACK: "1"}).running("full", 1, owner="db")
    )
    assert _says(answer(build, way, labels, pod_affinity=(near(ZONE, DB), near(RACK, DB))), why)


@each_row("way", WAYS)
@each_row(
    ("labels", "why"),
    [
        pytest.param({ZONE: "a", RACK: "1"}, FITS, id="both-labels"),
        pytest.param({ZONE: "a"}, AFFINITY, id="one-label"),
    ],
)
def test_first_pod_of_a_self_affinity_group_needs_a_node_with_all_keys(
    labels: dict[str, str], why: str, way: str
) -> None:
    assert _says(
        answer(cluster(), way, labels, owner="x", pod_affinity=(near(ZONE, X), near(RACK, X))), why
    )


@each_row("way", WAYS)
def test_match_without_the_topology_label_keeps_the_first_pod_exception(way: str) -> None:
    # The scheduler counts key-value pairs; a pod on a node without the key adds no pair.
    build = cluster().node("full", "0").running("full", 1, owner="x")
    assert answer(build, way, A, owner="x", pod_affinity=(near(ZONE, X),)) == FITS


@each_row("way", WAYS)
@each_row(
    ("labels", "why"),
    [
        pytest.param({ZONE: "b", RACK: "2"}, FITS, id="neither"),
        pytest.param({ZONE: "a", RACK: "2"}, ANTI, id="the-zone"),
        pytest.param({ZONE: "b", RACK: "1"}, ANTI, id="the-rack"),
    ],
)
def test_one_failing_anti_affinity_term_excludes_the_node(
    labels: dict[str, str], why: str, way: str
) -> None:
    build = (
        cluster().node("full", "0", labels={ZONE: "a", RACK: "1"}).running("full", 1, owner="db")
    )
    assert _says(
        answer(build, way, labels, pod_anti_affinity=(near(ZONE, DB), near(RACK, DB))), why
    )


# -- many pods at once


def _apart(key: str = HOSTNAME_LABEL) -> dict[str, Any]:
    return {"owner": "x", "pod_anti_affinity": (near(key, X),)}


def test_pods_with_host_anti_affinity_get_one_node_each() -> None:
    build = (
        cluster()
        .node("n", "8")
        .group("g", template=node("t", "8", "64Gi"))
        .pending(5, "1", **_apart())
    )
    plan = build.plan()
    assert plan.fits_existing == ("default/p-00000",)
    assert growth(plan) == {"g": (4, 4)}
    assert len(set(expected(plan).values())) == 5


def test_pods_with_zone_anti_affinity_get_one_group_each_and_the_rest_get_none() -> None:
    build = cluster()
    for zone in "abc":
        build.group(zone, template=node("t", "8", "64Gi", zone=zone))
    plan = build.pending(5, "1", **_apart(ZONE)).plan()
    assert growth(plan) == {"a": (1, 1), "b": (1, 1), "c": (1, 1)}
    assert {group.option_pods for group in plan.groups} == {1}, "each group alone is good for one"
    assert [len(each.pods) for each in plan.unschedulable] == [2]
    assert words(plan) == {zone: [ANTI] for zone in "abc"}


def test_pods_with_mutual_affinity_follow_the_first_pod() -> None:
    build = cluster()
    for zone in "ab":
        build.group(zone, template=node("t", "2", "8Gi", zone=zone))
    plan = build.pending(6, "1", owner="x", pod_affinity=(near(ZONE, X),)).plan()
    assert sum(nodes for nodes, _ in growth(plan).values()) == 3
    assert len(growth(plan)) == 1


def test_pods_with_mutual_host_affinity_get_no_second_node() -> None:
    build = cluster().group("g", template=node("t", "2", "8Gi"))
    plan = build.pending(3, "1", owner="x", pod_affinity=(near(HOSTNAME_LABEL, X),)).plan()
    assert growth(plan) == {"g": (1, 2)}
    assert words(plan) == {"g": [AFFINITY]}


def test_anti_affinity_of_pods_placed_earlier_in_the_plan_is_respected() -> None:
    """Symmetry: keeper has the higher priority and is placed first, so x, which has no rule itself,
    must go to another node."""
    build = cluster().group("g", template=node("t", "8", "64Gi"))
    build.pending(
        1,
        "1",
        name="keeper",
        owner="keeper",
        priority=10,
        pod_anti_affinity=(near(HOSTNAME_LABEL, X),),
    )
    plan = build.pending(3, "1", name="x", owner="x").plan()
    places = expected(plan)
    assert growth(plan) == {"g": (2, 4)}
    assert places.pop("default/keeper-00000") not in places.values()


def test_anti_affinity_of_pods_placed_earlier_is_respected_per_zone() -> None:
    build = cluster().group("a", template=node("t", "8", "64Gi", zone="a"))
    build.pending(
        1, "1", name="keeper", owner="keeper", priority=10, pod_anti_affinity=(near(ZONE, X),)
    )
    plan = build.pending(1, "1", name="x", owner="x").plan()
    assert growth(plan) == {"a": (1, 1)}
    assert words(plan, "default/x-00001") == {"a": [THEIRS]}
    build.group("b", template=node("t", "8", "64Gi", zone="b"))
    assert growth(build.plan()) == {"a": (1, 1), "b": (1, 1)}


def test_pods_follow_affinity_targets_that_this_plan_places() -> None:
    """web requires db in its domain, and db is pending too."""
    build = cluster().group("g", template=node("t", "2", "8Gi", zone="a"))
    build.pending(2, "1", name="web", owner="web", **NEAR_DB).pending(1, "1", name="db", owner="db")
    plan = build.plan()
    assert growth(plan) == {"g": (2, 3)}
    assert not plan.unschedulable


def test_group_made_usable_by_another_placement_is_used_in_the_same_plan() -> None:
    """web may only go to small, and only near db, which may only go to big, so big is scaled
    up first and small second."""
    build = cluster().group(
        "big", template=node("t", "8", "64Gi", labels={ZONE: "a", "kind": "big"})
    )
    build.group("small", template=node("t", "2", "8Gi", labels={ZONE: "a", "kind": "small"}))
    build.pending(1, "6", name="db", owner="db", node_selector={"kind": "big"})
    build.pending(2, "1", name="web", owner="web", node_selector={"kind": "small"}, **NEAR_DB)
    plan = build.plan()
    assert growth(plan) == {"big": (1, 1), "small": (1, 2)}
    assert not plan.unschedulable


def test_chain_of_three_pod_affinities_is_resolved() -> None:
    build = cluster().group("g", template=node("t", "1", "8Gi", zone="a"))
    build.pending(1, "1", name="c", owner="c", pod_affinity=(near(ZONE, having(app="b")),))
    build.pending(1, "1", name="b", owner="b", pod_affinity=(near(ZONE, having(app="a")),))
    plan = build.pending(1, "1", name="a", owner="a").plan()
    assert growth(plan) == {"g": (3, 3)}


def test_pods_that_require_each_others_presence_stay_pending() -> None:
    build = cluster().group("g", template=node("t", "8", "8Gi", zone="a"))
    build.pending(1, "1", name="b", owner="b", pod_affinity=(near(ZONE, having(app="a")),))
    plan = build.pending(
        1, "1", name="a", owner="a", pod_affinity=(near(ZONE, having(app="b")),)
    ).plan()
    assert growth(plan) == {}
    assert words(plan) == {"g": [AFFINITY]}


def test_template_daemonset_pods_satisfy_pod_affinity() -> None:
    def build(owner: str) -> ClusterBuilder:
        return (
            cluster()
            .daemonset("agent", "100m", labels={"app": "agent"})
            .group("g", template=node("t", "2"))
        )

    term = near(HOSTNAME_LABEL, having(app="agent"), namespaces=("kube-system",))
    assert growth(build("x").pending(3, "1", owner="x", pod_affinity=(term,)).plan()) == {
        "g": (3, 3)
    }
    plan = build("x").pending(1, "1", owner="x", pod_anti_affinity=(term,)).plan()
    assert growth(plan) == {}
    assert words(plan) == {"g": [ANTI]}


def test_affinity_counts_on_existing_nodes_equal_the_schedulers() -> None:
    build = cluster().node("a1", "4", zone="a").node("a2", "4", zone="a").node("b1", "1", zone="b")
    build.running("a1", 1, owner="db").running("b1", 1, "1", owner="filler")
    plan = build.pending(1, "1", **AWAY_FROM_DB).plan()
    assert tally(plan) == {ANTI: 2, "Insufficient cpu": 1}
    assert verdict(plan).nodes == 3


# -- pods that count


@each_row("way", WAYS)
@each_row(
    ("pod", "more", "counts"),
    [
        pytest.param({}, {}, True, id="running"),
        pytest.param({"deleted": NOW - 5}, {}, True, id="terminating"),
        pytest.param({}, {"priority": -11}, False, id="expendable"),
        pytest.param({}, {"priority": -10}, True, id="not-quite-expendable"),
        pytest.param({"node": "", "nominated": "full"}, {}, True, id="nominated"),
    ],
)
def test_which_existing_pods_count_for_affinity_and_anti_affinity(
    pod: dict[str, Any], more: dict[str, Any], counts: bool, way: str
) -> None:
    def build() -> ClusterBuilder:
        return cluster().node("full", "0", zone="a").running("full", 1, owner="db", pod=pod, **more)

    assert (answer(build(), way, A, **NEAR_DB) == FITS) is counts
    assert (answer(build(), way, A, **AWAY_FROM_DB) == FITS) is not counts


def test_pods_on_a_leaving_node_still_count_for_affinity() -> None:
    """The pods count until the node is gone, also in the cluster copy used for planning."""
    build = cluster().node(
        "going", "1", zone="a", group="g", taints=[Taint(TO_BE_DELETED, "NoSchedule", "1")]
    )
    build.running("going", 1, "1", owner="x", pod_anti_affinity=(near(HOSTNAME_LABEL, X),))
    build.group("g", template=node("t", "1", zone="a"))
    assert growth(build.plan()) == {"g": (1, 1)}
