"""Consolidation of spot nodes: the way back from on demand, shares, spot to spot,
recommendations (fixture F).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Backoff, GroupMemory, InterruptionRisk, Memory, NodeMemory
from chalicelib.model.node import Taint
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import RebalanceAction, Spot
from tests.builders import NOW, OLD, ClusterBuilder
from tests.unit.plan.consolidation_fixture import (
    Machine,
    PodCounts,
    decide,
    fixture,
    grouped,
    machines,
    pods,
    policy,
)

REBALANCE = "aws-node-termination-handler/rebalance-recommendation"
SIZE = ("4", "16Gi")
FULL: PodCounts = pods(8)


def types(**prices: float) -> dict[str, Machine]:
    """Instance types of one size at these prices; those that begin with sp are spot."""
    return {name: (*SIZE, price) for name, price in prices.items()}


def spot_fields(kinds: Mapping[str, Machine]) -> dict[str, dict[str, Any]]:
    """NodeGroup.spot of the groups of these types."""
    return {kind: {"spot": kind.startswith("sp")} for kind in kinds}


def document(
    kinds: Mapping[str, Machine], spot: Spot, *, budget: int = 100, **consolidation: Any
) -> Policy:
    """The policy of fixture F with spec.spot and prices of spot nodes."""
    prices = NodePrices(
        instance_types={
            kind: price for kind, (_, _, price) in kinds.items() if not kind.startswith("sp")
        },
        spot={kind: price for kind, (_, _, price) in kinds.items() if kind.startswith("sp")},
    )
    budgets = (DisruptionBudget("all", NodeLimit(nodes=budget)),)
    return policy(
        more={"spot": spot, "prices": prices, "disruption_budgets": budgets}, **consolidation
    )


def full_nodes(
    count: int, kind: str, kinds: Mapping[str, Machine], *, created: float = OLD
) -> ClusterBuilder:
    """So many full nodes of a type."""
    build = machines(
        {f"n{number}": (kind, FULL) for number in range(count)}, dict(kinds), created=created
    )
    return grouped(build, dict(kinds), groups=spot_fields(kinds))


# --- the way back

RETURN = types(od=0.10, sp=0.04)


def fallback(count: int = 1, **groups: GroupMemory) -> Memory:
    """Nodes that were bought because spot groups were not to be had."""
    return Memory(
        nodes={f"n{number}": NodeMemory(fallback=True) for number in range(count)}, groups=groups
    )


def interrupted(age: float) -> GroupMemory:
    """A spot group whose last interruption was so long ago."""
    return GroupMemory(risk=InterruptionRisk(counted_at=NOW, last_notice=NOW - age))


def failed(age: float) -> GroupMemory:
    """A spot group that was last out of stock so long ago."""
    return GroupMemory(backoff=Backoff(60.0, NOW - age + 60.0, NOW - age, "OutOfStock"))


@pytest.mark.parametrize("quiet", [interrupted, failed])
@pytest.mark.parametrize(("age", "goes"), [(59 * 60.0, False), (3600.0, True)])
def test_spot_13_fallback_node_returns_when_the_group_was_quiet(
    quiet: Any, age: float, goes: bool
) -> None:
    build = full_nodes(1, "od", RETURN, created=NOW - 1200.0)
    result = decide(build, document(RETURN, Spot()), fallback(sp=quiet(age)))
    assert result.bought == ({"sp": 1} if goes else {})
    if not goes:
        assert result.codes == {"n0": "SpotReturnsLater"}
        assert result.reasons["n0"].params == {"group": "sp", "until": NOW - age + 3600.0}


def test_spot_13_other_young_nodes_wait_for_their_age() -> None:
    build = full_nodes(1, "od", RETURN, created=NOW - 1200.0)
    result = decide(build, document(RETURN, Spot()), fallback(0))
    assert result.codes == {"n0": "NodeTooYoung"}


def test_spot_13_price_of_the_risk_may_keep_the_node() -> None:
    risk = GroupMemory(risk=InterruptionRisk(interruptions=30.0, hours=500.0, counted_at=NOW))
    result = decide(full_nodes(1, "od", RETURN), document(RETURN, Spot()), fallback(sp=risk))
    assert (result.bought, result.codes) == ({}, {"n0": "NotWorthDisruption"})


def test_move_shows_the_price_with_the_risk() -> None:
    result = decide(full_nodes(1, "od", RETURN), document(RETURN, Spot()))
    [move] = result.report.moves
    assert [round(purchase.price, 6) for purchase in move.purchases] == [
        round(0.04 + 24 / 720 * 0.1 / 2, 6)
    ]


def test_avoidance_that_is_longer_than_the_return_holds() -> None:
    spot = Spot(avoid_after_interruption=7200.0)
    result = decide(
        full_nodes(1, "od", RETURN), document(RETURN, spot), fallback(sp=interrupted(3700.0))
    )
    assert result.reasons["n0"].params == {"group": "sp", "until": NOW - 3700.0 + 7200.0}


# --- shares


def test_spot_19_base_keeps_nodes_on_demand() -> None:
    spot = Spot(on_demand_base=2)
    result = decide(full_nodes(3, "od", RETURN), document(RETURN, spot), fallback(3))
    assert (len(result.goes), result.bought) == (1, {"sp": 1})
    assert [code for name, code in result.codes.items() if name not in result.goes] == [
        "OnDemandBase"
    ] * 2


def test_moves_keep_the_share_of_a_spot_group() -> None:
    result = decide(full_nodes(4, "od", RETURN), document(RETURN, Spot(max_share=0.5)))
    assert (len(result.goes), result.bought) == (2, {"sp": 2})
    assert [code for name, code in result.codes.items() if name not in result.goes] == [
        "SpotShareReached"
    ] * 2


def test_share_is_kept_where_a_node_goes_without_purchase() -> None:
    kinds = types(od=0.10, sp=0.04)
    build = machines(
        {"s0": ("sp", FULL), "s1": ("sp", FULL), "o0": ("od", pods(2)), "o1": ("od", pods(2))},
        kinds,
    )
    build = grouped(build, kinds, groups=spot_fields(kinds))
    result = decide(build, document(kinds, Spot(max_share=0.5), mode=ConsolidationMode.REMOVE))
    assert (result.goes, result.codes["o0"]) == ([], "SpotShareReached")
    result = decide(build, document(kinds, Spot(), mode=ConsolidationMode.REMOVE))
    assert len(result.goes) == 1


# --- spot to spot

SPOTS = types(sp=0.05, sp1=0.01, sp2=0.012, sp3=0.014)


@pytest.mark.parametrize(
    ("kinds", "allowed", "params"),
    [
        ("sp sp1 sp2", False, {}),
        ("sp sp1 sp2", True, {"cheaper": 2, "needs": 3}),
        ("sp sp1 sp2 sp3", True, None),
    ],
)
def test_spot_17_spot_replaces_spot_only_with_enough_groups(
    kinds: str, allowed: bool, params: dict[str, int] | None
) -> None:
    chosen = {kind: SPOTS[kind] for kind in kinds.split()}
    result = decide(full_nodes(1, "sp", chosen), document(chosen, Spot(), spot_to_spot=allowed))
    assert result.bought == ({"sp1": 1} if params is None else {})
    if params is not None:
        assert (result.codes, result.reasons["n0"].params) == ({"n0": "SpotFlexibility"}, params)


def test_spot_17_avoided_groups_do_not_count_as_cheaper() -> None:
    memory = Memory(groups={"sp2": interrupted(60.0)})
    result = decide(full_nodes(1, "sp", SPOTS), document(SPOTS, Spot(), spot_to_spot=True), memory)
    assert result.bought == {}


# --- recommendations

TAINTS = (Taint(REBALANCE, "PreferNoSchedule"),)
PAYS_WITH_BONUS = types(sp=0.20, od=0.12)


@pytest.mark.parametrize("rebalance", list(RebalanceAction))
def test_spot_22_recommendation_is_worth_half_the_disruption(rebalance: RebalanceAction) -> None:
    build = machines({f"n{number}": ("sp", FULL) for number in range(10)}, PAYS_WITH_BONUS)
    build.nodes = [msgspec.structs.replace(node, taints=TAINTS) for node in build.nodes]
    build = grouped(build, PAYS_WITH_BONUS, groups=spot_fields(PAYS_WITH_BONUS))
    result = decide(build, document(PAYS_WITH_BONUS, Spot(rebalance=rebalance), budget=1))
    prefers = rebalance is RebalanceAction.PREFER
    assert result.bought == ({"od": 1} if prefers else {})
    softened = [mark.node for mark in result.plan.marks if mark.action == "soften"]
    assert len(softened) == (10 if prefers else 0)
    assert not [r for r in result.plan.removals if r.reason is DisruptionReason.INTERRUPTED]


def test_soft_taint_of_a_recommendation_needs_no_consolidation() -> None:
    kinds = types(sp=0.20)
    build = fixture({"n0": ("sp", FULL)}, kinds, groups=spot_fields(kinds))
    build.nodes = [msgspec.structs.replace(build.nodes[0], taints=TAINTS)]
    off = document(kinds, Spot(rebalance=RebalanceAction.PREFER), mode=ConsolidationMode.OFF)
    assert [mark.node for mark in decide(build, off).plan.marks] == ["n0"]
