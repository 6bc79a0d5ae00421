"""Registers servers as Nodes and removes them: cloud-init joins the cluster, the cloud-controller-manager adds labels.

A server joins when it is deployed and has booted, if its user data permits it. Its Node has the server's hostname. The
rest is common to all vendors (vendor_common/node_registration.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from infra.emulators.cherryservers.account import CLUSTER, POOL, CherryCloud
from infra.emulators.cherryservers.models import ACTIVE, DEPLOYED, TERMINATING, CherryServer, Disk
from infra.emulators.cherryservers.userdata import admitted, node_labels
from infra.emulators.controllers.object_writes import write
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import Due, VendorNodeRegistration, kubernetes_node

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
PREFIX = "cherryservers://"
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


class CherryRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. cluster: its tag. prefix: of a providerID, "" for a bare number. boot: seconds
    from deployed until the Node exists. adopt: seconds from then until the cloud controller sets providerID and
    labels. reserve: part of the capacity that the kubelet reserves. check_token: only servers with a bootstrap token
    known to the cluster join. pool_label: a Node has its pool as a label even if its cloud-init does not set it."""

    cluster: str = "ours"
    prefix: str = PREFIX
    boot: float = 30.0
    adopt: float = 0.0
    reserve: Mapping[str, str] = {}
    check_token: bool = False
    pool_label: bool = False


class CherryNodeRegistration(VendorNodeRegistration):
    """Creates and removes the Nodes of one account in one cluster; step() does what is due now."""

    def __init__(
        self,
        cloud: CherryCloud,
        store: ObjectStore,
        ways: CherryRegistrationOptions | None = None,
    ) -> None:
        self._cloud, self._ways = cloud, ways or CherryRegistrationOptions()
        self._let_in: dict[int, bool] = {}
        super().__init__(cloud, store, self._due_at)

    def step(self) -> None:
        """Process servers, then Nodes, then the cloud controller."""
        super().step()
        if self._ways.adopt:
            with self._cloud.lock:
                found = joined(self._cloud, self._cloud.clock() - self._ways.adopt, self._ways)
            for name, server in found.items():
                held = self._store.peek("nodes", name)
                if held is not None and not held["spec"].get("providerID"):
                    write(self._store, "nodes", adopted(held, node_object(self._cloud, server, self._ways)))

    def _due_at(self, now: float) -> Due:
        found = joined(self._cloud, now, self._ways)
        return Due({name: partial(self._made, server) for name, server in found.items() if self._admits(server)})

    def _admits(self, server: CherryServer) -> bool:
        """Return whether the cluster admits a server. Checked once, when it tries to join: a token may expire later."""
        if not self._ways.check_token or server.listed == float("-inf"):
            return True
        if server.id not in self._let_in:
            self._let_in[server.id] = admitted(server.order.user_data, self._store, self._cloud.clock())
        return self._let_in[server.id]

    def _made(self, server: CherryServer) -> KubeObject:
        made = node_object(self._cloud, server, self._ways)
        return registered(made) if self._ways.adopt else made


def joined(cloud: CherryCloud, now: float, ways: CherryRegistrationOptions) -> dict[str, CherryServer]:
    """Return the servers that are Nodes now, by hostname: servers of the cluster that have run long enough, including
    those being deleted. Of two with one hostname, the older one is the Node."""
    found: dict[str, CherryServer] = {}
    for server in cloud.servers.values():
        up = server.status == DEPLOYED and server.state in (ACTIVE, TERMINATING)
        if up and server.fate.joins and server.tags.get(CLUSTER) == ways.cluster and now - _since(server) >= ways.boot:
            found.setdefault(server.hostname, server)
    return found


def _since(server: CherryServer) -> float:
    """Return since when a server runs. Servers that a test added have always been running."""
    return float("-inf") if server.listed == float("-inf") else server.deployed


def node_object(cloud: CherryCloud, server: CherryServer, ways: CherryRegistrationOptions) -> KubeObject:
    """Return the Node after its kubelet has registered it and the cloud controller has completed it."""
    plan, region = cloud.plan(server.order.plan), cloud.region(server.order.region)
    assert plan is not None
    assert region is not None
    pool = {"pool": server.tags[POOL]} if ways.pool_label and POOL in server.tags else {}
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": plan.slug,
        **pool,
        **node_labels(server.order.user_data),
    }
    storage = server.order.os_partition_size * 2**30 or int(_bytes(plan.disks[0]))
    capacity = {
        "cpu": str(plan.cores),
        "memory": f"{plan.memory * _UNITS[plan.unit] // 1024}Ki",
        "ephemeral-storage": f"{storage // 1024}Ki",
        "pods": "110",
    }
    return kubernetes_node(
        server.hostname,
        f"{ways.prefix}{server.id}",
        instance_type=plan.slug,
        region=region.slug,
        labels=labels,
        capacity=capacity,
        reserve=ways.reserve,
    )


def registered(node: KubeObject) -> KubeObject:
    """Return the Node before the cloud controller has completed it."""
    labels = {
        key: value
        for key, value in node["metadata"]["labels"].items()
        if "instance-type" not in key and not key.startswith("topology.")
    }
    return {
        **node,
        "metadata": {**node["metadata"], "labels": labels},
        "spec": {"taints": [*node["spec"]["taints"], dict(UNINITIALIZED)]},
    }


def adopted(held: KubeObject, whole: KubeObject) -> KubeObject:
    """Return an existing Node with the additions of the cloud controller."""
    taints = [taint for taint in held["spec"].get("taints") or () if taint["key"] != UNINITIALIZED["key"]]
    labels = {**whole["metadata"]["labels"], **held["metadata"].get("labels", {})}
    return {
        **held,
        "metadata": {**held["metadata"], "labels": labels},
        "spec": {**held["spec"], "providerID": whole["spec"]["providerID"], "taints": taints},
    }


def _bytes(disk: Disk) -> float:
    return disk.size * _UNITS[disk.unit]
