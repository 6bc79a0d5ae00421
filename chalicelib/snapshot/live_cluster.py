"""A live cluster read into a snapshot: one ordered table of what is read, and of what is lost where it may not be.

Nodes and pods are required: without them there is nothing to decide, and ClusterError says why. Everything else makes
verdicts surer. If the cluster forbids it or does not serve it, the snapshot carries a gap that names those verdicts,
and the pass goes on. The same table is the source of the read rules in infra/kubernetes/rbac-workload.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from chalicelib.kube.client import Cluster, Page, path_segment
from chalicelib.kube.errors import ClusterError, Forbidden, Missing, Unavailable
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import Gap, Snapshot
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, PLURAL
from chalicelib.snapshot import horizontal_node_autoscalers
from chalicelib.snapshot.snapshot_builder import Folder
from chalicelib.snapshot.storage import NAMESPACE, PRIORITIES

_READERS = 4
_STORAGE = "storage.k8s.io"
_CONTROLLERS = ("BlockedByPod ControllerNotFound", "BlockedByPod MinReplicasReached")


class Resource(msgspec.Struct, frozen=True):
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
RESOURCES: tuple[Resource, ...] = (
    Resource("Node", "", "nodes", "/api/v1/nodes", {"resourceVersion": "0"}, required=True),
    Resource(
        "Pod",
        "",
        "pods",
        "/api/v1/pods",
        {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
        required=True,
    ),
    Resource(
        "DaemonSet",
        "apps",
        "daemonsets",
        "/apis/apps/v1/daemonsets",
        weakens=("scale-up: DaemonSet pods on new nodes", *_CONTROLLERS),
    ),
    Resource("ReplicaSet", "apps", "replicasets", "/apis/apps/v1/replicasets", weakens=_CONTROLLERS),
    Resource("StatefulSet", "apps", "statefulsets", "/apis/apps/v1/statefulsets", weakens=_CONTROLLERS),
    Resource("Job", "batch", "jobs", "/apis/batch/v1/jobs", weakens=_CONTROLLERS),
    Resource(
        "ReplicationController", "", "replicationcontrollers", "/api/v1/replicationcontrollers", weakens=_CONTROLLERS
    ),
    Resource(
        "PodDisruptionBudget",
        "policy",
        "poddisruptionbudgets",
        "/apis/policy/v1/poddisruptionbudgets",
        weakens=("BlockedByPod NotEnoughPdb",),
    ),
    Resource("Namespace", "", "namespaces", "/api/v1/namespaces", weakens=("inter-pod affinity by namespaceSelector",)),
    Resource(
        "PersistentVolumeClaim",
        "",
        "persistentvolumeclaims",
        "/api/v1/persistentvolumeclaims",
        weakens=("scale-up: pods with claims on volumes",),
    ),
    Resource(
        "PersistentVolume",
        "",
        "persistentvolumes",
        "/api/v1/persistentvolumes",
        weakens=("scale-up: pods with claims on volumes",),
    ),
    Resource(
        "StorageClass",
        _STORAGE,
        "storageclasses",
        f"/apis/{_STORAGE}/v1/storageclasses",
        weakens=("scale-up: pods with claims that are not bound yet",),
    ),
    Resource("CSINode", _STORAGE, "csinodes", f"/apis/{_STORAGE}/v1/csinodes", weakens=("MaxVolumeCount",)),
    Resource("CSIDriver", _STORAGE, "csidrivers", f"/apis/{_STORAGE}/v1/csidrivers", weakens=("NotEnoughStorage",)),
    Resource(
        "CSIStorageCapacity",
        _STORAGE,
        "csistoragecapacities",
        f"/apis/{_STORAGE}/v1/csistoragecapacities",
        weakens=("NotEnoughStorage",),
    ),
)
# Read where the policy says so (policy/horizontal.obeyed), in the one namespace that counts.
RULE_OBJECTS = Resource(
    KIND, GROUP, PLURAL, horizontal_node_autoscalers.PATH, weakens=horizontal_node_autoscalers.WEAKENS
)
# The one object that is read by name: what the priority expander is told, if anything.
PRIORITY_CONFIG = f"/api/v1/namespaces/{{}}/configmaps/{PRIORITIES}"

Observe = Callable[[Sequence[Node]], tuple[tuple[NodeGroup, ...], tuple[Gap, ...]]]


def take(
    cluster: str, kube: Cluster, observe: Observe, now: float, *, namespace: str = NAMESPACE, rules: bool = False
) -> Snapshot:
    """Read everything in the table and the priority expander's ConfigMap, then the node groups.

    rules: HorizontalNodeAutoscalers count, and are read too; else there are none (which is not "not read": the last
    good ones would stay in force).

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch seconds, the snapshot's
    instant. namespace: where that ConfigMap is (options.namespace). Raises ClusterError where nodes or pods cannot be
    read, or where anything fails for another cause than a refusal (403) or a missing resource (404): that passes, and
    the next pass sees more.
    """
    folder = Folder(namespace)
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


def _fold_rules(pages: Iterable[Page], folder: Folder) -> None:
    """Fold the rule objects. They are an extra of a vendor: whatever keeps them from being read (a webhook of their own
    that is down, say) is a gap, and stops nothing. A cluster that does not know the kind has none."""
    try:
        for page in pages:
            if page.first:
                folder.forget(KIND)
            folder.feed(page.body, RULE_OBJECTS.path, KIND)
        folder.none_of(KIND)  # no page: nobody wants them, and there are none
    except Missing:
        folder.forget(KIND)
        folder.none_of(KIND)
    except (ClusterError, BadInput) as error:
        folder.forget(KIND)
        folder.gap(Gap(KIND, str(error), place=RULE_OBJECTS.path, weakens=RULE_OBJECTS.weakens))


def _fold_priorities(reading: Future[bytes], namespace: str, folder: Folder) -> None:
    """Fold the ConfigMap; that there is none is nothing to speak of, that it may not be read is a gap."""
    place = PRIORITY_CONFIG.format(namespace)
    try:
        folder.feed(reading.result(), place, "ConfigMap")
    except Missing:
        return
    except Forbidden as refusal:
        folder.gap(
            Gap(
                "ConfigMap",
                refusal.message,
                name=f"{namespace}/{PRIORITIES}",
                place=place,
                weakens=("expander priority",),
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


def _fold_all(resource: Resource, pages: Iterable[Page], folder: Folder) -> None:
    """Fold one list, or leave a gap if it may be missing and is; raises every other ClusterError."""
    try:
        for page in pages:
            if page.first:
                folder.forget(resource.kind)
            folder.feed(page.body, resource.path, resource.kind)
    except (Forbidden, Missing) as refusal:
        if resource.required:
            raise
        folder.forget(resource.kind)
        folder.gap(Gap(resource.kind, refusal.message, place=resource.path, weakens=resource.weakens))
    except BadInput as error:  # complete JSON, but no list of objects: something else answers in the server's place
        raise Unavailable(str(error)) from error
