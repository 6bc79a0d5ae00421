"""Determines whether an operation may have had any effect, which decides how it fails when its deadline has passed.

An attempt that was recorded as waiting for its turn has changed nothing. An attempt that was not recorded may have
called the vendor before its function died, so an operation with such an attempt counts as started.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation

WAITED = "own.waited"
"""The key in the operation's data: the number of the last attempt up to which all attempts only waited for a turn."""


def never_begun(operation: Operation) -> bool:
    """Return whether all attempts before the current one only waited. operation: as claimed."""
    return not operation.status.step and operation.status.attempt <= _waited(operation) + 1


def having_waited(operation: Operation) -> dict[str, str]:
    """Return the operation's data with the current attempt recorded as one that only waited, if all earlier attempts
    only waited, too."""
    if not never_begun(operation):
        return operation.status.data
    return {**operation.status.data, WAITED: str(operation.status.attempt)}


def _waited(operation: Operation) -> int:
    text = operation.status.data.get(WAITED, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
