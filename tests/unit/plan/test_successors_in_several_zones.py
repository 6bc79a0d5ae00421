"""Successors of nodes whose pods need a zone of a group in several zones, pass by pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chalicelib.model.reason import ReasonCode
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle, RepairRule
from chalicelib.policy.settings.spot import Spot
from tests.unit.plan.hour_of_joins import HOUR, MINUTE, START, HourOfJoins, Json, Shape
from tests.unit.plan.test_groups_in_several_zones import first_then, in_zone, spread

# nodes are two hours old when a story begins
AGE = NodeLifecycle(max_node_age=2 * HOUR + 5 * MINUTE, jitter=0.0)
DRIFT = NodeLifecycle(drift=DriftAction.REPLACE)
REPAIR = NodeLifecycle(repair=(RepairRule("Bad", 60.0),), max_unhealthy=1.0)


LIFECYCLES = {"age": AGE, "drift": DRIFT, "repair": REPAIR}


def sick(shape: Shape, *sick_nodes: str) -> Shape:
    """Return nodes of which some have a bad condition."""

    def both(name: str, age: float) -> Json:
        node = shape(name, age)
        if name in sick_nodes:
            old = {"status": "True", "lastTransitionTime": "2027-01-15T06:00:00Z"}
            node["status"]["conditions"] = [{"type": "Ready", **old}, {"type": "Bad", **old}]
        return node

    return both


def due(why: str, zones: tuple[str, ...], pod: Mapping[str, Any]) -> HourOfJoins:
    """Return a group with nodes in zones a and b; the second is due and full.
    zones: of new nodes, in turn."""
    story = HourOfJoins(policy={"node_lifecycle": LIFECYCLES[why]})
    shape = first_then(["a", "b"], *zones)
    group = story.group("g", sick(shape, "g-2") if why == "repair" else shape, size=2)
    if why == "drift":
        group.machines[1].says = {"outdated": "flavour c6.large, new nodes have c8.large"}
    story.deploy("old", 1, "4", "1Gi", on="g-1")
    story.deploy("db", 1, "4", "1Gi", on="g-2", **pod)
    return story


def held(story: HourOfJoins) -> set[ReasonCode]:
    """Return what held the second node, in any pass."""
    verdicts = (
        verdict for plan in story.plans for verdict in plan.lifecycle if verdict.node == "g-2"
    )
    return {verdict.held.code for verdict in verdicts if verdict.held is not None}


@pytest.mark.parametrize("pod", [in_zone("b"), spread("db")], ids=["bound", "spread"])
@pytest.mark.parametrize("why", ["age", "drift", "repair"])
def test_node_goes_once_its_successor_has_come_in_the_zone(
    why: str, pod: Mapping[str, Any]
) -> None:
    story = due(why, ("b",), pod)

    story.play(HOUR)

    assert "g-2" not in {machine.name for machine in story.groups["g"].machines}
    assert not story.pending()
    assert story.bought_nodes() <= 2
    assert story.size("g") == 2


@pytest.mark.parametrize("why", ["age", "drift", "repair"])
def test_successor_in_another_zone_moves_no_pod_and_is_not_bought_again_at_once(why: str) -> None:
    story = due(why, ("a",), in_zone("b"))

    for _ in range(12 * 20):
        story.run_pass()
        story.now += 60.0 if why == "repair" else 15.0
        assert not [name for name in story.pending() if name.startswith("db")]

    assert "g-2" in {machine.name for machine in story.groups["g"].machines}
    assert story.bought_nodes() <= 4
    assert ReasonCode.REPLACEMENT_FAILED in held(story)
    assert story.size("g") <= 3


def test_new_node_of_a_copied_template_needs_no_zone_label_that_the_model_lacks() -> None:
    story = due("repair", ("a",), in_zone("b"))

    story.play(5 * MINUTE)

    # A node that counts as unfinished would hold its replacement until maxNodeStartupTime.
    assert ReasonCode.REPLACEMENT_FAILED in held(story)


def at_maximum(zones: tuple[str, ...], sick_nodes: int) -> HourOfJoins:
    """Return a group at its maximum with one node in zone a and sick ones in zone b, all
    full. zones: of new nodes."""
    story = HourOfJoins(policy={"node_lifecycle": REPAIR})
    old = [f"g-{number}" for number in range(1, sick_nodes + 2)]
    shape = sick(first_then(["a", *["b"] * sick_nodes], *zones), *old[1:])
    story.group("g", shape, size=len(old), max=len(old))
    story.deploy("old", 1, "4", "1Gi", on="g-1")
    for name in old[1:]:
        story.deploy(f"db-{name}", 1, "4", "1Gi", on=name, **in_zone("b"))
    return story


def test_sick_nodes_of_a_full_group_go_one_by_one_and_their_successors_are_attempts() -> None:
    story = at_maximum(("b",), 2)

    story.play(HOUR, every=30.0)

    assert not story.pending()
    assert story.bought_nodes() == 2
    assert sorted(machine.name for machine in story.groups["g"].machines) == ["g-1", "g-4", "g-5"]


def test_sick_node_of_a_full_group_stays_while_nothing_is_bought_for_its_zone() -> None:
    story = at_maximum(("a",), 2)

    for _ in range(120):
        story.run_pass()
        story.now += 30.0
        assert len(story.pending()) <= 1

    assert story.bought_nodes() <= 3
    assert len(story.groups["g"].machines) <= 2 + 1
    held = {verdict.held.code for verdict in story.plans[-1].lifecycle if verdict.held is not None}
    assert held <= {
        ReasonCode.ZONE_NOT_CERTAIN,
        ReasonCode.GROUP_MAX_SIZE,
        ReasonCode.GROUP_GROWING,
    }


def interrupted(zones: tuple[str, ...], **more: Any) -> HourOfJoins:
    """Return a spot group whose second node, of zone b, is taken back in two
    minutes. zones: of new nodes."""
    story = HourOfJoins(policy={"spot": Spot(avoid_after_interruption=0.0)})
    group = story.group("g", first_then(["a", "b"], *zones), size=2, spot=True, **more)
    group.machines[1].says = {"leaves_at": START + 2 * MINUTE}
    story.deploy("old", 1, "4", "1Gi", on="g-1")
    story.deploy("db", 1, "4", "1Gi", on="g-2", **in_zone("b"))
    return story


@pytest.mark.parametrize("most", [2, 100], ids=["at maximum", "with room"])
def test_interrupted_node_is_followed_by_one_in_its_zone(most: int) -> None:
    story = interrupted(("b",), max=most)

    story.play(HOUR, every=30.0)

    assert not story.pending()
    assert story.bought_nodes() == 1
    assert story.size("g") == 2


def test_interrupted_node_whose_zone_never_comes_costs_three_nodes_in_an_hour() -> None:
    story = interrupted(("a",))

    story.play(HOUR, every=30.0)

    assert 1 <= story.bought_nodes() <= 3
    assert story.size("g") <= 1 + 1
    assert len(story.pending()) == 1
