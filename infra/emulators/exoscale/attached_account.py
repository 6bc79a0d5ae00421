"""An emulated Exoscale zone attached to a simulated cluster, for LocalWorld and live emulations.

account = ExoscaleAccount()
with LocalWorld(clouds=(account,)) as world:
    cluster = account.zone.add_cluster("prod")
    web = account.zone.add_nodepool(cluster.id, "web")
    world.apply_policy(… providers: exoscale: <account.settings()> … nodeGroups:
    {provider: exoscale, id: web.id})
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from infra.emulators.certificates import Pair
from infra.emulators.controllers.manager import Controller
from infra.emulators.exoscale.account import ZONE, Zone
from infra.emulators.exoscale.models import RUNNING, ExoscaleDurations, Nodepool, Vm
from infra.emulators.exoscale.server import PRICE_LIST, ExoscaleServer
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import (
    Due,
    VendorNodeRegistration,
    kubernetes_node,
)
from infra.emulators.vendor_common.server import AttachedAccount

NODEPOOL_LABEL = "node.exoscale.net/nodepool-id"
_THERE = frozenset({RUNNING, "migrating", "stopped", "stopping", "destroying"})


class ExoscaleRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. boot: seconds from `running` until the Node exists.
    reserve: part of the capacity that the kubelet reserves. never: pools whose instances
    do not join this cluster."""

    boot: float = 30.0
    reserve: Mapping[str, str] = {}
    never: frozenset[str] = frozenset()


class ExoscaleNodeRegistration(VendorNodeRegistration):
    """Creates and removes the Nodes of one zone in one cluster; step() does what is due now."""

    def __init__(
        self, zone: Zone, store: ObjectStore, ways: ExoscaleRegistrationOptions | None = None
    ) -> None:
        super().__init__(zone, store, partial(_due, zone, ways or ExoscaleRegistrationOptions()))


def _due(zone: Zone, ways: ExoscaleRegistrationOptions, now: float) -> Due:
    return Due({vm.name: partial(node_object, zone, vm, ways) for vm in joined(zone, now, ways)})


def joined(zone: Zone, now: float, ways: ExoscaleRegistrationOptions) -> list[Vm]:
    """Return the instances that are Nodes now: instances that have run long enough,
    including those being deleted."""
    return [
        vm
        for vm in zone.vms.values()
        if vm.pool
        and vm.pool not in ways.never
        and vm.state in _THERE
        and now - vm.served >= ways.boot
    ]


def node_object(zone: Zone, vm: Vm, ways: ExoscaleRegistrationOptions) -> KubeObject:
    """Return the Node after its kubelet has registered it and the cloud
    controller has completed it."""
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


SECRET_NAME = "outscaler/shared/exoscale"
KEY, KEY_SECRET = "EXO-EXAMPLE-LOCAL-KEY-0001", "example-secret-of-the-emulated-zone-1"


class ExoscaleAccount(AttachedAccount[Zone, ExoscaleServer]):
    """One zone with one key, served on loopback.

    `zone` and `server` exist once the account is attached to a clock.
    """

    def __init__(
        self,
        *,
        times: ExoscaleDurations | None = None,
        ways: ExoscaleRegistrationOptions | None = None,
        tls: Pair | None = None,
    ) -> None:
        self._times, self._ways, self._tls = times, ways, tls

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Create the zone on that clock. Returns the controller that makes its
        instances Nodes of that cluster."""
        self._cloud = Zone(clock, times=self._times)
        self._server = ExoscaleServer(self._cloud, tls=self._tls)
        self._server.ring.add(KEY, KEY_SECRET)
        return ExoscaleNodeRegistration(self._cloud, cluster, self._ways)

    @property
    def zone(self) -> Zone:
        """Return the zone. AssertionError before it is attached."""
        return self.cloud

    def secret(self, key: str = KEY) -> str:
        """Return the text of the secret that `settings` names."""
        return json.dumps({"apiKey": key, "apiSecret": self.server.ring.keys[key].secret})

    def secrets(self) -> dict[str, str]:
        return {SECRET_NAME: self.secret()}

    def settings(self) -> dict[str, str]:
        """Return the policy's section `providers.exoscale` for this zone."""
        return {
            "zone": ZONE,
            "credentialsSecret": SECRET_NAME,
            "endpoint": self.server.root,
            "priceList": f"{self.server.url}{PRICE_LIST}",
        }
