"""Found by the fault test (tests/faults, seed 402): a pod is bound to a node between the
last read and the deletion.
"""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld


@scenario(grain=10.0)
def test_node_is_rechecked_after_its_deletion_was_delayed(world: ScenarioWorld) -> None:
    """The function dies after all checks, with only the deletion left. Half a minute passes
    until another one continues, and a pod is bound to the node: no read saw it, but it exists
    long before the deletion."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1m"}))
    world.seed(
        objects.machine_deployment("workers", 2, 1, 5),
        objects.deployment("web", replicas=1, cpu="1"),
    )
    world.when_step("delete", lambda: world.kill_at("act:claimed"))
    world.step_until(lambda: bool(world.deaths()), limit=600.0)
    (leaving,) = (name for name in world.nodes() if world.is_marked(name))
    world.bind_pod("late", leaving)

    world.minutes(2)

    assert leaving in world.nodes()
    assert "late" in world.pods_on(leaving)
    assert not world.is_marked(leaving)
    assert world.operations() == ()
