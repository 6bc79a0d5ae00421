"""Which spot groups are bought: avoided ones, shares of a pool, nodes that stay on
demand, and the fallback.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import Backoff, GroupMemory, InterruptionRisk, Memory, NodeMemory
from chalicelib.model.node import Taint
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Toleration
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import Spot
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

TYPE = "node.kubernetes.io/instance-type"
PRICES = NodePrices(instance_types={"b": 0.06, "od": 0.10}, spot={"a": 0.04, "b": 0.06})
POOL = Pool("pool")


def decide(
    build: ClusterBuilder,
    spot: Spot | None,
    memory: Memory | None = None,
    *expander: str,
    **options: Any,
) -> tuple[Plan, Memory]:
    """A pass in which the cheapest group is bought."""
    fields: dict[str, Any] = {
        "expander": expander or ("price",),
        "scale_down_unneeded_time": 1e6,
        **options,
    }
    policy = Policy("test", mode=Mode.ACTIVE, spot=spot, prices=PRICES, options=Options(**fields))
    return plan_cluster(build.snapshot(), policy, memory or Memory(), NOW, 0)


def pool(
    a: int = 0,
    b: int = 0,
    od: int = 0,
    *,
    kinds: str = "a b od",
    groups: dict[str, dict[str, Any]] | None = None,
) -> ClusterBuilder:
    """Spot groups a and b and group od on demand, of one pool, with so many full
    nodes. groups: further fields."""
    build = cluster()
    for kind, count in (("a", a), ("b", b), ("od", od)):
        for number in range(count):
            name = f"{kind}{number}"
            build.node(name, "2", "8Gi", group=kind, labels={TYPE: kind}).running(
                name, 1, "2", "1Gi"
            )
    for kind in kinds.split():
        fields: dict[str, Any] = {
            "pool": POOL,
            "spot": kind != "od",
            **(groups or {}).get(kind, {}),
        }
        build.group(kind, template=node(f"new-{kind}", "2", "8Gi", labels={TYPE: kind}), **fields)
    return build


def interrupted(age: float, **groups: GroupMemory) -> Memory:
    """The last node of group a was interrupted so long ago."""
    risk = InterruptionRisk(counted_at=NOW, last_notice=NOW - age)
    return Memory(groups={"a": GroupMemory(risk=risk), **groups})


# --- avoiding a group


@pytest.mark.parametrize(("age", "bought"), [(1740.0, "b"), (1799.0, "b"), (1800.0, "a")])
@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_spot_11_another_group_is_bought_for_half_an_hour(
    age: float, bought: str, expander: str
) -> None:
    plan, _ = decide(pool().pending(1, "2", "1Gi"), Spot(), interrupted(age), expander)
    assert growth(plan) == {bought: (1, 1)}
    verdict = next(group for group in plan.groups if group.group == "a")
    reason = None if bought == "a" else ReasonCode.SPOT_AVOIDED
    assert (verdict.skipped.code if verdict.skipped else None) is reason
    assert reason is None or (
        verdict.skipped is not None and verdict.skipped.params == {"until": NOW - age + 1800.0}
    )


def test_spot_11_avoided_group_is_bought_if_no_other_fits() -> None:
    plan, _ = decide(pool(kinds="a").pending(1, "2", "1Gi"), Spot(), interrupted(60.0))
    assert growth(plan) == {"a": (1, 1)}


def test_avoided_group_takes_what_others_have_no_room_for() -> None:
    build = pool(kinds="a b", groups={"b": {"max": 1}}).pending(3, "2", "1Gi")
    plan, _ = decide(build, Spot(), interrupted(60.0))
    assert growth(plan) == {"a": (2, 2), "b": (1, 1)}


def test_avoided_group_is_bought_for_the_pods_that_fit_only_there() -> None:
    build = pool(kinds="a")
    build.group("c", template=node("new-c", "1", "8Gi", labels={TYPE: "b"}), pool=POOL)
    build.pending(1, "2", "1Gi", owner="large").pending(1, "1", "1Gi", owner="small")
    plan, _ = decide(build, Spot(), interrupted(60.0))
    assert growth(plan) == {"a": (1, 1), "c": (1, 1)}


def test_group_of_a_node_at_risk_is_avoided_in_the_same_pass() -> None:
    build = pool(a=1)
    build.nodes[0] = node(
        "a0",
        "2",
        "8Gi",
        group="a",
        labels={TYPE: "a"},
        taints=[Taint("aws-node-termination-handler/spot-itn", "NoSchedule")],
    )
    plan, _ = decide(build, Spot())
    assert growth(plan) == {"b": (1, 1)}


def test_avoided_groups_are_bought_without_spec_spot() -> None:
    plan, _ = decide(pool().pending(1, "2", "1Gi"), None, interrupted(60.0))
    assert list(growth(plan)) != ["od"]


# --- maxShare


def test_spot_18_group_with_its_share_is_not_bought() -> None:
    plan, _ = decide(pool(a=5, b=3, od=2).pending(1, "2", "1Gi"), Spot(max_share=0.5))
    assert growth(plan) == {"b": (1, 1)}
    verdict = next(group for group in plan.groups if group.group == "a")
    assert verdict.skipped is not None
    assert verdict.skipped.params == {"share": 0.5, "nodes": 5, "of": 10}


def test_spot_18_without_another_spot_group_on_demand_is_bought() -> None:
    plan, _ = decide(pool(a=5, od=5, kinds="a od").pending(1, "2", "1Gi"), Spot(max_share=0.5))
    assert growth(plan) == {"od": (1, 1)}


@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_share_counts_what_the_pass_buys(expander: str) -> None:
    plan, _ = decide(pool(kinds="a od").pending(8, "2", "1Gi"), Spot(max_share=0.5), None, expander)
    sizes = {name: nodes for name, (nodes, _) in growth(plan).items()}
    assert sum(sizes.values()) == 8
    assert sizes["a"] <= 4


def test_first_node_of_a_group_is_always_allowed() -> None:
    plan, _ = decide(pool(kinds="a").pending(2, "2", "1Gi"), Spot(max_share=0.25))
    assert growth(plan) == {"a": (1, 1)}
    [unplaced] = plan.unschedulable
    assert [reason.code for reason in unplaced.reasons["a"]] == [ReasonCode.SPOT_SHARE]


def test_groups_without_a_pool_share_one() -> None:
    groups: dict[str, dict[str, Any]] = {kind: {"pool": None} for kind in ("a", "b", "od")}
    plan, _ = decide(pool(a=5, od=5, groups=groups).pending(1, "2", "1Gi"), Spot(max_share=0.5))
    assert growth(plan) == {"b": (1, 1)}


def test_zero_or_max_group_above_its_share_is_not_bought() -> None:
    whole = {"options": GroupOptions(zero_or_max=True), "max": 3}
    build = pool(od=2, kinds="a od", groups={"a": whole})
    plan, _ = decide(build.pending(3, "2", "1Gi"), Spot(max_share=0.5))
    assert growth(plan) == {"od": (3, 3)}


# --- onDemandBase


@pytest.mark.parametrize(
    ("od", "pods", "bought"),
    [(0, 1, {"od": 1}), (0, 5, {"a": 3, "od": 2}), (1, 3, {"a": 2, "od": 1}), (2, 3, {"a": 3})],
)
@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_nodes_on_demand_come_first(
    od: int, pods: int, bought: dict[str, int], expander: str
) -> None:
    plan, _ = decide(pool(od=od).pending(pods, "2", "1Gi"), Spot(on_demand_base=2), None, expander)
    assert {name: nodes for name, (nodes, _) in growth(plan).items()} == bought


def test_base_does_not_keep_pods_waiting_that_fit_spot_only() -> None:
    build = pool(od=0)
    build.groups = []
    taint = Taint("spot", "NoSchedule")
    for kind in ("a", "od"):
        taints = [] if kind == "a" else [taint]
        build.group(
            kind,
            template=node(f"new-{kind}", "2", "8Gi", labels={TYPE: kind}, taints=taints),
            spot=kind == "a",
        )
    plan, _ = decide(build.pending(1, "2", "1Gi"), Spot(on_demand_base=2))
    assert growth(plan) == {"a": (1, 1)}
    tolerant = build.pending(
        1, "2", "1Gi", owner="any", tolerations=(Toleration(operator="Exists"),)
    )
    plan, _ = decide(tolerant, Spot(on_demand_base=2))
    assert growth(plan) == {"a": (1, 1), "od": (1, 1)}


def test_verdict_names_the_base() -> None:
    plan, _ = decide(pool().pending(1, "2", "1Gi"), Spot(on_demand_base=2))
    verdict = next(group for group in plan.groups if group.group == "a")
    assert verdict.skipped is not None
    assert (verdict.skipped.code, verdict.skipped.params) == (
        ReasonCode.ON_DEMAND_BASE,
        {"base": 2},
    )


# --- fallback

OUT_OF_STOCK = Backoff(300.0, NOW + 240.0, NOW - 60.0, "OutOfStock", "NoStock")


def sold_out(*names: str) -> Memory:
    """These groups were out of stock a minute ago."""
    return Memory(groups={name: GroupMemory(backoff=OUT_OF_STOCK) for name in names})


def test_spot_12_nodes_for_pods_of_a_sold_out_group_are_a_fallback() -> None:
    plan, memory = decide(pool().pending(1, "2", "1Gi"), Spot(), sold_out("a", "b"))
    assert growth(plan) == {"od": (1, 1)}
    assert memory.groups["od"].fallback_since == NOW


def test_spot_12_node_that_comes_of_it_is_marked_until_it_goes() -> None:
    build = pool(od=1)
    build.node("new", "2", "8Gi", group="od", labels={TYPE: "od"}, created=NOW - 30.0)
    build.groups = [*build.groups[:2]]
    build.group("od", pool=POOL, template=node("new-od", "2", "8Gi", labels={TYPE: "od"}))
    since = Memory(groups={"od": GroupMemory(fallback_since=NOW - 120.0)})
    _, memory = decide(build, Spot(), since)
    assert [name for name, known in memory.nodes.items() if known.fallback] == ["new"]
    _, later = decide(build, Spot(), Memory(nodes=memory.nodes))
    assert later.nodes["new"].fallback
    _, off = decide(
        build, None, Memory(nodes={"new": NodeMemory(fallback=True)}, groups=since.groups)
    )
    assert not any(known.fallback for known in off.nodes.values())


def test_mark_outlasts_a_group_that_cannot_be_read() -> None:
    build = pool(kinds="a").node("new", "2", "8Gi", group="od", labels={TYPE: "od"})
    _, memory = decide(build, Spot(), Memory(nodes={"new": NodeMemory(fallback=True)}))
    assert memory.nodes["new"].fallback


@pytest.mark.parametrize(("age", "marked"), [(900.0, True), (901.0, False)])
def test_node_that_comes_long_after_the_purchase_is_none_of_it(age: float, marked: bool) -> None:
    build = pool(kinds="a")
    build.node("new", "2", "8Gi", group="od", labels={TYPE: "od"}, created=NOW - 60.0).group("od")
    since = Memory(groups={"od": GroupMemory(fallback_since=NOW - 60.0 - age)})
    _, memory = decide(build, Spot(), since)
    assert [name for name, known in memory.nodes.items() if known.fallback] == (
        ["new"] if marked else []
    )


def test_purchase_for_pods_that_no_spot_group_takes_is_no_fallback() -> None:
    build = pool(kinds="a")
    build.group("od", pool=POOL, template=node("new-od", "4", "16Gi", labels={TYPE: "od"}))
    memory = Memory(groups={**sold_out("a").groups, "od": GroupMemory(fallback_since=NOW - 60.0)})
    plan, after = decide(build.pending(1, "4", "1Gi"), Spot(), memory)
    assert growth(plan) == {"od": (1, 1)}
    assert after.groups["od"].fallback_since == 0.0


def test_purchase_beside_an_avoided_group_is_a_fallback() -> None:
    plan, memory = decide(pool(kinds="a od").pending(1, "2", "1Gi"), Spot(), interrupted(60.0))
    assert growth(plan) == {"od": (1, 1)}
    assert memory.groups["od"].fallback_since == NOW


def test_nothing_is_a_fallback_without_spec_spot() -> None:
    plan, memory = decide(pool().pending(1, "2", "1Gi"), None, sold_out("a", "b"))
    assert growth(plan) == {"od": (1, 1)}
    assert memory.groups["od"].fallback_since == 0.0
