"""Hours in which bought nodes get labels, extended resources or lose taints late
or never, as real ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import LearntTemplate, Memory
from chalicelib.model.reason import ReasonCode
from chalicelib.policy.settings.headroom import Headroom
from tests.unit.plan.hour_of_joins import (
    DAY,
    HOUR,
    MINUTE,
    HourOfJoins,
    Json,
    Shape,
    node_model,
    node_object,
    taint,
)
from tests.unit.plan.storage_objects import ZONE, affinity, claim, csi, storage_class, uses, volume

RESOURCES = (
    "smarter-devices/fuse",
    "aliyun/eni",
    "intel.com/sriov",
    "rdma/hca",
    "devices.kubevirt.io/kvm",
)
LABELS = (
    "topology.diskplugin.csi.alibabacloud.com/zone",
    "nvidia.com/gpu.product",
    "feature.node.kubernetes.io/cpu-a",
)
NEVER = 2 * DAY
_POOL = {"pool": "a"}
_BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


def late_resource(name: str, after: float) -> Shape:
    """Nodes whose plugin registers a resource after some time; the first one is old."""

    def shape(node: str, age: float) -> Json:
        return node_object(node, labels=_POOL, extended={name: "4" if age >= after else "0"})

    return shape


def late_label(key: str, after: float) -> Shape:
    """Nodes that get a label after some time."""

    def shape(node: str, age: float) -> Json:
        return node_object(node, labels=_POOL | ({key: "v"} if age >= after else {}))

    return shape


def late_taint(key: str, after: float) -> Shape:
    """Nodes that lose a taint after some time."""

    def shape(node: str, age: float) -> Json:
        return node_object(node, labels=_POOL, taints=[] if age >= after else [taint(key)])

    return shape


def asks(kind: str, name: str) -> dict[str, Any]:
    """What a pod says that needs the part."""
    if kind == "resource":
        return {"extended": {name: "1"}}
    return {"nodeSelector": {name: "v"}} if kind == "label" else {}


SHAPES: Mapping[str, Callable[[str, float], Shape]] = {
    "resource": late_resource,
    "label": late_label,
    "taint": late_taint,
}
PARTS = [
    *(("resource", name) for name in RESOURCES),
    *(("label", key) for key in LABELS),
    ("taint", "node.cloudprovider.kubernetes.io/uninitialized"),
    ("taint", "node.kubernetes.io/memory-pressure"),
    ("taint", "node.cilium.io/agent-not-ready"),
    ("taint", "startup-taint.cluster-autoscaler.kubernetes.io/cni"),
    ("taint", "node.kubernetes.io/network-unavailable"),
    ("resource", "nvidia.com/gpu"),
]


def story_of(kind: str, name: str, after: float, *, size: int = 1) -> HourOfJoins:
    """A group with an old node that is full, whose new nodes get a part late, and three
    pods that need two nodes."""
    story = HourOfJoins()

    def shape(node: str, age: float) -> Json:
        return SHAPES[kind](name, after)(
            node, age if int(node.rpartition("-")[2]) > size else NEVER
        )

    story.group("g", shape, size=size)
    for number in range(size):
        story.deploy("busy", 4, on=f"g-{number + 1}")
    story.deploy("web", 3, cpu="1500m", **asks(kind, name))
    return story


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_part_that_comes_late_is_waited_for_on_nodes_that_have_joined(kind: str, name: str) -> None:
    story = story_of(kind, name, 8 * MINUTE)

    story.play(HOUR, every=MINUTE)

    assert story.bought_nodes() == 2
    assert story.pending() == []


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_part_that_never_comes_is_bought_for_once_in_an_hour_and_said(kind: str, name: str) -> None:
    story = story_of(kind, name, NEVER)

    story.play(HOUR, every=MINUTE)

    assert story.bought_nodes() == 2
    notes = [
        note
        for plan in story.plans
        for note in plan.notes
        if note.code is ReasonCode.NEW_NODES_LACK
    ]
    assert notes[0].params["group"] == "g"
    assert notes[0].params["what"] == f"{kind} {name}"


def test_device_that_never_comes_is_bought_ever_more_rarely_after_its_nodes_went() -> None:
    story = HourOfJoins()
    promised = node_object("t", extended={"nvidia.com/gpu": "1"})
    story.group("gpu", lambda name, _: node_object(name), template=promised)
    story.group("base", size=10, max=10)
    for number in range(10):
        story.deploy("busy", 4, on=f"base-{number + 1}")
    story.deploy("web", 1, extended={"nvidia.com/gpu": "1"})

    story.play(DAY, every=5 * MINUTE)

    assert story.size("gpu") == 0
    assert story.bought_nodes() <= 7


def test_device_that_the_vendor_announces_and_no_node_gets_is_bought_for_once() -> None:
    story = story_of("resource", "nvidia.com/gpu", NEVER)
    promised = node_model(node_object("t", labels=_POOL, extended={"nvidia.com/gpu": "4"}))
    story.groups["g"].template = promised

    story.play(HOUR, every=MINUTE)

    assert story.bought_nodes() == 2


def test_plugin_that_restarts_on_an_older_node_is_no_reason() -> None:
    story = HourOfJoins()

    def shape(node: str, age: float) -> Json:
        gone = node == "g-2" and 21 * MINUTE <= age < 25 * MINUTE
        return node_object(node, labels=_POOL, extended={"rdma/hca": "0" if gone else "4"})

    story.group("g", shape, size=1)
    story.deploy("web", 2, cpu="3", extended={"rdma/hca": "1"})
    story.play(30 * MINUTE, every=MINUTE)

    assert story.bought_nodes() == 1
    assert not any(group.undelivered for group in story.memory.groups.values())


def test_part_that_comes_after_the_startup_time_is_not_bought_for_again() -> None:
    story = story_of("resource", "rdma/hca", 20 * MINUTE)

    story.play(HOUR, every=MINUTE)

    assert (story.bought_nodes(), story.pending()) == (2, [])
    assert not any(part.undelivered for part in story.memory.groups.values())


def test_longer_startup_time_waits_longer() -> None:
    story = story_of("label", "nvidia.com/gpu.product", 40 * MINUTE)
    story.groups["g"].more = {"options": GroupOptions(max_node_startup_time=HOUR)}

    story.play(HOUR, every=MINUTE)

    assert (story.bought_nodes(), story.pending()) == (2, [])


@pytest.mark.parametrize("template", [True, False], ids=["vendor-states-it", "learnt-alone"])
def test_group_that_was_at_zero_is_bought_once_for_a_late_part(*, template: bool) -> None:
    story = HourOfJoins()
    shape = late_resource("rdma/hca", 8 * MINUTE)
    story.group("g", shape, template=shape("t", NEVER) if template else None)
    if not template:
        known = node_model(shape("g-0", NEVER))
        story.memory = Memory(templates={"g": LearntTemplate(known, story.now - MINUTE)})
    story.deploy("web", 3, cpu="1500m", extended={"rdma/hca": "1"})

    story.play(HOUR)

    assert (story.bought_nodes(), story.pending()) == (2, [])


def test_label_that_the_vendor_promises_wrongly_is_bought_for_once() -> None:
    story = HourOfJoins()
    story.group("g", template=node_object("t", labels={"disk": "fast"}))
    story.deploy("web", 3, cpu="1500m", nodeSelector={"disk": "fast"})

    story.play(2 * HOUR, every=MINUTE)

    assert story.bought_nodes() == 2
    assert story.size("g") == 0, "nobody uses them"


def test_part_that_never_comes_is_tried_ever_more_rarely() -> None:
    story = story_of("resource", "rdma/hca", NEVER)

    story.play(DAY, every=5 * MINUTE)

    times = [round((at - story.bought[0][0]) / HOUR) for at, _, _ in story.bought]
    assert times == [0, 1, 4, 8, 16]
    assert {count for _, _, count in story.bought} == {2}
    assert story.size("g") <= 3, "what is of no use goes"


def test_nodes_with_all_late_parts_serve_picky_and_plain_pods_from_one_room() -> None:
    story = story_of("label", "nvidia.com/gpu.product", 10 * MINUTE)
    story.deploy("plain", 4, cpu="1")

    story.play(HOUR)

    assert story.bought_nodes() == 3, "8.5 cores, 4 a node"
    assert story.pending() == []


def test_burst_that_goes_on_while_nodes_are_unfinished_buys_what_is_needed() -> None:
    story = story_of("resource", "intel.com/sriov", 8 * MINUTE)
    for _ in range(6):
        story.play(2 * MINUTE)
        story.deploy("more", 2, cpu="1500m", extended={"intel.com/sriov": "1"})
    story.play(HOUR)

    assert story.bought_nodes() <= 8 + 1, "15 pods, two a node"
    assert story.pending() == []


@pytest.mark.parametrize("zones", ["b", "ab"])
def test_volume_of_a_drivers_zone_waits_for_the_label_of_a_young_node(zones: str) -> None:
    """New nodes come in zone b, where the volume is; their driver says so after ten minutes."""
    key = "topology.diskplugin.csi.alibabacloud.com/zone"

    def shape(node: str, age: float) -> Json:
        number = int(node.rpartition("-")[2])
        zone = zones[number - 1] if number <= len(zones) else "b"
        has_label = number <= len(zones) or age >= 10 * MINUTE
        return node_object(node, labels={ZONE: zone, **({key: zone} if has_label else {})})

    story = HourOfJoins(
        volume("pv", **affinity(key, "b"), **csi("d-1")), claim("data", "pv", meta=_BOUND)
    )
    story.objects.append(storage_class())
    story.group("g", shape, size=len(zones))
    for number in range(len(zones)):
        story.deploy("busy", 4, on=f"g-{number + 1}")
    story.deploy("db", 1, volumes=[{"name": "data", **uses("data")}])

    story.play(HOUR, every=MINUTE)

    assert (story.bought_nodes(), story.pending()) == (1, [])


def test_headroom_on_nodes_that_are_not_initialised_yet_is_bought_once() -> None:
    story = story_of("taint", "node.cloudprovider.kubernetes.io/uninitialized", 10 * MINUTE)
    spare = Headroom("spare", pods=4, cpu=1000, memory=2**30)
    story.policy = msgspec.structs.replace(story.policy, headroom=(spare,))
    story.delete_pods(*[name for name in story.pods if name.startswith("web")])

    story.play(HOUR, every=MINUTE)

    assert story.bought_nodes() == 1
