"""Plans scale-down: which nodes are unneeded, and which of them are removed now. See docs/reference/scale-down.md
"Stages of one pass".

    eligibility ► drainability ► search (trials that move each node's pods) ► timers ► selection

Timers run whether or not removals are allowed now; every node that stays has a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from chalicelib.model.memory import BreakerState, NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.plan import NodeVerdict, Removal, TaintUpdate
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.eligibility import ineligibility_reason
from chalicelib.plan.scale_down.pdb_tracker import PdbTracker
from chalicelib.plan.scale_down.removal_simulation.drainability import DrainabilityChecker, PodsToMove
from chalicelib.plan.scale_down.removal_simulation.removal_trial import UnneededNode
from chalicelib.plan.scale_down.removal_simulation.search import Found, Search
from chalicelib.plan.scale_down.selection import select_removals
from chalicelib.plan.scale_down.taint_updates import taint_updates
from chalicelib.plan.scale_down.unneeded_timers import NOT_JUDGED, paused, unneeded
from chalicelib.plan.scale_down.utilization import Usage
from chalicelib.plan.scale_up.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.time_budget import TimeBudget


class ScaleDownPlan(msgspec.Struct, frozen=True):
    """The scale-down part of a plan. memory: the next memory of every node that has any."""

    removals: tuple[Removal, ...]
    unneeded: tuple[str, ...]
    unremovable: tuple[NodeVerdict, ...]
    memory: dict[str, NodeMemory]
    paused: Reason | None = None
    brake: BreakerState = BreakerState()
    marks: tuple[TaintUpdate, ...] = ()


class _Sorted(msgspec.Struct, frozen=True):
    """Nodes before any simulation: those to be tried, with their utilization, and a verdict on the others."""

    nodes: tuple[PodsToMove, ...]
    filled: dict[str, float]
    verdicts: dict[str, NodeVerdict]


def plan_scale_down(
    state: ClusterState,
    simulated: SimulatedCluster,
    assume_unneeded_for: float | None = None,
    hold: Reason | None = None,
    budget: TimeBudget | None = None,
    grown: Collection[str] = (),
    guard: RuleRemovalGuard | None = None,
    *,
    judged: bool = True,
) -> ScaleDownPlan:
    """Plan the removals. assume_unneeded_for: treat every unneeded node as unneeded for at least this many seconds.
    hold: why no node is removed in this pass, while timers run. budget: for scaleDownSimulationTimeout; without it
    there is no limit. grown: groups that this pass scales up. guard: what metric rules would buy again.
    judged: False where there is no time to judge any node; the timers of all stand still."""
    budgets = PdbTracker(state.snapshot.budgets, state.snapshot.classes)
    started, limit = (budget.spent() if budget else 0.0), state.options.scale_down_simulation_timeout
    before = _sort(state, simulated, budgets) if judged else _unsorted(state, limit)

    def over() -> bool:
        return simulated.unsettled or (budget is not None and (budget.over(started + limit) or budget.ended()))

    found = Search(state, simulated, budgets, before.nodes, before.filled, over).best()
    verdicts = {**before.verdicts, **_failed(found, limit, over)}
    memory = _memory(state, verdicts)
    for candidate in found.candidates:
        name = candidate.node.name
        memory[name] = unneeded(candidate.node, state.memory.nodes.get(name, NodeMemory()), state, assume_unneeded_for)
    picked = select_removals(state, found.candidates, memory, hold, grown, guard)
    verdicts.update({name: NodeVerdict(name, reason) for name, reason in picked.held.items()})
    free = {candidate.node.name for candidate in found.candidates}
    going = {candidate.node.name for candidate in picked.chosen}
    return ScaleDownPlan(
        removals=tuple(_removal(candidate) for candidate in picked.chosen),
        unneeded=tuple(sorted(free)),
        unremovable=tuple(verdicts[name] for name in sorted(verdicts)),
        memory=memory,
        paused=picked.paused,
        brake=picked.brake,
        marks=tuple(mark for mark in taint_updates(state, free) if mark.node not in going),
    )


def _sort(state: ClusterState, simulated: SimulatedCluster, pdbs: PdbTracker) -> _Sorted:
    """Check the eligibility of every node; returns the nodes to simulate and the verdicts on the others."""
    usage, holding = Usage(state), DrainabilityChecker(state, pdbs)
    nodes: list[PodsToMove] = []
    filled: dict[str, float] = {}
    verdicts: dict[str, NodeVerdict] = {}
    for node in state.snapshot.nodes:
        simulated.check()
        judged = _judge(node, state, simulated, usage, holding)
        if isinstance(judged, NodeVerdict):
            verdicts[node.name] = judged
        else:
            nodes.append(judged)
            filled[node.name] = usage.share(node)
    return _Sorted(tuple(nodes), filled, verdicts)


def _unsorted(state: ClusterState, limit: float) -> _Sorted:
    reason = Reason.of(ReasonCode.NOT_EVALUATED, seconds=limit)
    return _Sorted((), {}, {node.name: NodeVerdict(node.name, reason) for node in state.snapshot.nodes})


def _judge(
    node: Node, state: ClusterState, simulated: SimulatedCluster, usage: Usage, checker: DrainabilityChecker
) -> PodsToMove | NodeVerdict:
    reason = ineligibility_reason(node, state.memory.nodes.get(node.name, NodeMemory()), state, usage)
    if reason is None and node.name in simulated.promised:
        reason = Reason.of(ReasonCode.PROMISED, pod=simulated.promised[node.name])
    if reason is None and node.name in simulated.held:
        reason = Reason.of(ReasonCode.UNEXPECTED, detail=simulated.held[node.name])
    if reason is not None:
        return NodeVerdict(node.name, reason, str(reason.params.get("pod", "")))
    return checker.of(node)


def _failed(found: Found, limit: float, over: Callable[[], bool]) -> dict[str, NodeVerdict]:
    """Return the verdicts of nodes whose simulation failed, and of nodes that were not checked in time. The scheduler's
    counts are computed for each node; only when the time is over, pods of a class share the last result."""
    verdicts = {failure.moves.node.name: found.trial.verdict(failure, in_haste=over()) for failure in found.failures}
    reason = Reason.of(ReasonCode.NOT_EVALUATED, seconds=limit)
    return verdicts | {moves.node.name: NodeVerdict(moves.node.name, reason) for moves in found.left}


# A failed simulation is not repeated for a while; a node that was not reached by the simulation is checked in every
# pass.
_TRIED = frozenset({ReasonCode.NO_PLACE_TO_MOVE_PODS, ReasonCode.BLOCKED_BY_POD})


def _memory(state: ClusterState, verdicts: dict[str, NodeVerdict]) -> dict[str, NodeMemory]:
    """Return the next memory of the nodes that are still needed or could not be judged."""
    now, recheck = state.now, state.options.unremovable_node_recheck_timeout
    memory: dict[str, NodeMemory] = {}
    for name, verdict in verdicts.items():
        code, known = verdict.reason.code, state.memory.nodes.get(name, NodeMemory())
        kept: NodeMemory | None = None
        if code in _TRIED:
            kept = NodeMemory(unremovable_until=now + recheck, why=verdict.reason)
        elif code in NOT_JUDGED:
            kept = paused(known, now)
        elif known.unremovable_until > now:
            kept = NodeMemory(unremovable_until=known.unremovable_until, why=known.why)
        if kept is not None:
            memory[name] = kept
    return memory


def _removal(unneeded: UnneededNode) -> Removal:
    kind = "drain" if unneeded.evict else "empty"
    return Removal(unneeded.node.name, unneeded.group, kind, unneeded.evict, unneeded.destinations)
