"""price and least-cost weigh what groups have taught, where the policy wants it
(docs/reference/learning.md "Expected price")."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.scale_up.expected_prices import expected_prices, weighed
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.builders import NOW, ClusterBuilder, cluster, growth, node
from tests.unit.plan.instances_builder import group_verdict

TYPE = "node.kubernetes.io/instance-type"
PRICES = NodePrices(instance_types={"cheap": 0.10, "steady": 0.11})
EXPECTED = ScaleUp(expected_cost=True)


def taught(ready: int = 120, joined: float = 98, failed: float = 0) -> GroupMemory:
    """Return what a group has taught: all its nodes took the same time."""
    return GroupMemory(
        joins=JoinStatistics(ready=(ready,) * 20, joined=joined, failed=failed, counted_at=NOW)
    )


def two_groups() -> ClusterBuilder:
    """Two groups of equal machines; the dearer one is called after its type, too."""
    return (
        cluster()
        .group("cheap", template=node("t-cheap", "4", labels={TYPE: "cheap"}))
        .group("steady", template=node("t-steady", "4", labels={TYPE: "steady"}))
        .pending(4, "1")
    )


def planned(memory: Memory, *, expander: str = "price", scale_up: ScaleUp = EXPECTED) -> Plan:
    """Return the plan for four pods."""
    options = msgspec.structs.replace(Options(), expander=(expander,))
    policy = Policy(
        name="test", mode=Mode.ACTIVE, options=options, prices=PRICES, scale_up=scale_up
    )
    return plan_cluster(two_groups().snapshot(), policy, memory, NOW, 0)[0]


@pytest.mark.parametrize(
    ("price", "ready", "failure_rate", "amount"),
    [
        (100_000, 0, 0.0, 100_000),
        (100_000, 120, 0.0, 100_139),  # 2 minutes of 24 hours
        (100_000, 2700, 0.0, 103_125),
        (100_000, 0, 0.2, 125_000),
        (100_000, 2700, 0.2, 128_906),
        (100_000, 0, 0.98, 1_000_000),  # never more than ten times
        (0, 2700, 0.2, 0),
        (1, 0, 0.5, 2),
    ],
)
def test_expected_price_weighs_the_time_until_ready_and_failures(
    price: int, ready: int, failure_rate: float, amount: int
) -> None:
    assert weighed(price, ready, failure_rate) == amount


@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_expander_avoids_the_cheap_group_whose_nodes_often_fail(expander: str) -> None:
    failing = Memory(groups={"cheap": taught(failed=25), "steady": taught()})
    assert growth(planned(failing, expander=expander)) == {"steady": (1, 4)}
    assert growth(planned(failing, expander=expander, scale_up=ScaleUp())) == {"cheap": (1, 4)}


@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_expander_avoids_the_cheap_group_whose_nodes_take_long(expander: str) -> None:
    slow = Memory(groups={"cheap": taught(ready=3 * 3600), "steady": taught()})
    assert growth(planned(slow, expander=expander)) == {"steady": (1, 4)}
    assert growth(planned(slow, expander=expander, scale_up=ScaleUp())) == {"cheap": (1, 4)}


def test_group_of_which_nothing_is_known_is_weighed_by_its_price() -> None:
    plan = planned(Memory(groups={"steady": taught()}))
    assert growth(plan) == {"cheap": (1, 4)}
    assert group_verdict(plan, "cheap").expected_price == 100_000


def test_verdict_of_a_group_has_both_prices_only_where_they_are_weighed() -> None:
    memory = Memory(groups={"cheap": taught(failed=25), "steady": taught()})
    plan = planned(memory)
    cheap, steady = group_verdict(plan, "cheap"), group_verdict(plan, "steady")
    assert (cheap.price, cheap.expected_price) == (100_000, 125_174)
    assert (steady.price, steady.expected_price) == (110_000, 110_153)
    unweighed = planned(memory, scale_up=ScaleUp()).groups
    assert [(group.price, group.expected_price) for group in unweighed] == [(0, 0)] * 2


def test_group_without_a_price_has_no_expected_one() -> None:
    build = cluster().group("g", template=node("t", "4"))
    policy = Policy(name="test", scale_up=EXPECTED)
    state = build_cluster_state(build.snapshot(), policy, Memory(groups={"g": taught()}), NOW)
    assert expected_prices(state) == {}


@pytest.mark.parametrize(
    ("scale_up", "groups", "overlap"),
    [
        (ScaleUp(), {"cheap": taught(ready=120)}, 1042),  # 15 minutes of 24 hours
        (EXPECTED, {"cheap": taught(ready=120)}, 139),
        (EXPECTED, {}, 1042),
    ],
)
def test_overlap_of_a_replacement_is_the_learnt_time_where_it_is_weighed(
    scale_up: ScaleUp, groups: dict[str, GroupMemory], overlap: int
) -> None:
    policy = Policy(name="test", prices=PRICES, scale_up=scale_up)
    costs = Costs(build_cluster_state(two_groups().snapshot(), policy, Memory(groups=groups), NOW))
    assert costs.groups["cheap"].overlap == overlap
