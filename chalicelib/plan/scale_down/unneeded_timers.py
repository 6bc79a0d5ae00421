"""Since when a node is unneeded (scale-down.md §7, §13): kept while it stays so, paused while nobody can tell.

A timer is lost only when a pass looked at the node and found it needed. What a pass could not judge (its group is sick
or unreadable, the time ran out, nobody looked at all) does not count, and is not held against the node either.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, Node
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

UNSEEN = 900.0
"""Seconds without a look after which nobody can say what a node was needed for meanwhile."""

NOT_JUDGED = frozenset({ReasonCode.UNEXPECTED, ReasonCode.GROUP_FROZEN, ReasonCode.NOT_EVALUATED, ReasonCode.PROMISED})
"""Verdicts of a node that nobody could judge. One that pending pods are expected on is among them: the scheduler may
put them elsewhere, and while other nodes are drained there are always some that are on their way."""


def unneeded(node: Node, known: NodeMemory, world: ClusterState, assumed: float | None) -> NodeMemory:
    """The next memory of a node found unneeded. assumed: treat it as unneeded for so many seconds at least."""
    since = _since(node, known, world)
    if assumed is not None:
        since = min(since, world.now - assumed)
    return NodeMemory(unneeded_since=since, confirmed_at=world.now)


def paused(known: NodeMemory, now: float) -> NodeMemory | None:
    """The next memory of a node that could not be judged: its time so far, not a second more."""
    if not known.unneeded_since:
        return known if known.unremovable_until > now else None
    return msgspec.structs.replace(
        known, unneeded_since=known.unneeded_since + max(0.0, now - known.confirmed_at), confirmed_at=now
    )


def _since(node: Node, known: NodeMemory, world: ClusterState) -> float:
    """Time in which nobody looked (an outage, mode off) does not count: the timer goes on from where it was last
    confirmed."""
    if not known.unneeded_since:
        return _tainted_since(node, world)
    unseen = world.now - known.confirmed_at
    pause = unseen if unseen > max(UNSEEN, 3 * world.policy.scan_interval) else 0.0
    return min(world.now, known.unneeded_since + pause)


def _tainted_since(node: Node, world: ClusterState) -> float:
    """With nodeDeletionCandidateTtl the time of a soft taint that is not older counts for a node that memory does not
    know: what another autoscaler, or a table that was lost, had found out."""
    soft, ttl = node.taint(DELETION_CANDIDATE), world.options.node_deletion_candidate_ttl
    if soft is None or not ttl or not (soft.value.isascii() and soft.value.isdigit()):
        return world.now
    since = float(soft.value[:12])
    return since if world.now - ttl <= since <= world.now else world.now
