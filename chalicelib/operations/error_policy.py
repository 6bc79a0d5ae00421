"""Maps an error during a step to an outcome: wait and retry, or give up with an error class that backoff can use.

Only errors that mean "not now" are retried in place, each time later and at most MAX_TRIES times in a row. A drained
node whose turn at the vendor has not come (BUSY at step `delete`) keeps waiting until the deadline: giving up would
have moved its pods for nothing.
OutOfStock and QuotaExceeded are also temporary, but waiting in place would delay the pods' scale-up in another group,
which is planned in the same minute once this one has failed.
"""

from __future__ import annotations

import zlib

from chalicelib.kube import errors as kube
from chalicelib.model.errors import published_name
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress
from chalicelib.providers import errors as vendor

MAX_TRIES = 8
BUSY = "busy"
"""Code of a Conflict with which a provider reports another change of the group in progress."""
FIRST_WAIT = 5.0
LONGEST_WAIT = 60.0
TRIES = "own.tries"
"""The key in the operation's data: temporary errors in a row."""

ActingError = vendor.ProviderError | kube.ClusterError
AGAIN: tuple[type[ActingError], ...] = (
    vendor.Throttled,
    vendor.Transient,
    vendor.Conflict,
    kube.TooManyRequests,
    kube.Unavailable,
    kube.Conflict,
    kube.Expired,
)


def outcome_of_error(error: ActingError, operation: Operation, step: str) -> InProgress | Failed:
    """Return the same step with a delay; or Failed, for a permanent error or after MAX_TRIES temporary ones."""
    before = operation.status.data.get(TRIES, "")
    tries = int(before) if before.isascii() and before.isdecimal() and len(before) < 9 else 0
    queued = step == "delete" and getattr(error, "code", "") == BUSY
    tries = max(1, tries) if queued else tries + 1
    asked = float(getattr(error, "retry_after", 0.0) or 0.0)
    if isinstance(error, AGAIN) and tries <= MAX_TRIES:
        data = {**operation.status.data, TRIES: str(tries)}
        return InProgress(wait(tries, asked, operation.spec.id), step, data, note=f"{error_class_of(error)}: {error}")
    return Failed(error_class_of(error), str(error), code=str(getattr(error, "code", "") or ""), retry_after=asked)


def error_class_of(error: ActingError) -> str:
    """Return the class name that memory and the journal store. A cluster's class has a prefix, because it says nothing
    about the vendor."""
    name = published_name(error)
    return f"Cluster{name}" if isinstance(error, kube.ClusterError) and not name.startswith("Cluster") else name


def wait(tries: int, asked: float, seed: str) -> float:
    """Return the seconds before the next try: doubling from 5 to 60, or what the server asked for if that is longer. Up
    to a quarter is added per operation, so that many throttled operations do not retry at the same time."""
    pause = max(asked, min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)))
    spread = zlib.crc32(f"{seed}/{tries}".encode()) / 2**32
    return float(round(pause * (1 + spread / 4), 1))


def reset_error_count(operation: Operation) -> Operation:
    """Return the operation with its count of consecutive errors removed, for the step after a success."""
    if TRIES not in operation.status.data:
        return operation
    data = {key: value for key, value in operation.status.data.items() if key != TRIES}
    return operation.with_status(data=data)
