"""The rings of the charts: their size, what stands for what, the points of the hours, and
rows of earlier releases.
"""

from __future__ import annotations

import random
import struct
import zlib

import msgspec
import pytest

from chalicelib.store.gauge_ring import (
    EVERY,
    HOUR,
    HOURS,
    LARGEST,
    NO_EXTREMES,
    POINTS,
    STANDS,
    GaugePoint,
    added,
    continued,
    hourly,
    is_due,
    packed,
    unpacked,
)

START = 1_795_245_600.0 // HOUR * HOUR
QUIET = GaugePoint(START, 5, 0, 6, 61, 70, 1.25)


def later(point: GaugePoint, slots: int, **changes: float) -> GaugePoint:
    return msgspec.structs.replace(point, at=point.at + slots * EVERY, **changes)


def test_ring_keeps_24_hours_and_one_point_per_five_minutes() -> None:
    points: tuple[GaugePoint, ...] = ()
    for at in range(400):
        points = added(points, later(QUIET, at, nodes=at))
    assert (len(points), points[0].nodes, points[-1].nodes) == (POINTS, 400 - POINTS, 399)
    again = added(points, msgspec.structs.replace(later(QUIET, 399, nodes=7), at=points[-1].at + 1))
    assert (len(again), again[-1]) == (POINTS, later(QUIET, 399, nodes=7))
    assert added(points, later(QUIET, 10**6)) == (later(QUIET, 10**6),)


def test_point_is_read_as_it_was_written() -> None:
    points = (
        QUIET,
        GaugePoint(START + EVERY, 0, 3),
        GaugePoint(START + 9 * EVERY, 1, 0, 0, 0, 0, 0.0),
    )
    assert unpacked(packed(points)) == points


@pytest.mark.parametrize("cost", [10**12, float("inf")])
def test_values_beyond_the_form_are_bounded(cost: float) -> None:
    (point,) = unpacked(packed([GaugePoint(START, 10**6, -4, 10**6, 900, 900, cost)]))
    assert (point.nodes, point.pending, point.wanted, point.cpu) == (65_534, 0, 65_534, 254)
    assert point.cost == pytest.approx((2**32 - 2) / 1000)


def test_row_of_a_busy_cluster_is_small() -> None:
    """A write costs by the kilobyte."""
    lot = random.Random(1)
    full = []
    for at in range(HOURS):
        nodes, pending, wanted, cpu, memory = lot.sample(range(40, 90), 5)
        cost = lot.randint(9000, 15_000) / 1000
        full.append(GaugePoint(START + at * EVERY, nodes, pending, wanted, cpu, memory, cost))
    assert len(packed(full[:POINTS])) < 3 * 1024
    assert len(packed(full)) < 4 * 1024 < LARGEST
    assert len(packed([later(QUIET, at) for at in range(POINTS)])) < 100


def test_row_of_an_earlier_release_is_read() -> None:
    points = [(int(START // EVERY) + at, at, 2) for at in range(5)]
    old = zlib.compress(b"".join(struct.pack("<IHH", *point) for point in points), 9)
    assert unpacked(old) == tuple(GaugePoint(slot * EVERY, nodes, 2) for slot, nodes, _ in points)
    assert unpacked(old)[0].extremes == NO_EXTREMES


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\x02",
        b"\x02x",
        b"\x00" * 50_000,
        packed([QUIET])[:-6],
        b"\x02" + zlib.compress(b"1" * 17),
    ],
)
def test_ring_that_cannot_be_read_is_an_empty_chart(data: bytes) -> None:
    assert unpacked(data) == ()


def test_row_that_expands_without_end_is_no_ring() -> None:
    assert unpacked(b"\x02" + zlib.compress(b"\x00" * 10**7)) == ()


def test_stored_point_stands_for_equal_ones_for_half_an_hour() -> None:
    due = [
        is_due((QUIET,), later(QUIET, at), later(QUIET, at - 1).at) for at in range(1, STANDS + 2)
    ]
    assert due == [False] * (STANDS - 1) + [True] * 2
    assert is_due((), QUIET, 0.0)


@pytest.mark.parametrize("value", ["nodes", "pending", "wanted", "cpu", "memory", "cost"])
def test_point_that_differs_is_stored(value: str) -> None:
    other = later(QUIET, 1, **{value: getattr(QUIET, value) + 1})
    assert is_due((QUIET,), other, QUIET.at)


def test_price_that_differs_less_than_is_stored_is_the_same() -> None:
    assert not is_due((QUIET,), later(QUIET, 1, cost=1.2500001), QUIET.at)


def test_equal_point_after_a_pause_is_stored_so_that_the_gap_shows() -> None:
    assert is_due((QUIET,), later(QUIET, 4), seen=later(QUIET, 1).at)
    ring = added(continued((QUIET,), later(QUIET, 1).at), later(QUIET, 4))
    assert [point.slot - QUIET.slot for point in ring] == [0, 1, 4]


def test_reader_sees_a_point_for_every_five_minutes_until_the_last_pass() -> None:
    assert continued((QUIET,), START + 2 * EVERY + 20) == tuple(later(QUIET, at) for at in range(3))
    assert len(continued((QUIET,), START + 10**6)) == STANDS, "a row that was not renewed ends"
    assert continued((QUIET,), START - 10**6) == (QUIET,)
    assert continued((), START) == ()


def test_hour_has_the_most_waiting_pods_and_the_mean_of_the_rest() -> None:
    points = [
        later(QUIET, at, nodes=at, pending=at % 7, cpu=-1 if at < 6 else 40) for at in range(14)
    ]
    (hour,) = hourly((), points, later(QUIET, 13).at)
    assert (hour.at, hour.nodes, hour.pending, hour.cpu, hour.memory, hour.cost) == (
        START,
        6,
        6,
        40,
        70,
        1.25,
    )
    assert hourly((hour,), points, later(QUIET, 13).at) == (hour,), "an hour is made once"


def test_hours_keep_14_days_and_gaps() -> None:
    hours: tuple[GaugePoint, ...] = ()
    for hour in (*range(400), 403):
        point = later(QUIET, 12 * hour)
        hours = hourly(hours, [point], point.at + HOUR)
    assert len(hours) == HOURS
    assert [(hours[at].at - START) / HOUR for at in (-3, -2, -1)] == [398, 399, 403]
    read = unpacked(packed(hours))
    assert [(hour.at, hour.values) for hour in read] == [(hour.at, hour.values) for hour in hours]
