"""The latest and the next occurrence of a cron expression, including clock changes."""

from __future__ import annotations

from datetime import UTC, datetime

from chalicelib.schedules.cron import LocalClock
from tests.cases import each_row


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


CHANGES = [
    ("Europe/Zurich", "2026-03-29 01:00"),
    ("Europe/Zurich", "2026-10-25 01:00"),
    ("America/New_York", "2026-03-08 07:00"),
    ("America/New_York", "2026-11-01 06:00"),
    ("Australia/Lord_Howe", "2026-04-04 15:00"),
    ("Australia/Lord_Howe", "2026-10-03 15:30"),
    ("America/Sao_Paulo", "2026-05-05 12:00"),
    ("UTC", "2026-05-05 12:00"),
]


STEP = 300.0


@each_row(("zone", "change"), CHANGES)
@each_row(
    "cron",
    [
        "0 * * * *",
        "*/20 * * * *",
        "30 2 * * *",
        "5,50 1-3 * * *",
        "59 1 * * *",
        "*/30 * * * 0",
        "0 3 * * *",
    ],
)
def test_CCE_A4_each_occurrence_is_found_once_and_in_time(
    zone: str, change: str, cron: str
) -> None:
    start = at(change) - 2 * 3600.0
    handled = LocalClock(start).times(cron, zone).last
    foretold = LocalClock(start).times(cron, zone).following
    for step in range(1, 72):
        now = start + step * STEP
        found = LocalClock(now).times(cron, zone)
        assert found.last <= now < found.following
        if found.last > handled:
            assert now - found.last < STEP  # no occurrence appears later
            assert handled < foretold <= found.last
            handled = found.last
        else:
            assert foretold > now  # no predicted occurrence is missing
        foretold = found.following


@each_row(
    ("cron", "last", "following"),
    [
        ("47 20 * * *", "2026-03-08 20:47", "2026-03-09 20:47"),
        ("0 0 29 2 *", "2024-02-29 00:00", "2028-02-29 00:00"),
        ("0 12 13 * 5", "2026-03-06 12:00", "2026-03-13 12:00"),
        ("0 0 1 1 *", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("* * * * *", "2026-03-09 12:00", "2026-03-09 12:01"),
    ],
)
def test_CCE_A4_cron_expressions_have_five_fields(cron: str, last: str, following: str) -> None:
    found = LocalClock(at("2026-03-09 12:00:00")).times(cron, "UTC")
    assert (found.last, found.following) == (at(last), at(following))


@each_row(
    ("cron", "zone"),
    [
        ("", "UTC"),
        ("61 * * * *", "UTC"),
        ("* * * *", "UTC"),
        ("0 0 * * *", ""),
        ("0 0 * * *", "America"),
        ("0 0 * * *", "../etc"),
        ("x", "Nowhere/X"),
    ],
)
def test_invalid_cron_expression_is_an_error_value_and_not_an_exception(
    cron: str, zone: str
) -> None:
    assert LocalClock(at("2026-03-09 12:00")).times(cron, zone).problem
