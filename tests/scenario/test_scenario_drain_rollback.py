"""Drains with a blocking budget or an unplanned pod, and their rollback."""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {"scaleDownUnneededTime": "1m"}


def _one_node_to_be_drained(world: ScenarioWorld) -> str:
    """Two nodes; the pods of `web` may move from the first to the second.
    Returns the name of the first."""
    world.apply_policy(document(options=OPTIONS))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    world.seed(
        objects.deployment("web", replicas=2, cpu="500m"),
        {
            **objects.pdb("web", max_unavailable=1),
            "metadata": {"name": "web-budget", "namespace": "default"},
        },
    )
    world.step_until(lambda: bool(world.pods_ready("web") == 2), limit=60)
    world.step_until(lambda: bool(world.last_known_nodes()), limit=300)
    (name,) = world.last_known_nodes()
    assert len(world.pods_on(name)) == 1
    return name


@scenario(grain=20.0)
def test_drain_blocked_by_a_budget_is_rolled_back_at_its_deadline(world: ScenarioWorld) -> None:
    """The owner sets the allowed disruptions to zero just before the evictions."""
    name = _one_node_to_be_drained(world)
    world.when_step("evict", lambda: world.budget("web-budget", {"maxUnavailable": 0}))

    world.step_until(lambda: bool(world.operations()), limit=300)
    world.step_until(lambda: world.is_marked(name), limit=30)
    world.step_until(lambda: bool(world.ended("remove")), limit=300)

    (failed,) = world.ended("remove")
    assert (failed["state"], failed["class"]) == ("failed", "EvictionBlocked")
    assert 120.0 <= failed["seconds"] < 150.0  # maxPodEvictionTime
    assert "web-budget" in failed["message"]
    assert "default/web-" in failed["message"]
    assert not world.is_marked(name)
    assert len(world.pods_on(name)) == 1
    world.minutes(2)
    why = [
        verdict["reason"]["params"]
        for plan in world.plans_with("unremovable")
        for verdict in plan["unremovable"]
        if verdict["node"] == name and plan["at"] >= failed["at"]
    ]
    assert "NotEnoughPdb" in {params.get("rule") for params in why}

    world.budget("web-budget", {"maxUnavailable": 1})
    world.step_until(lambda: len(world.ended("remove")) == 2, limit=900)

    assert world.ended("remove")[1]["state"] == "succeeded"
    assert len(world.nodes()) == 1
    assert world.pods_ready("web") == 2


@scenario(grain=20.0)
def test_pod_bound_between_taint_and_recheck_keeps_its_node(world: ScenarioWorld) -> None:
    world.apply_policy(document(options=OPTIONS))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=1, cpu="500m"))
    world.step_until(lambda: bool(world.last_known_nodes()), limit=300)
    (idle,) = world.last_known_nodes()
    world.at("taint:called", lambda: world.bind_pod("web-late", idle))

    world.step_until(lambda: bool(world.ended("remove")), limit=300)

    (failed,) = world.ended("remove")
    assert (failed["state"], failed["class"]) == ("failed", "NodeNotEmpty")
    assert "default/web-late was bound to it after it was planned" in failed["message"]
    assert not world.is_marked(idle)
    assert "web-late" in world.pods_on(idle)
    assert len(world.machines("workers")) == 2
    assert not any("/machines/" in request for request in world.writes())


@scenario(grain=20.0)
def test_drained_pod_runs_elsewhere_before_its_node_is_removed(world: ScenarioWorld) -> None:
    name = _one_node_to_be_drained(world)

    world.step_until(lambda: bool(world.ended("remove")), limit=300)

    (done,) = world.ended("remove")
    assert (done["state"], done["nodes"]) == ("succeeded", name)
    assert world.pods_ready("web") == 2
    (removal,) = world.plans_with("removals")
    assert removal["removals"][0]["kind"] == "drain"
    assert list(removal["removals"][0]["destinations"].values()) == list(world.nodes())
