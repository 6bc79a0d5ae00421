"""Whose Machine is it? The chain of controllers, followed by UID (clusterapi.md §3, defects D7, D8, D10).

A selector would also catch foreign and control-plane Machines, and a name may be reused; a UID may not. Label specs of
discovery play no part here: they speak of the final resource only.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.providers.clusterapi.api import DEPLOYMENT, POOL, SET
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, Metadata


def controller(metadata: Metadata, kind: str) -> str:
    """The UID of the owner of that kind that controls the object, empty if there is none."""
    for owner in metadata.owner_references or ():
        if owner.kind == kind and owner.controller:
            return owner.uid
    return ""


def has_deployment(machine_set: CapiResource) -> bool:
    """Whether a MachineDeployment owns the set: then the set never is a node group of its own, even if its
    MachineDeployment is filtered out or gone, because both would be resized against each other (D8)."""
    return any(owner.kind == DEPLOYMENT and owner.name for owner in machine_set.metadata.owner_references or ())


def sets_of(uid: str, machine_sets: Iterable[CapiResource]) -> tuple[CapiResource, ...]:
    """The MachineSets that a MachineDeployment controls."""
    return tuple(each for each in machine_sets if controller(each.metadata, DEPLOYMENT) == uid)


def by_deployment(machine_sets: Iterable[CapiResource]) -> dict[str, list[CapiResource]]:
    """MachineDeployment UID -> the MachineSets that it controls."""
    found: dict[str, list[CapiResource]] = {}
    for each in machine_sets:
        if uid := controller(each.metadata, DEPLOYMENT):
            found.setdefault(uid, []).append(each)
    return found


def group_uids(machine_sets: Iterable[CapiResource]) -> dict[str, str]:
    """MachineSet UID -> UID of the resource that its Machines belong to: its MachineDeployment, or itself."""
    return {each.metadata.uid: controller(each.metadata, DEPLOYMENT) or each.metadata.uid for each in machine_sets}


def by_group(
    machines: Iterable[CapiMachine], machine_sets: Iterable[CapiResource], pools: Iterable[CapiResource] = ()
) -> dict[str, list[CapiMachine]]:
    """Resource UID -> its Machines, sorted by name. Machines without that chain (control plane, stand-alone) belong to
    no group."""
    owners = group_uids(machine_sets)
    pool_uids = {each.metadata.uid for each in pools}
    groups: dict[str, list[CapiMachine]] = {}
    for machine in sorted(machines, key=lambda each: each.metadata.name):
        pool = controller(machine.metadata, POOL)
        if uid := owners.get(controller(machine.metadata, SET)) or (pool if pool in pool_uids else ""):
            groups.setdefault(uid, []).append(machine)
    return groups
