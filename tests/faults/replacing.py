"""A run in which one node is replaced: the search is a fake, so that what it wants is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from chalicelib.model.memory import NodeMemory
from chalicelib.model.plan import ConsolidationReport
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal import removal_planner as planner
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext
from chalicelib.plan.removal.methods.consolidation import ConsolidationResult
from chalicelib.plan.removal.replacement_rows import softly_tainted
from chalicelib.plan.removal.replacements import advance
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.state.cluster_state import ClusterState
from tests.faults.run_state import FaultRun

LARGE, SMALL = "MachineDeployment/default/large", "MachineDeployment/default/small"
PRICE, COST = 400_000, 200_000


def replace_one_large_node(
    context: DisruptionContext,
    commands: Sequence[DisruptionCommand],
    nodes: Mapping[str, NodeMemory],
) -> ConsolidationResult:
    """Want a small node in place of a large one as long as there are two large ones, and find
    nothing wrong with it later. See consolidate."""
    state = context.state
    large = sorted(
        node.name for node in state.groups[LARGE].nodes if node.name not in state.leaving
    )
    wanted = len(state.groups[LARGE].nodes) > 1 and large and not state.memory.replacements
    advanced = advance(
        state,
        context.simulated,
        context.removal_limits,
        lambda names, cost: _judged(names, cost, state),
        lambda row: _judged(row.nodes, row.cost, state),
        reservation=context.reservation,
        proposals=[_move(large[:1], COST, state, {SMALL: 1})] if wanted and not commands else [],
    )
    return ConsolidationResult(
        advanced.commands,
        ConsolidationReport("full"),
        advanced.rows,
        state.memory.consolidation,
        dict(nodes),
        softly_tainted(advanced.rows.values()),
    )


def _judged(nodes: Sequence[str], cost: int, state: ClusterState) -> JudgedMove | Reason:
    if any(name in state.leaving or name not in state.group_of for name in nodes):
        return Reason.of(ReasonCode.BEING_DELETED)
    return _move(nodes, cost, state)


def _move(
    nodes: Sequence[str], cost: int, state: ClusterState, purchases: dict[str, int] | None = None
) -> JudgedMove:
    by_name = {node.name: node for node in state.snapshot.nodes}
    removals = tuple(
        SimulatedRemoval(
            by_name[name], state.group_of[name], tuple(p.key for p in state.occupancy.on(name)), {}
        )
        for name in nodes
    )
    return JudgedMove(removals, purchases or {}, PRICE * len(nodes), cost, 3.0, 10_000, 1.0, LARGE)


class ReplacementRun(FaultRun):
    """A run with consolidation, and without removals of unneeded nodes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(
            seed, consolidates=True, age=0.0, scaleDownUnneededTime="3h", scaleDownUnreadyTime="3h"
        )


@contextmanager
def replacing() -> Iterator[ReplacementRun]:
    """A run whose passes replace one large node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "consolidate", replace_one_large_node)
        with ReplacementRun(1) as run:
            yield run
