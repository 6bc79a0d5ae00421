"""A run in which one node is replaced: the method of consolidation is a fake, so that what it wants is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Replacement
from chalicelib.model.policy import Consolidation, ConsolidationMode, NodeLimit
from chalicelib.model.reason import DisruptionReason, Reason, ReasonCode
from chalicelib.plan.disruption import planner
from chalicelib.plan.disruption.candidates import Candidate
from chalicelib.plan.disruption.consolidation.moves import JudgedMove
from chalicelib.plan.disruption.methods import DisruptionContext, MethodResult
from chalicelib.plan.disruption.replacements import advance
from chalicelib.plan.disruption.simulate import SimulatedRemoval
from chalicelib.plan.state.cluster_state import ClusterState
from tests.faults.run_state import FaultRun

LARGE, SMALL = "MachineDeployment/default/large", "MachineDeployment/default/small"
PRICE, COST = 400_000, 200_000
FULL = Consolidation(mode=ConsolidationMode.FULL, max_surge=NodeLimit(nodes=3))


class ReplacesOneLargeNode:
    """Wants a small node in place of a large one as long as there are two large ones, and finds nothing wrong with it
    later."""

    reason = DisruptionReason.CONSOLIDATION

    def ineligible(self, *_: Any) -> Reason | None:
        """Every node may be a candidate."""
        return None

    def propose(self, candidates: Sequence[Candidate], context: DisruptionContext) -> MethodResult:
        """See Method."""
        policy = msgspec.structs.replace(context.state.policy, consolidation=FULL)
        state = msgspec.structs.replace(context.state, policy=policy)
        large = sorted(node.name for node in state.groups[LARGE].nodes if node.name not in state.leaving)
        wanted = len(state.groups[LARGE].nodes) > 1 and not state.memory.replacements

        def judge(nodes: Sequence[str], cost: int) -> JudgedMove | Reason:
            return _judged(nodes, cost, state)

        def confirm(row: Replacement) -> JudgedMove | Reason:
            return _judged(row.nodes, row.cost, state)

        proposals = [_move(large[:1], COST, state, {SMALL: 1})] if wanted and large else []
        advanced = advance(
            state,
            context.simulated,
            context.budgets,
            judge,
            confirm,
            reservation=context.reservation,
            proposals=proposals,
        )
        return MethodResult(advanced.commands, {}, {}, advanced.rows)


def _judged(nodes: Sequence[str], cost: int, state: ClusterState) -> JudgedMove | Reason:
    if any(name in state.leaving or name not in state.group_of for name in nodes):
        return Reason.of(ReasonCode.BEING_DELETED)
    return _move(nodes, cost, state)


def _move(nodes: Sequence[str], cost: int, state: ClusterState, purchases: dict[str, int] | None = None) -> JudgedMove:
    by_name = {node.name: node for node in state.snapshot.nodes}
    removals = tuple(
        SimulatedRemoval(by_name[name], state.group_of[name], tuple(p.key for p in state.occupancy.on(name)), {})
        for name in nodes
    )
    return JudgedMove(removals, purchases or {}, PRICE * len(nodes), cost, 3.0, 10_000, 1.0, LARGE)


class ReplacementRun(FaultRun):
    """A run without removals of unneeded nodes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._options |= {"scaleDownUnneededTime": "3h", "scaleDownUnreadyTime": "3h"}


@contextmanager
def replacing() -> Iterator[ReplacementRun]:
    """A run whose passes replace one large node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "METHODS", (*planner.METHODS, ReplacesOneLargeNode()))
        with ReplacementRun(1) as run:
            yield run
