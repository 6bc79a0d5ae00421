"""Reads all Cluster API objects once: one list per kind and namespace, independent of the number of groups and nodes.

An unreadable list becomes a gap, and `unread` records which kinds are missing where. A group whose Machines are unknown
is then reported as such and not as a group without machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from chalicelib.model.errors import MALFORMED
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.clusterapi.api import CLUSTER, DEPLOYMENT, MACHINE, POOL, SET, CapiApi, decode
from chalicelib.providers.clusterapi.cluster_object import CapiCluster, paused, topology_replicas
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, Metadata
from chalicelib.providers.errors import ProviderError, Transient, Unauthorized

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
    """unread: (kind, namespace) of failed lists, with the reason; namespace "" stands for all.

    clusters: (namespace, name) of all Clusters that were read. paused_clusters: of those whose spec pauses them.
    topology_replicas: (namespace, cluster, topology name) of workers whose size is set in their Cluster's topology
    (cluster_object.py).
    """

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
    """List all kinds in all namespaces. Raises ProviderError if no kind of node group could be read anywhere.

    The Clusters are optional: a role without the right to list them only causes a gap.
    """
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
        paused(clusters),
        topology_replicas(clusters),
        frozenset((each.metadata.namespace, each.metadata.name) for each in clusters),
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
        found: list[T] = []
        for namespace in self._namespaces:
            try:
                found.extend(self._decoded(kind, shape, self._api.objects(kind, namespace)))
            except ProviderError as error:
                self.failed += 1
                self.last_error = error
                self.unread[kind, namespace] = f"{kind}s could not be listed: {error.message}"
                self.gaps.append(MissingData(kind, error.message, place=namespace, affected_decisions=_WEAKENS[kind]))
        return tuple(found)

    def _decoded(self, kind: str, shape: type[T], items: Iterable[msgspec.Raw]) -> Iterable[T]:
        for index, item in enumerate(items):
            try:
                yield decode(item, shape)
            except Transient as error:
                self.gaps.append(MissingData(kind, error.message, name=_name(item), place=f"items[{index}]"))


class _Named(msgspec.Struct):
    metadata: Metadata


def _name(item: msgspec.Raw) -> str:
    try:
        metadata = msgspec.json.decode(item, type=_Named).metadata
    except MALFORMED:
        return ""
    return f"{metadata.namespace}/{metadata.name}"
