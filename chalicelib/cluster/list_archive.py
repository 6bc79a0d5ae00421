"""Lists of clusters as bytes, and where processes share them: what functions have
read, and what watchers post.

Bytes are only what the planner reads, compressed and sealed: a base, or what has changed since one.
Changes are always all of those since the base: the last ones are enough, and it does not matter
whether earlier ones were lost.

The seal is an HMAC whose key is the digest of the cluster and of the origin of its lists. Lists
that were changed, or that were read by another release, from another server or with another
account, have another seal and are not used. Where the account is a signed one (EKS) the digest
contains no secret, and the bucket alone protects the lists.

Without the archive, a pass reads everything wherever chance gives the message to another
process than the pass before. The archive is off by default. What it holds saves reading only; a
pass goes on without it.

A watcher in a cluster posts a base in parts, and then what has changed since, so that passes read
the cluster without access to its API. The webhook stores both as they come. A pass verifies their
seal, whose key the webhook does not have, and joins them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec

from chalicelib.aws.object_bucket import ObjectBucket, ObjectMissing, bucket_of
from chalicelib.cluster.class_table import key_of
from chalicelib.cluster.list_state import CONFIG_MAP, LONGEST, ListOrigin, ListState
from chalicelib.cluster.snapshot_builder import collector_paused
from chalicelib.cluster.storage import CLAIMS
from chalicelib.cluster.watcher_post import MOST_PARTS, WATCHED, WatcherPost
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.snapshot import (
    Controller,
    DaemonSet,
    MissingData,
    PodDisruptionBudget,
    PriorityConfig,
)
from chalicelib.model.storage import Claim, CSINode, PersistentVolume, StorageCapacity, StorageClass
from chalicelib.model.struct_form import form_of
from chalicelib.net.bounded_files import content, write_whole
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT

LARGEST, LARGEST_UNPACKED = 64 << 20, 512 << 20  # bytes
SAVED_EVERY = 50.0
"""Seconds between two saves of a cluster: a process that finds older lists may find that the server
has forgotten their version."""
SILENT_FOR = 45.0
"""Seconds without a post after which the lists of a watcher are not used."""
STOPPED_AFTER = 600.0
"""Seconds without a post after which the watcher counts as stopped: it ends itself
then, and is started again."""
_FORMAT = 1
_LEVEL = 1  # of zlib: the fastest
_SEAL = hashlib.sha256().digest_size
_APART = 5.0  # seconds by which the clocks of the watcher and of a function may differ
_SKEW = 30.0  # seconds by which the clocks of two processes may differ
_SHARE = 0.02  # of a process's time that saving may take
_SHORTEST_SECRET = 32  # characters
_SECRET_REMEDY = "store a random text, such as that of openssl rand -hex 32"  # noqa: S105 - words of an error
_POST = re.compile(rb"(?P<base>[0-9a-f]{32}) (?P<parts>[0-9]{1,2}) (?P<received>[0-9]{1,12})")
_COMMON = ("", 0.0, 30.0, "", "", "", False)
"""What most pods have in the place of `_PodRow.rest`."""


class ArchiveFailure(OutscalerError):
    """The place of the lists did not do what it was asked, or returned lists that cannot be used:
    damaged, changed, or read in other circumstances."""


class PostsBehind(ArchiveFailure):
    """A watcher's posts are too old at present, as after each operation:
    later ones will be used."""

    published_name = "ArchiveFailure"


# --- lists as bytes


class _PodRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A pod. namespace, node: numbers of names. rest: nominated, deleted, deletion_grace,
    scheduled, its reason and message, and unready; None for _COMMON. times: started and refused_at;
    None without either, as in rows of earlier releases."""

    namespace: int
    name: str
    uid: str
    cls: int
    node: int
    phase: str
    created: float
    rest: tuple[str, float, float, str, str, str, bool] | None = None
    times: tuple[float, float] | None = None


class _ListsDocument(msgspec.Struct, array_like=True):
    """What ListState holds. read_at, followed_at: epoch seconds. names: those that pods refer to.
    The other fields have objects by kind and key."""

    read_at: float
    followed_at: float
    versions: dict[str, str]
    unwatched: set[str]
    gaps: tuple[MissingData, ...]
    listed: frozenset[str]
    seen: frozenset[str]
    malformed: list[tuple[str, str, MissingData]]
    classes: list[PodClass]
    names: list[str]
    pods: list[_PodRow]
    daemonsets: dict[str, DaemonSet]
    nodes: dict[str, Node]
    budgets: dict[str, PodDisruptionBudget]
    controllers: dict[str, dict[str, Controller]]
    namespaces: dict[str, dict[str, str]]
    claims: dict[str, Claim]
    volumes: dict[str, PersistentVolume]
    storage_classes: dict[str, StorageClass]
    csi_nodes: dict[str, CSINode]
    csi_drivers: dict[str, str]
    capacities: dict[str, StorageCapacity]
    priorities: dict[str, PriorityConfig]


_FIELDS = {
    "nodes": "Node",
    "budgets": "PodDisruptionBudget",
    "namespaces": "Namespace",
    "claims": CLAIMS,
    "volumes": "PersistentVolume",
    "storage_classes": "StorageClass",
    "csi_nodes": "CSINode",
    "csi_drivers": "CSIDriver",
    "capacities": "CSIStorageCapacity",
    "priorities": CONFIG_MAP,
}
"""Fields of _ListsDocument with the objects of one kind. Rule objects are
read anew by every pass."""


class _Changes(msgspec.Struct, array_like=True):
    """What has changed since a base. base: its name. added: objects that are new or different, and
    all that is not about objects. gone: keys of objects by kind."""

    base: str
    added: _ListsDocument
    gone: dict[str, list[str]]


_DECODER, _CHANGES = msgspec.msgpack.Decoder(_ListsDocument), msgspec.msgpack.Decoder(_Changes)


def seal_key(cluster: str, origin: ListOrigin) -> bytes:
    """Return the key of the seal of a cluster's lists."""
    parts = (cluster, origin.access, origin.scope, origin.release, _form())
    return hashlib.sha256("\0".join(parts).encode()).digest()


@lru_cache(maxsize=1)
def _form() -> str:
    return form_of(_ListsDocument, _FORMAT)


def encode(lists: ListState, key: bytes, read_at: float, followed_at: float) -> bytes | None:
    """Return a base; None for more than LARGEST bytes. key: see seal_key. read_at,
    followed_at: epoch seconds."""
    with collector_paused():
        return _sealed(msgspec.msgpack.encode(_packed(lists, read_at, followed_at)), key)


class ListsBase:
    """Lists as they were at an instant, to which later ones are compared. read_at: epoch seconds.
    name: of its bytes, 32 hexadecimal digits that follow from them."""

    def __init__(self, lists: ListState, read_at: float, data: bytes) -> None:
        self.read_at, self.name = read_at, _name_of(data)
        objects = lists.builder.objects
        self._objects = {kind: dict(objects.by_kind[kind]) for kind in objects.by_kind}
        self._classes = objects.table.size

    def changes(
        self, lists: ListState, key: bytes, followed_at: float
    ) -> tuple[bytes, bytes] | None:
        """Return what has changed since, sealed, and a digest of the same without its
        time, equal where nothing has changed; None for more than LARGEST bytes.
        lists: the same lists, later."""
        objects = lists.builder.objects
        added: dict[str, list[str]] = {}
        gone: dict[str, list[str]] = {}
        for kind, before in self._objects.items():
            now = objects.by_kind[kind]
            added[kind] = [
                name
                for name, item in now.items()
                if item is not (old := before.get(name)) and item != old
            ]
            gone[kind] = [name for name in before if name not in now]
        with collector_paused():
            document = _packed(lists, self.read_at, followed_at, added, self._classes)
            # No pass follows these lists, so their versions would only make
            # every post a different one.
            document.versions = {}
            changes = _Changes(self.name, document, gone)
            data = _sealed(msgspec.msgpack.encode(changes), key)
            document.followed_at = 0.0
            digest = hashlib.sha256(msgspec.msgpack.encode(changes)).digest()
        return (data, digest) if data is not None else None


def decode(base: bytes, changes: bytes | None, key: bytes, namespace: str) -> ListState:
    """Return the lists of a base after its changes, None for none; its times are epoch seconds.
    namespace: see ListState. Raises ArchiveFailure, also for changes of another base."""
    lists = ListState(namespace)
    with collector_paused():
        with _usable():
            document = _DECODER.decode(_unsealed(base, key))
            _add(document, lists)
        if changes is not None:
            with _usable():
                changed = _CHANGES.decode(_unsealed(changes, key))
                if changed.base != _name_of(base):
                    raise ArchiveFailure("the changes belong to another base")
                objects = lists.builder.objects
                for kind, names in changed.gone.items():
                    for name in names:
                        objects.by_kind[kind].pop(name, None)
                objects.malformed.clear()
                objects.daemonsets.clear()
                document = changed.added
                _add(document, lists)
    lists.read_at, lists.followed_at = document.read_at, document.followed_at
    return lists


def _name_of(base: bytes) -> str:
    return hashlib.sha256(base).hexdigest()[:32]


def _sealed(plain: bytes, key: bytes) -> bytes | None:
    """Return compressed and sealed bytes; None for more than LARGEST."""
    if len(plain) > LARGEST_UNPACKED:
        return None
    body = zlib.compress(plain, _LEVEL)
    data = hmac.digest(key, body, "sha256") + body
    return data if len(data) <= LARGEST else None


def _unsealed(data: bytes, key: bytes) -> bytes:
    """Return the bytes that were sealed. Raises ArchiveFailure, zlib.error."""
    seal, body = data[:_SEAL], data[_SEAL:]
    if not hmac.compare_digest(seal, hmac.digest(key, body, "sha256")):
        raise ArchiveFailure("another server, account or release, or damaged")
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(body, LARGEST_UNPACKED + 1)
    if len(plain) > LARGEST_UNPACKED or not unpacker.eof:
        raise ArchiveFailure("its length is wrong")
    return plain


@contextmanager
def _usable() -> Iterator[None]:
    """Raise ArchiveFailure for bytes that cannot be decoded."""
    try:
        yield
    except (zlib.error, msgspec.MsgspecError, ValueError, LookupError, RecursionError) as error:
        raise ArchiveFailure(f"cannot be decoded ({type(error).__name__})") from None


def _packed(
    lists: ListState,
    read_at: float,
    followed_at: float,
    only: Mapping[str, Collection[str]] | None = None,
    known_classes: int = 0,
) -> _ListsDocument:
    """Return lists as they are stored. only: keys of the objects by kind, None for all.
    known_classes: number of classes that are left out."""

    def of(kind: str) -> dict[str, Any]:
        objects_of_kind = objects.by_kind[kind]
        return (
            objects_of_kind
            if only is None
            else {name: objects_of_kind[name] for name in only[kind]}
        )

    objects = lists.builder.objects
    gaps, listed, seen = lists.builder.listing_state()
    names: dict[str, int] = {"": 0}
    return _ListsDocument(
        read_at=read_at,
        followed_at=followed_at,
        versions=lists.versions,
        unwatched=lists.unwatched,
        gaps=gaps,
        listed=listed,
        seen=seen,
        malformed=[(kind, key, gap) for (kind, key), gap in objects.malformed.items()],
        classes=objects.table.classes[known_classes:],
        pods=[_row(pod, names) for pod in of("Pod").values()],
        names=list(names),
        daemonsets=objects.daemonsets,
        controllers={kind: of(kind) for kind in objects.controllers},
        **{field: of(kind) for field, kind in _FIELDS.items()},
    )


def _row(pod: Pod, names: dict[str, int]) -> _PodRow:
    rest = (
        pod.nominated,
        pod.deleted,
        pod.deletion_grace,
        pod.scheduled,
        pod.scheduled_reason,
        pod.scheduled_message,
        pod.unready,
    )
    return _PodRow(
        names.setdefault(pod.namespace, len(names)),
        pod.name,
        pod.uid,
        pod.cls,
        names.setdefault(pod.node, len(names)),
        pod.phase,
        pod.created,
        None if rest == _COMMON else rest,
        (pod.started, pod.refused_at) if pod.started or pod.refused_at else None,
    )


def _add(document: _ListsDocument, lists: ListState) -> None:
    """Add what is stored to lists. Raises ValueError, LookupError for what does not fit
    together."""
    lists.versions, lists.unwatched = document.versions, document.unwatched
    objects = lists.builder.objects
    lists.builder.restore_listing_state(document.gaps, document.listed, document.seen)
    objects.malformed.update({(kind, key): gap for kind, key, gap in document.malformed})
    objects.table.restore(document.classes)
    classes = objects.table.size
    if not all(0 <= daemonset.cls < classes for daemonset in document.daemonsets.values()):
        raise ValueError("a class is missing")
    objects.daemonsets.update(document.daemonsets)
    for kind, controllers in document.controllers.items():
        objects.controllers[kind].update(controllers)
    for field, kind in _FIELDS.items():
        objects.by_kind[kind].update(getattr(document, field))
    names = document.names
    for row in document.pods:
        if not 0 <= row.cls < classes:
            raise ValueError("a class is missing")
        namespace, node = names[row.namespace], names[row.node]
        nominated, deleted, grace, scheduled, reason, message, unready = row.rest or _COMMON
        started, refused_at = row.times or (0.0, 0.0)
        objects.pods[key_of(namespace, row.name)] = Pod(
            namespace,
            row.name,
            row.uid,
            row.cls,
            node,
            nominated,
            row.phase,
            row.created,
            deleted,
            grace,
            scheduled,
            reason,
            message,
            unready,
            started,
            refused_at,
        )


# --- the bucket


class ListPlace(Protocol):
    """Where lists are."""

    def put(self, path: str, data: bytes) -> None:
        """Store an object in place of an earlier one. Raises OutscalerError."""

    def get(self, path: str, largest: int) -> bytes:
        """Return an object. Raises ObjectMissing, OutscalerError."""


class _Folder:
    """A folder, for the local emulation."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, path: str, data: bytes) -> None:
        """See ListPlace."""
        try:
            write_whole(self._root / path, data)
        except OSError as error:
            raise ArchiveFailure(f"{self._root / path}: {error.strerror}") from error

    def get(self, path: str, largest: int) -> bytes:
        """See ListPlace."""
        try:
            return content(self._root / path, largest)
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self._root / path} does not exist") from error
        except OSError as error:
            raise ArchiveFailure(f"{self._root / path}: {error.strerror}") from error


@lru_cache(maxsize=4)
def list_place(address: str) -> ListPlace:
    """Return the place: `s3://BUCKET/PREFIX`, or a folder. Raises BadInput."""
    bucket = bucket_of(address)
    return _Folder(Path(address)) if bucket is None else ObjectBucket(*bucket)


class ListArchive:
    """The lists of all clusters. clock: epoch seconds. monotonic: that of KeptLists; lists have its
    seconds, except where they are stored."""

    def __init__(
        self,
        place: ListPlace,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._clock, self._monotonic = place, clock, monotonic
        self._next: dict[str, float] = {}

    def load(self, cluster: str, origin: ListOrigin, namespace: str) -> ListState | None:
        """Return the stored lists of a cluster, None if there are none. namespace: see ListState.
        Raises OutscalerError if they cannot be read or used."""
        try:
            data = self._place.get(_path(cluster), LARGEST)
        except ObjectMissing:
            return None
        lists = decode(data, None, seal_key(cluster, origin), namespace)
        lists.origin, lists.base_classes = origin, lists.builder.objects.table.size
        now, instant = self._clock(), self._monotonic()
        age = _age(lists, now)
        lists.read_at, lists.followed_at = instant - max(age, now - lists.read_at), instant - age
        return lists

    def save(self, cluster: str, lists: ListState) -> int:
        """Store the lists of a cluster, if that is due; return the number of bytes, 0 if nothing
        was stored. Lists that are older than SAVED_EVERY are not stored: the last pass has used the
        posts of a watcher. Raises OutscalerError."""
        began = self._monotonic()
        if began - lists.followed_at > SAVED_EVERY or began < self._next.get(cluster, began):
            return 0
        ahead = self._clock() - began
        self._next[cluster] = began + SAVED_EVERY
        data = encode(
            lists, seal_key(cluster, lists.origin), lists.read_at + ahead, lists.followed_at + ahead
        )
        if data is None:
            self._next[cluster] = began + LONGEST
            return 0
        self._place.put(_path(cluster), data)
        self._next[cluster] = began + max(SAVED_EVERY, (self._monotonic() - began) / _SHARE)
        return len(data)


def _age(lists: ListState, now: float) -> float:
    """Return the seconds since lists were up to date; too many for any use where they are of the
    future. now: epoch seconds."""
    return max(0.0, now - lists.followed_at) if now > lists.followed_at - _SKEW else LONGEST


def _path(cluster: str) -> str:
    return f"{cluster}.lists"


# --- posts of watchers


def watcher_key(cluster: str, secret: str, namespace: str) -> bytes:
    """Return the key of the seal of a watcher's posts. secret: the text of
    spec.kubernetes.watcherSecret. namespace: see ListState. Raises BadInput for a short secret."""
    text = secret.strip()
    if len(text) < _SHORTEST_SECRET:
        raise BadInput(
            "spec.kubernetes.watcherSecret",
            f"has fewer than {_SHORTEST_SECRET} characters",
            _SECRET_REMEDY,
        )
    return seal_key(cluster, ListOrigin(text, namespace))


class WatchedLists:
    """The posts of all watchers. place: where they are. clock: epoch seconds."""

    def __init__(self, place: ListPlace, clock: Callable[[], float]) -> None:
        self._place, self._clock = place, clock

    def store(self, cluster: str, post: WatcherPost) -> None:
        """Store a post. Raises OutscalerError."""
        if post.kind == "base":
            self._place.put(_part(cluster, post.base, post.number), post.data)
            return
        head = f"{post.base} {post.number} {int(self._clock())}\n".encode()
        self._place.put(_latest(cluster), head + post.data)

    def load(self, cluster: str, key: bytes, namespace: str, since: float) -> ListState:
        """Return the lists of a cluster; its times are epoch seconds. key: see
        watcher_key. namespace: see ListState. since: epoch seconds after which the watcher
        must have read the cluster.

        Raises PostsBehind where later posts will be used, and another OutscalerError where the
        watcher has stopped, or where its posts do not fit together.
        """
        head, _, changes = self._place.get(_latest(cluster), LARGEST).partition(b"\n")
        post = _POST.fullmatch(head)
        if post is None or not 0 < int(post["parts"]) <= MOST_PARTS:
            raise ArchiveFailure("the post of the watcher is damaged")
        name, numbers = post["base"].decode(), range(int(post["parts"]))
        base = b"".join(
            self._place.get(_part(cluster, name, number), LARGEST) for number in numbers
        )
        try:
            lists = decode(base, changes, key, namespace)
        except ArchiveFailure as error:
            raise ArchiveFailure(f"posts of the watcher: {error}") from None
        # A watcher reads no rule objects: a policy that obeys them does not use its posts.
        lists.builder.mark_absent(RULE_OBJECT)
        # Not later than the webhook had them: a watcher whose clock is fast does not make
        # them newer than they are.
        lists.followed_at = min(lists.followed_at, float(post["received"]))
        age = _age(lists, self._clock())
        if age > SILENT_FOR:
            kind = ArchiveFailure if age > STOPPED_AFTER else PostsBehind
            raise kind(f"the watcher has not posted for {age:.0f} s")
        if lists.followed_at < since + _APART:
            raise PostsBehind(
                "the posts of the watcher are older than the end of the last operation"
            )
        return lists


def _latest(cluster: str) -> str:
    return f"{WATCHED}/{cluster}/latest"


def _part(cluster: str, base: str, number: int) -> str:
    """Return the place of a part. The places of a cluster are few, so that what a sender
    stores there is bounded."""
    return f"{WATCHED}/{cluster}/{base[0]}-{number}"
