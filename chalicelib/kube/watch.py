"""Reads the changes of a list since a resourceVersion, by a watch that the server ends after a second.

A server sends the changes that it has at once; recorded from v1.36, they arrive within 20 ms of the head of the answer.
The answer then stays open until its timeoutSeconds are over, for changes to come. A caller that needs no more than the
present state therefore waits until an open watch has been quiet for a moment, and leaves the rest to the thread that
reads it, so that the connection can be used again. Such a caller sees what an informer sees; what it missed comes first
in its next watch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import ClusterError
from chalicelib.kube.transport import JSON

QUIET = 0.15
"""Seconds without a change after which an open watch has sent what the server had."""
SECONDS = "1"
_LATE = 0.02  # seconds; a wait that lasts longer by more shows that this process was halted
_MOST_HALTS = 3  # so that a process that is halted all the time does not wait for ever
LONGEST = 96 * 2**20
"""Bytes of one watch; so many changes are read faster by a list."""


class ChangedObject(msgspec.Struct, gc=False, frozen=True):
    """One line of a watch. type: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class Watch:
    """One watch, read by a thread that calls `run`. quiet: seconds without a change after which it has sent what the
    server had. error: why it could not be read to its end."""

    def __init__(
        self,
        kube: KubeClient,
        path: str,
        query: Mapping[str, str],
        version: str,
        *,
        accept: str = JSON,
        quiet: float = QUIET,
        changed: threading.Condition,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._path, self._accept = kube, path, accept
        self._query = {
            **query,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": SECONDS,
        }
        self._quiet, self._changed, self._monotonic = quiet, changed, monotonic
        self._pieces: list[bytes] = []
        self._settled: int | None = None
        self._last_at: float | None = None
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
            if error is None or last or self._last_at is not None or error.status:
                break
        with self._changed:
            self.ended, self.error = True, error
            self._changed.notify_all()

    def _seen(self, piece: bytes) -> None:
        with self._changed:
            self._pieces.append(piece)
            self._last_at = self._monotonic()
            self._changed.notify_all()

    def settles_at(self) -> float:
        """Return the instant from which it has sent what the server had, unless more arrives; infinity while nothing
        has arrived."""
        if self.ended:
            return 0.0
        if self._last_at is None or self._is_cut():
            return float("inf")
        return self._last_at + self._quiet

    def _is_cut(self) -> bool:
        """Return whether the bytes so far end within a line."""
        return bool(self._pieces[-1]) and not self._pieces[-1].endswith(b"\n")

    def begin_again(self) -> None:
        """Begin the quiet moment again."""
        if self._last_at is not None:
            self._last_at = self._monotonic()

    @property
    def opened(self) -> bool:
        """Return whether the server has begun to answer."""
        return self._last_at is not None

    def settle(self) -> None:
        """Take no more than what has arrived; the rest comes first in the next watch."""
        self._settled = len(self._pieces)

    def lines(self) -> tuple[list[bytes], bool]:
        """Return the complete lines that were taken, and whether bytes of another one have arrived with them."""
        *lines, rest = b"".join(self._pieces[: self._settled]).split(b"\n")
        return [line for line in lines if line.strip()], bool(rest.strip())


def wait_for(
    watches: Iterable[Watch],
    changed: threading.Condition,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until all watches have sent what the server had, or until that instant of the monotonic clock.

    A function with little memory has little CPU and is halted for moments. What arrives meanwhile waits in the socket,
    so the quiet moment begins again after one.
    """
    pending, halts = list(watches), 0
    with changed:
        while pending:
            now = monotonic()
            for each in pending:
                if each.settles_at() <= now:
                    each.settle()
            pending = [each for each in pending if each.settles_at() > now]
            if not pending or now >= until:
                return
            wake = min(*(each.settles_at() for each in pending), until)
            changed.wait(wake - now)
            if monotonic() - wake > _LATE and halts < _MOST_HALTS:
                halts += 1
                for each in pending:
                    each.begin_again()
