"""Unreadable objects of the cluster or of a vendor do not affect other objects in a pass."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import AlicloudGroup
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from tests.property import corrupted_objects
from tests.scenario.policies import document

_BEFORE = 180.0
_TAGS = "k8s.io/cluster-autoscaler/node-template/"
_TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "burst", "effect": "NoSchedule"}


@dataclass
class Intruder:
    """Edits answers (infra/emulators/kube/in_process_transport.py): each list of the API server
    gets one additional corrupted object. met: the kinds whose lists were requested."""

    met: set[str] = field(default_factory=set)

    def __call__(self, body: bytes) -> bytes:
        found = json.loads(body) if body.startswith(b"{") else {}
        kind = str(found.get("kind", "")).removesuffix("List")
        if "items" not in found or kind not in corrupted_objects.GOOD:
            return body
        self.met.add(kind)
        made = corrupted_objects.good(kind)
        for part in sorted(made.keys() - {"kind", "apiVersion", "metadata"}):
            made[part] = random.Random(kind).choice(corrupted_objects.HOSTILE[:4])
        made["metadata"] |= {"labels": 7, "annotations": ["a"], "ownerReferences": -1}
        return json.dumps({**found, "items": [made, *(found["items"] or ())]}).encode()


@dataclass(frozen=True)
class ScenarioCorruptedCluster:
    """The world, the account, and its two scaling groups, the preferred one first."""

    world: LocalWorld
    account: AlicloudAccount
    first: AlicloudGroup
    second: AlicloudGroup

    def served(self) -> tuple[int, int]:
        """Adds pods that need a worker and an instance of the account; returns the
        instances of both groups."""
        self.world.seed(objects.deployment("web", replicas=4, cpu="2"))
        self.world.seed(
            objects.deployment(
                "reports",
                replicas=2,
                cpu="3",
                nodeSelector={"tier": "burst"},
                tolerations=[_TOLERATION],
            )
        )
        self.world.step(600.0)
        return self.first.total, self.second.total


@pytest.fixture
def shop() -> Iterator[ScenarioCorruptedCluster]:
    account = AlicloudAccount()
    with LocalWorld(quick=True, clouds=(account,)) as world:
        tags = {f"{_TAGS}label/tier": "burst", f"{_TAGS}taint/dedicated": "burst:NoSchedule"}
        first = account.cloud.add_group("first", most=5, machine_tags=tags)
        second = account.cloud.add_group(
            "second", most=5, types=("ecs.g6.xlarge",), machine_tags=tags
        )
        groups = [
            {"provider": "alicloud", "id": group.id, "min": 0, "max": 5, "priority": priority}
            for group, priority in ((first, 20), (second, 10))
        ]
        world.apply_policy(
            document(
                providers={"clusterapi": {}, "alicloud": account.settings()},
                nodeGroups=groups,
                options={"expander": ["priority"]},
                scan="20s",
            )
        )
        world.seed(objects.machine_deployment("workers", 1, 1, 5))
        world.step(_BEFORE)
        yield ScenarioCorruptedCluster(world, account, first, second)


def test_corrupted_object_of_every_kind_blocks_no_other_pod(shop: ScenarioCorruptedCluster) -> None:
    intruder = Intruder()
    shop.world.line.edit = intruder
    assert shop.served() == (2, 0)
    assert {
        "Node",
        "Pod",
        "DaemonSet",
        "PodDisruptionBudget",
        "PersistentVolumeClaim",
    } <= intruder.met
    assert not shop.world.pending()
    assert shop.world.size("workers") > 1


@pytest.mark.parametrize(
    "corrupted",
    [{"MinSize": 10**40}, {"DesiredCapacity": -1}, {"Tags": 7}, {"ActiveCapacity": "x"}],
)
def test_corrupted_scaling_group_leaves_the_other_group_usable(
    shop: ScenarioCorruptedCluster, corrupted: dict[str, object]
) -> None:
    def edit(body: bytes) -> bytes:
        found = json.loads(body)
        for each in found.get("ScalingGroups", ()):
            each.update(corrupted if each["ScalingGroupId"] == shop.first.id else {})
        return json.dumps(found).encode()

    shop.account.server.edit = edit
    assert shop.served() == (0, 2)
    assert not shop.world.pending()
    assert shop.world.size("workers") > 1
