"""The story itself: where nodes join as their group says, what is needed is
bought, and goes when idle.
"""

from __future__ import annotations

from tests.unit.plan.hour_of_joins import HOUR, HourOfJoins, node_object


def test_nodes_that_join_as_promised_are_bought_once() -> None:
    story = HourOfJoins()
    story.group("g", size=1)
    story.deploy("busy", 4, on="g-1")
    story.deploy("web", 10, cpu="1500m")

    story.play(HOUR)

    assert story.bought_nodes() == 5, "two pods fit a node"
    assert story.pending() == []
    assert (story.size("g"), story.removed) == (6, [])


def test_nodes_that_are_idle_go_and_their_pods_do_not_come_back() -> None:
    story = HourOfJoins()
    story.group("g", template=node_object("t"))
    story.play(600.0)
    pods = story.deploy("web", 6, cpu="3")
    story.play(600.0)
    story.delete_pods(*pods[2:])

    story.play(HOUR)

    assert story.bought_nodes() == 6
    assert story.size("g") == 2
    assert story.pending() == []


def test_pods_of_a_removed_node_are_placed_again() -> None:
    story = HourOfJoins()
    story.group("g", size=2)
    story.deploy("web", 2, on="g-1")
    story.deploy("web", 2, on="g-2")
    story.lose_machine("g", "g-2")

    story.play(HOUR)

    assert (len(story.pods), story.pending(), story.bought_nodes()) == (4, [], 0)
