"""Machines that never become nodes and targets without machines are repaired, from the plan to the
vendor's data (docs/reference/node-groups.md "Repairs")."""

from __future__ import annotations

from chalicelib.model.group import InstanceError
from chalicelib.providers.kit.errors import InvalidRequest
from infra.emulators.controllers import objects
from infra.emulators.fake_provider import InMemoryProvider
from tests.builders import node as template
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

STOCK = InstanceError("OutOfStock", "Stockout", "no machine of this type is left")


def _cloud(world: ScenarioWorld) -> InMemoryProvider:
    """One full node; `cheap` wastes less than `spare`."""
    world.cloud = cloud = InMemoryProvider()
    cloud.add_pool("base", size=1, most=1, template_node=template("base", "1"))
    cloud.add_pool("cheap", most=5, template_node=template("cheap", "2"))
    cloud.add_pool("spare", most=5, template_node=template("spare", "4"))
    world.join()
    return cloud


@scenario(grain=60.0)
def test_failed_machine_is_deleted_while_the_next_group_is_scaled_up(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    cloud = _cloud(world)
    cloud.spoil("cheap", STOCK)
    world.seed(objects.deployment("web", replicas=2, cpu="900m"))

    world.minutes(3)

    assert [bought.group for bought in cloud.purchases] == ["cheap", "spare"]
    assert cloud.deleted == ["cheap-1"]
    assert (cloud.pools["cheap"].target, cloud.pools["spare"].target) == (0, 1)
    failed = world.group_memory("cheap").backoff
    assert failed is not None
    assert (failed.cls, failed.code, failed.attempt) == ("OutOfStock", "Stockout", 1)


@scenario(grain=60.0)
def test_scale_up_without_any_result_lowers_the_target_again(world: ScenarioWorld) -> None:
    world.apply_policy(document(options={"maxNodeProvisionTime": "4m"}))
    cloud = _cloud(world)
    cloud.spoil("cheap", "phantom")
    world.seed(objects.deployment("web", replicas=2, cpu="900m"))

    world.minutes(7)

    assert [bought.group for bought in cloud.purchases] == ["cheap", "spare"]
    assert (cloud.pools["cheap"].target, cloud.deleted) == (0, [])
    (lowered,) = world.ended("shrink")
    assert (lowered["group"], lowered["state"]) == ("cheap", "succeeded")
    assert world.group_memory("cheap").request is None


@scenario(grain=60.0)
def test_machine_that_cannot_be_deleted_is_retried_later_and_blocks_nothing(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document(options={"maxNodeProvisionTime": "2m"}))
    cloud = _cloud(world)
    cloud.spoil("cheap", "dead")
    cloud.fail_next("delete_nodes", InvalidRequest("deletion protection is on"))
    world.seed(objects.deployment("web", replicas=2, cpu="900m"))

    world.minutes(4)

    cloud.boot()
    world.join()
    assert [end["class"] for end in world.ended("discard")] == ["InvalidRequest"]
    assert [bought.group for bought in cloud.purchases] == ["cheap", "spare"]
    world.minutes(3)
    assert len(world.ended("discard")) == 1  # not in every pass
    world.minutes(4)
    assert [end["state"] for end in world.ended("discard")] == ["failed", "succeeded"]
    assert cloud.deleted == ["cheap-1"]
    assert world.group_memory("cheap").repair_failures == 0
