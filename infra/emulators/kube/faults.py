"""Injected faults for tests of clients: error responses, truncated responses,
dropped connections, delays.

A fault is data: the requests it affects, how many of them, and what happens instead of
(or before) the response.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec


class KubeFault(msgspec.Struct, frozen=True):
    """One injected fault.

    method: "" for all; path: regular expression searched in path and query
    status, body, headers: the response sent instead (status 0: the real one)
    truncate: bytes of the real response that are sent before the connection is closed, -1: all
    close: the connection is closed without a response, after the request was carried out if `late`
    delay: wall seconds before anything happens
    edit: changes each piece of a watch before it is sent
    times: how many requests it affects, -1: all; skip: how many matching
    requests are not affected before
    """

    method: str = ""
    path: str = ""
    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = {}
    truncate: int = -1
    close: bool = False
    late: bool = False
    delay: float = 0.0
    edit: Callable[[bytes], bytes] | None = None
    times: int = 1
    skip: int = 0


def edited(pieces: Iterable[bytes], edit: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the pieces of a watch after an edit. An empty piece means that there was nothing to
    send; one that an edit has emptied is left out."""
    for piece in pieces:
        if not piece:
            yield piece
        elif made := edit(piece):
            yield made


class Faults:
    """The faults of one server, in the order of their addition; the first match is used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[KubeFault, list[int]]] = []

    def add(self, fault: KubeFault) -> None:
        with self._lock:
            self._faults.append((fault, [fault.skip, fault.times]))

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, method: str, path: str) -> KubeFault | None:
        """Return the fault for this request and count it, None if there is none."""
        with self._lock:
            for fault, left in self._faults:
                if (
                    fault.method not in {"", method}
                    or not re.search(fault.path, path)
                    or left[1] == 0
                ):
                    continue
                if left[0] > 0:
                    left[0] -= 1
                    continue
                left[1] -= 1
                return fault
        return None
