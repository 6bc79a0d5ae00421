"""Determines which Cluster in the management API is the one being scaled.

One management cluster holds the objects of many clusters. A group of another cluster looks like machines that never
joined, and such machines get deleted. A group is therefore used only if it certainly belongs to this cluster; in doubt
there are no groups.

A cluster named in the policy is authoritative. Annotations of Nodes are then only hints, because the owner of a kubelet
can write them. Without a name in the policy, the cluster of more than half of the Nodes is used (node_membership.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

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
    cast = votes(nodes, state.machines, state.resources.get(POOL, ()), annotations)
    names = cluster_names(specs)
    seen = {*discovered, *(each for each in map(_as_own, state.clusters) if _is_meant(each, specs))}
    found = _elected(cast, seen) if names is None else _configured(cast, seen, names)
    return Ours(found, () if isinstance(found, Doubt) else _odd(cast, found))


def _as_own(cluster: tuple[str, str]) -> OwnCluster:
    return OwnCluster(*cluster)


def _is_meant(cluster: OwnCluster, specs: Sequence[Spec]) -> bool:
    """Whether the settings may refer to this cluster. Labels are ignored, because they are on the groups, not on the
    Cluster."""
    return any(spec.namespace in {"", cluster.namespace} and spec.cluster in {"", cluster.name} for spec in specs)


def _configured(cast: Sequence[Vote], seen: Iterable[OwnCluster], names: frozenset[str]) -> OwnCluster | Doubt:
    """Return the one cluster of these names, regardless of the Nodes' annotations. A Doubt if Cluster API has most
    Nodes as Machines of another cluster, because the settings then name the wrong one."""
    found = sorted({each for each in seen if each.name in names}, key=_order)
    named = ", ".join(sorted(names))
    if not found:
        return Doubt(
            f"no Cluster, MachineDeployment, MachineSet or MachinePool of cluster {named} is in the namespaces searched"
        )
    if len(found) > 1:
        return _several(found)
    proven = most((each for each in cast if each.proven), of=len(cast))
    if proven is not None and proven != found[0]:
        return Doubt(
            f"Cluster API has most Nodes as Machines of {_list([proven])}, but clusterName is {named}: "
            "correct clusterName and namespace in providers.clusterapi"
        )
    return found[0]


def _elected(cast: Sequence[Vote], seen: Iterable[OwnCluster]) -> OwnCluster | Doubt:
    """Return the cluster of more than half of the Nodes that belong to any cluster."""
    if not (counts := tally(cast)):
        return Doubt(
            "no Node is a Machine's, and none carries a usable annotation cluster-name, so it is unknown whose "
            "MachineDeployments are this cluster's: set clusterName in providers.clusterapi"
        )
    winner = most(cast)
    if winner is None:
        shown = ", ".join(f"{_list([each])} ({count})" for each, count in list(counts.items())[:_SHOWN])
        return Doubt(
            f"the Nodes are of several clusters, and none has more than half of them: {shown}: set "
            "clusterName and namespace in providers.clusterapi to the right one"
        )
    if winner.namespace:
        return winner
    found = sorted({each for each in seen if each.name == winner.name}, key=_order)
    return _several(found) if len(found) > 1 else found[0] if found else winner


def _several(found: Sequence[OwnCluster]) -> Doubt:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Doubt(
        f"{_list(found[:_SHOWN])}{more} could all be this cluster: set namespace and clusterName in "
        "providers.clusterapi to one of them"
    )


def _odd(cast: Sequence[Vote], own_cluster: OwnCluster) -> tuple[MissingData, ...]:
    """Report Nodes whose annotations name another cluster. They have no effect, but the operator should check them."""
    odd = [each for each in cast if each.said is not None and _is_other(each.said, own_cluster)]
    if not odd:
        return ()
    more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
    said = sorted({each.said for each in odd if each.said is not None}, key=_order)[:_SHOWN]
    return (
        MissingData(
            "Node",
            f"annotations of {', '.join(each.node for each in odd[:_SHOWN])}{more} name the cluster "
            f"{_list(said)}, and this cluster is {_list([own_cluster])}: the annotations are ignored",
            name=odd[0].node,
        ),
    )


def _is_other(cluster: OwnCluster, own_cluster: OwnCluster) -> bool:
    namespaces = {cluster.namespace, own_cluster.namespace}
    return cluster.name != own_cluster.name or ("" not in namespaces and len(namespaces) > 1)


def _order(cluster: OwnCluster) -> tuple[str, str]:
    return cluster.namespace, cluster.name


def _list(clusters: Iterable[OwnCluster]) -> str:
    return ", ".join(f"{each.namespace}/{each.name}" for each in clusters)


class OwnCluster(msgspec.Struct, frozen=True):
    """Namespace and name of this cluster's Cluster object. namespace: empty if unknown."""

    namespace: str
    name: str


class Vote(msgspec.Struct, frozen=True):
    """One Node's vote. cluster: the cluster of the Node. proven: by an object of Cluster API. said: the cluster in its
    annotations, even if another is proven; None for a Node without the annotation."""

    node: str
    cluster: OwnCluster | None
    proven: bool = False
    said: OwnCluster | None = None


def votes(
    nodes: Iterable[Node], machines: Iterable[CapiMachine], pools: Iterable[CapiResource], annotations: CapiAnnotations
) -> list[Vote]:
    """Return one vote per Node, in the order of the Nodes."""
    known = _Known(machines, pools, annotations)
    found = [_vote(node, known, annotations) for node in nodes]
    named: dict[str, set[OwnCluster]] = {}
    for each in found:
        if each.cluster is not None and each.cluster.namespace:
            named.setdefault(each.cluster.name, set()).add(each.cluster)
    return [msgspec.structs.replace(each, cluster=_placed(each.cluster, named)) for each in found]


def most(found: Iterable[Vote], of: int = 0) -> OwnCluster | None:
    """Return the cluster with more than half of the votes; None if there is none. of: require more than half of this
    number instead, e.g. of all Nodes."""
    counts = tally(found)
    total = of or sum(counts.values())
    return next((cluster for cluster, count in counts.items() if count * 2 > total), None)


def tally(found: Iterable[Vote]) -> Mapping[OwnCluster, int]:
    """Return the number of votes of each cluster, highest first, ties by name."""
    counts = Counter(each.cluster for each in found if each.cluster is not None)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0].namespace, item[0].name)))


class _Known:
    """The clusters of Nodes according to Cluster API's objects. Objects without a cluster name are ignored."""

    def __init__(
        self, machines: Iterable[CapiMachine], pools: Iterable[CapiResource], annotations: CapiAnnotations
    ) -> None:
        self._named: dict[str, list[tuple[str, OwnCluster]]] = {}
        self._listed: dict[str, set[OwnCluster]] = {}
        for machine in machines:
            cluster = OwnCluster(machine.metadata.namespace, machine.cluster(annotations))
            provider_id = machine.spec.provider_id or ""
            if cluster.name and provider_id:
                if name := machine.node_name:
                    self._named.setdefault(name, []).append((provider_id, cluster))
                self._listed.setdefault(folded(provider_id), set()).add(cluster)
        for pool in pools:
            cluster = OwnCluster(pool.metadata.namespace, pool.cluster(annotations))
            for provider_id in pool.listed if cluster.name else ():
                self._listed.setdefault(folded(provider_id), set()).add(cluster)

    def of(self, node: Node) -> OwnCluster | None:
        """Return the one cluster whose objects refer to this Node."""
        if not node.provider_id:
            return None
        sure = {
            cluster for provider_id, cluster in self._named.get(node.name, ()) if same_id(provider_id, node.provider_id)
        }
        found = sure or self._listed.get(folded(node.provider_id), set())
        return next(iter(found)) if len(found) == 1 else None


def _vote(node: Node, known: _Known, annotations: CapiAnnotations) -> Vote:
    said, proven = _said(node, annotations), known.of(node)
    return Vote(node.name, proven or said, proven is not None, said)


def _said(node: Node, annotations: CapiAnnotations) -> OwnCluster | None:
    """Return the cluster in the Node's annotations; None if it is not a valid name of a Cluster."""
    name, namespace = (
        node.annotations.get(annotations.cluster_name, ""),
        node.annotations.get(annotations.cluster_namespace, ""),
    )
    if not name or not is_label_value(name) or not is_label_value(namespace):
        return None
    return OwnCluster(namespace, name)


def _placed(cluster: OwnCluster | None, named: Mapping[str, Collection[OwnCluster]]) -> OwnCluster | None:
    """Complete a missing namespace from other Nodes, because very old versions did not write it."""
    if cluster is None or cluster.namespace:
        return cluster
    known = named.get(cluster.name, ())
    return next(iter(known)) if len(known) == 1 else cluster
