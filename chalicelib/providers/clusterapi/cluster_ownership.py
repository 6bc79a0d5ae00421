"""Determines which Cluster in the management API is the one being scaled.

One management cluster holds the objects of many clusters. A group of another cluster looks like machines that never
joined, and such machines get deleted. A group is therefore used only if it certainly belongs to this cluster; in doubt
there are no groups.

A cluster named in the policy is authoritative. Annotations of Nodes are then only hints, because the owner of a kubelet
can write them. Without a name in the policy, the cluster of more than half of the Nodes is used (node_membership.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.clusterapi.annotations import CapiAnnotations
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.capi_state import CapiState
from chalicelib.providers.clusterapi.discovery import Spec, cluster_names
from chalicelib.providers.clusterapi.node_membership import OwnCluster, Vote, most, tally, votes

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
    """Return the one cluster of these names, regardless of the Nodes' annotations.

    A Doubt if Cluster API has most Nodes as Machines of another cluster, because the settings then name the wrong one.
    """
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
