"""Plans scale-down: which nodes are unneeded, and which of them are removed now. See docs/reference/scale-down.md
"Stages of one pass".

    candidates ► search (trials that move each node's pods) ► timers ► selection

Timers run whether or not removals are allowed now; every node that stays has a verdict.

A node's timer continues while it stays unneeded. It is reset only when a pass checked the node and found it needed. A
pass that could not judge the node (its group is unhealthy or unreadable, the time ran out, no pass ran at all) adds no
time and does not reset the timer. See docs/reference/scale-down.md "Unneeded timers".
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from chalicelib.model.memory import BreakerState, NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, Node
from chalicelib.model.plan import NodeVerdict, Removal, TaintUpdate
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.scale_down.candidates import DrainabilityChecker, PodsToMove, Usage, ineligibility_reason
from chalicelib.plan.scale_down.drain_rules import PdbTracker
from chalicelib.plan.scale_down.removal_simulation.search import Search, TrialResult
from chalicelib.plan.scale_down.selection import select_removals
from chalicelib.plan.scale_down.taint_updates import taint_updates
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.time_budget import TimeBudget

UNSEEN = 900.0
"""Seconds without a pass after which it is unknown whether a node was needed in between."""
NOT_JUDGED = frozenset({ReasonCode.UNEXPECTED, ReasonCode.GROUP_FROZEN, ReasonCode.NOT_EVALUATED, ReasonCode.PROMISED})
"""Verdicts of a node that could not be judged. They include a node on which pending pods are expected: the scheduler
may place them on another node, and while other nodes are drained there are always such pods."""
_TRIED = frozenset({ReasonCode.NO_PLACE_TO_MOVE_PODS, ReasonCode.BLOCKED_BY_POD})
"""Verdicts of a failed simulation, which is not repeated for a while. A node that the simulation did not reach is
checked in every pass."""


class ScaleDownPlan(msgspec.Struct, frozen=True):
    """The scale-down part of a plan. memory: the next memory of every node that has any. breaker: the circuit breaker's
    next state. taints: to be added or removed outside of operations."""

    removals: tuple[Removal, ...]
    unneeded: tuple[str, ...]
    unremovable: tuple[NodeVerdict, ...]
    memory: dict[str, NodeMemory]
    paused: Reason | None = None
    breaker: BreakerState = BreakerState()
    taints: tuple[TaintUpdate, ...] = ()


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
    pdbs = PdbTracker(state.snapshot.budgets, state.snapshot.classes)
    started, limit = (budget.spent() if budget else 0.0), state.options.scale_down_simulation_timeout
    not_evaluated = Reason.of(ReasonCode.NOT_EVALUATED, seconds=limit)
    nodes: list[PodsToMove] = []
    shares: dict[str, float] = {}
    verdicts: dict[str, NodeVerdict] = {}
    if judged:
        nodes, shares, verdicts = _candidates(state, simulated, pdbs)
    else:
        verdicts = {node.name: NodeVerdict(node.name, not_evaluated) for node in state.snapshot.nodes}

    def over() -> bool:
        return simulated.unsettled or (budget is not None and (budget.over(started + limit) or budget.ended()))

    result = Search(state, simulated, pdbs, nodes, shares, over).best()
    verdicts |= _failures(result, not_evaluated, over)
    memory = _memory(state, verdicts)
    for candidate in result.candidates:
        name = candidate.node.name
        memory[name] = unneeded_timer(
            candidate.node, state.memory.nodes.get(name, NodeMemory()), state, assume_unneeded_for
        )
    selection = select_removals(state, result.candidates, memory, hold, grown, guard)
    verdicts |= {name: NodeVerdict(name, reason) for name, reason in selection.refused.items()}
    unneeded = {candidate.node.name for candidate in result.candidates}
    removed = {candidate.node.name for candidate in selection.chosen}
    return ScaleDownPlan(
        removals=tuple(
            Removal(node.node.name, node.group, "drain" if node.evict else "empty", node.evict, node.destinations)
            for node in selection.chosen
        ),
        unneeded=tuple(sorted(unneeded)),
        unremovable=tuple(verdicts[name] for name in sorted(verdicts)),
        memory=memory,
        paused=selection.paused,
        breaker=selection.breaker,
        taints=tuple(taint for taint in taint_updates(state, unneeded) if taint.node not in removed),
    )


def _candidates(
    state: ClusterState, simulated: SimulatedCluster, pdbs: PdbTracker
) -> tuple[list[PodsToMove], dict[str, float], dict[str, NodeVerdict]]:
    """Return the nodes to simulate, the shares of them that are in use, and the verdicts on all other nodes."""
    usage, checker = Usage(state), DrainabilityChecker(state, pdbs)
    nodes: list[PodsToMove] = []
    shares: dict[str, float] = {}
    verdicts: dict[str, NodeVerdict] = {}
    for node in state.snapshot.nodes:
        simulated.check()
        reason = ineligibility_reason(node, state.memory.nodes.get(node.name, NodeMemory()), state, usage)
        if reason is None and node.name in simulated.promised:
            reason = Reason.of(ReasonCode.PROMISED, pod=simulated.promised[node.name])
        if reason is None and node.name in simulated.held:
            reason = Reason.of(ReasonCode.UNEXPECTED, detail=simulated.held[node.name])
        if reason is not None:
            verdicts[node.name] = NodeVerdict(node.name, reason, str(reason.params.get("pod", "")))
            continue
        moves = checker.of(node)
        if isinstance(moves, NodeVerdict):
            verdicts[node.name] = moves
        else:
            nodes.append(moves)
            shares[node.name] = usage.share(node)
    return nodes, shares, verdicts


def _failures(result: TrialResult, not_evaluated: Reason, over: Callable[[], bool]) -> dict[str, NodeVerdict]:
    """Return the verdicts of nodes whose simulation failed, and of nodes that were not checked in time. The scheduler's
    counts are computed for each node; only when the time is over, pods of a class share the last result."""
    verdicts = {failure.moves.node.name: result.trial.verdict(failure, in_haste=over()) for failure in result.failures}
    return verdicts | {moves.node.name: NodeVerdict(moves.node.name, not_evaluated) for moves in result.unchecked}


def _memory(state: ClusterState, verdicts: dict[str, NodeVerdict]) -> dict[str, NodeMemory]:
    """Return the next memory of the nodes that are still needed or could not be judged."""
    now, recheck = state.now, state.options.unremovable_node_recheck_timeout
    memory: dict[str, NodeMemory] = {}
    for name, verdict in verdicts.items():
        before = state.memory.nodes.get(name, NodeMemory())
        after: NodeMemory | None = None
        if verdict.reason.code in _TRIED:
            after = NodeMemory(unremovable_until=now + recheck, why=verdict.reason)
        elif verdict.reason.code in NOT_JUDGED:
            after = paused_timer(before, now)
        elif before.unremovable_until > now:
            after = NodeMemory(unremovable_until=before.unremovable_until, why=before.why)
        if after is not None:
            memory[name] = after
    return memory


def paused_timer(node_memory: NodeMemory, now: float) -> NodeMemory | None:
    """Return the next memory of a node that could not be judged: its elapsed time is kept unchanged."""
    if not node_memory.unneeded_since:
        return node_memory if node_memory.unremovable_until > now else None
    return msgspec.structs.replace(
        node_memory,
        unneeded_since=node_memory.unneeded_since + max(0.0, now - node_memory.confirmed_at),
        confirmed_at=now,
    )


def unneeded_timer(node: Node, node_memory: NodeMemory, state: ClusterState, assumed: float | None) -> NodeMemory:
    """Return the next memory of a node found unneeded. Time without passes (an outage, mode off) does not count: the
    timer continues from where it was last confirmed. assumed: treat it as unneeded for at least this many seconds."""
    if node_memory.unneeded_since:
        unseen = state.now - node_memory.confirmed_at
        pause = unseen if unseen > max(UNSEEN, 3 * state.policy.scan_interval) else 0.0
        since = min(state.now, node_memory.unneeded_since + pause)
    else:
        since = _tainted_since(node, state)
    if assumed is not None:
        since = min(since, state.now - assumed)
    return NodeMemory(unneeded_since=since, confirmed_at=state.now)


def _tainted_since(node: Node, state: ClusterState) -> float:
    """Return the time of a soft taint that is not older than nodeDeletionCandidateTtl, for a node without memory: it
    preserves the time recorded by another autoscaler or before the table was lost."""
    soft, ttl = node.taint(DELETION_CANDIDATE), state.options.node_deletion_candidate_ttl
    if soft is None or not ttl or not (soft.value.isascii() and soft.value.isdigit()):
        return state.now
    since = float(soft.value[:12])
    return since if state.now - ttl <= since <= state.now else state.now
