"""Registers ECS instances as Nodes and removes them: the kubelet's registration and the
cloud-controller-manager's cleanup. This module defines when Nodes of this vendor exist and what
they contain; the rest is common to all vendors (vendor_common/node_registration.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.models import RUNNING, AlicloudGroup, AlicloudMachine
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import (
    Due,
    VendorNodeRegistration,
    kubernetes_node,
)

TAG = "k8s.io/cluster-autoscaler/node-template/"
_ARCHITECTURES = {"X86": "amd64", "ARM": "arm64"}


class AlicloudRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. prefix: of a providerID, "" or `alicloud://`. boot: seconds
    from in service until the Node exists. reserve: part of the capacity that the kubelet reserves.
    never: groups whose machines do not join this cluster."""

    prefix: str = ""
    boot: float = 30.0
    reserve: Mapping[str, str] = {}
    never: frozenset[str] = frozenset()


class AlicloudNodeRegistration(VendorNodeRegistration):
    """Creates and removes the Nodes of one account in one cluster; step() does what is due now."""

    def __init__(
        self,
        cloud: AlicloudCloud,
        store: ObjectStore,
        ways: AlicloudRegistrationOptions | None = None,
    ) -> None:
        super().__init__(cloud, store, partial(_due, cloud, ways or AlicloudRegistrationOptions()))


def _due(cloud: AlicloudCloud, ways: AlicloudRegistrationOptions, now: float) -> Due:
    found = joined(cloud, now, ways)
    made = {
        id_: partial(node_object, cloud, group, machine, ways)
        for id_, (group, machine) in found.items()
    }
    return Due(made, detached(cloud))


def joined(
    cloud: AlicloudCloud, now: float, ways: AlicloudRegistrationOptions
) -> dict[str, tuple[AlicloudGroup, AlicloudMachine]]:
    """Return the machines that are Nodes now, by id: machines that have run long enough, including
    those being removed. A machine that ECS has taken back is none."""
    found: dict[str, tuple[AlicloudGroup, AlicloudMachine]] = {}
    for group in cloud.groups.values():
        for machine in group.machines.values():
            running = not machine.released and (
                machine.state in RUNNING or machine.state.startswith("Removing")
            )
            if running and group.id not in ways.never and now - machine.served >= ways.boot:
                found[machine.id] = (group, machine)
    return found


def detached(cloud: AlicloudCloud) -> set[str]:
    """Return the machines that left their group and still run. Their Nodes stay."""
    return {each.machine.id for each in cloud.released if each.kept}


def node_object(
    cloud: AlicloudCloud,
    group: AlicloudGroup,
    machine: AlicloudMachine,
    ways: AlicloudRegistrationOptions,
) -> KubeObject:
    """Return the Node that a kubelet registers. Tags of the group and of its configuration become
    labels and taints, as in a node pool."""
    kind, disk, tags = cloud.types[machine.type], *_made_from(cloud, group, machine)
    arch = _ARCHITECTURES[kind.architecture]
    labels = {
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": machine.zone,
        **{
            key.removeprefix(f"{TAG}label/"): value
            for key, value in tags.items()
            if key.startswith(f"{TAG}label/")
        },
    }
    capacity = {
        "cpu": str(kind.cpu),
        "memory": f"{int(kind.memory * 2**20)}Ki",
        "ephemeral-storage": f"{disk}Gi",
        "pods": "110",
    }
    if kind.gpus:
        labels["aliyun.accelerator/nvidia_name"] = kind.gpu.replace(" ", "-")
        capacity["nvidia.com/gpu"] = str(kind.gpus)
    return kubernetes_node(
        machine.id,
        f"{ways.prefix}{cloud.region}.{machine.id}",
        instance_type=kind.id,
        region=cloud.region,
        labels=labels,
        capacity=capacity,
        reserve=ways.reserve,
        taints=_taints(tags),
        arch=arch,
    )


def _made_from(
    cloud: AlicloudCloud, group: AlicloudGroup, machine: AlicloudMachine
) -> tuple[int, dict[str, str]]:
    """Return the disk size and tags that the machine was made with."""
    made = (
        cloud.template(group.template, str(machine.template_version))
        if machine.template_version
        else cloud.configurations[machine.configuration]
    )
    return made.disk, {**group.tags, **made.tags}


def _taints(tags: Mapping[str, str]) -> list[KubeObject]:
    """Parse taint tags: `…/taint/dedicated: batch:NoSchedule`."""
    found: list[KubeObject] = []
    for key, text in tags.items():
        value, colon, effect = text.rpartition(":")
        if key.startswith(f"{TAG}taint/") and colon:
            found.append(
                {"key": key.removeprefix(f"{TAG}taint/"), "value": value, "effect": effect}
            )
    return found
