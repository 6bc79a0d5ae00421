"""Nodes that scale-down could remove, as rows of the simulated cluster, for scale-up to prefer the nodes that stay."""

from __future__ import annotations

from chalicelib.model.memory import NodeMemory
from chalicelib.plan.scale_down.eligibility import ineligible
from chalicelib.plan.scale_down.pdb_tracker import BudgetLedger
from chalicelib.plan.scale_down.removal_simulation.drainability import Holding, Moves
from chalicelib.plan.scale_down.utilization import Usage
from chalicelib.plan.simulation.simulated_cluster import Floor
from chalicelib.plan.state.cluster_state import World


def removable_rows(world: World, floor: Floor) -> frozenset[int]:
    """Rows of the eligible nodes whose pods may all be moved. No removal is simulated."""
    usage, holding = Usage(world), Holding(world, BudgetLedger(world.snapshot.budgets, world.snapshot.classes))
    return frozenset(
        floor.table.index[node.name]
        for node in world.snapshot.nodes
        if node.name in floor.table.index
        and ineligible(node, world.memory.nodes.get(node.name, NodeMemory()), world, usage) is None
        and isinstance(holding.of(node), Moves)
    )
