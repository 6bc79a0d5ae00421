"""Which of the clusters in this API is ours? (clusterapi.md D4)

One management cluster holds the objects of many clusters. A group of another cluster looks like machines that never
joined, and such machines get deleted; so a group counts only if it is known to be ours, and doubt means: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.discovery import Spec, cluster_names
from chalicelib.providers.clusterapi.keys import Keys


class OwnCluster(msgspec.Struct, frozen=True):
    """Our Cluster object: where it is and what it is called."""

    namespace: str
    name: str


class Doubt(msgspec.Struct, frozen=True):
    """Why it is not known, and what would settle it."""

    problem: str


def own_cluster(
    nodes: Iterable[Node], specs: Sequence[Spec], discovered: Iterable[OwnCluster], keys: Keys
) -> OwnCluster | Doubt:
    """Our cluster by what Cluster API wrote on our Nodes; with no such Node, by the clusterName of the settings.

    discovered: the clusters of all resources that match the settings.
    """
    written = {
        OwnCluster(node.annotations.get(keys.cluster_namespace, ""), node.annotations[keys.cluster_name])
        for node in nodes
        if node.annotations.get(keys.cluster_name)
    }
    configured = cluster_names(specs)
    if written:
        ours = [each for each in _placed(written) if configured is None or each.name in configured]
        if not ours:
            return Doubt(
                f"the Nodes belong to {_list(written)}, but clusterName is {', '.join(sorted(configured or ()))}: "
                "correct clusterName in providers.clusterapi"
            )
        return _single(ours)
    if configured is None:
        return Doubt(
            f"no Node carries the annotation {keys.cluster_name}, so it is unknown whose MachineDeployments are this "
            "cluster's: set clusterName in providers.clusterapi"
        )
    found = {each for each in discovered if each.name in configured}
    return _single(list(found)) if found else Doubt(
        f"no MachineDeployment, MachineSet or MachinePool of cluster {', '.join(sorted(configured))} is in the "
        "namespaces searched"
    )


def _placed(written: set[OwnCluster]) -> set[OwnCluster]:
    """Without those whose namespace is left open, where another Node tells it: very old versions did not write it."""
    known = {each.name for each in written if each.namespace}
    return {each for each in written if each.namespace or each.name not in known}


def _single(found: Sequence[OwnCluster]) -> OwnCluster | Doubt:
    if len(found) == 1:
        return found[0]
    return Doubt(
        f"{_list(found)} could all be this cluster: set namespace and clusterName in providers.clusterapi to one of "
        "them"
    )


def _list(clusters: Iterable[OwnCluster]) -> str:
    return ", ".join(sorted(f"{each.namespace}/{each.name}" for each in clusters))
