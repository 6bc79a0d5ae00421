"""The agenda of an emulated account: events that are due at a time, played in order however late they are asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeVar

_Account = TypeVar("_Account")


def play_due(
    account: _Account, agenda: list[tuple[float, int, Callable[[_Account, str, float], None], str]], now: float
) -> None:
    """Play and remove each event that is due, at its own time.

    agenda: a heap of (epoch seconds, number, event, the id that the event is about). An event may add others.
    """
    while agenda and agenda[0][0] <= now:
        at, _, play, subject = heapq.heappop(agenda)
        play(account, subject, at)
