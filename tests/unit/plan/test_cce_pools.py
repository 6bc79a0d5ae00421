"""Pools of several flavours: shared bounds, ranks, zones, and labels that
new nodes do not promise.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from tests.builders import NOW, ClusterBuilder, cluster, growth, node, stays, verdict
from tests.unit.plan.instances_builder import operation

POOL = Pool("p", "pool-a", max=100)
OS, SUBNET = "os.name", "node.kubernetes.io/subnetid"
UNPROMISED = GroupOptions(unpromised_labels=(SUBNET, "os.architecture", OS, "os.version"))
PRIORITY = ("priority",)
WASTE = ("least-waste",)


def _new(plan: Plan) -> dict[str, int]:
    return {group: nodes for group, (nodes, _) in growth(plan).items()}


def _failed(*groups: str) -> Memory:
    failed = Backoff(300, NOW + 200, NOW - 100, "OutOfStock", "SoldOut", "none left")
    return Memory(groups={group: GroupMemory(backoff=failed) for group in groups})


def _flavours(pool: Pool | None = POOL, **fields: dict[str, Any]) -> ClusterBuilder:
    """Groups of machines with one cpu, in one pool; fields: by group."""
    build = cluster()
    for name, more in sorted(fields.items()):
        build.group(name, **{"template": node("t", "1", zone=f"zone-{name}"), "pool": pool, **more})
    return build


# -- bounds


@pytest.mark.parametrize(
    ("pool", "sizes", "new"),
    [
        (Pool("p", "pool-a", max=5), (0, 0), 5),
        (Pool("p", "pool-a", max=5), (2, 1), 2),
        (Pool("p", "pool-a", max=5, elsewhere=4), (0, 0), 1),
        (Pool("p", "pool-a", max=5, elsewhere=9), (0, 0), 0),
        (Pool("p", "pool-a", max=-1), (0, 0), 9),
        (Pool("p", "pool-a", max=0), (0, 0), 0),
    ],
)
def test_CCE_A6_1_all_groups_of_a_pool_together_stay_below_its_maximum(
    pool: Pool, sizes: tuple[int, int], new: int
) -> None:
    build = _zones(
        {"a": sizes[0], "b": sizes[1]},
        a={"pool": pool, "max": 6},
        b={"pool": pool, "max": 6, "rank": 1},
    )
    plan = build.pending(9, "1").plan()
    assert sum(_new(plan).values()) == new
    if new < 9:
        full = Reason.of(ReasonCode.POOL_MAX_SIZE, pool="pool-a", max=pool.max)
        assert list(verdict(plan).reasons.values()) == [(full,)] * 2


def test_CCE_A6_1_another_pool_has_its_own_bounds() -> None:
    build = _flavours(Pool("p", max=3), a={})
    build.group("other", template=node("t", "1"), pool=Pool("q", max=4)).group(
        "lone", template=node("t", "1"), max=2
    )
    assert _new(build.pending(20, "1").plan()) == {"a": 3, "other": 4, "lone": 2}


def test_CCE_A6_1_balancing_with_another_pool_respects_both_maximums() -> None:
    build = _flavours(Pool("p", max=3), a={}, b={}).group(
        "c", template=node("t", "1"), pool=Pool("q", max=4)
    )
    new = _new(build.pending(20, "1").plan(balance_similar_node_groups=True))
    assert (new["a"] + new["b"], new["c"]) == (3, 4)


def test_CCE_A6_1_zero_or_max_group_is_not_added_to_a_pool_without_room_for_all() -> None:
    whole = {"max": 4, "options": GroupOptions(zero_or_max=True)}
    assert _new(_flavours(Pool("p", max=4), a=whole).pending(2, "1").plan()) == {"a": 4}
    plan = _flavours(Pool("p", max=4, elsewhere=1), a=whole).pending(2, "1").plan()
    assert _new(plan) == {}
    assert verdict(plan).reasons["a"][0].code is ReasonCode.POOL_MAX_SIZE


def test_CCE_A6_1_least_cost_respects_pool_maximums() -> None:
    build = _flavours(Pool("p", max=3), a={"price": 1.0}, b={"price": 1.1})
    build.group("c", template=node("t", "1"), price=5.0)
    new = _new(build.pending(8, "1").plan(expander=("least-cost",)))
    assert (new.get("a", 0) + new.get("b", 0), new["c"]) == (3, 5)


def _idle(pool: Pool, *, a: int, b: int, **fields: Any) -> ClusterBuilder:
    build = cluster().node("home", "8", "64Gi")
    for name, count in (("a", a), ("b", b)):
        for number in range(count):
            build.node(f"{name}-{number}", group=name)
        build.group(name, pool=pool, **fields)
    return build


@pytest.mark.parametrize(
    ("pool", "gone"),
    [
        (Pool("p", "pool-a", min=3, max=9), 1),
        (Pool("p", "pool-a", min=0, max=9), 4),
        (Pool("p", "pool-a", min=3, max=9, elsewhere=1), 2),
        (Pool("p", "pool-a", min=4, max=9), 0),
        (Pool("p", "pool-a", min=7, max=9), 0),
    ],
)
def test_CCE_A6_1_all_groups_of_a_pool_together_keep_its_minimum(pool: Pool, gone: int) -> None:
    plan = _idle(pool, a=2, b=2).plan(unneeded=7200)
    assert len(plan.removals) == gone
    codes = [code for name, code in stays(plan).items() if name != "home"]
    assert codes == ["PoolMinSizeReached"] * (4 - gone)


def test_CCE_A6_1_leaving_nodes_do_not_count_towards_pool_bounds() -> None:
    build = _idle(Pool("p", "pool-a", min=2, max=9), a=2, b=2)
    going = [operation(OperationKind.DELETE_NODES, "b", RemovalTarget("b-0", "test://b/b-0"))]
    plan = build.plan(Memory(operations=tuple(going)), unneeded=7200)
    assert len(plan.removals) == 1
    assert list(stays(plan).values()).count("PoolMinSizeReached") == 2


def test_CCE_A6_1_no_plan_exceeds_pool_bounds() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        pools = [
            Pool(f"p{at}", max=rng.choice([-1, 0, 3, 7]), elsewhere=rng.randint(0, 2))
            for at in range(2)
        ]
        build = cluster()
        for at in range(rng.randint(1, 5)):
            for number in range(rng.randint(0, 3)):
                build.node(f"g{at}-{number}", group=f"g{at}").running(f"g{at}-{number}", 1, "1")
            build.group(
                f"g{at}",
                max=rng.randint(0, 6),
                rank=rng.randint(0, 2),
                pool=rng.choice([*pools, None]),
                template=node("t", str(rng.choice([1, 2])), zone=f"z{at}"),
            )
        for size in range(1, 3):
            build.pending(rng.randint(0, 8), str(size), name=f"p{size}", owner=f"o{size}")
        plan = build.plan(
            balance_similar_node_groups=rng.random() < 0.5,
            seed=seed,
            expander=rng.choice([PRIORITY, WASTE, ("random",)]),
        )
        sizes = {group.id: group.target for group in build.groups}
        sizes |= {up.group: up.to_size for up in plan.scale_ups}
        for pool in pools:
            mine = [group for group in build.groups if group.pool == pool]
            now = sum(group.target for group in mine) + pool.elsewhere
            after = sum(sizes[group.id] for group in mine) + pool.elsewhere
            assert pool.max < 0 or after <= max(pool.max, now), (seed, pool)
        assert all(up.to_size <= up.max for up in plan.scale_ups), seed


def test_operation_names_the_pool_it_changes() -> None:
    build = _flavours(a={}).group("lone", template=node("t", "4"))
    grown = build.pending(1, "1").pending(1, "4", owner="big").plan()
    assert {each.spec.group: each.spec.pool for each in grown.operations} == {"a": "p", "lone": ""}
    removed = _idle(POOL, a=1, b=0).plan(unneeded=7200)
    assert [(each.spec.kind, each.spec.pool) for each in removed.operations] == [
        (OperationKind.DELETE_NODES, "p")
    ]


# -- ranks and priorities


@pytest.mark.parametrize("chain", [WASTE, PRIORITY, ("random",), ("most-pods",), ("least-nodes",)])
def test_CCE_A6_3_preferred_flavour_of_a_pool_wins_with_every_expander(
    chain: tuple[str, ...],
) -> None:
    build = _flavours(
        a={"rank": 5, "template": node("t", "3")}, b={"rank": 0, "template": node("t", "2")}
    )
    build.pending(2, "1")
    assert _new(build.plan(expander=chain)) == {"a": 1}


def test_CCE_A6_3_a_preferred_flavour_at_its_own_maximum_leaves_the_rest_to_the_next() -> None:
    build = _flavours(a={"rank": 5, "max": 2}, b={"rank": 3, "max": 3}, c={"rank": 0})
    assert _new(build.pending(9, "1").plan()) == {"a": 2, "b": 3, "c": 4}


@pytest.mark.parametrize(("least", "gone"), [(0, 4), (2, 2)])
def test_CCE_A6_3_each_flavour_keeps_its_own_minimum(least: int, gone: int) -> None:
    assert len(_idle(POOL, a=2, b=2, min=least // 2).plan(unneeded=7200).removals) == gone


def test_CCE_A6_3_ranks_are_not_compared_between_pools() -> None:
    build = _flavours(a={"rank": 5, "template": node("t", "3")})
    build.group("b", template=node("t", "2"), pool=Pool("q", max=9))
    assert _new(build.pending(2, "1").plan(expander=WASTE)) == {"b": 1}


@pytest.mark.parametrize(("first", "second", "chosen"), [(10, 5, "a"), (5, 10, "b"), (-1, 0, "b")])
def test_CCE_A6_4_pool_of_the_higher_priority_scales_up(
    first: int, second: int, chosen: str
) -> None:
    build = cluster().group("a", template=node("t", "4"), pool=Pool("p", max=9), priority=first)
    build.group("b", template=node("t", "4"), pool=Pool("q", max=9), priority=second)
    assert _new(build.pending(1, "1").plan(expander=PRIORITY)) == {chosen: 1}


def test_CCE_A6_5_priority_precedes_rank_and_rank_precedes_waste() -> None:
    build = cluster().group(
        "a", template=node("t", "8"), pool=Pool("p", max=9), priority=10, rank=1
    )
    build.group("b", template=node("t", "4"), pool=Pool("p", max=9), priority=10, rank=0)
    build.group("c", template=node("t", "1"), pool=Pool("q", max=9), priority=5, rank=9)
    chain = ("priority", "least-waste", "random")
    assert _new(build.pending(1, "1").plan(expander=chain)) == {"a": 1}
    assert _new(build.plan(_failed("a"), expander=chain)) == {"b": 1}
    assert _new(build.plan(_failed("a", "b"), expander=chain)) == {"c": 1}


def test_CCE_A6_5_highest_rank_decides_among_pools_of_equal_priority() -> None:
    build = cluster().group("a", template=node("t", "1"), pool=Pool("p", max=9), priority=1, rank=1)
    build.group("b", template=node("t", "8"), pool=Pool("q", max=9), priority=1, rank=2)
    assert _new(build.pending(1, "1").plan(expander=PRIORITY)) == {"b": 1}


def test_CCE_A6_5_flavour_that_cannot_host_the_pods_is_dropped_at_any_rank() -> None:
    build = _flavours(a={"rank": 9, "template": node("t", "1")}, b={"template": node("t", "4")})
    build.pending(2, "3").pending(1, "1", owner="small")
    assert _new(build.plan(expander=PRIORITY)) == {"b": 2}


def test_CCE_A6_5_least_waste_decides_among_equal_flavours() -> None:
    build = cluster().group("a", template=node("t", "8"), pool=Pool("p", max=9), priority=1)
    build.group("b", template=node("t", "2"), pool=Pool("q", max=9), priority=1)
    assert _new(build.pending(2, "1").plan(expander=("priority", "least-waste"))) == {"b": 1}


@pytest.mark.parametrize(
    ("chain", "most", "chosen"),
    [
        (("least-waste",), 9, {"b": 2}),
        (("most-pods",), 1, {"a": 1}),
        (("random",), 1, {"a": 1}),
        (("priority", "least-waste", "random"), 9, {"b": 2}),
    ],
)
def test_CCE_A6_6_add_on_expanders_are_available(
    chain: tuple[str, ...], most: int, chosen: dict[str, int]
) -> None:
    """`priority-ratio` is only meant for rescheduling and is not supported."""
    build = (
        cluster().group("a", template=node("t", "16")).group("b", template=node("t", "1"), max=most)
    )
    assert _new(build.pending(2, "1").plan(expander=chain)) == chosen


def test_CCE_A1_3_no_feature_needs_a_version_of_the_vendors_add_on() -> None:
    """The add-on introduced flavour ranks, even zones and per-pool conditions in different
    versions. Here they all apply, also to clusters that never had the add-on."""
    own = GroupOptions(scale_down_utilization_threshold=0.9)
    build = (
        _zones({"a": 2, "b": 0, "c": 0}, c={"rank": 9, "max": 1})
        .node("old", group="d")
        .running("old", 1, "800m")
    )
    build.group("d", pool=Pool("q"), options=own, max=1).pending(5, "1")
    plan = build.plan()
    assert _new(plan) == {"a": 1, "b": 3, "c": 1}
    assert stays(plan)["old"] != "NotUnderutilized"


def test_CCE_11_next_flavour_and_then_the_next_pool_are_used_when_sold_out() -> None:
    build = cluster()
    for name, priority, rank in (("x1", 10, 2), ("x2", 10, 1), ("y", 5, 0)):
        pool = Pool("x" if name != "y" else "y", max=9)
        build.group(name, template=node("t", "2"), pool=pool, priority=priority, rank=rank)
    build.pending(2, "1")
    seen = [
        _new(build.plan(_failed(*names), expander=PRIORITY))
        for names in ((), ("x1",), ("x1", "x2"))
    ]
    assert seen == [{"x1": 1}, {"x2": 1}, {"y": 1}]
    none = build.plan(_failed("x1", "x2", "y"), expander=PRIORITY)
    assert {reasons[0].code for reasons in verdict(none).reasons.values()} == {
        ReasonCode.GROUP_BACKOFF
    }


# -- zones


def _zones(sizes: dict[str, int], **fields: dict[str, Any]) -> ClusterBuilder:
    """Groups of one pool, one per zone, with full nodes."""
    build = cluster()
    for name, size in sizes.items():
        for number in range(size):
            build.node(f"{name}-{number}", zone=name, group=name).running(
                f"{name}-{number}", 1, "1"
            )
        build.group(
            name, **{"template": node("t", "1", zone=name), "pool": POOL, **fields.get(name, {})}
        )
    return build


@pytest.mark.parametrize(("pods", "new"), [(10, {"b": 10}), (20, {"a": 5, "b": 15}), (1, {"b": 1})])
def test_CCE_A6_7_pods_balance_the_zones_of_a_pool(pods: int, new: dict[str, int]) -> None:
    assert _new(_zones({"a": 10, "b": 0}).pending(pods, "1").plan()) == new


def test_CCE_A6_7_zone_without_stock_leaves_its_share_to_other_zones() -> None:
    assert _new(_zones({"a": 4, "b": 0}, b={"max": 3}).pending(10, "1").plan()) == {"a": 7, "b": 3}
    assert _new(_zones({"a": 4, "b": 0}).pending(3, "1").plan(_failed("b"))) == {"a": 3}


def test_CCE_A6_7_pool_maximum_limits_the_sum_over_zones() -> None:
    build = _zones({"a": 4, "b": 0}, a={"pool": Pool("p", max=10)}, b={"pool": Pool("p", max=10)})
    assert _new(build.pending(10, "1").plan()) == {"a": 1, "b": 5}


def test_CCE_A6_7_flavours_of_different_rank_are_not_balanced() -> None:
    ranked = _zones({"a": 3, "b": 0}, a={"rank": 1})
    assert _new(ranked.pending(2, "1").plan()) == {"a": 2}
    assert _new(ranked.plan(balance_similar_node_groups=True)) == {"a": 2}


def test_CCE_A6_7_balancing_with_other_pools_needs_the_option() -> None:
    build = _zones({"a": 3, "b": 0}, b={"pool": Pool("q", max=9)}).pending(3, "1")
    assert _new(build.plan(expander=WASTE)) == {"a": 3}
    assert _new(build.plan(expander=WASTE, balance_similar_node_groups=True)) == {"b": 3}


def test_CCE_A6_7_groups_of_different_machine_sizes_are_not_balanced() -> None:
    build = _zones({"a": 2, "b": 0}, b={"template": node("t", "7", zone="b")})
    assert _new(build.pending(2, "1").plan(expander=WASTE)) == {"a": 2}


# -- conditions of a pool


@pytest.mark.parametrize(
    ("used", "own", "candidate"),
    [
        ("600m", None, False),
        ("600m", 0.7, True),
        ("400m", 0.3, False),
        ("400m", None, True),
    ],
)
def test_CCE_A6_8_pool_threshold_overrides_the_clusters(
    used: str, own: float | None, candidate: bool
) -> None:
    build = cluster().node("home", "8", "64Gi").node("n", group="g").running("n", 1, used)
    build.group("g", pool=POOL, options=GroupOptions(scale_down_utilization_threshold=own))
    assert (stays(build.plan()).get("n") == "NotUnderutilized") is not candidate


@pytest.mark.parametrize(
    ("own", "age", "goes"),
    [
        (None, 700.0, True),
        (1200.0, 700.0, False),
        (60.0, 61.0, True),
        (None, 61.0, False),
    ],
)
def test_CCE_A6_8_pool_unneeded_time_overrides_the_clusters(
    own: float | None, age: float, goes: bool
) -> None:
    build = (
        cluster()
        .node("n", group="g")
        .group("g", options=GroupOptions(scale_down_unneeded_time=own), pool=POOL)
    )
    assert bool(build.plan(unneeded=age).removals) is goes


@pytest.mark.parametrize(("age", "goes"), [(899.0, False), (900.0, True)])
def test_CCE_A6_2_a_node_stays_for_its_pools_cooldown(age: float, goes: bool) -> None:
    build = cluster().node("n", group="g", created=NOW - age, ready_since=NOW - age)
    build.node("old", group="g").group(
        "g", pool=POOL, options=GroupOptions(scale_down_cooldown=900.0)
    )
    plan = build.plan(unneeded=7200)
    assert {removal.node for removal in plan.removals} == ({"n", "old"} if goes else {"old"})


def test_CCE_A1_5_nodes_of_a_pool_outside_all_node_groups_are_left_alone() -> None:
    build = cluster().node("of-default-pool").node("g-0", group="g").group("g", pool=POOL)
    plan = build.plan(unneeded=7200)
    assert [removal.node for removal in plan.removals] == ["g-0"]
    assert stays(plan) == {"of-default-pool": "NotAutoscaled"}
