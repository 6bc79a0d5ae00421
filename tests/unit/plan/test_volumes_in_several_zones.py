"""Groups in several zones whose pods need their zone by a volume, or are spread over
zones, played for an hour.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.builders import ZONE
from tests.unit.plan.hour_of_joins import HOUR, HourOfJoins, Json, Shape, node_object
from tests.unit.plan.test_groups_in_several_zones import first_purchase, promised, spread

CSI_ZONE = "topology.diskplugin.csi.alibabacloud.com/zone"
EVERY = 30.0
OLD = {"g-1": "a", "g-2": "b"}

Choice = Callable[[int], str]
"""Number of a new node, from 0 -> the zone in which the vendor makes it."""


def always(zone: str) -> Choice:
    """Return a vendor that makes all nodes in one zone."""
    return lambda number: zone


def in_turn(zones: str) -> Choice:
    """Return a vendor that takes zones in turn."""
    return lambda number: zones[number % len(zones)]


def by_chance(seed: int, zones: str = "ab") -> Choice:
    """Return a vendor that takes a zone by chance."""
    chance = random.Random(seed)
    chosen = [chance.choice(zones) for _ in range(200)]
    return lambda number: chosen[number]


def made_by(choice: Choice, old: Mapping[str, str] = OLD) -> Shape:
    """Return nodes with both labels of their zone. old: zones of the nodes that were there
    before."""

    def shape(name: str, age: float) -> Json:
        number = int(name.rpartition("-")[2]) - 1 - len(old)
        zone = old.get(name) or choice(number)
        return node_object(name, labels={ZONE: zone, CSI_ZONE: zone})

    return shape


def bound_disk(name: str, key: str, zone: str) -> list[Json]:
    """Return a claim and its volume, which needs a zone."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}]
    volume = {
        "kind": "PersistentVolume",
        "apiVersion": "v1",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disk",
            "claimRef": {"namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": f"d-{name}"},
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disk",
            "volumeName": f"pv-{name}",
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Bound"},
    }
    return [volume, claim]


def unbound_disk(name: str, key: str, zone: str) -> list[Json]:
    """Return a claim whose volume is made once its pod has a node; its class allows one zone."""
    terms = [{"matchLabelExpressions": [{"key": key, "values": [zone]}]}]
    storage_class = {
        "kind": "StorageClass",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": f"disk-{zone}"},
        "provisioner": "diskplugin.csi.alibabacloud.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": terms,
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"disk-{zone}",
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Pending"},
    }
    return [storage_class, claim]


Disk = Callable[[str, str, str], list[Json]]


def full_group(choice: Choice, **more: Any) -> HourOfJoins:
    """Return a cluster with a group in zones a and b, whose nodes are full."""
    story = HourOfJoins()
    story.group("g", made_by(choice), size=len(OLD), **more)
    for name in OLD:
        story.deploy("old", 1, "4", "1Gi", on=name)
    return story


def deploy_with_disks(story: HourOfJoins, disk: Disk, key: str, zones: str, cpu: str = "4") -> None:
    """Add a pod with a volume for every letter of zones."""
    for number, zone in enumerate(zones):
        claim = f"data-{number}"
        known = {(item["kind"], item["metadata"]["name"]) for item in story.objects}
        made = disk(claim, key, zone)
        story.objects += [
            item for item in made if (item["kind"], item["metadata"]["name"]) not in known
        ]
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        story.deploy(f"db-{number}", 1, cpu, volumes=[volume])


KINDS = [
    pytest.param(bound_disk, ZONE, id="bound-zone"),
    pytest.param(unbound_disk, CSI_ZONE, id="unbound-driver"),
]


@pytest.mark.parametrize("disk", [bound_disk, unbound_disk], ids=["bound", "unbound"])
@pytest.mark.parametrize("key", [ZONE, CSI_ZONE], ids=["zone", "driver"])
def test_volume_whose_zone_never_comes_costs_three_nodes_in_an_hour(disk: Disk, key: str) -> None:
    story = full_group(always("a"))
    deploy_with_disks(story, disk, key, "bb")

    assert promised(first_purchase(story)) == {False}
    story.play(HOUR, every=EVERY)

    assert 1 <= story.bought_nodes() <= 3
    assert story.size("g") <= len(OLD) + 1
    assert len(story.pending()) == 2


@pytest.mark.parametrize(("disk", "key"), KINDS)
@pytest.mark.parametrize(("zones", "seed"), [("b", 0), ("bbb", 3), ("abab", 1), ("bbba", 4)])
def test_volumes_of_zones_that_come_by_chance_cost_three_nodes_more(
    disk: Disk, key: str, zones: str, seed: int
) -> None:
    story = full_group(by_chance(seed))
    deploy_with_disks(story, disk, key, zones)

    story.play(HOUR, every=EVERY)

    served = len(zones) - len(story.pending())
    assert story.bought_nodes() <= served + 3
    assert story.size("g") <= len(OLD) + served + 1
    assert served == len(zones) or story.bought_nodes() == served + 3


def test_hits_between_misses_do_not_lift_the_limit_of_an_hour() -> None:
    story = full_group(in_turn("ab"))
    deploy_with_disks(story, bound_disk, ZONE, "bbbbbb")

    story.play(HOUR, every=EVERY)

    served = 6 - len(story.pending())
    assert served
    assert story.bought_nodes() <= served + 3
    story.play(3 * HOUR, every=EVERY)
    assert not story.pending()


@pytest.mark.parametrize("size", [2, 0], ids=["with nodes", "empty"])
def test_small_pods_with_volumes_share_the_node_that_came_right(size: int) -> None:
    story = full_group(by_chance(1)) if size else HourOfJoins()
    if not size:
        template = node_object("template")
        story.group("g", made_by(by_chance(1), {}), template=template, zones=("a", "b"))
    deploy_with_disks(story, bound_disk, CSI_ZONE, "bbbb", "1")

    story.play(HOUR, every=EVERY)

    assert not story.pending()
    assert story.bought_nodes() <= 1 + 3
    assert story.size("g") <= size + 1 + 1


@pytest.mark.parametrize(
    "choice", [by_chance(1), by_chance(2), by_chance(3), always("a")], ids=["1", "2", "3", "a"]
)
def test_spread_pods_get_all_nodes_at_once_and_three_more_in_an_hour(choice: Choice) -> None:
    story = full_group(choice)
    story.deploy("web", 4, "4", **spread("web"))

    plan = first_purchase(story)
    assert story.bought_nodes() == 4
    assert promised(plan) == {False}
    story.play(HOUR, every=EVERY)

    served = 4 - len(story.pending())
    assert story.bought_nodes() <= 4 + 3
    assert story.size("g") <= len(OLD) + served + 1
