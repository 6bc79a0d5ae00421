"""Groups whose vendor names zones in which none of their nodes is, or says that it
takes any zone, for an hour.
"""

from __future__ import annotations

import pytest

from chalicelib.model.reason import ReasonCode
from tests.builders import ZONE
from tests.providers.clusterapi.objects import node, pool
from tests.providers.clusterapi.test_groups import groups
from tests.providers.clusterapi.test_pools import only
from tests.unit.plan.hour_of_joins import HOUR, HourOfJoins, node_object
from tests.unit.plan.test_groups_in_several_zones import first_purchase, in_zone, promised
from tests.unit.plan.test_volumes_in_several_zones import (
    EVERY,
    Choice,
    always,
    bound_disk,
    deploy_with_disks,
    in_turn,
    made_by,
)

IN_A = {"g-1": "a", "g-2": "a"}


def group_in_a(zones: tuple[str, ...], choice: Choice) -> HourOfJoins:
    """Return a group whose nodes are full and in zone a. zones: what its vendor
    says; choice: of new nodes."""
    story = HourOfJoins()
    story.group("g", made_by(choice, IN_A), size=len(IN_A), zones=zones)
    for name in IN_A:
        story.deploy("old", 1, "4", "1Gi", on=name)
    return story


def test_failure_domains_of_a_pool_are_the_zones_of_its_group() -> None:
    mp = pool("mp", ["c:///1"], replicas=1)
    mp["spec"]["failureDomains"] = ["c", "b"]

    assert only(mp, nodes=(node("n1", "c:///1"),)).zones == ("b", "c")


def test_failure_domains_of_the_cluster_count_for_a_pool_without_its_own() -> None:
    mp = pool("mp", ["c:///1"], replicas=1)
    domains = {("default", "c1"): ("b", "c")}
    [group] = groups([mp], [node("n1", "c:///1")], failure_domains=domains).groups

    assert group.zones == ("b", "c")


@pytest.mark.parametrize("zones", [("b", "c"), ("",)], ids=["named", "any"])
def test_zone_that_no_node_of_the_group_has_shown_gets_one_attempt_at_a_time(
    zones: tuple[str, ...],
) -> None:
    story = group_in_a(zones, always("b"))
    story.group("elsewhere", made_by(always("b"), {"elsewhere-1": "b"}), size=1, max=1)
    story.deploy("old", 1, "4", "1Gi", on="elsewhere-1")
    story.deploy("web", 3, "4", **in_zone("b"))

    plan = first_purchase(story)
    assert story.bought_nodes("g") == 1
    assert promised(plan) == {False}
    story.play(HOUR, every=EVERY)

    assert not story.pending()
    assert story.bought_nodes("g") == 3


@pytest.mark.parametrize("choice", [always("a"), in_turn("acb")], ids=["always a", "in turn"])
def test_volume_in_a_zone_that_no_node_has_shown_costs_three_nodes_more(choice: Choice) -> None:
    story = group_in_a(("b", "c"), choice)
    deploy_with_disks(story, bound_disk, ZONE, "b")

    story.play(HOUR, every=EVERY)

    served = 1 - len(story.pending())
    assert story.bought_nodes() <= served + 3
    assert story.size("g") <= len(IN_A) + served + 1
    assert served or story.bought_nodes() == 3


def test_empty_group_that_takes_any_zone_is_tried_for_the_zones_of_the_cluster() -> None:
    story = HourOfJoins()
    story.group("g", made_by(in_turn("cb"), {}), template=node_object("t"), zones=("",))
    story.group("elsewhere", made_by(always("b"), {"elsewhere-1": "b"}), size=1, max=1)
    story.deploy("old", 1, "4", "1Gi", on="elsewhere-1")
    story.deploy("web", 1, "4", **in_zone("b"))
    story.deploy("lost", 1, "4", **in_zone("nowhere"))

    story.play(HOUR, every=EVERY)

    assert story.pending() == [name for name in story.pods if name.startswith("lost")]
    assert story.bought_nodes("g") <= 1 + 3
    [verdict] = story.plans[-1].unschedulable
    assert {reason.code for reason in verdict.reasons["g"]} == {ReasonCode.NODE_AFFINITY}


def test_pods_of_any_zone_are_bought_for_at_once_where_the_vendor_takes_any_zone() -> None:
    story = group_in_a(("",), in_turn("abc"))
    story.deploy("web", 4, "4")

    plan = first_purchase(story)

    assert story.bought_nodes() == 4
    assert promised(plan) == {True}
