"""Affinity and anti-affinity between pods, and their namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers.scheduler.cluster_view import Surroundings
from infra.emulators.controllers.scheduler.predicates import (
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    NO_AFFINITY,
)
from tests.unit.emulators.controllers.objects import (
    HOST,
    ZONE,
    affinity,
    fitting,
    node,
    pod,
    reasons,
    term,
)

ZONES = [node("a1", "a"), node("b1", "b"), node("bare")]


def test_scheduler_affinity_places_near_a_matching_pod() -> None:
    db = pod("db", on="a1", labels={"app": "db"})
    assert reasons(pod(affinity=affinity("podAffinity", term("db"))), ZONES, [db]) == {
        "a1": [],
        "b1": [NO_AFFINITY],
        "bare": [NO_AFFINITY],
    }


def test_scheduler_affinity_first_pod_of_its_kind_needs_only_the_topology_key() -> None:
    first = pod(labels={"app": "x"}, affinity=affinity("podAffinity", term("x")))
    assert fitting(first, ZONES) == {"a1", "b1"}


def test_scheduler_affinity_without_a_self_match_has_no_first_pod_exception() -> None:
    assert not fitting(pod(labels={"app": "y"}, affinity=affinity("podAffinity", term("x"))), ZONES)


def test_scheduler_affinity_one_pod_must_match_all_terms() -> None:
    tier = {"labelSelector": {"matchLabels": {"tier": "t"}}, "topologyKey": ZONE}
    asking = pod(affinity=affinity("podAffinity", term("a"), tier))
    halves = [pod("one", on="a1", labels={"app": "a"}), pod("two", on="a1", labels={"tier": "t"})]
    assert not fitting(asking, ZONES, halves)
    assert fitting(asking, ZONES, [pod("both", on="a1", labels={"app": "a", "tier": "t"})]) == {
        "a1"
    }


def test_scheduler_anti_affinity_of_existing_pods() -> None:
    guard = pod("guard", on="a1", affinity=affinity("podAntiAffinity", term("x")))
    assert reasons(pod(labels={"app": "x"}), [*ZONES, node("a2", "a")], [guard]) == {
        "a1": [EXISTING_ANTI_AFFINITY],
        "a2": [EXISTING_ANTI_AFFINITY],
        "b1": [],
        "bare": [],
    }


def test_scheduler_anti_affinity_where_the_topology_key_is_missing() -> None:
    nameless = node("nameless")
    del nameless["metadata"]["labels"][HOST]
    apart = pod(labels={"app": "x"}, affinity=affinity("podAntiAffinity", term("x", HOST)))
    there = [pod("x1", on="a1", labels={"app": "x"}), pod("x2", on="nameless", labels={"app": "x"})]
    assert reasons(apart, [ZONES[0], nameless], there) == {"a1": [ANTI_AFFINITY], "nameless": []}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        pytest.param({}, False, id="own-namespace-only"),
        pytest.param({"namespaces": ["other"]}, True, id="by-name"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "blue"}}}, True, id="by-selector"
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "red"}}}, False, id="selector-of-others"
        ),
        pytest.param({"namespaceSelector": {}}, True, id="everywhere"),
        pytest.param(
            {"namespaces": ["third"], "namespaceSelector": {"matchLabels": {"team": "blue"}}},
            True,
            id="either",
        ),
    ],
)
def test_scheduler_affinity_namespaces_of_a_term(where: dict[str, Any], found: bool) -> None:
    around = Surroundings(namespaces=({"metadata": {"name": "other", "labels": {"team": "blue"}}},))
    there = pod("x1", on="a1", namespace="other", labels={"app": "x"})
    apart = pod(affinity=affinity("podAntiAffinity", term("x", **where)))
    assert ("a1" not in fitting(apart, ZONES, [there], around)) is found


def test_scheduler_affinity_match_label_keys_distinguish_versions() -> None:
    there = pod("old", on="a1", labels={"app": "x", "version": "1"})
    apart = term("x", matchLabelKeys=["version"])
    newer = pod(labels={"app": "x", "version": "2"}, affinity=affinity("podAntiAffinity", apart))
    same = pod(labels={"app": "x", "version": "1"}, affinity=affinity("podAntiAffinity", apart))
    assert "a1" in fitting(newer, ZONES, [there])
    assert "a1" not in fitting(same, ZONES, [there])


def test_scheduler_affinity_without_a_selector_matches_no_pod() -> None:
    there = pod("x1", on="a1", labels={"app": "x"})
    apart = pod(affinity=affinity("podAntiAffinity", {"topologyKey": HOST}))
    assert "a1" in fitting(apart, ZONES, [there])
