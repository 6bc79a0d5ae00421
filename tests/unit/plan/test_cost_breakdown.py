"""The bill: every hour of a node's resource is in one row, and the rows are
what is paid (docs/bill.md).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import msgspec
import pytest

from chalicelib.model.cluster_bill import (
    MOST_ROWS,
    Bill,
    ClusterBill,
    CostParts,
    SpotCost,
    WorkloadCost,
)
from chalicelib.model.group import Instance, InstanceError, InstanceState, Pool
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.pod import Owner
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.model.snapshot import Controller
from chalicelib.plan import cost_bound
from chalicelib.plan.cost_breakdown import apportioned, cluster_bill
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import Spot
from tests.builders import NOW, ClusterBuilder, amounts, node

SIZES = {"s": ("2", "8Gi", 0.10), "m": ("4", "16Gi", 0.20), "l": ("8", "32Gi", 0.40)}


def billed(builder: ClusterBuilder, **policy: object) -> ClusterBill | None:
    made = Policy("test", **policy)  # type: ignore[arg-type]
    return cluster_bill(build_cluster_state(builder.snapshot(), made, Memory(), NOW))


def only(builder: ClusterBuilder, **policy: object) -> Bill:
    """The bill of a cluster with one currency."""
    cluster = billed(builder, **policy)
    assert cluster is not None
    (bill,) = cluster.bills
    return bill


def fixture(groups: str = "sml", **nodes: int) -> ClusterBuilder:
    """One cluster with the groups s, m and l, and so many nodes of them."""
    builder = ClusterBuilder()
    for name in groups:
        cpu, memory, price = SIZES[name]
        for at in range(nodes.get(name, 0)):
            builder.node(f"{name}-{at}", cpu, memory, group=name)
        builder.group(name, max=10, price=price, template=node(f"t-{name}", cpu, memory))
    return builder


def two_halves() -> ClusterBuilder:
    """A node of 0.20 of which half of each resource is requested."""
    return fixture("m", m=1).running("m-0", 4, "500m", "2Gi", owner="web", namespace="shop")


def checked(bill: Bill) -> Bill:
    """The bill, whose rows add up in every view."""
    parts = bill.parts
    assert sum(msgspec.structs.astuple(parts)[1:]) == parts.paid
    for view in (bill.groups, bill.pools):
        assert CostParts.total(row.parts for row in view) == parts
    for workloads in (bill.namespaces, bill.owners):
        assert sum(row.workload for row in workloads) == parts.workload
        assert sum(row.idle for row in workloads) <= parts.waste
    return bill


def test_price_is_divided_into_what_pods_request_and_what_is_free() -> None:
    bill = checked(only(two_halves()))
    assert bill.parts == CostParts(paid=200_000, workload=100_000, avoidable=100_000)
    assert bill.namespaces == (WorkloadCost("shop", 100_000, 100_000),)


def test_price_of_a_node_is_divided_by_the_rates_of_the_price_list() -> None:
    builder = fixture("m", m=1).running("m-0", 1, "4", owner="web")
    # A core is as dear as 8 GiB: 4 cores and 16 GiB are 4 and 2 parts.
    assert checked(only(builder)).parts.workload == 133_333
    rates = NodePrices(cpu=0.02, memory=0.02)  # 0.08 for the cores, 0.32 for the memory
    assert checked(only(builder, prices=rates)).parts == CostParts(
        paid=400_000, workload=80_000, avoidable=320_000
    )


def test_rows_are_what_is_paid_to_the_millionth() -> None:
    """300 clusters of nodes that do not divide evenly, drawn by lot."""
    checks = 0
    for seed in range(300):
        lot = random.Random(seed)
        builder = ClusterBuilder()
        for group in range(lot.randint(1, 4)):
            for at in range(lot.randint(0, 4)):
                cpu, memory = lot.choice(("1", "3", "7", "0")), lot.choice(("3Gi", "7Gi", "0"))
                taints = [Taint(TO_BE_DELETED, "NoSchedule")] if lot.random() < 0.2 else []
                extra = amounts(gpu=1) if lot.random() < 0.2 else {}
                builder.node(
                    f"{group}-{at}", cpu, memory, group=f"g{group}", taints=taints, extra=extra
                )
                for _ in range(lot.randint(0, 4)):
                    builder.running(
                        f"{group}-{at}",
                        lot.randint(1, 3),
                        lot.choice(("333m", "1", "5")),
                        lot.choice(("100Mi", "3Gi", 0)),
                        owner=f"o{lot.randint(0, 5)}",
                        namespace=f"n{lot.randint(0, 3)}",
                        kind=lot.choice(("ReplicaSet", "DaemonSet")),
                    )
            builder.group(
                f"g{group}", min=lot.randint(0, 3), price=lot.choice((0.0, 0.1, 0.333333, 1.7))
            )
        bill = billed(builder, headroom=(Headroom("h", pods=2, cpu=300, memory=2**28),))
        for part in bill.bills if bill is not None else ():
            checked(part)
            checks += 1
    assert checks > 250


def test_order_of_the_input_does_not_matter() -> None:
    builder = fixture("sm", s=2, m=3)
    for at in range(3):
        builder.running(f"m-{at}", 2, "333m", "1Gi", owner=f"o{at}", namespace=f"n{at}")
    first = billed(builder)
    builder.nodes.reverse()
    builder.pods.reverse()
    builder.groups.reverse()
    assert billed(builder) == first


def test_daemonsets_and_the_system_have_rows_of_their_own() -> None:
    builder = ClusterBuilder()
    builder.node("n", "4", "16Gi", group="g", allocatable=amounts(cpu="3", memory="12Gi", pods=110))
    builder.group("g", price=0.4)
    builder.running("n", 1, "1", "4Gi", owner="agent", kind="DaemonSet", namespace="kube-system")
    builder.running(
        "n", 1, "1", "4Gi", owner="proxy", kind="Node", namespace="kube-system", mirror=True
    )
    bill = checked(only(builder))
    assert bill.parts == CostParts(
        paid=400_000, daemonsets=200_000, overhead=100_000, avoidable=100_000
    )
    assert bill.namespaces == ()


# -- pitfalls


def _overcommitted() -> ClusterBuilder:
    return (
        fixture("m", m=1)
        .running("m-0", 1, "8", "8Gi", namespace="a")
        .running("m-0", 1, "8", "8Gi", namespace="b")
    )


def _draining() -> ClusterBuilder:
    builder = fixture("", m=0)
    builder.node("m-0", "4", "16Gi", group="m", taints=[Taint(TO_BE_DELETED, "NoSchedule")])
    return builder.group("m", price=0.2).running("m-0", 1, "2", "8Gi")


def _without_node(*instances: Instance) -> Callable[[], ClusterBuilder]:
    def build() -> ClusterBuilder:
        builder = fixture("m", m=1)
        group = builder.groups[0]
        builder.groups[0] = msgspec.structs.replace(group, instances=(*group.instances, *instances))
        return builder

    return build


PITFALLS: dict[str, tuple[Callable[[], ClusterBuilder], CostParts, int]] = {
    "requests above what there is": (_overcommitted, CostParts(paid=200_000, workload=200_000), 1),
    "a node that is being drained": (
        _draining,
        CostParts(paid=200_000, workload=100_000, unusable=100_000),
        0,
    ),
    "an instance that boots": (
        _without_node(Instance("i-1", InstanceState.CREATING)),
        CostParts(paid=400_000, avoidable=200_000, unusable=200_000),
        0,
    ),
    "an instance that is being deleted": (
        _without_node(Instance("i-1", InstanceState.DELETING)),
        CostParts(paid=400_000, avoidable=200_000, unusable=200_000),
        0,
    ),
    "an instance that could not be created": (
        _without_node(Instance("i-1", InstanceState.CREATING, InstanceError("OutOfStock"))),
        CostParts(paid=200_000, avoidable=200_000),
        0,
    ),
    "an instance that the vendor lists twice": (
        _without_node(Instance("i-1"), Instance("i-1")),
        CostParts(paid=400_000, avoidable=200_000, unusable=200_000),
        0,
    ),
    "a node without capacity": (
        lambda: ClusterBuilder().node("n", "0", "0", group="g").group("g", price=0.1),
        CostParts(paid=100_000, unusable=100_000),
        0,
    ),
}


@pytest.mark.parametrize("name", PITFALLS)
def test_pitfalls_of_a_bill(name: str) -> None:
    build, parts, overcommitted = PITFALLS[name]
    bill = checked(only(build()))
    assert (bill.parts, bill.overcommitted) == (parts, overcommitted)


def test_requests_above_what_there_is_are_shared_by_their_size() -> None:
    bill = only(_overcommitted())
    assert [(row.name, row.workload) for row in bill.namespaces] == [("a", 100_000), ("b", 100_000)]


def test_unpriced_machines_are_counted_and_in_no_amount() -> None:
    builder = two_halves()
    builder.node("x-0", "64", "256Gi", group="x").group("x", target=2)
    builder.groups[-1] = msgspec.structs.replace(
        builder.groups[-1], instances=(*builder.groups[-1].instances, Instance("i-9"))
    )
    bill = billed(builder)
    assert bill is not None
    assert (bill.unpriced, bill.bills[0].parts.paid) == (2, 200_000)


def test_cluster_without_any_price_has_no_bill() -> None:
    assert billed(ClusterBuilder().node("n", group="g").group("g")) is None


def test_currencies_stay_apart() -> None:
    builder = fixture("sm", s=1, m=2)
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], currency="CHF")
    builder.groups[1] = msgspec.structs.replace(builder.groups[1], currency="EUR")
    cluster = billed(builder)
    assert cluster is not None
    assert [(bill.currency, bill.parts.paid, bill.bound) for bill in cluster.bills] == [
        ("EUR", 400_000, -1),
        ("CHF", 100_000, -1),
    ]


def test_price_list_without_a_currency_has_that_of_the_provider() -> None:
    builder = fixture("m", m=1)
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], currency="EUR")
    assert only(builder, prices=NodePrices(cpu=0.1)).currency == "EUR"
    assert only(builder, prices=NodePrices(cpu=0.1, currency="USD")).currency == "USD"


# -- rows of names


def test_owner_is_the_top_level_controller_where_it_is_known() -> None:
    builder = fixture("m", m=1).running("m-0", 1, "1", "4Gi", owner="web-5d", namespace="shop")
    builder.running("m-0", 1, "1", "4Gi", owner="job-1", kind="Job", namespace="shop")
    builder.running("m-0", 1, "1", "4Gi", owner=None, namespace="shop")
    builder.controllers.append(
        Controller(
            "ReplicaSet", "shop", "web-5d", owner=Owner("Deployment", "web", "uid-web", "apps/v1")
        )
    )
    names = [row.name for row in checked(only(builder)).owners]
    assert names == ["shop/(no controller)", "shop/Deployment/web", "shop/Job/job-1"]


def test_names_beyond_the_first_are_one_row() -> None:
    builder = ClusterBuilder().node("n", "100", "400Gi", group="g").group("g", price=1.0)
    for at in range(MOST_ROWS + 3):
        builder.running("n", 1, "1", "4Gi", owner=f"o{at:03}", namespace=f"n{at:03}")
    bill = checked(only(builder))
    assert (len(bill.namespaces), bill.namespaces[-1].name, bill.namespaces[-1].names) == (
        MOST_ROWS + 1,
        "",
        3,
    )
    assert bill.namespaces[-1].workload == 30_000


def test_idle_of_a_namespace_is_by_what_it_requests_of_each_resource() -> None:
    # Half of the cores is free, of which `cores` has all the requests; no memory is free.
    builder = ClusterBuilder().node("n", "8", "64Gi", group="g").group("g", price=1.6)
    builder.running("n", 1, "4", namespace="cores", owner="a").running(
        "n", 1, 0, "64Gi", namespace="bytes", owner="b"
    )
    rows = {row.name: (row.workload, row.idle) for row in checked(only(builder)).namespaces}
    assert rows == {"cores": (400_000, 400_000), "bytes": (800_000, 0)}


# -- free room that is wanted


def wanted(builder: ClusterBuilder, **policy: object) -> int:
    return checked(only(builder, **policy)).parts.wanted


def test_minimum_size_of_a_group_is_wanted() -> None:
    builder = fixture("m", m=5)
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], min=3)
    assert wanted(builder) == 600_000
    builder.running("m-0", 1, "4", "16Gi")  # a full node is one of the three
    assert wanted(builder) == 400_000


def test_minimum_size_of_a_pool_is_wanted_of_all_its_groups() -> None:
    builder = fixture("sm", s=2, m=1)
    pool = Pool("p", min=3)
    builder.groups = [msgspec.structs.replace(group, pool=pool) for group in builder.groups]
    bill = checked(only(builder))
    assert (bill.parts.wanted, [row.name for row in bill.pools]) == (400_000, ["p"])


def test_headroom_is_wanted_as_far_as_there_is_room() -> None:
    entry = Headroom("h", pods=2, cpu=1000, memory=4 * 2**30)
    assert wanted(fixture("m", m=1), headroom=(entry,)) == 100_000
    assert wanted(fixture("m", m=1), headroom=(msgspec.structs.replace(entry, pods=9),)) == 200_000
    assert (
        wanted(fixture("m", m=1), headroom=(msgspec.structs.replace(entry, groups=("other",)),))
        == 0
    )


def test_rule_wants_room_above_the_requests() -> None:
    # 2 of 4 cores are requested; below 80% of allocatable they need 2.5: half
    # a core of 0.20 · 4/6 / 4.
    rule = Rule("busy", ("m",), metric=Metric.CPU, above=80)
    assert wanted(two_halves(), rules=(rule,)) == 16_667


def test_room_that_serves_a_minimum_size_and_headroom_is_wanted_once() -> None:
    builder = fixture("m", m=2)
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], min=1)
    assert wanted(builder, headroom=(Headroom("h", pods=2, cpu=1000, memory=4 * 2**30),)) == 200_000


# -- the lower bound


def test_lower_bound_is_that_of_split_nodes_and_pods() -> None:
    """10 cpu and 40 GiB in pods of half a core: 2 m and 1 s are 0.50, three m are 0.60."""
    builder = fixture("sml", m=3)
    for at, pods in enumerate((8, 8, 4)):
        builder.running(f"m-{at}", pods, "500m", "2Gi")
    bill = only(builder)
    assert (bill.parts.paid, bill.bound) == (600_000, 500_000)
    assert bill.efficiency == pytest.approx(0.833, abs=0.001)


def test_lower_bound_keeps_pods_on_nodes_that_they_fit() -> None:
    builder = ClusterBuilder()
    builder.node("d-0", "4", "16Gi", group="dear", labels={"kind": "dear"}).node(
        "c-0", "4", "16Gi", group="cheap"
    )
    builder.group("dear", price=1.0).group("cheap", price=0.1)
    builder.running("d-0", 1, "2", "8Gi", node_selector={"kind": "dear"}).running(
        "c-0", 1, "2", "8Gi"
    )
    # half a dear node for the one pod, and its other half for the other
    assert only(builder).bound == 550_000


def test_lower_bound_counts_minimum_sizes_daemonsets_and_nodes_that_stay() -> None:
    builder = fixture("m", m=2)
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], min=1)
    assert only(builder).bound == 200_000
    builder.node("alone", "4", "16Gi", labels={"node.kubernetes.io/instance-type": "big"})
    prices = NodePrices(instance_types={"big": 0.5})
    assert only(builder, prices=prices).bound == 700_000
    # A pod of the group may use the room of the node that stays.
    assert only(builder.running("m-0", 1, "4", "16Gi"), prices=prices).bound == 700_000


def test_lower_bound_without_pods_is_the_price_of_what_stays() -> None:
    assert only(fixture("m", m=1)).bound == 0


def test_lower_bound_is_never_above_what_is_paid() -> None:
    builder = fixture("m", m=1).running("m-0", 4, "2", "8Gi")  # overcommitted
    assert only(builder).bound == 200_000


def test_lower_bound_is_unknown_without_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    bill = only(two_halves())
    assert (bill.bound, bill.efficiency) == (-1, None)


def test_lower_bound_of_a_large_programme_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_bound, "_MOST_PAIRS", 0)
    assert only(two_halves()).bound == -1


@pytest.mark.parametrize(
    ("total", "shares", "whole"),
    [
        (10, (3.3, 3.3, 3.4), [3, 3, 4]),
        (2, (0.5, 0.5, 1.0), [1, 0, 1]),
        (0, (), []),
        (3, (2.0, 2.0), [2, 1]),
    ],
)
def test_rounded_shares_add_up(total: int, shares: tuple[float, ...], whole: list[int]) -> None:
    assert apportioned(total, shares) == whole


# -- spot

TYPE = "node.kubernetes.io/instance-type"


def on_spot(price: float = 0.06, *, spot_type: str = "m", demand: float = 0.20) -> ClusterBuilder:
    """Two nodes of a spot group and one on demand."""
    builder = ClusterBuilder()
    for name, group, kind in (
        ("s-0", "sp", spot_type),
        ("s-1", "sp", spot_type),
        ("o-0", "od", "m"),
    ):
        builder.node(name, "4", "16Gi", group=group, labels={TYPE: kind})
    builder.group(
        "sp", spot=True, price=price, template=node("t-s", "4", "16Gi", labels={TYPE: spot_type})
    )
    return builder.group("od", price=demand, template=node("t-o", "4", "16Gi", labels={TYPE: "m"}))


def fallback_bill(builder: ClusterBuilder, **policy: object) -> SpotCost | None:
    """The spot line, with node o-0 bought on demand in place of spot."""
    made = Policy("test", spot=Spot(), **policy)  # type: ignore[arg-type]
    memory = Memory(nodes={"o-0": NodeMemory(fallback=True)})
    cluster = cluster_bill(build_cluster_state(builder.snapshot(), made, memory, NOW))
    assert cluster is not None
    return cluster.bills[0].spot


def test_spot_saves_what_the_same_type_costs_more_on_demand() -> None:
    assert checked(only(on_spot(), spot=Spot())).spot == SpotCost(2, 2, 280_000)
    assert only(on_spot()).spot == SpotCost(2, 2, 280_000)


def test_listed_prices_of_both_kinds_are_compared() -> None:
    prices = NodePrices(instance_types={"m": 0.30}, spot={"m": 0.05})
    assert only(on_spot(0.0, demand=0.0), spot=Spot(), prices=prices).spot == SpotCost(
        2, 2, 500_000
    )


def test_node_whose_price_is_known_in_one_way_only_is_not_compared() -> None:
    assert only(on_spot(spot_type="other"), spot=Spot()).spot == SpotCost(2)
    as_on_demand = NodePrices(instance_types={"m": 0.30})
    assert only(on_spot(0.0), spot=Spot(), prices=as_on_demand).spot == SpotCost(2)


def test_fallback_costs_more_than_the_cheapest_spot_group_of_its_type() -> None:
    assert fallback_bill(on_spot()) == SpotCost(2, 2, 280_000, 1, 140_000)
    assert fallback_bill(on_spot(spot_type="other")) == SpotCost(2)


def test_cluster_without_spot_groups_has_no_line_about_spot() -> None:
    assert only(two_halves(), spot=Spot()).spot is None


def test_group_that_only_the_policy_calls_spot_is_billed_by_its_spot_price() -> None:
    builder = on_spot(0.0)
    builder.groups[0] = msgspec.structs.replace(builder.groups[0], spot=False)
    prices = NodePrices(instance_types={"m": 0.30}, spot={"m": 0.05})
    bill = only(builder, spot=Spot(groups=("sp",)), prices=prices)
    assert next(row for row in bill.groups if row.name == "sp").parts.paid == 100_000
    assert bill.spot == SpotCost(2, 2, 500_000)
