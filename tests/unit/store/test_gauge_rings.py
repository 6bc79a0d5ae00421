"""The rows of charts and overview: when they are written, what is read
back, and what does not fail.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from chalicelib.model.cluster_bill import Bill, ClusterBill, MachineCost
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview
from chalicelib.store import Store
from chalicelib.store.gauge_ring import EVERY, HOUR, GaugePoint
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

    def point(self, overview: ClusterOverview | None = None, **values: Any) -> list[str]:
        """A point of now; returns the rows that were written, and five minutes pass."""
        self.written.clear()
        point = msgspec.structs.replace(GaugePoint(self.now, 5, 0, 5, 50, 50, 1.0), **values)
        self.store.gauge_rings.add(NAME, point, overview, seen=self.seen)
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
    assert {point.values for point in points} == {(5, 0, 5, 50, 50, 1.0)}


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
