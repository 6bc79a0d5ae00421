"""Back-off of a node group after a failed scale-up, computed from three instants.

    failure at t: no record -> first length; still backed off (until included) -> the same again;
    otherwise doubled, capped
    in back-off:  until >= now
    forgotten:    when the last failure is longer ago than the reset time. A success
                  neither ends nor shortens a
    back-off.
                  Only for a group of a vendor's pool does it end the sequence
                  (plan/state/scale_up_requests.py).

An instance that was created but could not be installed is handled differently: its back-off always
has the first length and is never doubled. Its creation shows that the vendor has capacity, so it
ends a sequence of out-of-stock failures. If the group is still in such a back-off, that back-off
stays as it is and is never shortened.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.managed_group import (
    COPY_SOURCE_GONE,
    MANAGED_CHANGED,
    NAME_TAKEN,
    NOT_IN_POLICY,
)
from chalicelib.model.memory import HOUR, LONGEST_REST, Backoff
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.cluster_options import Options

FLAT = frozenset({"InstallFailed"})
"""Error classes of providers/kit/errors.py whose back-off has the same length each time."""

REFUSED_FOR = 86400.0
"""Seconds for which a managed group is not opened that the vendor takes for invalid."""
_OWN_REFUSALS = frozenset({NOT_IN_POLICY, NAME_TAKEN, MANAGED_CHANGED, COPY_SOURCE_GONE, ""})


def rest_after(times: int) -> float:
    """Return the seconds of a rest after as many failures in a row: an hour, then twice as long
    each time, at most a day."""
    return min(HOUR * 2.0 ** min(times - 1, 10), LONGEST_REST)


def rested(backoff: Backoff, now: float, elsewhere: int) -> Backoff:
    """Return the back-off of a managed group whose nodes did not join. elsewhere: failures in a row
    of the other groups of its pool, which count as its own."""
    attempt = max(backoff.attempt, elsewhere + 1)
    until = max(backoff.until, now + rest_after(attempt))
    return msgspec.structs.replace(backoff, attempt=attempt, until=until)


def refuses_machine(cls: str, code: str) -> bool:
    """Return whether the vendor refuses what a group is to be made of, as with an image that its
    machine type cannot run: trying again soon does not help."""
    return cls == "InvalidRequest" and code not in _OWN_REFUSALS


def fail(
    backoff: Backoff | None,
    now: float,
    options: Options,
    cls: str = "Unknown",
    code: str = "",
    message: str = "",
) -> Backoff:
    """Return the record after one more failure at `now`. cls: the provider error class."""
    if cls in FLAT and backoff is not None and in_backoff(backoff, now) and backoff.cls not in FLAT:
        until = max(backoff.until, now + options.initial_node_group_backoff_duration)
        return msgspec.structs.replace(backoff, until=until, last_failed=now)
    if cls in FLAT or backoff is None or backoff.cls in FLAT or stale(backoff, now, options):
        duration, attempt = options.initial_node_group_backoff_duration, 1
    elif in_backoff(backoff, now):
        duration, attempt = backoff.duration, backoff.attempt
    else:
        duration = min(2 * backoff.duration, options.max_node_group_backoff_duration)
        attempt = backoff.attempt + 1
    return Backoff(
        duration=duration,
        until=now + duration,
        last_failed=now,
        cls=cls,
        code=code,
        message=message[:500],
        attempt=attempt,
    )


def in_backoff(backoff: Backoff | None, now: float) -> bool:
    """Return whether the group is backed off; at exactly `until` it still is."""
    return backoff is not None and backoff.until >= now


def stale(backoff: Backoff, now: float, options: Options) -> bool:
    """Return whether the last failure is strictly longer ago than the reset time, and the end of a
    long back-off longer than it lasted."""
    lasted = backoff.until - backoff.last_failed
    reset_at = backoff.last_failed + options.node_group_backoff_reset_timeout
    return max(reset_at, backoff.until + lasted) < now


def reason_of(backoff: Backoff) -> Reason:
    """Return until when a group is not grown, and why."""
    return Reason.of(
        ReasonCode.GROUP_BACKOFF, until=backoff.until, error=backoff.message or backoff.cls
    )
