"""What limits a consolidation beside prices and room: budgets, sizes, totals, headroom, rules,
pending pods (fixture F)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Pool
from chalicelib.model.memory import BreakerState, Memory
from chalicelib.model.node import Taint
from chalicelib.model.pod import Toleration
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.model.snapshot import MissingData
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.spot import Spot
from tests.builders import NOW, cluster, having, node
from tests.unit.plan.consolidation_fixture import (
    TYPE,
    Machine,
    P,
    PodCounts,
    Result,
    decide,
    fixture,
    grouped,
    machines,
    one_beside_a_full_one,
    pods,
    policy,
    three_halves,
)

GIB = 2**30


def test_cons_02_disruption_budget_limits_how_many_nodes_go_at_once() -> None:
    document = policy(more={"disruption_budgets": (DisruptionBudget("one", NodeLimit(nodes=1)),)})
    result = decide(fixture(three_halves()), document)
    assert (result.removed, result.sums) == (["a"], (0.20, 3.0, 0.10, 1.0))
    assert result.codes["b"] == "DisruptionBudget"
    assert result.reasons["b"].params == {"budget": "one", "limit": 1}


def test_cons_20_nodes_whose_pods_share_a_disruption_do_not_go_together() -> None:
    build = machines({name: ("m", pods(1)) for name in "ab"} | {"c": ("m", pods(2))})
    for name in "ab":
        build.running(name, 1, *P, owner="db")
    build.budget("db", 1, having(app="db"))
    result = decide(grouped(build))
    assert (result.goes, result.removed, result.sums) == (
        ["a", "c"],
        ["a", "c"],
        (0.40, 6.0, 0.20, 1.0),
    )
    assert result.codes == {"b": "BlockedByPod"}
    assert result.reasons["b"].params["rule"] == "NotEnoughPdb"
    assert str(result.reasons["b"].params["budget"]).endswith("db")


def test_cons_21_pod_under_two_disruption_budgets_keeps_its_node() -> None:
    build = machines({"a": ("m", pods(1)), "b": ("m", pods(2)), "c": ("m", pods(2))})
    build.running("a", 1, *P, owner="db").budget("one", 5, having(app="db")).budget(
        "two", 5, having(app="db")
    )
    result = decide(grouped(build))
    assert (result.goes, result.codes) == (["b", "c"], {"a": "BlockedByPod"})
    assert result.reasons["a"].params["rule"] == "NotEnoughPdb"


def test_cons_22_priority_and_deletion_cost_change_the_disruption_of_a_pod() -> None:
    build = machines({"a": ("m", ())})
    for more in (
        {"priority": -33_554_432},
        {"deletion_cost": "134217728"},
        {"priority": 1_000_000_000},
        {"deletion_cost": "-2147483648"},
    ):
        build.running("a", 1, *P, **more)
    # Such a low priority would make the pod expendable.
    [pool] = decide(
        grouped(build), policy(options={"expendable_pods_priority_cutoff": -(10**9)})
    ).report.pools
    assert pool.disruption == 13.0


@pytest.mark.parametrize(
    "more", [{"deletion_cost": "2147483647"}, {"deletion_cost": "-2147483648"}, {"priority": 999}]
)
def test_costs_of_one_tenants_pods_do_not_change_what_other_nodes_are_worth(
    more: dict[str, Any],
) -> None:
    def rate(**costs: Any) -> float:
        build = machines({"a": ("m", pods(1)), "b": ("m", ())})
        build.running("b", 4, *P, namespace="tenant", **costs)
        [pool] = decide(grouped(build)).report.pools
        return pool.rate

    assert rate(**more) == rate()


@pytest.mark.parametrize(
    "deletion_cost",
    [
        "",
        "-",
        "--5",
        "5-",
        "+5",
        "1e3",
        "\u0661",
        "2147483648",
        "-2147483649",
        "9" * 5000,
        " 7",
        "x",
    ],
)
def test_deletion_cost_that_is_no_32_bit_integer_counts_as_none(deletion_cost: str) -> None:
    build = machines({"a": ("m", ())})
    build.running("a", 1, *P, deletion_cost=deletion_cost)
    [pool] = decide(grouped(build)).report.pools
    assert pool.disruption == 2.0


@pytest.mark.parametrize(("least", "goes"), [(3, []), (2, ["a"])])
def test_cons_27_group_keeps_its_minimum(least: int, goes: list[str]) -> None:
    result = decide(fixture(three_halves(), grows=["m"], groups={"m": {"min": least}}))
    assert (result.goes, result.removed) == (goes, goes)
    assert result.codes == dict.fromkeys(
        [name for name in "abc" if name not in goes], "NodeGroupMinSizeReached"
    )
    if not goes:
        assert [reason.params for reason in result.reasons.values()] == [
            {"min": 3, "target": 3}
        ] * 3


def test_cons_28_pool_without_room_for_one_more_node_is_not_bought_for() -> None:
    result = decide(fixture(one_beside_a_full_one(), pool=Pool("pool", max=2)))
    assert (result.report.moves, result.codes["a"]) == ((), "PoolMaxSizeReached")
    assert result.reasons["a"].params["max"] == 2


def test_cons_29_cluster_without_room_for_one_more_node_buys_nothing() -> None:
    result = decide(fixture(one_beside_a_full_one()), policy(options={"max_nodes_total": 2}))
    assert (result.report.moves, result.codes["a"]) == ((), "MaxNodesTotalReached")
    assert result.reasons["a"].params == {"max": 2}


def test_cons_29_maximum_of_the_cluster_does_not_stop_removals() -> None:
    result = decide(fixture(three_halves()), policy(options={"max_nodes_total": 3}))
    assert (result.removed, result.sums) == (["a", "b"], (0.40, 6.0, 0.20, 1.0))


def test_cons_30_consolidation_stays_within_the_share_and_does_not_trip_the_breaker() -> None:
    nodes: dict[str, tuple[str, PodCounts]] = {name: ("m", pods(1)) for name in "abc"}
    nodes |= {f"full-{at}": ("m", pods(7)) for at in range(5)}
    document = policy(more={"max_disruption": MaxDisruption(share=0.25)})
    result = decide(fixture(nodes, grows=["m"]), document)
    assert result.removed == ["a", "b"]
    assert (result.codes["c"], result.reasons["c"].params["limit"]) == ("MaxDisruption", 2)
    assert (result.memory.breaker.tripped_at, result.plan.paused) == (0.0, None)


def test_cons_31_nodes_removed_within_the_hour_leave_less_room() -> None:
    document = policy(more={"max_disruption": MaxDisruption(nodes_per_hour=5)})
    memory = Memory(breaker=BreakerState(removals=((NOW - 1800.0, 4, 8),)))
    result = decide(fixture(three_halves()), document, memory)
    assert (result.removed, result.codes["b"]) == (["a"], "MaxDisruption")
    assert result.reasons["b"].params == {
        "what": "nodes per hour",
        "limit": 5,
        "until": NOW + 1800.0,
    }


def test_cons_32_the_better_of_two_nodes_goes_if_the_hour_has_room_for_one() -> None:
    build = machines(
        {"a": ("m", ((7, "250m", "1Gi"),)), "b": ("m", ((5, "250m", "1Gi"),)), "x": ("l", ())}
    )
    build.running("x", 4, *P, do_not_disrupt="true")
    document = policy(more={"max_disruption": MaxDisruption(pods_per_hour=10)})
    result = decide(grouped(build), document)
    assert (result.rate, result.removed, result.sums[:3]) == (
        0.021053,
        ["b"],
        (0.20, 6.0, 0.073684),
    )
    assert (result.codes["a"], result.codes["x"]) == ("MaxDisruption", "DoNotDisrupt")
    assert (result.reasons["a"].params["what"], result.reasons["a"].params["limit"]) == (
        "pods per hour",
        10,
    )


def test_cons_33_headroom_keeps_the_node_that_it_needs() -> None:
    document = policy(more={"headroom": (Headroom("spare", pods=2, cpu=1000, memory=2 * GIB),)})
    result = decide(fixture(three_halves()), document)
    assert (result.removed, result.bought, result.sums) == (["a"], {}, (0.20, 3.0, 0.10, 1.0))
    assert result.codes["b"] == "HeadroomNeedsNode"
    assert result.reasons["b"].params == {"headroom": "spare"}


def test_cons_34_metric_rule_keeps_the_node_that_it_would_buy_again() -> None:
    rule = Rule("cpu", ("pool",), metric=Metric.CPU, above=70)
    result = decide(fixture(three_halves()), policy(more={"rules": (rule,)}))
    assert (result.removed, result.bought, result.sums) == (["a"], {}, (0.20, 3.0, 0.10, 1.0))
    assert result.codes["b"] == "RuleNeedsNode"
    assert result.reasons["b"].params == {"rule": "cpu", "metric": "cpu", "rate": 75.0, "above": 70}


def test_cons_35_pool_is_left_alone_while_one_of_its_pods_has_no_place() -> None:
    build = machines(three_halves()).pending(1, "1", "2Gi")
    result = decide(grouped(build))
    assert (result.report.moves, result.plan.removals, result.plan.fits_existing) == (
        (),
        (),
        ("default/p-00006",),
    )
    assert result.codes == dict.fromkeys("abc", "PromisedToPendingPods")
    assert {reason.params["pod"] for reason in result.reasons.values()} == {"default/p-00006"}


def test_cons_35_other_pools_are_consolidated_while_a_pod_has_no_place() -> None:
    selector = {"place": "other"}
    build = machines(dict.fromkeys("abc", ("m", ()))).pending(1, "1", "2Gi", node_selector=selector)
    for name in "abc":
        build.running(name, 2, *P)
    build.node("x", "1", "2Gi", group="other", labels=selector)
    result = decide(grouped(build).group("other", max=1))
    assert (result.removed, result.plan.fits_existing) == (["a", "b"], ("default/p-00000",))


def test_cons_36_removals_wait_after_a_scale_up_for_pods() -> None:
    result = decide(fixture(three_halves()), policy(), Memory(last_scale_up=NOW - 300.0))
    assert (result.report.moves, result.codes) == ((), dict.fromkeys("abc", "InCooldown"))
    assert {reason.params["until"] for reason in result.reasons.values()} == {NOW + 300.0}


def test_limits_that_are_exceeded_already_do_not_stop_other_pools() -> None:
    build = machines(three_halves())
    for name in ("low-1", "busy-1"):
        build.node(name, "4", "16Gi", group=name[:-2], taints=(Taint("only", "NoSchedule"),))
    build.running("busy-1", 1, "3500m", "1Gi", tolerations=(Toleration(operator="Exists"),))
    build = grouped(build).group("low", min=2, max=5).group("busy", max=1)
    rule = Rule("cpu", ("busy",), metric=Metric.CPU, above=70)
    result = decide(build, policy(more={"rules": (rule,)}))
    assert result.removed == ["a", "b"]


def _components(saves: Mapping[str, float]) -> Result:
    """For each name a pool with a node of that name that one cheaper node can replace.
    saves: part of its price."""
    build = machines({})
    prices: dict[str, Machine] = {}
    for name, part in saves.items():
        old, new, place = f"x-{name}", f"t-{name}", {"place": name}
        prices |= {old: ("4", "16Gi", 0.20), new: ("2", "8Gi", 0.20 * (1 - part))}
        for member, count, cpu in ((name, 1, "500m"), (f"full-{name}", 35, "110m")):
            build.node(member, "4", "16Gi", group=old, labels={TYPE: old, **place})
            build.running(member, count, cpu, "100Mi", node_selector=place)
        build.group(old, max=2, pool=Pool(name))
        build.group(
            new,
            max=10,
            pool=Pool(name),
            template=node(new, "2", "8Gi", labels={TYPE: new, **place}),
        )
    return decide(build, policy(prices))


def test_cons_59_component_that_saves_too_little_leaves_the_others_as_they_are() -> None:
    parts = {"a": 0.5, "b": 0.4, "c": 0.095, "d": 0.3}
    result = _components(parts)
    assert (result.goes, result.codes["c"]) == (["a", "b", "d"], "SavingsTooSmall")
    gains = {move.nodes[0]: move.gain for move in result.report.moves}
    alone = {name: _components({name: parts[name]}).report.moves[0].gain for name in "abd"}
    assert gains == alone


@pytest.mark.parametrize(
    ("groups", "considered"),
    [
        (("MachineDeployment/default/workers",), True),
        (("workers",), True),
        (("others",), False),
        (("unknown",), False),
    ],
)
def test_groups_may_be_named_by_the_last_part_of_their_id(
    groups: tuple[str, ...], considered: bool
) -> None:
    build = cluster()
    for name, group in (("a", "workers"), ("b", "others")):
        build.node(
            name, "4", "16Gi", group=f"MachineDeployment/default/{group}", labels={TYPE: "m"}
        )
        build.running(name, 2, "500m", "2Gi")
    for group in ("workers", "others"):
        build.group(f"MachineDeployment/default/{group}", max=10)
    result = decide(build, policy(groups=groups))
    assert (result.codes.get("a") != "ConsolidationOff") is considered


@pytest.mark.parametrize(
    ("mode", "gaps", "warned"),
    [
        (
            ConsolidationMode.FULL,
            (),
            [("disruption budget night", "nope"), ("consolidation.groups", "lost")],
        ),
        (ConsolidationMode.OFF, (), [("disruption budget night", "nope")]),
        (ConsolidationMode.FULL, ("provider/exoscale",), []),
    ],
)
def test_name_that_no_pool_has_is_a_warning(
    mode: ConsolidationMode, gaps: tuple[str, ...], warned: list[tuple[str, str]]
) -> None:
    budget = DisruptionBudget("night", NodeLimit(nodes=0), groups=("m", "nope", "pool"))
    document = policy(mode=mode, groups=("m", "lost"), more={"disruption_budgets": (budget,)})
    build = fixture(three_halves())
    build.more["gaps"] = tuple(MissingData(kind, "no answer") for kind in gaps)
    notes = [
        note.params
        for note in decide(build, document).plan.notes
        if note.code is ReasonCode.POOL_UNKNOWN
    ]
    assert [(note["where"], note["name"]) for note in notes] == warned


def test_name_in_node_lifecycle_or_spot_that_no_pool_has_is_a_warning() -> None:
    rule = RepairRule("KernelDeadlock", 600.0, groups=("m", "lost"))
    document = policy(
        mode=ConsolidationMode.OFF,
        more={
            "node_lifecycle": NodeLifecycle(groups=("old", "m"), repair=(rule,)),
            "spot": Spot(groups=("cheap",)),
        },
    )
    plan = decide(fixture(three_halves()), document).plan
    notes = [note.params for note in plan.notes if note.code is ReasonCode.POOL_UNKNOWN]
    assert [(note["where"], note["name"]) for note in notes] == [
        ("nodeLifecycle.groups", "old"),
        ("nodeLifecycle.repair of KernelDeadlock", "lost"),
        ("spot.groups", "cheap"),
    ]


def test_removals_of_unneeded_nodes_stand_where_consolidation_runs_out_of_time() -> None:
    """The clock jumps once the first function of consolidation is entered."""
    build = fixture({"a": ("m", pods(2)), "b": ("m", pods(2)), "c": ("m", pods(2))})
    document = policy(options={"scale_down_unneeded_time": 0.0, "max_drain_parallelism": 1})
    entered = False

    def record(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered |= event == "call" and frame.f_code.co_filename.endswith(
            "/methods/consolidation.py"
        )

    sys.setprofile(record)
    try:
        plan, memory = plan_cluster(
            build.snapshot(),
            document,
            Memory(),
            NOW,
            0,
            clock=lambda: 1e6 if entered else 0.0,
            within=80.0,
        )
    finally:
        sys.setprofile(None)
    assert entered
    assert [removal.reason for removal in plan.removals] == [DisruptionReason.UNNEEDED]
    assert len([node for node in memory.nodes.values() if node.unneeded_since]) == 2
