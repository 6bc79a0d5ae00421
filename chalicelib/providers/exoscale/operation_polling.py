"""Polls the vendor's asynchronous operations from later messages, without waiting for them.

Upstream gives up on an accepted change after a minute and blocks its loop for up to twenty. Here a change ends its step
with the operation's id in the data, and each later poll is one call.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress
from chalicelib.providers.errors import NotFound
from chalicelib.providers.exoscale.context import ExoscaleContext
from chalicelib.providers.exoscale.error_mapping import why
from chalicelib.providers.exoscale.models import Work
from chalicelib.providers.exoscale.provider_ids import is_id

WORK, POLLS, LOOKS = "work", "polls", "looks"
STEP = "follow"
FIRST, LONGEST, PATIENCE = 3.0, 60.0, 600.0
_GROWS = 1.5
ENOUGH_LOOKS = 5  # checks of a pool at rest before its numbers are accepted, because they may lag behind


class Pause(msgspec.Struct, frozen=True):
    """after: seconds; data: with this poll counted; enough: the limit of polls is reached."""

    after: float
    data: dict[str, str]
    enough: bool


def pause(operation: Operation, data: Mapping[str, str] | None = None) -> Pause:
    """Return the pause before the next poll: 3 s at first, then growing up to a minute, as in the vendor's own clients.

    Polls are counted because clocks of different functions may differ."""
    now = operation.status.data if data is None else data
    polls = counted(now, POLLS)
    waits = [min(LONGEST, FIRST * _GROWS ** min(n, 20)) for n in range(polls + 1)]
    return Pause(round(waits[-1], 1), {**now, POLLS: str(polls + 1)}, sum(waits[:-1]) >= PATIENCE)


def counted(data: Mapping[str, str], key: str) -> int:
    """Return a count in the data; 0 if it cannot be read."""
    text = data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def begun(work: Work, data: Mapping[str, str] | None = None) -> InProgress:
    """Return the Pending outcome of a change that the vendor has accepted."""
    return InProgress(FIRST, STEP, {**(data or {}), WORK: work.id})


def known_work(context: ExoscaleContext, operation: Operation) -> Work | None:
    """Return the state of the change that was started; None if there is none or the vendor no longer knows it.

    Raises ProviderError."""
    name = operation.status.data.get(WORK, "")
    if not is_id(name):
        return None
    try:
        return context.api.work(name)
    except NotFound:
        return None


def is_pending(work: Work | None) -> bool:
    """Whether the operation is not over; an unknown state counts as not over."""
    return work is not None and work.state not in {"success", "failure", "timeout"}


def has_failed(work: Work | None) -> bool:
    """Whether the vendor reports a failure. A timeout means that the vendor stopped waiting, not that the change
    ended."""
    return work is not None and work.state == "failure"


def failure(title: str, work: Work, facts: Mapping[str, str | int]) -> Failed:
    """Return the vendor's reason, with the error class that selects the backoff."""
    error = why(work)
    return Failed(error.error_class, f"{title}: {error.message}", error.code, facts=dict(facts))
