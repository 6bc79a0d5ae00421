"""Determines which Cluster in the management API is the one being scaled.

One management cluster holds the objects of many clusters. A group of another cluster looks like machines that never
joined, and such machines get deleted. A group is therefore used only if it certainly belongs to this cluster; in doubt
there are no groups.

A cluster named in the policy is authoritative. Annotations of Nodes are then only hints. Without a name in the policy,
the cluster of more than half of the Nodes is used. The owner of a kubelet writes the annotations and the providerID of
its Node, so neither is proof by itself. Cluster API's own objects take precedence over a Node's annotations, and one
Node never has more than one vote.

    in descending order of certainty                                    the Node belongs to
    one Machine's nodeRef has its name, and the ids do not differ       that Machine's cluster
    one cluster's Machines or MachinePools list its providerID          that cluster
    its annotations cluster-name and cluster-namespace                  the cluster that they name
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.clusterapi.annotations import CapiAnnotations, is_label_value
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.capi_state import CapiState
from chalicelib.providers.clusterapi.discovery import Spec, cluster_names
from chalicelib.providers.clusterapi.instances import folded, same_id
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource

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


def _configured(votes: Sequence[Vote], clusters: Iterable[OwnCluster], names: frozenset[str]) -> OwnCluster | Doubt:
    """Return the one cluster of these names, regardless of the Nodes' annotations. A Doubt if Cluster API has most
    Nodes as Machines of another cluster, because the settings then name the wrong one."""
    candidates = sorted(cluster for cluster in clusters if cluster.name in names)
    named = ", ".join(sorted(names))
    if not candidates:
        return Doubt(
            f"no Cluster, MachineDeployment, MachineSet or MachinePool of cluster {named} is in the namespaces searched"
        )
    if len(candidates) > 1:
        return _several(candidates)
    proven = _majority((vote for vote in votes if vote.proven), total=len(votes))
    if proven is not None and proven != candidates[0]:
        return Doubt(
            f"Cluster API has most Nodes as Machines of {_list([proven])}, but clusterName is {named}: "
            "correct clusterName and namespace in providers.clusterapi"
        )
    return candidates[0]


def _elected(votes: Sequence[Vote], clusters: Iterable[OwnCluster]) -> OwnCluster | Doubt:
    """Return the cluster of more than half of the Nodes that belong to any cluster."""
    if not (counts := _tally(votes)):
        return Doubt(
            "no Node is a Machine's, and none carries a usable annotation cluster-name, so it is unknown whose "
            "MachineDeployments are this cluster's: set clusterName in providers.clusterapi"
        )
    winner = _majority(votes)
    if winner is None:
        shown = ", ".join(f"{_list([cluster])} ({count})" for cluster, count in list(counts.items())[:_SHOWN])
        return Doubt(
            f"the Nodes are of several clusters, and none has more than half of them: {shown}: set "
            "clusterName and namespace in providers.clusterapi to the right one"
        )
    if winner.namespace:
        return winner
    candidates = sorted(cluster for cluster in clusters if cluster.name == winner.name)
    return _several(candidates) if len(candidates) > 1 else candidates[0] if candidates else winner


def _several(clusters: Sequence[OwnCluster]) -> Doubt:
    more = f" and {len(clusters) - _SHOWN} more" if len(clusters) > _SHOWN else ""
    return Doubt(
        f"{_list(clusters[:_SHOWN])}{more} could all be this cluster: set namespace and clusterName in "
        "providers.clusterapi to one of them"
    )


def _contradictions(votes: Sequence[Vote], own_cluster: OwnCluster) -> tuple[MissingData, ...]:
    """Report Nodes whose annotations name another cluster. They have no effect, but the operator should check them."""
    other = [(vote.node, vote.annotated) for vote in votes if vote.annotated and _is_other(vote.annotated, own_cluster)]
    if not other:
        return ()
    more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
    text = (
        f"annotations of {', '.join(node for node, _ in other[:_SHOWN])}{more} name the cluster "
        f"{_list(sorted({cluster for _, cluster in other})[:_SHOWN])}, and this cluster is {_list([own_cluster])}: the "
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
    """One Node's vote. cluster: the cluster of the Node. proven: by an object of Cluster API. annotated: the cluster in
    its annotations, even if another is proven; None for a Node without the annotation."""

    node: str
    cluster: OwnCluster | None
    proven: bool = False
    annotated: OwnCluster | None = None


def _votes(
    nodes: Iterable[Node], machines: Iterable[CapiMachine], pools: Iterable[CapiResource], annotations: CapiAnnotations
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
    """Return the cluster with more than half of the votes; None if there is none. total: require more than half of this
    number instead, e.g. of all Nodes."""
    counts = _tally(votes)
    total = total or sum(counts.values())
    return next((cluster for cluster, count in counts.items() if count * 2 > total), None)


def _tally(votes: Iterable[Vote]) -> Mapping[OwnCluster, int]:
    """Return the number of votes of each cluster, highest first, ties by name."""
    counts = Counter(vote.cluster for vote in votes if vote.cluster is not None)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class _RecordedNodes:
    """The clusters of Nodes according to Cluster API's objects. Objects without a cluster name are ignored."""

    def __init__(
        self, machines: Iterable[CapiMachine], pools: Iterable[CapiResource], annotations: CapiAnnotations
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
