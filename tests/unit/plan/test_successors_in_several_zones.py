"""Successors of nodes whose pods need a zone of a group in several zones, pass by pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chalicelib.model.policy import NodeLifecycle, RepairRule
from chalicelib.model.reason import ReasonCode
from tests.unit.plan.hour_of_joins import HOUR, MINUTE, HourOfJoins, Json, Shape
from tests.unit.plan.test_groups_in_several_zones import first_then, in_zone, spread

AGE = NodeLifecycle(max_node_age=2 * HOUR + 5 * MINUTE, jitter=0.0)  # nodes are two hours old when a story begins
REPAIR = NodeLifecycle(repair=(RepairRule("Bad", 60.0),), max_unhealthy=1.0)


def sick(shape: Shape, name_of_sick: str) -> Shape:
    """Return nodes of which one has a bad condition."""

    def both(name: str, age: float) -> Json:
        node = shape(name, age)
        if name == name_of_sick:
            old = {"status": "True", "lastTransitionTime": "2027-01-15T06:00:00Z"}
            node["status"]["conditions"] = [{"type": "Ready", **old}, {"type": "Bad", **old}]
        return node

    return both


def due(why: str, zones: tuple[str, ...], pod: Mapping[str, Any]) -> HourOfJoins:
    """Return a group with nodes in zones a and b; the second is due and full. zones: of new nodes, in turn."""
    story = HourOfJoins(policy={"node_lifecycle": AGE if why == "age" else REPAIR})
    shape = first_then(["a", "b"], *zones)
    story.group("g", sick(shape, "g-2") if why == "repair" else shape, size=2)
    story.deploy("old", 1, "4", "1Gi", on="g-1")
    story.deploy("db", 1, "4", "1Gi", on="g-2", **pod)
    return story


def held(story: HourOfJoins) -> set[ReasonCode]:
    """Return what held the second node, in any pass."""
    verdicts = (verdict for plan in story.plans for verdict in plan.lifecycle if verdict.node == "g-2")
    return {verdict.held.code for verdict in verdicts if verdict.held is not None}


@pytest.mark.parametrize("pod", [in_zone("b"), spread("db")], ids=["bound", "spread"])
@pytest.mark.parametrize("why", ["age", "repair"])
def test_node_goes_once_its_successor_has_come_in_the_zone(why: str, pod: Mapping[str, Any]) -> None:
    story = due(why, ("b",), pod)

    story.play(HOUR)

    assert "g-2" not in {machine.name for machine in story.groups["g"].machines}
    assert not story.pending()
    assert story.bought_nodes() <= 2
    assert story.size("g") == 2


@pytest.mark.parametrize("why", ["age", "repair"])
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
