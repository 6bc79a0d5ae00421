"""The bill of a pass: when it is made, what is stored, and its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.journal import carry_over, metrics
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.metrics import key
from chalicelib.journal.recorder import Recorder, record_plan
from chalicelib.model.cluster_bill import ClusterBill, CostParts
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics, Policy
from chalicelib.policy.settings.spot import Spot
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.leases import LastPass
from infra.emulators.memory_table import MemoryAccount
from tests.builders import ClusterBuilder, node
from tests.unit.journal.support import Pages, ended, plan

START = 1_799_971_200.0  # midnight, UTC
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
NAME = "c"


class BilledPasses:
    """Passes of one cluster with one priced node, and what they leave. reads: how often
    ended operations were read."""

    def __init__(self, price: float = 0.5, **options: Any) -> None:
        self.now, self.price, self.options = START, price, Options(**options)
        self.on_demand = 0.0  # the price of a spot node's type on demand; 0: the node is no spot
        self.left, self.trouble, self.reads, self.last = CarryOver(), "", 0, ""
        self.operations: list[Operation] = []
        self.error: Exception | None = None
        self.memory = Memory()
        self.store = MemoryAccount().store("test", clock=lambda: self.now)

    def ended(self, cluster: str) -> Sequence[Operation]:
        self.reads += 1
        assert cluster == NAME
        if self.error is not None:
            raise self.error
        return self.operations

    def state(self) -> ClusterState:
        labels = {"node.kubernetes.io/instance-type": "large"}
        builder = ClusterBuilder().node("n", "4", "16Gi", group="g", labels=labels)
        builder.group("g", price=self.price, currency="EUR", spot=self.on_demand > 0).running(
            "n", 1, "2", "8Gi", namespace="shop"
        )
        if self.on_demand:
            large = node("t", "4", "16Gi", labels=labels)
            builder.group("dear", price=self.on_demand, currency="EUR", template=large)
        snapshot = msgspec.structs.replace(builder.snapshot(), cluster=NAME, taken_at=self.now)
        policy = Policy(NAME, options=self.options, spot=Spot() if self.on_demand else None)
        return build_cluster_state(snapshot, policy, self.memory, self.now)

    def make(self, after: float = 0.0) -> BilledPasses:
        """Makes a pass after so many seconds."""
        self.now += after
        recorder = Recorder(
            Pages(),
            None,
            lambda: self.now,
            self.options,
            lambda _: None,
            ring=self.store.gauge_rings,
            ended=self.ended,
        )
        state = self.state()
        result = record_plan(
            plan(self.now), state.snapshot, recorder, self.left, self.last, seconds={}, state=state
        )
        self.left, self.trouble = result.left, "; ".join(result.trouble)
        self.last = result.decision
        return self

    def removed(self, minutes_ago: float = 0.0) -> BilledPasses:
        """Ends a removal of a node of 0.5."""
        at = self.now - minutes_ago * MINUTE
        targets = (RemovalTarget("old", "old"),)
        made = ended(
            OperationKind.DELETE_NODES,
            id=f"op-{len(self.operations)}",
            updated_at=at,
            targets=targets,
        )
        self.operations.append(made.with_spec(price=500_000, currency="EUR"))
        self.memory = Memory(groups={"g": GroupMemory(last_delete=at)})
        return self

    @property
    def bill(self) -> ClusterBill | None:
        """The stored bill."""
        return self.store.gauge_rings.overview(NAME).bill


COST, SAVED = key("cost_per_hour", currency="EUR"), key("savings_total", currency="EUR")


def test_bill_is_stored_with_the_overview() -> None:
    bill = BilledPasses().make().bill
    assert bill is not None
    assert (bill.at, bill.bills[0].currency) == (START, "EUR")
    assert bill.bills[0].parts == CostParts(500_000, 250_000, 0, 0, 0, 250_000, 0)
    assert [row.name for row in bill.bills[0].namespaces] == ["shop"]


def test_bill_is_made_once_in_five_minutes_and_its_cost_stays_a_gauge() -> None:
    passes = BilledPasses().make(MINUTE)
    passes.price = 0.7
    costs = [passes.make(MINUTE).left.gauges[COST] for _ in range(5)]
    assert costs == [0.5, 0.5, 0.5, 0.7, 0.7]


def test_cost_that_is_not_known_any_more_is_no_gauge() -> None:
    passes = BilledPasses().make()
    passes.price = 0.0
    assert COST not in passes.make(5 * MINUTE).left.gauges
    assert passes.bill is None


def test_cost_of_groups_is_a_gauge_only_with_the_option() -> None:
    name = key("node_group_cost_per_hour", node_group="g", currency="EUR")
    assert name not in BilledPasses().make().left.gauges
    assert BilledPasses(emit_per_nodegroup_metrics=True).make().left.gauges[name] == 0.5


def test_cost_and_savings_are_not_written_to_cloudwatch() -> None:
    values = {COST: 1.0, SAVED: 1.0, key("brake"): 1.0, key("nodes_count", state="ready"): 1.0}
    assert list(metrics.for_cloudwatch(values, Metrics.FULL)) == [key("nodes_count", state="ready")]


def test_savings_are_counted_once_an_hour_from_the_ended_operations() -> None:
    passes = BilledPasses().make().removed()
    for _ in range(24):
        passes.make(5 * MINUTE)
    assert passes.reads == 3  # the first pass, and one in each of the two hours that began
    assert passes.left.counts[SAVED] == 1.0
    bill = passes.bill
    assert bill is not None
    assert [(sums.rate, sums.today, sums.total) for sums in bill.savings] == [
        (500_000, 1_000_000, 1_000_000)
    ]


def test_savings_of_before_the_first_pass_are_shown_and_not_counted() -> None:
    passes = BilledPasses().make(6 * HOUR).removed(minutes_ago=60)
    passes.left = CarryOver()
    passes.make(5 * MINUTE)
    assert [round(sums.today) for sums in passes.left.savings] == [541_667]
    assert SAVED not in passes.left.counts


def test_quiet_cluster_reads_the_ended_operations_once_a_day() -> None:
    passes = BilledPasses().make()
    for _ in range(72):
        passes.make(HOUR)
    assert passes.reads == 1 + 3


def test_savings_that_cannot_be_read_are_reported_and_the_bill_is_stored() -> None:
    passes = BilledPasses()
    passes.error = StoreUnavailable("gone")
    passes.make()
    assert passes.trouble == "savings: StoreUnavailable: gone"
    assert passes.bill is not None
    assert (passes.left.savings_at, passes.make(5 * MINUTE).reads) == (0.0, 2), "it is tried again"


def test_stored_bill_stands_while_nothing_changes() -> None:
    passes = BilledPasses().make()
    first = passes.bill
    assert passes.make(5 * MINUTE).bill == first
    assert isinstance(passes.store.scan_states.last(NAME, points=True), LastPass | None)


def spot_passes() -> BilledPasses:
    """A spot node of 0.5 whose type costs 0.8 on demand."""
    passes = BilledPasses()
    passes.on_demand = 0.8
    return passes.make()


def test_spot_node_saves_the_difference_to_on_demand_while_passes_see_it() -> None:
    passes = spot_passes()
    for _ in range(25):
        passes.make(5 * MINUTE)
    bill = passes.bill
    assert bill is not None
    assert [(sums.rate, sums.today, sums.spot_today) for sums in bill.savings] == [
        (300_000, 600_000, 600_000)
    ]
    assert passes.left.counts[SAVED] == 0.6


def test_spot_node_saves_nothing_while_no_passes_are_made() -> None:
    passes = spot_passes()
    for _ in range(12):
        passes.make(5 * MINUTE)
    passes.make(10 * HOUR)
    for _ in range(12):
        passes.make(5 * MINUTE)
    assert [sums.today for sums in passes.left.savings] == [600_000]


def test_spot_node_that_is_gone_saves_nothing_more() -> None:
    passes = spot_passes()
    for _ in range(12):
        passes.make(5 * MINUTE)
    passes.on_demand = 0.0
    for _ in range(36):
        passes.make(5 * MINUTE)
    (sums,) = passes.left.savings
    assert (sums.rate, sums.today) == (0, 300_000)


def test_savings_of_spot_end_with_the_day_and_stay_in_the_month() -> None:
    passes = spot_passes()
    for _ in range(26 * 12):
        passes.make(5 * MINUTE)
    (sums,) = passes.left.savings
    assert (sums.spot_today, sums.spot_week) == (600_000, 7_800_000)
    assert sums.spot_month == sums.month == 7_800_000


def test_removal_saves_nothing_while_no_passes_are_made() -> None:
    passes = BilledPasses().make().removed()
    for _ in range(12):
        passes.make(5 * MINUTE)
    passes.make(20 * HOUR)
    (sums,) = passes.left.savings
    assert (sums.rate, sums.today) == (500_000, 500_000)


def test_notes_of_savings_are_read_back_and_ignored_by_other_releases() -> None:
    passes = spot_passes()
    for _ in range(30):
        passes.make(5 * MINUTE)
    passes.make(20 * HOUR)
    read = carry_over.read(carry_over.write(passes.left))
    assert (read.notes, read.spot_open) == (passes.left.notes, passes.left.spot_open)
    assert read.notes.spot
    assert read.notes.gaps
    assert carry_over.read(carry_over.write(CarryOver(decided=1.0))) == CarryOver(decided=1.0)
