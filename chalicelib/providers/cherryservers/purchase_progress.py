"""The progress of a scale-up, stored in the operation between two calls.

The servers that may be ordered next (`lot`) are recorded first, with the number of the recording attempt. If the
current attempt is the very next one, none of them has been ordered. Any later attempt must treat them as ordered,
because an attempt in between has failed while processing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.providers.errors import ProviderError

KEY = "growth"
_LONGEST = 600  # maximum characters of a stored error

# Which of several refusals is reported: first those that the operator must correct, then those that select the backoff.
_TELLING = (
    "Unauthorized",
    "QuotaExceeded",
    "OutOfStock",
    "InvalidRequest",
    "NotFound",
    "Conflict",
    "Unknown",
    "Throttled",
    "Transient",
)


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error with which some of the servers were refused."""

    cls: str
    message: str
    code: str = ""
    retry_after: float = 0.0


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of each server, by number.

    lot: may be ordered by the next call. made: bought, with their ids. unsure: ordered, result unknown. again: how
    often each was ordered again. refused: will not be bought; why: the most important reason. looks: consecutive checks
    without a result; tries: consecutive failures to reach the vendor before anything was ordered.
    """

    attempt: int = 0
    lot: tuple[int, ...] = ()
    made: dict[int, int] = {}
    unsure: tuple[int, ...] = ()
    again: dict[int, int] = {}
    refused: tuple[int, ...] = ()
    why: Why | None = None
    looks: int = 0
    tries: int = 0

    def open(self, count: int) -> tuple[int, ...]:
        """Return the servers that are still to be ordered."""
        closed = {*self.made, *self.unsure, *self.refused}
        return tuple(number for number in range(count) if number not in closed)

    def seen(self, found: Mapping[int, int]) -> Progress:
        """Return the progress with these servers (number -> id) known to exist."""
        return msgspec.structs.replace(
            self,
            made={**self.made, **found},
            unsure=tuple(each for each in self.unsure if each not in found),
            refused=tuple(each for each in self.refused if each not in found),
        )

    def refuse(self, numbers: Iterable[int], error: ProviderError) -> Progress:
        """Return the progress with these servers given up for this reason."""
        new = [number for number in numbers if number not in self.made]
        if not new:
            return self
        why = Why(error.error_class, error.message[:_LONGEST], error.code, error.retry_after)
        if self.why is not None and _rank(self.why) <= _rank(why):
            why = self.why
        return msgspec.structs.replace(
            self,
            refused=tuple(sorted({*self.refused, *new})),
            why=why,
            unsure=tuple(each for each in self.unsure if each not in new),
        )

    def interrupted(self, operation: Operation) -> bool:
        """Whether another attempt was made since this was recorded."""
        return operation.status.attempt not in (self.attempt, self.attempt + 1)

    def written(self, operation: Operation) -> dict[str, str]:
        """Return the progress as the operation's data."""
        return {KEY: msgspec.json.encode(msgspec.structs.replace(self, attempt=operation.status.attempt)).decode()}


def read(operation: Operation, count: int) -> Progress | None:
    """Return the recorded progress; None if nothing was started.

    If it cannot be decoded, all servers count as ordered, which is the safe assumption."""
    text = operation.status.data.get(KEY)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=Progress)
    except (msgspec.MsgspecError, UnicodeError):
        return Progress(unsure=tuple(range(count)))
    valid = frozenset(range(count))
    return msgspec.structs.replace(
        found,
        made={number: server for number, server in found.made.items() if number in valid},
        again={number: times for number, times in found.again.items() if number in valid},
        **{name: tuple(sorted(valid.intersection(getattr(found, name)))) for name in ("lot", "unsure", "refused")},
        looks=max(0, found.looks),
        tries=max(0, found.tries),
    )


def _rank(why: Why) -> int:
    return _TELLING.index(why.cls) if why.cls in _TELLING else _TELLING.index("Unknown")
