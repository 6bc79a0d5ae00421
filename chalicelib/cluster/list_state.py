"""The lists of a cluster (ListState), and how all of them are read.

Lists are a base, which is a full read, with the changes since then. They reach the next
pass in one of three ways:

    memory   the process of the pass before keeps the objects
             live_cluster.KeptLists
    bucket   another process has stored them as a whole, as a new base
             list_archive.ListArchive
    watcher  a program in the cluster posts a base, and then all changes since it
             list_archive.WatchedLists

The first two are followed from their versions (list_changes.py), and the third are used as they
are. None of them is needed for a decision: where lists are too old, of another origin (ListOrigin),
damaged or larger than is read, everything is read again. So it is where the server no longer knows
a version (410), or where changes were lost; then it is that list alone.

A list that is refused (403) or not served (404) is a gap, unless it is required. Any other failure
is temporary, and the next pass reads more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Self

import msgspec

from chalicelib import __version__
from chalicelib.cluster.class_table import unbounded
from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound, Unavailable
from chalicelib.cluster.list_page import Page
from chalicelib.cluster.list_reader import ListPart, ListReader, PageRates, map_large_buffers
from chalicelib.cluster.listed_resources import (
    PRIORITY_CONFIG,
    RESOURCES,
    RULE_OBJECTS,
    ListedResource,
)
from chalicelib.cluster.object_versions import ObjectVersions
from chalicelib.cluster.snapshot_builder import SnapshotBuilder, collector_paused
from chalicelib.cluster.storage import PRIORITIES
from chalicelib.cluster.transport import HOSTED
from chalicelib.cluster.watch import Watch, number_of
from chalicelib.model.errors import BadInput, MemoryExceeded
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.horizontal_node_autoscaler import KIND

READERS = 12
"""Requests at the same time."""
LONGEST = 600.0
"""Seconds after which everything is read again, whatever was followed."""
CONFIG_MAP = "ConfigMap"
_PER_POD, _PER_NODE, _PER_OBJECT = 700, 4_000, 500  # bytes, measured; classes come on top
_CLASSES = 4  # times as many classes as in the base: most belong to pods that are gone
_FEW_CLASSES = 1_000
_LONG = {"Pod": 0, "Node": 1, "ReplicaSet": 2, "Job": 3}  # in most clusters


class FollowedList(msgspec.Struct, frozen=True):
    """One list at the end of a pass that has followed it. watches: which may still receive
    something. reached: its version then. present: a version that the server had while the pass
    read. position: that of this list, None where it was not asked for. asked_at: when, seconds of a
    monotonic clock."""

    watches: Sequence[Watch]
    reached: int
    present: int
    position: int | None
    asked_at: float


class ListOrigin(msgspec.Struct, frozen=True):
    """Where lists come from; those of another origin are never used. access: of which server,
    with which account; scope: what was read, beside the objects of the table of lists;
    release: what has read them."""

    access: str
    scope: str
    release: str = msgspec.field(default_factory=lambda: __version__)


class ListState:
    """A cluster's objects: a base, which is a full read, with the changes since then.

    namespace: where the priority expander's ConfigMap is. origin: empty where nothing keeps these
    lists. read_at: when the base was read; followed_at: when the last changes were; seconds of the
    clock of what keeps them. kube: the client that has read them last. passes: how many have used
    them. base_classes: number of classes of the base.

    versions: resourceVersion of each list by kind, for those that can be followed. unwatched: kinds
    for which the account may not watch. followed: lists at the end of the last pass. complete_at:
    an instant as of which a list is known to be complete, where that is later than the base;
    seconds of a monotonic clock. object_versions: of the lists that were read while the server
    paused.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.builder = SnapshotBuilder(namespace, numbered=False)
        self.origin = ListOrigin("", "")
        self.kube: KubeClient | None = None
        self.read_at = self.followed_at = 0.0
        self.passes = self.base_classes = 0
        self.versions: dict[str, str] = {}
        self.unwatched: set[str] = set()
        self.followed: dict[str, FollowedList] = {}
        self.complete_at: dict[str, float] = {}
        self.object_versions = ObjectVersions()
        self.check = unbounded

    def bound(self, check: Callable[[], None]) -> None:
        """Call this for what is read from now on; it raises MemoryExceeded where memory ends."""
        self.check = self.builder.objects.table.check = check

    def begin(self, origin: ListOrigin, kube: KubeClient, now: float) -> Self:
        """Note of a full read what the next pass must know, and return these lists.
        now: of the monotonic clock."""
        self.origin, self.kube, self.read_at = origin, kube, now
        self.base_classes = self.builder.objects.table.size
        return self

    def followable(self) -> bool:
        """Return whether the next pass can read the changes alone, at least of the
        lists that are required."""
        required = {resource.kind for resource in RESOURCES if resource.required}
        return required <= self.versions.keys() and not required & self.unwatched

    def is_overgrown(self) -> bool:
        """Return whether most classes belong to pods that are gone."""
        return self.builder.objects.table.size > _CLASSES * self.base_classes + _FEW_CLASSES

    def size(self) -> int:
        """Return the bytes of memory, roughly."""
        objects = self.builder.objects
        others = sum(objects.count(kind) for kind in objects.by_kind if kind not in ("Pod", "Node"))
        pods, nodes = len(objects.pods), len(objects.nodes)
        return (
            pods * _PER_POD
            + nodes * _PER_NODE
            + others * _PER_OBJECT
            + objects.table.memory
            + self.object_versions.size()
        )

    def complete_since(self) -> float:
        """Return the instant as of which all lists are known to be complete;
        seconds of a monotonic clock."""
        return min(
            (self.complete_at.get(kind, self.read_at) for kind in self.versions),
            default=self.read_at,
        )


def read_lists(
    kube: KubeClient,
    namespace: str,
    *,
    rules: bool,
    rates: PageRates | None = None,
    check: Callable[[], None] = unbounded,
    paused: bool = False,
) -> ListState:
    """Read everything. namespace, rules, check: see live_cluster.read_live_cluster. rates: see
    ListReader. paused: whether the server is known to pause, so that the next pass compares
    versions. Raises ClusterError, MemoryExceeded."""
    map_large_buffers()
    lists = ListState(namespace)
    lists.object_versions.records = paused
    lists.bound(check)
    with collector_paused(), ThreadPoolExecutor(READERS, thread_name_prefix="list") as pool:
        try:
            # The longest list is asked for first, and the first page of every
            # list before any is folded.
            longest_first = sorted(
                RESOURCES, key=lambda resource: _LONG.get(resource.kind, len(_LONG))
            )
            started = {
                r.kind: ListReader(kube, r, pool, HOSTED, rates, check=check) for r in longest_first
            }
            others = OtherObjects(kube, lists, pool, rules=rules)
            for resource in RESOURCES:
                fold_list(resource, started[resource.kind], lists)
            others.fold()
        finally:
            pool.shutdown(cancel_futures=True)
    return lists


def reread(
    kube: KubeClient, lists: ListState, resources: Iterable[ListedResource], executor: Executor
) -> None:
    """Read some of the lists again. Raises ClusterError; the lists cannot be used after that."""
    started = [
        (resource, ListReader(kube, resource, executor, HOSTED, check=lists.check))
        for resource in resources
    ]
    for resource, parts in started:
        fold_list(resource, parts, lists)


def fold_list(resource: ListedResource, parts: Iterable[ListPart], lists: ListState) -> None:
    """Fold one list, or record a gap if it is optional and unavailable; raises every other
    ClusterError, and MemoryExceeded."""
    kind, builder = resource.kind, lists.builder
    try:
        for part in parts:
            lists.check()
            if part.first:
                builder.reset(kind)
                lists.versions.pop(kind, None)
                if number_of(part.page.meta.resource_version):
                    lists.versions[kind] = part.page.meta.resource_version
            builder.add_page(part.page.body, resource.path, kind, part.page.listing)
            lists.object_versions.note_page(kind, part.page.body, first=part.first)
    except (Forbidden, NotFound) as refusal:
        if resource.required:
            raise
        lists.versions.pop(kind, None)
        lists.object_versions.forget(kind)
        builder.reset(kind)
        builder.gap(
            MissingData(
                kind, refusal.message, place=resource.path, affected_decisions=resource.weakens
            )
        )
    except MemoryExceeded as error:
        namespace = builder.objects.table.largest_namespace
        raise MemoryExceeded(f"{error}; the pods of namespace {namespace} take the most") from None
    except BadInput as error:  # complete JSON, but not a list of objects: another server answered
        raise Unavailable(str(error)) from error


class OtherObjects:
    """What is read in full by every pass: the rule objects, if they apply, and the
    priority expander's ConfigMap."""

    def __init__(
        self, kube: KubeClient, lists: ListState, executor: Executor, *, rules: bool
    ) -> None:
        self._lists, self._rules = lists, rules
        place = PRIORITY_CONFIG.format(path_segment(lists.namespace))
        self._priorities = executor.submit(kube.get, place)
        self._objects: Future[list[Page]] | None = (
            executor.submit(lambda: list(kube.list_pages(RULE_OBJECTS.path))) if rules else None
        )

    def fold(self) -> None:
        """Fold them in place of those of the pass before. Raises ClusterError."""
        self._fold_rules()
        self._fold_priorities()

    def _fold_rules(self) -> None:
        """Rule objects are a vendor's extension: any failure to read them (such as an
        unavailable conversion webhook) is a gap and stops nothing. A cluster that does
        not know the kind has none."""
        builder = self._lists.builder
        builder.reset(KIND)
        if not self._rules:
            builder.mark_absent(KIND)
            return
        assert self._objects is not None
        try:
            for page in self._objects.result():
                if page.first:
                    builder.reset(KIND)
                builder.add_page(page.body, RULE_OBJECTS.path, KIND)
            builder.mark_absent(KIND)
        except NotFound:
            builder.reset(KIND)
            builder.mark_absent(KIND)
        except (ClusterError, BadInput) as error:
            builder.reset(KIND)
            builder.gap(
                MissingData(
                    KIND,
                    str(error),
                    place=RULE_OBJECTS.path,
                    affected_decisions=RULE_OBJECTS.weakens,
                )
            )

    def _fold_priorities(self) -> None:
        """A missing ConfigMap is normal, a forbidden one is a gap."""
        builder, namespace = self._lists.builder, self._lists.namespace
        place = PRIORITY_CONFIG.format(namespace)
        builder.reset(CONFIG_MAP)
        try:
            builder.add_page(self._priorities.result(), place, CONFIG_MAP)
        except NotFound:
            return
        except Forbidden as refusal:
            builder.gap(
                MissingData(
                    CONFIG_MAP,
                    refusal.message,
                    name=f"{namespace}/{PRIORITIES}",
                    place=place,
                    affected_decisions=("expander priority",),
                )
            )
        except BadInput as error:
            raise Unavailable(str(error)) from error
