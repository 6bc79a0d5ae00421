"""A replacement whose new nodes are ready drains its old ones, by the
whole planner: found by tests/faults.
"""

from __future__ import annotations

import pytest

from chalicelib.model.memory import Memory
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW
from tests.unit.plan.replacement_story import FULL, machines, replacement


@pytest.mark.parametrize(
    ("old", "limit"), [(("a",), 1), (("a", "b"), 2)], ids=["one-node-of-one", "two-nodes-of-two"]
)
def test_nodes_of_a_replacement_do_not_use_its_disruption_budget_twice(
    old: tuple[str, ...], limit: int
) -> None:
    policy = Policy(
        "test",
        mode=Mode.ACTIVE,
        consolidation=FULL,
        prices=NodePrices(cpu=0.05, node=0.001),
        disruption_budgets=(DisruptionBudget("always", NodeLimit(nodes=limit)),),
    )
    row = replacement(*old, buys=len(old))
    plan, memory = plan_cluster(
        machines(*old, new=len(old)).snapshot(), policy, Memory(replacements={row.id: row}), NOW, 0
    )
    assert [(removal.node, removal.replacement) for removal in plan.removals] == [("a", row.id)]
    assert memory.replacements[row.id].state.value == "draining"
