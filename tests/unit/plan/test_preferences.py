"""Soft preferences choose among otherwise equal options and never block a pod."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.pod import PreferredTerm
from chalicelib.model.selector import NodeTerm, Requirement
from tests.builders import ZONE, ClusterBuilder, cluster, even, growth, having, node
from tests.unit.plan.placement_cases import crowd

X = having(app="x")


def _prefers(**weights: int) -> tuple[PreferredTerm, ...]:
    """Preferred zones with their weights."""
    return tuple(
        PreferredTerm(weight, NodeTerm((Requirement(ZONE, "In", (zone,)),)))
        for zone, weight in weights.items()
    )


def _zones(names: str = "abc", **groups: dict[str, Any]) -> ClusterBuilder:
    build = cluster()
    for zone in names:
        build.group(zone, **{"template": node("t", "2", zone=zone), **groups.get(zone, {})})
    return build


@pytest.mark.parametrize(
    ("preferred", "zone"),
    [
        pytest.param((), "a", id="none-lowest-id"),
        pytest.param(_prefers(b=1), "b", id="one"),
        pytest.param(_prefers(b=10, c=11), "c", id="the-heavier"),
        pytest.param(_prefers(d=100), "a", id="nobody-offers-it"),
        pytest.param(_prefers(d=100, c=1), "c", id="the-heaviest-is-not-offered"),
    ],
)
def test_preferred_zone_is_chosen_where_a_group_offers_it(
    preferred: tuple[PreferredTerm, ...], zone: str
) -> None:
    assert growth(_zones().pending(3, "1", preferred_nodes=preferred).plan()) == {zone: (2, 3)}


@pytest.mark.parametrize(
    "chain",
    [("least-waste",), ("least-waste", "random"), ("random",), ("most-pods",), ("least-nodes",)],
    ids=",".join,
)
def test_preferred_zone_is_chosen_with_every_expander(chain: tuple[str, ...]) -> None:
    for seed in range(5):
        plan = (
            _zones().pending(3, "1", preferred_nodes=_prefers(b=1)).plan(expander=chain, seed=seed)
        )
        assert growth(plan) == {"b": (2, 3)}


def test_pods_are_placed_elsewhere_when_the_preferred_group_is_full() -> None:
    plan = _zones("ab", b={"max": 1}).pending(6, "1", preferred_nodes=_prefers(b=1)).plan()
    assert growth(plan) == {"a": (2, 4), "b": (1, 2)}


def test_soft_preference_does_not_override_the_expander() -> None:
    build = _zones("a").group("b", template=node("t", "16", "64Gi", zone="b"))
    assert growth(build.pending(1, "1", preferred_nodes=_prefers(b=100)).plan()) == {"a": (1, 1)}


def test_soft_preference_does_not_override_a_required_rule() -> None:
    required = (NodeTerm((Requirement(ZONE, "NotIn", ("b",)),)),)
    build = _zones().pending(1, "1", preferred_nodes=_prefers(b=100), required_affinity=required)
    assert growth(build.plan()) == {"a": (1, 1)}


def test_soft_preference_of_most_pods_decides() -> None:
    build = _zones().pending(1, "1", name="p", owner="p", preferred_nodes=_prefers(b=100))
    build.pending(3, "1", name="q", owner="q", preferred_nodes=_prefers(c=1))
    assert growth(build.plan()) == {"c": (2, 4)}


def test_soft_topology_spread_prefers_the_emptier_zone() -> None:
    build = crowd({"a": 3, "b": 1, "c": 2}, _zones(), owner="x")
    assert growth(build.pending(1, "1", owner="x", preferred_spread=(even(ZONE, X),)).plan()) == {
        "b": (1, 1)
    }


def test_soft_topology_spread_counts_only_selected_pods() -> None:
    build = crowd({"a": 3, "b": 1, "c": 2}, _zones(), owner="y")
    assert growth(build.pending(1, "1", owner="x", preferred_spread=(even(ZONE, X),)).plan()) == {
        "a": (1, 1)
    }


def test_soft_topology_spread_leaves_no_pod_pending() -> None:
    build = crowd({"a": 0, "b": 0, "c": 0}, _zones("a"), owner="x")
    plan = build.pending(8, "1", owner="x", preferred_spread=(even(ZONE, X),)).plan()
    assert growth(plan) == {"a": (4, 8)}


def test_soft_preferences_do_not_weaken_required_rules_of_other_pods() -> None:
    build = crowd({"a": 1, "b": 1, "c": 0}, _zones(), owner="x")
    build.pending(1, "1", name="p", owner="p", preferred_nodes=_prefers(b=100))
    plan = build.pending(1, "1", name="x", owner="x", spread=(even(ZONE, X),)).plan()
    assert sum(pods for _, pods in growth(plan).values()) == 2
    assert growth(plan)["c"][1] >= 1
