"""Reads a live cluster into a snapshot, by one ordered table of what is read and of what depends on it.

Nodes and pods are required: without them no plan is possible, and ClusterError gives the reason. Everything else makes
verdicts more certain. If the cluster forbids it or does not serve it, the snapshot has a gap that names those verdicts,
and the pass continues. The read rules in infra/kubernetes/rbac-workload.yaml come from the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import ClusterError, Forbidden, NotFound, Unavailable
from chalicelib.kube.list_page import Page
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, PLURAL
from chalicelib.snapshot import horizontal_node_autoscalers
from chalicelib.snapshot.snapshot_builder import SnapshotBuilder
from chalicelib.snapshot.storage import NAMESPACE, PRIORITIES

_READERS = 4
_STORAGE = "storage.k8s.io"
_CONTROLLERS = ("BlockedByPod ControllerNotFound", "BlockedByPod MinReplicasReached")


class ListedResource(msgspec.Struct, frozen=True):
    """One list to read. weakens: the verdicts that are less certain without it; required: there is no plan without
    it."""

    kind: str
    group: str
    plural: str
    path: str
    query: Mapping[str, str] = {}
    required: bool = False
    weakens: tuple[str, ...] = ()


# In the order of reading. Nodes come from the server's watch cache (resourceVersion 0), as Cluster Autoscaler's
# informers see them; pods come from the store, because the cache ignores `limit` on many versions and pods are
# numerous.
RESOURCES: tuple[ListedResource, ...] = (
    ListedResource("Node", "", "nodes", "/api/v1/nodes", {"resourceVersion": "0"}, required=True),
    ListedResource(
        "Pod",
        "",
        "pods",
        "/api/v1/pods",
        {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
        required=True,
    ),
    ListedResource(
        "DaemonSet",
        "apps",
        "daemonsets",
        "/apis/apps/v1/daemonsets",
        weakens=("scale-up: DaemonSet pods on new nodes", *_CONTROLLERS),
    ),
    ListedResource("ReplicaSet", "apps", "replicasets", "/apis/apps/v1/replicasets", weakens=_CONTROLLERS),
    ListedResource("StatefulSet", "apps", "statefulsets", "/apis/apps/v1/statefulsets", weakens=_CONTROLLERS),
    ListedResource("Job", "batch", "jobs", "/apis/batch/v1/jobs", weakens=_CONTROLLERS),
    ListedResource(
        "ReplicationController", "", "replicationcontrollers", "/api/v1/replicationcontrollers", weakens=_CONTROLLERS
    ),
    ListedResource(
        "PodDisruptionBudget",
        "policy",
        "poddisruptionbudgets",
        "/apis/policy/v1/poddisruptionbudgets",
        weakens=("BlockedByPod NotEnoughPdb",),
    ),
    ListedResource(
        "Namespace", "", "namespaces", "/api/v1/namespaces", weakens=("inter-pod affinity by namespaceSelector",)
    ),
    ListedResource(
        "PersistentVolumeClaim",
        "",
        "persistentvolumeclaims",
        "/api/v1/persistentvolumeclaims",
        weakens=("scale-up: pods with claims on volumes",),
    ),
    ListedResource(
        "PersistentVolume",
        "",
        "persistentvolumes",
        "/api/v1/persistentvolumes",
        weakens=("scale-up: pods with claims on volumes",),
    ),
    ListedResource(
        "StorageClass",
        _STORAGE,
        "storageclasses",
        f"/apis/{_STORAGE}/v1/storageclasses",
        weakens=("scale-up: pods with claims that are not bound yet",),
    ),
    ListedResource("CSINode", _STORAGE, "csinodes", f"/apis/{_STORAGE}/v1/csinodes", weakens=("MaxVolumeCount",)),
    ListedResource(
        "CSIDriver", _STORAGE, "csidrivers", f"/apis/{_STORAGE}/v1/csidrivers", weakens=("NotEnoughStorage",)
    ),
    ListedResource(
        "CSIStorageCapacity",
        _STORAGE,
        "csistoragecapacities",
        f"/apis/{_STORAGE}/v1/csistoragecapacities",
        weakens=("NotEnoughStorage",),
    ),
)
# Read if the policy says so (policy/horizontal_node_autoscaler.obeyed), only in the relevant namespace.
RULE_OBJECTS = ListedResource(
    KIND, GROUP, PLURAL, horizontal_node_autoscalers.PATH, weakens=horizontal_node_autoscalers.WEAKENS
)
# The only object that is read by name: the priority expander's configuration, if any.
PRIORITY_CONFIG = f"/api/v1/namespaces/{{}}/configmaps/{PRIORITIES}"

Observe = Callable[[Sequence[Node]], tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]]


def read_live_cluster(
    cluster: str, kube: KubeClient, observe: Observe, now: float, *, namespace: str = NAMESPACE, rules: bool = False
) -> Snapshot:
    """Read everything in the table and the priority expander's ConfigMap, then the node groups.

    rules: whether HorizontalNodeAutoscalers apply and are read too; otherwise they count as absent (not as unread,
    which would keep the last good ones in force).

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch seconds, the snapshot's
    instant. namespace: where that ConfigMap is (options.namespace). Raises ClusterError if nodes or pods cannot be
    read, or if anything fails for another cause than a refusal (403) or a missing resource (404): such a failure is
    temporary, and the next pass reads more.
    """
    folder = SnapshotBuilder(namespace)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="list") as pool:
        try:
            # The first page of every list is requested before the first one is processed.
            started = [_Ahead(pool, kube.list_pages(r.path, query=r.query)) for r in RESOURCES]
            objects = _Ahead(pool, kube.list_pages(RULE_OBJECTS.path)) if rules else ()
            priorities = pool.submit(kube.get, PRIORITY_CONFIG.format(path_segment(namespace)))
            for resource, pages in zip(RESOURCES, started, strict=True):
                _fold_all(resource, pages, folder)
            _fold_rules(objects, folder)
            _fold_priorities(priorities, namespace, folder)
        finally:
            pool.shutdown(cancel_futures=True)
    groups, gaps = observe(folder.nodes)
    for gap in gaps:
        folder.gap(gap)
    return folder.snapshot(cluster, now, groups)


def _fold_rules(pages: Iterable[Page], folder: SnapshotBuilder) -> None:
    """Read the rule objects. They are a vendor's extension: any failure to read them (such as an unavailable conversion
    webhook) is a gap and stops nothing. A cluster that does not know the kind has none."""
    try:
        for page in pages:
            if page.first:
                folder.reset(KIND)
            folder.add_page(page.body, RULE_OBJECTS.path, KIND)
        folder.mark_absent(KIND)  # no page: they are not used, so there are none
    except NotFound:
        folder.reset(KIND)
        folder.mark_absent(KIND)
    except (ClusterError, BadInput) as error:
        folder.reset(KIND)
        folder.gap(MissingData(KIND, str(error), place=RULE_OBJECTS.path, affected_decisions=RULE_OBJECTS.weakens))


def _fold_priorities(reading: Future[bytes], namespace: str, folder: SnapshotBuilder) -> None:
    """Read the ConfigMap; a missing one is normal, a forbidden one is a gap."""
    place = PRIORITY_CONFIG.format(namespace)
    try:
        folder.add_page(reading.result(), place, "ConfigMap")
    except NotFound:
        return
    except Forbidden as refusal:
        folder.gap(
            MissingData(
                "ConfigMap",
                refusal.message,
                name=f"{namespace}/{PRIORITIES}",
                place=place,
                affected_decisions=("expander priority",),
            )
        )
    except BadInput as error:
        raise Unavailable(str(error)) from error


class _Ahead:
    """Prefetches the pages of one list: each is requested while the one before is processed, so at most two pages per
    list are in memory."""

    def __init__(self, pool: ThreadPoolExecutor, pages: Iterator[Page]) -> None:
        self._pool, self._pages = pool, pages
        self._coming = self._ask()

    def __iter__(self) -> Iterator[Page]:
        while (page := self._coming.result()) is not None:
            self._coming = self._ask()
            yield page

    def _ask(self) -> Future[Page | None]:
        return self._pool.submit(next, self._pages, None)


def _fold_all(resource: ListedResource, pages: Iterable[Page], folder: SnapshotBuilder) -> None:
    """Read one list, or record a gap if it is optional and unavailable; raises every other ClusterError."""
    try:
        for page in pages:
            if page.first:
                folder.reset(resource.kind)
            folder.add_page(page.body, resource.path, resource.kind)
    except (Forbidden, NotFound) as refusal:
        if resource.required:
            raise
        folder.reset(resource.kind)
        folder.gap(
            MissingData(resource.kind, refusal.message, place=resource.path, affected_decisions=resource.weakens)
        )
    except BadInput as error:  # complete JSON, but not a list of objects: another server answered
        raise Unavailable(str(error)) from error
