"""Registers instances of the zone as Nodes: the kubelet and the cloud controller.

An SKS kubelet registers with the labels and taints of its Nodepool. The rest is common to all vendors
(vendor_common/node_registration.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from infra.emulators.controllers.kubelet import NOT_READY
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import RUNNING, Nodepool, Vm
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import Due, left
from infra.emulators.vendor_common.node_registration import VendorNodeRegistration as VendorJoining

NODEPOOL_LABEL = "node.exoscale.net/nodepool-id"
_THERE = frozenset({RUNNING, "migrating", "stopped", "stopping", "destroying"})


class ExoscaleRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. boot: seconds from `running` until the Node exists. reserve: part of the capacity
    that the kubelet reserves. never: pools whose instances do not join this cluster."""

    boot: float = 30.0
    reserve: Mapping[str, str] = {}
    never: frozenset[str] = frozenset()


class ExoscaleNodeRegistration(VendorJoining):
    """Creates and removes the Nodes of one zone in one cluster; step() does what is due now."""

    def __init__(
        self,
        zone: Zone,
        store: ObjectStore,
        clock: Callable[[], float],
        ways: ExoscaleRegistrationOptions | None = None,
    ) -> None:
        self._zone, self._clock, self._ways = zone, clock, ways or ExoscaleRegistrationOptions()
        super().__init__(self._due_now, store)

    def _due_now(self) -> Due:
        with self._zone.lock:
            self._zone.step()
            found = joined(self._zone, self._clock(), self._ways)
        return Due({vm.name: partial(node_object, self._zone, vm, self._ways) for vm in found})


def joined(zone: Zone, now: float, ways: ExoscaleRegistrationOptions) -> list[Vm]:
    """Return the instances that are Nodes now: instances that have run long enough, including those being deleted."""
    return [
        vm
        for vm in zone.vms.values()
        if vm.pool and vm.pool not in ways.never and vm.state in _THERE and now - vm.served >= ways.boot
    ]


def node_object(zone: Zone, vm: Vm, ways: ExoscaleRegistrationOptions) -> KubeObject:
    """Return the Node after its kubelet has registered it and the cloud controller has completed it."""
    pool = zone.nodepool(zone.pools[vm.pool])
    capacity = {
        "cpu": str(vm.kind.cpus),
        "memory": f"{vm.kind.memory // 1024}Ki",
        "ephemeral-storage": f"{vm.disk}Gi",
        "pods": str((pool.max_pods if pool else 0) or 110),
    }
    if vm.kind.gpus:
        capacity["nvidia.com/gpu"] = str(vm.kind.gpus)
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": vm.name,
        "node.kubernetes.io/instance-type": vm.kind.name,
        "topology.kubernetes.io/region": zone.name,
        "topology.kubernetes.io/zone": zone.name,
        **_labels(pool),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": vm.name, "labels": labels},
        "spec": {"providerID": f"exoscale://{vm.id}", "taints": [dict(NOT_READY), *_taints(pool)]},
        "status": {
            "capacity": capacity,
            "allocatable": left(capacity, ways.reserve),
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "systemUUID": vm.id},
            "addresses": [{"type": "Hostname", "address": vm.name}],
        },
    }


def _labels(pool: Nodepool | None) -> dict[str, str]:
    return {NODEPOOL_LABEL: pool.id, **pool.labels} if pool is not None else {}


def _taints(pool: Nodepool | None) -> list[KubeObject]:
    held = pool.taints if pool is not None else {}
    return [{"key": key, "value": value, "effect": effect} for key, (value, effect) in held.items()]
