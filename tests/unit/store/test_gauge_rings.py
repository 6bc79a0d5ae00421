"""The rows of charts and overview: when they are written, what is read
back, and what does not fail.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import msgspec
import pytest

from chalicelib.model.cluster_bill import Bill, ClusterBill, MachineCost
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview
from chalicelib.store import Store
from chalicelib.store.gauge_ring import (
    EVERY,
    HOUR,
    LARGEST,
    NO_EXTREMES,
    Extremes,
    GaugePoint,
    packed,
    unpacked,
)
from chalicelib.store.leases import LastPass
from chalicelib.store.table_client import Write
from chalicelib.store.tables import GAUGES, HOURS, OVERVIEW
from infra.emulators.memory_table import MemoryAccount

START = 1_795_245_600.0 // HOUR * HOUR
NAME = "shop"
NODES = tuple(NodeOverview(f"n-{at}", 0, "z", "m", START, 50, 50, 7) for at in range(3))
SEEN = ClusterOverview(
    0.0, (GroupOverview("g", "web", "exoscale", cpu=4.0, cpu_requested=2.0),), NODES
)


class Ring:
    """A cluster with a pass every five minutes; counts the rows that are written."""

    def __init__(self) -> None:
        self.now = START
        self.store: Store = MemoryAccount().store("test", clock=lambda: self.now)
        self.written: list[str] = []
        table, write = self.store.table, self.store.table.write

        def counted(item: Write) -> Any:
            self.written.append(item.item)
            return write(item)

        table.write = counted  # type: ignore[method-assign, assignment]
        self.seen = 0.0

    def point(
        self,
        overview: ClusterOverview | None = None,
        extremes: Extremes = NO_EXTREMES,
        **values: Any,
    ) -> list[str]:
        """A point of now; returns the rows that were written, and five minutes pass. extremes: of
        the passes since the last point."""
        self.written.clear()
        point = msgspec.structs.replace(GaugePoint(self.now, 5, 0, 5, 50, 50, 1.0), **values)
        self.store.gauge_rings.add(NAME, point, overview, seen=self.seen, extremes=extremes)
        self.seen = self.now
        self.now += EVERY
        return list(self.written)

    def read(self) -> LastPass:
        """What a page reads, right after the last pass."""
        lease = self.store.leases.acquire(NAME, "test", 60.0)
        self.store.leases.release(lease, passed_at=self.seen, succeeded=True)
        last = self.store.scan_states.last(NAME, points=True)
        assert last is not None
        return last


def test_quiet_cluster_writes_a_point_in_half_an_hour_and_reads_back_all() -> None:
    ring = Ring()
    rows = [ring.point() for _ in range(13)]
    assert [at for at, names in enumerate(rows) if names] == [0, 6, 12]
    assert rows[12] == [HOURS, GAUGES]
    points = ring.read().points
    assert [point.at for point in points] == [START + at * EVERY for at in range(13)]
    assert {point.values[:-1] for point in points} == {(5, 0, 5, 50, 50, 1.0)}


def test_change_is_written_at_once_and_begins_where_it_did() -> None:
    ring = Ring()
    ring.point()
    ring.point()
    assert ring.point(pending=3) == [GAUGES]
    assert [point.pending for point in ring.read().points] == [0, 0, 3]


def test_pause_of_the_passes_is_a_gap() -> None:
    ring = Ring()
    ring.point()
    ring.point()
    ring.now += 2 * EVERY
    assert ring.point() == [GAUGES]
    assert [(point.at - START) / EVERY for point in ring.read().points] == [0, 1, 4]


def test_hours_are_written_once_an_hour() -> None:
    ring = Ring()
    rows = [ring.point(nodes=at) for at in range(37)]
    assert [at for at, names in enumerate(rows) if HOURS in names] == [12, 24, 36]
    assert [(hour.at - START, hour.nodes) for hour in ring.read().hours] == [
        (0, 6),
        (HOUR, 18),
        (2 * HOUR, 30),
    ]


BURST = Extremes(least_nodes=2, nodes=9, pending=20, wanted=9)
"""What passes between two points saw."""


def test_peak_between_two_points_belongs_to_the_time_in_which_it_was() -> None:
    ring = Ring()
    for _ in range(4):
        ring.point()
    assert ring.point(extremes=BURST) == [GAUGES]
    assert ring.point() == [], "the point after a peak is as the ones before it"
    points = ring.read().points
    assert [point.bounds.pending for point in points] == [0, 0, 0, 20, 0, 0]
    assert [point.bounds.least_nodes for point in points] == [5, 5, 5, 2, 5, 5]
    assert [point.bounds.nodes for point in points] == [5, 5, 5, 9, 5, 5]
    assert {point.pending for point in points} == {0}


def test_peak_of_one_pass_is_read_after_14_days() -> None:
    ring = Ring()
    for at in range(30):
        ring.point(extremes=BURST if at == 20 else NO_EXTREMES)
    for _ in range(14 * 4 - 1):  # a pass in six hours
        ring.now += 71 * EVERY
        ring.point()
    hours = ring.read().hours
    (peak,) = [hour for hour in hours if hour.bounds != hours[0].bounds]
    assert peak.at == START + HOUR
    assert ring.now - peak.at > 13.8 * 24 * HOUR
    assert (peak.nodes, peak.pending) == (5, 20)
    assert peak.bounds == Extremes(2, 9, 20, 9, 50, 50, 1.0)


def test_hour_has_the_extremes_of_its_points() -> None:
    ring = Ring()
    for at in range(13):
        ring.point(nodes=at, wanted=2 * at, cpu=5 * at, memory=4 * at, cost=at / 4)
    (hour,) = ring.read().hours
    assert (hour.nodes, hour.wanted, hour.cpu, hour.cost) == (6, 11, 28, 1.375)
    assert hour.bounds == Extremes(0, 11, 0, 22, 55, 44, 2.75)


def test_peak_before_a_pause_of_the_passes_is_not_lost() -> None:
    ring = Ring()
    ring.point()
    ring.point()
    ring.now += 6 * HOUR
    ring.point(extremes=BURST)
    assert [point.bounds.pending for point in ring.read().points] == [0, 20, 0]


def test_point_without_stored_extremes_has_its_values() -> None:
    point = GaugePoint(START, 5, 3, -1, 50, -1, 1.25)
    stored = packed([point])
    values = zlib.decompressobj()
    values.decompress(stored[1:])
    assert values.unused_data == b""
    (read,) = unpacked(stored)
    assert read.bounds == Extremes(5, 5, 3, -1, 50, -1, 1.25)
    first_release = zlib.compress(struct.pack("<IHH", int(START // EVERY), 5, 3))
    assert unpacked(first_release)[0].bounds == Extremes(5, 5, 3)


def test_release_without_extremes_reads_the_values_before_them() -> None:
    """It decompresses one part, and looks at nothing behind its end."""
    points = [GaugePoint(START + at * EVERY, 5, at, 5, 50, 50, 1.0) for at in range(3)]
    with_peak = msgspec.structs.replace(points[1], extremes=BURST)
    reader = zlib.decompressobj()
    values = reader.decompress(packed([points[0], with_peak, points[2]])[1:])
    assert reader.eof
    assert reader.unused_data
    assert values == zlib.decompress(packed(points)[1:])


@pytest.mark.parametrize("cut", [b"", b"x", zlib.compress(b"x"), zlib.compress(bytes(16))])
def test_extremes_that_cannot_be_read_leave_the_values(cut: bytes) -> None:
    plain = packed([GaugePoint(START, 5, 3), GaugePoint(START + EVERY, 5, 3)])
    assert [point.bounds.pending for point in unpacked(plain + cut)] == [3, 3]


def test_full_ring_of_peaks_is_no_larger_than_what_is_read() -> None:
    lot = random.Random(1)

    def number(most: int) -> int:
        return lot.randrange(most)

    points = []
    for at in range(336):
        low = (number(2**15), number(2**15), number(2**15), number(100), number(100))
        nodes, pending, wanted = (value + number(2**15) for value in low[:3])
        extremes = Extremes(number(low[0] + 1), nodes, pending, wanted, 100, 100, 4e6)
        points.append(GaugePoint(START + at * HOUR, *low, number(10**9) / 1000, extremes))
    stored = packed(points)
    assert len(stored) < LARGEST
    assert unpacked(stored) == tuple(points)


def test_overview_is_written_when_it_changed() -> None:
    ring = Ring()
    assert ring.point(SEEN) == [OVERVIEW, GAUGES]
    assert ring.read().overview == SEEN
    assert ring.point(msgspec.structs.replace(SEEN, at=ring.now)) == []
    grown = msgspec.structs.replace(SEEN, nodes=(*NODES, NodeOverview("n-9")))
    assert ring.point(grown) == [OVERVIEW, GAUGES]
    assert ring.store.gauge_rings.overview(NAME) == grown == ring.read().overview


def test_overview_between_two_points_is_written_when_it_changed() -> None:
    ring = Ring()
    ring.point(SEEN)
    ring.written.clear()
    grown = msgspec.structs.replace(SEEN, at=ring.now, nodes=(*NODES, NodeOverview("n-9")))
    for _ in range(3):
        ring.store.gauge_rings.add_overview(NAME, grown, ring.now)
    assert ring.written == [OVERVIEW, GAUGES]
    assert ring.store.gauge_rings.overview(NAME) == grown
    assert [point.at for point in ring.read().points] == [START]


def test_change_that_does_not_matter_is_written_after_half_an_hour() -> None:
    ring = Ring()
    ring.point(SEEN)
    fuller = tuple(msgspec.structs.replace(node, cpu=52, pods=8) for node in NODES)
    rows = [ring.point(msgspec.structs.replace(SEEN, nodes=fuller)) for _ in range(6)]
    assert [OVERVIEW in names for names in rows] == [False] * 5 + [True]
    emptier = tuple(msgspec.structs.replace(node, cpu=31) for node in NODES)
    assert OVERVIEW in ring.point(msgspec.structs.replace(SEEN, nodes=emptier)), (
        "it matters at once"
    )


def test_large_overview_is_written_the_less_often() -> None:
    ring = Ring()
    for at in range(13):
        nodes = tuple(NodeOverview(f"n-{number}-{at}") for number in range(1000))
        assert (OVERVIEW in ring.point(ClusterOverview(nodes=nodes))) == (at % 4 == 0)


def test_overview_that_no_row_takes_has_fewer_nodes_and_says_so() -> None:
    ring = Ring()
    lot = random.Random(1)
    nodes = tuple(NodeOverview(lot.randbytes(200).hex()) for _ in range(2000))
    ring.point(ClusterOverview(nodes=nodes, more_nodes=5))
    read = ring.read().overview
    assert 0 < len(read.nodes) < len(nodes)
    assert len(read.nodes) + read.more_nodes == len(nodes) + 5


def test_bill_that_no_row_takes_is_left_out() -> None:
    ring, lot = Ring(), random.Random(1)
    costs = tuple(MachineCost(lot.randbytes(200).hex()) for _ in range(2000))
    ring.point(msgspec.structs.replace(SEEN, bill=ClusterBill(START, (Bill("EUR", groups=costs),))))
    read = ring.read().overview
    assert (read.groups, read.nodes, read.more_nodes, read.bill) == (
        SEEN.groups,
        (),
        len(NODES),
        None,
    )


@pytest.mark.parametrize("blob", [b"", b"x", b"\x78\x9c\x00"])
def test_rows_that_cannot_be_read_are_no_charts_and_no_overview(blob: bytes) -> None:
    ring = Ring()
    ring.point(SEEN)
    for item in (GAUGES, HOURS, OVERVIEW):
        key = {"cluster": {"S": NAME}, "item": {"S": item}}
        ring.store.table.client.put_item(
            TableName=ring.store.table.name, Item={**key, "blob": {"B": blob}}
        )
    read = ring.read()
    assert (read.points, read.hours, read.overview) == ((), (), ClusterOverview())


def test_row_of_another_form_is_replaced() -> None:
    ring = Ring()
    for item in (GAUGES, OVERVIEW):
        key = {"cluster": {"S": NAME}, "item": {"S": item}}
        ring.store.table.client.put_item(
            TableName=ring.store.table.name, Item={**key, "blob": {"S": "text"}}
        )
    assert ring.store.gauge_rings.overview(NAME) == ClusterOverview() == ring.read().overview
    assert ring.read().points == ()
    assert ring.point(SEEN) == [OVERVIEW, GAUGES]
    assert (len(ring.read().points), ring.read().overview) == (1, SEEN)


def test_reader_without_charts_reads_none() -> None:
    ring = Ring()
    ring.point(SEEN)
    ring.read()
    last = ring.store.scan_states.last(NAME)
    assert last is not None
    assert (last.points, last.hours, last.overview) == ((), (), ClusterOverview())
