"""Nodes that scale-down could remove, as rows of the simulated cluster, for scale-up to prefer the nodes that stay."""

from __future__ import annotations

from chalicelib.model.memory import NodeMemory
from chalicelib.plan.scale_down.eligibility import ineligibility_reason
from chalicelib.plan.scale_down.pdb_tracker import PdbTracker
from chalicelib.plan.scale_down.removal_simulation.drainability import DrainabilityChecker, PodsToMove
from chalicelib.plan.scale_down.utilization import Usage
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState


def removable_rows(state: ClusterState, simulated: SimulatedCluster) -> frozenset[int]:
    """Rows of the eligible nodes whose pods may all be moved. No removal is simulated."""
    usage, holding = (
        Usage(state),
        DrainabilityChecker(state, PdbTracker(state.snapshot.budgets, state.snapshot.classes)),
    )
    return frozenset(
        simulated.table.index[node.name]
        for node in state.snapshot.nodes
        if node.name in simulated.table.index
        and ineligibility_reason(node, state.memory.nodes.get(node.name, NodeMemory()), state, usage) is None
        and isinstance(holding.of(node), PodsToMove)
    )
