"""Reads from a Cluster object whether its groups are paused, and which sizes its topology sets.

Neither is fully visible on a MachineDeployment. Only newer versions copy a pause into its conditions. A replicas field
in the topology is not visible on it at all, yet the topology controller keeps resetting the size to it, so it would
compete with Outscaler (Cluster API book, managed topologies).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.api_integers import Int32
from chalicelib.providers.clusterapi.models import Metadata


class Workers(msgspec.Struct, frozen=True):
    """One entry of spec.topology.workers; replicas None: an autoscaler may set the size."""

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
        """Whether reconciliation of the cluster's objects is paused. The paused annotation on a Cluster stops only that
        object."""
        return self.spec is not None and self.spec.paused is True

    @property
    def sized(self) -> Iterable[str]:
        """The names of the topology's entries that set a number of machines."""
        topology = self.spec.topology if self.spec else None
        workers = topology.workers if topology else None
        entries = [*(workers.machine_deployments or ()), *(workers.machine_pools or ())] if workers else []
        return [each.name for each in entries if each.name and each.replicas is not None]


def paused(clusters: Iterable[CapiCluster]) -> frozenset[tuple[str, str]]:
    """Return (namespace, name) of the paused clusters."""
    return frozenset((each.metadata.namespace, each.metadata.name) for each in clusters if each.paused)


def topology_replicas(clusters: Iterable[CapiCluster]) -> frozenset[tuple[str, str, str]]:
    """Return (namespace, cluster, topology name) of the workers whose size the Cluster's topology sets.

    The topology name is the label `topology.cluster.x-k8s.io/deployment-name` of a MachineDeployment, and `pool-name`
    of a MachinePool.
    """
    return frozenset((each.metadata.namespace, each.metadata.name, name) for each in clusters for name in each.sized)
