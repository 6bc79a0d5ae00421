"""The circuit breaker's share: a plan that would remove a large part of the cluster at once removes
nothing until an operator has reviewed it (docs/reference/scale-down.md "Circuit breaker")."""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"}


@scenario(quick=True, grain=20.0)
def test_mass_removal_trips_the_breaker_across_restarts_until_its_release(
    world: ScenarioWorld,
) -> None:
    """A user deletes the Deployment that fills the cluster."""
    world.apply_policy(document(options=OPTIONS, maxDisruption={"share": 0.25}))
    world.seed(objects.machine_deployment("workers", 8, 1, 9))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=8, cpu="2500m"))
    world.minutes(3)
    assert world.last_known_nodes() == {}

    world.scale("web", 0)
    world.minutes(20)

    assert world.size("workers") == 8
    assert world.operations() == ()
    breaker = world.memory().breaker
    assert (breaker.wanted, breaker.tripped_at > 0.0) == (7, True)
    held = {verdict["reason"]["code"] for verdict in world.last_plan()["unremovable"]}
    assert "DisruptionBrake" in held
    assert world.last_plan()["paused"]["params"] == {"nodes": 7, "of": 8, "share": 0.25}

    # The Deployment is back on most nodes. The rest is not a mass removal, but only an
    # operator releases the breaker.
    world.scale("web", 7)
    world.minutes(10)
    assert world.size("workers") == 8

    world.store.breaker_overrides.release(world.name, world.clock() + 600.0)
    world.minutes(6)

    assert world.size("workers") == 7
    assert world.pods_ready("web") == 7
    assert world.memory().breaker.tripped_at == 0.0
    assert {end["state"] for end in world.ended("remove")} == {"succeeded"}


@scenario(quick=True, grain=20.0)
def test_plan_below_the_share_removes_a_few_nodes_at_a_time(world: ScenarioWorld) -> None:
    world.apply_policy(document(options=OPTIONS, maxDisruption={"share": 0.25}))
    world.seed(objects.machine_deployment("workers", 8, 1, 9))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=8, cpu="2500m"))
    world.minutes(3)

    world.scale("web", 6)
    world.minutes(6)

    assert world.size("workers") == 6
    assert world.memory().breaker.tripped_at == 0.0
    assert not any(
        plan.get("paused", {}).get("code") == "DisruptionBrake" for plan in world.plans()
    )
