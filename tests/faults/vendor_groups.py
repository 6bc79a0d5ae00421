"""One group of two nodes at each vendor, with a common interface: tests of all vendors'
removals are written once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.alicloud.node_registration import AlicloudRegistrationOptions
from infra.emulators.cherryservers.attached_account import CherryAccount, CherryRegistrationOptions
from infra.emulators.cherryservers.models import CherryDurations
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from infra.emulators.exoscale.models import ExoscaleDurations
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import CceDurations
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions
from infra.emulators.vendor_common.server import AttachedAccount
from tests.faults.faulty_world import FaultWorld

SIZE, MOST = 2, 3
NAME = "web"
JOIN = 5.0
"""Seconds from a machine's start until its Node exists."""


class VendorGroup:
    """The group of one world. provider: its name in policies. id: of the group, once it is begun.

    account: attached to the world, None for Cluster API, whose machines are objects of the cluster.
    """

    provider: ClassVar[str]
    account: AttachedAccount[Any, Any] | None = None
    id: str = ""

    def begin(self, world: FaultWorld) -> None:
        """Creates the group with its machines."""
        raise NotImplementedError

    def settings(self) -> Mapping[str, Any]:
        """The section of the provider in the policy."""
        raise NotImplementedError

    def machines(self, world: FaultWorld) -> set[str]:
        """The Nodes whose machines exist, those that are being deleted included."""
        raise NotImplementedError

    def policy(self, world: FaultWorld, options: Mapping[str, Any], **spec: Any) -> str:
        """The document in force. JSON is valid YAML."""
        bounds = {"min": 0, "max": MOST}
        spec = {
            "mode": "active",
            "scanInterval": "60s",
            "providers": {self.provider: dict(self.settings())},
            "kubernetes": {"kubeconfigSecret": world.kubeconfig_secret},
            "options": dict(options),
            "nodeGroups": [{"provider": self.provider, "id": self.id, **bounds}],
            **spec,
        }
        metadata = {"name": world.name}
        return json.dumps(
            {
                "apiVersion": "outscaler.dev/v1",
                "kind": "Cluster",
                "metadata": metadata,
                "spec": spec,
            }
        )


class ClusterApiGroup(VendorGroup):
    """A MachineDeployment."""

    provider = "clusterapi"

    def begin(self, world: FaultWorld) -> None:
        """See VendorGroup."""
        self.id = f"MachineDeployment/default/{NAME}"
        world.audit.note_bounds(NAME, 0, MOST)
        world.seed(objects.machine_deployment(NAME, SIZE, 0, MOST))

    def settings(self) -> Mapping[str, Any]:
        """See VendorGroup."""
        return {"clusterName": "local"}

    def machines(self, world: FaultWorld) -> set[str]:
        """See VendorGroup."""
        machines = world.kube.list("machines", "default", fields.GROUP)
        return {node for machine in machines if (node := fields.node_name(machine))}


class AlicloudGroup(VendorGroup):
    """A scaling group of ESS."""

    provider = "alicloud"

    def __init__(self) -> None:
        times = AlicloudDurations(create=20.0, remove=15.0)
        self.account = self._account = AlicloudAccount(
            times=times, ways=AlicloudRegistrationOptions(boot=JOIN)
        )

    def begin(self, world: FaultWorld) -> None:
        """See VendorGroup."""
        self.id = self._account.cloud.add_group(NAME, size=SIZE, most=MOST).id

    def settings(self) -> Mapping[str, Any]:
        """See VendorGroup."""
        return self._account.settings()

    def machines(self, world: FaultWorld) -> set[str]:
        """See VendorGroup."""
        return {machine.id for machine in self._account.cloud.machines()}


class CherryGroup(VendorGroup):
    """The servers of a pool."""

    provider = "cherryservers"

    def __init__(self) -> None:
        times = CherryDurations(deploy=20.0, terminate=30.0)
        ways = CherryRegistrationOptions(boot=JOIN, pool_label=True)
        self.account = self._account = CherryAccount(times=times, ways=ways)

    def begin(self, world: FaultWorld) -> None:
        """See VendorGroup."""
        self.id = NAME
        for _ in range(SIZE):
            self._account.cloud.add_server(NAME)

    def settings(self) -> Mapping[str, Any]:
        """See VendorGroup."""
        return self._account.settings({NAME: {"plan": "e5_1620v4"}})

    def machines(self, world: FaultWorld) -> set[str]:
        """See VendorGroup."""
        return {server.hostname for server in self._account.cloud.servers.values()}


class ExoscaleGroup(VendorGroup):
    """A Nodepool."""

    provider = "exoscale"

    def __init__(self) -> None:
        times = ExoscaleDurations(operation=30.0, create=20.0, destroy=20.0)
        self.account = self._account = ExoscaleAccount(
            times=times, ways=ExoscaleRegistrationOptions(boot=JOIN)
        )

    def begin(self, world: FaultWorld) -> None:
        """See VendorGroup."""
        zone = self._account.zone
        self.id = f"prod/{NAME}"
        zone.add_nodepool(zone.add_cluster("prod").id, NAME, type="standard.large", size=SIZE)

    def settings(self) -> Mapping[str, Any]:
        """See VendorGroup."""
        return self._account.settings()

    def machines(self, world: FaultWorld) -> set[str]:
        """See VendorGroup."""
        return {vm.name for vm in self._account.zone.vms.values()}


class HuaweiGroup(VendorGroup):
    """A node pool of CCE."""

    provider = "huaweicloud"

    def __init__(self) -> None:
        times = CceDurations(order=5.0, build=10.0, install=10.0, delete=20.0)
        self.account = self._account = HuaweiAccount(
            times=times, ways=CceRegistrationOptions(boot=JOIN)
        )

    def begin(self, world: FaultWorld) -> None:
        """See VendorGroup."""
        cloud = self._account.cloud
        self.id = cloud.add_pool(self._account.cluster.uid, NAME, size=SIZE, most=MOST).uid

    def settings(self) -> Mapping[str, Any]:
        """See VendorGroup."""
        return self._account.settings()

    def machines(self, world: FaultWorld) -> set[str]:
        """See VendorGroup."""
        return {node.ip for node in self._account.cluster.nodes()}


VENDORS: Mapping[str, type[VendorGroup]] = {
    each.provider: each
    for each in (ClusterApiGroup, AlicloudGroup, CherryGroup, ExoscaleGroup, HuaweiGroup)
}
