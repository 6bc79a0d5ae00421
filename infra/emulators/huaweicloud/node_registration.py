"""Registers CCE nodes as Kubernetes Nodes.

CCE installs the kubelet while the node is in phase Installing. The Node is named by its address,
and its providerID is the CCE node's uid. Shortly afterwards the cloud controller removes its
start-up taint. The add-on CCE Node Problem Detector shows on the Node, by a taint and an event,
that the vendor takes a spot instance back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from chalicelib.model.timestamps import format_time
from infra.emulators.controllers.kubelet import with_taint
from infra.emulators.controllers.object_writes import write
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.models import ACTIVE, DELETING, CcePool, Flavor, Node
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import (
    Due,
    VendorNodeRegistration,
    kubernetes_node,
)

UNINITIALIZED = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
RECLAIMED = {
    "key": "node-problem-controller.cce.io/SpotPriceNodeReclaimNotification",
    "effect": "NoExecute",
}
POOL_LABEL = "cce.cloud.com/cce-nodepool"
_THERE = frozenset({ACTIVE, DELETING, "Upgrading", "Abnormal", "Repairing", "RepairFailed"})
_MIB = 1024
# from this memory in GiB on, this number of pods
_PODS = ((64, 110), (32, 80), (16, 60), (8, 40), (0, 20))


class CceRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. boot: seconds from Active until the Node exists. taint:
    seconds for which it has the start-up taint. scheme: prefix of its providerID, e.g.
    `huaweicloud://`. by_server: the providerID is the server's id instead of the node's. never:
    uids of pools, `<pool>/<scale group>` or uids of nodes that do not join this cluster. check:
    seconds until the add-on sees a notice, at most its check period; infinity without the
    add-on."""

    boot: float = 5.0
    taint: float = 10.0
    scheme: str = ""
    by_server: bool = False
    never: frozenset[str] = frozenset()
    check: float = 120.0


class CceNodeRegistration(VendorNodeRegistration):
    """Creates and removes the Nodes of one CCE cluster in one simulated cluster; step() does what
    is due now. cluster: uid, "" for the whole project."""

    def __init__(
        self,
        cloud: CceCloud,
        store: ObjectStore,
        ways: CceRegistrationOptions | None = None,
        *,
        cluster: str = "",
    ) -> None:
        self._cloud, self._cluster = cloud, cluster
        self._ways = ways or CceRegistrationOptions()
        self._tainted: dict[str, float] = {}
        super().__init__(cloud, store, self._due_at)

    def step(self) -> None:
        """Add Nodes, remove Nodes, remove start-up taints, and show which
        instances the vendor takes back."""
        super().step()
        now = self._cloud.clock()
        for node in joined(self._cloud, now, self._ways, cluster=self._cluster):
            self._show_notice(node, shown=is_shown(node, now, self._ways))
        for name, until in list(self._tainted.items()):
            if self._cloud.clock() >= until and self._initialized(name):
                del self._tainted[name]

    def _due_at(self, now: float) -> Due:
        found = joined(self._cloud, now, self._ways, cluster=self._cluster)
        return Due({node.ip: partial(self._made, node) for node in found})

    def _made(self, node: Node) -> KubeObject:
        self._tainted[node.ip] = self._cloud.clock() + self._ways.taint
        made = node_object(self._cloud, node, self._ways)
        if self._ways.taint > 0:
            made["spec"]["taints"].append(dict(UNINITIALIZED))
        return made

    def _show_notice(self, node: Node, *, shown: bool) -> None:
        """Set or remove the add-on's taint, with its event when it is set."""
        held = self._store.peek("nodes", node.ip)
        if held is None:
            return
        taints = held["spec"].get("taints") or []
        marked = with_taint(taints, RECLAIMED, present=shown)
        if len(marked) == len(taints):
            return
        if (
            write(self._store, "nodes", {**held, "spec": {**held["spec"], "taints": marked}})
            and shown
        ):
            self._store.create("events", _notification(node.ip, self._cloud.clock()))

    def _initialized(self, name: str) -> bool:
        node = self._store.peek("nodes", name)
        if node is None:
            return True
        taints = [
            taint
            for taint in node["spec"].get("taints", ())
            if taint["key"] != UNINITIALIZED["key"]
        ]
        return write(self._store, "nodes", {**node, "spec": {**node["spec"], "taints": taints}})


def is_shown(node: Node, now: float, ways: CceRegistrationOptions) -> bool:
    """Return whether the add-on shows that the vendor takes a node back."""
    return node.reclaimed and now >= node.noticed + ways.check


def _notification(name: str, now: float) -> KubeObject:
    """Return the event by which the add-on tells of a notice."""
    at = format_time(now)
    return {
        "metadata": {"generateName": f"{name}.", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": name},
        "type": "Warning",
        "reason": "ReceivedReclaimNodeNotification",
        "message": "the spot price node is being reclaimed",
        "source": {"component": "node-problem-detector", "host": name},
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
    }


def joined(
    cloud: CceCloud, now: float, ways: CceRegistrationOptions, *, cluster: str = ""
) -> list[Node]:
    """Return the CCE nodes that are Nodes now: nodes that have been Active long enough,
    including those being deleted."""
    held = [cloud.clusters[cluster]] if cluster else list(cloud.clusters.values())
    return [
        node
        for each in held
        for node in each.nodes()
        if node.phase in _THERE
        and now - node.since >= ways.boot
        and not ways.never & {node.pool, f"{node.pool}/{node.group}", node.uid}
    ]


def node_object(cloud: CceCloud, node: Node, ways: CceRegistrationOptions) -> KubeObject:
    """Return the Node as its kubelet registers it, without the start-up taint."""
    pool = cloud.clusters[node.cluster].pools.get(node.pool)
    flavor = cloud.flavors[node.flavor]
    capacity, reserve = _sizes(flavor, pool)
    arch = "arm64" if flavor.specs.get("ecs:instance_architecture") == "arm64" else "amd64"
    labels = {
        "node.kubernetes.io/baremetal": "false",
        "node.kubernetes.io/container-engine": pool.runtime if pool else "containerd",
        "os.architecture": arch,
        "os.name": "Huawei_Cloud_EulerOS_2.0",
        "os.version": "5.10.0",
        "node.kubernetes.io/subnetid": "3f000000-0000-11ee-8b5e-000000000001",
        "topology.kubernetes.io/zone": node.az,
        **({"cce.io/is-spot": "true"} if node.spot else {}),
        "failure-domain.beta.kubernetes.io/region": cloud.region,
        "failure-domain.beta.kubernetes.io/zone": node.az,
        **_labels(flavor, pool),
    }
    return kubernetes_node(
        node.ip,
        f"{ways.scheme}{node.server if ways.by_server else node.uid}",
        instance_type=node.flavor,
        region=cloud.region,
        labels=labels,
        capacity=capacity,
        reserve=reserve,
        taints=(
            *(pool.taints if pool else ()),
            *([RECLAIMED] if is_shown(node, cloud.clock(), ways) else []),
        ),
        arch=arch,
        system_id=node.server,
        ip=node.ip,
    )


def _labels(flavor: Flavor, pool: CcePool | None) -> dict[str, str]:
    gpu = flavor.specs.get("info:gpu:name", "")
    own = {POOL_LABEL: pool.name, **pool.labels} if pool is not None else {}
    return {**own, **({"accelerator": gpu} if gpu else {})}


def _sizes(flavor: Flavor, pool: CcePool | None) -> tuple[dict[str, str], Mapping[str, str]]:
    """Return its capacity and CCE's reserve, by the vendor's rule for memory and CPU."""
    gib = flavor.memory // 1024
    usual = next(pods for least, pods in _PODS if gib >= least)
    pods = int((pool.extend if pool else {}).get("maxPods", usual))
    cpu = 60 + sum(10 if core == 1 else 5 if core < 4 else 2.5 for core in range(1, flavor.cpus))
    memory = 400 + 25 * gib + 500 + 5 * pods + 100
    capacity = {
        "cpu": str(flavor.cpus),
        "memory": f"{flavor.memory * _MIB}Ki",
        "ephemeral-storage": "100Gi",
        "pods": str(pods),
    }
    model, _, count = flavor.specs.get("pci_passthrough:alias", "").partition(":")
    if model.startswith("nvidia"):
        capacity["nvidia.com/gpu"] = count
    return capacity, {"cpu": f"{round(cpu)}m", "memory": f"{memory * _MIB}Ki"}
