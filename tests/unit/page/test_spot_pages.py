"""The page shows spot groups, notices of vendors, and nodes that are sick, too old or outdated."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import GroupMemory, InterruptionNotice, InterruptionRisk, Memory
from chalicelib.model.operation import (
    Operation,
    OperationKind,
    OperationSpec,
    OperationStatus,
    RemovalTarget,
)
from chalicelib.model.overview import SpotOverview
from chalicelib.model.plan import LifecycleVerdict, Plan, Restart
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.page.attention import Need, healing, needs
from chalicelib.page.cluster_data import ClusterDetails, details
from chalicelib.page.views import tiles
from chalicelib.store import Store
from chalicelib.store.gauge_ring import GaugePoint
from infra.emulators.example_clusters import ARM, BATCH, NOW, WEB, busy_plan, decided, overview
from tests.source_trees import ROOT
from tests.unit.page.test_pages import get, text, with_policy, words

TOO_MANY = Reason.of(ReasonCode.TOO_MANY_UNHEALTHY, unhealthy=2, of=2, share=0.2)
BUDGET = Reason.of(ReasonCode.DISRUPTION_BUDGET, budget="always", limit=1)
LIFECYCLE = (
    LifecycleVerdict("arm-0", DisruptionReason.REPAIR, NOW - 900, TOO_MANY),
    LifecycleVerdict("arm-1", DisruptionReason.REPAIR, NOW - 900, TOO_MANY),
    LifecycleVerdict("web-3", DisruptionReason.EXPIRED, NOW - 90_000, BUDGET),
    LifecycleVerdict("web-4", DisruptionReason.REPAIR, NOW - 600),
)
NOTES = (
    Reason.of(ReasonCode.NODE_OVERDUE, node="web-3", since=NOW - 90_000),
    Reason.of(ReasonCode.NO_REPLACEMENT_IN_TIME, node="batch-1", until=NOW + 95, ready=180),
)
RISK = InterruptionRisk(
    2.0, 340.0, NOW - 60, 5, NOW - 25, {"batch-1": InterruptionNotice(NOW - 25, NOW + 95)}
)
EVACUATION = Operation(
    OperationSpec(
        "evacuate-1",
        "mine",
        "alicloud",
        BATCH,
        OperationKind.DELETE_NODES,
        "plan-1",
        NOW - 25,
        targets=(RemovalTarget("batch-1", "i-1", evict=("jobs/a",)),),
        reason=DisruptionReason.INTERRUPTED.value,
        leaves_at=NOW + 95,
    ),
    OperationStatus(step="evict"),
)


def store_with(plan: Plan, *operations: Operation) -> Store:
    """One cluster with a spot group and this decision."""
    store = with_policy("clusterapi: {}")
    seen = overview()
    groups = tuple(
        msgspec.structs.replace(group, spot=SpotOverview(0.0, 2.4, 1800.0))
        if group.group == BATCH
        else group
        for group in seen.groups
    )
    store.gauge_rings.add(
        "mine", GaugePoint(NOW - 22, 20, 0), msgspec.structs.replace(seen, groups=groups), seen=0.0
    )
    lease = store.leases.acquire("mine", "test", 60.0)
    before = Memory()
    after = Memory(groups={BATCH: GroupMemory(target=5, risk=RISK)})
    store.memory.save("mine", before, after, operations, lease)
    store.leases.release(lease, passed_at=NOW - 22)
    decided(store, "mine", msgspec.structs.replace(plan, cluster="mine"), NOW - 22)
    return store


def due_plan() -> Plan:
    restarts = (Restart("web-4", WEB, "KernelDeadlock=True"),)
    return msgspec.structs.replace(
        busy_plan(), lifecycle=LIFECYCLE, notes=NOTES, restarts=restarts, unschedulable=()
    )


def cluster_of(store: Store) -> ClusterDetails:
    cluster = details(store, "mine", NOW, STRICT)
    assert cluster is not None
    return cluster


def needs_of(plan: Plan) -> list[Need]:
    cluster = cluster_of(store_with(plan))
    return needs(cluster, cluster.summary.status_at(NOW), NOW)


def test_a_group_whose_renewal_rests_needs_a_person_who_ends_the_rest() -> None:
    fields: dict[str, str | float] = {
        "group": WEB,
        "renewed": "drifted",
        "until": NOW + 60.0,
        "node": "web-5",
        "detail": "differs in the same",
    }
    rest = Reason.of(ReasonCode.RENEWAL_RESTS, **fields)
    (need,) = (
        need
        for need in needs_of(msgspec.structs.replace(due_plan(), notes=(rest,)))
        if need.note == "it rests"
    )
    assert "differs in the same" in need.text
    assert need.command.split()[:3] == ["outscaler", "retry", "mine"]
    assert need.command.split()[3:] == ["group", need.subject]


def test_forecast_of_a_late_node_needs_nobody_and_names_both_times() -> None:
    rows = {need.subject: need for need in healing(cluster_of(store_with(due_plan())), NOW)}
    assert rows["batch-1"].text == (
        "a new node for its pods may be ready only after its vendor takes it back; 1 min 35 s left,"
        " and a new node usually takes 3 min"
    )
    assert rows["batch-1"].anchor == "noreplacementintime"


def test_overdue_nodes_and_groups_too_sick_to_repair_need_a_person() -> None:
    rows = {need.subject: need for need in needs_of(due_plan())}
    assert {"web-3", "arm"} <= rows.keys()
    assert "batch-1" not in rows
    overdue = (
        "it is older than maxNodeAge and expiryGrace allow: disruption budget always is used up "
        "(limit 1)"
    )
    assert rows["web-3"].text.startswith(overdue)
    assert rows["web-3"].command == "outscaler explain node web-3 --cluster mine"
    assert rows["arm"].text.startswith("too many nodes of its group are sick to repair any")
    assert (rows["arm"].group, rows["arm"].note) == (ARM, "no repair")
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    anchors = {need.anchor for need in rows.values()} & {"nodeoverdue", "toomanyunhealthy"}
    assert [anchor for anchor in anchors if f'id="{anchor}"' not in runbook] == []
    assert len(anchors) == 2


def test_notes_on_many_nodes_are_counted_and_the_announced_ones_come_first() -> None:
    overdue = [
        Reason.of(ReasonCode.NODE_OVERDUE, node=f"web-{at}", since=NOW - 9e4) for at in range(7)
    ]
    announced = Reason.of(ReasonCode.INTERRUPTION_REPORTED, node="batch-1", until=NOW + 95)
    rows = needs_of(msgspec.structs.replace(due_plan(), notes=(*overdue, announced), lifecycle=()))
    about_nodes = [need for need in rows if need.page == "nodes"]
    assert about_nodes[0].subject == "batch-1"
    assert [need.subject for need in about_nodes[-2:]] == ["web-3", "3 more nodes"]


def test_reported_interruption_without_a_time_needs_a_person_too() -> None:
    note = Reason.of(ReasonCode.INTERRUPTION_REPORTED, node="web-1", signal="taint x")
    row = next(
        need
        for need in needs_of(msgspec.structs.replace(due_plan(), notes=(note,)))
        if need.subject == "web-1"
    )
    assert row.text == "its vendor takes it back, and nothing is done about it"
    assert row.anchor == "interruptionreported"


def test_evacuation_under_way_says_when_the_vendor_takes_the_node() -> None:
    page = words(get(store_with(due_plan(), EVACUATION), "/clusters/mine"))
    assert "batch-1 of batch is removed because of an interruption, 1 pod to move" in page
    assert "moving its pods its vendor takes it in 1 min 35 s" in page


def test_spot_nodes_are_a_figure_where_there_are_some() -> None:
    cluster = cluster_of(store_with(due_plan()))
    row = {"ready": 20, "most": 0, "leaving": 0, "pending": 0, "without_node": 0, "helped": 0}
    shown = {tile.title: tile for tile in tiles(cluster, row, NOW)}
    spot = shown["Spot nodes ready"]
    assert (spot.value, spot.note, spot.tone) == ("5", "1 notice of vendors", "warn")
    without = msgspec.structs.replace(
        cluster, groups=tuple(msgspec.structs.replace(group, spot=None) for group in cluster.groups)
    )
    titles = [tile.title for tile in tiles(without, row, NOW)]
    assert "Spot nodes ready" not in titles
    assert "Nodes ready" in titles


def test_group_page_shows_the_risk_its_price_and_until_when_the_group_is_avoided() -> None:
    page = words(get(store_with(due_plan()), "/clusters/mine/groups", group=BATCH))
    assert (
        "2 interruptions in 340 node hours, halved every 7 days; 2 a month is expected of a node"
        in page
    )
    assert "last notice 25 s ago" in page
    assert "Price of the risk" in page
    assert "Avoided until" in page
    other = words(get(store_with(due_plan()), "/clusters/mine/groups", group=ARM))
    assert "Price of the risk" not in other
    assert "Nodes that should go 2 sick" in other


def test_node_list_says_who_takes_a_node_and_why_it_should_go() -> None:
    page = words(get(store_with(due_plan()), "/clusters/mine/nodes"))
    assert "its vendor takes it back in 1 min 35 s" in page
    assert "cn-hangzhou-i · spot" in page
    assert "It is too old since" in page
    assert "It is sick, and is restarted now." in page


@pytest.mark.parametrize("path", ["/clusters/mine", "/clusters/mine/nodes"])
def test_names_of_announced_nodes_stay_text(path: str) -> None:
    note = Reason.of(ReasonCode.NODE_OVERDUE, node="<script>alert(1)</script>", since=NOW - 9e4)
    verdict = LifecycleVerdict("<script>alert(1)</script>", DisruptionReason.EXPIRED, NOW - 9e4)
    plan = msgspec.structs.replace(
        due_plan(), notes=(note,), lifecycle=(verdict,), unneeded=("<script>alert(1)</script>",)
    )
    page = text(get(store_with(plan), path))
    assert "<script>alert" not in page
    assert "alert(1)" in page
