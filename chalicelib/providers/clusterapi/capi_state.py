"""Reads all Cluster API objects once: one list per kind and namespace, independent of the number of groups and nodes.

An unreadable list becomes a gap, and `unread` records which kinds are missing where. A group whose Machines are unknown
is then reported as such and not as a group without machines.

A Machine's group follows from the chain of controllers, by UID. A selector would also match foreign and control-plane
Machines, and a name may be reused, but a UID may not. Label specs of discovery are not used here, because they apply to
the scalable resource only.

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

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from chalicelib.model.errors import MALFORMED
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.clusterapi.annotations import REVISION
from chalicelib.providers.clusterapi.api import CLUSTER, DEPLOYMENT, MACHINE, POOL, SET, CapiApi, decode
from chalicelib.providers.clusterapi.models import CapiCluster, CapiMachine, CapiResource, Metadata
from chalicelib.providers.errors import ProviderError, Transient, Unauthorized

ON_DELETE = "OnDelete"
T = TypeVar("T", CapiResource, CapiMachine, CapiCluster)

# In upstream's order of listing. Machines are not groups; they are read as the instances.
_KINDS: tuple[str, ...] = (SET, DEPLOYMENT, POOL)
_OPTIONAL = frozenset({DEPLOYMENT, POOL})  # may be missing from the API
_WEAKENS = {
    MACHINE: ("every group's instances",),
    SET: ("every MachineDeployment's instances",),
    DEPLOYMENT: ("which groups exist",),
    POOL: (),
    CLUSTER: (),  # an undetected pause only causes waiting, because no controller reconciles a paused cluster
}


class CapiState(msgspec.Struct, frozen=True):
    """unread: (kind, namespace) of failed lists, with the reason; namespace "" stands for all. clusters: (namespace,
    name) of all Clusters that were read. paused_clusters: of those whose spec pauses them. topology_replicas:
    (namespace, cluster, topology name) of workers whose size is set in their Cluster's topology."""

    resources: dict[str, tuple[CapiResource, ...]]
    machines: tuple[CapiMachine, ...]
    unread: dict[tuple[str, str], str] = {}
    gaps: tuple[MissingData, ...] = ()
    paused_clusters: frozenset[tuple[str, str]] = frozenset()
    topology_replicas: frozenset[tuple[str, str, str]] = frozenset()
    clusters: frozenset[tuple[str, str]] = frozenset()

    def missing(self, kind: str, namespace: str) -> str:
        """Return why the objects of that kind in that namespace are unknown, empty if they are known."""
        return self.unread.get((kind, namespace)) or self.unread.get((kind, ""), "")


def read_capi_state(api: CapiApi, served: frozenset[str], namespaces: Sequence[str]) -> CapiState:
    """List all kinds in all namespaces. Raises ProviderError if no kind of node group could be read anywhere. The
    Clusters are optional: a role without the right to list them only causes a gap."""
    reader = _CapiReader(api, namespaces)
    kinds = [kind for kind in _KINDS if kind in served or kind not in _OPTIONAL]
    resources = {kind: reader.all(kind, CapiResource) for kind in kinds}
    if reader.failed >= len(kinds) * len(namespaces):
        assert reader.last_error is not None
        raise _of_all_namespaces(reader.last_error) if namespaces == ("",) else reader.last_error
    machines = reader.all(MACHINE, CapiMachine)
    clusters = reader.all(CLUSTER, CapiCluster) if CLUSTER in served else ()
    return CapiState(
        resources,
        machines,
        reader.unread,
        tuple(reader.gaps),
        frozenset(cluster.key for cluster in clusters if cluster.paused),
        frozenset((*cluster.key, entry) for cluster in clusters for entry in cluster.sized),
        frozenset(cluster.key for cluster in clusters),
    )


def _of_all_namespaces(error: ProviderError) -> ProviderError:
    """Add the remedy for a role of one namespace, which may not list the whole cluster."""
    if not isinstance(error, Unauthorized) or error.code == "401":
        return error
    return Unauthorized(
        f"{error.message}; set namespace in providers.clusterapi, or apply infra/kubernetes/rbac-capi-management.yaml",
        code=error.code,
    )


class _CapiReader:
    """Collects the errors while reading."""

    def __init__(self, api: CapiApi, namespaces: Sequence[str]) -> None:
        self._api, self._namespaces = api, namespaces
        self.unread: dict[tuple[str, str], str] = {}
        self.gaps: list[MissingData] = []
        self.failed = 0
        self.last_error: ProviderError | None = None

    def all(self, kind: str, shape: type[T]) -> tuple[T, ...]:
        """Return the objects of a kind; failures are recorded, not raised."""
        objects: list[T] = []
        for namespace in self._namespaces:
            try:
                objects.extend(self._decoded(kind, shape, self._api.objects(kind, namespace)))
            except ProviderError as error:
                self.failed, self.last_error = self.failed + 1, error
                self.unread[kind, namespace] = f"{kind}s could not be listed: {error.message}"
                self.gaps.append(MissingData(kind, error.message, place=namespace, affected_decisions=_WEAKENS[kind]))
        return tuple(objects)

    def _decoded(self, kind: str, shape: type[T], items: Iterable[msgspec.Raw]) -> Iterable[T]:
        for index, item in enumerate(items):
            try:
                yield decode(item, shape)
            except Transient as error:
                self.gaps.append(MissingData(kind, error.message, name=_name(item), place=f"items[{index}]"))


class _WithMetadata(msgspec.Struct):
    metadata: Metadata


def _name(item: msgspec.Raw) -> str:
    try:
        metadata = msgspec.json.decode(item, type=_WithMetadata).metadata
    except MALFORMED:
        return ""
    return f"{metadata.namespace}/{metadata.name}"


# -- owners


def controller(metadata: Metadata, kind: str) -> str:
    """Return the UID of the owner of that kind that controls the object, empty if there is none."""
    owners = metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.kind == kind and owner.controller), "")


def has_deployment(machine_set: CapiResource) -> bool:
    """Whether a MachineDeployment owns the set. Such a set is never a node group itself, even if its MachineDeployment
    is filtered out or gone, because the two would be resized against each other."""
    return any(owner.kind == DEPLOYMENT and owner.name for owner in machine_set.metadata.owner_references or ())


def by_deployment(machine_sets: Iterable[CapiResource]) -> dict[str, list[CapiResource]]:
    """Return MachineDeployment UID -> the MachineSets that it controls."""
    sets: dict[str, list[CapiResource]] = {}
    for machine_set in machine_sets:
        if uid := controller(machine_set.metadata, DEPLOYMENT):
            sets.setdefault(uid, []).append(machine_set)
    return sets


def by_group(
    machines: Iterable[CapiMachine], machine_sets: Iterable[CapiResource], pools: Iterable[CapiResource] = ()
) -> dict[str, list[CapiMachine]]:
    """Return resource UID -> its Machines, sorted by name. Machines without that chain (control plane, stand-alone)
    belong to no group."""
    owners = {each.metadata.uid: controller(each.metadata, DEPLOYMENT) or each.metadata.uid for each in machine_sets}
    pool_uids = {pool.metadata.uid for pool in pools}
    groups: dict[str, list[CapiMachine]] = {}
    for machine in sorted(machines, key=lambda machine: machine.metadata.name):
        pool_uid = controller(machine.metadata, POOL)
        if uid := owners.get(controller(machine.metadata, SET)) or (pool_uid if pool_uid in pool_uids else ""):
            groups.setdefault(uid, []).append(machine)
    return groups


# -- rollouts


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
    """Return why removals must wait, empty if they need not. machine_sets: those the deployment controls. A set without
    a revision is ignored. A revision that is not a number makes the latest one unknown, so removals wait."""
    on_delete = deployment.strategy == ON_DELETE
    if deployment.is_true("RollingOut") and not on_delete:
        return "the MachineDeployment is rolling out"
    by_name = {machine_set.metadata.name: machine_set for machine_set in machine_sets}
    with_revision = [name for name in sorted(by_name) if REVISION in by_name[name].annotations]
    revisions = {name: _revision(by_name[name]) for name in with_revision}
    if odd := next((name for name in with_revision if revisions[name] < 0), ""):
        text = by_name[odd].annotations[REVISION]
        return f"MachineSet {odd} has the revision {text!r}, so the latest is not known"
    latest = max(revisions.values(), default=0)
    used = [name for name in with_revision if by_name[name].desired_or_present > 0]
    older = [name for name in used if revisions[name] != latest]
    if not older or (on_delete and len(used) == 1):
        return ""
    waits = "; its strategy is OnDelete, so they must be deleted manually" if on_delete else ""
    rests = "; it is paused (spec.paused), so they stay" if deployment.spec.paused else waits
    return f"MachineSet {older[0]} of an earlier revision still has machines{rests}"


def gives_way(kind: str, resource: CapiResource, machine_sets: Sequence[CapiResource]) -> CapiResource | None:
    """Return the one MachineSet that is scaled down with the resource, None if it is uncertain."""
    if kind != DEPLOYMENT:
        return resource
    requesting = [machine_set for machine_set in machine_sets if (machine_set.spec.replicas or 0) > 0]
    all_known = all(_revision(machine_set) >= 0 for machine_set in machine_sets)
    if len(requesting) > 1 and all_known and resource.strategy == ON_DELETE and not resource.spec.paused:
        newest = max(machine_sets, key=_revision)
        requesting = [machine_set for machine_set in requesting if machine_set is not newest]
    return requesting[0] if len(requesting) == 1 else None


def _revision(machine_set: CapiResource) -> int:
    text = machine_set.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else -1
