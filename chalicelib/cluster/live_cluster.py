"""Reads a live cluster into a snapshot: its lists, in full or as changes since an earlier
pass, and its node groups.

A process keeps the lists of clusters between passes, within a bound of memory and age. Functions
keep nothing that a decision needs: what is kept saves reading only, and any process may be without
it. Which process gets the next message of a cluster is chance, and the lease keeps the passes of
one cluster in order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from chalicelib.cluster.class_table import unbounded
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import ClusterError
from chalicelib.cluster.list_changes import Comparison, ServerBehind, compare, follow
from chalicelib.cluster.list_reader import PageRates
from chalicelib.cluster.list_state import LONGEST, ListOrigin, ListState, read_lists
from chalicelib.cluster.storage import NAMESPACE
from chalicelib.cluster.watch import QUIET, WatchPace
from chalicelib.model.errors import OutscalerError
from chalicelib.model.node import Node
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot

if TYPE_CHECKING:
    from chalicelib.cluster.list_archive import ListArchive

CONNECTED_FOR = 90.0
"""Seconds after which the connections of an earlier pass are not used: something on the
way may have dropped them."""
_REMEMBERED = 75.0
"""Seconds of changes that the watch cache of an API server holds at least, where it has room
(eventFreshDuration in k8s.io/apiserver/pkg/storage/cacher)."""
_MOST_LEARNT = 10_000  # clusters
T = TypeVar("T")

Observe = Callable[[Sequence[Node]], ObservedGroups]


class ReadResult(msgspec.Struct, frozen=True):
    """How a cluster was read. reason: why in full, "" for changes. folded: changes of objects;
    reread: lists that were read in full all the same, and why; stored: whether another process has
    read what the changes were followed from. behind: seconds before the end of this read as of
    which all lists are known to be complete; later changes may be missing. short: see
    list_changes.Changes."""

    scope: ReadScope
    reason: str = ""
    stored: bool = False
    folded: int = 0
    reread: dict[str, str] = {}
    behind: float = 0.0
    short: tuple[str, ...] = ()


class KeptLists:
    """The lists of the clusters of one process, those used longest ago first.
    Used by one pass at a time.

    most: bytes for all of them. now: seconds of a clock that never goes back. quiet: see WatchPace.
    archive: lists that other processes have stored, None for none.
    """

    def __init__(
        self,
        most: int,
        now: Callable[[], float],
        *,
        quiet: float = QUIET,
        archive: ListArchive | None = None,
    ) -> None:
        self._most, self.now, self._quiet, self._archive = most, now, quiet, archive
        self._clusters: OrderedDict[str, ListState] = OrderedDict()
        self._rates: dict[str, PageRates] = {}
        self._paces: dict[str, WatchPace] = {}

    def take(
        self, cluster: str, origin: ListOrigin, namespace: str
    ) -> tuple[ListState | None, bool, str]:
        """Return lists to follow, whether another process has stored them, and why there are none.

        Those of this process are kept no more: a pass that fails leaves them in an unknown state.
        Stored ones are asked for where this process has none, or where a server may have forgotten
        the version of its own. namespace: see ListState.
        """
        self.expire()
        own, reason = self._clusters.pop(cluster, None), "no earlier pass in this process"
        if own is not None and (own.origin != origin or own.is_overgrown() or not own.followable()):
            own = None
        if self._archive is None or (own is not None and self.age(own) < _REMEMBERED):
            return own, False, reason
        try:
            stored = self._archive.load(cluster, origin, namespace)
        except OutscalerError as error:
            return own, False, f"{reason}; stored lists: {error}"
        if stored is None or (own is not None and own.followed_at >= stored.followed_at):
            return own, False, f"{reason}, and none is stored"
        if self._is_expired(stored) or not stored.followable():
            return own, False, f"{reason}; stored lists: too old"
        return stored, True, ""

    def put(self, cluster: str, lists: ListState) -> None:
        """Keep the lists of a pass that has read them, and drop those used longest ago
        where they need too much."""
        lists.followed_at = self.now()
        lists.passes += 1
        if not lists.followable():
            return
        self._clusters[cluster] = lists
        self._clusters.move_to_end(cluster)
        self._drop_oldest(self._most, list(self._clusters))

    def expire(self) -> None:
        """Drop what is too old to be followed."""
        for name in [name for name, lists in self._clusters.items() if self._is_expired(lists)]:
            del self._clusters[name]

    def _is_expired(self, lists: ListState) -> bool:
        return not 0 <= self.now() - lists.read_at < LONGEST

    def client(self, cluster: str, new_client: KubeClient) -> KubeClient:
        """Return the client of the earlier pass where its connections may still be open and it has
        the same access, otherwise the fresh one. Raises ClusterError."""
        lists = self._clusters.get(cluster)
        if lists is None or lists.kube is None or self.age(lists) > CONNECTED_FOR:
            return new_client
        if lists.origin.access != new_client.access():
            return new_client
        lists.kube.begin_lists()
        return lists.kube

    def limit(self, cluster: str, most: int) -> None:
        """Drop what is too old, and lists of other clusters, those used longest ago first, until
        all need no more than this many bytes: a full read of this cluster needs the rest."""
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
        return {name: lists.size() for name, lists in self._clusters.items()}

    def drop(self, cluster: str) -> None:
        """Keep nothing of a cluster."""
        self._clusters.pop(cluster, None)

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters whose lists are kept."""
        return tuple(self._clusters)

    def rates(self, cluster: str, kube: KubeClient) -> PageRates:
        """Return how fast the cluster's pages arrive, as far as this process
        knows. Raises ClusterError."""
        return _learnt(
            self._rates, f"{cluster} {kube.access()}", lambda: PageRates(local=kube.is_local())
        )

    def pace(self, cluster: str, kube: KubeClient) -> WatchPace:
        """Return how the cluster's watches pause, as far as this process
        knows. Raises ClusterError."""
        return _learnt(self._paces, f"{cluster} {kube.access()}", lambda: WatchPace(self._quiet))

    def kept(self, cluster: str) -> ListState | None:
        """Return the lists of a cluster, None if none are kept."""
        return self._clusters.get(cluster)

    def compared(self, cluster: str, kube: KubeClient) -> Comparison | None:
        """Compare the lists of a cluster with those of the server; None if none are kept. Lists
        that differ are kept no more. Raises ClusterError."""
        lists = self.kept(cluster)
        if lists is None:
            return None
        comparison = compare(kube, lists)
        if comparison.differences:
            self.drop(cluster)
        return comparison

    def save(self, cluster: str) -> int:
        """Store the lists of a cluster in the archive, if that is due; return the number of bytes,
        0 if nothing was stored. Raises OutscalerError."""
        lists = self._clusters.get(cluster)
        return 0 if lists is None or self._archive is None else self._archive.save(cluster, lists)

    def age(self, lists: ListState) -> float:
        """Return the seconds since lists were up to date."""
        return self.now() - lists.followed_at


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
    """Read everything in the table of lists and the priority expander's
    ConfigMap, then the node groups.

    rules: whether HorizontalNodeAutoscalers apply and are read too; otherwise they count as absent
    (not as unread, which would keep the last good ones in force). kept: lists of earlier passes of
    this process; with them only changes are read. report: called with how it was read.

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch
    seconds, the snapshot's instant. namespace: where that ConfigMap is (options.namespace). Raises
    ClusterError if nodes or pods cannot be read, or if anything fails for another cause than a
    refusal (403) or a missing resource (404).

    check: called while the lists grow; raises MemoryExceeded where this
    process has no memory for more.
    """
    if kept is None:
        lists = read_lists(kube, namespace, rules=rules, check=check)
        result = ReadResult(ReadScope.FULL, "nothing is kept")
    else:
        lists, result = _read_with_kept(cluster, kube, kept, namespace, rules=rules, check=check)
    if report is not None:
        report(result)
    return lists.builder.snapshot(cluster, now, observe(lists.builder.nodes))


def _read_with_kept(
    cluster: str,
    kube: KubeClient,
    kept: KeptLists,
    namespace: str,
    *,
    rules: bool,
    check: Callable[[], None],
) -> tuple[ListState, ReadResult]:
    """Follow the lists of an earlier pass; read in full where there are none, or
    where following them fails."""
    origin = ListOrigin(kube.access(), f"{namespace} {rules}")
    lists, stored, reason = kept.take(cluster, origin, namespace)
    if lists is not None:
        lists.bound(check)
        try:
            changes = follow(
                kube, lists, rules=rules, now=kept.now(), pace=kept.pace(cluster, kube)
            )
        except ServerBehind as behind:
            reason = f"the server has not reached the version of {behind}"
        except ClusterError as error:
            reason = error.message
        else:
            lists.kube = kube
            kept.put(cluster, lists)
            return lists, ReadResult(
                ReadScope.CHANGES,
                stored=stored,
                folded=changes.folded,
                reread=dict(changes.reread),
                behind=max(0.0, kept.now() - lists.complete_since()),
                short=changes.short,
            )
    kube.begin_lists()
    lists = None  # not needed any more; a full read needs its memory
    rates, paused = kept.rates(cluster, kube), kept.pace(cluster, kube).only_marks
    lists = read_lists(kube, namespace, rules=rules, rates=rates, check=check, paused=paused)
    kept.put(cluster, lists.begin(origin, kube, kept.now()))
    return lists, ReadResult(ReadScope.FULL, reason)
