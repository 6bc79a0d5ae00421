"""One watch: the changes of a list since a resourceVersion. The server ends it after a few seconds.

A server sends the changes that it has at once; recorded from v1.36, they arrive within 20 ms of the head of the answer.
The answer then stays open until its timeoutSeconds are over, for changes to come. A pass takes what has arrived
(list_watch.py) and leaves the rest to the thread that reads it, so that the connection can be used again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import ClusterError
from chalicelib.kube.transport import JSON

SECONDS = "3"
"""Of a watch: the server sends its bookmark one second after the beginning."""
_NOTICED = 0.02  # seconds; shorter pauses are not looked at
_HEADS = 8  # lines after the end of a pass that are looked at
LONGEST = 96 * 2**20
"""Bytes of one watch; so many changes are read faster by a list."""


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
    """Return a resourceVersion as a number, as Kubernetes defines it since v1.35; 0 for anything else."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 20 else 0


class Watch:
    """One watch, read by a thread that calls `run`. version: from which it begins. error: why it could not be read to
    its end."""

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
        self._pauses: list[tuple[float, int]] = []  # seconds, and the number of the line that came after them
        self._taken: int | None = None
        self._late: list[tuple[str, int]] | None = None
        self._present = 0
        self.late_pause = 0.0
        self._counted, self._reached, self._carries, self._broken = 0, 0, False, False
        self.last_at: float | None = None
        self.ended = False
        self.error: ClusterError | None = None

    def run(self) -> None:
        """Read to the end, once more if the connection breaks before anything has arrived: a kept connection may have
        been closed while nobody read it."""
        for last in (False, True):
            try:
                self._kube.watch(self._path, self._query, self._seen, accept=self._accept, longest=LONGEST)
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
        """Return whether a change has arrived that is later than the version from which it began."""
        self._count()
        return self._carries

    @property
    def broken(self) -> bool:
        """Return whether nothing that comes can be of use: the watch has failed, or a line has no version."""
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
        return self._lines[: self._taken], self._taken in (None, len(self._lines)) and bool(self._rest.strip())

    def pause(self, position: int) -> float:
        """Return the longest pause, in seconds, before a change that the server had: one of that version or earlier."""
        for seconds, at in sorted(self._pauses, reverse=True):
            if at < len(self._lines) and 0 < head_of(self._lines[at])[1] <= position:
                return seconds
        return 0.0

    def finish(self, present: int) -> None:
        """Keep nothing more than the heads of what comes after the lines that were taken, and late_pause: the longest
        pause before a change that the server had, in seconds. present: a version that the server had."""
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
