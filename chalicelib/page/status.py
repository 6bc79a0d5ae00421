"""The status of a cluster in one word with a shape, so that no status depends on a colour alone."""

from __future__ import annotations

import msgspec

from chalicelib.model.pause import Pause, PausedPart, whole
from chalicelib.model.timestamps import format_time
from chalicelib.page.cluster_data import ClusterSummary
from chalicelib.record.cluster_health import LATE_AFTER
from chalicelib.record.metrics import key


class ClusterStatus(msgspec.Struct, frozen=True):
    """word, shape: shown together. tone: a class of the style sheet. detail: one line. rank: the worst is first."""

    word: str
    shape: str
    tone: str
    detail: str
    rank: int


def status_of(summary: ClusterSummary, now: float) -> ClusterStatus:
    """Return the first status that applies, the worst first."""
    state, pause = summary.passed.state, whole(summary.pauses)
    interval = summary.policy.scan_interval if summary.policy is not None else 0.0
    late = bool(state.last_pass) and now - state.last_pass > interval + LATE_AFTER
    partly = pause_text(summary.pauses[0]) if summary.pauses else ""
    since = f", since {format_time(state.failure.since)}" if state.failure is not None else ""
    braked = bool(state.last_pass) and summary.gauges.get(key("brake"), 0.0) > 0
    blocked = "the circuit breaker blocks removals until they are released"
    found: tuple[tuple[bool, ClusterStatus], ...] = (
        (bool(summary.problem), ClusterStatus("UNREADABLE", "▲", "bad", summary.problem, 0)),
        (not summary.plans, ClusterStatus("OFF", "■", "muted", "the policy's mode is off", 6)),
        (late, ClusterStatus("LATE", "▲", "bad", summary.failure or "no pass is made", 1)),
        (bool(summary.failure), ClusterStatus("FAILING", "▲", "bad", summary.failure + since, 2)),
        (braked, ClusterStatus("BRAKE", "▲", "bad", blocked, 2)),
        (pause is not None, ClusterStatus("PAUSED", "◐", "warn", pause_text(pause) if pause else "", 3)),
        (not state.last_pass, ClusterStatus("WAITING", "○", "muted", "no pass has been made yet", 4)),
    )
    return next((each for applies, each in found if applies), ClusterStatus("OK", "●", "ok", partly, 5))


def pause_text(pause: Pause) -> str:
    """Return a pause as one line."""
    what = "" if pause.part is PausedPart.ALL else f"{pause.part.value} "
    group = f"of group {pause.group} " if pause.group else ""
    return f"{what}{group}paused until {format_time(pause.until)} by {pause.by or 'unknown'}: {pause.reason}"
