"""Managed pools in the planner: the cheapest machines, within limits, weights and spread."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.operation import OperationState
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Volume
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.model.storage import Claim, PersistentVolume, Storage, StorageClass
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    Market,
    MaxShare,
    PoolLimits,
    PoolMode,
    Requirements,
)
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import Spot
from chalicelib.reasons.no_place import no_place
from tests.builders import NOW, ZONE, even, having, near
from tests.unit.plan.consolidation_fixture import policy
from tests.unit.plan.managed_offers import GENERAL, GIB, OfferedCluster, entries, entry, title


def pool(**fields: Any) -> ManagedPool:
    return msgspec.structs.replace(GENERAL, **fields)


def limits(**fields: Any) -> PoolLimits:
    return PoolLimits(**fields)


def test_pool_1_eight_equal_pods_get_two_nodes_of_one_new_group() -> None:
    case = OfferedCluster().waiting(8, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 2}
    assert case.price(plan) == 0.38
    (operation,) = plan.operations
    assert (operation.spec.from_size, operation.spec.to_size) == (0, 2)
    assert operation.spec.choice is not None
    assert operation.spec.choice.instance_type == "s4"


CHEAPEST = {
    "POOL_2": (9, 0, 0, {"s4": 2, "s2": 1}, 0.48),
    "POOL_4 C": (0, 8, 0, {"c4": 2}, 0.30),
    "POOL_4 M": (0, 0, 4, {"r4": 1}, 0.24),
    "POOL_4 P and M": (4, 0, 4, {"s4": 1, "r4": 1}, 0.43),
    "POOL_5": (4, 8, 4, {"r4": 1, "s4": 1, "c4": 2}, 0.73),
}


@pytest.mark.parametrize(
    ("small", "lean", "large", "expected", "price"), CHEAPEST.values(), ids=CHEAPEST
)
def test_pool_2_and_4_pods_get_the_cheapest_mix_of_machine_types(
    small: int, lean: int, large: int, expected: dict[str, int], price: float
) -> None:
    case = OfferedCluster().waiting(small, 1, 4).waiting(lean, 1, 1).waiting(large, 1, 8)
    plan, _ = case.decided()
    assert case.bought(plan) == expected
    assert case.price(plan) == price


def test_rates_of_the_policy_do_not_hide_the_prices_of_the_catalogue() -> None:
    case = OfferedCluster().waiting(8, 1, 4)
    case.policy["prices"] = NodePrices(cpu=1.0, currency="EUR")
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 2}


def test_listed_type_costs_what_the_policy_says() -> None:
    case = OfferedCluster().waiting(8, 1, 1)
    case.policy["prices"] = NodePrices(instance_types={"c4": 0.5}, currency="EUR")
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 2}


def test_pool_3_one_group_is_cheapest_where_only_one_may_exist() -> None:
    case = OfferedCluster(pool(max_pools=1)).waiting(9, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s2": 5}


def test_pool_5_two_groups_at_most_give_another_mix() -> None:
    case = OfferedCluster(pool(max_pools=2)).waiting(4, 1, 4).waiting(8, 1, 1).waiting(4, 1, 8)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 4}
    assert case.price(plan) == 0.76


@pytest.mark.parametrize(("price", "expected"), [(0.19, {"s4": 2}), (0.198, {"s2": 4})])
def test_pool_6_new_group_must_be_cheaper_by_the_opening_factor(
    price: float, expected: dict[str, int]
) -> None:
    types = entry("s2"), entry("s4", price=price)
    case = OfferedCluster(pool(opening_factor=0.02), catalogue=types).opened("s2").waiting(8, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == expected


@pytest.mark.parametrize("limit", [limits(cpu=6), limits(cost_per_hour=0.30)])
def test_pool_7_limits_of_a_declaration_are_constraints_of_the_mix(limit: PoolLimits) -> None:
    case = OfferedCluster(pool(limits=limit)).waiting(8, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 1, "s2": 1}
    assert case.price(plan) == 0.29
    assert sum(len(item.pods) for item in plan.unschedulable) == 2


def test_pool_12_more_than_the_stock_of_a_type_is_of_another() -> None:
    types = entry("a", price=0.10, stock=2), entry("b", price=0.12, stock=50)
    case = OfferedCluster(catalogue=types).waiting(12, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"a": 2, "b": 1}
    assert case.price(plan) == 0.32


def test_pool_13_equal_machines_come_where_the_declaration_has_fewest_nodes() -> None:
    case = OfferedCluster(catalogue=entries("z1", "z2"))
    case.opened("s4", 3).opened("s4", 1, zone="z2")
    plan, _ = case.waiting(24, 1, 4).decided()
    assert case.bought(plan) == {"s4/z2": 2}


def test_pool_14_pods_bound_to_a_zone_get_machines_there() -> None:
    case = OfferedCluster(catalogue=entries("z1", "z2"))
    plan, _ = case.waiting(8, 1, 4, node_selector={ZONE: "z2"}).decided()
    assert case.bought(plan) == {"s4/z2": 2}


BOTH = Requirements(markets=(Market.ON_DEMAND, Market.SPOT))


def spot_types(**stock: int) -> tuple[Any, ...]:
    return tuple(
        msgspec.structs.replace(
            item,
            spot_price=None if item.name == "s8" else round((item.price or 0) * 0.4, 4),
            spot_stock=stock.get(item.name),
        )
        for item in entries("z1", "z2")
    )


def test_pool_15_pods_get_machines_in_the_zone_of_their_volume() -> None:
    case = OfferedCluster(catalogue=(*entries("z1"), *entries("z2", price=0.3)))
    driver = "diskplugin.csi.alibabacloud.com"
    in_zone = NodeTerm((Requirement(f"topology.{driver}/zone", "In", ("z2",)),))
    volume = PersistentVolume("pv", claim="default/data", node_terms=(in_zone,), driver=driver)
    claim = Claim("default", "data", volume="pv", storage_class="disk")
    classes = (StorageClass("disk", driver),)
    case.more["storage"] = Storage(claims=(claim,), volumes=(volume,), classes=classes)
    case.waiting(1, 1, 4, volumes=(Volume("data", "persistentVolumeClaim", "data"),))
    plan, _ = case.decided()
    assert [name.partition("/")[2] for name in case.bought(plan)] == ["z2"]


@pytest.mark.parametrize(("price", "name"), [(0.20, "s4"), (0.19, "s4"), (0.18, "x")])
def test_pool_9_of_machines_alike_the_cheaper_one_is_bought(price: float, name: str) -> None:
    types = entry("x", cores=4, memory=16 * GIB, price=price), entry("s4")
    plan, _ = OfferedCluster(catalogue=types).waiting(4, 1, 4).decided()
    assert len(plan.scale_ups) == 1
    assert plan.scale_ups[0].price == min(price, 0.19)
    if price != 0.19:
        choice = plan.scale_ups[0].choice
        assert choice is not None
        assert choice.instance_type == name


def test_pool_10_cheap_large_machine_beyond_a_limit_does_not_hide_a_small_one() -> None:
    types = entry("x", cores=8, memory=32 * GIB, price=0.19), entry("s4")
    limited = pool(limits=PoolLimits(cpu=4))
    case = OfferedCluster(limited, catalogue=types).waiting(4, 1, 4)
    assert case.bought(case.decided()[0]) == {"s4": 1}


def test_pool_17_spot_machines_come_one_in_each_zone() -> None:
    case = OfferedCluster(pool(requirements=BOTH), catalogue=spot_types()).waiting(8, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4/z1/spot": 1, "s4/z2/spot": 1}
    assert case.price(plan) == 0.152


def test_pool_18_a_spot_type_that_is_sold_out_is_replaced_by_the_next() -> None:
    case = OfferedCluster(pool(requirements=BOTH), catalogue=spot_types(s4=0)).waiting(8, 1, 4)
    plan, _ = case.decided()
    assert case.price(plan) == 0.16
    assert {name.partition("/")[0] for name in case.bought(plan)} == {"s2"}


def test_pool_19_pods_that_ask_for_a_market_get_it() -> None:
    case = OfferedCluster(pool(requirements=BOTH), catalogue=spot_types())
    case.waiting(8, 1, 4, node_selector={"outscaler.dev/market": "on-demand"})
    plan, _ = case.decided()
    assert case.price(plan) == 0.38
    assert {name.partition("/")[0] for name in case.bought(plan)} == {"s4"}


def test_pool_20_the_on_demand_base_is_small_and_the_rest_is_spot() -> None:
    case = OfferedCluster(pool(requirements=BOTH), catalogue=spot_types()).waiting(8, 1, 4)
    case.policy["spot"] = Spot(on_demand_base=1)
    plan, _ = case.decided()
    assert case.price(plan) == 0.216
    on_demand = [name for name in case.bought(plan) if not name.endswith("/spot")]
    assert [name.partition("/")[0] for name in on_demand] == ["s2"]


def test_pool_8_disks_change_which_machines_are_cheapest() -> None:
    types = (
        entry("medium", cores=2, memory=4 * GIB, price=0.04666),
        entry("large", cores=4, memory=8 * GIB, price=0.09333),
    )
    bought = []
    for disk in (0, 50):
        case = OfferedCluster(pool(disk=disk), catalogue=types).waiting(4, 1, 2)
        case.disk_price = 0.00014
        bought.append(case.bought(case.decided()[0]))
    assert bought == [{"medium": 2}, {"large": 1}]


def test_pool_21_nodes_are_spread_over_as_many_types_as_asked() -> None:
    case = OfferedCluster(pool(min_types=2)).waiting(16, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 3, "s2": 2}
    assert case.price(plan) == 0.77


def test_pool_21_spread_that_cannot_be_reached_is_said_and_pods_get_nodes() -> None:
    case = OfferedCluster(pool(min_types=2), catalogue=(entry("s4"),)).waiting(16, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 4}
    assert "SpreadNotReached" in {note.code.value for note in plan.notes}


@pytest.mark.parametrize(("strict", "expected"), [(False, {"s4": 4}), (True, {"s8": 1})])
def test_pool_22_strict_spread_rather_leaves_pods_waiting(
    strict: bool, expected: dict[str, int]
) -> None:
    shares = pool(max_share=MaxShare(zone=0.5), strict=strict)
    types = (*entries("z1"), *entries("z2", stock=0))
    case = OfferedCluster(shares, catalogue=types).waiting(16, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == expected
    assert ("SpreadNotReached" in {note.code.value for note in plan.notes}) is not strict


@pytest.mark.parametrize(("cpu", "expected"), [(None, {"s8": 1}), (0, {"s4": 2})])
def test_pool_23_higher_weight_goes_first_whatever_it_costs(
    cpu: int | None, expected: dict[str, int]
) -> None:
    first = ManagedPool(
        "a",
        "test",
        opening_factor=0.0,
        weight=10,
        requirements=Requirements(types=("s8",)),
        limits=PoolLimits(cpu=cpu),
    )
    case = OfferedCluster(first, msgspec.structs.replace(GENERAL, name="b")).waiting(8, 1, 4)
    plan, _ = case.decided()
    assert case.bought(plan) == expected


def test_pool_24_hand_made_groups_and_candidates_are_one_problem() -> None:
    case = OfferedCluster()
    own, candidates, _ = case.groups_of_pools()
    assert not own
    template = next(group.template for group in candidates if group.price == 0.19)
    case.group("h", max=1, template=template, price=0.18, currency="EUR")
    plan, _ = case.waiting(8, 1, 4).decided()
    assert case.bought(plan) == {"h": 1, "s4": 1}
    assert case.price(plan) == 0.37


def test_pool_28_order_of_types_and_pods_does_not_change_the_plan() -> None:
    types = entries("z1", "z2")
    plans = []
    for catalogue in (types, types[::-1]):
        case = OfferedCluster(catalogue=catalogue).waiting(9, 1, 4).waiting(5, 1, 1)
        plans.append(case.decided()[0])
    encoded = [msgspec.json.encode(plan, order="deterministic") for plan in plans]
    assert encoded[0] == encoded[1]


def test_pool_29_pods_spread_over_zones_get_nodes_in_both() -> None:
    case = OfferedCluster(catalogue=entries("z1", "z2"))
    case.opened("s2", 1).opened("s2", 1, zone="z2")
    for node in case.groups_of_pools()[2]:
        case.running(node.name, 1, "2", "1Gi", owner="full")
    spread = even(ZONE, having(app="web"))
    case.waiting(4, 1, 4, labels={"app": "web"}, spread=(spread,))
    plan, _ = case.decided()
    zones = {name.partition("/")[2] or "z1" for name in case.bought(plan)}
    assert zones == {"z1", "z2"}
    assert sum(case.bought(plan).values()) == 2


@pytest.mark.parametrize(("stock", "nodes"), [(None, {"z1": 1, "z2": 1}), (0, {"z1": 1})])
def test_pool_29_pods_spread_over_zones_that_have_no_nodes_yet(
    stock: int | None, nodes: dict[str, int]
) -> None:
    catalogue = (*entries("z1"), *entries("z2", stock=stock))
    spread = even(ZONE, having(app="web"))
    case = OfferedCluster(catalogue=catalogue)
    case.waiting(4, 1, 4, labels={"app": "web"}, spread=(spread,))
    plan, _ = case.decided()
    zones: Counter[str] = Counter()
    for name, count in case.bought(plan).items():
        zones[name.partition("/")[2] or "z1"] += count
    assert zones == nodes
    assert plan.unschedulable == ()


def test_spread_pods_of_one_zone_get_nodes_there_only() -> None:
    case = OfferedCluster(catalogue=entries("z1", "z2"))
    spread, place = even(ZONE, having(app="web")), {ZONE: "z1"}
    case.waiting(4, 1, 4, labels={"app": "web"}, spread=(spread,), node_selector=place)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 1}


def test_pool_30_pods_apart_by_host_get_the_cheapest_machines() -> None:
    case = OfferedCluster()
    apart = near("kubernetes.io/hostname", having(app="web"))
    case.waiting(3, 1, 1, labels={"app": "web"}, pod_anti_affinity=(apart,))
    plan, _ = case.decided()
    assert case.bought(plan) == {"s2": 3}


def empty_groups(*since: float, **fields: Any) -> tuple[OfferedCluster, Memory]:
    """Open groups s2 and c4 without nodes, empty since so many seconds."""
    case = OfferedCluster(pool(**{"delete_empty": True} | fields)).opened("s2").opened("c4")
    names = {title(group): group.id for group in case.groups_of_pools()[0]}
    groups = {
        names[kind]: GroupMemory(empty_since=NOW - seconds, first_seen=NOW - 9000)
        for kind, seconds in zip(("s2", "c4"), since, strict=True)
    }
    return case, Memory(groups=groups)


def closed(case: OfferedCluster, plan: Plan) -> list[str]:
    titles = {group.id: title(group) for group in case.groups_of_pools()[0]}
    return [titles[closing.group] for closing in plan.closings]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(3540.0, []), (3600.0, ["s2"])], ids=["59m", "1h"]
)
def test_pool_43_an_empty_group_is_deleted_after_keep_empty(
    seconds: float, expected: list[str]
) -> None:
    case, memory = empty_groups(seconds, 60.0)
    plan, after = case.decided(memory)
    assert closed(case, plan) == expected
    assert {op.spec.kind.value for op in plan.operations} == ({"close"} if expected else set())
    assert sorted(group.empty_since for group in after.groups.values()) == [NOW - seconds, NOW - 60]


def test_pool_43_an_empty_group_that_pods_need_is_used_and_stays() -> None:
    case, memory = empty_groups(7200.0, 60.0)
    plan, _ = case.waiting(2, 1, 4).decided(memory)
    assert case.bought(plan) == {"s2": 1}
    assert closed(case, plan) == []


def test_nothing_is_deleted_while_removals_are_paused() -> None:
    case, memory = empty_groups(3600.0, 3600.0)
    assert sorted(closed(case, case.decided(memory)[0])) == ["c4", "s2"]
    case.policy["pauses"] = (Pause(NOW + 900, NOW, PausedPart.REMOVALS),)
    assert case.decided(memory)[0].closings == ()


def test_groups_of_a_declaration_that_is_off_are_not_deleted() -> None:
    case, memory = empty_groups(7200.0, 7200.0)
    asked = msgspec.structs.replace(memory, prunes={"general": NOW - 30})
    policy = case.offered_policy()
    resting = (msgspec.structs.replace(policy.managed_pools[0], mode=PoolMode.OFF),)
    for pools, closings in ((policy.managed_pools, 2), (resting, 0)):
        policy = msgspec.structs.replace(policy, managed_pools=pools)
        plan, _ = plan_cluster(case.offered_snapshot(), policy, asked, NOW, 0)
        assert len(plan.closings) == closings


def test_paused_group_is_not_deleted() -> None:
    case, memory = empty_groups(3600.0, 3600.0)
    names = {title(group): group.id for group in case.groups_of_pools()[0]}
    case.policy["pauses"] = (Pause(NOW + 900, NOW, PausedPart.ALL, names["s2"]),)
    assert closed(case, case.decided(memory)[0]) == ["c4"]


@pytest.mark.parametrize(
    ("state", "is_used"), [(OperationState.WAITING, False), (OperationState.FAILED, True)]
)
def test_group_that_is_being_deleted_is_not_grown(state: OperationState, is_used: bool) -> None:
    case, memory = empty_groups(3600.0, 60.0)
    (deletion,) = case.decided(memory)[0].operations
    memory = msgspec.structs.replace(memory, operations=(deletion.with_status(state=state),))
    plan, _ = case.waiting(2, 1, 4).decided(memory)
    assert len(plan.scale_ups) == 1
    assert (plan.scale_ups[0].group == deletion.spec.group) is is_used
    assert plan.unschedulable == ()


def test_empty_groups_stay_where_a_declaration_says_so_until_an_operator_asks() -> None:
    case, memory = empty_groups(7200.0, 60.0, delete_empty=False)
    assert closed(case, case.decided(memory)[0]) == []
    asked = msgspec.structs.replace(memory, prunes={"general": NOW - 30})
    assert sorted(closed(case, case.decided(asked)[0])) == ["c4", "s2"]
    earlier = msgspec.structs.replace(memory, prunes={"general": NOW - 600})
    assert closed(case, case.decided(earlier)[0]) == ["s2"]


def test_pool_46_the_longest_empty_group_makes_room_for_a_new_one() -> None:
    case, memory = empty_groups(300.0, 200.0, max_pools=2)
    plan, _ = case.waiting(4, 1, 8).decided(memory)
    assert case.bought(plan) == {"r4": 1}
    assert closed(case, plan) == ["s2"]
    close, grow = plan.operations
    assert grow.spec.after == (close.spec.id,)


def test_pool_64_without_safe_deletion_only_groups_empty_for_long_make_room() -> None:
    young, memory = empty_groups(300.0, 200.0, max_pools=2, delete_empty=False)
    plan, _ = young.waiting(4, 1, 8).decided(memory)
    assert (young.bought(plan), closed(young, plan)) == ({"s2": 4}, [])
    old, memory = empty_groups(3700.0, 200.0, max_pools=2, delete_empty=False)
    plan, _ = old.waiting(4, 1, 8).decided(memory)
    assert (old.bought(plan), closed(old, plan)) == ({"r4": 1}, ["s2"])


def test_deletion_that_failed_is_repeated_only_after_its_back_off() -> None:
    case, memory = empty_groups(7200.0, 60.0)
    groups = {
        name: msgspec.structs.replace(group, repair_after=NOW + 1, repair_failures=1)
        for name, group in memory.groups.items()
    }
    waiting = msgspec.structs.replace(memory, groups=groups)
    assert closed(case, case.decided(waiting)[0]) == []


def test_candidates_that_nothing_is_known_of_leave_no_memory() -> None:
    case = OfferedCluster(catalogue=entries("z1")).waiting(8, 1, 4)
    plan, after = case.decided()
    assert len(plan.scale_ups) == 1
    assert list(after.groups) == [plan.scale_ups[0].group]
    assert [verdict.group for verdict in plan.groups] == []


def test_pool_11_a_candidate_in_back_off_is_replaced_by_the_next() -> None:
    types = entry("s4"), entry("x", price=0.20)
    case = OfferedCluster(catalogue=types).waiting(4, 1, 4)
    names = {title(group): group.id for group in case.groups_of_pools()[1]}
    failed = Backoff(300.0, NOW + 300, NOW - 1, cls="OutOfStock")
    memory = Memory(groups={names["s4"]: GroupMemory(backoff=failed)})
    plan, _ = case.decided(memory)
    assert case.bought(plan) == {"x": 1}


def test_schedules_with_a_minimum_for_all_groups_leave_managed_groups_alone() -> None:
    case, memory = empty_groups(60.0, 60.0)
    case.policy["schedules"] = (Schedule("day", "* * * * *", 120.0, min=3),)
    plan, _ = case.decided(memory)
    assert plan.scale_ups == ()


@pytest.mark.parametrize("factor", [0.0, 0.02])
def test_pool_59_consolidation_opens_a_cheaper_group(factor: float) -> None:
    case = OfferedCluster(pool(opening_factor=factor)).opened("s8", 1)
    (large,) = case.groups_of_pools()[2]
    case.running(large.name, 4, "1", "4Gi", owner="web")
    case.policy |= consolidating(min_savings=0.10, aggressiveness=2.0)
    plan, _ = case.decided()
    assert case.bought(plan) == {"s4": 1}
    assert plan.consolidation is not None
    (move,) = plan.consolidation.moves
    assert move.nodes == (large.name,)
    assert move.saves == 0.21
    assert move.gain == (0.01 if not factor else 0.0062)


def consolidating(**settings: Any) -> dict[str, Any]:
    """Fields of a policy that consolidates at once."""
    fields = policy(**settings)
    return {
        "consolidation": fields.consolidation,
        "disruption_budgets": fields.disruption_budgets,
    }


def test_only_the_three_nearest_machines_of_a_declaration_say_why_not() -> None:
    types = tuple(entry(f"t{at}", price=0.5 - at / 100) for at in range(9))
    plan, _ = OfferedCluster(catalogue=types).waiting(1, 64, 4).decided()
    (unplaced,) = plan.unschedulable
    assert (len(unplaced.reasons), unplaced.nearest, unplaced.more) == (3, 3, {"general": 6})
    place = no_place(unplaced)
    assert "64" in place.cause
    assert place.others == "6 further machines of general"
    chosen = OfferedCluster(catalogue=types).managed().candidates
    assert sorted(chosen[name].machine.price for name in unplaced.reasons) == [0.42, 0.43, 0.44]


def test_all_groups_that_a_person_has_made_say_why_not() -> None:
    case = OfferedCluster()
    for name in ("a", "b", "c", "d", "e"):
        case.group(name, max=1, target=1)
    plan, _ = case.waiting(1, 64, 4).decided()
    (unplaced,) = plan.unschedulable
    assert {"a", "b", "c", "d", "e"} <= unplaced.reasons.keys()
    assert unplaced.more == {"general": 2}


def test_a_refused_pod_is_tried_in_one_group_that_takes_it_not_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types = 100
    catalogue = tuple(
        entry(f"t{at:03d}", cores=cores, memory=4 * cores * GIB, price=cores / 20 + at / 10_000)
        for at, cores in enumerate([2, 4, 8, 16] * (types // 4))
    )
    tried: list[str] = []
    put_nodes = ScaleUpSearch.put_nodes

    def counted(search: ScaleUpSearch, group: str, *numbers: int) -> Any:
        tried.append(group)
        return put_nodes(search, group, *numbers)

    monkeypatch.setattr(ScaleUpSearch, "put_nodes", counted)
    case = OfferedCluster(catalogue=catalogue).waiting(5, 4, 1).waiting(6, 8, 6)
    plan, _ = case.decided()
    assert case.bought(plan) == {"t001": 1, "t003": 4}
    assert len(tried) < types / 2
