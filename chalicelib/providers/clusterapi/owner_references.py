"""Determines a Machine's group by the chain of controllers, followed by UID.

A selector would also match foreign and control-plane Machines, and a name may be reused, but a UID may not. Label specs
of discovery are not used here, because they apply to the scalable resource only.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.providers.clusterapi.api import DEPLOYMENT, POOL, SET
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, Metadata


def controller(metadata: Metadata, kind: str) -> str:
    """Return the UID of the owner of that kind that controls the object, empty if there is none."""
    for owner in metadata.owner_references or ():
        if owner.kind == kind and owner.controller:
            return owner.uid
    return ""


def has_deployment(machine_set: CapiResource) -> bool:
    """Whether a MachineDeployment owns the set.

    Such a set is never a node group itself, even if its MachineDeployment is filtered out or gone, because the two
    would be resized against each other."""
    return any(owner.kind == DEPLOYMENT and owner.name for owner in machine_set.metadata.owner_references or ())


def sets_of(uid: str, machine_sets: Iterable[CapiResource]) -> tuple[CapiResource, ...]:
    """Return the MachineSets that a MachineDeployment controls."""
    return tuple(each for each in machine_sets if controller(each.metadata, DEPLOYMENT) == uid)


def by_deployment(machine_sets: Iterable[CapiResource]) -> dict[str, list[CapiResource]]:
    """Return MachineDeployment UID -> the MachineSets that it controls."""
    found: dict[str, list[CapiResource]] = {}
    for each in machine_sets:
        if uid := controller(each.metadata, DEPLOYMENT):
            found.setdefault(uid, []).append(each)
    return found


def group_uids(machine_sets: Iterable[CapiResource]) -> dict[str, str]:
    """Return MachineSet UID -> UID of the resource that its Machines belong to: its MachineDeployment, or itself."""
    return {each.metadata.uid: controller(each.metadata, DEPLOYMENT) or each.metadata.uid for each in machine_sets}


def by_group(
    machines: Iterable[CapiMachine], machine_sets: Iterable[CapiResource], pools: Iterable[CapiResource] = ()
) -> dict[str, list[CapiMachine]]:
    """Return resource UID -> its Machines, sorted by name.

    Machines without that chain (control plane, stand-alone) belong to no group."""
    owners = group_uids(machine_sets)
    pool_uids = {each.metadata.uid for each in pools}
    groups: dict[str, list[CapiMachine]] = {}
    for machine in sorted(machines, key=lambda each: each.metadata.name):
        pool = controller(machine.metadata, POOL)
        if uid := owners.get(controller(machine.metadata, SET)) or (pool if pool in pool_uids else ""):
            groups.setdefault(uid, []).append(machine)
    return groups
