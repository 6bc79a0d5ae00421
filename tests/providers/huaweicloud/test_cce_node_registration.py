"""How nodes of CCE become Nodes: named by their address, with CCE's labels, and tainted at
first.
"""

from __future__ import annotations

import pytest

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.errors import CceRefusedError
from infra.emulators.huaweicloud.models import DEFAULT
from infra.emulators.huaweicloud.mutations import CceMutations
from infra.emulators.huaweicloud.node_registration import (
    RECLAIMED,
    UNINITIALIZED,
    CceNodeRegistration,
    CceRegistrationOptions,
    node_object,
)
from infra.emulators.huaweicloud.simulation import give_notice
from infra.emulators.kube.store import ObjectStore


class CceJoiningFixture:
    """A project with two clusters, one of which is the simulated one."""

    def __init__(self, ways: CceRegistrationOptions | None = None) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.cloud, self.store = CceCloud(self.clock), ObjectStore(self.clock)
        self.ours, self.theirs = self.cloud.add_cluster("ours"), self.cloud.add_cluster("theirs")
        self.joining = CceNodeRegistration(self.cloud, self.store, ways, cluster=self.ours.uid)

    def after(self, seconds: float) -> dict[str, list[str]]:
        """Lets time pass. Returns node name -> keys of its taints."""
        self.clock.advance(seconds)
        self.joining.step()
        return {
            node["metadata"]["name"]: [taint["key"] for taint in node["spec"].get("taints", ())]
            for node in self.store.list("nodes")
        }


def test_huawei_active_node_joins_loses_its_startup_taint_and_leaves() -> None:
    yard = CceJoiningFixture()
    pool = yard.cloud.add_pool(yard.ours.uid, "web")
    yard.cloud.add_pool(yard.theirs.uid, "other", size=3)
    CceMutations(yard.cloud).scale(yard.ours, pool, {"desiredNodeCount": 1})
    (node,) = pool.groups[DEFAULT].nodes.values()
    assert yard.after(84.0) == {}
    assert UNINITIALIZED["key"] in yard.after(2.0)[node.ip]
    assert UNINITIALIZED["key"] not in yard.after(11.0)[node.ip]
    made = yard.store.peek("nodes", node.ip)
    assert made is not None
    assert made["spec"]["providerID"] == node.uid
    CceMutations(yard.cloud).delete(yard.ours, node, keeps_size=False)
    assert list(yard.after(1.0)) == [node.ip]
    assert yard.after(60.0) == {}


@pytest.mark.parametrize(
    ("ways", "id_"),
    [
        (CceRegistrationOptions(), "{uid}"),
        (CceRegistrationOptions(scheme="huaweicloud://"), "huaweicloud://{uid}"),
        (CceRegistrationOptions(by_server=True), "{server}"),
    ],
)
def test_huawei_provider_id_is_the_nodes_uid_unless_configured(
    ways: CceRegistrationOptions, id_: str
) -> None:
    yard = CceJoiningFixture(ways)
    pool = yard.cloud.add_pool(yard.ours.uid, "web", size=1)
    (node,) = pool.groups[DEFAULT].nodes.values()
    reported = node_object(yard.cloud, node, ways)["spec"]["providerID"]
    assert reported == id_.format(uid=node.uid, server=node.server)


def test_huawei_node_that_never_joins_is_not_a_kubernetes_node() -> None:
    yard = CceJoiningFixture()
    pool = yard.cloud.add_pool(yard.ours.uid, "web", size=2)
    yard.cloud.add_group(pool.uid, "az2", size=1)
    first, second = pool.groups[DEFAULT].nodes.values()
    yard.joining = CceNodeRegistration(
        yard.cloud,
        yard.store,
        cluster=yard.ours.uid,
        ways=CceRegistrationOptions(never=frozenset({first.uid, f"{pool.uid}/az2"})),
    )
    assert list(yard.after(10.0)) == [second.ip]


def test_huawei_node_labels_and_sizes_equal_those_of_cce() -> None:
    yard = CceJoiningFixture()
    taint = {"key": "status", "value": "x", "effect": "NoSchedule"}
    pool = yard.cloud.add_pool(yard.ours.uid, "web", size=1, labels={"tier": "web"}, taints=[taint])
    gpu = yard.cloud.add_pool(
        yard.ours.uid, "gpu", size=1, flavor="pi2.2xlarge.4", extend={"maxPods": 30}
    )
    made, other = (
        node_object(yard.cloud, next(each.all_nodes()), CceRegistrationOptions())
        for each in (pool, gpu)
    )
    labels = made["metadata"]["labels"]
    assert {
        name: labels[name]
        for name in (
            "tier",
            "cce.cloud.com/cce-nodepool",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/instance-type",
        )
    } == {
        "tier": "web",
        "cce.cloud.com/cce-nodepool": "web",
        "topology.kubernetes.io/zone": "cn-north-4a",
        "node.kubernetes.io/instance-type": "c7.xlarge.2",
    }
    assert taint in made["spec"]["taints"]
    assert {
        name: parse_amount(name, made["status"]["allocatable"][name])
        for name in ("cpu", "memory", "pods")
    } == {
        "cpu": 3920,
        "memory": 6792 * 2**20,
        "pods": 40,
    }
    assert (
        other["metadata"]["labels"]["accelerator"],
        other["status"]["capacity"]["nvidia.com/gpu"],
    ) == (
        "nvidia-t4",
        "1",
    )
    assert other["status"]["capacity"]["pods"] == "30"


# -- spot instances


def reclaimed_yard(
    ways: CceRegistrationOptions | None = None,
) -> tuple[CceJoiningFixture, str, str]:
    """Returns a cluster with a spot instance that the vendor takes back, its uid
    and the name of its Node."""
    yard = CceJoiningFixture(ways)
    pool = yard.cloud.add_pool(yard.ours.uid, "web", size=1, extend={"marketType": "spot"})
    (node,) = pool.groups[DEFAULT].nodes.values()
    yard.after(20.0)
    give_notice(yard.cloud, node.uid)
    return yard, node.uid, node.ip


def test_huawei_notice_is_shown_by_a_taint_and_an_event_at_the_next_check() -> None:
    yard, _, name = reclaimed_yard()
    held = yard.store.peek("nodes", name)
    assert held is not None
    assert held["metadata"]["labels"]["cce.io/is-spot"] == "true"
    assert RECLAIMED["key"] not in yard.after(119.0)[name]
    assert RECLAIMED["key"] in yard.after(1.0)[name]
    yard.after(1.0)
    events = [event["reason"] for event in yard.store.list("events")]
    assert events == ["ReceivedReclaimNodeNotification"]


def test_huawei_notice_is_not_shown_without_the_add_on() -> None:
    yard, _, name = reclaimed_yard(CceRegistrationOptions(check=float("inf")))
    assert RECLAIMED["key"] not in yard.after(299.0)[name]
    assert name not in yard.after(1.0)


def test_huawei_withdrawn_notice_disappears_and_the_instance_stays() -> None:
    yard, uid, name = reclaimed_yard()
    assert RECLAIMED["key"] in yard.after(120.0)[name]
    yard.cloud.withdraw_notice(uid)
    assert RECLAIMED["key"] not in yard.after(1.0)[name]
    assert name in yard.after(600.0)


@pytest.mark.parametrize(("refills", "size"), [(True, 1), (False, 0)])
def test_huawei_pool_refills_a_reclaimed_instance_or_becomes_smaller(
    *, refills: bool, size: int
) -> None:
    yard, uid, name = reclaimed_yard()
    yard.cloud.refills = refills
    assert name not in yard.after(300.0)
    (pool,) = yard.cloud.pools()
    assert (pool.desired, [node.uid for node in pool.all_nodes()] != [], yard.cloud.node(uid)) == (
        size,
        refills,
        None,
    )


def test_huawei_instance_that_is_taken_back_cannot_be_deleted() -> None:
    yard, uid, _ = reclaimed_yard()
    node = yard.cloud.node(uid)
    assert node is not None
    with pytest.raises(CceRefusedError, match="being reclaimed"):
        CceMutations(yard.cloud).delete(yard.ours, node, keeps_size=False)
