"""POOL_54 in the planner: nodes of retiring groups go when an operator has asked for it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import DRAIN_FOR, GroupMemory, Memory, NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.plan import Plan
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW
from tests.unit.plan.managed_offers import GENERAL, OfferedCluster, entries, title

GONE = "its declaration is gone"
LONG_AGO = NOW - 3600.0
DRAINED = {"general": NOW - 60}
REPORTED = NodeLifecycle(drift=DriftAction.REPORT)


class RetiringCluster(OfferedCluster):
    """Group s2 retires and has full nodes; the other types could be bought."""

    def __init__(self, nodes: int = 3, *, retiring: str = GONE, pods_of: int = 2) -> None:
        super().__init__(GENERAL, catalogue=entries("z1"))
        self.retiring = retiring
        self.opened("s2", nodes)
        self.options["scale_down_unneeded_time"] = 1e6
        (group,) = self.groups_of_pools()[0]
        self.retired = group.id
        self.names = [instance.node for instance in group.instances]
        for name in self.names:
            self.running(name, pods_of, "1", "4Gi", owner=name)

    def groups_of_pools(self) -> tuple[list[NodeGroup], list[NodeGroup], list[Node]]:
        """See OfferedCluster; groups that exist retire."""
        existing, candidates, nodes = super().groups_of_pools()
        retired = []
        for group in existing:
            assert group.managed is not None
            instances = tuple(
                msgspec.structs.replace(instance, outdated=self.retiring)
                for instance in group.instances
            )
            managed = msgspec.structs.replace(group.managed, retiring=self.retiring)
            most = group.target if self.retiring else group.max
            retired.append(
                msgspec.structs.replace(group, instances=instances, managed=managed, max=most)
            )
        return retired, candidates, nodes

    def asked(self, drains: Mapping[str, float]) -> Memory:
        """The memory of a pass long ago, with an operator's requests."""
        nodes = {name: NodeMemory(drifted_since=LONG_AGO) for name in self.names}
        groups = {self.retired: GroupMemory(first_seen=LONG_AGO, target=len(self.names))}
        return Memory(drains=dict(drains), nodes=nodes, groups=groups, first_seen=LONG_AGO)


def touched(plan: Plan) -> int:
    """Nodes that go now, or for whose pods a node is bought."""
    return len(plan.removals) + len(plan.scale_ups)


@pytest.mark.parametrize("lifecycle", [None, NodeLifecycle(drift=DriftAction.OFF), REPORTED])
def test_pool_54_a_retiring_group_is_not_drained_by_itself(
    lifecycle: NodeLifecycle | None,
) -> None:
    case = RetiringCluster()
    case.policy["node_lifecycle"] = lifecycle
    assert touched(case.decided(case.asked({}))[0]) == 0


@pytest.mark.parametrize("lifecycle", [None, NodeLifecycle(drift=DriftAction.OFF), REPORTED])
def test_pool_54_a_drained_node_is_replaced_whatever_drift_says(
    lifecycle: NodeLifecycle | None,
) -> None:
    case = RetiringCluster()
    case.policy["node_lifecycle"] = lifecycle
    plan, after = case.decided(case.asked(DRAINED))
    assert case.bought(plan) == {"c4": 1}, "the cheapest that takes two pods of 1 core and 4 GiB"
    (row,) = after.replacements.values()
    assert row.reason.value == "drifted"
    assert len(row.nodes) == 1, "one by one, by the budgets"


def test_pool_54_a_drained_node_goes_at_once_where_its_pods_have_room() -> None:
    case = RetiringCluster(pods_of=1)
    plan, _ = case.decided(case.asked(DRAINED))
    assert [removal.reason.value for removal in plan.removals] == ["drifted"]
    assert plan.scale_ups == ()


def test_pool_54_a_budget_of_nothing_holds_a_drain() -> None:
    case = RetiringCluster()
    case.policy["disruption_budgets"] = (DisruptionBudget("none", NodeLimit(nodes=0)),)
    plan, _ = case.decided(case.asked(DRAINED))
    assert touched(plan) == 0
    held = [verdict.held.code.value for verdict in plan.lifecycle if verdict.held is not None]
    assert held == ["DisruptionBudget"] * 3


def test_pool_54_a_drain_is_confirmed_by_a_later_pass() -> None:
    case = RetiringCluster()
    fresh = msgspec.structs.replace(case.asked(DRAINED), nodes={})
    plan, after = case.decided(fresh)
    assert touched(plan) == 0
    assert {after.nodes[name].drifted_since for name in case.names} == {NOW}


@pytest.mark.parametrize(
    ("drains", "retiring"),
    [
        ({"general": NOW - DRAIN_FOR}, GONE),
        ({"general": NOW + 600}, GONE),
        ({"gpu": NOW - 60}, GONE),
        (DRAINED, ""),
    ],
    ids=["too old", "from the future", "of another pool", "a group that does not retire"],
)
def test_pool_54_a_drain_ends_and_is_of_retiring_groups_only(
    drains: dict[str, float], retiring: str
) -> None:
    case = RetiringCluster(retiring=retiring)
    plan, after = case.decided(case.asked(drains))
    assert touched(plan) == 0
    assert not any(after.nodes[name].drifted_since for name in case.names if name in after.nodes)


def test_pool_54_a_drained_node_goes_whatever_its_successor_costs() -> None:
    case = RetiringCluster()
    case.entries = tuple(
        msgspec.structs.replace(entry, price=entry.price if entry.name == "s2" else 50.0)
        for entry in case.entries
        if entry.price is not None
    )
    plan, _ = case.decided(case.asked(DRAINED))
    assert sum(case.bought(plan).values()) == 1


@pytest.mark.parametrize(("drains", "closed"), [({}, 0), (DRAINED, 1)])
def test_pool_54_a_drained_group_is_deleted_when_it_is_empty(
    drains: dict[str, float], closed: int
) -> None:
    case = RetiringCluster(nodes=0)
    groups = {case.retired: GroupMemory(empty_since=NOW - 20, first_seen=LONG_AGO)}
    plan, _ = case.decided(Memory(drains=dict(drains), groups=groups))
    assert [closing.group for closing in plan.closings] == [case.retired] * closed
    assert [title(group) for group in case.groups_of_pools()[0]] == ["s2"]


def test_pool_54_an_annotation_holds_a_drained_node() -> None:
    case = RetiringCluster(nodes=0)
    case.opened("s2", 1)
    (group,) = case.groups_of_pools()[0]
    case.names = [instance.node for instance in group.instances]
    case.running(case.names[0], 1, "1", "4Gi", owner="a", do_not_disrupt="true")
    plan, _ = case.decided(case.asked(DRAINED))
    assert touched(plan) == 0
    assert [verdict.held and verdict.held.code.value for verdict in plan.lifecycle] == [
        "DoNotDisrupt"
    ]
