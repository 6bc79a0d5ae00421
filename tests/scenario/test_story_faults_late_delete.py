"""Found by the fault test (tests/faults, seed 402): what happens to a node between the last look and its deletion."""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import story
from tests.scenario.scenario_world import StoryWorld


@story(grain=10.0)
def test_CA_5790_a_node_is_looked_at_again_when_its_deletion_was_held_up(world: StoryWorld) -> None:
    """The executor dies when everything is checked and only the deletion is left. Minutes pass until another takes
    over, and a pod is bound to the node: it was not there at any look, but it is there long before the deletion."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1m"}))
    world.seed(objects.machine_deployment("workers", 2, 1, 5), objects.deployment("web", replicas=1, cpu="1"))
    world.when_step("delete", lambda: world.kill_at("act:claimed"))
    world.step_until(lambda: bool(world.deaths()), limit=600.0)
    (leaving,) = (name for name in world.nodes() if world.is_marked(name))
    world.step(20)
    world.bind_pod("late", leaving)

    world.minutes(8)

    assert leaving in world.nodes()
    assert "late" in world.pods_on(leaving)
    assert not world.is_marked(leaving)
    assert world.operations() == ()
