"""Keeps the lists of clusters in this process between passes, within a bound of memory and age.

Functions keep nothing that a decision needs: what is kept here saves reading only, and any process may be without it.
Which process gets the next message of a cluster is chance, and the lease keeps the passes of one cluster in order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from chalicelib import __version__
from chalicelib.kube.client import KubeClient
from chalicelib.kube.list_watch import QUIET, WatchPace
from chalicelib.snapshot.cluster_lists import LONGEST, ClusterLists
from chalicelib.snapshot.page_rates import PageRates

if TYPE_CHECKING:
    from chalicelib.snapshot.list_archive import ListArchive

CONNECTED_FOR = 90.0
"""Seconds after which the connections of an earlier pass are not used: something on the way may have dropped them."""
_PER_POD, _PER_NODE, _PER_OBJECT = 700, 4_000, 500  # bytes, measured; classes come on top
_CLASSES = 4  # times as many classes as at the full read: most belong to pods that are gone
_FEW_CLASSES = 1_000
_MOST_LEARNT = 10_000  # clusters
T = TypeVar("T")


class KeptCluster:
    """The lists of one cluster. kube: the client that has read them last; asked: what was read, beside the cluster's
    objects; read_at: when all of it was read, seconds of the monotonic clock."""

    def __init__(self, kube: KubeClient, asked: str, lists: ClusterLists, read_at: float) -> None:
        self.kube, self.asked, self.lists, self.read_at = kube, asked, lists, read_at
        self.access, self.release = kube.access(), __version__
        self.used_at = read_at
        self.turn = 0
        self.classes = lists.builder.objects.table.size

    def size(self) -> int:
        """Return the bytes of memory, roughly."""
        objects = self.lists.builder.objects
        others = sum(objects.count(each) for each in objects.kinds if each not in ("Pod", "Node"))
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
        self,
        most: int,
        monotonic: Callable[[], float],
        *,
        quiet: float = QUIET,
        archive: ListArchive | None = None,
    ) -> None:
        self._most, self._monotonic, self._quiet, self.archive = most, monotonic, quiet, archive
        self._clusters: OrderedDict[str, KeptCluster] = OrderedDict()
        self._rates: dict[str, PageRates] = {}
        self._paces: dict[str, WatchPace] = {}

    def take(self, cluster: str, access: str, asked: str) -> KeptCluster | None:
        """Return the lists of an earlier pass, and keep them no more: a pass that fails leaves them in an unknown
        state. None if there are none that may be followed."""
        self.expire()
        found = self._clusters.pop(cluster, None)
        if found is None or (found.access, found.asked, found.release) != (access, asked, __version__):
            return None
        return None if found.is_overgrown() or not found.lists.followable() else found

    def put(self, cluster: str, kept: KeptCluster) -> None:
        """Keep the lists of a pass that has read them, and drop those used longest ago where they need too much."""
        kept.used_at = self._monotonic()
        kept.turn += 1
        if not kept.lists.followable():
            return
        self._clusters[cluster] = kept
        self._clusters.move_to_end(cluster)
        sizes = self.sizes()
        total = sum(sizes.values())
        while total > self._most and self._clusters:
            name, _ = self._clusters.popitem(last=False)
            total -= sizes[name]

    def expire(self) -> None:
        """Drop what is too old to be followed."""
        now = self._monotonic()
        for name in [name for name, each in self._clusters.items() if not 0 <= now - each.read_at < LONGEST]:
            del self._clusters[name]

    def client(self, cluster: str, new_client: KubeClient) -> KubeClient:
        """Return the client of the earlier pass where its connections may still be open and it has the same access,
        otherwise the fresh one. Raises ClusterError."""
        found = self._clusters.get(cluster)
        if found is None or self._monotonic() - found.used_at > CONNECTED_FOR or found.access != new_client.access():
            return new_client
        found.kube.begin_lists()
        return found.kube

    def limit(self, cluster: str, most: int) -> None:
        """Drop what is too old, and lists of other clusters, those used longest ago first, until all need no more than
        this many bytes: a full read of this cluster needs the rest."""
        self.expire()
        sizes = self.sizes()
        total = sum(sizes.values())
        for name in [each for each in self._clusters if each != cluster]:
            if total <= most:
                return
            del self._clusters[name]
            total -= sizes[name]

    def sizes(self) -> dict[str, int]:
        """Return the bytes of memory of each cluster, roughly."""
        return {name: each.size() for name, each in self._clusters.items()}

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

    def now(self) -> float:
        """Return the seconds of the clock."""
        return self._monotonic()

    def behind(self, kept_cluster: KeptCluster) -> float:
        """Return the seconds since the instant as of which all lists are known to be complete."""
        complete = (
            kept_cluster.lists.complete_at.get(kind, kept_cluster.read_at) for kind in kept_cluster.lists.versions
        )
        return max(0.0, self._monotonic() - min(complete, default=kept_cluster.read_at))

    def kept(self, cluster: str) -> KeptCluster | None:
        """Return the lists of a cluster, None if none are kept."""
        return self._clusters.get(cluster)

    def save(self, cluster: str) -> int:
        """Store the lists of a cluster in the archive, if that is due; return the number of bytes, 0 if nothing was
        stored. Raises OutscalerError."""
        found = self._clusters.get(cluster)
        if found is None or self.archive is None:
            return 0
        ages = self.read_before(found), self.age(found)
        return self.archive.save(cluster, found.lists, found.access, found.asked, *ages)

    def age(self, kept_cluster: KeptCluster) -> float:
        """Return the seconds since the lists were up to date."""
        return self._monotonic() - kept_cluster.used_at

    def read_before(self, kept_cluster: KeptCluster) -> float:
        """Return the seconds since everything was read."""
        return self._monotonic() - kept_cluster.read_at

    def start(self, kube: KubeClient, asked: str, lists: ClusterLists) -> KeptCluster:
        """Return lists that were read in full just now, to be kept."""
        return KeptCluster(kube, asked, lists, self._monotonic())

    def restart(
        self, kube: KubeClient, asked: str, lists: ClusterLists, read_before: float, age: float
    ) -> KeptCluster | None:
        """Return lists that another process has read, to be followed; None if they are too old. read_before, age: see
        the methods."""
        if not (0 <= age <= read_before < LONGEST) or not lists.followable():
            return None
        now = self._monotonic()
        found = KeptCluster(kube, asked, lists, now - read_before)
        found.used_at = now - age
        return found


def _learnt(known: dict[str, T], name: str, new: Callable[[], T]) -> T:
    """Return what is known of a server, something new where nothing is."""
    if name not in known and len(known) >= _MOST_LEARNT:
        known.clear()
    if name not in known:
        known[name] = new()
    return known[name]
