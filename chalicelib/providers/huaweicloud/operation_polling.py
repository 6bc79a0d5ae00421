"""Follows requested changes from later messages, without waiting for them (base.py).

Polls are counted instead of comparing clocks, so a clock that goes back has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import InProgress

POLLS, LOOKS, SENT = "polls", "looks", "sent"
STEP = "follow"
FIRST, LONGEST, PATIENCE = 5.0, 60.0, 600.0
_GROWS = 1.5
# Polls before numbers that contradict the request are accepted, because they may lag behind. The same number of
# polls applies before a pool with inconsistent numbers is given up: a minute of waiting loses nothing.
ENOUGH_LOOKS, MANY_LOOKS = 5, 13


def counted(data: Mapping[str, str], key: str) -> int:
    """Return a count in the data; 0 if it cannot be read."""
    text = data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


def later(operation: Operation, note: str, step: str = STEP) -> InProgress:
    """Return Pending with a growing delay of up to a minute."""
    polls = counted(operation.status.data, POLLS)
    return InProgress(round(_pause(polls), 1), step, {**operation.status.data, POLLS: str(polls + 1)}, note)


def is_tired(operation: Operation, patience: float = PATIENCE) -> bool:
    """Whether the polls so far took this many seconds. From then on the planner waits, with its own timer."""
    return sum(_pause(number) for number in range(min(counted(operation.status.data, POLLS), 100))) >= patience


def doubted(operation: Operation, note: str, step: str = STEP, enough: int = ENOUGH_LOOKS) -> InProgress | None:
    """Return Pending for another read of inconsistent numbers; None after enough polls."""
    looks = counted(operation.status.data, LOOKS) + 1
    if looks >= enough:
        return None
    return InProgress(FIRST, step, {**operation.status.data, LOOKS: str(looks)}, note)


def _pause(number: int) -> float:
    return float(min(LONGEST, FIRST * _GROWS ** min(number, 20)))
