"""Overlap of two schedule windows: correctness and speed."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.schedules.overlap import Span, both_open, starts
from tests.cases import each_row

HOUR = 3600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@each_row(
    ("one", "other", "meet"),
    [
        (Span("0 20 * * *", "UTC", 11 * HOUR), Span("0 6 * * *", "UTC", HOUR), "2023-12-02T06:00"),
        (Span("0 20 * * *", "UTC", 11 * HOUR), Span("0 7 * * *", "UTC", HOUR), ""),
        (Span("0 20 * * *", "UTC", 11 * HOUR), Span("59 6 * * *", "UTC", HOUR), "2023-12-02T06:59"),
        (Span("0 0 29 2 *", "UTC", 60.0), Span("0 0 * * 4", "UTC", HOUR), "2024-02-29T00:00"),
        (Span("* * * * *", "UTC", 60.0), Span("0 0 24 12 *", "UTC", HOUR), "2023-12-24T00:00"),
        (Span("*/5 * * * *", "UTC", 60.0), Span("2 3 1 1 *", "UTC", 120.0), ""),
        (Span("*/5 * * * *", "UTC", 60.0), Span("2 3 1 1 *", "UTC", 181.0), "2024-01-01T03:05"),
        # the gap
        (
            Span("30 2 * * *", "Europe/Zurich", HOUR),
            Span("0 1 31 3 *", "UTC", 60.0),
            "2024-03-31T01:00",
        ),
    ],
)
def test_overlap_is_the_instant_at_which_both_windows_are_open(
    one: Span, other: Span, meet: str
) -> None:
    expected = at(meet) if meet else None
    assert both_open(one, other) == both_open(other, one) == expected


CRONS = ["0 20 * * *", "30 6 * * 1-5", "15 */6 * * *", "0 0 1 * *", "45 23 * * 6"]
SPANS = st.builds(
    Span,
    st.sampled_from(CRONS),
    st.sampled_from(["UTC", "Europe/Zurich", "Asia/Kolkata"]),
    st.sampled_from([60.0, HOUR, 5.5 * HOUR, 12 * HOUR]),
)


@settings(max_examples=60, deadline=None)
@given(SPANS, SPANS)
def test_found_overlap_lies_in_both_windows_in_either_order(one: Span, other: Span) -> None:
    found = both_open(one, other)
    assert (found is None) == (both_open(other, one) is None)
    if found is not None:
        assert both_open(one, minute_of(found)) is not None
        assert both_open(other, minute_of(found)) is not None


@each_row(
    "zone",
    [
        "UTC",
        "Europe/Zurich",
        "America/New_York",
        "Atlantic/Azores",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Kathmandu",
    ],
)
@each_row(
    "cron",
    [
        "30 2 * * *",
        "15 0 * * *",
        "*/30 0,2 * * *",
        "0 0-20/4 L * *",
        "59 23 * * 0",
        "5 1-3 * 3,4 *",
        "0 1 13 * 5",
        "0 1 */10 * 1",
        "0 0 LW * *",
        "10 2 * 10 MON#1",
        "0 23 * 11 7L",
    ],
)
def test_window_openings_equal_cronsims_across_clock_changes(cron: str, zone: str) -> None:
    begins = datetime(2023, 12, 1, tzinfo=ZoneInfo(zone)) - timedelta(seconds=1)
    every = (start.timestamp() for start in CronSim(cron, begins))
    ends = datetime(2025, 2, 1, tzinfo=ZoneInfo(zone)).timestamp()
    expected = list(islice(takewhile(lambda start: start < ends, every), 2000))
    assert list(starts(cron, zone)) == sorted(expected)


def minute_of(at: float) -> Span:
    """The minute that begins at this instant, unique within its year."""
    return Span(datetime.fromtimestamp(at, UTC).strftime("%M %H %d %m *"), "UTC", 60.0)


def test_overlap_of_always_open_crons_is_found_quickly() -> None:
    began = time.process_time()
    assert (
        both_open(Span("*/2 * * * *", "UTC", 60.0), Span("1-59/2 * * * *", "Asia/Tokyo", 60.0))
        is None
    )
    assert time.process_time() - began < 1.0
