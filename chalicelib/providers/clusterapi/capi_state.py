"""Reads all Cluster API objects once, and determines which Cluster is the one being scaled.

There is one list per kind and namespace, independent of the number of groups and nodes. An
unreadable list becomes a gap, and `unread` records which kinds are missing where. A group whose
Machines are unknown is then reported as such and not as a group without machines.

A Machine's group follows from the chain of controllers, by UID. A selector would also match foreign
and control-plane Machines, and a name may be reused, but a UID may not. Label specs of discovery
are not used here, because they apply to the scalable resource only.

The annotation on a Machine decides within one MachineSet. Between several of them the
MachineDeployment decides, and not always for the one with the annotation, so a removal could delete
a healthy node. When its size is lowered:

    MachineSets that request machines        strategy        scaled down
    one                                      any             that one
    the newest and one older, or only older  RollingUpdate   a rollout: older and newest
                                                             alternately, as it decides
    several, and spec.paused                 any             all of them, in proportion
    the newest and one older                 OnDelete        the older one, as long as it requests
                                                             any
    two older                                OnDelete        the oldest of them first, by
                                                             a date that may be equal

Nothing is removed if the result is uncertain; otherwise only Machines of the set that is scaled
down. An OnDelete deployment waits until a user deletes its outdated Machines, possibly forever. As
long as all its Machines are of one set, outdated or not, it is scaled down like any other. If they
are of several sets, the outdated ones may be removed and the others are blocked individually.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from chalicelib.model.errors import MALFORMED
from chalicelib.model.label_syntax import is_label_value
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.clusterapi.api import (
    CLUSTER,
    DEPLOYMENT,
    HEALTH_CHECK,
    MACHINE,
    POOL,
    SET,
    CapiApi,
    decode,
)
from chalicelib.providers.clusterapi.instances import folded, same_id
from chalicelib.providers.clusterapi.models import (
    REVISION,
    CapiAnnotations,
    CapiCluster,
    CapiHealthCheck,
    CapiMachine,
    CapiResource,
    Metadata,
)
from chalicelib.providers.clusterapi.settings import Spec, cluster_names
from chalicelib.providers.kit.errors import ProviderError, Transient, Unauthorized
from chalicelib.reasons.words import some

ON_DELETE = "OnDelete"
T = TypeVar("T", CapiResource, CapiMachine, CapiCluster, CapiHealthCheck)

# In upstream's order of listing. Machines are not groups; they are read as the instances.
_KINDS: tuple[str, ...] = (SET, DEPLOYMENT, POOL)
_OPTIONAL = frozenset({DEPLOYMENT, POOL})  # may be missing from the API
_WEAKENS = {
    MACHINE: ("every group's instances",),
    SET: ("every MachineDeployment's instances",),
    DEPLOYMENT: ("which groups exist",),
    POOL: (),
    # an undetected pause only causes waiting, because no controller reconciles a paused cluster
    CLUSTER: (),
    HEALTH_CHECK: (),
}
# Kinds of which a failed list is no gap: only a repair needs them, and says so (machine_life.py).
_SILENT = frozenset({HEALTH_CHECK})


class CapiState(msgspec.Struct, frozen=True):
    """unread: (kind, namespace) of failed lists, with the reason; namespace "" stands for all.
    clusters: (namespace, name) of all Clusters that were read. paused_clusters: of those whose spec
    pauses them. topology_replicas: (namespace, cluster, topology name) of workers whose size is set
    in their Cluster's topology. failure_domains: (namespace, name) of a Cluster -> the names of its
    failure domains."""

    resources: dict[str, tuple[CapiResource, ...]]
    machines: tuple[CapiMachine, ...]
    unread: dict[tuple[str, str], str] = {}
    gaps: tuple[MissingData, ...] = ()
    paused_clusters: frozenset[tuple[str, str]] = frozenset()
    topology_replicas: frozenset[tuple[str, str, str]] = frozenset()
    clusters: frozenset[tuple[str, str]] = frozenset()
    health_checks: tuple[CapiHealthCheck, ...] = ()
    failure_domains: dict[tuple[str, str], tuple[str, ...]] = {}

    def missing(self, kind: str, namespace: str) -> str:
        """Return why the objects of that kind in that namespace are unknown,
        empty if they are known."""
        return self.unread.get((kind, namespace)) or self.unread.get((kind, ""), "")


def read_capi_state(api: CapiApi, served: frozenset[str], namespaces: Sequence[str]) -> CapiState:
    """List all kinds in all namespaces. Raises ProviderError if no kind of node group could be read
    anywhere. The Clusters are optional: a role without the right to list them only causes a gap. So
    are the MachineHealthChecks, without a gap."""
    reader = _CapiReader(api, namespaces)
    kinds = [kind for kind in _KINDS if kind in served or kind not in _OPTIONAL]
    resources = {kind: reader.all(kind, CapiResource) for kind in kinds}
    if reader.failed >= len(kinds) * len(namespaces):
        assert reader.last_error is not None
        raise _of_all_namespaces(reader.last_error) if namespaces == ("",) else reader.last_error
    machines = reader.all(MACHINE, CapiMachine)
    clusters = reader.all(CLUSTER, CapiCluster) if CLUSTER in served else ()
    checks = reader.all(HEALTH_CHECK, CapiHealthCheck) if HEALTH_CHECK in served else ()
    return CapiState(
        resources,
        machines,
        reader.unread,
        tuple(reader.gaps),
        frozenset(cluster.key for cluster in clusters if cluster.paused),
        frozenset((*cluster.key, entry) for cluster in clusters for entry in cluster.sized),
        frozenset(cluster.key for cluster in clusters),
        checks,
        {cluster.key: cluster.failure_domains for cluster in clusters},
    )


def _of_all_namespaces(error: ProviderError) -> ProviderError:
    """Add the remedy for a role of one namespace, which may not list the whole cluster."""
    if not isinstance(error, Unauthorized) or error.code == "401":
        return error
    return Unauthorized(
        (
            f"{error.message}; set namespace in providers.clusterapi, or apply outscaler manifests "
            "rbac-capi-all"
        ),
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
                if kind not in _SILENT:
                    gap = MissingData(
                        kind, error.message, place=namespace, affected_decisions=_WEAKENS[kind]
                    )
                    self.gaps.append(gap)
        return tuple(objects)

    def _decoded(self, kind: str, shape: type[T], items: Iterable[msgspec.Raw]) -> Iterable[T]:
        for index, item in enumerate(items):
            try:
                yield decode(item, shape)
            except Transient as error:
                self.gaps.append(
                    MissingData(kind, error.message, name=_name(item), place=f"items[{index}]")
                )


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
    """Whether a MachineDeployment owns the set. Such a set is never a node group itself,
    even if its MachineDeployment is filtered out or gone, because the two would be
    resized against each other."""
    return any(
        owner.kind == DEPLOYMENT and owner.name
        for owner in machine_set.metadata.owner_references or ()
    )


def by_deployment(machine_sets: Iterable[CapiResource]) -> dict[str, list[CapiResource]]:
    """Return MachineDeployment UID -> the MachineSets that it controls."""
    sets: dict[str, list[CapiResource]] = {}
    for machine_set in machine_sets:
        if uid := controller(machine_set.metadata, DEPLOYMENT):
            sets.setdefault(uid, []).append(machine_set)
    return sets


def by_group(
    machines: Iterable[CapiMachine],
    machine_sets: Iterable[CapiResource],
    pools: Iterable[CapiResource] = (),
) -> dict[str, list[CapiMachine]]:
    """Return resource UID -> its Machines, sorted by name. Machines without that chain (control
    plane, stand-alone) belong to no group."""
    owners = {
        each.metadata.uid: controller(each.metadata, DEPLOYMENT) or each.metadata.uid
        for each in machine_sets
    }
    pool_uids = {pool.metadata.uid for pool in pools}
    groups: dict[str, list[CapiMachine]] = {}
    for machine in sorted(machines, key=lambda machine: machine.metadata.name):
        pool_uid = controller(machine.metadata, POOL)
        if uid := owners.get(controller(machine.metadata, SET)) or (
            pool_uid if pool_uid in pool_uids else ""
        ):
            groups.setdefault(uid, []).append(machine)
    return groups


# -- rollouts


class Restraint(msgspec.Struct, frozen=True):
    """What must not be removed now. group: why nothing may be, empty if something may.
    only: UID of the MachineSet whose Machines may be removed, empty for all; others: why
    those of the other sets may not."""

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
    return Restraint(
        only=only.metadata.uid,
        others=f"MachineSet {only.metadata.name} would become smaller: {reason}",
    )


def rolling_out(deployment: CapiResource, machine_sets: Sequence[CapiResource]) -> str:
    """Return why removals must wait, empty if they need not. machine_sets: those the deployment
    controls. A set without a revision is ignored. A revision that is not a number makes the latest
    one unknown, so removals wait."""
    on_delete = deployment.strategy == ON_DELETE
    if deployment.is_true("RollingOut") and not on_delete:
        return "the MachineDeployment is rolling out"
    by_name = {machine_set.metadata.name: machine_set for machine_set in machine_sets}
    with_revision = [name for name in sorted(by_name) if REVISION in by_name[name].annotations]
    revisions = {name: revision_of(by_name[name]) for name in with_revision}
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


def gives_way(
    kind: str, resource: CapiResource, machine_sets: Sequence[CapiResource]
) -> CapiResource | None:
    """Return the one MachineSet that is scaled down with the resource, None if it is uncertain."""
    if kind != DEPLOYMENT:
        return resource
    requesting = [
        machine_set for machine_set in machine_sets if (machine_set.spec.replicas or 0) > 0
    ]
    all_known = all(revision_of(machine_set) >= 0 for machine_set in machine_sets)
    if (
        len(requesting) > 1
        and all_known
        and resource.strategy == ON_DELETE
        and not resource.spec.paused
    ):
        newest = max(machine_sets, key=revision_of)
        requesting = [machine_set for machine_set in requesting if machine_set is not newest]
    return requesting[0] if len(requesting) == 1 else None


def latest_revision(machine_sets: Iterable[CapiResource]) -> int:
    """Return the newest revision of a deployment's MachineSets; -1 if there is none, or if one is
    not a number. A set without a revision is ignored."""
    with_revision = [
        machine_set for machine_set in machine_sets if REVISION in machine_set.annotations
    ]
    revisions = [revision_of(machine_set) for machine_set in with_revision]
    return max(revisions) if revisions and min(revisions) >= 0 else -1


def revision_of(machine_set: CapiResource) -> int:
    """Return the revision of a MachineDeployment's MachineSet; -1 if it is
    missing or not a number."""
    text = machine_set.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else -1


# -- ownership One management cluster holds the objects of many clusters. A group of another cluster
# looks like machines that never joined, and such machines get deleted. A group is therefore used
# only if it certainly belongs to this cluster; in doubt there are no groups.
#
# A cluster named in the policy is authoritative. Annotations of Nodes are then only hints. Without
# a name in the policy, the cluster of more than half of the Nodes is used. The owner of a kubelet
# writes the annotations and the providerID of its Node, so neither is proof by itself. Cluster
# API's own objects take precedence over a Node's annotations, and one Node never has more than one
# vote.
#
#     in descending order of certainty                                    the Node belongs to
#     one Machine's nodeRef has its name, and the ids do not differ       that Machine's cluster
#     one cluster's Machines or MachinePools list its providerID          that cluster
#     its annotations cluster-name and cluster-namespace                  the cluster that they name

_SHOWN = 3  # maximum names in one gap
_NOTHING = CapiState({}, ())


class OwnCluster(msgspec.Struct, frozen=True, order=True):
    """Namespace and name of this cluster's Cluster object. namespace: empty if unknown."""

    namespace: str
    name: str


class Doubt(msgspec.Struct, frozen=True):
    """Why the cluster is unknown, with the remedy."""

    problem: str


class Ours(msgspec.Struct, frozen=True):
    """The result, with related warnings."""

    cluster: OwnCluster | Doubt
    gaps: tuple[MissingData, ...] = ()


def own_cluster(
    nodes: Sequence[Node],
    specs: Sequence[Spec],
    discovered: Iterable[OwnCluster],
    annotations: CapiAnnotations,
    state: CapiState = _NOTHING,
) -> Ours:
    """Return this cluster. discovered: the clusters of all resources that match the settings."""
    votes = _votes(nodes, state.machines, state.resources.get(POOL, ()), annotations)
    names = cluster_names(specs)
    # Labels of the specs are ignored, because they are on the groups, not on the Cluster.
    clusters = {
        OwnCluster(namespace, name)
        for namespace, name in state.clusters
        if any(spec.namespace in {"", namespace} and spec.cluster in {"", name} for spec in specs)
    }.union(discovered)
    cluster = _elected(votes, clusters) if names is None else _configured(votes, clusters, names)
    return Ours(cluster, () if isinstance(cluster, Doubt) else _contradictions(votes, cluster))


def _configured(
    votes: Sequence[Vote], clusters: Iterable[OwnCluster], names: frozenset[str]
) -> OwnCluster | Doubt:
    """Return the one cluster of these names, regardless of the Nodes' annotations. A
    Doubt if Cluster API has most Nodes as Machines of another cluster, because the
    settings then name the wrong one."""
    candidates = sorted(cluster for cluster in clusters if cluster.name in names)
    named = ", ".join(sorted(names))
    if not candidates:
        return Doubt(
            f"no Cluster, MachineDeployment, MachineSet or MachinePool of cluster {named} is in "
            "the namespaces searched"
        )
    if len(candidates) > 1:
        return _several(candidates)
    proven = _majority((vote for vote in votes if vote.proven), total=len(votes))
    if proven is not None and proven != candidates[0]:
        return Doubt(
            f"Cluster API has most Nodes as Machines of {_list([proven])}, but clusterName is "
            f"{named}: "
            "correct clusterName and namespace in providers.clusterapi"
        )
    return candidates[0]


def _elected(votes: Sequence[Vote], clusters: Iterable[OwnCluster]) -> OwnCluster | Doubt:
    """Return the cluster of more than half of the Nodes that belong to any cluster."""
    if not (counts := _tally(votes)):
        return Doubt(
            "no Node is a Machine's, and none carries a usable annotation cluster-name, so it is "
            "unknown whose "
            "MachineDeployments are this cluster's: set clusterName in providers.clusterapi"
        )
    winner = _majority(votes)
    if winner is None:
        shown = ", ".join(
            f"{_list([cluster])} ({count})" for cluster, count in list(counts.items())[:_SHOWN]
        )
        return Doubt(
            f"the Nodes are of several clusters, and none has more than half of them: {shown}: set "
            "clusterName and namespace in providers.clusterapi to the right one"
        )
    if winner.namespace:
        return winner
    candidates = sorted(cluster for cluster in clusters if cluster.name == winner.name)
    return _several(candidates) if len(candidates) > 1 else candidates[0] if candidates else winner


def _several(clusters: Sequence[OwnCluster]) -> Doubt:
    shown = some([_list([cluster]) for cluster in clusters], _SHOWN)
    return Doubt(
        f"{shown} could all be this cluster: set namespace and clusterName in "
        "providers.clusterapi to one of them"
    )


def _contradictions(votes: Sequence[Vote], own_cluster: OwnCluster) -> tuple[MissingData, ...]:
    """Report Nodes whose annotations name another cluster. They have no effect, but the
    operator should check them."""
    other = [
        (vote.node, vote.annotated)
        for vote in votes
        if vote.annotated and _is_other(vote.annotated, own_cluster)
    ]
    if not other:
        return ()
    text = (
        f"annotations of {some([node for node, _ in other], _SHOWN)} name the cluster "
        f"{_list(sorted({cluster for _, cluster in other})[:_SHOWN])}, and this cluster is "
        f"{_list([own_cluster])}: the "
        "annotations are ignored"
    )
    return (MissingData("Node", text, name=other[0][0]),)


def _is_other(cluster: OwnCluster, own_cluster: OwnCluster) -> bool:
    namespaces = {cluster.namespace, own_cluster.namespace}
    return cluster.name != own_cluster.name or ("" not in namespaces and len(namespaces) > 1)


def _list(clusters: Iterable[OwnCluster]) -> str:
    return ", ".join(f"{cluster.namespace}/{cluster.name}" for cluster in clusters)


# -- votes


class Vote(msgspec.Struct, frozen=True):
    """One Node's vote. cluster: the cluster of the Node. proven: by an object of Cluster
    API. annotated: the cluster in its annotations, even if another is proven; None for a
    Node without the annotation."""

    node: str
    cluster: OwnCluster | None
    proven: bool = False
    annotated: OwnCluster | None = None


def _votes(
    nodes: Iterable[Node],
    machines: Iterable[CapiMachine],
    pools: Iterable[CapiResource],
    annotations: CapiAnnotations,
) -> list[Vote]:
    """Return one vote per Node, in the order of the Nodes."""
    recorded, votes = _RecordedNodes(machines, pools, annotations), []
    for node in nodes:
        proven, annotated = recorded.cluster_of(node), _annotated_cluster(node, annotations)
        votes.append(Vote(node.name, proven or annotated, proven is not None, annotated))
    # Very old versions did not write the namespace, which is then completed from other Nodes.
    named: dict[str, set[OwnCluster]] = {}
    for vote in votes:
        if vote.cluster is not None and vote.cluster.namespace:
            named.setdefault(vote.cluster.name, set()).add(vote.cluster)
    for index, vote in enumerate(votes):
        if vote.cluster is not None and not vote.cluster.namespace:
            candidates = named.get(vote.cluster.name, set())
            if len(candidates) == 1:
                votes[index] = msgspec.structs.replace(vote, cluster=next(iter(candidates)))
    return votes


def _majority(votes: Iterable[Vote], total: int = 0) -> OwnCluster | None:
    """Return the cluster with more than half of the votes; None if there is none. total: require
    more than half of this number instead, e.g. of all Nodes."""
    counts = _tally(votes)
    total = total or sum(counts.values())
    return next((cluster for cluster, count in counts.items() if count * 2 > total), None)


def _tally(votes: Iterable[Vote]) -> Mapping[OwnCluster, int]:
    """Return the number of votes of each cluster, highest first, ties by name."""
    counts = Counter(vote.cluster for vote in votes if vote.cluster is not None)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class _RecordedNodes:
    """The clusters of Nodes according to Cluster API's objects. Objects without a
    cluster name are ignored."""

    def __init__(
        self,
        machines: Iterable[CapiMachine],
        pools: Iterable[CapiResource],
        annotations: CapiAnnotations,
    ) -> None:
        self._by_name: dict[str, list[tuple[str, OwnCluster]]] = {}
        self._by_id: dict[str, set[OwnCluster]] = {}
        for machine in machines:
            cluster = OwnCluster(machine.metadata.namespace, machine.cluster(annotations))
            provider_id = machine.spec.provider_id or ""
            if cluster.name and provider_id:
                if name := machine.node_name:
                    self._by_name.setdefault(name, []).append((provider_id, cluster))
                self._by_id.setdefault(folded(provider_id), set()).add(cluster)
        for pool in pools:
            cluster = OwnCluster(pool.metadata.namespace, pool.cluster(annotations))
            for provider_id in pool.listed if cluster.name else ():
                self._by_id.setdefault(folded(provider_id), set()).add(cluster)

    def cluster_of(self, node: Node) -> OwnCluster | None:
        """Return the one cluster whose objects refer to this Node."""
        if not node.provider_id:
            return None
        referring = {
            cluster
            for provider_id, cluster in self._by_name.get(node.name, ())
            if same_id(provider_id, node.provider_id)
        }
        clusters = referring or self._by_id.get(folded(node.provider_id), set())
        return next(iter(clusters)) if len(clusters) == 1 else None


def _annotated_cluster(node: Node, annotations: CapiAnnotations) -> OwnCluster | None:
    """Return the cluster in the Node's annotations; None if it is not a valid name of a Cluster."""
    name = node.annotations.get(annotations.cluster_name, "")
    namespace = node.annotations.get(annotations.cluster_namespace, "")
    valid = name and is_label_value(name) and is_label_value(namespace)
    return OwnCluster(namespace, name) if valid else None
