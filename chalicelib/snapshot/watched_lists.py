"""Lists that a watcher in the cluster posts, so that passes read the cluster without access to its API.

The watcher posts a base in parts, and then what has changed since that base. The webhook stores both as they come: they
have a seal whose key it does not have. A pass joins them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chalicelib.model.watcher_post import MOST_PARTS, WatcherPost
from chalicelib.snapshot.list_archive import ArchiveFailure, FoundLists, ListPlace, age_of
from chalicelib.snapshot.list_deltas import joined
from chalicelib.snapshot.stored_lists import LARGEST, NotUsable

SILENT_FOR = 90.0
"""Seconds without a post after which the lists of a watcher are not used."""


class WatchedLists:
    """The posts of all watchers. place: where they are. clock: epoch seconds."""

    def __init__(self, place: ListPlace, clock: Callable[[], float]) -> None:
        self._place, self._clock = place, clock

    def store(self, cluster: str, post: WatcherPost) -> None:
        """Store a post. Raises OutscalerError."""
        if post.kind == "base":
            self._place.put(_part(cluster, post.base, post.number), post.data)
            return
        self._place.put(_latest(cluster), f"{post.base} {post.number}\n".encode() + post.data)

    def load(self, cluster: str, key: bytes, namespace: str) -> FoundLists:
        """Return the lists of a cluster. key: see stored_lists.seal_key. namespace: see ClusterLists. Raises
        OutscalerError, also where the watcher is silent or its posts do not fit together."""
        head, _, changes = self._place.get(_latest(cluster), LARGEST).partition(b"\n")
        base, _, count = head.decode("ascii", "replace").partition(" ")
        if not re.fullmatch("[0-9a-f]{32}", base) or count not in _COUNTS:
            raise ArchiveFailure("the post of the watcher is damaged")
        parts = [self._place.get(_part(cluster, base, number), LARGEST) for number in range(int(count))]
        try:
            found = joined(b"".join(parts), changes, key, namespace)
        except NotUsable as error:
            raise ArchiveFailure(f"posts of the watcher: {error}") from None
        made = age_of(found, self._clock())
        if made.age > SILENT_FOR:
            raise ArchiveFailure(f"the watcher has not posted for {made.age:.0f} s")
        return made


_COUNTS = frozenset(str(count) for count in range(1, MOST_PARTS + 1))


def _latest(cluster: str) -> str:
    return f"watched/{cluster}/latest"


def _part(cluster: str, base: str, number: int) -> str:
    return f"watched/{cluster}/{base}-{number}"
