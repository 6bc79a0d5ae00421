"""What is learnt of the interruptions of a spot group, and what that adds to its price."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.model.memory import GroupMemory, InterruptionNotice, InterruptionRisk, Memory
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import MICRO, NoPrice, price_book
from chalicelib.plan.scale_up.expanders import expander_context
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.state.spot_market import hazard, next_risk, risk_premium, spot_groups
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import Spot
from tests.builders import NOW, ClusterBuilder, cluster, node

HOUR, WEEK = 3600.0, 7 * 86_400.0
TYPE = "node.kubernetes.io/instance-type"
PRICES = NodePrices(instance_types={"od": 0.10}, spot={"sp": 0.04})


def state_of(
    build: ClusterBuilder, risk: InterruptionRisk | None = None, *, now: float = NOW, **policy: Any
) -> ClusterState:
    """The state of a cluster with spot group sp of this risk."""
    fields: dict[str, Any] = {"spot": Spot(), "prices": PRICES, **policy}
    memory = Memory(groups={"sp": GroupMemory(risk=risk)})
    return build_cluster_state(
        build.snapshot(), Policy("test", mode=Mode.ACTIVE, **fields), memory, now
    )


def pool_of_ten(spot_nodes: int = 0, **spot: Any) -> ClusterBuilder:
    """Nodes on demand at 0.10, and a spot group at 0.04, in one pool."""
    build = cluster()
    for number in range(10):
        build.node(f"n{number}", "4", "16Gi", group="od", labels={TYPE: "od"})
    for number in range(spot_nodes):
        build.node(f"s{number}", "4", "16Gi", group="sp", labels={TYPE: "sp"})
    build.group("od", pool=Pool("pool"))
    fields: dict[str, Any] = {"spot": True, "pool": Pool("pool"), **spot}
    return build.group("sp", template=node("new", "4", "16Gi", labels={TYPE: "sp"}), **fields)


def learnt(interruptions: float, hours: float, **more: Any) -> InterruptionRisk:
    """A risk that was counted just now."""
    return InterruptionRisk(interruptions=interruptions, hours=hours, counted_at=NOW, **more)


def next_of(
    build: ClusterBuilder, risk: InterruptionRisk | None, now: float = NOW, **policy: Any
) -> InterruptionRisk | None:
    """The risk of group sp after a pass."""
    state = state_of(build, risk, now=now, **policy)
    return next_risk(state.groups["sp"], state)


@pytest.mark.parametrize(
    ("interruptions", "price"), [(0, 0.0420), (3, 0.0479), (29, 0.0990), (30, 0.1010)], ids=str
)
def test_spot_14_effective_price_grows_with_interruptions(interruptions: int, price: float) -> None:
    # lambda * D is the mean price divided by k: 0.011111 * 9 = 0.1 = 0.10 / 1
    consolidation = Consolidation(aggressiveness=1.0)
    state = state_of(pool_of_ten(), learnt(interruptions, 500.0), consolidation=consolidation)
    premium = risk_premium(state.groups["sp"], state)
    assert round(0.04 + premium / MICRO, 4) == price
    assert (premium < 60_000) is (interruptions <= 29)


def test_premium_is_divided_by_the_aggressiveness() -> None:
    state = state_of(pool_of_ten(), learnt(30, 500.0))
    assert risk_premium(state.groups["sp"], state) == round(31 / 1220 * 24 * 100_000 / 2)


def test_spot_15_a_week_without_nodes_halves_what_was_learnt() -> None:
    risk: InterruptionRisk | None = learnt(3.0, 500.0)
    for day in range(1, 8):
        risk = next_of(pool_of_ten(), risk, NOW + day * WEEK / 7)
    assert risk is not None
    assert (round(risk.interruptions, 4), round(risk.hours, 3)) == (1.5, 250.0)
    assert (
        round(float(hazard(state_of(pool_of_ten()).groups["sp"].group, GroupMemory(risk=risk))), 6)
        == 0.002577
    )


def test_spot_16_vendors_rate_stands_in_place_of_the_prior() -> None:
    state, rated = state_of(pool_of_ten()), state_of(pool_of_ten(interruption_rate=0.1))
    assert float(hazard(state.groups["sp"].group, GroupMemory())) == pytest.approx(1 / 720)
    assert float(hazard(rated.groups["sp"].group, GroupMemory())) == pytest.approx(0.1 / 720)


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan"), float("inf")])
def test_impossible_rate_of_a_vendor_counts_as_none(rate: float) -> None:
    state = state_of(pool_of_ten(interruption_rate=rate))
    assert float(hazard(state.groups["sp"].group, GroupMemory())) == pytest.approx(1 / 720)


def test_hours_of_nodes_accumulate() -> None:
    risk = next_of(pool_of_ten(4), learnt(0.0, 0.0, nodes=4), NOW + 2 * HOUR)
    assert risk == InterruptionRisk(counted_at=NOW + 2 * HOUR, nodes=4, hours=8.0)


def test_a_pass_counts_a_day_at_most() -> None:
    day, years = (
        next_of(pool_of_ten(5), learnt(3.0, 500.0, nodes=5), NOW + days * 86_400.0)
        for days in (1, 3650)
    )
    assert day is not None
    assert years == msgspec.structs.replace(day, counted_at=NOW + 3650 * 86_400.0)
    assert 572.0 < day.hours < 573.0  # 500 less a seventh of a half-life, and 5 nodes for 24 h
    assert 2.71 < day.interruptions < 2.72


@pytest.mark.parametrize(("seconds", "written"), [(60.0, False), (3599.0, False), (3600.0, True)])
def test_memory_is_written_once_an_hour_while_nothing_happens(
    seconds: float, written: bool
) -> None:
    before = learnt(2.0, 100.0, nodes=4)
    assert (next_of(pool_of_ten(4), before, NOW + seconds) is not before) is written


def test_group_without_nodes_and_history_writes_nothing() -> None:
    before = learnt(0.001, 0.5)
    assert next_of(pool_of_ten(), None) is None
    assert next_of(pool_of_ten(), before, NOW + WEEK) is before


def test_node_with_a_notice_that_is_gone_was_interrupted() -> None:
    notices = {"gone": InterruptionNotice(NOW - 200.0, NOW - 20.0)}
    risk = next_of(
        pool_of_ten(1), learnt(2.0, 100.0, nodes=2, last_notice=NOW - 200.0, notices=notices)
    )
    assert risk == learnt(3.0, 100.0, nodes=1, last_notice=NOW - 200.0)


def test_count_from_a_wrong_clock_starts_again() -> None:
    before = msgspec.structs.replace(
        learnt(2.0, 100.0, nodes=1, last_notice=NOW + 900.0), counted_at=NOW + 900.0
    )
    risk = next_of(pool_of_ten(1), before)
    assert risk == learnt(2.0, 100.0, nodes=1, last_notice=NOW)


def test_nothing_is_learnt_without_spec_spot() -> None:
    snapshot, policy = pool_of_ten(4).snapshot(), Policy("test", mode=Mode.ACTIVE, prices=PRICES)
    _, memory = plan_cluster(snapshot, policy, Memory(), NOW, 0)
    assert memory.groups["sp"].risk is None
    state = state_of(pool_of_ten(4), learnt(30, 500.0), spot=None)
    assert risk_premium(state.groups["sp"], state) == 0


def test_premium_of_the_first_node_counts_its_own_price() -> None:
    build = cluster().group("sp", spot=True, template=node("new", "4", "16Gi", labels={TYPE: "sp"}))
    state = state_of(build)
    assert risk_premium(state.groups["sp"], state) == round(24 / 720 * 40_000 / 2)


# --- which groups are spot


@pytest.mark.parametrize(
    "label",
    [
        ("node.alibabacloud.com/spot-strategy", "SpotAsPriceGo"),
        ("cce.io/is-spot", "true"),
        ("cluster.x-k8s.io/interruptible", ""),
        ("karpenter.sh/capacity-type", "spot"),
    ],
)
def test_label_makes_a_group_spot(label: tuple[str, str]) -> None:
    build = (
        cluster()
        .group("g", template=node("new", labels=dict([label])))
        .group("h", template=node("other"))
    )
    assert spot_groups(state_of(build)) == {"g"}


def test_label_of_one_node_does_not_make_its_whole_group_spot() -> None:
    build = (
        cluster()
        .node("a", group="g", labels={"karpenter.sh/capacity-type": "spot"})
        .node("b", group="g")
    )
    assert spot_groups(state_of(build.group("g"))) == set()
    build = (
        cluster()
        .node("a", group="g", labels={"karpenter.sh/capacity-type": "spot"})
        .group("g", spot=True)
    )
    assert spot_groups(state_of(build)) == {"g"}


def test_group_that_only_its_nodes_called_spot_stays_spot_without_them() -> None:
    policy = Policy("test", mode=Mode.ACTIVE, spot=Spot(), prices=PRICES)
    build = (
        cluster()
        .node("a", "4", "16Gi", group="g", labels={"karpenter.sh/capacity-type": "spot"})
        .group("g")
    )
    _, memory = plan_cluster(build.snapshot(), policy, Memory(), NOW, 0)
    before = msgspec.structs.replace(learnt(3.0, 500.0, nodes=1), last_notice=NOW - 60.0)
    groups = {"g": msgspec.structs.replace(memory.groups["g"], risk=before)}
    memory = msgspec.structs.replace(memory, groups=groups)
    for minutes in (1, 2):
        _, memory = plan_cluster(
            cluster().group("g", target=0).snapshot(), policy, memory, NOW + 60.0 * minutes, 0
        )
    risk = memory.groups["g"].risk
    assert risk is not None
    assert (round(risk.interruptions, 2), risk.nodes, risk.last_notice) == (3.0, 0, NOW - 60.0)
    own = cluster().group("g", target=0, template=node("new"))  # what the provider says now counts
    assert (
        spot_groups(build_cluster_state(own.snapshot(), policy, memory, NOW + 180.0)) == frozenset()
    )


NAMES = [
    ("by id", ("sp",), {"sp"}),
    ("by pool", ("pool",), {"od", "sp"}),
    ("by alias", ("cheap",), {"sp"}),
    ("unknown", ("x",), set[str]()),
]


@pytest.mark.parametrize(
    ("names", "chosen"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES]
)
def test_named_groups_are_spot_and_no_others(names: tuple[str, ...], chosen: set[str]) -> None:
    build = pool_of_ten(aliases=("cheap",)).group("elsewhere", spot=True)
    state = state_of(build, spot=Spot(groups=names))
    assert spot_groups(state) == chosen
    assert {name for name, group in state.groups.items() if group.group.spot} == chosen


def test_name_that_two_pools_have_names_none() -> None:
    build = cluster().group("a/x").group("b/x")
    assert spot_groups(state_of(build, spot=Spot(groups=("x",)))) == frozenset()


# --- prices


def price_of(prices: NodePrices | None, *, spot: bool = True, own: float = 0.0) -> float | None:
    """The price of a node of type sp in a spot group."""
    [group] = cluster().group("g", spot=True, price=own).groups
    machine = node("n", labels={TYPE: "sp"})
    book = price_book(prices, [group], spot=spot)
    price, exact = book.of_node(machine, group), book.hourly(machine, group)
    assert (None if isinstance(price, NoPrice) else price.hourly) == (exact and round(exact, 6))
    return exact


BOTH = NodePrices(instance_types={"sp": 0.10}, spot={"sp": 0.04}, node=0.01)
ON_DEMAND = NodePrices(instance_types={"sp": 0.10}, node=0.01)
PRICE_ROWS = [
    ("list of spot", BOTH, True, 0.06, 0.05),
    ("list of spot without spec.spot", BOTH, False, 0.06, 0.05),
    ("provider", ON_DEMAND, True, 0.06, 0.07),
    ("SPOT_24 as dear as on demand", ON_DEMAND, True, 0.0, 0.11),
    ("as ever without spec.spot", ON_DEMAND, False, 0.06, 0.11),
    ("no price", NodePrices(spot={"other": 1.0}), True, 0.0, None),
]


@pytest.mark.parametrize(
    ("prices", "spot", "own", "price"),
    [row[1:] for row in PRICE_ROWS],
    ids=[row[0] for row in PRICE_ROWS],
)
def test_price_of_a_spot_node(
    prices: NodePrices, spot: bool, own: float, price: float | None
) -> None:
    assert price_of(prices, spot=spot, own=own) == (None if price is None else pytest.approx(price))


def test_list_of_spot_prices_does_not_concern_nodes_on_demand() -> None:
    [group] = cluster().group("g").groups
    book = price_book(BOTH, [group], spot=True)
    assert book.hourly(node("n", labels={TYPE: "sp"}), group) == pytest.approx(0.11)


@pytest.mark.parametrize(
    ("spot", "price"), [(Spot(), 0.041667), (None, 0.04)], ids=["with its risk", "no spec.spot"]
)
def test_expanders_see_the_spot_price(spot: Spot | None, price: float) -> None:
    listed = NodePrices(instance_types={"od": 0.10, "sp": 0.10}, spot={"sp": 0.04})
    context = expander_context(state_of(pool_of_ten(), prices=listed, spot=spot), 0)
    assert context.price_of("sp", node("new", labels={TYPE: "sp"})) == price
    assert context.price_of("od", node("new", labels={TYPE: "od"})) == 0.10
