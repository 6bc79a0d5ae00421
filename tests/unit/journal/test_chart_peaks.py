"""Peaks between two points of the charts: what passes see, and what the page shows of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.journal import carry_over
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.recorder import Recorder, record_plan
from chalicelib.model.memory import Memory
from chalicelib.model.plan import GroupVerdict, Health, Plan
from chalicelib.model.policy_permissions import STRICT
from chalicelib.page.charts import charts, span_of
from chalicelib.page.cluster_data import ClusterDetails, details
from chalicelib.page.views import cluster_row, tiles
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.table_client import Write
from infra.emulators.memory_table import MemoryAccount
from tests.builders import ClusterBuilder
from tests.unit.journal.support import Pages, plan, refused
from tests.unit.policy.policy_documents import GOOD

START = 1_799_971_200.0  # midnight, UTC
PASS, MINUTE, DAY = 10.0, 60.0, 86400.0
NAME = "prod-geneva"


class ChartedPasses:
    """ChartedPasses of one cluster every ten seconds, as the page reads them."""

    def __init__(self) -> None:
        self.now = START
        self.left = CarryOver()
        self.last = ""
        self.trouble: tuple[str, ...] = ()
        self.written: list[str] = []
        self.store = MemoryAccount().store("test", clock=lambda: self.now)
        self.store.policies.put(NAME, GOOD, "d", None)
        table, write = self.store.table, self.store.table.write

        def counted(item: Write) -> Any:
            self.written.append(item.item)
            return write(item)

        table.write = counted  # type: ignore[method-assign, assignment]

    def quiet(self, seconds: float, ready: int = 3) -> ChartedPasses:
        """ChartedPasses for so long in which nothing waits."""
        for _ in range(round(seconds / PASS)):
            self.make(_plan(self.now, ready))
        return self

    def burst(self, pods: int, ready: int = 3, coming: int = 0) -> ChartedPasses:
        """One pass in which pods wait; for some of them nodes are coming."""
        waiting = tuple(f"shop/web-{at}" for at in range(pods - coming))
        fits = tuple(f"shop/new-{at}" for at in range(coming))
        decision = _plan(self.now, ready)
        return self.make(
            msgspec.structs.replace(
                decision, unschedulable=(refused(*waiting),) if waiting else (), fits_existing=fits
            )
        )

    def make(self, decision: Plan) -> ChartedPasses:
        """One pass with this decision."""
        snapshot = ClusterBuilder().node("n", "4", "16Gi", group="g").group("g").snapshot()
        snapshot = msgspec.structs.replace(snapshot, cluster=NAME, taken_at=self.now)
        state = build_cluster_state(snapshot, Policy(NAME), Memory(), self.now)
        rings = self.store.gauge_rings
        recorder = Recorder(Pages(), None, lambda: self.now, Options(), lambda _: None, ring=rings)
        result = record_plan(
            decision, snapshot, recorder, self.left, self.last, seconds={}, state=state
        )
        self.left, self.trouble, self.last = result.left, result.trouble, result.decision
        lease = self.store.leases.acquire(NAME, "test", 60.0)
        left = carry_over.write(self.left)
        self.store.leases.release(lease, passed_at=self.now, succeeded=True, carry_over=left)
        self.now += PASS
        return self

    def page(self) -> ClusterDetails:
        """What the page reads."""
        cluster = details(self.store, NAME, self.now, STRICT)
        assert cluster is not None
        return cluster

    def waiting_tile(self) -> tuple[str, str]:
        """The figure of waiting pods, and its note."""
        cluster = self.page()
        row = cluster_row(cluster.summary, self.now)
        figures = tiles(cluster, row, self.now)
        (tile,) = [tile for tile in figures if tile.title == "Waiting pods"]
        return tile.value, tile.note

    def drawn(self, span: str, column: str) -> list[str]:
        """The known values of a chart."""
        cluster = self.page()
        chart = charts(span_of(span), cluster.points, cluster.hours, (), self.now)
        return [value for value in chart.columns[column].split(",") if value]


def _plan(at: float, ready: int) -> Plan:
    group = GroupVerdict("g", "test", 0, 9, ready)
    return msgspec.structs.replace(
        plan(at), cluster=NAME, groups=(group,), health=Health(ready=ready, registered=ready)
    )


@pytest.mark.parametrize("after", [0.0, 30.0, 200.0, 12 * MINUTE])
def test_pods_that_waited_90_seconds_are_in_tile_and_chart(after: float) -> None:
    passes = ChartedPasses().quiet(20 * MINUTE + 100)
    for _ in range(9):
        passes.burst(20)
    passes.quiet(after)
    value, note = passes.waiting_tile()
    assert (value, note) == ("0" if after else "20", "most in 24 hours: 20")
    assert sorted(set(passes.drawn("24h", "pending"))) == ["0", "20"]


def test_pods_whose_nodes_are_coming_count_in_the_peak_as_on_the_tile() -> None:
    passes = ChartedPasses().quiet(5 * MINUTE).burst(20, coming=19)
    value, note = passes.waiting_tile()
    assert value == "20"
    assert note.endswith("most in 24 hours: 20")
    assert passes.quiet(MINUTE).waiting_tile() == ("0", "most in 24 hours: 20")


@pytest.mark.parametrize("span", ["1h", "24h", "7d", "14d"])
def test_burst_of_one_pass_is_in_the_charts_of_every_span(span: str) -> None:
    passes = ChartedPasses().quiet(21 * MINUTE).burst(20, ready=8).quiet(30 * MINUTE)
    assert max(map(int, passes.drawn(span, "pending"))) == 20
    assert max(map(int, passes.drawn(span, "nodes-most"))) == 8
    assert max(map(int, passes.drawn(span, "nodes"))) == 3


def test_loss_of_nodes_for_one_pass_is_in_the_chart() -> None:
    passes = (
        ChartedPasses().quiet(20 * MINUTE).quiet(MINUTE).quiet(PASS, ready=1).quiet(90 * MINUTE)
    )
    assert min(map(int, passes.drawn("24h", "nodes-least"))) == 1
    assert min(map(int, passes.drawn("14d", "nodes-least"))) == 1
    assert set(passes.drawn("24h", "nodes")) == {"3"}


def test_quiet_cluster_writes_no_point_more_than_before() -> None:
    passes = ChartedPasses().quiet(10 * MINUTE)
    passes.written.clear()
    passes.quiet(30 * MINUTE)
    assert passes.written.count("gauges") == 1


def test_peak_is_written_with_the_next_point_and_once() -> None:
    passes = ChartedPasses().quiet(20 * MINUTE + 100)
    passes.burst(20)
    passes.written.clear()
    passes.quiet(20 * MINUTE)
    assert passes.written.count("gauges") == 1


def test_peak_that_the_store_refused_comes_with_the_next_point() -> None:
    passes = ChartedPasses().quiet(20 * MINUTE + 100).burst(20)
    rings = passes.store.gauge_rings
    add = rings.add

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("gone")

    rings.add = refuse  # type: ignore[method-assign]
    while not passes.trouble:
        passes.quiet(PASS)
    rings.add = add  # type: ignore[method-assign]
    passes.quiet(10 * MINUTE)
    assert max(map(int, passes.drawn("24h", "pending"))) == 20
