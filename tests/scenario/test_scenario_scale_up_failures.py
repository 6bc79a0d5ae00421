"""Rejected scale-ups and instances that never come: backoff, and use of another group meanwhile
(docs/reference/node-groups.md "Backoff")."""

from __future__ import annotations

from chalicelib.model.memory import Backoff
from chalicelib.providers.kit.errors import OutOfStock
from infra.emulators.controllers import objects
from infra.emulators.fake_provider import InMemoryProvider
from infra.emulators.kube.faults import KubeFault
from tests.builders import node as template
from tests.scenario.policies import document, refusal
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

CHEAP, SPARE = "MachineDeployment/default/cheap", "MachineDeployment/default/spare"


def _cloud(world: ScenarioWorld) -> InMemoryProvider:
    """Two groups, of which `cheap` wastes less, and one full node."""
    world.cloud = cloud = InMemoryProvider()
    cloud.add_pool("base", size=1, most=1, template_node=template("base", "1"))
    cloud.add_pool("cheap", most=5, template_node=template("cheap", "2"))
    cloud.add_pool("spare", most=1, template_node=template("spare", "4"))
    world.join()
    return cloud


def _backoff(world: ScenarioWorld, group: str) -> Backoff:
    found = world.group_memory(group).backoff
    assert found is not None
    return found


@scenario(grain=60.0)
def test_group_out_of_stock_is_backed_off_and_the_next_group_is_scaled_up(
    world: ScenarioWorld,
) -> None:
    """5, 10, 20, 30 and again 30 minutes, across process restarts; forgotten after three
    hours without a failure."""
    world.apply_policy(document())
    cloud = _cloud(world)
    cloud.fail_next("scale_up", OutOfStock("no machine of this type is left", code="Stockout"))
    cloud.let_pass("scale_up")
    cloud.fail_next(
        "scale_up", OutOfStock("no machine of this type is left", code="Stockout"), times=4
    )
    world.seed(objects.deployment("web", replicas=2, cpu="900m"))  # one of them on `base`

    world.minutes(1.5)

    assert [(bought.group, bought.count) for bought in cloud.purchases] == [("spare", 1)]
    assert [(end["group"], end.get("class")) for end in world.ended("grow")] == [
        ("cheap", "OutOfStock"),
        ("spare", None),
    ]
    assert _backoff(world, "cheap").duration == 300.0
    cloud.boot()
    world.join()
    world.minutes(1)
    assert world.pending() == ()
    world.scale("web", 6)  # one more than `base` and `spare` can hold

    for attempt, duration in ((2, 600.0), (3, 1200.0), (4, 1800.0), (5, 1800.0)):
        before = _backoff(world, "cheap")
        world.minutes(1)
        assert _backoff(world, "cheap") == before  # not tried during its backoff
        world.pause(before.until - world.clock())
        world.minutes(1)
        failed = _backoff(world, "cheap")
        assert (failed.attempt, failed.duration, failed.cls, failed.code) == (
            attempt,
            duration,
            "OutOfStock",
            "Stockout",
        )
        assert failed.until - failed.last_failed == duration
    world.minutes(1)
    assert world.group_verdict("cheap")["code"] == "BackOff"
    assert [bought.group for bought in cloud.purchases] == ["spare"]
    world.scale("web", 2)
    world.pause(10_800.0)
    world.minutes(2)
    assert world.group_memory("cheap").backoff is None


@scenario(grain=10.0)
def test_rejected_resize_names_its_reason_and_the_next_group_is_scaled_up(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    world.seed(
        objects.machine_deployment("base", 1, 1, 1, "1"),
        objects.machine_deployment("cheap", 0, 0, 5, "2"),
        objects.machine_deployment("spare", 0, 0, 5, "8"),
    )
    world.minutes(2)
    world.server.faults.add(
        KubeFault(
            method="PATCH",
            path="machinedeployments/cheap/scale",
            times=-1,
            **refusal(403, "exceeded quota: machines, requested: 1, used: 10, limited: 10"),
        )
    )
    world.seed(objects.deployment("web", replicas=1, cpu="1500m"))

    world.minutes(5)

    assert (world.size("cheap"), world.size("spare")) == (0, 1)
    assert world.pending() == ()
    first, second = world.ended("grow")
    assert (first["group"], first["class"], second["group"]) == (CHEAP, "Unauthorized", SPARE)
    assert "exceeded quota" in first["message"]
    assert 0.0 < second["at"] - first["at"] < 5.0  # in the next pass, not only at the next scan
    assert "exceeded quota" in _backoff(world, CHEAP).message


@scenario(grain=20.0)
def test_instance_that_never_joins_times_out_and_another_group_is_used(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document(options={"maxNodeProvisionTime": "6m"}))
    world.seed(
        objects.machine_deployment("base", 1, 1, 1, "1"),
        objects.machine_deployment("cheap", 0, 0, 5, "2"),
        objects.machine_deployment("spare", 0, 0, 5, "8"),
    )
    world.minutes(2)
    world.cluster.capi.fail_next("default/cheap", "never-joins")
    world.seed(objects.deployment("web", replicas=1, cpu="1500m"))
    world.minutes(1.5)
    request = world.group_memory(CHEAP).request
    assert request is not None
    assert request.expected_at - request.since == 360.0

    world.step(request.expected_at - world.clock())

    # it is upcoming, so nothing else is bought
    assert (world.size("cheap"), world.size("spare")) == (1, 0)
    assert world.group_memory(CHEAP).request == request

    world.minutes(5)

    assert _backoff(world, CHEAP).code == "timeout"
    assert world.group_memory(CHEAP).request is None
    # no further one of the group whose instances do not join
    assert (world.size("cheap"), world.size("spare")) == (0, 1)
    assert world.pending() == ()
    (dead,) = world.ended("discard")  # and the one that did not join is deleted
    assert (dead["group"], dead["state"]) == (CHEAP, "succeeded")
    assert world.machines("cheap") == []


@scenario(grain=20.0)
def test_throttled_call_is_retried_when_the_server_says_and_is_not_a_failure(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(1.5)
    world.server.faults.add(
        KubeFault(
            method="PATCH",
            path="/scale",
            times=2,
            headers={"Retry-After": "20"},
            **refusal(429, "too many requests"),
        )
    )
    world.seed(objects.deployment("web", replicas=5, cpu="1"))

    world.minutes(3)

    (grown,) = world.ended("grow")
    assert (grown["state"], grown["from"], grown["to"]) == ("succeeded", 1, 2)
    assert 40.0 <= grown["seconds"] < 60.0
    assert world.group_memory("MachineDeployment/default/workers").backoff is None
    assert len(world.machines("workers")) == 2
