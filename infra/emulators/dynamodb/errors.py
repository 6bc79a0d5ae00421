"""What DynamoDB refuses, before it is known which operation of the client it answers."""

from __future__ import annotations

from typing import Any

REFUSED = "The conditional request failed"


class Refusal(Exception):
    """An error answer. code: as in the API. more: further members of the answer (Item, CancellationReasons)."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.more = code, message, more


def invalid(message: str) -> Refusal:
    """ValidationException."""
    return Refusal("ValidationException", message)


def bad_value(message: str) -> Refusal:
    """ValidationException about a value, in the words DynamoDB begins it with."""
    return invalid(f"One or more parameter values were invalid: {message}")


def condition_failed(old: dict[str, Any] | None) -> Refusal:
    """A condition that does not hold. old: the row to be shown, where it was asked for and is there."""
    more = {"Item": old} if old is not None else {}
    return Refusal("ConditionalCheckFailedException", REFUSED, **more)


def no_table(name: str) -> Refusal:
    """The table does not exist."""
    return Refusal("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
