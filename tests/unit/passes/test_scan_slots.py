"""Scan times of a cluster."""

from __future__ import annotations

import itertools

import pytest

from chalicelib.passes.scan_scheduler import MINUTE, is_superseded, scan_slots
from tests.cases import each_row

T = 1_795_245_600.0


@each_row(
    ("last", "interval", "due"),
    [
        (0.0, 60.0, [0]),  # never scanned
        (0.0, 20.0, [0, 20, 40]),
        (-20.0, 20.0, [0, 20, 40]),  # on time
        (-20.0, 10.0, [0, 10, 20, 30, 40, 50]),
        (-10.0, 20.0, [10, 30, 50]),  # a pass in between: the interval restarts there
        (-59.8, 60.0, [0]),  # the tick came slightly early
        (-55.5, 60.0, [0]),
        (-30.0, 60.0, [30]),
        (-1.0, 60.0, []),  # 59 s from now belongs to the next tick
        (-45.0, 90.0, [45]),
        (-29.0, 90.0, []),
        (-3600.0, 20.0, [0, 20, 40]),  # fell behind: due now, without making up for missed scans
        (-60.0, 45.0, [0, 45]),
    ],
)
def test_scan_slots_of_one_tick(last: float, interval: float, due: list[int]) -> None:
    last_pass = T + last if last else 0.0
    assert [instant - T for instant in scan_slots(last_pass, interval, T)] == pytest.approx(due)


@each_row("interval", [7.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 100.0])
@each_row("jitter", [0.0, 0.4, 1.9])
def test_scan_slots_keep_their_interval_over_an_hour_of_ticks(
    interval: float, jitter: float
) -> None:
    """No slot is missing, doubled or far off, however the ticks fall."""
    last, passes = 0.0, []
    for tick in range(60):
        now = T + MINUTE * tick + (jitter if tick % 3 else 0.0)
        for at in scan_slots(last, interval, now):
            passes.append(at)
            last = at
    gaps = [later - earlier for earlier, later in itertools.pairwise(passes)]
    assert min(gaps) >= interval - 5.0
    assert max(gaps) <= interval + 5.0 + jitter
    assert len(passes) == pytest.approx(3600 / interval, abs=3600 / interval / 8 + 1)


@each_row(
    ("at", "last", "old"),
    [
        (20.0, 0.0, False),  # on time
        (20.0, 20.4, True),  # delivered twice
        (20.0, 95.0, True),  # delivered late, after a later pass
        (20.0, 16.0, True),  # a webhook request came just before
        (20.0, 9.0, False),
    ],
)
def test_superseded_scheduled_messages_cause_no_scan(at: float, last: float, old: bool) -> None:
    assert is_superseded(T + at, T + last, 20.0) is old
