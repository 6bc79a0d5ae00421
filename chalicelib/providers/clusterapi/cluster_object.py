"""What a Cluster object says about the groups of its cluster: that they rest, and whose size the topology sets.

Both reach a MachineDeployment only in part. A pause is mirrored into its conditions by newer versions alone (D29), and
a replicas field in the topology is not visible on it at all, yet the topology controller keeps resetting the size to
it (clusterapi.md §9): two would fight over one number.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.api_integers import Int32
from chalicelib.providers.clusterapi.models import Metadata


class Workers(msgspec.Struct, frozen=True):
    """One entry of spec.topology.workers; replicas None: whoever scales it may."""

    name: str = ""
    replicas: Int32 | None = None


class WorkersList(msgspec.Struct, frozen=True, rename="camel"):
    """spec.topology.workers."""

    machine_deployments: list[Workers] | None = None
    machine_pools: list[Workers] | None = None


class Topology(msgspec.Struct, frozen=True):
    """spec.topology."""

    workers: WorkersList | None = None


class ClusterSpec(msgspec.Struct, frozen=True):
    """spec of a Cluster."""

    paused: bool | None = None
    topology: Topology | None = None


class CapiCluster(msgspec.Struct, frozen=True):
    """A Cluster."""

    metadata: Metadata
    spec: ClusterSpec | None = None

    @property
    def paused(self) -> bool:
        """Whether nothing of it is reconciled. The annotation of that name on a Cluster stops its own object only."""
        return self.spec is not None and self.spec.paused is True

    @property
    def sized(self) -> Iterable[str]:
        """The names of the topology's entries that say how many machines there are to be."""
        topology = self.spec.topology if self.spec else None
        workers = topology.workers if topology else None
        entries = [*(workers.machine_deployments or ()), *(workers.machine_pools or ())] if workers else []
        return [each.name for each in entries if each.name and each.replicas is not None]


def paused(clusters: Iterable[CapiCluster]) -> frozenset[tuple[str, str]]:
    """(namespace, name) of those that rest."""
    return frozenset((each.metadata.namespace, each.metadata.name) for each in clusters if each.paused)


def topology_replicas(clusters: Iterable[CapiCluster]) -> frozenset[tuple[str, str, str]]:
    """(namespace, cluster, topology name) of the workers whose size the Cluster's topology sets.

    The topology name is the label `topology.cluster.x-k8s.io/deployment-name` of a MachineDeployment, and `pool-name`
    of a MachinePool.
    """
    return frozenset((each.metadata.namespace, each.metadata.name, name) for each in clusters for name in each.sized)
