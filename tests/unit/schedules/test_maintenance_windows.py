"""Maintenance windows: openings, also across clock changes, and the next time at
which removals are allowed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput
from chalicelib.model.memory import Memory
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.schedules.cron import check_cron, check_zone, shortest_gap
from chalicelib.schedules.maintenance_windows import (
    allowed_for,
    never_allowed,
    next_allowed,
    outside,
)
from tests.unit.plan.selection_builder import SelectionBuilderPool, goes, why

ZURICH = "Europe/Zurich"
HOUR = 3600.0


def at(text: str, zone: str = ZURICH, *, second: bool = False) -> float:
    """Epoch seconds of a local time; second: its second occurrence in a clock change."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=int(second)).timestamp()


def is_open(window: Window, now: float) -> bool:
    return outside((window,), now) is None


NIGHTS = Window("0 22 * * 1-5", 6 * HOUR, time_zone=ZURICH, name="nights")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-06-01T21:59:59.9", False),
        ("2026-06-01T22:00", True),
        ("2026-06-02T03:59:59.9", True),
        ("2026-06-02T04:00", False),
        ("2026-06-06T03:00", True),
        ("2026-06-06T22:30", False),
    ],
)
def test_window_is_open_from_its_beginning_until_before_its_end(now: str, expected: bool) -> None:
    assert is_open(NIGHTS, at(now)) is expected


@pytest.mark.parametrize(
    ("now", "seconds", "expected"),
    [
        ("2026-06-01T21:59", 1.0, False),
        ("2026-06-01T22:00", 6 * HOUR, True),
        ("2026-06-01T22:00", 6 * HOUR + 1.0, False),
        ("2026-06-02T03:50", 600.0, True),
        ("2026-06-02T03:50", 601.0, False),
    ],
)
def test_window_allows_removals_for_as_long_as_it_stays_open(
    now: str, seconds: float, expected: bool
) -> None:
    assert allowed_for((NIGHTS,), at(now), seconds) is expected


def test_windows_that_follow_each_other_allow_removals_for_as_long_as_all_of_them() -> None:
    mornings = Window("0 4 * * 1-5", HOUR, time_zone=ZURICH)
    assert allowed_for((NIGHTS, mornings), at("2026-06-02T03:30"), 1.5 * HOUR)
    assert not allowed_for((NIGHTS, mornings), at("2026-06-02T03:30"), 1.5 * HOUR + 1.0)
    assert allowed_for((), at("2026-06-02T03:30"), 1e9)


@pytest.mark.parametrize(("seconds", "expected"), [(1800.0, True), (1801.0, False)])
def test_removals_are_allowed_until_a_window_that_forbids_them(
    seconds: float, expected: bool
) -> None:
    office = Window("0 8 * * 1-5", 9 * HOUR, removals=False, time_zone=ZURICH)
    assert allowed_for((office,), at("2026-06-01T07:30"), seconds) is expected
    assert not allowed_for((office,), at("2026-06-01T08:00"), 1.0)


@pytest.mark.parametrize(
    "now", [at("2026-06-01T10:59:59.5"), at("2026-06-01T11:00"), at("2026-06-01T11:00:00.5")]
)
def test_adjacent_windows_leave_no_gap(now: float) -> None:
    assert is_open(Window("0 * * * *", HOUR), now)


@pytest.mark.parametrize(
    ("window", "now", "expected"),
    [
        # Spring 2026: 02:00 becomes 03:00 on 29 March.
        pytest.param(
            Window("30 2 * * *", HOUR, time_zone=ZURICH),
            "2026-03-29T03:00",
            True,
            id="skipped-time-is-after-it",
        ),
        pytest.param(
            Window("30 2 * * *", HOUR, time_zone=ZURICH),
            "2026-03-29T03:59",
            True,
            id="skipped-lasts-as-long",
        ),
        pytest.param(
            Window("30 2 * * *", HOUR, time_zone=ZURICH),
            "2026-03-29T04:00",
            False,
            id="skipped-and-over",
        ),
        pytest.param(
            Window("30 2 * * *", HOUR, time_zone=ZURICH),
            "2026-03-29T01:59",
            False,
            id="not-before-the-gap",
        ),
        pytest.param(
            Window("0 22 * * *", 6 * HOUR, time_zone=ZURICH),
            "2026-03-29T04:59",
            True,
            id="real-hours-spring",
        ),
        pytest.param(
            Window("0 22 * * *", 6 * HOUR, time_zone=ZURICH),
            "2026-03-29T05:00",
            False,
            id="spring-end",
        ),
        # Autumn 2026: 03:00 becomes 02:00 on 25 October.
        pytest.param(
            Window("0 22 * * *", 6 * HOUR, time_zone=ZURICH),
            "2026-10-25T02:59",
            True,
            id="real-hours-autumn",
        ),
        pytest.param(
            Window("0 22 * * *", 6 * HOUR, time_zone=ZURICH),
            "2026-10-25T03:00",
            False,
            id="autumn-end",
        ),
    ],
)
def test_window_openings_across_clock_changes_in_zurich(
    window: Window, now: str, expected: bool
) -> None:
    assert is_open(window, at(now)) is expected


def test_repeated_local_time_opens_a_window_once() -> None:
    window = Window("30 2 * * *", 1800.0, time_zone=ZURICH)
    first, second = at("2026-10-25T02:30"), at("2026-10-25T02:30", second=True)
    assert second - first == HOUR
    assert is_open(window, first)
    assert is_open(window, first + 1799)
    assert not is_open(window, second)
    assert is_open(
        Window("30 2 * * *", 2 * HOUR, time_zone=ZURICH), at("2026-10-25T02:10", second=True)
    )


def test_window_with_a_star_for_the_hour_opens_in_the_repeated_hour_too() -> None:
    window = Window("30 * * * *", 600.0, time_zone=ZURICH)
    assert is_open(window, at("2026-10-25T02:35"))
    assert is_open(window, at("2026-10-25T02:35", second=True))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        ["30 2 * * *", "0 2,3 * * *", "59 1 * * *", "15 3 * * 0", "0 */3 * * *", "*/20 * * * *"]
    ),
    st.sampled_from([ZURICH, "Australia/Sydney", "America/New_York", "UTC"]),
    st.sampled_from(
        ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"]
    ),
    st.integers(-12 * 60, 36 * 60),
    st.integers(1, 180),
)
def test_window_is_open_if_it_opened_less_than_its_duration_ago(
    cron: str, zone: str, day: str, minute: int, minutes: int
) -> None:
    from cronsim import CronSim

    length = min(minutes * 60.0, shortest_gap(cron))
    now = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=minute, seconds=7)
    opened = False
    for start in CronSim(cron, (now - timedelta(days=9)).astimezone(ZoneInfo(zone))):
        if start > now:
            break
        opened = opened or now.timestamp() < start.timestamp() + length
    assert is_open(Window(cron, length, time_zone=zone), now.timestamp()) is opened


def test_half_hour_clock_change_shifts_window_openings_by_half_an_hour() -> None:
    """Lord Howe changes from UTC+11 to UTC+10:30; cronsim, iterating forwards over the change,
    is half an hour off there."""
    window = Window("0 */3 * * *", 3 * HOUR, time_zone="Australia/Lord_Howe")
    # three o'clock, after the clock change
    opened = datetime(2026, 4, 4, 16, 30, tzinfo=UTC).timestamp()
    assert is_open(window, opened + 3 * HOUR - 60)
    assert is_open(Window("0 3 * * *", HOUR, time_zone="Australia/Lord_Howe"), opened + 60)


FROZEN = Window("0 0 24 12 *", 72 * HOUR, removals=False, time_zone=ZURICH, name="holidays")
OFFICE = Window("0 8 * * 1-5", 10 * HOUR, removals=False, time_zone=ZURICH)


@pytest.mark.parametrize(
    ("windows", "now", "name", "until"),
    [
        ((NIGHTS,), "2026-06-06T12:00", "nights", "2026-06-08T22:00"),
        (
            (NIGHTS, Window("0 3 * * 6", HOUR, name="saturdays", time_zone=ZURICH)),
            "2026-06-05T12:00",
            "nights, saturdays",
            "2026-06-05T22:00",
        ),
        ((FROZEN,), "2026-12-25T12:00", "holidays", "2026-12-27T00:00"),
        ((NIGHTS, FROZEN), "2026-12-24T23:00", "holidays", "2026-12-28T22:00"),
        ((OFFICE,), "2026-06-01T09:00", "0 8 * * 1-5", "2026-06-01T18:00"),
        (
            (OFFICE, Window("0 9 * * *", HOUR, time_zone=ZURICH)),
            "2026-06-01T09:30",
            "0 8 * * 1-5",
            "2026-06-06T09:00",
        ),
    ],
)
def test_reason_and_end_of_a_removal_block_by_windows(
    windows: tuple[Window, ...], now: str, name: str, until: str
) -> None:
    assert outside(windows, at(now)) == Reason.of(
        ReasonCode.OUTSIDE_WINDOW, window=name, until=at(until)
    )
    assert outside(windows, at(until)) is None
    assert outside(windows, at(until) - 1) is not None


def test_removals_are_always_allowed_without_windows() -> None:
    assert outside((), 0.0) is None
    assert next_allowed((), 5.0) == 5.0


def test_closed_forbidding_window_blocks_nothing() -> None:
    assert outside((FROZEN,), at("2026-06-01T12:00")) is None


def test_window_block_has_no_end_time_if_none_can_be_computed() -> None:
    never = (OFFICE, Window("0 9 * * 1-5", HOUR, time_zone=ZURICH, name="mornings"))
    assert outside(never, at("2026-06-01T12:00")) == Reason.of(
        ReasonCode.OUTSIDE_WINDOW, window="0 8 * * 1-5"
    )
    assert never_allowed(never)
    assert not never_allowed((NIGHTS, FROZEN, OFFICE))
    leap = (Window("0 0 29 2 *", HOUR),)
    assert outside(leap, at("2026-06-01T12:00")) == Reason.of(
        ReasonCode.OUTSIDE_WINDOW, window="0 0 29 2 *"
    )


def test_timers_continue_outside_a_window_while_nothing_is_removed() -> None:
    pool = SelectionBuilderPool().group("g", 1)
    inside, before = at("2027-06-01T23:00"), at("2027-06-01T20:00")
    early = pool.pick(now=before, windows=[NIGHTS])
    assert (
        early.refused["g-e00"]
        == early.paused
        == Reason.of(ReasonCode.OUTSIDE_WINDOW, window="nights", until=at("2027-06-01T22:00"))
    )
    assert goes(pool.pick(now=inside, windows=[NIGHTS])) == ["g-e00"]
    assert why(pool.pick(now=before, since=before, windows=[NIGHTS])) == {
        ReasonCode.NOT_UNNEEDED_LONG_ENOUGH
    }


def test_window_reason_precedes_cooldowns_and_follows_minimums() -> None:
    now = at("2027-06-01T20:00")
    known = Memory(last_scale_up=now)
    assert why(SelectionBuilderPool().group("g", 1).pick(known, now=now, windows=[NIGHTS])) == {
        ReasonCode.OUTSIDE_WINDOW
    }
    assert why(
        SelectionBuilderPool().group("g", 1, min=1).pick(known, now=now, windows=[NIGHTS])
    ) == {ReasonCode.GROUP_MIN_SIZE}


@given(
    st.text(max_size=20)
    | st.from_regex(r"[0-9*/,#L?W-]{1,6}( [0-9*/,#LMONW-]{1,6}){4}", fullmatch=True)
)
@settings(max_examples=200, deadline=None)
def test_invalid_window_crons_are_rejected_and_accepted_ones_are_usable(cron: str) -> None:
    try:
        check_cron(cron)
    except BadInput:
        return
    assert shortest_gap(cron) >= 60
    outside((Window(cron, 60.0, time_zone=ZURICH),), at("2026-10-25T02:30"))


@given(
    st.text(max_size=30)
    | st.sampled_from(["America", "/etc/passwd", "../UTC", "zone.tab", "", "\0"])
)
@settings(deadline=None)
def test_invalid_window_time_zone_is_rejected(name: str) -> None:
    try:
        check_zone(name)
    except BadInput:
        return
    ZoneInfo(name)
