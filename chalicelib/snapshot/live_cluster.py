"""A live cluster read into a snapshot: one ordered table of what is read, and of what is lost where it may not be.

Nodes and pods are required: without them there is nothing to decide, and ClusterError says why. Everything else makes
verdicts surer. If the cluster forbids it or does not serve it, the snapshot carries a gap that names those verdicts,
and the pass goes on. The same table is the source of the read rules in infra/kubernetes/rbac-workload.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from chalicelib.kube.client import KubeClient, Page, path_segment
from chalicelib.kube.errors import ClusterError, Forbidden, NotFound, Unavailable
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
    """One list to read. weakens: the verdicts that are less sure without it; required: there is no plan without it."""

    kind: str
    group: str
    plural: str
    path: str
    query: Mapping[str, str] = {}
    required: bool = False
    weakens: tuple[str, ...] = ()


# In the order of folding. Nodes from the server's watch cache (resourceVersion 0), as upstream's informers see them;
# pods from the store, because the cache ignores `limit` on many versions (ecosystem.md §4) and they are the many.
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
# Read where the policy says so (policy/horizontal.obeyed), in the one namespace that counts.
RULE_OBJECTS = ListedResource(
    KIND, GROUP, PLURAL, horizontal_node_autoscalers.PATH, weakens=horizontal_node_autoscalers.WEAKENS
)
# The one object that is read by name: what the priority expander is told, if anything.
PRIORITY_CONFIG = f"/api/v1/namespaces/{{}}/configmaps/{PRIORITIES}"

Observe = Callable[[Sequence[Node]], tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]]


def read_live_cluster(
    cluster: str, kube: KubeClient, observe: Observe, now: float, *, namespace: str = NAMESPACE, rules: bool = False
) -> Snapshot:
    """Read everything in the table and the priority expander's ConfigMap, then the node groups.

    rules: HorizontalNodeAutoscalers count, and are read too; else there are none (which is not "not read": the last
    good ones would stay in force).

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch seconds, the snapshot's
    instant. namespace: where that ConfigMap is (options.namespace). Raises ClusterError where nodes or pods cannot be
    read, or where anything fails for another cause than a refusal (403) or a missing resource (404): that passes, and
    the next pass sees more.
    """
    folder = SnapshotBuilder(namespace)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="list") as pool:
        try:
            # The first page of everything is on its way before the first is folded.
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
    """Fold the rule objects. They are an extra of a vendor: whatever keeps them from being read (a webhook of their own
    that is down, say) is a gap, and stops nothing. A cluster that does not know the kind has none."""
    try:
        for page in pages:
            if page.first:
                folder.reset(KIND)
            folder.add_page(page.body, RULE_OBJECTS.path, KIND)
        folder.mark_absent(KIND)  # no page: nobody wants them, and there are none
    except NotFound:
        folder.reset(KIND)
        folder.mark_absent(KIND)
    except (ClusterError, BadInput) as error:
        folder.reset(KIND)
        folder.gap(MissingData(KIND, str(error), place=RULE_OBJECTS.path, affected_decisions=RULE_OBJECTS.weakens))


def _fold_priorities(reading: Future[bytes], namespace: str, folder: SnapshotBuilder) -> None:
    """Fold the ConfigMap; that there is none is nothing to speak of, that it may not be read is a gap."""
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
    """The pages of one list, each asked for while the one before it is folded: memory stays at two pages per list."""

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
    """Fold one list, or leave a gap if it may be missing and is; raises every other ClusterError."""
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
    except BadInput as error:  # complete JSON, but no list of objects: something else answers in the server's place
        raise Unavailable(str(error)) from error
