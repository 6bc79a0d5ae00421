"""Tracks since when a node is unneeded: the timer continues while it stays unneeded, and pauses while this cannot be
judged.

A timer is reset only when a pass checked the node and found it needed. A pass that could not judge the node (its group
is unhealthy or unreadable, the time ran out, no pass ran at all) adds no time and does not reset the timer. See
docs/reference/scale-down.md "Unneeded timers".
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, Node
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

UNSEEN = 900.0
"""Seconds without a pass after which it is unknown whether a node was needed in between."""

NOT_JUDGED = frozenset({ReasonCode.UNEXPECTED, ReasonCode.GROUP_FROZEN, ReasonCode.NOT_EVALUATED, ReasonCode.PROMISED})
"""Verdicts of a node that could not be judged. They include a node on which pending pods are expected: the scheduler
may place them on another node, and while other nodes are drained there are always such pods."""


def unneeded(node: Node, node_memory: NodeMemory, state: ClusterState, assumed: float | None) -> NodeMemory:
    """Return the next memory of a node found unneeded. assumed: treat it as unneeded for at least this many seconds."""
    since = _since(node, node_memory, state)
    if assumed is not None:
        since = min(since, state.now - assumed)
    return NodeMemory(unneeded_since=since, confirmed_at=state.now)


def paused(node_memory: NodeMemory, now: float) -> NodeMemory | None:
    """Return the next memory of a node that could not be judged: its elapsed time is kept unchanged."""
    if not node_memory.unneeded_since:
        return node_memory if node_memory.unremovable_until > now else None
    return msgspec.structs.replace(
        node_memory,
        unneeded_since=node_memory.unneeded_since + max(0.0, now - node_memory.confirmed_at),
        confirmed_at=now,
    )


def _since(node: Node, node_memory: NodeMemory, state: ClusterState) -> float:
    """Return the start of the timer. Time without passes (an outage, mode off) does not count: the timer continues from
    where it was last confirmed."""
    if not node_memory.unneeded_since:
        return _tainted_since(node, state)
    unseen = state.now - node_memory.confirmed_at
    pause = unseen if unseen > max(UNSEEN, 3 * state.policy.scan_interval) else 0.0
    return min(state.now, node_memory.unneeded_since + pause)


def _tainted_since(node: Node, state: ClusterState) -> float:
    """Return the time of a soft taint that is not older than nodeDeletionCandidateTtl, for a node without memory: it
    preserves the time recorded by another autoscaler or before the table was lost."""
    soft, ttl = node.taint(DELETION_CANDIDATE), state.options.node_deletion_candidate_ttl
    if soft is None or not ttl or not (soft.value.isascii() and soft.value.isdigit()):
        return state.now
    since = float(soft.value[:12])
    return since if state.now - ttl <= since <= state.now else state.now
