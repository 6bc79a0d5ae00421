"""Reads a live cluster into a snapshot: its lists, in full or as changes since an earlier pass, and its node groups.

A process keeps the lists of clusters between passes, within a bound of memory and age. Functions keep nothing that a
decision needs: what is kept saves reading only, and any process may be without it. Which process gets the next message
of a cluster is chance, and the lease keeps the passes of one cluster in order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from chalicelib import __version__
from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import ClusterError
from chalicelib.kube.watch import QUIET, WatchPace
from chalicelib.model.errors import OutscalerError
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.snapshot.class_table import unbounded
from chalicelib.snapshot.cluster_lists import LONGEST, ClusterLists, read_lists
from chalicelib.snapshot.list_changes import ServerBehind, follow
from chalicelib.snapshot.list_reader import PageRates
from chalicelib.snapshot.storage import NAMESPACE

if TYPE_CHECKING:
    from chalicelib.snapshot.list_archive import ListArchive

CONNECTED_FOR = 90.0
"""Seconds after which the connections of an earlier pass are not used: something on the way may have dropped them."""
_REMEMBERED = 75.0
"""Seconds of changes that the watch cache of an API server holds at least, where it has room (eventFreshDuration in
k8s.io/apiserver/pkg/storage/cacher)."""
_PER_POD, _PER_NODE, _PER_OBJECT = 700, 4_000, 500  # bytes, measured; classes come on top
_CLASSES = 4  # times as many classes as at the full read: most belong to pods that are gone
_FEW_CLASSES = 1_000
_MOST_LEARNT = 10_000  # clusters
T = TypeVar("T")

Observe = Callable[[Sequence[Node]], tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]]


class ReadResult(msgspec.Struct, frozen=True):
    """How a cluster was read. reason: why in full, "" for changes. folded: changes of objects; reread: lists that were
    read in full all the same, and why; stored: whether another process has read what the changes were followed from.
    behind: seconds before the end of this read as of which all lists are known to be complete; later changes may be
    missing. short: see list_changes.Changes."""

    scope: ReadScope
    reason: str = ""
    stored: bool = False
    folded: int = 0
    reread: dict[str, str] = {}
    behind: float = 0.0
    short: tuple[str, ...] = ()


class KeptCluster:
    """The lists of one cluster. kube: the client that has read them last; scope: what was read, beside the cluster's
    objects; read_at: when all of it was read, seconds of the monotonic clock."""

    def __init__(self, kube: KubeClient, scope: str, lists: ClusterLists, read_at: float) -> None:
        self.kube, self.scope, self.lists, self.read_at = kube, scope, lists, read_at
        self.access, self.release = kube.access(), __version__
        self.used_at = read_at
        self.turn = 0
        self.classes = lists.builder.objects.table.size

    def size(self) -> int:
        """Return the bytes of memory, roughly."""
        objects = self.lists.builder.objects
        others = sum(objects.count(kind) for kind in objects.by_kind if kind not in ("Pod", "Node"))
        pods, nodes = len(objects.pods), len(objects.nodes)
        return pods * _PER_POD + nodes * _PER_NODE + others * _PER_OBJECT + objects.table.memory

    def is_overgrown(self) -> bool:
        """Return whether most classes belong to pods that are gone."""
        return self.lists.builder.objects.table.size > _CLASSES * self.classes + _FEW_CLASSES


class KeptLists:
    """The clusters of one process, the one used longest ago first. Used by one pass at a time.

    most: bytes for all of them. monotonic: seconds of a clock that never goes back. quiet: see WatchPace.
    archive: lists that other processes have stored, None for none.
    """

    def __init__(
        self, most: int, monotonic: Callable[[], float], *, quiet: float = QUIET, archive: ListArchive | None = None
    ) -> None:
        self._most, self.now, self._quiet, self.archive = most, monotonic, quiet, archive
        self._clusters: OrderedDict[str, KeptCluster] = OrderedDict()
        self._rates: dict[str, PageRates] = {}
        self._paces: dict[str, WatchPace] = {}

    def take(self, cluster: str, access: str, scope: str) -> KeptCluster | None:
        """Return the lists of an earlier pass, and keep them no more: a pass that fails leaves them in an unknown
        state. None if there are none that may be followed."""
        self.expire()
        entry = self._clusters.pop(cluster, None)
        if entry is None or (entry.access, entry.scope, entry.release) != (access, scope, __version__):
            return None
        return None if entry.is_overgrown() or not entry.lists.followable() else entry

    def put(self, cluster: str, kept_cluster: KeptCluster) -> None:
        """Keep the lists of a pass that has read them, and drop those used longest ago where they need too much."""
        kept_cluster.used_at = self.now()
        kept_cluster.turn += 1
        if not kept_cluster.lists.followable():
            return
        self._clusters[cluster] = kept_cluster
        self._clusters.move_to_end(cluster)
        self._drop_oldest(self._most, list(self._clusters))

    def expire(self) -> None:
        """Drop what is too old to be followed."""
        now = self.now()
        for name in [name for name, entry in self._clusters.items() if not 0 <= now - entry.read_at < LONGEST]:
            del self._clusters[name]

    def client(self, cluster: str, new_client: KubeClient) -> KubeClient:
        """Return the client of the earlier pass where its connections may still be open and it has the same access,
        otherwise the fresh one. Raises ClusterError."""
        entry = self._clusters.get(cluster)
        if entry is None or self.age(entry) > CONNECTED_FOR or entry.access != new_client.access():
            return new_client
        entry.kube.begin_lists()
        return entry.kube

    def limit(self, cluster: str, most: int) -> None:
        """Drop what is too old, and lists of other clusters, those used longest ago first, until all need no more than
        this many bytes: a full read of this cluster needs the rest."""
        self.expire()
        self._drop_oldest(most, [name for name in self._clusters if name != cluster])

    def _drop_oldest(self, most: int, names: Sequence[str]) -> None:
        sizes = self.sizes()
        total = sum(sizes.values())
        for name in names:
            if total <= most:
                return
            del self._clusters[name]
            total -= sizes[name]

    def sizes(self) -> dict[str, int]:
        """Return the bytes of memory of each cluster, roughly."""
        return {name: entry.size() for name, entry in self._clusters.items()}

    def drop(self, cluster: str) -> None:
        """Keep nothing of a cluster."""
        self._clusters.pop(cluster, None)

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters whose lists are kept."""
        return tuple(self._clusters)

    def rates(self, cluster: str, kube: KubeClient) -> PageRates:
        """Return how fast the cluster's pages arrive, as far as this process knows. Raises ClusterError."""
        return _learnt(self._rates, f"{cluster} {kube.access()}", lambda: PageRates(local=kube.is_local()))

    def pace(self, cluster: str, kube: KubeClient) -> WatchPace:
        """Return how the cluster's watches pause, as far as this process knows. Raises ClusterError."""
        return _learnt(self._paces, f"{cluster} {kube.access()}", lambda: WatchPace(self._quiet))

    def behind(self, kept_cluster: KeptCluster) -> float:
        """Return the seconds since the instant as of which all lists are known to be complete."""
        lists, read_at = kept_cluster.lists, kept_cluster.read_at
        complete = (lists.complete_at.get(kind, read_at) for kind in lists.versions)
        return max(0.0, self.now() - min(complete, default=read_at))

    def kept(self, cluster: str) -> KeptCluster | None:
        """Return the lists of a cluster, None if none are kept."""
        return self._clusters.get(cluster)

    def save(self, cluster: str) -> int:
        """Store the lists of a cluster in the archive, if that is due; return the number of bytes, 0 if nothing was
        stored. Raises OutscalerError."""
        entry = self._clusters.get(cluster)
        if entry is None or self.archive is None:
            return 0
        read_before = self.now() - entry.read_at
        return self.archive.save(cluster, entry.lists, entry.access, entry.scope, read_before, self.age(entry))

    def age(self, kept_cluster: KeptCluster) -> float:
        """Return the seconds since the lists were up to date."""
        return self.now() - kept_cluster.used_at

    def start(self, kube: KubeClient, scope: str, lists: ClusterLists) -> KeptCluster:
        """Return lists that were read in full just now, to be kept."""
        return KeptCluster(kube, scope, lists, self.now())

    def restart(
        self, kube: KubeClient, scope: str, lists: ClusterLists, read_before: float, age: float
    ) -> KeptCluster | None:
        """Return lists that another process has read, to be followed; None if they are too old. read_before: seconds
        since everything was read; age: since they were up to date."""
        if not (0 <= age <= read_before < LONGEST) or not lists.followable():
            return None
        now = self.now()
        entry = KeptCluster(kube, scope, lists, now - read_before)
        entry.used_at = now - age
        return entry


def _learnt(values: dict[str, T], name: str, new: Callable[[], T]) -> T:
    """Return what is known of a server, something new where nothing is."""
    if name not in values:
        if len(values) >= _MOST_LEARNT:
            values.clear()
        values[name] = new()
    return values[name]


def read_live_cluster(
    cluster: str,
    kube: KubeClient,
    observe: Observe,
    now: float,
    *,
    namespace: str = NAMESPACE,
    rules: bool = False,
    kept: KeptLists | None = None,
    report: Callable[[ReadResult], None] | None = None,
    check: Callable[[], None] = unbounded,
) -> Snapshot:
    """Read everything in the table of lists and the priority expander's ConfigMap, then the node groups.

    rules: whether HorizontalNodeAutoscalers apply and are read too; otherwise they count as absent (not as unread,
    which would keep the last good ones in force). kept: lists of earlier passes of this process; with them only changes
    are read. report: called with how it was read.

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch seconds, the snapshot's
    instant. namespace: where that ConfigMap is (options.namespace). Raises ClusterError if nodes or pods cannot be
    read, or if anything fails for another cause than a refusal (403) or a missing resource (404).

    check: called while the lists grow; raises MemoryExceeded where this process has no memory for more.
    """
    if kept is None:
        lists = read_lists(kube, namespace, rules=rules, check=check)
        result = ReadResult(ReadScope.FULL, "nothing is kept")
    else:
        lists, result = _read_with_kept(cluster, kube, kept, namespace, rules=rules, check=check)
    if report is not None:
        report(result)
    groups, gaps = observe(lists.builder.nodes)
    return lists.builder.snapshot(cluster, now, groups, gaps)


def _read_with_kept(
    cluster: str, kube: KubeClient, kept: KeptLists, namespace: str, *, rules: bool, check: Callable[[], None]
) -> tuple[ClusterLists, ReadResult]:
    """Follow the lists of an earlier pass; read in full where there are none, or where following them fails."""
    scope = f"{namespace} {rules}"
    earlier, stored, reason = _earlier_lists(cluster, kube, kept, namespace, scope)
    if earlier is not None:
        earlier.lists.bound(check)
        try:
            pace = kept.pace(cluster, kube)
            changes = follow(kube, earlier.lists, rules=rules, turn=earlier.turn, now=kept.now(), pace=pace)
        except ServerBehind as behind:
            reason = f"the server has not reached the version of {behind}"
        except ClusterError as error:
            reason = error.message
        else:
            earlier.kube = kube
            kept.put(cluster, earlier)
            return earlier.lists, ReadResult(
                ReadScope.CHANGES,
                stored=stored,
                folded=changes.folded,
                reread=dict(changes.reread),
                behind=kept.behind(earlier),
                short=changes.short,
            )
    kube.begin_lists()
    earlier = None  # not needed any more; a full read needs its memory
    lists = read_lists(kube, namespace, rules=rules, rates=kept.rates(cluster, kube), check=check)
    kept.put(cluster, kept.start(kube, scope, lists))
    return lists, ReadResult(ReadScope.FULL, reason)


def _earlier_lists(
    cluster: str, kube: KubeClient, kept: KeptLists, namespace: str, scope: str
) -> tuple[KeptCluster | None, bool, str]:
    """Return lists to follow, whether another process has stored them, and why there are none. Stored ones are asked
    for where this process has none, or where a server may have forgotten the version of its own."""
    access = kube.access()
    own, reason = kept.take(cluster, access, scope), "no earlier pass in this process"
    if kept.archive is None or (own is not None and kept.age(own) < _REMEMBERED):
        return own, False, reason
    try:
        stored = kept.archive.load(cluster, access, scope, namespace)
    except OutscalerError as error:
        return own, False, f"{reason}; stored lists: {error}"
    if stored is None or (own is not None and kept.age(own) <= stored.age):
        return own, False, f"{reason}, and none is stored"
    restarted = kept.restart(kube, scope, stored.lists, stored.read_before, stored.age)
    return (restarted, True, "") if restarted is not None else (own, False, f"{reason}; stored lists: too old")
