"""What a pass records of groups and nodes for people, and the point of the charts."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.journal.pass_overview import completed, pass_overview
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import GroupMemory, InterruptionRisk, Memory
from chalicelib.model.node import Node
from chalicelib.model.overview import (
    MOST_NODES,
    ClusterOverview,
    GroupOverview,
    NodeOverview,
    SpotOverview,
)
from chalicelib.model.plan import GroupVerdict, Health, Plan, Removal, ScaleUp, UnschedulablePods
from chalicelib.plan.cost_breakdown import cluster_bill
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import Spot
from chalicelib.store.gauge_ring import GaugePoint
from tests.builders import NOW, ClusterBuilder, node

TYPE = "node.kubernetes.io/instance-type"
GIB = 2**30


def cluster() -> ClusterBuilder:
    builder = ClusterBuilder()
    builder.node(
        "w-1", "4", "8Gi", group="workers", zone="z-1", labels={TYPE: "large"}, created=NOW - 60
    )
    builder.node(
        "w-2", "4", "8Gi", group="workers", zone="z-2", labels={TYPE: "large"}, ready=False
    )
    builder.node("alone", "2", "4Gi")
    builder.group("workers", target=3, price=0.5, aliases=("w", "pool/w"))
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], name="Workers")
    builder.group("empty", template=node("t", "8", "16Gi", zone="z-3", labels={TYPE: "huge"}))
    builder.running("w-1", 2, "1", "1Gi")
    builder.running("w-2", 1, "1", "1Gi")
    builder.running("alone", 1, "1", "1Gi", kind="DaemonSet", owner="agent")
    builder.pending(1, "1")
    return builder


def plan(**changes: object) -> Plan:
    groups = (GroupVerdict("workers", "test", 0, 9, 3), GroupVerdict("empty", "test", 0, 9, 0))
    made = Plan(id="p", cluster="test", at=NOW, groups=groups, health=Health(ready=2, registered=3))
    return msgspec.structs.replace(made, **changes)


def both(
    builder: ClusterBuilder, prices: NodePrices | None = None, decision: Plan | None = None
) -> tuple[ClusterOverview, GaugePoint]:
    state = build_cluster_state(builder.snapshot(), Policy("test", prices=prices), Memory(), NOW)
    return pass_overview(decision or plan(), state, cluster_bill(state))


def seen(builder: ClusterBuilder, prices: NodePrices | None = None) -> ClusterOverview:
    return both(builder, prices)[0]


def test_group_has_its_name_its_machine_and_the_use_of_its_ready_nodes() -> None:
    workers, empty = seen(cluster()).groups
    assert workers == GroupOverview(
        "workers",
        "Workers",
        "test",
        "z-1,z-2",
        "large",
        0.5,
        4.0,
        2.0,
        8.0 * GIB,
        2.0 * GIB,
        ("w", "pool/w"),
        1,
        0,
        100,
        price_source="provider",
        price_date="2027-01-15",
    )
    missing = "its provider names no price, and no spec.prices are given"
    assert empty == GroupOverview("empty", "", "test", "z-3", "huge", max=100, no_price=missing)


def test_node_has_its_group_its_age_and_what_its_pods_request() -> None:
    alone, first, second = seen(cluster()).nodes
    assert alone == NodeOverview("alone", -1, "", "", alone.created, 50, 25, 1)
    assert first == NodeOverview("w-1", 0, "z-1", "large", NOW - 60, 50, 25, 2)
    assert (second.name, second.group, second.pods) == ("w-2", 0, 1)


def test_price_of_the_policy_comes_before_the_providers() -> None:
    workers, empty = seen(cluster(), NodePrices({"large": 0.7, "huge": 2.0})).groups
    assert (workers.price, empty.price) == (0.7, 2.0)


def test_price_has_its_currency_its_source_and_its_date() -> None:
    dated = NodePrices({"huge": 2.0}, currency="EUR", as_of="2026-11-01")
    builder = cluster()
    builder.groups[0] = msgspec.structs.replace(
        builder.groups[0], currency="EUR", priced_at=1_795_737_600.0
    )
    overview, point = both(builder, dated)
    workers, empty = overview.groups
    assert (workers.price, workers.currency, workers.price_source, workers.price_date) == (
        0.5,
        "EUR",
        "provider",
        "2026-11-27",
    )
    assert (empty.price, empty.currency, empty.price_source, empty.price_date) == (
        2.0,
        "EUR",
        "policy",
        "2026-11-01",
    )
    assert (overview.currency, point.cost) == ("EUR", 1.0)


def test_price_in_another_currency_is_shown_and_not_added() -> None:
    builder = cluster()
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], currency="CNY")
    overview, point = both(builder, NodePrices({"huge": 2.0}, currency="EUR"))
    workers = overview.groups[0]
    assert (workers.price, workers.currency) == (0.5, "CNY")
    assert workers.no_price == "its provider's price is in CNY, and spec.prices are in EUR"
    assert (overview.currency, point.cost) == ("EUR", -1.0), "no node has a price that can be added"


def test_node_without_amounts_has_unknown_shares() -> None:
    builder = ClusterBuilder()
    builder.nodes.append(Node("bare", {}, {}))
    (bare,) = seen(builder).nodes
    assert (bare.cpu, bare.memory, bare.pods) == (-1, -1, 0)


def test_point_has_ready_and_wanted_nodes_use_and_cost() -> None:
    decision = plan(
        scale_ups=(ScaleUp("empty", "test", 0, 2, 9, ("a/b", "a/c")),),
        removals=(Removal("w-2", "workers", "empty"),),
        unschedulable=(UnschedulablePods(("a/d",)),),
    )
    _, point = both(cluster(), decision=decision)
    assert (point.at, point.nodes, point.pending) == (NOW, 2, 3)
    assert point.wanted == 3 - 1 + 2 + 1, "targets, a removal, a growth, and a node in no group"
    assert (point.cpu, point.memory) == (50, 25), "of the two ready nodes"
    assert point.cost == 1.0, "two nodes of known price"


def test_cost_is_unknown_where_no_price_is() -> None:
    builder = ClusterBuilder().node("n", group="g").group("g")
    assert both(builder)[1].cost == -1.0
    assert both(builder, NodePrices(cpu=0.1))[1].cost == pytest.approx(0.1)


def test_overview_is_bounded_and_says_how_many_nodes_are_left_out() -> None:
    builder = ClusterBuilder()
    builder.nodes = [node(f"n-{at:05}") for at in range(MOST_NODES + 7)][::-1]
    overview = seen(builder)
    assert (len(overview.nodes), overview.more_nodes) == (MOST_NODES, 7)
    assert overview.nodes[0].name == "n-00000"


def test_long_names_of_a_vendor_are_cut() -> None:
    builder = ClusterBuilder()
    builder.groups.append(NodeGroup("g", "test", name="x" * 9999, aliases=("y" * 9999,) * 99))
    (group,) = seen(builder).groups
    assert (len(group.name), len(group.aliases), len(group.aliases[0])) == (200, 6, 200)


def test_groups_that_were_not_read_stay_as_they_were() -> None:
    before = seen(cluster())
    builder = cluster()
    builder.groups = [NodeGroup("empty", "test", error="busy")]
    after = completed(seen(builder), before, ["test"])
    assert [group.group for group in after.groups] == ["empty", "workers"]
    assert (after.groups[0].zone, after.groups[0].machine) == ("z-3", "huge")
    assert after.groups[1] == before.groups[0]
    assert [member.group for member in after.nodes] == [-1, 1, 1]
    gone = completed(seen(builder), before, [])
    assert [group.group for group in gone.groups] == ["empty"], (
        "its provider was read, and does not have it"
    )
    assert [member.group for member in gone.nodes] == [-1, -1, -1]


def test_empty_cluster_has_an_empty_overview_and_a_point() -> None:
    overview, point = both(ClusterBuilder(), decision=Plan(id="p", cluster="test", at=NOW))
    assert (overview.groups, overview.nodes, overview.more_nodes) == ((), (), 0)
    assert point == GaugePoint(NOW, 0, 0, 0, -1, -1, -1.0)


def spot_groups_of(
    policy: Policy, risk: InterruptionRisk | None = None
) -> tuple[GroupOverview, ...]:
    builder = cluster()
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], spot=True, interruption_rate=0.1)
    memory = Memory(groups={"workers": GroupMemory(risk=risk)})
    state = build_cluster_state(builder.snapshot(), policy, memory, NOW)
    return pass_overview(plan(), state, None)[0].groups


def test_spot_group_has_the_vendors_rate_and_what_an_interruption_costs() -> None:
    workers, empty = spot_groups_of(Policy("test", spot=Spot(avoid_after_interruption=600.0)))
    # the average price 0.5, divided by the aggressiveness 2, for 24 hours
    assert workers.spot == SpotOverview(0.1, 6.0, 600.0)
    assert empty.spot is None
    assert spot_groups_of(Policy("test"))[0].spot == SpotOverview(0.1)


def test_overview_of_a_spot_group_stays_the_same_while_only_its_hours_grow() -> None:
    policy = Policy("test", spot=Spot())
    first = spot_groups_of(policy, InterruptionRisk(hours=10.0, counted_at=NOW - 3600, nodes=2))
    assert first == spot_groups_of(
        policy, InterruptionRisk(hours=80.0, counted_at=NOW - 60, nodes=2)
    )
