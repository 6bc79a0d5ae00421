"""Changes that were asked for, followed by later messages and never waited for (base.py).

Looks are counted and no clocks compared, so that a clock that goes back changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import InProgress

POLLS, LOOKS, SENT = "polls", "looks", "sent"
STEP = "follow"
FIRST, LONGEST, PATIENCE = 5.0, 60.0, 600.0
_GROWS = 1.5
# Looks at numbers that contradict what was asked for, before they are believed: they may lag behind. And at numbers of
# a pool that contradict one another, before it is given up: nothing can be lost by waiting for a minute.
ENOUGH_LOOKS, MANY_LOOKS = 5, 13


def counted(data: Mapping[str, str], key: str) -> int:
    """A count in the data; 0 where it cannot be read."""
    text = data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


def later(operation: Operation, note: str, step: str = STEP) -> InProgress:
    """Come back, later each time, up to a minute."""
    polls = counted(operation.status.data, POLLS)
    return InProgress(round(_pause(polls), 1), step, {**operation.status.data, POLLS: str(polls + 1)}, note)


def is_tired(operation: Operation, patience: float = PATIENCE) -> bool:
    """Whether the looks so far took so many seconds: who waits then is the core, with its own timer."""
    return sum(_pause(number) for number in range(min(counted(operation.status.data, POLLS), 100))) >= patience


def doubted(operation: Operation, note: str, step: str = STEP, enough: int = ENOUGH_LOOKS) -> InProgress | None:
    """Look once more at numbers that contradict; None after enough of it."""
    looks = counted(operation.status.data, LOOKS) + 1
    if looks >= enough:
        return None
    return InProgress(FIRST, step, {**operation.status.data, LOOKS: str(looks)}, note)


def _pause(number: int) -> float:
    return float(min(LONGEST, FIRST * _GROWS ** min(number, 20)))
