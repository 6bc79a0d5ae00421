"""Posts the lists of a cluster to the webhook of a deployment: a base, and then
what has changed since it.

Changes are read as a pass reads them, so lost ones are found by counts and versions, and cured by
reading everything. A lost post needs no cure, because every post has all changes since the base.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Set

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import ClusterError, clean
from chalicelib.cluster.list_archive import LARGEST, ListsBase, encode
from chalicelib.cluster.list_state import ListState
from chalicelib.cluster.live_cluster import KeptLists, ReadResult, read_live_cluster
from chalicelib.cluster.watch import QUIET
from chalicelib.cluster.watcher_post import WatcherPost, parts_of
from chalicelib.model.errors import MALFORMED, OutscalerError
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Reply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession
from chalicelib.providers.kit.http import retry_after
from chalicelib.runtime.webhook_authentication import SIGNATURE, TIMESTAMP, sign
from infra.watcher.settings import WatcherSettings

_BOUNDS = ExchangeBounds(connect=5.0, read=20.0, total=30.0, bytes=2**14)
_LONGEST = 300  # characters of a problem


class _Refusal(msgspec.Struct, frozen=True):
    error: str


class NotPosted(OutscalerError):
    """The webhook did not accept a post. retry_after: seconds that it asks to
    wait, 0.0 where it does not."""

    def __init__(self, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


def sender(
    settings: WatcherSettings, clock: Callable[[], float] = time.time
) -> Callable[[WatcherPost], None]:
    """Return what sends a post. It raises NotPosted, and BadInput for the webhook's
    secret. clock: epoch seconds."""
    session = BoundedSession()
    session.mount("https://", BoundedAdapter(settings.trusted))

    def post(made: WatcherPost) -> None:
        now, body = str(int(clock())), made.body()
        signature = sign(settings.webhook_key(), settings.cluster, now, body)
        headers = {"Content-Type": "text/plain", TIMESTAMP: now, SIGNATURE: signature}
        try:
            reply = exchange(session, Request("POST", settings.url, headers, {}, body), _BOUNDS)
        except NoReply as error:
            raise NotPosted(f"{settings.url} gives no answer ({error.kind})") from None
        if reply.status != 202:
            asked = retry_after(reply.headers.get("retry-after", ""), clock())
            raise NotPosted(f"{settings.url} answers {reply.described()}{_problem(reply)}", asked)

    return post


def _problem(reply: Reply) -> str:
    """Return what the webhook says about the post, if it says so in its own form."""
    try:
        return f": {clean(msgspec.json.decode(reply.body, type=_Refusal).error)[:_LONGEST]}"
    except MALFORMED:
        return ""


GIVE_UP = 600.0
"""Seconds without a post after which the process ends, so that Kubernetes starts another one."""
QUIET_FOR = 19.0
"""Seconds after which a post is repeated although nothing has changed: passes use
none that is older than 45."""
LONGEST_PAUSE, LONGEST_ASKED = 120.0, 300.0
"""Seconds between two attempts at most while posts are refused, and where the webhook asks for
more. Both leave several attempts before GIVE_UP."""
_MEMORY = 8 << 30  # bytes; the container's limit is lower
_APART = 1.0  # seconds between two posts at least
_URGENT = b'"Unschedulable"'
_WATCHED = {"fieldSelector": "spec.nodeName=", "watch": "1", "allowWatchBookmarks": "true"}


def pause_after(refused: int, every: float, asked: float, draw: float) -> float:
    """Return the seconds to wait after some refused posts in a row: twice as long each time, from
    half of that on by chance, so that the watchers of many clusters do not come back together.
    asked: Retry-After, 0.0 for none."""
    longest = min(LONGEST_PAUSE, every * 2.0 ** min(refused, 30))
    return max(longest * (0.5 + 0.5 * draw), min(asked, LONGEST_ASKED))


class Silent(OutscalerError):
    """Nothing could be posted for GIVE_UP."""


class ClusterWatcher:
    """Reads one cluster and posts it. post: sends one post; raises OutscalerError. clock: epoch
    seconds. monotonic: seconds of a clock that never goes back. quiet: see WatchPace. wait: for an
    event, so many seconds at most. draw: a random number from 0 to 1. urgent: set where a turn is
    to begin at once.
    """

    def __init__(
        self,
        settings: WatcherSettings,
        kube: KubeClient,
        post: Callable[[WatcherPost], None],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        quiet: float = QUIET,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings, self._kube, self._post = settings, kube, post
        self._clock, self._monotonic, self._wait, self._draw = clock, monotonic, wait, draw
        self._kept = KeptLists(_MEMORY, monotonic, quiet=quiet)
        self._base: ListsBase | None = None
        self._parts = 0
        self._waiting: Set[str] = frozenset()
        self._last, self._posted = b"", 0.0
        self.urgent = threading.Event()

    def run(self) -> None:
        """Read and post until nothing can be posted any more. Raises Silent."""
        ended = threading.Event()
        threading.Thread(target=self._look_for_pods, args=(ended,), daemon=True).start()
        posted, refused = self._monotonic(), 0
        try:
            while self._monotonic() - posted < GIVE_UP:
                began = self._monotonic()
                self.urgent.clear()
                try:
                    self.turn()
                    posted, refused = began, 0
                except NotPosted as error:
                    refused += 1
                    pause = pause_after(
                        refused, self._settings.every, error.retry_after, self._draw()
                    )
                    sys.stderr.write(f"outscaler-watcher: {error}; again in {pause:.0f} s\n")
                    self._wait(ended, pause)  # a pod that waits does not shorten it
                    continue
                except OutscalerError as error:
                    sys.stderr.write(f"outscaler-watcher: {error}\n")
                self._wait(self.urgent, self._settings.every)
                self._wait(ended, max(0.0, began + _APART - self._monotonic()))
        finally:
            ended.set()
        raise Silent(f"nothing could be posted for {GIVE_UP:.0f} s")

    def turn(self) -> None:
        """Read what has changed and post it. Raises OutscalerError; the next turn then
        posts what this one did not."""
        name, key, at = self._settings.cluster, self._settings.seal_key(), self._clock()
        results: list[ReadResult] = []
        snapshot = read_live_cluster(
            name,
            self._kube,
            lambda _: ObservedGroups(),
            at,
            namespace=self._settings.namespace,
            kept=self._kept,
            report=results.append,
        )
        waiting = {pod.key for pod in snapshot.pods if pod.scheduled_reason == "Unschedulable"}
        lists = self._kept.kept(name)
        if lists is None:
            raise ClusterError(
                "the lists cannot be followed; see the rights of the service account"
            )
        if results[0].scope is ReadScope.FULL or self._base is None:
            self._base = None
            self._base = self._posted_base(lists, key, at)
        changes = self._base.changes(lists, key, at)
        if changes is None or len(changes[0]) > _LARGEST_CHANGES:
            self._base = None
            return
        data, digest = changes
        wake = None
        if not waiting <= self._waiting:
            # A pass waits itself while such pods still arrive (docs/reference/scale-up.md
            # "Waiting for more pods").
            wake = 0.0
        if digest == self._last and wake is None and 0.0 <= at - self._posted < QUIET_FOR:
            return
        self._post(WatcherPost("changes", self._base.name, self._parts, data, wake))
        self._waiting, self._last, self._posted = waiting, digest, at

    def _posted_base(self, lists: ListState, key: bytes, now: float) -> ListsBase:
        data = encode(lists, key, now, now)
        if data is None:
            raise ClusterError(f"the cluster's lists are larger than {LARGEST} bytes")
        base, parts = ListsBase(lists, now, data), parts_of(data)
        for number, part in enumerate(parts):
            self._post(WatcherPost("base", base.name, number, part))
        self._parts = len(parts)
        return base

    def _look_for_pods(self, ended: threading.Event) -> None:
        """Begin a turn as soon as the API server reports a pod that cannot be scheduled."""
        pause = 0.0
        while not ended.wait(pause):
            lists = self._kept.kept(self._settings.cluster)
            version = lists.versions.get("Pod", "") if lists is not None else ""
            pause = (
                _APART
                if not version or self.watch_pods(version)
                else max(_APART, self._settings.every)
            )

    def watch_pods(self, version: str, seconds: int = 15) -> bool:
        """Watch the pods without a node from a resourceVersion for a few seconds, and return
        whether that was possible. Raises nothing: each turn reads all changes anyway."""
        end = b""

        def seen(piece: bytes) -> None:
            nonlocal end
            end = (end + piece)[-len(_URGENT) - len(piece) :]
            if _URGENT in end:
                self.urgent.set()

        query = {**_WATCHED, "resourceVersion": version, "timeoutSeconds": str(seconds)}
        try:
            self._kube.watch("/api/v1/pods", query, seen, longest=_LONGEST_WATCH)
        except ClusterError as error:
            sys.stderr.write(f"outscaler-watcher: pods are not watched: {error}\n")
            return False
        return True


_LARGEST_CHANGES = 2_500_000  # bytes; a new base is better than more
_LONGEST_WATCH = 16 << 20  # bytes
