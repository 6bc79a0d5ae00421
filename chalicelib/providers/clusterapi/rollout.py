"""Determines whether a MachineDeployment is replacing its Machines, and which of its MachineSets is scaled down.

The annotation on a Machine decides within one MachineSet. Between several of them the MachineDeployment decides, and
not always for the one with the annotation, so a removal could delete a healthy node. When its size is lowered:

    MachineSets that request machines        strategy        scaled down
    one                                      any             that one
    the newest and one older, or only older  RollingUpdate   a rollout: older and newest alternately, as it decides
    several, and spec.paused                 any             all of them, in proportion
    the newest and one older                 OnDelete        the older one, as long as it requests any
    two older                                OnDelete        the oldest of them first, by a date that may be equal

Nothing is removed if the result is uncertain; otherwise only Machines of the set that is scaled down. An OnDelete
deployment waits until a user deletes its outdated Machines, possibly forever. As long as all its Machines are of one
set, outdated or not, it is scaled down like any other. If they are of several sets, the outdated ones may be removed
and the others are blocked individually.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.providers.clusterapi.annotations import REVISION
from chalicelib.providers.clusterapi.api import DEPLOYMENT
from chalicelib.providers.clusterapi.models import CapiResource

ON_DELETE = "OnDelete"


class Restraint(msgspec.Struct, frozen=True):
    """What must not be removed now. group: why nothing may be, empty if something may. only: UID of the MachineSet
    whose Machines may be removed, empty for all; others: why those of the other sets may not."""

    group: str = ""
    only: str = ""
    others: str = ""


def restraint(deployment: CapiResource, machine_sets: Sequence[CapiResource]) -> Restraint:
    """Apply the table above to a deployment and the MachineSets that it controls."""
    reason = rolling_out(deployment, machine_sets)
    if not reason or deployment.strategy != ON_DELETE:
        return Restraint(reason)
    only = gives_way(DEPLOYMENT, deployment, machine_sets)
    if only is None:
        return Restraint(reason)
    return Restraint(only=only.metadata.uid, others=f"MachineSet {only.metadata.name} would become smaller: {reason}")


def rolling_out(deployment: CapiResource, machine_sets: Sequence[CapiResource]) -> str:
    """Return why removals must wait, empty if they need not. machine_sets: those the deployment controls.

    A set without a revision is ignored. A revision that is not a number makes the latest one unknown, so removals wait.
    """
    on_delete = deployment.strategy == ON_DELETE
    if deployment.is_true("RollingOut") and not on_delete:
        return "the MachineDeployment is rolling out"
    revisions: dict[str, int] = {}
    by_name = {each.metadata.name: each for each in machine_sets}
    for name, each in sorted(by_name.items()):
        text = each.annotations.get(REVISION)
        if text is None:
            continue
        if not text.isascii() or not text.isdigit():
            return f"MachineSet {name} has the revision {text!r}, so the latest is not known"
        revisions[name] = int(text)
    latest = max(revisions.values(), default=0)
    there = [name for name in revisions if by_name[name].desired_or_present > 0]
    older = [name for name in there if revisions[name] != latest]
    if not older or (on_delete and len(there) == 1):
        return ""
    waits = "; its strategy is OnDelete, so they must be deleted manually" if on_delete else ""
    rests = "; it is paused (spec.paused), so they stay" if deployment.spec.paused else waits
    return f"MachineSet {older[0]} of an earlier revision still has machines{rests}"


def gives_way(kind: str, resource: CapiResource, machine_sets: Sequence[CapiResource]) -> CapiResource | None:
    """Return the one MachineSet that is scaled down with the resource, None if it is uncertain."""
    if kind != DEPLOYMENT:
        return resource
    asking = [each for each in machine_sets if (each.spec.replicas or 0) > 0]
    known = all(_revision(each) >= 0 for each in machine_sets)
    if len(asking) > 1 and known and resource.strategy == ON_DELETE and not resource.spec.paused:
        newest = max(machine_sets, key=_revision)
        asking = [each for each in asking if each is not newest]
    return asking[0] if len(asking) == 1 else None


def _revision(machine_set: CapiResource) -> int:
    text = machine_set.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else -1
