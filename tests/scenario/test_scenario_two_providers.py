"""A cluster with instances of two providers: workers on Cluster API, bursts on
the emulated Alibaba Cloud.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import NO_STOCK, AlicloudGroup
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.scenario.policies import document

TAGS = "k8s.io/cluster-autoscaler/node-template/"
TAINT = [{"key": "dedicated", "operator": "Equal", "value": "burst", "effect": "NoSchedule"}]
OPTIONS = {
    "expander": ["priority", "least-waste"],
    "scaleDownUnneededTime": "2m",
    "scaleDownDelayAfterAdd": "1m",
}


@dataclass(frozen=True)
class ScenarioTwoProvidersCluster:
    """The world, the account, and the two scaling groups in order of preference."""

    world: LocalWorld
    account: AlicloudAccount
    first: AlicloudGroup
    second: AlicloudGroup

    def reports(self, replicas: int) -> None:
        """Adds pods that only a burst instance can run, one each."""
        self.world.seed(
            objects.deployment(
                "reports",
                replicas=replicas,
                cpu="3",
                nodeSelector={"tier": "burst"},
                tolerations=TAINT,
            )
        )

    def bought(self, group: AlicloudGroup) -> int:
        """Number of instances ever created in the group."""
        return sum(len(each.machines) for each in group.activities if each.grows)

    def burst_nodes(self) -> list[str]:
        return [name for name in self.world.nodes() if name.startswith("i-")]


@pytest.fixture(params=[False, True], ids=["one-process", "restarted"])
def shop(request: pytest.FixtureRequest) -> Iterator[ScenarioTwoProvidersCluster]:
    account = AlicloudAccount()
    with LocalWorld(quick=True, forgetful=request.param, clouds=(account,)) as world:
        machine = {f"{TAGS}label/tier": "burst", f"{TAGS}taint/dedicated": "burst:NoSchedule"}
        first = account.cloud.add_group("first", most=5, machine_tags=machine)
        second = account.cloud.add_group(
            "second", most=5, types=("ecs.g6.xlarge",), machine_tags=machine
        )
        groups = [
            {"provider": "alicloud", "id": group.id, "min": 0, "max": 5, "priority": priority}
            for group, priority in ((first, 20), (second, 10))
        ]
        world.apply_policy(
            document(
                providers={"clusterapi": {}, "alicloud": account.settings()},
                nodeGroups=groups,
                options=OPTIONS,
                scan="20s",
            )
        )
        world.seed(objects.machine_deployment("workers", 1, 1, 5))
        world.step(180)
        yield ScenarioTwoProvidersCluster(world, account, first, second)


def test_group_out_of_stock_is_replaced_by_another_in_the_same_pass(
    shop: ScenarioTwoProvidersCluster,
) -> None:
    shop.account.cloud.spoil(shop.first.id, NO_STOCK, times=100)
    shop.reports(2)

    shop.world.step(300)

    assert (shop.bought(shop.first), shop.bought(shop.second)) == (0, 2)
    assert not shop.world.pending()
    knew = next(
        plan
        for plan in shop.world.plans()
        if any(each["group"] == shop.first.id and each.get("backoff") for each in plan["groups"])
    )
    assert [each["group"] for each in knew["scale_ups"]] == [shop.second.id]
    assert shop.first.desired == 0, "what could not be made is no longer asked for"
    assert len([each for each in shop.first.activities if each.grows]) == 1, (
        "and nobody asked again"
    )


@pytest.mark.parametrize("place", ["grow:called", "grow:polled", "act:stepped", "act:recorded"])
def test_death_around_a_purchase_buys_nothing_twice(
    shop: ScenarioTwoProvidersCluster, place: str
) -> None:
    shop.world.kill_at(place, function="act_alicloud")
    shop.reports(3)

    shop.world.step(600)

    assert (shop.bought(shop.first), shop.first.desired) == (3, 3)
    assert not shop.world.pending()
    assert not shop.world.operations()


def test_unavailable_cloud_does_not_stop_the_second_cloud(
    shop: ScenarioTwoProvidersCluster,
) -> None:
    shop.account.server.faults.next(VendorFault.SERVER_ERROR, times=-1)
    shop.reports(1)
    shop.world.seed(objects.deployment("web", replicas=3, cpu="2"))

    shop.world.step(300)

    assert shop.world.size("workers") > 1
    assert [pod for pod in shop.world.pending() if "/web-" in pod] == []
    gaps = [gap for plan in shop.world.plans() for gap in plan.get("gaps", ())]
    assert any("alicloud" in json.dumps(gap) for gap in gaps)


def test_burst_instances_are_deleted_by_id_and_workers_stay(
    shop: ScenarioTwoProvidersCluster,
) -> None:
    shop.reports(2)
    shop.world.step(300)
    assert len(shop.burst_nodes()) == 2
    workers = [name for name in shop.world.nodes() if not name.startswith("i-")]
    shop.world.kube.delete("deployments", "reports", "default", "apps")

    shop.world.step(900)

    assert shop.burst_nodes() == []
    assert [name for name in shop.world.nodes() if not name.startswith("i-")] == workers
    assert (shop.first.desired, len(shop.first.machines)) == (0, 0)
    assert not any(each.kept for each in shop.account.cloud.released)
