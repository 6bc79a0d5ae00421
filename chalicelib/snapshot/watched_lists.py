"""Lists that a watcher in the cluster posts, so that passes read the cluster without access to its API.

The watcher posts a base in parts, and then what has changed since that base. The webhook stores both as they come. A
pass verifies their seal, whose key the webhook does not have, and joins them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chalicelib.model.errors import BadInput
from chalicelib.model.watcher_post import MOST_PARTS, WATCHED, WatcherPost
from chalicelib.snapshot.list_archive import ArchiveFailure, FoundLists, ListPlace, age_of
from chalicelib.snapshot.list_deltas import joined
from chalicelib.snapshot.stored_lists import LARGEST, NotUsable, StoredLists, seal_key

SILENT_FOR = 45.0
"""Seconds without a post after which the lists of a watcher are not used."""
STOPPED_AFTER = 600.0
"""Seconds without a post after which the watcher counts as stopped: it ends itself then, and is started again."""
_APART = 5.0  # seconds by which the clocks of the watcher and of a function may differ
_SHORTEST_SECRET = 32  # characters
_HEAD = re.compile(rb"(?P<base>[0-9a-f]{32}) (?P<parts>[0-9]{1,2}) (?P<received>[0-9]{1,12})")


class PostsBehind(ArchiveFailure):
    """A watcher's posts are too old at present, as after each operation: later ones will be used."""

    published_name = "ArchiveFailure"


def watcher_key(cluster: str, secret: str, namespace: str) -> bytes:
    """Return the key of the seal of a watcher's posts. secret: the text of spec.kubernetes.watcherSecret. namespace:
    see ClusterLists. Raises BadInput for a short secret."""
    text = secret.strip()
    if len(text) < _SHORTEST_SECRET:
        raise BadInput("spec.kubernetes.watcherSecret", f"has fewer than {_SHORTEST_SECRET} characters", _EXAMPLE)
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
        found = _HEAD.fullmatch(head)
        if found is None or not 0 < int(found["parts"]) <= MOST_PARTS:
            raise ArchiveFailure("the post of the watcher is damaged")
        base = found["base"].decode()
        parts = [self._place.get(_part(cluster, base, number), LARGEST) for number in range(int(found["parts"]))]
        try:
            lists = joined(b"".join(parts), changes, key, namespace)
        except NotUsable as error:
            raise ArchiveFailure(f"posts of the watcher: {error}") from None
        return self._recent(lists, float(found["received"]), since)

    def _recent(self, stored_lists: StoredLists, received: float, since: float) -> FoundLists:
        """Return lists that are recent enough. received: when the webhook had them, so that a watcher whose clock is
        fast does not make them newer than they are. Raises PostsBehind, ArchiveFailure."""
        read = min(stored_lists.followed_at, received)
        made = age_of(StoredLists(stored_lists.lists, min(stored_lists.read_at, read), read), self._clock())
        if made.age > SILENT_FOR:
            kind = ArchiveFailure if made.age > STOPPED_AFTER else PostsBehind
            raise kind(f"the watcher has not posted for {made.age:.0f} s")
        if read < since + _APART:
            raise PostsBehind("the posts of the watcher are older than the end of the last operation")
        return made


_EXAMPLE = "store a random text, such as that of openssl rand -hex 32"


def _latest(cluster: str) -> str:
    return f"{WATCHED}/{cluster}/latest"


def _part(cluster: str, base: str, number: int) -> str:
    """Return the place of a part. The places of a cluster are few, so that what a sender stores there is bounded."""
    return f"{WATCHED}/{cluster}/{base[0]}-{number}"
