"""Registers instances of the zone as Nodes: the kubelet and the cloud controller.

An SKS kubelet registers with the labels and taints of its Nodepool. The rest is common to all vendors
(vendor_common/node_registration.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import RUNNING, Nodepool, Vm
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import Due, VendorNodeRegistration, kubernetes_node

NODEPOOL_LABEL = "node.exoscale.net/nodepool-id"
_THERE = frozenset({RUNNING, "migrating", "stopped", "stopping", "destroying"})


class ExoscaleRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. boot: seconds from `running` until the Node exists. reserve: part of the capacity
    that the kubelet reserves. never: pools whose instances do not join this cluster."""

    boot: float = 30.0
    reserve: Mapping[str, str] = {}
    never: frozenset[str] = frozenset()


class ExoscaleNodeRegistration(VendorNodeRegistration):
    """Creates and removes the Nodes of one zone in one cluster; step() does what is due now."""

    def __init__(self, zone: Zone, store: ObjectStore, ways: ExoscaleRegistrationOptions | None = None) -> None:
        super().__init__(zone, store, partial(_due, zone, ways or ExoscaleRegistrationOptions()))


def _due(zone: Zone, ways: ExoscaleRegistrationOptions, now: float) -> Due:
    return Due({vm.name: partial(node_object, zone, vm, ways) for vm in joined(zone, now, ways)})


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
    return kubernetes_node(
        vm.name,
        f"exoscale://{vm.id}",
        instance_type=vm.kind.name,
        region=zone.name,
        labels={"topology.kubernetes.io/zone": zone.name, **_labels(pool)},
        capacity=capacity,
        reserve=ways.reserve,
        taints=_taints(pool),
        system_id=vm.id,
    )


def _labels(pool: Nodepool | None) -> dict[str, str]:
    return {NODEPOOL_LABEL: pool.id, **pool.labels} if pool is not None else {}


def _taints(pool: Nodepool | None) -> list[KubeObject]:
    held = pool.taints if pool is not None else {}
    return [{"key": key, "value": value, "effect": effect} for key, (value, effect) in held.items()]
