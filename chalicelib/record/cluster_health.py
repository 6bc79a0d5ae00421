"""Summarises a cluster's health in one word, the same for the routes and the commands.

It is about Outscaler's own passes. The health of nodes is part of the plan.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.timestamps import format_time
from chalicelib.store.leases import ScanState

LATE_AFTER = 180.0
"""Seconds beyond its interval after which a cluster's next pass is late."""


def health(interval: float | None, scan: ScanState, now: float, *, planned: bool) -> str:
    """Return the first of these that applies: unreadable (the stored policy), off, waiting (no pass yet), late (a pass
    is overdue), `failing: CLASS since INSTANT`, ok. If the last pass before an overdue one failed, `late, failing:
    …` says both.

    interval: the policy's scanInterval in seconds, None where the policy cannot be read. planned: its mode makes plans.
    """
    if interval is None:
        return "unreadable"
    if not planned:
        return "off"
    if not scan.last_pass:
        return "waiting"
    late = ("late",) if now - scan.last_pass > interval + LATE_AFTER else ()
    failing = (f"failing: {scan.failure.cls} since {format_time(scan.failure.since)}",) if scan.failure else ()
    return ", ".join(late + failing) or "ok"


def results(scan: ScanState) -> dict[str, Any]:
    """Return lastPass, lastSuccess and lastError as JSON values: RFC 3339, null for never."""
    failure = scan.failure
    return {
        "lastPass": _instant(scan.last_pass),
        "lastSuccess": _instant(scan.last_success),
        "lastError": failure
        and {
            "class": failure.cls,
            "message": failure.message,
            "since": _instant(failure.since),
            "at": _instant(failure.at),
            "failures": failure.count,
        },
    }


def _instant(at: float) -> str | None:
    return format_time(at) if at > 0 else None
