"""Registers machines of an emulated vendor as Nodes of a simulated cluster and removes
them; common to all vendors.

A vendor has no knowledge of clusters, and a cluster has Nodes of other vendors too, so only Nodes
created here are ever changed. The vendor's own module defines what a Node contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import msgspec

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.kubelet import NOT_READY
from infra.emulators.controllers.object_writes import erase
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.dispatcher import VendorAccount


class Due(msgspec.Struct, frozen=True):
    """The Nodes that should exist now. nodes: a Node's name -> a function that creates it. kept:
    names of Nodes that stay although no group contains their machine."""

    nodes: Mapping[str, Callable[[], KubeObject]]
    kept: Set[str] = frozenset()


class VendorNodeRegistration:
    """Creates and removes the Nodes of one account in one cluster; step() does what is
    due now. due: epoch seconds -> the Nodes that should exist; called while the account
    is locked and up to date."""

    def __init__(
        self, account: VendorAccount, store: ObjectStore, due: Callable[[float], Due]
    ) -> None:
        self._account, self._store, self._due = account, store, due
        self._joined: set[str] = set()

    def step(self) -> None:
        with self._account.lock:
            self._account.step()
            due = self._due(self._account.clock())
        for name, made in due.nodes.items():
            if name not in self._joined:
                self._joined.add(name)
                self._store.create("nodes", made())
        for name in sorted(self._joined - due.nodes.keys() - due.kept):
            self._joined.discard(name)
            node = self._store.peek("nodes", name)
            if node is not None:
                erase(self._store, "nodes", node)


def left(capacity: Mapping[str, str], reserve: Mapping[str, str]) -> dict[str, str]:
    """Return the allocatable part of a capacity when the kubelet reserves `reserve`;
    both in a Node's notation."""
    found = dict(capacity)
    for name, amount in reserve.items():
        if name in capacity:
            whole = max(0, parse_amount(name, capacity[name]) - parse_amount(name, amount))
            found[name] = f"{whole}m" if name == "cpu" else f"{whole // 1024}Ki"
    return found


def kubernetes_node(
    name: str,
    provider_id: str,
    *,
    instance_type: str,
    region: str,
    labels: Mapping[str, str],
    capacity: Mapping[str, str],
    reserve: Mapping[str, str],
    taints: Sequence[Mapping[str, str]] = (),
    arch: str = "amd64",
    system_id: str = "",
    ip: str = "",
) -> KubeObject:
    """Return the Node that a kubelet registers and the cloud controller has completed. labels,
    taints: further ones. reserve: part of the capacity that the kubelet reserves. system_id, ip: ""
    if the Node does not show it."""
    common = {
        "kubernetes.io/arch": arch,
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": region,
    }
    info = {"architecture": arch, "operatingSystem": "linux"}
    addresses = [{"type": "InternalIP", "address": ip}] if ip else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**common, **labels}},
        "spec": {"providerID": provider_id, "taints": [dict(NOT_READY), *map(dict, taints)]},
        "status": {
            "capacity": capacity,
            "allocatable": left(capacity, reserve),
            "nodeInfo": {**info, "systemUUID": system_id} if system_id else info,
            "addresses": [*addresses, {"type": "Hostname", "address": name}],
        },
    }
