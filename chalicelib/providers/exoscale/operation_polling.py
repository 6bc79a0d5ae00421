"""The vendor's asynchronous operations, followed by later messages and never waited for (exoscale.md §3; §6, 5 and 6).

Upstream gives up after a minute on what was accepted, and blocks its loop for up to twenty. Here a change ends its step
with the operation's id in the data, and each later look is one call.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress
from chalicelib.providers.errors import NotFound
from chalicelib.providers.exoscale.context import ExoscaleContext
from chalicelib.providers.exoscale.error_mapping import why
from chalicelib.providers.exoscale.ids import is_id
from chalicelib.providers.exoscale.models import Work

WORK, POLLS, LOOKS = "work", "polls", "looks"
STEP = "follow"
FIRST, LONGEST, PATIENCE = 3.0, 60.0, 600.0
_GROWS = 1.5
ENOUGH_LOOKS = 5  # at a pool that has come to rest, before it is believed: what it says may lag behind


class Pause(msgspec.Struct, frozen=True):
    """after: seconds; data: with this look counted; enough: the patience is used up."""

    after: float
    data: dict[str, str]
    enough: bool


def pause(operation: Operation, data: Mapping[str, str] | None = None) -> Pause:
    """The next look: 3 s at first, then later each time, up to a minute, as the vendor's own clients do. Looks are
    counted, not clocks compared."""
    now = operation.status.data if data is None else data
    polls = counted(now, POLLS)
    waits = [min(LONGEST, FIRST * _GROWS ** min(n, 20)) for n in range(polls + 1)]
    return Pause(round(waits[-1], 1), {**now, POLLS: str(polls + 1)}, sum(waits[:-1]) >= PATIENCE)


def counted(data: Mapping[str, str], key: str) -> int:
    """A count in the data; 0 where it cannot be read."""
    text = data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def begun(work: Work, data: Mapping[str, str] | None = None) -> InProgress:
    """The vendor has taken a change up."""
    return InProgress(FIRST, STEP, {**(data or {}), WORK: work.id})


def known_work(context: ExoscaleContext, operation: Operation) -> Work | None:
    """How the change stands that was begun; None where none is known, or the vendor knows it no more. Raises
    ProviderError."""
    name = operation.status.data.get(WORK, "")
    if not is_id(name):
        return None
    try:
        return context.api.work(name)
    except NotFound:
        return None


def is_pending(work: Work | None) -> bool:
    """Whether it is not over; a word that nobody knows is none for an end."""
    return work is not None and work.state not in {"success", "failure", "timeout"}


def has_failed(work: Work | None) -> bool:
    """Whether the vendor says that it went wrong. A timeout is the vendor's patience, not an end of the change."""
    return work is not None and work.state == "failure"


def failure(title: str, work: Work, facts: Mapping[str, str | int]) -> Failed:
    """What the vendor says, with the class that back-off follows."""
    error = why(work)
    return Failed(error.error_class, f"{title}: {error.message}", error.code, facts=dict(facts))
