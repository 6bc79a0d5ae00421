"""Detects pool states that block rules: the pool is scaling, unreadable, or lacks a device. An unhealthy cluster blocks
all scale-up: plan/scale_up/preconditions.py."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.model.group import InstanceState
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.plan.state.readiness import Bucket, announces_device, lacks_device, works


def members(pool: PoolFacts, state: ClusterState) -> tuple[NodeGroupState, ...]:
    """Return all groups of the vendor's pool, even if a rule names only one of them, because they share one state."""
    mine = [state.groups[name] for name in pool.groups]
    shared = mine[0].group.pool
    if pool.whole or shared is None:
        return tuple(mine)
    return tuple(
        facts
        for _, facts in sorted(state.groups.items())
        if facts.group.pool is not None and facts.group.pool.id == shared.id
    )


def unreadable(pool: PoolFacts, state: ClusterState) -> Reason | None:
    """Return why the size of a pool is unknown, None if all of it could be read."""
    found = next((facts.group.error for facts in members(pool, state) if facts.group.error), "")
    return Reason.of(ReasonCode.GROUP_UNREADABLE, detail=found) if found else None


def scaling(pool: PoolFacts, state: ClusterState) -> str:
    """Return why a pool counts as scaling, "" if it does not: its target differs from what exists, or instances are
    being created or deleted. A node that only waits for its device's driver counts as existing."""
    found = (f"{facts.id}: {detail}" for facts in members(pool, state) if (detail := _moving(facts, state)))
    return next(found, "")


def _moving(group: NodeGroupState, state: ClusterState) -> str:
    return next((detail for is_so, detail in _signs(group, state) if is_so), "")


def _signs(group: NodeGroupState, state: ClusterState) -> Iterator[tuple[bool, str]]:
    instances = group.group.instances
    yield (any(op.is_open and op.spec.group == group.id for op in state.memory.operations), "an operation is under way")
    without_driver = sum(
        state.buckets[node.name] is Bucket.NOT_STARTED and node.name in state.lacking and works(node, state.options)
        for node in group.nodes
    )
    yield group.upcoming > without_driver, "nodes are on their way"
    yield group.leaving > 0 or any(node.name in state.leaving for node in group.nodes), "nodes are leaving"
    yield (
        any(instance.state is not InstanceState.RUNNING for instance in instances),
        "machines are being made or deleted",
    )
    there = len({instance.id for instance in instances})
    yield group.group.target != there, f"its size is {there} and shall be {group.group.target}"


def without_device(pool: PoolFacts, state: ClusterState) -> str:
    """Return the first node of a pool that should offer an accelerator, by a label or by its group's template, but
    offers none; "" if there is none. Leaving nodes are ignored."""
    for name in pool.groups:
        facts = state.groups[name]
        promised = facts.template is not None and announces_device(facts.template.node)
        for node in sorted(facts.nodes, key=lambda each: each.name):
            lacks = node.name in state.lacking or lacks_device(node, announced=promised)
            if lacks and node.name not in state.leaving:
                return node.name
    return ""
