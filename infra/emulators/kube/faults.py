"""Faults on demand, for tests of clients: refusals, truncated answers, dropped connections, delays.

A fault is data: which requests it meets, how many of them, and what happens instead of (or before) the answer.
"""

from __future__ import annotations

import re
import threading

import msgspec


class KubeFault(msgspec.Struct, frozen=True):
    """One thing that goes wrong.

    method: "" for all; path: regular expression searched in path and query
    status, body, headers: the answer given instead (status 0: the real one)
    truncate: bytes of the real answer that are sent before the connection is closed, -1: all
    close: the connection is closed without an answer, after the request was carried out when `late`
    delay: wall seconds before anything happens
    times: how many requests it meets, -1: all; skip: how many matching requests it lets pass first
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
    times: int = 1
    skip: int = 0


class Faults:
    """The faults of one server, in the order in which they were added; the first that matches is used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[KubeFault, list[int]]] = []

    def add(self, fault: KubeFault) -> None:
        """From now on."""
        with self._lock:
            self._faults.append((fault, [fault.skip, fault.times]))

    def clear(self) -> None:
        """No faults any more."""
        with self._lock:
            self._faults.clear()

    def take(self, method: str, path: str) -> KubeFault | None:
        """The fault this request meets, counted; None for none."""
        with self._lock:
            for fault, left in self._faults:
                if fault.method not in {"", method} or not re.search(fault.path, path) or left[1] == 0:
                    continue
                if left[0] > 0:
                    left[0] -= 1
                    continue
                left[1] -= 1
                return fault
        return None
