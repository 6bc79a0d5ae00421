"""Shares the lists of clusters between processes, so that a process that has not read a cluster reads changes too.

Without it, a pass reads everything wherever chance gives the message to another process than the pass before. The
archive is off by default. What it holds saves reading only; a pass goes on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec

from chalicelib.aws.object_bucket import ObjectBucket, ObjectMissing, bucket_of
from chalicelib.model.errors import OutscalerError
from chalicelib.net.bounded_files import content
from chalicelib.net.whole_files import write_whole
from chalicelib.snapshot.cluster_lists import LONGEST, ClusterLists
from chalicelib.snapshot.stored_lists import LARGEST, NotUsable, StoredLists, decode, encode, seal_key

SAVED_EVERY = 50.0
"""Seconds between two saves of a cluster: a process that finds older lists may find that the server has forgotten
their version."""
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
    found = bucket_of(address)
    return _Folder(Path(address)) if found is None else ObjectBucket(*found)


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

    def load(self, cluster: str, access: str, asked: str, namespace: str) -> FoundLists | None:
        """Return the stored lists of a cluster, None if there are none. access, asked: see KeptLists.take. namespace:
        see ClusterLists. Raises OutscalerError if they cannot be read or used."""
        try:
            data = self._place.get(_path(cluster), LARGEST)
        except ObjectMissing:
            return None
        try:
            found = decode(data, seal_key(cluster, access, asked), namespace)
        except NotUsable as error:
            raise ArchiveFailure(str(error)) from None
        return age_of(found, self._clock())

    def save(self, cluster: str, lists: ClusterLists, access: str, asked: str, read_before: float, age: float) -> int:
        """Store the lists of a cluster, if that is due; return the number of bytes, 0 if nothing was stored. Lists that
        are older than SAVED_EVERY are not stored: the last pass has used the posts of a watcher. read_before, age: see
        FoundLists. Raises OutscalerError."""
        began = self._monotonic()
        if age > SAVED_EVERY or began < self._next.get(cluster, began):
            return 0
        now = self._clock()
        stored = StoredLists(lists, now - read_before, now - age)
        self._next[cluster] = began + SAVED_EVERY
        data = encode(stored, seal_key(cluster, access, asked))
        if data is None:
            self._next[cluster] = began + LONGEST
            return 0
        self._place.put(_path(cluster), data)
        self._next[cluster] = began + max(SAVED_EVERY, (self._monotonic() - began) / _SHARE)
        return len(data)


def _path(cluster: str) -> str:
    return f"{cluster}.lists"
