"""Back-off of a node group after a failed scale-up (state.md §7): pure arithmetic on three instants.

    failure at t: no record -> first length; still backed off (until included) -> the same again; else doubled, capped
    in back-off:   until >= now
    forgotten:     last failure longer ago than the reset time. A success neither ends nor shortens it; only of a group
                   of a vendor's pool it ends the sequence (plan/requests.py)

A machine that came and could not be installed is another matter (huaweicloud-cce.md A9.2): always the first length,
never doubled. That it came shows that there is stock, so a sequence for want of stock ends with it, unless the group is
backed off for that just now: then it stays what it is, and is never made shorter.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import Backoff
from chalicelib.model.policy import Options

FLAT = frozenset({"InstallFailed"})
"""Error classes of providers/errors.py whose back-off has the same length each time."""


def fail(
    backoff: Backoff | None, now: float, options: Options, cls: str = "Unknown", code: str = "", message: str = ""
) -> Backoff:
    """The record after one more failure at `now`. cls: the provider error class."""
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
    """At exactly `until` it still is."""
    return backoff is not None and backoff.until >= now


def stale(backoff: Backoff, now: float, options: Options) -> bool:
    """Strictly longer ago than the reset time."""
    return backoff.last_failed + options.node_group_backoff_reset_timeout < now
