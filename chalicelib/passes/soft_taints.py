"""Writes taints outside of operations: sets and removes soft taints, and removes hard taints
whose operation is over.

They follow from what the pass has seen, so a write that failed is planned again. Each is
one conditional write after one read, so a node that has changed since the snapshot is
judged by its current state.

Memory notes which soft taints are ours. A cluster that is switched to a mode which does not act
takes these back, and leaves those of another autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound, Unauthorized
from chalicelib.cluster.objects import add_taint, remove_soft_taint, remove_taint
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Node, Taint
from chalicelib.model.plan import TaintUpdate
from chalicelib.plan.removal.taint_updates import (
    ADD_SOFT_TAINT,
    REMOVE_SOFT_TAINT,
    REMOVE_STALE_TAINT,
)
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.runtime.log import failure, logger

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient

SOFT_REMOVALS = 10
"""Soft taints removed in one pass when the option disables soft taints and
therefore sets no limit."""
CLEANING = 15.0
"""Seconds for hard taints in one pass: hundreds, as another autoscaler may leave behind, take
several passes. A function that is killed over them would keep its lease and publish nothing."""
_REFUSALS = 3
"""Consecutive nodes refused before the rest is skipped. A single refusal may come
from an admission webhook."""


def apply(
    marks: Sequence[TaintUpdate],
    kube: KubeClient,
    options: Options,
    clock: Callable[[], float],
    name: str = "",
) -> tuple[TaintUpdate, ...]:
    """Write the taints and return those that were written. Hard taints first, for at most CLEANING
    seconds; then soft ones in the given order, with at most max-bulk-soft-taint-count calls and
    until max-bulk-soft-taint-time seconds are over (docs/reference/drain.md "Soft taints").

    name: the cluster's, for the log. Raises nothing: a failure for one node is logged, and the next
    pass plans it again. If a cluster refuses these writes altogether, the rest is skipped.
    """
    hard = [mark for mark in marks if mark.action == REMOVE_STALE_TAINT]
    written: list[TaintUpdate] = []
    refused = 0
    for some, seconds in (
        (hard, CLEANING),
        (_soft(marks, options), options.max_bulk_soft_taint_time),
    ):
        until = clock() + seconds
        for mark in some:
            if clock() >= until or refused >= _REFUSALS:
                break
            try:
                written += [mark] if _write(mark, kube, clock, name) else []
                refused = 0
            except Unauthorized as refusal:
                refused = _REFUSALS
                remaining = len(marks) - len(written)
                logger.error(
                    "nodes may not be marked", cluster=name, left=remaining, **failure(refusal)
                )
            except Forbidden as refusal:
                refused += 1
                what = "node may not be marked"
                logger.error(
                    what, cluster=name, node=mark.node, action=mark.action, **failure(refusal)
                )
    return tuple(written)


def noted(
    new_memory: Memory,
    old_memory: Memory,
    marks: Sequence[TaintUpdate],
    nodes: Sequence[Node],
    options: Options,
) -> Memory:
    """Return the memory of a pass that acts with a note on each node whose soft taint is ours:
    `apply` is about to write it, or it has been there since a pass has noted it. The note is saved
    before the taint is written."""
    tainted = {node.name for node in nodes if node.taint(DELETION_CANDIDATE) is not None}
    ours = {name for name in noted_nodes(old_memory) if name in tainted}
    ours.update(mark.node for mark in _soft(marks, options) if mark.action == ADD_SOFT_TAINT)
    return _with_notes(new_memory, ours)


def still_noted(new_memory: Memory, old_memory: Memory) -> Memory:
    """Return the memory of a pass that does not act with the notes as they were."""
    return _with_notes(new_memory, noted_nodes(old_memory))


def without_notes(memory: Memory, nodes: Collection[str]) -> Memory:
    """Return the memory without the notes on these nodes."""
    return _with_notes(memory, noted_nodes(memory) - frozenset(nodes))


def noted_nodes(memory: Memory) -> frozenset[str]:
    """Return the names of the nodes whose soft taint is ours."""
    return frozenset(name for name, node in memory.nodes.items() if node.soft_tainted)


def _with_notes(memory: Memory, ours: Collection[str]) -> Memory:
    if noted_nodes(memory) == ours:
        return memory
    nodes = {
        name: msgspec.structs.replace(
            memory.nodes.get(name, NodeMemory()), soft_tainted=name in ours
        )
        for name in (*memory.nodes, *sorted(set(ours) - memory.nodes.keys()))
    }
    remembered = {name: node for name, node in nodes.items() if node != NodeMemory()}
    return msgspec.structs.replace(memory, nodes=remembered)


def take_back(
    nodes: Collection[str], kube: KubeClient, clock: Callable[[], float], name: str
) -> Iterator[str]:
    """Remove the soft taints of these nodes, for at most CLEANING seconds, and yield
    the name of each node that has none any more. Raises ClusterError for the first
    node that cannot be changed."""
    until = clock() + CLEANING
    for node in sorted(nodes):
        if clock() >= until:
            return
        with suppress(NotFound):
            if remove_soft_taint(kube, node, DELETION_CANDIDATE, unless=""):
                logger.info("node marked", cluster=name, node=node, action=REMOVE_SOFT_TAINT)
        yield node


def _soft(marks: Sequence[TaintUpdate], options: Options) -> list[TaintUpdate]:
    """Return the updates of soft taints that one pass writes at most."""
    soft = [mark for mark in marks if mark.action in (REMOVE_SOFT_TAINT, ADD_SOFT_TAINT)]
    return soft[: options.max_bulk_soft_taint_count or SOFT_REMOVALS]


def _write(update: TaintUpdate, kube: KubeClient, clock: Callable[[], float], name: str) -> bool:
    """Write one update; return whether it changed anything. Raises Forbidden, Unauthorized."""
    try:
        changed = _change(update, kube, clock())
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


def _change(update: TaintUpdate, kube: KubeClient, now: float) -> bool:
    if update.action == REMOVE_STALE_TAINT:
        return remove_taint(kube, update.node, TO_BE_DELETED, uncordon=update.cordoned)
    if update.action == REMOVE_SOFT_TAINT:
        return remove_soft_taint(kube, update.node, DELETION_CANDIDATE, unless=TO_BE_DELETED)
    soft = Taint(DELETION_CANDIDATE, "PreferNoSchedule", str(int(now)))
    return add_taint(kube, update.node, soft, cordon=False, unless=TO_BE_DELETED)
