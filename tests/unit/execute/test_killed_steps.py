"""The function dies at every point where the world has changed and the table does not know it yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Done, Failed
from tests.unit.execute.story import Story, remove


def goes(story: Story) -> Operation:
    """Two nodes, one of them drained."""
    story.group(3)
    keys = tuple(f"default/p-{n}" for n in range(3))
    for key in keys:
        story.cluster.add_pod(key, "g-1")
    return remove("g-1", "g-3", evict={"g-1": keys})


def stays(story: Story) -> Operation:
    """One node empty, one blocked by a budget."""
    operation = goes(story)
    story.cluster.add_budget("web", ["default/p-1"], room=0)
    return operation


def refused(story: Story) -> Operation:
    """The provider will not go below its minimum."""
    operation = goes(story)
    story.provider.pools["g"].min = 2
    return operation


SCENES: list[Callable[[Story], Operation]] = [goes, stays, refused]


def run(scene: Callable[[Story], Operation], kill_at: int | None) -> tuple[Story, Done | Failed]:
    story = Story(polls=2, kill_at=kill_at)
    return story, story.play(scene(story))


def state(story: Story) -> tuple[object, ...]:
    nodes = sorted((node.name, node.unschedulable, len(node.taints)) for node in story.cluster.nodes.values())
    return nodes, sorted(story.provider.deleted), story.provider.pools["g"].target


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_killed_anywhere_and_delivered_again_it_ends_the_same(scene: Callable[[Story], Operation]) -> None:
    whole, outcome = run(scene, None)
    assert len(whole.checkpoints) >= 6
    for kill_at in range(len(whole.checkpoints)):
        again, ended = run(scene, kill_at)
        place = whole.checkpoints[kill_at]
        assert state(again) == state(whole), f"killed at {place} ({kill_at})"
        assert type(ended) is type(outcome), f"killed at {place} ({kill_at})"


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_step_run_twice_changes_nothing(scene: Callable[[Story], Operation]) -> None:
    whole, outcome = run(scene, None)
    story = Story(polls=2)
    operation = scene(story)
    ended: object = None
    while not isinstance(ended, Done | Failed):
        story.step(operation)                        # a first executor, overtaken before it could record
        operation, ended = story.step(operation)
    assert state(story) == state(whole)
    assert type(ended) is type(outcome)


def test_no_taint_is_left_on_a_node_that_stays() -> None:
    for kill_at in range(20):
        story, _ = run(stays, kill_at)
        assert all(not node.taints and not node.unschedulable for node in story.cluster.nodes.values())
