"""The methods that propose which nodes go, behind one interface.

Here: the interface, and a module per method. planner.py asks the methods one after the
other, in the order of its table METHODS. Not here: limits and conditions that hold whatever
the method is (removal_limits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.reason import Reason
from chalicelib.plan.removal.candidates import Candidate, Usage
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.replacements import Reservation
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState


class DisruptionContext(msgspec.Struct, frozen=True):
    """What all methods of a pass share. over: whether the time for simulations is up;
    not_evaluated: the verdict on nodes that were not reached by then. assume_unneeded_for: for a
    what-if; every unneeded node counts as unneeded for at least this many seconds. reservation: of
    the nodes of replacements; None: there are no replacements."""

    state: ClusterState
    simulated: SimulatedCluster
    removal_limits: RemovalLimits
    over: Callable[[], bool]
    not_evaluated: Reason
    assume_unneeded_for: float | None
    reservation: Reservation | None = None


class MethodResult(msgspec.Struct, frozen=True):
    """commands: what is done now. verdicts: why each other candidate stays, by node. memory: the
    next memory of the nodes that the method would remove now or later; they get the soft taint."""

    commands: tuple[DisruptionCommand, ...]
    verdicts: dict[str, NodeVerdict]
    memory: dict[str, NodeMemory]


class Method(Protocol):
    """One way to choose nodes. reason: of its commands."""

    reason: DisruptionReason

    def ineligible(
        self, node: Node, group: NodeGroupState, state: ClusterState, usage: Usage
    ) -> Reason | None:
        """Return why the method does not consider a node that is otherwise
        eligible, None if it does."""

    def propose(self, candidates: Sequence[Candidate], context: DisruptionContext) -> MethodResult:
        """Return what the method does with these nodes. It draws what its commands use from the
        budgets; the simulated cluster keeps the moves of the pods."""
