"""Timers that a restarted process would lose: the start of a node's unneeded time and the time of
the last scale-up (docs/reference/node-groups.md "State across passes")."""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld


@scenario(grain=20.0)
def test_unneeded_timers_survive_a_restart(world: ScenarioWorld) -> None:
    """Unneeded for more than ten minutes, over eleven passes: the node is removed in
    the twelfth, not earlier."""
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=1, cpu="500m"))
    world.step_until(lambda: bool(world.last_known_nodes()), limit=300, every=60)
    (idle,) = world.last_known_nodes()
    since = world.last_known_nodes()[idle].unneeded_since

    world.step_until(lambda: bool(world.ended("remove")), limit=900, every=60)

    (removal,) = [plan for plan in world.plans() if plan.get("removals")]
    assert removal["at"] - since == 660.0  # at 600 s it is not *more* than ten minutes yet
    assert [each["node"] for each in removal["removals"]] == [idle]
    reported = {
        memory["shop"]["nodes"][idle]["unneeded_since"]
        for memory in world.passes
        if idle in memory["shop"].get("nodes", {})
    }
    assert reported == {since}
    assert world.machines("workers") == list(world.nodes())
    assert idle not in world.nodes()
    assert [end["nodes"] for end in world.ended("remove")] == [idle]


@scenario(grain=20.0)
def test_cooldown_after_a_scale_up_survives_a_restart(world: ScenarioWorld) -> None:
    """Long-unneeded nodes stay for exactly ten minutes after the last scale-up."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1m"}))
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=4, cpu="1500m"))
    world.minutes(4)
    grown_at = world.memory().last_scale_up
    assert grown_at > 0.0
    world.scale("web", 1)

    world.step_until(lambda: bool(world.ended("remove")), limit=900, every=20)

    removed = [plan for plan in world.plans() if plan.get("removals")]
    assert removed[0]["at"] - grown_at == 600.0
    held = {verdict["reason"]["code"] for verdict in world.plans()[-3].get("unremovable", ())}
    assert "InCooldown" in held
