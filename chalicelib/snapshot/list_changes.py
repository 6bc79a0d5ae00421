"""Brings the lists of an earlier pass up to date by what has changed since, so that a pass costs what has changed.

Every list is watched from its version. The plan must be the one that a full read would give, so anything that does not
fit leads to reading a list again: a version that the server has compacted (410), an object that is added twice or
changed before it was added, versions that do not rise, a line that cannot be decoded, a broken connection, a count that
differs from the server's, a server that pauses again and again. A server that has not reached the version of a list was
restored from a backup and would send nothing at all; then everything is read again.

A list is complete as of an instant where a change or a bookmark has arrived whose version is not older than the
position that the server had then (ClusterLists.complete_at). The position of nodes stands for those that a pass does
not ask for: an API server has one history for everything but what --etcd-servers-overrides moves, mostly events. Where
that is not known in a pass, the next one learns it from what the watches have received since, or sees that they had
stopped before their end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import Forbidden
from chalicelib.kube.list_page import ListMeta
from chalicelib.kube.list_watch import MARKED_WITHIN, ListWatch, WatchPace, wait_for
from chalicelib.kube.transport import JSON, METADATA_ONLY, METADATA_ONLY_CHANGES
from chalicelib.kube.watch import ChangedObject, Watch, number_of
from chalicelib.snapshot.cluster_lists import READERS, ClusterLists, FollowedList, OtherObjects, reread
from chalicelib.snapshot.listed_resources import RESOURCES, ListedResource
from chalicelib.snapshot.snapshot_builder import collector_paused

_OPEN_WITHIN = 5.0  # seconds in which the watches must have answered; a list that has not is read again
_FEW = 5_000  # objects that are read in less time than a mark takes to arrive, one or two seconds
_LINE = msgspec.json.Decoder(ChangedObject)


class _ObjectMeta(msgspec.Struct, gc=False, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Identity(msgspec.Struct, gc=False, frozen=True):
    metadata: _ObjectMeta


class _Position(msgspec.Struct, gc=False, frozen=True):
    """A list of one object: how far the server is, and how many objects there are."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None


_IDENTITY = msgspec.json.Decoder(_Identity)
_POSITION = msgspec.json.Decoder(_Position)


class ServerBehind(Exception):
    """The server has not reached the version of a list: it was restored from a backup, or it is another one."""


class _Misfit(Exception):
    """A change that does not fit the list, which is therefore read again."""


class _Short(_Misfit):
    """Changes are missing."""


class Changes(msgspec.Struct, frozen=True):
    """What a pass has read. folded: number of changes; reread: kinds that were read in full, and why; short: kinds of
    which a watch paused before its end, so that this pass has read more, or the one before had missed changes."""

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
    lists: ClusterLists,
    *,
    rules: bool,
    turn: int,
    now: float,
    pace: WatchPace,
    means: WatchMeans | None = None,
) -> Changes:
    """Bring all lists up to date. rules: see live_cluster.read_live_cluster. turn: number of this pass, which
    determines the list whose position is asked for beside that of nodes and of those that have changed. now: for
    ClusterLists.complete_at. pace: of this server.

    Raises ServerBehind, and ClusterError if a list cannot be read; the lists cannot be used after either.
    """
    means = means or WatchMeans()
    late, pause = _late(lists, pace)
    if pause:
        pace.note(pause)
    watched = [each for each in RESOURCES if each.kind in lists.versions and each.kind not in lists.unwatched]
    changed, pool = means.condition(), means.pool(5 * len(watched) + 2 * READERS)
    try:
        positions = _Positions(kube, pool, changed)
        followed = {
            each.kind: _list_watch(kube, each, lists, pace, positions, pool, changed, means) for each in watched
        }
        for each in watched if pace.only_marks else _asked(watched, turn):
            if not followed[each.kind].settled or each.kind == "Node":
                positions.ask(each, followed[each.kind])
        others = OtherObjects(kube, lists, pool, rules=rules)
        within = MARKED_WITHIN if pace.only_marks else _OPEN_WITHIN
        wait_for(followed.values(), changed, means.monotonic() + within, means.monotonic)
        known = positions.all()
        with collector_paused():
            made = _folded(kube, lists, followed, known, others, pool, now, pace, pause)
            return msgspec.structs.replace(made, short=tuple(dict.fromkeys((*late, *made.short))))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _is_worth_waiting(kind: str, lists: ClusterLists, pace: WatchPace) -> bool:
    """Return whether to wait for a list takes less time than to read it."""
    return not pace.only_marks or (kind not in pace.unmarked and lists.builder.objects.count(kind) > _FEW)


class _Positions:
    """How far the server is with some lists. earliest: the lowest version among the answers so far, 0 for none. All
    lists share one history in most clusters; where they do not, it only makes a pass wait longer than it must."""

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
        return {kind: asked.result() for kind, asked in self._asked.items()}


def _list_watch(
    kube: KubeClient,
    resource: ListedResource,
    lists: ClusterLists,
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
            accept=_form(resource),
            changed=changed,
            monotonic=means.monotonic,
        )
        executor.submit(watch.run)
        return watch

    made = ListWatch(
        opened,
        lists.versions[resource.kind],
        pace,
        lambda: positions.ask(resource, made),
        lambda: positions.earliest,
        awaited=_is_worth_waiting(resource.kind, lists, pace),
    )
    return made


def _late(lists: ClusterLists, pace: WatchPace) -> tuple[tuple[str, ...], float]:
    """Take from the watches of the pass before what they have received since, as far as it says whether they were
    complete. Return the kinds that were not, and the longest pause in seconds."""
    short: list[str] = []
    pause = 0.0
    for kind, followed in lists.followed.items():
        for watch in followed.watches:
            pause = max(pause, watch.late_pause)
            for type_, version in _first_news(watch, followed.reached):
                if type_ == "BOOKMARK":
                    lists.versions[kind] = str(max(version, number_of(lists.versions[kind])))
                    if version >= (followed.position or followed.present) > 0:
                        lists.complete_at[kind] = max(followed.asked_at, lists.complete_at.get(kind, followed.asked_at))
                elif version <= followed.present:
                    short.append(kind)
    lists.followed = {}
    return tuple(dict.fromkeys(short)), max(pause, pace.quiet if short else 0.0)


def _first_news(watch: Watch, reached: int) -> list[tuple[str, int]]:
    """Return what has arrived after that version, up to the first change: what comes after it is for the next watch."""
    news: list[tuple[str, int]] = []
    for type_, version in watch.late():
        if version > reached:
            news.append((type_, version))
            if type_ != "BOOKMARK":
                break
    return news


def _asked(watched: Sequence[ListedResource], turn: int) -> list[ListedResource]:
    """Return the lists whose position is asked for in any case: nodes, and another one in turn. All lists share one
    history in most clusters, so one would be enough; every one is asked for within a few passes."""
    always = [each for each in watched if each.kind == "Node"]
    others = [each for each in watched if each.kind != "Node"]
    return [*always, others[turn % len(others)]] if others else always


def _form(resource: ListedResource) -> str:
    return METADATA_ONLY_CHANGES if resource.metadata else JSON


def _position(kube: KubeClient, resource: ListedResource) -> ListMeta:
    """Return how far the server is with a list; remaining: the number of all objects, None where it does not say."""
    page = kube.list_page(resource.path, {**resource.query, "limit": "1"}, _POSITION.decode, accept=METADATA_ONLY)
    items = page.listing.items or () if page.listing is not None else ()
    counted = not page.meta.next_page or page.meta.remaining is not None
    count = len(items) + (page.meta.remaining or 0) if counted and page.listing is not None else None
    return ListMeta(resource_version=page.meta.resource_version, remaining=count)


def _folded(
    kube: KubeClient,
    lists: ClusterLists,
    followed: Mapping[str, ListWatch],
    known: Mapping[str, ListMeta],
    others: OtherObjects,
    executor: Executor,
    now: float,
    pace: WatchPace,
    pause: float,
) -> Changes:
    for kind, position in known.items():
        if number_of(position.resource_version) < number_of(lists.versions[kind]):
            raise ServerBehind(kind)
    again: dict[str, str] = {}
    count = 0
    for kind, watch in followed.items():
        pause = max(pause, watch.pause())
        if watch.waited_in_vain:
            pace.unmarked.add(kind)
        try:
            count += _fold(lists, kind, watch, known.get(kind))
        except _Misfit as misfit:
            again[kind] = str(misfit)
            if isinstance(misfit, _Short) and not watch.stalled:
                pause = max(pause, pace.quiet)
        else:
            if watch.marked:
                lists.complete_at[kind] = now
        if isinstance(watch.watches[0].error, Forbidden):
            lists.unwatched.add(kind)
        watch.finish()
    pace.note(pause)
    again |= {each.kind: "not watched" for each in RESOURCES if each.kind not in followed}
    reread(kube, lists, [each for each in RESOURCES if each.kind in again], executor)
    lists.complete_at |= dict.fromkeys(again, now)
    for kind, watch in followed.items():
        version = number_of(lists.versions.get(kind, ""))
        lists.followed[kind] = FollowedList(watch.watches, version, watch.present_then, watch.position, now)
    others.fold()
    return Changes(count, again, tuple(kind for kind, watch in followed.items() if watch.paused))


def _fold(lists: ClusterLists, kind: str, watch: ListWatch, list_meta: ListMeta | None) -> int:
    """Fold the changes of one list and return their number. Raises _Misfit."""
    if watch.stalled:
        raise _Short("its watch pauses")
    first, *checks = watch.watches
    version, count = _fold_watch(lists, kind, first, number_of(lists.versions[kind]))
    for check in checks:  # begins with what the watch before it has brought since
        version, more = _fold_watch(lists, kind, check, version, repeats=True)
        count += more
    lists.versions[kind] = str(version)
    there = list_meta.remaining if list_meta is not None else None
    here = lists.builder.objects.count(kind)
    if list_meta is not None and there not in (None, here) and version <= number_of(list_meta.resource_version):
        raise _Short(f"{here} objects, {there} on the server")
    return count


def _fold_watch(
    lists: ClusterLists, kind: str, watch: Watch, version: int, *, repeats: bool = False
) -> tuple[int, int]:
    """Fold the changes of one watch after a version. repeats: it may bring earlier ones, too. Return the last version
    and the number of changes. Raises _Misfit."""
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


def _decoded(line: bytes) -> tuple[ChangedObject, _ObjectMeta]:
    """Return a change, and what identifies its object. Raises _Misfit."""
    try:
        change = _LINE.decode(line)
        if change.type == "ERROR":
            raise _Misfit("the server no longer knows the version")
        return change, _IDENTITY.decode(change.object).metadata
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _Misfit("a change cannot be decoded") from None


def _apply(lists: ClusterLists, kind: str, change: ChangedObject, meta: _ObjectMeta) -> None:
    """Fold one change. Raises _Misfit."""
    objects = lists.builder.objects
    held = objects.holds(kind, meta.namespace, meta.name)
    if _EXPECTED.get(change.type) is not held:
        raise _Misfit(f"{change.type} does not fit {meta.namespace}/{meta.name}")
    if held:
        objects.remove(kind, meta.namespace, meta.name)
    if change.type != "DELETED":
        lists.builder.add_object(change.object, kind, _PATHS[kind])


_EXPECTED = {"ADDED": False, "MODIFIED": True, "DELETED": True}
_PATHS = {each.kind: each.path for each in RESOURCES}
