"""The lists of a cluster as bytes, for processes that have not read it: only what the planner reads, compressed and
sealed; as a whole, or as a base and what has changed since.

Changes are always those since the base: the last ones are enough, and it does not matter whether earlier ones were
lost.

The seal is an HMAC whose key is the digest of the cluster's server and account. Lists that were changed, or that were
read by another release, from another server or with another account, have another seal and are not used. Where the
account is a signed one (EKS) the digest contains no secret, and the bucket alone protects the lists.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import msgspec

from chalicelib import __version__
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.snapshot import Budget, Controller, DaemonSet, MissingData, PriorityConfig
from chalicelib.model.storage import Claim, CSINode, PersistentVolume, StorageCapacity, StorageClass
from chalicelib.model.struct_form import form_of
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.snapshot.class_table import key_of
from chalicelib.snapshot.cluster_lists import CONFIG_MAP, ClusterLists
from chalicelib.snapshot.snapshot_builder import collector_paused
from chalicelib.snapshot.storage import CLAIMS

LARGEST, LARGEST_UNPACKED = 64 << 20, 512 << 20  # bytes
_FORMAT = 1
_LEVEL = 1  # of zlib: the fastest
_SEAL = hashlib.sha256().digest_size
_COMMON = ("", 0.0, 30.0, "", "", "", False)
"""What most pods have in the place of `_PodRow.rest`."""


class NotUsable(Exception):
    """Stored lists that cannot be followed: damaged, changed, or read in other circumstances."""


class _PodRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A pod. namespace, node: numbers of names. rest: nominated, deleted, deletion_grace, scheduled, its reason and
    message, and unready; None for _COMMON."""

    namespace: int
    name: str
    uid: str
    cls: int
    node: int
    phase: str
    created: float
    rest: tuple[str, float, float, str, str, str, bool] | None = None


class ListsDocument(msgspec.Struct, array_like=True):
    """What ClusterLists holds. read_at, followed_at: epoch seconds. names: those that pods refer to. The other fields
    have objects by kind and key."""

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
    budgets: dict[str, Budget]
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
"""Fields of ListsDocument with the objects of one kind. Rule objects are read anew by every pass."""


class _Changes(msgspec.Struct, array_like=True):
    """What has changed since a base. base: its name. added: objects that are new or different, and all that is not
    about objects. gone: keys of objects by kind."""

    base: str
    added: ListsDocument
    gone: dict[str, list[str]]


_DECODER, _CHANGES = msgspec.msgpack.Decoder(ListsDocument), msgspec.msgpack.Decoder(_Changes)


class StoredLists(msgspec.Struct, frozen=True):
    """Lists that were stored. read_at: when everything was read; followed_at: when they were last up to date; epoch
    seconds."""

    lists: ClusterLists
    read_at: float
    followed_at: float


def seal_key(cluster: str, access: str, scope: str) -> bytes:
    """Return the key of the seal. access, scope: see KeptLists.take."""
    parts = (cluster, access, scope, __version__, _form())
    return hashlib.sha256("\0".join(parts).encode()).digest()


@lru_cache(maxsize=1)
def _form() -> str:
    return form_of(ListsDocument, _FORMAT)


def encode(stored: StoredLists, key: bytes) -> bytes | None:
    """Return the bytes of lists; None for more than LARGEST. key: see seal_key."""
    with collector_paused():
        return _sealed(msgspec.msgpack.encode(_packed(stored)), key)


def decode(data: bytes, key: bytes, namespace: str) -> StoredLists:
    """Return the lists. namespace: see ClusterLists. Raises NotUsable."""
    plain = _unsealed(data, key)
    with collector_paused(), _usable():
        document = _DECODER.decode(plain)
        lists = ClusterLists(namespace)
        _add(document, lists)
        return StoredLists(lists, document.read_at, document.followed_at)


def _sealed(plain: bytes, key: bytes) -> bytes | None:
    """Return compressed and sealed bytes; None for more than LARGEST."""
    if len(plain) > LARGEST_UNPACKED:
        return None
    body = zlib.compress(plain, _LEVEL)
    data = hmac.digest(key, body, "sha256") + body
    return data if len(data) <= LARGEST else None


def _unsealed(data: bytes, key: bytes) -> bytes:
    """Return the bytes that were sealed. Raises NotUsable."""
    seal, body = data[:_SEAL], data[_SEAL:]
    if not hmac.compare_digest(seal, hmac.digest(key, body, "sha256")):
        raise NotUsable("another server, account or release, or damaged")
    unpacker = zlib.decompressobj()
    with _usable():
        plain = unpacker.decompress(body, LARGEST_UNPACKED + 1)
        if len(plain) > LARGEST_UNPACKED or not unpacker.eof:
            raise NotUsable("its length is wrong")
        return plain


@contextmanager
def _usable() -> Iterator[None]:
    """Raise NotUsable for bytes that cannot be decoded."""
    try:
        yield
    except (zlib.error, msgspec.MsgspecError, ValueError, LookupError, RecursionError) as error:
        raise NotUsable(f"cannot be decoded ({type(error).__name__})") from None


def _packed(
    stored: StoredLists, only: Mapping[str, Collection[str]] | None = None, known_classes: int = 0
) -> ListsDocument:
    """Return lists as they are stored. only: keys of the objects by kind, None for all. known_classes: number of
    classes that are left out."""

    def of(kind: str) -> dict[str, Any]:
        objects_of_kind = objects.by_kind[kind]
        return objects_of_kind if only is None else {name: objects_of_kind[name] for name in only[kind]}

    lists = stored.lists
    objects = lists.builder.objects
    gaps, listed, seen = lists.builder.listing_state()
    names: dict[str, int] = {"": 0}
    return ListsDocument(
        read_at=stored.read_at,
        followed_at=stored.followed_at,
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
    )


def _add(document: ListsDocument, lists: ClusterLists) -> None:
    """Add what is stored to lists. Raises ValueError, LookupError for what does not fit together."""
    lists.versions, lists.unwatched = document.versions, document.unwatched
    objects = lists.builder.objects
    lists.builder.restore_listing_state(document.gaps, document.listed, document.seen)
    objects.malformed.update({(kind, key): gap for kind, key, gap in document.malformed})
    objects.table.restore(document.classes)
    classes = objects.table.size
    if not all(0 <= each.cls < classes for each in document.daemonsets.values()):
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
        )


# --- changes since a base


class ListChanges(msgspec.Struct, frozen=True):
    """What has changed since a base, sealed. digest: of the same without its time; equal where nothing has changed."""

    data: bytes
    digest: bytes


class ListsBase:
    """Lists as they were at an instant, to which later ones are compared. name: of their bytes."""

    def __init__(self, stored: StoredLists, data: bytes) -> None:
        self.lists, self.read_at, self.name = stored.lists, stored.read_at, _name_of(data)
        objects = stored.lists.builder.objects
        self._objects = {kind: dict(objects.by_kind[kind]) for kind in objects.by_kind}
        self._classes = objects.table.size

    def changes(self, stored: StoredLists, key: bytes) -> ListChanges | None:
        """Return what has changed; None for more than LARGEST bytes. stored: the same lists, later."""
        objects = stored.lists.builder.objects
        added: dict[str, list[str]] = {}
        gone: dict[str, list[str]] = {}
        for kind, before in self._objects.items():
            now = objects.by_kind[kind]
            added[kind] = [name for name, item in now.items() if item is not (old := before.get(name)) and item != old]
            gone[kind] = [name for name in before if name not in now]
        with collector_paused():
            document = _packed(stored, added, self._classes)
            # No pass follows these lists, so their versions would only make every post a different one.
            document.versions = {}
            changes = _Changes(self.name, document, gone)
            data = _sealed(msgspec.msgpack.encode(changes), key)
            document.followed_at = 0.0
            digest = hashlib.sha256(msgspec.msgpack.encode(changes)).digest()
        return ListChanges(data, digest) if data is not None else None


def _name_of(base: bytes) -> str:
    """Return the name of a base: 32 hexadecimal digits that follow from its bytes."""
    return hashlib.sha256(base).hexdigest()[:32]


def joined(base: bytes, changes: bytes, key: bytes, namespace: str) -> StoredLists:
    """Return the lists of a base after its changes. Raises NotUsable, also for changes of another base."""
    stored = decode(base, key, namespace)
    plain = _unsealed(changes, key)
    with collector_paused(), _usable():
        changed = _CHANGES.decode(plain)
        if changed.base != _name_of(base):
            raise NotUsable("the changes belong to another base")
        objects = stored.lists.builder.objects
        for kind, names in changed.gone.items():
            for name in names:
                objects.by_kind[kind].pop(name, None)
        objects.malformed.clear()
        objects.daemonsets.clear()
        _add(changed.added, stored.lists)
        # A watcher reads no rule objects: a policy that obeys them does not use its posts.
        stored.lists.builder.mark_absent(RULE_OBJECT)
        return StoredLists(stored.lists, changed.added.read_at, changed.added.followed_at)
