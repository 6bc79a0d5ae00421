"""Brings the lists of an earlier pass up to date by what has changed since, so that a pass costs what has changed.

Every list is watched from its version. The plan must be the one that a full read would give, so anything that does not
fit leads to reading a list again: a version that the server has compacted (410), an object that is added twice or
changed before it was added, versions that do not rise, a line that cannot be decoded, a broken connection, a count that
differs from the server's. A server that has not reached the version of a list was restored from a backup and would send
nothing at all; then everything is read again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import Forbidden
from chalicelib.kube.list_page import ListMeta
from chalicelib.kube.transport import JSON, METADATA_ONLY, METADATA_ONLY_CHANGES
from chalicelib.kube.watch import QUIET, ChangedObject, Watch, wait_for
from chalicelib.snapshot.cluster_lists import READERS, ClusterLists, OtherObjects, number_of, reread
from chalicelib.snapshot.listed_resources import RESOURCES, ListedResource
from chalicelib.snapshot.snapshot_builder import collector_paused

_OPEN_WITHIN = 5.0  # seconds in which the watches must have answered; a list that has not is read again
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


class Changes(msgspec.Struct, frozen=True):
    """What a pass has read. folded: number of changes; reread: kinds that were read in full, and why."""

    folded: int
    reread: Mapping[str, str]


def follow(kube: KubeClient, lists: ClusterLists, *, rules: bool, turn: int, quiet: float = QUIET) -> Changes:
    """Bring all lists up to date. rules: see live_cluster.read_live_cluster. turn: number of this pass, which
    determines the list whose position is asked for beside that of nodes. quiet: see kube.watch.Watch.

    Raises ServerBehind, and ClusterError if a list cannot be read; the lists cannot be used after either.
    """
    changed = threading.Condition()
    watched = [each for each in RESOURCES if each.kind in lists.versions and each.kind not in lists.unwatched]
    asked = _asked(watched, turn)
    pool = ThreadPoolExecutor(len(watched) + len(asked) + READERS, thread_name_prefix="watch")
    try:
        watches = {
            each.kind: Watch(
                kube, each.path, each.query, lists.versions[each.kind], accept=_form(each), quiet=quiet, changed=changed
            )
            for each in watched
        }
        for watch in watches.values():
            pool.submit(watch.run)
        positions = {each.kind: pool.submit(_position, kube, each) for each in asked}
        others = OtherObjects(kube, lists, pool, rules=rules)
        known = {kind: position.result() for kind, position in positions.items()}
        wait_for(watches.values(), changed, time.monotonic() + _OPEN_WITHIN)
        with collector_paused():
            return _folded(kube, lists, watches, known, others, pool)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _asked(watched: Sequence[ListedResource], turn: int) -> list[ListedResource]:
    """Return the lists whose position is asked for: nodes, and another one in turn. All lists share one history in most
    clusters, so one would be enough; every one is asked for within a few passes."""
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
    watches: Mapping[str, Watch],
    known: Mapping[str, ListMeta],
    others: OtherObjects,
    pool: ThreadPoolExecutor,
) -> Changes:
    for kind, position in known.items():
        if number_of(position.resource_version) < number_of(lists.versions[kind]):
            raise ServerBehind(kind)
    again: dict[str, str] = {}
    count = 0
    for kind, watch in watches.items():
        try:
            count += _fold(lists, kind, watch, known.get(kind))
        except _Misfit as misfit:
            again[kind] = str(misfit)
        if isinstance(watch.error, Forbidden):
            lists.unwatched.add(kind)
    again |= {each.kind: "not watched" for each in RESOURCES if each.kind not in watches}
    reread(kube, lists, [each for each in RESOURCES if each.kind in again], pool)
    others.fold()
    return Changes(count, again)


def _fold(lists: ClusterLists, kind: str, watch: Watch, position: ListMeta | None) -> int:
    """Fold the changes of one list and return their number. Raises _Misfit."""
    lines, cut = watch.lines()
    if watch.error is not None or not watch.opened:
        raise _Misfit(watch.error.message if watch.error is not None else "no answer in time")
    if cut:
        raise _Misfit("the last change is cut short")
    version, count = number_of(lists.versions[kind]), 0
    for line in lines:
        change, meta = _decoded(line)
        now = number_of(meta.resource_version)
        if change.type == "BOOKMARK":
            version = max(version, now)
            continue
        if now <= version or not meta.name:
            raise _Misfit(f"version {now} does not follow {version}")
        _apply(lists, kind, change, meta)
        version, count = now, count + 1
    lists.versions[kind] = str(version)
    there = position.remaining if position is not None else None
    here = lists.builder.objects.count(kind)
    if position is not None and there not in (None, here) and version <= number_of(position.resource_version):
        raise _Misfit(f"{here} objects, {there} on the server")
    return count


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
