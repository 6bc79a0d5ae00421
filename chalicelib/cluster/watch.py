"""The changes of a list since a resourceVersion: a watch, and when what the watches of a list
have brought is complete.

A server sends the changes that it has at once; recorded from v1.36, they arrive within 20 ms of the
head of the answer. A pass takes what has arrived and leaves the rest of the answer to the thread
that reads it, so that the connection can be used again. Silence is no proof that a server has sent
everything. What is known about a list is one of these:

    marked   a change or a bookmark has arrived whose version is that of the list
             or later: everything is there
    checked  a second watch, from where the first one became silent, has brought nothing
    silent   the only watch has brought nothing

A watch that has carried changes is checked by another one. Where a check brings something, the
server pauses, and WatchPace remembers for how long. Where it pauses for so long that silence says
nothing, only a mark counts. A server sends a bookmark two seconds before the end of a watch
(cacheWatcher.nextBookmarkTime in k8s.io/apiserver/pkg/storage/cacher), mostly when the pass is
over; the next pass then knows whether it was complete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import ClusterError
from chalicelib.cluster.transport import JSON

SECONDS = "3"
"""Of a watch: the server sends its bookmark one second after the beginning."""
_NOTICED = 0.02  # seconds; shorter pauses are not looked at
_HEADS = 8  # lines after the end of a pass that are looked at
LONGEST = 96 * 2**20
"""Bytes of one watch; so many changes are read faster by a list."""

QUIET = 0.15
"""Seconds without a change after which an open watch has sent what the server had, where
the server does not pause."""
MARKED_WITHIN = 4.0
"""Seconds after which a watch without a mark is given up, where only a mark counts."""
_FIRST = 1 / 3  # of the quiet time, after which a watch that has carried changes is checked
_CHECKS = 3  # of one list; a server that still sends more is asked for the whole list
_LONGEST_QUIET = 1.0  # seconds of silence that a pass waits for
# seconds that are remembered, so that a server is trusted again after about 15 passes
_LONGEST_PAUSE = 2.0
_REMEMBERED = 0.9  # share of the earlier pause in a new one that is shorter
_LATE = 0.02  # seconds; a wait that lasts longer by more shows that this process was halted
_MOST_HALTS = 3  # so that a process that is halted all the time does not wait for ever


class ChangedObject(msgspec.Struct, gc=False, frozen=True):
    """One line of a watch. type: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class _VersionMeta(msgspec.Struct, gc=False, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Versioned(msgspec.Struct, gc=False, frozen=True):
    metadata: _VersionMeta = _VersionMeta()


class _Head(msgspec.Struct, gc=False, frozen=True):
    type: str
    object: _Versioned


_HEAD = msgspec.json.Decoder(_Head)


def number_of(version: str) -> int:
    """Return a resourceVersion as a number, as Kubernetes defines it since
    v1.35; 0 for anything else."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 20 else 0


class Watch:
    """One watch, read by a thread that calls `run`. version: from which it begins. error: why it
    could not be read to its end."""

    def __init__(
        self,
        kube: KubeClient,
        path: str,
        query: Mapping[str, str],
        version: str,
        *,
        accept: str = JSON,
        changed: threading.Condition,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._path, self._accept, self.version = kube, path, accept, number_of(version)
        self._query = {
            **query,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": SECONDS,
        }
        self._changed, self._monotonic = changed, monotonic
        self._lines: list[bytes] = []
        self._rest = b""
        # seconds, and the number of the line that came after them
        self._pauses: list[tuple[float, int]] = []
        self._taken: int | None = None
        self._late: list[tuple[str, int]] | None = None
        self._present = 0
        self.late_pause = 0.0
        self._counted, self._reached, self._carries, self._broken = 0, 0, False, False
        self.last_at: float | None = None
        self.ended = False
        self.error: ClusterError | None = None

    def run(self) -> None:
        """Read to the end, once more if the connection breaks before anything has arrived: a kept
        connection may have been closed while nobody read it."""
        for last in (False, True):
            try:
                self._kube.watch(
                    self._path, self._query, self._seen, accept=self._accept, longest=LONGEST
                )
                error = None
            except ClusterError as problem:
                error = problem
            if error is None or last or self.last_at is not None or error.status:
                break
        with self._changed:
            self.ended, self.error = True, error
            self._changed.notify_all()

    def _seen(self, piece: bytes) -> None:
        with self._changed:
            now = self._monotonic()
            pause = now - self.last_at if self.last_at is not None else 0.0
            *lines, self._rest = (self._rest + piece).split(b"\n")
            lines = [line for line in lines if line.strip()]
            if self._late is not None:
                self._note_late(lines, pause)
            else:
                if pause > _NOTICED:
                    self._pauses.append((pause, len(self._lines)))
                self._lines += lines
            self.last_at = now
            self._changed.notify_all()

    def _note_late(self, lines: Iterable[bytes], pause: float) -> None:
        assert self._late is not None
        for line in lines:
            if len(self._late) < _HEADS:
                self._late.append(head := head_of(line))
                if head[0] != "BOOKMARK" and head[1] <= self._present:
                    self.late_pause = max(self.late_pause, pause)

    def _count(self) -> None:
        """Look at the lines that have arrived since the last call."""
        for line in self._lines[self._counted :]:
            type_, version = head_of(line)
            self._broken |= version == 0 or type_ == "ERROR"
            self._carries |= type_ != "BOOKMARK" and version > self.version
            self._reached = max(self._reached, version)
        self._counted = len(self._lines)

    @property
    def reached(self) -> int:
        """Return the version of the last change or bookmark, 0 without any."""
        self._count()
        return self._reached

    @property
    def carries(self) -> bool:
        """Return whether a change has arrived that is later than the
        version from which it began."""
        self._count()
        return self._carries

    @property
    def broken(self) -> bool:
        """Return whether nothing that comes can be of use: the watch has failed,
        or a line has no version."""
        self._count()
        return self.error is not None or self._broken

    @property
    def is_cut(self) -> bool:
        """Return whether what has arrived ends within a line, and more may come."""
        return bool(self._rest) and not self.ended

    @property
    def opened(self) -> bool:
        """Return whether the server has begun to answer."""
        return self.last_at is not None

    def begin_again(self) -> None:
        """Begin the quiet moment again."""
        if self.last_at is not None:
            self.last_at = self._monotonic()

    def settle(self) -> None:
        """Take no more than what has arrived; the rest comes first in the next watch."""
        self._taken = len(self._lines)

    def lines(self) -> tuple[list[bytes], bool]:
        """Return the complete lines that were taken, and whether they end within a line."""
        return self._lines[: self._taken], self._taken in (None, len(self._lines)) and bool(
            self._rest.strip()
        )

    def pause(self, position: int) -> float:
        """Return the longest pause, in seconds, before a change that the server had: one of
        that version or earlier."""
        for seconds, at in sorted(self._pauses, reverse=True):
            if at < len(self._lines) and 0 < head_of(self._lines[at])[1] <= position:
                return seconds
        return 0.0

    def finish(self, present: int) -> None:
        """Keep nothing more than the heads of what comes after the lines that were taken,
        and late_pause: the longest pause before a change that the server had, in seconds. present:
        a version that the server had."""
        with self._changed:
            self._present, self.late_pause = present, self.pause(present)
            late, self._late = self._lines[self._taken :], []
            self._note_late(late, 0.0)
            self._lines, self._pauses = [], []

    def late(self) -> list[tuple[str, int]]:
        """Return the types and versions of the first lines after those that were taken."""
        with self._changed:
            return list(self._late or ())


def head_of(line: bytes) -> tuple[str, int]:
    """Return the type and the version of a line; 0 where it has none."""
    try:
        head = _HEAD.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "", 0
    return head.type, number_of(head.object.metadata.resource_version)


class WatchPace:
    """How long the watches of one server pause before they have sent what the server had.
    Learnt, and forgotten slowly.

    least: seconds of silence that are waited for in any case. unmarked: kinds of lists for whose
    mark a pass has waited in vain.
    """

    def __init__(self, least: float = QUIET) -> None:
        self._least, self._pause = least, 0.0
        self.unmarked: set[str] = set()

    @property
    def quiet(self) -> float:
        """Return the seconds of silence after which a watch has sent what the server had."""
        return max(self._least, min(2 * self._pause, _LONGEST_QUIET))

    @property
    def only_marks(self) -> bool:
        """Return whether this server pauses for so long that silence says nothing."""
        return 2 * self._pause > _LONGEST_QUIET

    def note(self, pause: float) -> None:
        """Record the longest pause of a pass. pause: seconds, 0.0 for none."""
        pause = min(pause, _LONGEST_PAUSE)
        self._pause = max(pause, _REMEMBERED * self._pause + (1.0 - _REMEMBERED) * pause)
        if not self.only_marks:
            self.unmarked.clear()


class ListWatch:
    """The changes of one list: a watch, and the watches that check it.

    opened: opens a watch of the list from a version. ask: asks the server how far the list is,
    once; the answer comes by `answered`. position: that answer, None where there is none. present:
    returns a version that the server is known to have, 0 where none is known. present_then: the
    same when the list was taken. stalled: the server paused again and again, or sent no mark; the
    list must be read. awaited: whether to wait for it; where not, it only shows whether the server
    pauses.
    """

    def __init__(
        self,
        opened: Callable[[str], Watch],
        version: str,
        pace: WatchPace,
        ask: Callable[[], object],
        present: Callable[[], int],
        *,
        awaited: bool = True,
    ) -> None:
        self._opened, self._ask, self._present = opened, ask, present
        self._quiet, self._only_marks = pace.quiet, pace.only_marks
        self.watches = [opened(version)]
        self.position: int | None = None
        self._waits = False
        self.present_then = 0
        self.settled = self.stalled = not awaited
        self.awaited = awaited

    @property
    def marked(self) -> bool:
        """Return whether a version has arrived that is not older than the position of the list."""
        return (
            self.position is not None
            and max(watch.reached for watch in self.watches) >= self.position
        )

    def asked(self) -> None:
        """Note that the position was asked for; no check begins before it is known, because it may
        prove that there is nothing to check."""
        self._waits = True

    def answered(self, position: int | None) -> None:
        """Note the position; None where the server does not say it."""
        self._waits, self.position = False, position

    def advance(self, now: float) -> None:
        """Take what has arrived if it is complete, or check it by another watch.
        now: of the monotonic clock."""
        last = self.watches[-1]
        if last.carries:
            self._ask()
        cut = any(watch.is_cut for watch in self.watches)
        if any(watch.broken for watch in self.watches) or (self.marked and not cut):
            self.settle()
        elif self.due() > now:
            return
        elif self._only_marks:
            self.settle(stalled=True)
        elif not last.carries:
            self.settle()
        elif len(self.watches) > _CHECKS:
            self.settle(stalled=True)
        else:
            self.watches.append(self._opened(str(last.reached)))

    def due(self) -> float:
        """Return the instant from which something is to be done, unless more arrives before;
        infinity while nothing has arrived."""
        last = self.watches[-1]
        if last.carries and self._waits:
            return float("inf")
        if last.ended:
            return 0.0
        if last.last_at is None or self._only_marks or any(watch.is_cut for watch in self.watches):
            return float("inf")
        if last.carries:
            return last.last_at + self._quiet * _FIRST
        since = [
            watch.last_at + self._quiet for watch in self.watches[:-1] if watch.last_at is not None
        ]
        return max([last.last_at + self._quiet * (1.0 - _FIRST if since else 1.0), *since])

    def begin_again(self) -> None:
        """Begin the quiet moment again."""
        for watch in self.watches:
            watch.begin_again()

    def settle(self, *, stalled: bool = False) -> None:
        """Take no more than what has arrived."""
        self.settled, self.stalled, self.present_then = True, stalled, self._present()
        for watch in self.watches:
            watch.settle()

    @property
    def paused(self) -> bool:
        """Return whether a check has brought a change that the server had while the
        watch before it was silent."""
        first, *checks = self.watches
        reached = first.reached
        for watch in checks:
            heads = (head_of(line) for line in watch.lines()[0])
            if any(
                type_ != "BOOKMARK" and reached < version <= self.present_then
                for type_, version in heads
            ):
                return True
            reached = max(reached, watch.reached)
        return False

    @property
    def waited_in_vain(self) -> bool:
        """Return whether no mark has come where only a mark counts."""
        return self._only_marks and self.awaited and self.stalled

    def pause(self) -> float:
        """Return the longest pause before a change that the server had, in seconds."""
        return max(
            self._quiet if self.paused else 0.0,
            *(watch.pause(self.present_then) for watch in self.watches),
        )

    def finish(self) -> None:
        """Keep nothing of what was taken."""
        if not self.awaited:
            self.present_then = self._present()
        for watch in self.watches:
            watch.finish(self.present_then)


def wait_for(
    lists: Iterable[ListWatch],
    changed: threading.Condition,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until all lists are complete, as far as that can be known, or until that
    instant of the monotonic clock.

    A function with little memory has little CPU and is halted for moments. What arrives meanwhile
    waits in the socket, so the quiet moment begins again after one.
    """
    pending, halts = list(lists), 0
    with changed:
        while pending:
            now = monotonic()
            for list_watch in pending:
                list_watch.advance(now)
            pending = [list_watch for list_watch in pending if not list_watch.settled]
            if not pending:
                return
            if now >= until:
                break
            wake = min(*(list_watch.due() for list_watch in pending), until)
            changed.wait(wake - now)
            if monotonic() - wake > _LATE and halts < _MOST_HALTS:
                halts += 1
                for list_watch in pending:
                    list_watch.begin_again()
        for list_watch in pending:
            list_watch.settle(stalled=list_watch.watches[0].opened)
