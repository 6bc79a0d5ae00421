"""Topology labels of CSI drivers on templates that are no copy of a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import LearntTemplate, Memory
from chalicelib.model.node import Node
from tests.builders import NOW, cluster, growth, node
from tests.unit.plan.hour_of_joins import HOUR, HourOfJoins, Json, node_object, taint
from tests.unit.plan.storage_objects import affinity, claim, storage_class, volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
ALIBABA = "topology.diskplugin.csi.alibabacloud.com/zone"
MOUNT = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
KNOWN = [
    ("diskplugin.csi.alibabacloud.com", ALIBABA),
    ("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    ("csi.vsphere.vmware.com", "topology.csi.vmware.com/k8s-zone"),
    ("csi.vsphere.vmware.com", "topology.csi.vmware.com/k8s-region"),
    ("ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    ("evs.csi.huaweicloud.com", "topology.evs.csi.huaweicloud.com/zone"),
    ("csi.exoscale.com", "topology.csi.exoscale.com/zone"),
    ("csi.hetzner.cloud", "csi.hetzner.cloud/location"),
    ("pd.csi.storage.gke.io", "topology.gke.io/zone"),
    ("csi.acme.example", "topology.csi.acme.example/zone"),
]


def in_zone(zone: str, key: str = "", value: str = "") -> Any:
    """Nodes of a zone, with a label of a driver."""
    labels = {ZONE: zone, REGION: "r", **({key: value or zone} if key else {})}
    return lambda name, age: node_object(name, labels=labels)


def csi_nodes(driver: str, key: str) -> Any:
    """The CSINode of each node that has the key."""
    return lambda nodes: [
        {
            "kind": "CSINode",
            "metadata": {"name": item["metadata"]["name"]},
            "spec": {"drivers": [{"name": driver, "nodeID": "x", "topologyKeys": [key]}]},
        }
        for item in nodes
        if key in item["metadata"]["labels"]
    ]


def bound_claim(driver: str, key: str, value: str) -> list[Json]:
    """The claim `data`, bound to a volume of a driver."""
    source = {"csi": {"driver": driver, "volumeHandle": "d-1"}}
    return [
        volume("pv", **affinity(key, value), **source),
        claim("data", "pv", meta=BOUND),
        storage_class("fast", driver),
    ]


def new_claim(driver: str, key: str, value: str) -> list[Json]:
    """The claim `data`, whose volume will be made where its class allows it."""
    topologies = [{"matchLabelExpressions": [{"key": key, "values": [value]}]}]
    return [claim("data"), storage_class("fast", driver, allowedTopologies=topologies)]


@pytest.mark.parametrize("claimed", [bound_claim, new_claim])
@pytest.mark.parametrize(("driver", "key"), KNOWN)
@pytest.mark.parametrize("others", [False, True])
def test_volume_that_names_a_zone_by_its_drivers_key_gets_a_node_there(
    claimed: Any, driver: str, key: str, others: bool
) -> None:
    of_region = key.endswith(("region", "location"))
    story = HourOfJoins(*claimed(driver, key, "r" if of_region else "b"))
    for zone in "abc":
        labels = {ZONE: zone, REGION: "r" if zone == "b" else f"r-{zone}"}
        joined = {**labels, key: labels[REGION] if of_region else zone}
        size = 1 if others and zone != "b" else 0
        shape = lambda name, age, joined=joined: node_object(name, labels=joined)  # noqa: E731
        story.group(f"g-{zone}", shape, size=size, template=node_object("t", labels=labels))
    story.around = csi_nodes(driver, key)
    story.deploy("db", 1, volumes=MOUNT)

    story.play(HOUR)

    assert story.pending() == []
    assert (story.bought_nodes("g-b"), story.bought_nodes()) == (1, 1)


def test_volume_of_a_zone_without_a_group_buys_nothing() -> None:
    story = HourOfJoins(*bound_claim("driver.csi.example", ALIBABA, "z"))
    for zone in "ab":
        story.group(
            f"g-{zone}",
            in_zone(zone, ALIBABA),
            size=1,
            template=node_object("t", labels={ZONE: zone}),
        )
    story.around = csi_nodes("driver.csi.example", ALIBABA)
    story.deploy("db", 1, volumes=MOUNT)
    story.play(600.0)
    assert story.bought_nodes() == 0


@pytest.mark.parametrize("driver", ["diskplugin.csi.alibabacloud.com", "other.csi.example"])
def test_key_that_disagrees_with_the_zone_on_a_node_is_given_to_no_template(driver: str) -> None:
    story = HourOfJoins(*bound_claim(driver, ALIBABA, "b"))
    story.group("g-a", in_zone("a", ALIBABA), size=1)
    story.group("g-x", in_zone("x", ALIBABA, "another"), size=1)
    story.group("g-b", in_zone("b"), template=node_object("t", labels={ZONE: "b"}))
    story.around = csi_nodes(driver, ALIBABA)
    story.deploy("db", 1, volumes=MOUNT)
    story.play(600.0)
    assert story.bought_nodes() == 0


def learnt(labels: dict[str, str]) -> LearntTemplate:
    """A template of before the driver was installed."""
    bare: Node = msgspec.structs.replace(
        node("", "4"), labels=labels, uid="", provider_id="", conditions=()
    )
    return LearntTemplate(bare, NOW - 3600)


def test_learnt_template_of_before_the_driver_gets_its_key() -> None:
    build = cluster().group("g", target=0)
    build.node("a1", labels={ZONE: "a", ALIBABA: "a"}, group="other").group("other", max=1)
    build.pending(1, "1", node_selector={ALIBABA: "b"})
    assert growth(build.plan(Memory(templates={"g": learnt({ZONE: "b"})}))) == {"g": (1, 1)}
    assert growth(build.plan(Memory(templates={"g": learnt({})}))) == {}


def test_group_on_whose_nodes_the_driver_does_not_run_is_not_bought_from_again() -> None:
    key, driver = ALIBABA, "diskplugin.csi.alibabacloud.com"
    story = HourOfJoins(*bound_claim(driver, key, "b"))
    story.group("g-a", in_zone("a", key), size=1)
    template = node_object("t", labels={ZONE: "b"}, taints=[taint("gpu")])
    shape = lambda name, age: node_object(name, labels={ZONE: "b"}, taints=[taint("gpu")])  # noqa: E731
    story.group("g-b", shape, template=template)
    story.around = csi_nodes(driver, key)
    story.deploy("busy", 4, on="g-a-1")
    story.deploy("db", 1, volumes=MOUNT, tolerations=[{"operator": "Exists"}])

    story.play(2 * HOUR)

    assert story.bought_nodes("g-b") == 1, "its node shows that the driver does not run there"
    assert story.size("g-b") == 0, "its idle node went"


def test_quiet_passes_do_not_change_learnt_templates() -> None:
    story = HourOfJoins()
    story.group("g-a", in_zone("a", ALIBABA), size=2)
    story.group("g-b", in_zone("b"), size=1, template=node_object("t", labels={ZONE: "b"}))
    story.around = csi_nodes("driver.csi.example", ALIBABA)
    story.run_pass()
    before = story.memory.templates
    assert before["g-b"].lacking_labels == (ALIBABA,)
    story.play(600.0)
    assert all(story.memory.templates[name] is row for name, row in before.items())


@pytest.mark.parametrize("zone", ["", "a"])
def test_group_in_several_zones_gets_the_key_of_a_known_driver_in_each_of_them(zone: str) -> None:
    driver, key = KNOWN[0]
    story = HourOfJoins(*bound_claim(driver, key, "b"))
    template = node_object("t", labels={ZONE: zone} if zone else {})
    story.group("g", in_zone("b", key), template=template, zones=("a", "b"))
    story.around = csi_nodes(driver, key)
    story.deploy("db", 1, volumes=MOUNT)
    story.play(HOUR)
    assert (story.pending(), story.bought_nodes()) == ([], 1)
