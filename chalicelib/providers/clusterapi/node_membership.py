"""Assigns each Node to a Cluster, by Cluster API's own objects first and by the Node's annotations last.

The owner of a kubelet writes the annotations and the providerID of its Node, so neither is proof by itself. Cluster
API's own objects take precedence over a Node's annotations, and one Node never has more than one vote.

    in descending order of certainty                                    the Node belongs to
    one Machine's nodeRef has its name, and the ids do not differ       that Machine's cluster
    one cluster's Machines or MachinePools list its providerID          that cluster
    its annotations cluster-name and cluster-namespace                  the cluster that they name
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.annotations import CapiAnnotations, is_label_value
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource
from chalicelib.providers.clusterapi.provider_ids import folded, same_id


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
    """Return the cluster with more than half of the votes; None if there is none.

    of: require more than half of this number instead, e.g. of all Nodes."""
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
