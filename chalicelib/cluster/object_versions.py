"""The versions of the objects of a list, which show without a full read whether
the list is the server's.

Where a server pauses, a silent watch proves nothing. A list of metadata does: each write gives an
object a new resourceVersion, so two lists whose objects have the same versions are the same. Such a
list leaves out spec and status, and the objects are neither decoded nor folded again.

Versions are recorded while a server pauses, and of short lists only (MOST). A list that has
differed is read in full at once by the next passes, because comparing it first would only take
longer. It is compared again after passes in which that would have been enough: one, or for a list
of several pages more with every difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import Expired, Forbidden, NotFound
from chalicelib.cluster.list_page import ListMeta
from chalicelib.cluster.list_reader import FIRST, ListPart, ListReader
from chalicelib.cluster.listed_resources import ListedResource
from chalicelib.cluster.transport import HOSTED
from chalicelib.cluster.watch import number_of

MOST = 5_000
"""Objects of a list whose versions are recorded."""
_PER_OBJECT = 200  # bytes of memory
_MOST_PASSES = 8


class ObjectMeta(msgspec.Struct, gc=False, frozen=True):
    """What identifies an object, and its state."""

    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class Identity(msgspec.Struct, gc=False, frozen=True):
    """An object of which nothing else is read."""

    metadata: ObjectMeta


class _Identities(msgspec.Struct, gc=False, frozen=True):
    metadata: ListMeta | None = None
    items: list[Identity] | None = None


class ServerVersions(msgspec.Struct, frozen=True):
    """A list of the server. version: at which it was read; objects: version
    of each object by its key."""

    version: int
    objects: Mapping[str, int]


class ObjectChange(msgspec.Struct, frozen=True):
    """A change that a watch has brought. type: ADDED, MODIFIED or DELETED."""

    type: str
    meta: ObjectMeta

    @property
    def version(self) -> int:
        """Return the version that the change has made."""
        return number_of(self.meta.resource_version)


_IDENTITIES = msgspec.json.Decoder(_Identities)


class ObjectVersions:
    """The versions of the objects of a cluster's lists.

    records: whether lists that are read are recorded. at_once: kinds of lists that are read in full
    without a comparison, and in how many more passes a comparison must have been enough.
    """

    def __init__(self) -> None:
        self.records = False
        self.at_once: dict[str, int] = {}
        self._differences: Counter[str] = Counter()  # of lists of several pages
        self._kinds: dict[str, dict[str, int]] = {}

    def of(self, kind: str) -> Mapping[str, int] | None:
        """Return the version of each object of a list by its key, None
        where they are not recorded."""
        return self._kinds.get(kind)

    def size(self) -> int:
        """Return the bytes of memory, roughly."""
        return _PER_OBJECT * sum(map(len, self._kinds.values()))

    def forget(self, kind: str) -> None:
        """Drop what is recorded of a list."""
        self._kinds.pop(kind, None)
        self.at_once.pop(kind, None)
        del self._differences[kind]

    def note_page(self, kind: str, body: bytes, *, first: bool) -> None:
        """Record a page of a list that is read in full. first: its list begins here."""
        if first and self.records:
            self._kinds[kind] = {}
        elif first:
            self.forget(kind)
        objects = self._kinds.get(kind)
        if objects is None:
            return
        page = _page_versions(body)
        if page is None or len(objects) + len(page) > MOST:
            self.forget(kind)
            return
        objects.update(page)
        if len(objects) > FIRST:
            self.at_once.setdefault(kind, 1)

    def note_difference(self, kind: str) -> None:
        """Record that a comparison was not enough."""
        self.at_once[kind] = 1
        if len(self._kinds[kind]) > FIRST:
            self._differences[kind] += 1
            self.at_once[kind] = min(2 ** self._differences[kind], _MOST_PASSES)

    def note_likeness(self, kind: str) -> None:
        """Record that a comparison would have been enough."""
        self.at_once[kind] -= 1
        if self.at_once[kind] <= 0:
            del self.at_once[kind]

    def note_change(self, kind: str, change: ObjectChange) -> None:
        """Record a change that was folded."""
        if kind in self._kinds:
            _change(self._kinds[kind], change)


def followed_versions(
    objects: Mapping[str, int], changes: Iterable[ObjectChange], until: int
) -> dict[str, int]:
    """Return the versions of a list's objects after the changes up to a version."""
    followed = dict(objects)
    for change in changes:
        if change.version <= until:
            _change(followed, change)
    return followed


def begin_comparison(
    kube: KubeClient, resource: ListedResource, executor: Executor, check: Callable[[], None]
) -> ListReader:
    """Start reading the metadata of a list. check: see ListReader."""
    metadata = msgspec.structs.replace(resource, metadata=True)
    return ListReader(kube, metadata, executor, HOSTED, check=check, decode=_IDENTITIES.decode)


def server_versions(parts: Iterable[ListPart]) -> ServerVersions | None:
    """Return a list of metadata; None where it cannot be compared, so that the list must be read in
    full. Raises ClusterError for what would be no better then."""
    version, objects = 0, dict[str, int]()
    try:
        for part in parts:
            if part.first:
                version, objects = number_of(part.page.meta.resource_version), {}
            page = _versions(part.page.listing)
            if page is None or len(objects) + len(page) > MOST:
                return None
            objects.update(page)
    except (Forbidden, NotFound, Expired):
        return None
    return ServerVersions(version, objects) if version else None


def _page_versions(body: bytes) -> dict[str, int] | None:
    try:
        return _versions(_IDENTITIES.decode(body))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _versions(identities: _Identities | None) -> dict[str, int] | None:
    """Return the versions of the objects of a page, None where one has no name or no version."""
    if identities is None:
        return None
    metas = [item.metadata for item in identities.items or ()]
    versions = {_key(meta): number_of(meta.resource_version) for meta in metas}
    return versions if all(versions.values()) and all(meta.name for meta in metas) else None


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}"


def _change(objects: dict[str, int], change: ObjectChange) -> None:
    if change.type == "DELETED":
        objects.pop(_key(change.meta), None)
    else:
        objects[_key(change.meta)] = change.version
