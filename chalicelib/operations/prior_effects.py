"""Whether anything was ever done for an operation, which decides who is to blame where it comes too late.

An attempt that was recorded as waiting for its turn has done nothing. One that was not recorded may have reached the
vendor before its function died, so an operation with such an attempt counts as begun.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation

WAITED = "own.waited"
"""The key in the operation's data: the number of the last attempt up to which all attempts only waited for a turn."""


def never_begun(operation: Operation) -> bool:
    """Whether all attempts before the one under way only waited. operation: as claimed."""
    return not operation.status.step and operation.status.attempt <= _waited(operation) + 1


def having_waited(operation: Operation) -> dict[str, str]:
    """The operation's data with the attempt under way noted as one that only waited, where all before it did, too."""
    if not never_begun(operation):
        return operation.status.data
    return {**operation.status.data, WAITED: str(operation.status.attempt)}


def _waited(operation: Operation) -> int:
    text = operation.status.data.get(WAITED, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
