"""How long an operation waits before it asks again: for an outcome, and after an
error that means "not now".

The functions of one operation run on different machines, whose clocks may differ, while a queue's
delay is never shorter than requested. How long a wait has lasted is therefore the sum of the
requested pauses, and the clock counts only where it says much more than that, which means that
messages were late. Every poll costs an invocation, so the first polls come soon and later ones less
and less often.

An error is retried in place only if it is temporary, each time later and at most MAX_TRIES times in
a row. A drained node whose turn at the vendor has not come (BUSY at step `delete`) keeps waiting
until the deadline: giving up would have moved its pods for nothing. OutOfStock and QuotaExceeded
are also temporary, but waiting in place would delay the pods' scale-up in another group, which is
planned in the same minute once this one has failed.
"""

from __future__ import annotations

import zlib

import msgspec

from chalicelib.cluster import errors as kube
from chalicelib.model.errors import published_name
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress
from chalicelib.providers.kit import errors as vendor

CLOCKS = 60.0
"""Maximum assumed clock difference of two functions, in seconds."""
LEAST = 1.0
MAX_TRIES = 8
BUSY = "busy"
"""Code of a Conflict with which a provider reports another change of the group in progress."""
FIRST_WAIT = 5.0
LONGEST_WAIT = 60.0
TRIES = "own.tries"
"""The key in the operation's data: temporary errors in a row."""

StepError = vendor.ProviderError | kube.ClusterError
RETRIED: tuple[type[StepError], ...] = (
    vendor.Throttled,
    vendor.Transient,
    vendor.Conflict,
    kube.TooManyRequests,
    kube.Unavailable,
    kube.Conflict,
    kube.Expired,
)


class PollBackoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """One wait, across invocations that share no state. since: when it began, epoch seconds, 0.0
    before it has; asked: the sum of the requested pauses, in seconds."""

    since: float = 0.0
    asked: float = 0.0

    def elapsed(self, now: float) -> float:
        """Return the seconds that have certainly passed."""
        return max(self.asked, now - self.since - CLOCKS) if self.since else 0.0

    def begun(self, now: float) -> PollBackoff:
        """Return the same wait, started now if it had not started."""
        return self if self.since else PollBackoff(now)

    def next(self, now: float, pause: float) -> PollBackoff:
        """Return the wait with one more requested pause."""
        begun = self.begun(now)
        return PollBackoff(begun.since, begun.asked + pause)

    def delay(self, now: float, *, first: float, most: float, limit: float) -> float:
        """Return the seconds until the next poll: as long as the wait has lasted, from `first` to
        `most`, not beyond `limit` in all."""
        elapsed = self.elapsed(now)
        return max(LEAST, min(max(first, min(elapsed, most)), limit - elapsed))


def outcome_of_error(error: StepError, operation: Operation, step: str) -> InProgress | Failed:
    """Return the same step with a delay; or Failed, for a permanent error or after
    MAX_TRIES temporary ones."""
    before = operation.status.data.get(TRIES, "")
    tries = int(before) if before.isascii() and before.isdecimal() and len(before) < 9 else 0
    queued = step == "delete" and getattr(error, "code", "") == BUSY
    tries = max(1, tries) if queued else tries + 1
    retry_after = float(getattr(error, "retry_after", 0.0) or 0.0)
    if isinstance(error, RETRIED) and tries <= MAX_TRIES:
        data = {**operation.status.data, TRIES: str(tries)}
        pause = retry_pause(tries, retry_after, operation.spec.id)
        return InProgress(pause, step, data, note=f"{error_class_of(error)}: {error}")
    code = str(getattr(error, "code", "") or "")
    return Failed(error_class_of(error), str(error), code=code, retry_after=retry_after)


def error_class_of(error: StepError) -> str:
    """Return the class name that memory and the journal store. A cluster's class has a prefix,
    because it says nothing about the vendor."""
    name = published_name(error)
    return (
        f"Cluster{name}"
        if isinstance(error, kube.ClusterError) and not name.startswith("Cluster")
        else name
    )


def retry_pause(tries: int, retry_after: float, seed: str) -> float:
    """Return the seconds before the next try: doubling from 5 to 60, or what the server asked for
    if that is longer. Up to a quarter is added per operation, so that many throttled operations do
    not retry at the same time."""
    pause = max(retry_after, min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)))
    spread = zlib.crc32(f"{seed}/{tries}".encode()) / 2**32
    return float(round(pause * (1 + spread / 4), 1))


def reset_error_count(operation: Operation) -> Operation:
    """Return the operation with its count of consecutive errors removed, for
    the step after a success."""
    if TRIES not in operation.status.data:
        return operation
    data = {key: value for key, value in operation.status.data.items() if key != TRIES}
    return operation.with_status(data=data)
