"""Figures of what a group's nodes have taught: how long they take, how often they fail, and
the time-out that follows.

Only real joins count. A group of which nothing is known has no figures, and nothing follows from
it. See docs/reference/learning.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from chalicelib.model.memory import JoinStatistics

HALF_LIFE = 7 * 86400.0
"""Seconds after which a join or a failure counts half."""
ASSUMED = 2.0
"""Joins that are assumed beside those that were counted: the only failure of
a new group is no proof."""
ENOUGH = 20
"""Joins since the last time-out from which a time-out is learnt."""
SHORTEST = 120.0
"""The shortest learnt time-out, in seconds."""
_MARGIN = 1.5  # of p99


class JoinSummary(msgspec.Struct, frozen=True):
    """The figures of a group. joins: the times that are known, at most 100. median, p95, p99:
    seconds from the request until ready, nearest rank; None without a time. joined, failed: nodes
    that came and did not, each halved every 7 days. failure_rate: failed / (joined + failed + 2),
    None where nothing was counted."""

    joins: int = 0
    median: int | None = None
    p95: int | None = None
    p99: int | None = None
    joined: float = 0.0
    failed: float = 0.0
    failure_rate: float | None = None


NOTHING_KNOWN = JoinSummary()


def join_summary(statistics: JoinStatistics | None, now: float) -> JoinSummary:
    """Return the figures at `now`; those of a cold start are NOTHING_KNOWN."""
    if statistics is None:
        return NOTHING_KNOWN
    weight = remaining_weight(statistics.counted_at, now)
    joined, failed = (round(count * weight, 3) for count in (statistics.joined, statistics.failed))
    times = sorted(statistics.ready)
    median, p95, p99 = (nearest_rank(times, percent) for percent in (50, 95, 99))
    rate = round(failed / (joined + failed + ASSUMED), 6) if joined or failed else None
    return JoinSummary(len(times), median, p95, p99, joined, failed, rate)


def remaining_weight(counted_at: float, now: float) -> float:
    """Return the weight that a count of this instant has at `now`; an instant from
    the future has not aged."""
    return float(0.5 ** (max(0.0, now - counted_at) / HALF_LIFE))


def nearest_rank(times: Sequence[int], percent: int) -> int | None:
    """Return the smallest of these sorted times that is not below this share of
    them; None without a time."""
    return times[-(-len(times) * percent // 100) - 1] if times else None


def learnt_timeout(statistics: JoinStatistics | None, longest: float) -> float:
    """Return the seconds that an instance of the group may take: 1.5 times p99, at least
    SHORTEST, and never more than `longest`, which also holds while too few nodes have joined
    since the last time-out."""
    if statistics is None or statistics.since_timeout < ENOUGH or not statistics.ready:
        return longest
    p99 = nearest_rank(sorted(statistics.ready), 99)
    return min(longest, max(SHORTEST, float(math.ceil((p99 or 0) * _MARGIN))))
