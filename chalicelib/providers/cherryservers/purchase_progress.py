"""How far a growth has come, as it is written into the operation between two calls.

What may be sent next is written down first (`lot`), and with it the attempt that wrote it. The call that finds itself
to be the very next attempt knows that nobody has sent it; any later one must take it for sent, for somebody in between
has died or failed with it in hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.providers.errors import ProviderError

KEY = "growth"
_LONGEST = 600  # letters of an error that are kept

# Which refusal tells most of several: what a person must mend first, then what the back-off follows.
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
    """An error that some of the machines were refused with."""

    cls: str
    message: str
    code: str = ""
    retry_after: float = 0.0


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Machines by their numbers.

    lot: what the next call may send. made: bought, and the ids. unsure: sent, and nobody knows. again: how often each
    was sent after that. refused: never coming; why: the most telling reason. looks: how often one has looked in vain;
    tries: how often in a row the vendor could not be asked before anything was sent.
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
        """What is still to be sent."""
        closed = {*self.made, *self.unsure, *self.refused}
        return tuple(number for number in range(count) if number not in closed)

    def seen(self, found: Mapping[int, int]) -> Progress:
        """With these (number -> id) known to be there."""
        return msgspec.structs.replace(
            self,
            made={**self.made, **found},
            unsure=tuple(each for each in self.unsure if each not in found),
            refused=tuple(each for each in self.refused if each not in found),
        )

    def refuse(self, numbers: Iterable[int], error: ProviderError) -> Progress:
        """With these given up for this reason."""
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
        """Whether another attempt was made since this was written."""
        return operation.status.attempt not in (self.attempt, self.attempt + 1)

    def written(self, operation: Operation) -> dict[str, str]:
        """As the operation's data."""
        return {KEY: msgspec.json.encode(msgspec.structs.replace(self, attempt=operation.status.attempt)).decode()}


def read(operation: Operation, count: int) -> Progress | None:
    """None where nothing was begun. What cannot be read is taken for the worst: that all of it was sent."""
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
