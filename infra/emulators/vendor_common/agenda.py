"""The agenda of an emulated account: events that are due at a time, played in order however late they are asked for."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

_Account = TypeVar("_Account")


class Agenda(Generic[_Account]):
    """Future events of an account."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[_Account, str, float], None], str]] = []
        self._numbers = itertools.count()

    def plan(self, at: float, play: Callable[[_Account, str, float], None], subject: str) -> None:
        """Schedule an event. at: epoch seconds. subject: the id that the event is about."""
        heapq.heappush(self._events, (at, next(self._numbers), play, subject))

    def play_due(self, account: _Account, now: float) -> None:
        """Play and remove each event that is due, at its own time. An event may add others."""
        while self._events and self._events[0][0] <= now:
            at, _, play, subject = heapq.heappop(self._events)
            play(account, subject, at)
