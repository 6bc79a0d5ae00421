"""Labels of one node: which they are, and that every new node has a value of its own for them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import LearntTemplate, Memory
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.storage import CSINode, Storage
from chalicelib.plan.state.node_labels import NodeLabels
from tests.builders import NOW, OLD, cluster, even, growth, having, near, node, words
from tests.builders import coming as in_flight
from tests.unit.plan.hour_of_joins import HOUR, HourOfJoins, Json, node_model, node_object
from tests.unit.plan.storage_objects import affinity, claim, volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
PLACE = "topology.driver.example/place"
TOPOLVM = "topology.topolvm.io/node"
HARMLESS = {
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/instance-type": "m5.large",
}
EBS_KEYS = ("kubernetes.io/os", "topology.ebs.csi.aws.com/zone", ZONE)


def csi_nodes(*names: str, keys: tuple[str, ...] = (TOPOLVM,)) -> Storage:
    """A driver with these topology keys on each of these nodes."""
    return Storage(csi_nodes=tuple(CSINode(name, topology={"driver": keys}) for name in names))


def labels_of(*nodes: Node, keys: tuple[str, ...] = ()) -> NodeLabels:
    storage = csi_nodes(*(n.name for n in nodes), keys=keys) if keys else Storage()
    return NodeLabels.of(Snapshot("test", NOW, nodes=nodes, storage=storage))


def csi_node(name: str, *keys: str) -> Json:
    """A CSINode as its kubelet writes it."""
    drivers = [{"name": "driver", "nodeID": name, "topologyKeys": list(keys)}]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}


@pytest.mark.parametrize(
    ("provider_id", "value"),
    [
        pytest.param("", "n1.example.com", id="name"),
        pytest.param("", "n1", id="host-name"),
        pytest.param("aws:///eu-1a/i-0abc", "i-0abc", id="instance-of-aws"),
        pytest.param("cn-hangzhou.i-bp1abcdef", "i-bp1abcdef", id="instance-of-alibaba"),
        pytest.param(
            "alicloud://cn-hangzhou.i-bp1abcdef",
            "i-bp1abcdef",
            id="instance-of-alibaba-with-scheme",
        ),
        pytest.param("cherryservers://412345", "412345", id="instance-with-a-number"),
        pytest.param("openstack:///5C2A-11", "5c2a-11", id="other-case"),
    ],
)
def test_label_with_an_identity_of_its_node_is_of_one_node(provider_id: str, value: str) -> None:
    one = node(
        "n1.example.com", labels={HOSTNAME_LABEL: "n1", "home/made": value}, provider_id=provider_id
    )
    assert labels_of(one).is_own(one, "home/made")


@pytest.mark.parametrize("field", ["address", "machineID", "systemUUID"])
def test_label_with_an_address_or_machine_of_its_node_is_of_one_node(field: str) -> None:
    item = node_object("n1", labels={"home/made": "4c4c4544-0042"})
    if field == "address":
        item["status"]["addresses"] = [{"type": "InternalIP", "address": "4c4c4544-0042"}]
    else:
        item["status"]["nodeInfo"] = {field: "4C4C4544-0042"}
    one = node_model(item)
    assert labels_of(one).is_own(one, "home/made")
    other = node_model(node_object("n1", labels={"home/made": "4c4c4544-0042"}))
    assert not labels_of(other).is_own(other, "home/made")


def test_value_that_another_node_has_too_is_of_no_single_node() -> None:
    nodes = (node("gpu", labels={"pool": "gpu"}), node("gpu-2", labels={"pool": "gpu"}))
    assert not labels_of(*nodes).is_own(nodes[0], "pool")


def test_short_number_of_an_instance_identifies_no_node() -> None:
    one = node(
        "n1",
        labels={"slot": "0"},
        provider_id="azure:///subscriptions/virtualMachineScaleSets/pool/0",
    )
    assert not labels_of(one).is_own(one, "slot")


def test_topology_key_without_a_shared_value_is_of_one_node() -> None:
    nodes = [node(f"n{at}", labels={TOPOLVM: f"disk-{at}"}) for at in range(3)]
    labels = labels_of(*nodes, keys=(TOPOLVM,))
    assert labels.per_node_keys == {TOPOLVM}
    assert all(labels.is_own(one, TOPOLVM) for one in nodes)
    shared = [*nodes, node("n3", labels={TOPOLVM: "disk-0"})]
    assert labels_of(*shared, keys=(TOPOLVM,)).per_node_keys == set()
    assert labels_of(*nodes).per_node_keys == set(), "no driver lists it"


def test_topology_key_that_one_node_carries_counts_but_is_uncertain() -> None:
    nodes = node("n1", labels={TOPOLVM: "disk-1"}), node("n2")
    labels = labels_of(*nodes, keys=(TOPOLVM,))
    assert not labels.is_own(nodes[0], TOPOLVM)
    assert labels.uncertain_keys == {TOPOLVM}
    named = node("n1", labels={TOPOLVM: "n1"})
    assert labels_of(named, keys=(TOPOLVM,)).uncertain_keys == set()


@pytest.mark.parametrize(
    "key",
    [
        *HARMLESS, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type", ZONE, REGION, "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ],
)  # fmt: skip
def test_well_known_label_is_never_of_one_node(key: str) -> None:
    nodes = [node(f"n{at}", labels={key: f"n{at}"}) for at in range(3)]
    labels = labels_of(*nodes, keys=(key,))
    assert not any(labels.is_own(one, key) for one in nodes)
    assert key not in labels.per_node_keys | labels.uncertain_keys


@pytest.mark.parametrize("place", [ZONE, REGION, "failure-domain.beta.kubernetes.io/zone"])
@pytest.mark.parametrize("count", [1, 3])
def test_key_with_the_zone_or_region_as_its_value_is_never_of_one_node(
    place: str, count: int
) -> None:
    key = PLACE
    nodes = [
        node(f"n{at}", labels={place: f"place-{at}", key: f"place-{at}"}) for at in range(count)
    ]
    labels = labels_of(*nodes, keys=(key,))
    assert not any(labels.is_own(one, key) for one in nodes)
    assert labels.per_node_keys | labels.uncertain_keys == set()


def test_zone_of_a_driver_is_never_of_one_node_where_nodes_lack_zones() -> None:
    key = "topology.csi.vmware.com/k8s-zone"
    nodes = [node(f"n{at}", labels={key: f"cluster-{at}"}) for at in range(2)]
    assert labels_of(*nodes, keys=(key,)).per_node_keys == set()


# -- the whole planner


def bound_claim(key: str, value: str) -> list[Json]:
    """The claim `data`, bound to a volume that nodes with this label reach."""
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    return [volume("pv", **affinity(key, value)), claim("data", "pv", meta=bound)]


MOUNT = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def with_own_label(key: str, **more: str) -> Any:
    return lambda name, age: node_object(name, labels={key: name, **more})


@pytest.mark.parametrize(
    "key", [TOPOLVM, "openebs.io/nodename", "topology.hostpath.csi/node", "nodename"]
)
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("empties", [False, True])
def test_pod_with_a_volume_of_a_full_or_lost_node_gets_no_new_node(
    key: str, listed: bool, empties: bool
) -> None:
    story = HourOfJoins(*bound_claim(key, "g-1"))
    story.group("g", with_own_label(key), size=1)
    if listed:
        story.around = lambda nodes: [csi_node(item["metadata"]["name"], key) for item in nodes]
    full = story.deploy("full", 4, on="g-1")
    story.run_pass()
    story.now += 60.0
    if empties:
        story.delete_pods(*full)
        story.lose_machine("g", "g-1")
    story.deploy("db", 1, volumes=MOUNT)

    story.play(HOUR)

    assert story.bought_nodes() == 0


@pytest.mark.parametrize("key", [TOPOLVM, "nodename", "topology.driver.example/disk"])
@pytest.mark.parametrize("apart", [True, False])
def test_pods_apart_by_a_label_of_one_node_get_a_node_each(key: str, apart: bool) -> None:
    build = cluster()
    for at in range(2):
        build.node(
            f"n{at}",
            "4",
            labels={key: f"n{at}" if key != "topology.driver.example/disk" else f"d{at}"},
            group="g",
        )
    build.group("g")
    build.more["storage"] = csi_nodes("n0", "n1", keys=(key,))
    rule: dict[str, Any] = (
        {"pod_anti_affinity": (near(key, having(app="web")),)}
        if apart
        else {"spread": (even(key, having(app="web")),)}
    )
    for at in range(2):
        build.running(f"n{at}", 1, "3500m", owner="web", **rule)
    build.pending(3, "3500m", owner="web", **rule)
    assert growth(build.plan()) == {"g": (3, 3)}


@pytest.mark.parametrize(
    "keys", [EBS_KEYS, (*EBS_KEYS, "topology.diskplugin.csi.alibabacloud.com/zone")]
)
def test_groups_of_one_node_each_grow_for_pods_that_name_zone_and_system(
    keys: tuple[str, ...],
) -> None:
    build = cluster()
    for zone in ("a", "b", "c"):
        places = {key: zone for key in keys if key.endswith("zone")}
        build.node(f"n-{zone}", "2", labels={**HARMLESS, **places}, group=f"g-{zone}")
        build.group(f"g-{zone}")
        build.running(f"n-{zone}", 1, "2")
    build.more["storage"] = csi_nodes("n-a", "n-b", "n-c", keys=keys)
    zoned = {key: "b" for key in keys if key.endswith("zone")}
    for key in zoned:
        build.pending(1, "2", node_selector={key: "b"}, owner=key)
    assert growth(build.plan()) == {"g-b": (len(zoned), len(zoned))}
    build.pods = [pod for pod in build.pods if pod.node]
    build.pending(1, "2", node_selector={"kubernetes.io/os": "linux", **zoned}, owner="all")
    assert growth(build.plan()) == {"g-b": (1, 1)}


def test_any_other_label_of_a_node_counts_for_new_nodes() -> None:
    build = cluster().node("n1", labels={"rack": "r7"}, group="g").group("g").running("n1", 1, "1")
    build.pending(1, "1", node_selector={"rack": "r7"})
    assert growth(build.plan()) == {"g": (1, 1)}


def test_pod_that_only_requires_a_label_of_one_node_gets_a_node() -> None:
    build = cluster().node("n1", labels={TOPOLVM: "n1"}, group="g").group("g").running("n1", 1, "1")
    build.pending(1, "1", node_selector={TOPOLVM: "n1"}, owner="bound")
    assert growth(build.plan()) == {}
    assert "g" in words(build.plan())


def test_learnt_template_keeps_the_keys_of_labels_of_one_node_only() -> None:
    build = (
        cluster()
        .node("n1", labels={TOPOLVM: "n1", "rack": "r7"}, group="g", ready_since=OLD)
        .group("g")
    )
    learnt = build.decide()[1].templates["g"]
    assert learnt.node.labels == {"rack": "r7"}
    assert learnt.own_labels == (TOPOLVM,)
    gone = cluster().group("g", target=0).pending(1, "1", node_selector={TOPOLVM: "n1"})
    assert growth(gone.plan(Memory(templates={"g": learnt}))) == {}


@pytest.mark.parametrize(
    "key", [TOPOLVM, "openebs.io/nodename", "topology.hostpath.csi/node", "nodename", "disk"]
)
def test_row_of_an_earlier_release_is_cured_of_labels_of_one_node(key: str) -> None:
    old = node("", labels={HOSTNAME_LABEL: "", key: "gone-1", "rack": "r7"})
    labels = {key: "gone-1", "rack": "r7"}
    row = LearntTemplate(
        msgspec.structs.replace(old, labels=labels, uid="", provider_id=""), NOW - 3600
    )
    build = cluster().group("g", target=0)
    for at in range(2):
        build.node(
            f"n{at}", "1", labels={key: f"n{at}"} if key == "disk" else {}, group="other"
        ).running(f"n{at}", 1, "1")
    build.group("other", max=2).pending(1, "1", node_selector={key: "gone-1"}, owner="bound")
    assert growth(build.plan(Memory(templates={"g": row}))) == {}
    build.pending(1, "1", node_selector={"rack": "r7"}, owner="free")
    assert growth(build.plan(Memory(templates={"g": row}))) == {"g": (1, 1)}


def test_label_with_the_name_of_a_vendors_template_counts_as_it_is() -> None:
    template = node("pool-a", labels={"pool": "pool-a"})
    build = (
        cluster()
        .group("g", target=0, template=template)
        .pending(1, "1", node_selector={"pool": "pool-a"})
    )
    assert growth(build.plan()) == {"g": (1, 1)}


@pytest.mark.parametrize(
    ("rule", "certain"),
    [
        pytest.param({"node_selector": {PLACE: "here"}}, False, id="selector"),
        pytest.param(
            {"pod_anti_affinity": (near("topology.driver.example/place", having(app="x")),)},
            False,
            id="rule",
        ),
        pytest.param({"node_selector": {"rack": "r7"}}, True, id="another-label"),
        pytest.param({}, True, id="no-rule"),
    ],
)
@pytest.mark.parametrize("coming", [False, True])
def test_place_that_needs_an_uncertain_label_is_not_promised(
    rule: dict[str, Any], certain: bool, coming: bool
) -> None:
    build = (
        cluster()
        .node("n1", labels={PLACE: "here", "rack": "r7"}, group="g")
        .node("n2", "1", group="other")
    )
    build.group("g", target=2 if coming else None).group("other", max=1).running(
        "n1", 1, "1"
    ).running("n2", 1, "1")
    build.more["storage"] = csi_nodes("n1", "n2", keys=(PLACE,))
    plan = build.pending(1, "1", owner="x", **rule).plan(in_flight({"g": 2}) if coming else None)
    assert growth(plan) == ({} if coming else {"g": (1, 1)})
    assert [promise.promised for promise in plan.promises] == [certain]


def test_place_of_a_volume_that_needs_an_uncertain_label_is_not_promised() -> None:
    story = HourOfJoins(*bound_claim(PLACE, "here"), csi_node("g-1", PLACE))
    story.group("g", lambda name, age: node_object(name, labels={PLACE: "here"}), size=1)
    story.deploy("full", 4, on="g-1")
    story.deploy("db", 1, volumes=MOUNT)
    story.play(40.0)
    plan = story.plans[-1]
    assert growth(plan) == {"g": (1, 1)}
    assert [promise.promised for promise in plan.promises] == [False]
