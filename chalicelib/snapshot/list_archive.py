"""Shares the lists of clusters between processes: those that functions have read, and those that watchers post.

Without the archive, a pass reads everything wherever chance gives the message to another process than the pass before.
The archive is off by default. What it holds saves reading only; a pass goes on without it.

A watcher in a cluster posts a base in parts, and then what has changed since that base, so that passes read the cluster
without access to its API. The webhook stores both as they come. A pass verifies their seal, whose key the webhook does
not have, and joins them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec

from chalicelib.aws.object_bucket import ObjectBucket, ObjectMissing, bucket_of
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.watcher_post import MOST_PARTS, WATCHED, WatcherPost
from chalicelib.net.bounded_files import content, write_whole
from chalicelib.snapshot.cluster_lists import LONGEST, ClusterLists
from chalicelib.snapshot.stored_lists import LARGEST, NotUsable, StoredLists, decode, encode, joined, seal_key

SAVED_EVERY = 50.0
"""Seconds between two saves of a cluster: a process that finds older lists may find that the server has forgotten
their version."""
SILENT_FOR = 45.0
"""Seconds without a post after which the lists of a watcher are not used."""
STOPPED_AFTER = 600.0
"""Seconds without a post after which the watcher counts as stopped: it ends itself then, and is started again."""
_APART = 5.0  # seconds by which the clocks of the watcher and of a function may differ
_SHORTEST_SECRET = 32  # characters
_SECRET_REMEDY = "store a random text, such as that of openssl rand -hex 32"  # noqa: S105 - words of an error
_POST = re.compile(rb"(?P<base>[0-9a-f]{32}) (?P<parts>[0-9]{1,2}) (?P<received>[0-9]{1,12})")
_SHARE = 0.02  # of a process's time that saving may take
_SKEW = 30.0  # seconds by which the clocks of two processes may differ


class ArchiveFailure(OutscalerError):
    """The place of the lists did not do what it was asked, or returned lists that cannot be used."""


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


class FoundLists(msgspec.Struct, frozen=True):
    """Lists of another process. read_before: seconds since everything was read; age: since they were up to date."""

    lists: ClusterLists
    read_before: float
    age: float


def age_of(stored_lists: StoredLists, now: float) -> FoundLists:
    """Return lists with their ages; too old for any use where they are of the future. now: epoch seconds."""
    age = max(0.0, now - stored_lists.followed_at) if now > stored_lists.followed_at - _SKEW else LONGEST
    return FoundLists(stored_lists.lists, max(age, now - stored_lists.read_at), age)


class ListArchive:
    """The lists of all clusters. clock: epoch seconds. monotonic: seconds of a clock that never goes back."""

    def __init__(
        self, place: ListPlace, clock: Callable[[], float], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._place, self._clock, self._monotonic = place, clock, monotonic
        self._next: dict[str, float] = {}

    def load(self, cluster: str, access: str, scope: str, namespace: str) -> FoundLists | None:
        """Return the stored lists of a cluster, None if there are none. access, scope: see KeptLists.take. namespace:
        see ClusterLists. Raises OutscalerError if they cannot be read or used."""
        try:
            data = self._place.get(_path(cluster), LARGEST)
        except ObjectMissing:
            return None
        try:
            return age_of(decode(data, seal_key(cluster, access, scope), namespace), self._clock())
        except NotUsable as error:
            raise ArchiveFailure(str(error)) from None

    def save(self, cluster: str, lists: ClusterLists, access: str, scope: str, read_before: float, age: float) -> int:
        """Store the lists of a cluster, if that is due; return the number of bytes, 0 if nothing was stored. Lists that
        are older than SAVED_EVERY are not stored: the last pass has used the posts of a watcher. read_before, age: see
        FoundLists. Raises OutscalerError."""
        began = self._monotonic()
        if age > SAVED_EVERY or began < self._next.get(cluster, began):
            return 0
        now = self._clock()
        stored = StoredLists(lists, now - read_before, now - age)
        self._next[cluster] = began + SAVED_EVERY
        data = encode(stored, seal_key(cluster, access, scope))
        if data is None:
            self._next[cluster] = began + LONGEST
            return 0
        self._place.put(_path(cluster), data)
        self._next[cluster] = began + max(SAVED_EVERY, (self._monotonic() - began) / _SHARE)
        return len(data)


def _path(cluster: str) -> str:
    return f"{cluster}.lists"


# --- posts of watchers


class PostsBehind(ArchiveFailure):
    """A watcher's posts are too old at present, as after each operation: later ones will be used."""

    published_name = "ArchiveFailure"


def watcher_key(cluster: str, secret: str, namespace: str) -> bytes:
    """Return the key of the seal of a watcher's posts. secret: the text of spec.kubernetes.watcherSecret. namespace:
    see ClusterLists. Raises BadInput for a short secret."""
    text = secret.strip()
    if len(text) < _SHORTEST_SECRET:
        raise BadInput("spec.kubernetes.watcherSecret", f"has fewer than {_SHORTEST_SECRET} characters", _SECRET_REMEDY)
    return seal_key(cluster, text, namespace)


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

    def load(self, cluster: str, key: bytes, namespace: str, since: float) -> FoundLists:
        """Return the lists of a cluster. key: see watcher_key. namespace: see ClusterLists. since: epoch seconds after
        which the watcher must have read the cluster.

        Raises PostsBehind where later posts will be used, and another OutscalerError where the watcher has stopped, or
        where its posts do not fit together.
        """
        head, _, changes = self._place.get(_latest(cluster), LARGEST).partition(b"\n")
        post = _POST.fullmatch(head)
        if post is None or not 0 < int(post["parts"]) <= MOST_PARTS:
            raise ArchiveFailure("the post of the watcher is damaged")
        base = post["base"].decode()
        parts = [self._place.get(_part(cluster, base, number), LARGEST) for number in range(int(post["parts"]))]
        try:
            stored = joined(b"".join(parts), changes, key, namespace)
        except NotUsable as error:
            raise ArchiveFailure(f"posts of the watcher: {error}") from None
        # Not later than the webhook had them: a watcher whose clock is fast does not make them newer than they are.
        followed_at = min(stored.followed_at, float(post["received"]))
        lists = age_of(StoredLists(stored.lists, min(stored.read_at, followed_at), followed_at), self._clock())
        if lists.age > SILENT_FOR:
            kind = ArchiveFailure if lists.age > STOPPED_AFTER else PostsBehind
            raise kind(f"the watcher has not posted for {lists.age:.0f} s")
        if followed_at < since + _APART:
            raise PostsBehind("the posts of the watcher are older than the end of the last operation")
        return lists


def _latest(cluster: str) -> str:
    return f"{WATCHED}/{cluster}/latest"


def _part(cluster: str, base: str, number: int) -> str:
    """Return the place of a part. The places of a cluster are few, so that what a sender stores there is bounded."""
    return f"{WATCHED}/{cluster}/{base[0]}-{number}"
