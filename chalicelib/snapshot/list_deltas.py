"""Lists of a cluster as a base and what has changed since, for a watcher in the cluster that sends them.

Changes are always those since the base: the last ones are enough, and it does not matter whether earlier ones were
lost.
"""

from __future__ import annotations

import hashlib

import msgspec

from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.snapshot.snapshot_builder import collector_paused
from chalicelib.snapshot.stored_lists import (
    ListsDocument,
    NotUsable,
    StoredLists,
    add,
    decode,
    packed,
    sealed,
    unsealed,
    usable,
)


class _Changes(msgspec.Struct, array_like=True):
    """What has changed since a base. base: its name. added: objects that are new or different, and all that is not
    about objects. gone: keys of objects by kind."""

    base: str
    added: ListsDocument
    gone: dict[str, list[str]]


class ListChanges(msgspec.Struct, frozen=True):
    """What has changed since a base, sealed. digest: of the same without its time; equal where nothing has changed."""

    data: bytes
    digest: bytes


_CHANGES = msgspec.msgpack.Decoder(_Changes)


class ListsBase:
    """Lists as they were at an instant, to which later ones are compared. name: of their bytes."""

    def __init__(self, stored: StoredLists, data: bytes) -> None:
        self.lists, self.read_at, self.name = stored.lists, stored.read_at, name_of(data)
        objects = stored.lists.builder.objects
        self._held = {kind: dict(objects.held(kind)) for kind in objects.kinds}
        self._classes = objects.table.size

    def changes(self, stored: StoredLists, key: bytes) -> ListChanges | None:
        """Return what has changed; None for more than LARGEST bytes. stored: the same lists, later."""
        objects = stored.lists.builder.objects
        added: dict[str, list[str]] = {}
        gone: dict[str, list[str]] = {}
        for kind, before in self._held.items():
            now = objects.held(kind)
            added[kind] = [name for name, each in now.items() if _differs(each, before.get(name))]
            gone[kind] = [name for name in before if name not in now]
        with collector_paused():
            changed = packed(stored, added, self._classes)
            # No pass follows these lists, so their versions would only make every post a different one.
            changed.versions = {}
            plain = _Changes(self.name, changed, gone)
            data = sealed(msgspec.msgpack.encode(plain), key)
            changed.followed_at = 0.0
            digest = hashlib.sha256(msgspec.msgpack.encode(plain)).digest()
        return ListChanges(data, digest) if data is not None else None


def _differs(one: object, other: object) -> bool:
    return one is not other and one != other


def name_of(data: bytes) -> str:
    """Return the name of a base: 32 hexadecimal digits that follow from its bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def joined(base: bytes, changes: bytes, key: bytes, namespace: str) -> StoredLists:
    """Return the lists of a base after its changes. Raises NotUsable, also for changes of another base."""
    made = decode(base, key, namespace)
    plain = unsealed(changes, key)
    with collector_paused(), usable():
        found = _CHANGES.decode(plain)
        if found.base != name_of(base):
            raise NotUsable("the changes belong to another base")
        objects = made.lists.builder.objects
        for kind, names in found.gone.items():
            held = objects.held(kind)
            for name in names:
                held.pop(name, None)
        made.lists.builder.forget_listing_state()
        objects.malformed.clear()
        objects.daemonsets.clear()
        add(found.added, made.lists)
        # A watcher reads no rule objects: a policy that obeys them does not use its posts.
        made.lists.builder.mark_absent(RULE_OBJECT)
        return StoredLists(made.lists, found.added.read_at, found.added.followed_at)
