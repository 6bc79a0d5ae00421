"""Brings the lists of an earlier pass up to date by what has changed since, so that a
pass costs what has changed.

Every list is watched from its version. The plan must be the one that a full read would give, so
anything that does not fit leads to reading a list again (`_Misfit`). A server that has not reached
the version of a list was restored from a backup and would send nothing at all; then everything is
read again.

A list is complete as of an instant where a change or a bookmark has arrived whose version is not
older than the position that the server had then (ListState.complete_at). The position of nodes
stands for those that a pass does not ask for: an API server has one history for everything but what
--etcd-servers-overrides moves, mostly events. Where that is not known in a pass, the next one
learns it from what the watches have received since.

Where the server pauses so long that silence says nothing, a pass waits for no watch of a short
list. It compares the versions of the list's objects, after what the watch has brought, with those
of the server's list (object_versions.py), and reads in full what differs.

`compare` verifies lists that were followed. A busy cluster changes between two reads, so a list is
asked for as it was at the version that was followed (`resourceVersionMatch: Exact`), unless the
server has compacted that version.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import Expired, Forbidden
from chalicelib.cluster.list_page import ListMeta
from chalicelib.cluster.list_reader import ListReader
from chalicelib.cluster.list_state import (
    READERS,
    FollowedList,
    ListState,
    OtherObjects,
    fold_list,
    reread,
)
from chalicelib.cluster.listed_resources import RESOURCES, ListedResource
from chalicelib.cluster.object_versions import (
    MOST,
    Identity,
    ObjectChange,
    ObjectMeta,
    ServerVersions,
    begin_comparison,
    followed_versions,
    server_versions,
)
from chalicelib.cluster.snapshot_builder import FoldedObjects, collector_paused
from chalicelib.cluster.transport import HOSTED, JSON, METADATA_ONLY, METADATA_ONLY_CHANGES
from chalicelib.cluster.watch import (
    MARKED_WITHIN,
    ChangedObject,
    ListWatch,
    Watch,
    WatchPace,
    number_of,
    wait_for,
)

# seconds in which the watches must have answered; a list that has not is read again
_OPEN_WITHIN = 5.0
_PAUSES = "its watch pauses"
COMPACTED = "not comparable: compacted"
_MOST_NAMED = 20  # objects of a list whose names are given
# type of a change -> whether its object is held before
_EXPECTED = {"ADDED": False, "MODIFIED": True, "DELETED": True}
_PATHS = {resource.kind: resource.path for resource in RESOURCES}
_LINE = msgspec.json.Decoder(ChangedObject)


class _Position(msgspec.Struct, gc=False, frozen=True):
    """A list of one object: how far the server is, and how many objects there are."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None


_IDENTITY = msgspec.json.Decoder(Identity)
_POSITION = msgspec.json.Decoder(_Position)


class ServerBehind(Exception):
    """The server has not reached the version of a list: it was restored from a
    backup, or it is another one."""


class _Misfit(Exception):
    """A change that does not fit the list, which is therefore read again."""


class _Short(_Misfit):
    """Changes are missing."""


class Changes(msgspec.Struct, frozen=True):
    """What a pass has read. folded: number of changes; reread: kinds that were read in full, and
    why; short: kinds of which a watch paused before its end, so that this pass has read more, or
    the one before had missed changes."""

    folded: int
    reread: Mapping[str, str]
    short: tuple[str, ...] = ()


class WatchMeans:
    """With what watches are read. Replaced by tests whose time is virtual."""

    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def condition(self) -> threading.Condition:
        """Return what is notified when something has arrived."""
        return threading.Condition()

    def pool(self, most: int) -> Executor:
        """Return threads, at most so many."""
        return ThreadPoolExecutor(most, thread_name_prefix="watch")


def follow(
    kube: KubeClient,
    lists: ListState,
    *,
    rules: bool,
    now: float,
    pace: WatchPace,
    means: WatchMeans | None = None,
) -> Changes:
    """Bring all lists up to date. rules: see live_cluster.read_live_cluster. now: for
    ListState.complete_at. pace: of this server.

    Raises ServerBehind, and ClusterError if a list cannot be read; the lists
    cannot be used after either.
    """
    means = means or WatchMeans()
    late, pause = _take_late_changes(lists, pace)
    if pause:
        pace.note(pause)
    watched = [
        resource
        for resource in RESOURCES
        if resource.kind in lists.versions and resource.kind not in lists.unwatched
    ]
    changed, pool = means.condition(), means.pool(5 * len(watched) + 2 * READERS)
    try:
        positions = _Positions(kube, pool, changed)
        followed = {
            resource.kind: _list_watch(kube, resource, lists, pace, positions, pool, changed, means)
            for resource in watched
        }
        for resource in watched if pace.only_marks else _asked_in_any_case(watched, lists.passes):
            if not followed[resource.kind].settled or resource.kind == "Node":
                positions.ask(resource, followed[resource.kind])
        comparisons = _begin_comparisons(kube, lists, watched, followed, pool)
        others = OtherObjects(kube, lists, pool, rules=rules)
        within = MARKED_WITHIN if pace.only_marks else _OPEN_WITHIN
        wait_for(followed.values(), changed, means.monotonic() + within, means.monotonic)
        with collector_paused():
            compared = {kind: server_versions(parts) for kind, parts in comparisons.items()}
            changes = _fold_all(
                kube, lists, followed, compared, positions.all(), others, pool, now, pace, pause
            )
            return msgspec.structs.replace(
                changes, short=tuple(dict.fromkeys((*late, *changes.short)))
            )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Positions:
    """How far the server is with some lists. earliest: the lowest version among the answers so far,
    0 for none. All lists share one history in most clusters; where they do not, it only makes a
    pass wait longer than it must."""

    def __init__(self, kube: KubeClient, executor: Executor, changed: threading.Condition) -> None:
        self._kube, self._pool, self._changed = kube, executor, changed
        self._asked: dict[str, Future[ListMeta]] = {}
        self.earliest = 0

    def ask(self, resource: ListedResource, watch: ListWatch) -> None:
        """Ask for the position of a list, unless it was asked for already."""
        if resource.kind in self._asked:
            return

        def answered(answer: Future[ListMeta]) -> None:
            failed = answer.cancelled() or answer.exception() is not None
            version = 0 if failed else number_of(answer.result().resource_version)
            with self._changed:
                watch.answered(version or None)
                self.earliest = min(self.earliest or version, version or self.earliest)
                self._changed.notify_all()

        watch.asked()
        self._asked[resource.kind] = self._pool.submit(_position, self._kube, resource)
        self._asked[resource.kind].add_done_callback(answered)

    def all(self) -> dict[str, ListMeta]:
        """Return all answers by kind. Raises ClusterError."""
        return {kind: answer.result() for kind, answer in self._asked.items()}


def _list_watch(
    kube: KubeClient,
    resource: ListedResource,
    lists: ListState,
    pace: WatchPace,
    positions: _Positions,
    executor: Executor,
    changed: threading.Condition,
    means: WatchMeans,
) -> ListWatch:
    def opened(version: str) -> Watch:
        watch = Watch(
            kube,
            resource.path,
            resource.query,
            version,
            accept=METADATA_ONLY_CHANGES if resource.metadata else JSON,
            changed=changed,
            monotonic=means.monotonic,
        )
        executor.submit(watch.run)
        return watch

    kind = resource.kind
    # Whether to wait for the list takes less time than to read it: a mark arrives
    # after one or two seconds.
    awaited = not pace.only_marks or (
        kind not in pace.unmarked and lists.builder.objects.count(kind) > MOST
    )
    list_watch = ListWatch(
        opened,
        lists.versions[kind],
        pace,
        lambda: positions.ask(resource, list_watch),
        lambda: positions.earliest,
        awaited=awaited,
    )
    return list_watch


def _take_late_changes(lists: ListState, pace: WatchPace) -> tuple[tuple[str, ...], float]:
    """Take from the watches of the pass before what they have received since, as far as it says
    whether they were complete. Return the kinds that were not, and the longest pause in seconds."""
    short: list[str] = []
    pause = 0.0
    for kind, followed in lists.followed.items():
        for watch in followed.watches:
            pause = max(pause, watch.late_pause)
            for type_, version in _first_news(watch, followed.reached):
                if type_ == "BOOKMARK":
                    lists.versions[kind] = str(max(version, number_of(lists.versions[kind])))
                    if version >= (followed.position or followed.present) > 0:
                        lists.complete_at[kind] = max(
                            followed.asked_at, lists.complete_at.get(kind, followed.asked_at)
                        )
                elif version <= followed.present:
                    short.append(kind)
    lists.followed = {}
    return tuple(dict.fromkeys(short)), max(pause, pace.quiet if short else 0.0)


def _first_news(watch: Watch, reached: int) -> list[tuple[str, int]]:
    """Return what has arrived after that version, up to the first change: what comes after
    it is for the next watch."""
    news: list[tuple[str, int]] = []
    for type_, version in watch.late():
        if version > reached:
            news.append((type_, version))
            if type_ != "BOOKMARK":
                break
    return news


def _asked_in_any_case(watched: Sequence[ListedResource], passes: int) -> list[ListedResource]:
    """Return the lists whose position is asked for in any case: nodes, and another one in
    turn. All lists share one history in most clusters, so one would be enough; every one is
    asked for within a few passes."""
    always = [resource for resource in watched if resource.kind == "Node"]
    others = [resource for resource in watched if resource.kind != "Node"]
    return [*always, others[passes % len(others)]] if others else always


def _position(kube: KubeClient, resource: ListedResource) -> ListMeta:
    """Return how far the server is with a list; remaining: the number of all objects,
    None where it does not say."""
    page = kube.list_page(
        resource.path, {**resource.query, "limit": "1"}, _POSITION.decode, accept=METADATA_ONLY
    )
    items = page.listing.items or () if page.listing is not None else ()
    counted = not page.meta.next_page or page.meta.remaining is not None
    count = (
        len(items) + (page.meta.remaining or 0) if counted and page.listing is not None else None
    )
    return ListMeta(resource_version=page.meta.resource_version, remaining=count)


def _begin_comparisons(
    kube: KubeClient,
    lists: ListState,
    watched: Sequence[ListedResource],
    followed: Mapping[str, ListWatch],
    executor: Executor,
) -> dict[str, ListReader]:
    """Start comparing the lists for whose watches no pass waits, but for those that
    are read in full at once."""
    versions = lists.object_versions
    return {
        resource.kind: begin_comparison(kube, resource, executor, lists.check)
        for resource in watched
        if not followed[resource.kind].awaited
        and versions.of(resource.kind) is not None
        and resource.kind not in versions.at_once
    }


def _fold_all(
    kube: KubeClient,
    lists: ListState,
    followed: Mapping[str, ListWatch],
    compared: Mapping[str, ServerVersions | None],
    positions: Mapping[str, ListMeta],
    others: OtherObjects,
    executor: Executor,
    now: float,
    pace: WatchPace,
    pause: float,
) -> Changes:
    for kind, position in positions.items():
        if number_of(position.resource_version) < number_of(lists.versions[kind]):
            raise ServerBehind(kind)
    again: dict[str, str] = {}
    count = 0
    unchecked = _UncheckedLists(lists, followed)
    for kind, watch in followed.items():
        pause = max(pause, watch.pause())
        if watch.waited_in_vain:
            pace.unmarked.add(kind)
        try:
            count += _fold(lists, kind, watch, compared, positions.get(kind))
        except _Misfit as misfit:
            again[kind] = str(misfit)
            if isinstance(misfit, _Short) and not watch.stalled:
                pause = max(pause, pace.quiet)
        else:
            if watch.marked or kind in compared:
                lists.complete_at[kind] = now
        if isinstance(watch.watches[0].error, Forbidden):
            lists.unwatched.add(kind)
        if kind not in unchecked.watches:
            watch.finish()
    pace.note(pause)
    lists.object_versions.records = pace.only_marks
    again |= {
        resource.kind: "not watched" for resource in RESOURCES if resource.kind not in followed
    }
    reread(kube, lists, [resource for resource in RESOURCES if resource.kind in again], executor)
    unchecked.finish()
    lists.complete_at |= dict.fromkeys(again, now)
    for kind, watch in followed.items():
        version = number_of(lists.versions.get(kind, ""))
        lists.followed[kind] = FollowedList(
            watch.watches, version, watch.present_then, watch.position, now
        )
    others.fold()
    return Changes(count, again, tuple(kind for kind, watch in followed.items() if watch.paused))


class _UncheckedLists:
    """Lists that are read in full without a comparison: whether one would have been enough. Their
    watches are finished when that is known."""

    def __init__(self, lists: ListState, followed: Mapping[str, ListWatch]) -> None:
        self._lists = lists
        self._before: dict[str, Mapping[str, int]] = {}
        versions = lists.object_versions
        for kind in versions.at_once.keys() & followed.keys():
            before = versions.of(kind)
            if before is not None and followed[kind].stalled:
                self._before[kind] = before
        self.watches = {kind: followed[kind] for kind in self._before}

    def finish(self) -> None:
        """Let the next pass compare what would not have had to be read in full."""
        versions = self._lists.object_versions
        for kind, watch in self.watches.items():
            changes = _changes_brought(watch.watches[0])
            until = number_of(self._lists.versions.get(kind, ""))
            if versions.of(kind) == followed_versions(self._before[kind], changes, until):
                versions.note_likeness(kind)
            watch.finish()


def _changes_brought(watch: Watch) -> list[ObjectChange]:
    try:
        return [ObjectChange(change.type, meta) for change, meta in _brought(watch)]
    except _Misfit:
        return []


def _brought(watch: Watch) -> list[tuple[ChangedObject, ObjectMeta]]:
    """Return the changes that a watch has brought so far. Raises _Misfit."""
    lines = [_decoded(line) for line in watch.lines()[0]]
    return [(change, meta) for change, meta in lines if change.type != "BOOKMARK"]


def _fold_compared(lists: ListState, kind: str, watch: Watch, server: ServerVersions | None) -> int:
    """Fold the changes of a list up to the version of the server's list, if they make it
    that list; a watch that pauses may have brought too little. Return their number.
    Raises _Misfit, ServerBehind."""
    before = lists.object_versions.of(kind)
    if server is None or before is None:
        raise _Short(_PAUSES)
    if server.version < number_of(lists.versions[kind]):
        raise ServerBehind(kind)
    brought = [
        (change, meta)
        for change, meta in _brought(watch)
        if number_of(meta.resource_version) <= server.version
    ]
    changes = [ObjectChange(change.type, meta) for change, meta in brought]
    if followed_versions(before, changes, server.version) != server.objects:
        lists.object_versions.note_difference(kind)
        raise _Short(_PAUSES)
    for change, meta in brought:
        _apply(lists, kind, change, meta)
    lists.versions[kind] = str(server.version)
    return len(brought)


def _fold(
    lists: ListState,
    kind: str,
    watch: ListWatch,
    compared: Mapping[str, ServerVersions | None],
    list_meta: ListMeta | None,
) -> int:
    """Fold the changes of one list and return their number. Raises _Misfit, ServerBehind."""
    if kind in compared:
        return _fold_compared(lists, kind, watch.watches[0], compared[kind])
    if watch.stalled:
        raise _Short(_PAUSES)
    first, *checks = watch.watches
    version, count = _fold_watch(lists, kind, first, number_of(lists.versions[kind]))
    for check in checks:  # begins with what the watch before it has brought since
        version, more = _fold_watch(lists, kind, check, version, repeats=True)
        count += more
    lists.versions[kind] = str(version)
    server_count = list_meta.remaining if list_meta is not None else None
    count_here = lists.builder.objects.count(kind)
    if (
        list_meta is not None
        and server_count not in (None, count_here)
        and version <= number_of(list_meta.resource_version)
    ):
        raise _Short(f"{count_here} objects, {server_count} on the server")
    return count


def _fold_watch(
    lists: ListState, kind: str, watch: Watch, version: int, *, repeats: bool = False
) -> tuple[int, int]:
    """Fold the changes of one watch after a version. repeats: it may bring earlier ones, too.
    Return the last version and the number of changes. Raises _Misfit."""
    lines, cut = watch.lines()
    if watch.error is not None or not watch.opened:
        raise _Misfit(watch.error.message if watch.error is not None else "no answer in time")
    if cut:
        raise _Misfit("the last change is cut short")
    count = 0
    for line in lines:
        change, meta = _decoded(line)
        now = number_of(meta.resource_version)
        if change.type == "BOOKMARK":
            version = max(version, now)
            continue
        if repeats and now <= version:
            continue
        if now <= version or not meta.name:
            raise _Misfit(f"version {now} does not follow {version}")
        _apply(lists, kind, change, meta)
        version, count = now, count + 1
    return version, count


def _decoded(line: bytes) -> tuple[ChangedObject, ObjectMeta]:
    """Return a change, and what identifies its object. Raises _Misfit."""
    try:
        change = _LINE.decode(line)
        if change.type == "ERROR":
            raise _Misfit("the server no longer knows the version")
        return change, _IDENTITY.decode(change.object).metadata
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _Misfit("a change cannot be decoded") from None


def _apply(lists: ListState, kind: str, change: ChangedObject, meta: ObjectMeta) -> None:
    """Fold one change. Raises _Misfit."""
    objects = lists.builder.objects
    exists = objects.holds(kind, meta.namespace, meta.name)
    if _EXPECTED.get(change.type) is not exists:
        raise _Misfit(f"{change.type} does not fit {meta.namespace}/{meta.name}")
    if exists:
        objects.remove(kind, meta.namespace, meta.name)
    if change.type != "DELETED":
        lists.builder.add_object(change.object, kind, _PATHS[kind])
    lists.object_versions.note_change(kind, ObjectChange(change.type, meta))


class Comparison(msgspec.Struct, frozen=True):
    """differences: `KIND: NAME, ...` for each list whose objects differ. incomparable:
    kinds of lists, and why."""

    differences: tuple[str, ...]
    incomparable: Mapping[str, str]


def compare(kube: KubeClient, lists: ListState) -> Comparison:
    """Read all lists at the versions that were followed, and compare their
    objects. Raises ClusterError."""
    exact = ListState(lists.namespace)
    exact.bound(lists.check)
    resources = [resource for resource in RESOURCES if resource.kind in lists.versions]
    incomparable: dict[str, str] = {}
    differences: list[str] = []
    with collector_paused(), ThreadPoolExecutor(READERS, thread_name_prefix="exact") as pool:
        try:
            started = [
                (
                    resource,
                    ListReader(
                        kube,
                        resource,
                        pool,
                        HOSTED,
                        at=lists.versions[resource.kind],
                        check=lists.check,
                    ),
                )
                for resource in resources
            ]
            for resource, parts in started:
                try:
                    fold_list(resource, parts, exact)
                except Expired:
                    incomparable[resource.kind] = COMPACTED
                    exact.builder.reset(resource.kind)
                    continue
                if resource.kind in exact.versions and (
                    names := _different(resource.kind, lists.builder.objects, exact.builder.objects)
                ):
                    differences.append(f"{resource.kind}: {', '.join(names[:_MOST_NAMED])}")
        finally:
            pool.shutdown(cancel_futures=True)
    return Comparison(tuple(differences), incomparable)


def _different(kind: str, objects: FoldedObjects, other_objects: FoldedObjects) -> list[str]:
    """Return the names of the objects of a kind that differ, `NAMESPACE/NAME`, sorted."""
    mine, theirs = _contents(kind, objects), _contents(kind, other_objects)
    keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    return ["/".join(part for part in key.split("\0") if part) for key in keys]


def _contents(kind: str, objects: FoldedObjects) -> dict[str, Any]:
    """Return what is known of each object by its key, without numbers of classes: they depend on
    the order in which pods were read."""
    classes = objects.table.classes
    contents: dict[str, Any] = dict(objects.by_kind[kind])
    if kind == "Pod":
        contents = {
            key: (msgspec.structs.replace(pod, cls=0), classes[pod.cls])
            for key, pod in objects.pods.items()
        }
    elif kind == "DaemonSet":
        contents |= {key: (each.uid, classes[each.cls]) for key, each in objects.daemonsets.items()}
    return contents | {
        key: gap for (bad_kind, key), gap in objects.malformed.items() if bad_kind == kind
    }
