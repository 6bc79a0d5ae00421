"""Days in which new nodes of managed pools are not what their machine types promise, each type
anew: what does not help is not bought of one type after another.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from chalicelib.model.managed_group import MachineChoice, Managed
from chalicelib.model.reason import ReasonCode
from chalicelib.policy.settings.managed_pools import ManagedPool
from tests.unit.plan.hour_of_joins import (
    DAY,
    HOUR,
    MINUTE,
    HourOfJoins,
    Json,
    Shape,
    node_object,
)

TYPES = 20
PRICE = 0.10
STEP = 0.001
"""By which each type is dearer than the one before."""
GPU = "nvidia.com/gpu"
ASKED: dict[str, dict[str, Any]] = {
    "label": {"nodeSelector": {"tier": "general"}},
    "resource": {"extended": {"example.com/fuse": "1"}},
    "gpu": {"extended": {"nvidia.com/gpu": "1"}},
}
"""What pods ask for, and all machine types promise."""
BIG = {"memory": "15Gi"}
"""Just fits the estimate of a machine."""


def story_of(part: str, shape: Shape) -> HourOfJoins:
    """A declaration with many types, and three pods for two nodes. Ten other nodes are full."""
    story = HourOfJoins(
        policy={"managed_pools": (ManagedPool("general", "test"),)}, expander=("least-cost",)
    )
    story.group("base", size=10, max=10)
    for number in range(10):
        story.deploy("busy", 4, on=f"base-{number + 1}")
    asked = ASKED.get(part, {})
    promised = node_object("t", labels=asked.get("nodeSelector"), extended=asked.get("extended"))
    for number in range(TYPES):
        machine = f"type-{number:02}"
        story.group(
            f"osc-{machine}",
            shape,
            template=promised,
            managed=Managed(MachineChoice("general", machine, "z1")),
            price=PRICE + number * STEP,
            currency="EUR",
        )
    story.deploy("web", 3, **({"cpu": "1500m"} if asked else BIG), **asked)
    return story


def bare(name: str, age: float) -> Json:
    """A node that has nothing of what its type promises."""
    return node_object(name)


def from_age(part: str, age: float, *types: str) -> Shape:
    """Nodes that have a part from an age on: of all types, or of these."""

    def shape(name: str, node_age: float) -> Json:
        is_one = not types or any(machine in name for machine in types)
        asked = ASKED[part] if is_one and node_age >= age else {}
        return node_object(name, labels=asked.get("nodeSelector"), extended=asked.get("extended"))

    return shape


def purchases(story: HourOfJoins) -> list[str]:
    """The group of each purchase."""
    return [group for _, group, _ in story.bought]


@pytest.mark.parametrize("part", ASKED)
def test_what_nodes_of_no_type_have_is_not_bought_of_one_type_after_another(part: str) -> None:
    story = story_of(part, bare)

    story.play(HOUR, every=MINUTE)
    assert purchases(story) == ["osc-type-00", "osc-type-01", "osc-type-02"]
    notes = [note for note in story.plans[-1].notes if note.code is ReasonCode.NEW_NODES_LACK]
    assert len(notes) == 3

    story.play(2 * DAY, every=10 * MINUTE)
    assert len(purchases(story)) == 6
    assert len(story.pending()) == 3


@pytest.mark.parametrize("part", ASKED)
def test_a_part_that_one_type_has_is_bought_of_that_type(part: str) -> None:
    story = story_of(part, from_age(part, 0.0, "type-01"))

    story.play(HOUR, every=MINUTE)
    story.deploy("more", 6, cpu="1500m", **ASKED[part])
    story.play(HOUR, every=MINUTE)

    assert set(purchases(story)) == {"osc-type-00", "osc-type-01"}
    assert story.pending() == []


@pytest.mark.parametrize("part", ASKED)
def test_a_part_that_comes_after_the_startup_time_ends_the_purchases(part: str) -> None:
    story = story_of(part, from_age(part, 25 * MINUTE))

    story.play(HOUR, every=MINUTE)

    assert len(purchases(story)) <= 2
    assert story.pending() == []


def test_nodes_of_any_type_that_never_join_are_bought_ever_more_rarely() -> None:
    story = story_of("label", bare)
    for group in story.groups.values():
        group.joins_after = math.inf

    story.play(DAY, every=10 * MINUTE)
    first_day = len(purchases(story))
    story.play(DAY, every=10 * MINUTE)

    assert first_day <= 8
    assert len(purchases(story)) - first_day <= 4
    assert len(set(purchases(story))) == 3


def test_nodes_that_are_smaller_than_estimated_are_not_tried_type_by_type() -> None:
    def small(name: str, age: float) -> Json:
        return node_object(name, memory="14Gi")

    story = story_of("size", small)

    story.play(2 * HOUR, every=MINUTE)

    assert purchases(story) == ["osc-type-00"]
    [verdict] = story.plans[-1].unschedulable
    others = verdict.reasons["osc-type-01"]
    assert [reason.code for reason in others] == [ReasonCode.INSUFFICIENT]


def test_a_label_with_another_value_than_declared_is_not_tried_type_by_type() -> None:
    def renamed(name: str, age: float) -> Json:
        return node_object(name, labels={"tier": "other"})

    story = story_of("label", renamed)

    story.play(2 * HOUR, every=MINUTE)

    assert purchases(story) == ["osc-type-00"]


def test_a_node_with_less_than_half_of_its_estimate_says_nothing_of_others() -> None:
    def tiny_of_one_type(name: str, age: float) -> Json:
        return node_object(name, memory="2Gi" if "type-00" in name else "16Gi")

    story = story_of("size", tiny_of_one_type)

    story.play(HOUR, every=MINUTE)

    assert purchases(story) == ["osc-type-00", "osc-type-00", "osc-type-01"]
    assert story.pending() == []


def test_a_type_that_fails_after_others_have_joined_rests_for_an_hour_only() -> None:
    story = story_of("size", lambda name, _: node_object(name))
    for group in story.groups.values():
        group.max = 3
        group.joins_after = math.inf if group.id in ("osc-type-00", "osc-type-01") else 90.0
    story.play(45 * MINUTE, every=MINUTE)
    assert story.pending() == []
    backoffs = [
        memory.backoff for memory in story.memory.groups.values() if memory.backoff is not None
    ]
    assert {backoff.attempt for backoff in backoffs} == {1, 2}

    story.groups["osc-type-03"].joins_after = math.inf
    story.deploy("more", 3, **BIG)
    story.play(HOUR / 2, every=MINUTE)

    failed = story.memory.groups["osc-type-03"].backoff
    assert failed is not None
    assert failed.attempt == 1
    assert story.pending() == []
