"""Removal of unneeded nodes: nodes with little use whose pods all fit on other nodes that exist.

    candidates ► search (trials that move each node's pods) ► timers ► budgets

Timers run whether or not removals are allowed now. A node's timer continues while it stays
unneeded. It is reset only when a pass checked the node and found it needed. A pass that could not
judge the node (its group is unhealthy or unreadable, the time ran out, no pass ran at all) adds no
time and does not reset the timer. See docs/reference/scale-down.md "Unneeded timers".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, Node
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.bought_back import bought_back
from chalicelib.plan.removal.candidates import Candidate, utilization_reason
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext, MethodResult
from chalicelib.plan.removal.simulate import Search, SimulatedRemoval
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.sick_old_drifted_nodes import lifecycle_of
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.timeouts import longest_gap


class Unneeded:
    """Cluster Autoscaler's scale-down."""

    reason = DisruptionReason.UNNEEDED
    ineligible = staticmethod(utilization_reason)

    def propose(self, candidates: Sequence[Candidate], context: DisruptionContext) -> MethodResult:
        """Return the nodes that have been unneeded long enough and for which the budgets
        have room, as one command."""
        state = context.state
        removal_limits = context.removal_limits
        over = context.over
        result = Search(state, context.simulated, removal_limits.pdbs, candidates, over).best()
        verdicts: dict[str, NodeVerdict] = {}
        for failure in result.failures:
            # The scheduler's counts are computed for each node; only when the time is over, pods
            # of a class share the last result.
            verdict = result.trial.verdict(failure, in_haste=over())
            verdicts[failure.candidate.node.name] = verdict
        for candidate in result.unchecked:
            name = candidate.node.name
            verdicts[name] = NodeVerdict(name, context.not_evaluated)
        timers: dict[str, NodeMemory] = {}
        for removal in result.removals:
            node = removal.node
            before = state.memory.nodes.get(node.name, NodeMemory())
            timers[node.name] = unneeded_timer(node, before, state, context.assume_unneeded_for)

        def why_not_yet(removal: SimulatedRemoval) -> Reason | None:
            return timer_reason(removal, timers, state) or bought_back(removal, state)

        allowed, refusals = removal_limits.draw(result.removals, why_not_yet)
        verdicts |= {name: NodeVerdict(name, reason) for name, reason in refusals.items()}
        consolidates = state.policy.consolidation.mode is not ConsolidationMode.OFF
        if consolidates or lifecycle_of(state) is not None:
            # A node that only waits for its timer is one to which other methods may move pods.
            allowed = result.keep(allowed, candidates)
        removals = tuple(removal.planned() for removal in allowed)
        commands = (DisruptionCommand(self.reason, removals),) if removals else ()
        return MethodResult(commands, verdicts, timers)


def timer_reason(
    removal: SimulatedRemoval, timers: Mapping[str, NodeMemory], state: ClusterState
) -> Reason | None:
    """Return why a node has not been unneeded for long enough: strictly longer than the
    threshold, and 0 means at once."""
    group_options = state.groups[removal.group].group.options
    name = removal.node.name
    if state.buckets[name] is Bucket.READY:
        code = ReasonCode.NOT_UNNEEDED_LONG_ENOUGH
        own = group_options.scale_down_unneeded_time
        default = state.options.scale_down_unneeded_time
    else:
        code = ReasonCode.NOT_UNREADY_LONG_ENOUGH
        own = group_options.scale_down_unready_time
        default = state.options.scale_down_unready_time
    needs = default if own is None else own
    since = timers[name].unneeded_since
    if needs <= 0 or since + needs < state.now:
        return None
    return Reason.of(code, since=since, needs=needs)


def memory_of_others(
    state: ClusterState, verdicts: Mapping[str, NodeVerdict]
) -> dict[str, NodeMemory]:
    """Return the next memory of the nodes that are still needed or could not be judged."""
    now = state.now
    next_check = now + state.options.unremovable_node_recheck_timeout
    memory: dict[str, NodeMemory] = {}
    for name, verdict in verdicts.items():
        before = state.memory.nodes.get(name, NodeMemory())
        after: NodeMemory | None = None
        if verdict.reason.code.row.tried:  # what no simulation reached is checked in every pass
            after = NodeMemory(unremovable_until=next_check, why=verdict.reason)
        elif verdict.reason.code.row.unjudged:
            after = paused_timer(before, now)
        elif before.unremovable_until > now:
            after = NodeMemory(unremovable_until=before.unremovable_until, why=before.why)
        if after is not None:
            memory[name] = after
    return memory


def paused_timer(node_memory: NodeMemory, now: float) -> NodeMemory | None:
    """Return the next memory of a node that could not be judged: its
    elapsed time is kept unchanged."""
    if not node_memory.unneeded_since:
        return node_memory if node_memory.unremovable_until > now else None
    pause = max(0.0, now - node_memory.confirmed_at)
    return msgspec.structs.replace(
        node_memory, unneeded_since=node_memory.unneeded_since + pause, confirmed_at=now
    )


def unneeded_timer(
    node: Node, node_memory: NodeMemory, state: ClusterState, assumed: float | None
) -> NodeMemory:
    """Return the next memory of a node found unneeded. Time without passes (an outage, mode off)
    does not count: the timer continues from where it was last confirmed. assumed: treat it as
    unneeded for at least this many seconds."""
    if node_memory.unneeded_since:
        unseen = state.now - node_memory.confirmed_at
        pause = unseen if unseen > longest_gap(state.policy.scan_interval) else 0.0
        since = min(state.now, node_memory.unneeded_since + pause)
    else:
        since = _tainted_since(node, state)
    if assumed is not None:
        since = min(since, state.now - assumed)
    return NodeMemory(unneeded_since=since, confirmed_at=state.now)


def _tainted_since(node: Node, state: ClusterState) -> float:
    """Return the time of a soft taint that is not older than nodeDeletionCandidateTtl,
    for a node without memory: it preserves the time recorded by another autoscaler or
    before the table was lost."""
    taint = node.taint(DELETION_CANDIDATE)
    ttl = state.options.node_deletion_candidate_ttl
    if taint is None or not ttl:
        return state.now
    if not (taint.value.isascii() and taint.value.isdigit()):
        return state.now
    since = float(taint.value[:12])
    oldest = state.now - ttl
    return since if oldest <= since <= state.now else state.now
