"""Writes taints outside of operations: sets and removes soft taints and the marks of nodes that
leave, and removes hard taints whose operation is over.

They follow from what the pass has seen, so a write that failed is planned again. Each is
one conditional write after one read, so a node that has changed since the snapshot is
judged by its current state.

Memory notes which soft taints are ours, and which nodes have marks. A cluster that is switched to a
mode which does not act takes these back, and leaves those of another autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound, Unauthorized
from chalicelib.cluster.objects import add_taint, remove_soft_taint, remove_taint, set_marks
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Node, Taint, mark_level
from chalicelib.model.plan import TaintUpdate
from chalicelib.plan.removal.taint_updates import (
    ADD_SOFT_TAINT,
    REMOVE_SOFT_TAINT,
    REMOVE_STALE_TAINT,
    SET_MARKS,
)
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.runtime.log import failure, logger

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient

SOFT_REMOVALS = 10
"""Soft taints removed in one pass when the option disables soft taints and
therefore sets no limit."""
CLEANING = 15.0
"""Seconds for hard taints in one pass, and again for marks: hundreds, as another autoscaler may
leave behind, take several passes. A function that is killed over them would keep its lease and
publish nothing."""
MARKS_A_SECOND = 20
"""Writes of marks a second: each goes to every program that watches nodes, such as the agents on
all nodes."""
_REFUSALS = 3
"""Consecutive nodes refused before the rest is skipped. A single refusal may come
from an admission webhook."""
_FIRST_REFUSALS = 10
"""Nodes refused before any mark is written, before the rest is skipped: webhooks may refuse several
nodes for ever, and the others must get their marks."""


def apply(
    marks: Sequence[TaintUpdate],
    kube: KubeClient,
    options: Options,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    name: str = "",
) -> tuple[TaintUpdate, ...]:
    """Write the taints and return those that were written. Hard taints first, for at most CLEANING
    seconds; then soft ones in the given order, with at most max-bulk-soft-taint-count calls and
    until max-bulk-soft-taint-time seconds are over (docs/reference/drain.md "Soft taints"); then
    marks in the given order, paced, for what is left of both times, at most CLEANING seconds.

    name: the cluster's, for the log. Raises nothing: a failure for one node is logged, and the next
    pass plans it again. If a cluster refuses these writes altogether, the rest is skipped.
    """
    hard = [mark for mark in marks if mark.action == REMOVE_STALE_TAINT]
    of_horizon = [mark for mark in marks if mark.action == SET_MARKS]
    written: list[TaintUpdate] = []
    refused = 0
    ends = clock() + CLEANING + options.max_bulk_soft_taint_time
    for some, seconds, refusals in (
        (hard, CLEANING, _REFUSALS),
        (_soft(marks, options), options.max_bulk_soft_taint_time, _REFUSALS),
        (of_horizon, CLEANING, _FIRST_REFUSALS),
    ):
        until, most = min(ends, clock() + seconds), refusals
        for mark in some:
            if clock() >= until or refused >= most:
                break
            try:
                written += [mark] if _write(mark, kube, clock, name) else []
                refused = 0
                if mark.action == SET_MARKS:
                    most = len(marks)  # marks are permitted: whatever refuses is of one node
            except Unauthorized as refusal:
                remaining = len(marks) - len(written)
                logger.error(
                    "nodes may not be marked", cluster=name, left=remaining, **failure(refusal)
                )
                return tuple(written)
            except Forbidden as refusal:
                refused += 1
                what = "node may not be marked"
                logger.error(
                    what, cluster=name, node=mark.node, action=mark.action, **failure(refusal)
                )
            if mark.action == SET_MARKS:
                sleep(1 / MARKS_A_SECOND)
    return tuple(written)


def noted(
    new_memory: Memory,
    old_memory: Memory,
    marks: Sequence[TaintUpdate],
    nodes: Sequence[Node],
    options: Options,
) -> Memory:
    """Return the memory of a pass that acts with a note on each node whose soft taint is ours:
    `apply` is about to write it, or it has been there since a pass has noted it; and on each node
    that has marks or is about to get some. The note is saved before the taint is written."""
    tainted = {node.name for node in nodes if node.taint(DELETION_CANDIDATE) is not None}
    soft_tainted = tainted & _soft_tainted(old_memory)
    soft = _soft(marks, options)
    soft_tainted |= {mark.node for mark in soft if mark.action == ADD_SOFT_TAINT}
    marked = {node.name for node in nodes if mark_level(node)}
    marked |= {mark.node for mark in marks if mark.level}
    return _with_notes(new_memory, soft_tainted, marked)


def still_noted(new_memory: Memory, old_memory: Memory) -> Memory:
    """Return the memory of a pass that does not act with the notes as they were."""
    return _with_notes(new_memory, _soft_tainted(old_memory), _marked(old_memory))


def without_notes(memory: Memory, nodes: Collection[str]) -> Memory:
    """Return the memory without the notes on these nodes."""
    return _with_notes(
        memory, _soft_tainted(memory).difference(nodes), _marked(memory).difference(nodes)
    )


def noted_nodes(memory: Memory) -> frozenset[str]:
    """Return the names of the nodes whose soft taint is ours, or that have marks."""
    return _soft_tainted(memory) | _marked(memory)


def _soft_tainted(memory: Memory) -> frozenset[str]:
    return frozenset(name for name, node in memory.nodes.items() if node.soft_tainted)


def _marked(memory: Memory) -> frozenset[str]:
    return frozenset(name for name, node in memory.nodes.items() if node.marked)


def _with_notes(memory: Memory, soft_tainted: Set[str], marked: Set[str]) -> Memory:
    if soft_tainted == _soft_tainted(memory) and marked == _marked(memory):
        return memory
    nodes = {
        name: msgspec.structs.replace(
            memory.nodes.get(name, NodeMemory()),
            soft_tainted=name in soft_tainted,
            marked=name in marked,
        )
        for name in (*memory.nodes, *sorted((soft_tainted | marked) - memory.nodes.keys()))
    }
    remembered = {name: node for name, node in nodes.items() if node != NodeMemory()}
    return msgspec.structs.replace(memory, nodes=remembered)


def take_back(
    memory: Memory,
    kube: KubeClient,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    name: str,
) -> Iterator[str]:
    """Remove the soft taints and marks that memory has noted, paced, for at most CLEANING seconds,
    and yield the name of each node that has none any more. Raises ClusterError for the first
    node that cannot be changed."""
    until = clock() + CLEANING
    for node in sorted(noted_nodes(memory)):
        if clock() >= until:
            return
        updates = {
            REMOVE_SOFT_TAINT: memory.nodes[node].soft_tainted,
            SET_MARKS: memory.nodes[node].marked,
        }
        for action in (action for action, is_noted in updates.items() if is_noted):
            with suppress(NotFound):
                if _change(TaintUpdate(node, action), kube, until, unless=""):
                    logger.info("node marked", cluster=name, node=node, action=action)
            sleep(1 / MARKS_A_SECOND)
        yield node


def _soft(marks: Sequence[TaintUpdate], options: Options) -> list[TaintUpdate]:
    """Return the updates of soft taints that one pass writes at most."""
    soft = [mark for mark in marks if mark.action in (REMOVE_SOFT_TAINT, ADD_SOFT_TAINT)]
    return soft[: options.max_bulk_soft_taint_count or SOFT_REMOVALS]


def _write(update: TaintUpdate, kube: KubeClient, clock: Callable[[], float], name: str) -> bool:
    """Write one update; return whether it changed anything. Raises Forbidden, Unauthorized."""
    try:
        changed = _change(update, kube, clock(), unless=TO_BE_DELETED)
    except NotFound:
        return False
    except (Forbidden, Unauthorized):
        raise
    except ClusterError as error:
        logger.warning(
            "node not marked",
            cluster=name,
            node=update.node,
            action=update.action,
            **failure(error),
        )
        return False
    if changed:
        logger.info("node marked", cluster=name, node=update.node, action=update.action)
    return changed


def _change(update: TaintUpdate, kube: KubeClient, now: float, *, unless: str) -> bool:
    """Write one update, except a soft one where a node has a taint of the key `unless`."""
    if update.action == REMOVE_STALE_TAINT:
        return remove_taint(kube, update.node, TO_BE_DELETED, uncordon=update.cordoned)
    if update.action == REMOVE_SOFT_TAINT:
        return remove_soft_taint(kube, update.node, DELETION_CANDIDATE, unless=unless)
    if update.action == SET_MARKS:
        return set_marks(kube, update.node, update.level, update.value, unless=unless)
    soft = Taint(DELETION_CANDIDATE, "PreferNoSchedule", str(int(now)))
    return add_taint(kube, update.node, soft, cordon=False, unless=unless)
