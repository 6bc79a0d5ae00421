"""Distributes new nodes over similar node groups."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import NodeGroupState


def free_capacity(sizes: Iterable[tuple[int, int]]) -> int:
    """Return how many nodes groups of these (target, max) can still take together. A group over its maximum does not
    reduce the room of the others. 0 means that no node may be added (Cluster Autoscaler returns -1 because its 0
    means "no limit")."""
    return sum(max(0, most - target) for target, most in sizes)


def split(total: int, targets: Sequence[tuple[int, int]]) -> list[int]:
    """Return new targets for groups of these (target, max), in the same order, when they get `total` nodes together.

    The smallest group that is not full gets the next node; among equals, the first one. Nodes that no group can take
    are dropped.
    """
    new = [target for target, _ in targets]
    open_groups = [(target, at) for at, (target, most) in enumerate(targets) if target < most]
    heapq.heapify(open_groups)
    for _ in range(min(total, free_capacity(targets))):
        size, at = heapq.heappop(open_groups)
        new[at] = size + 1
        if new[at] < targets[at][1]:
            heapq.heappush(open_groups, (new[at], at))
    return new


def balance(
    total: int,
    best_group: NodeGroupState,
    similar: Sequence[NodeGroupState],
    limiter: ResourceLimiter,
    grown: Mapping[str, int] | None = None,
) -> list[tuple[str, int]]:
    """Return group -> nodes when `total` nodes of the best group are spread over it and its similar groups.

    The cluster's limits first cap the total. Then they and the pool's maximum cap each share in turn, smallest group
    first. Nodes cut from a share are not given to other groups, and a group without room for a single node is left out
    from the start. A zero-or-max group is never balanced. grown: nodes that the pass already gave each group. The
    limiter is not changed: the caller spends the room.
    """
    assert best_group.template is not None
    spare, given, room = limiter.copy(), grown or {}, limiter.room(best_group.template.node)
    if best_group.group.options.zero_or_max:
        return [(best_group.id, total)] if 0 < total <= room else []
    total = min(total, room)
    able = [
        (facts, facts.template.node)
        for facts in (best_group, *similar)
        if facts.template is not None and spare.room(facts.template.node) > 0 and spare.pool_room(facts.group) > 0
    ]
    sizes = [(facts.target + given.get(facts.id, 0), facts.group.max) for facts, _ in able]
    shares: list[tuple[str, int]] = []
    for (size, _), new, (facts, node) in sorted(
        zip(sizes, split(total, sizes), able, strict=True), key=lambda each: each[0][0]
    ):
        share = min(new - size, spare.room(node), spare.pool_room(facts.group))
        if share > 0:
            spare.take(node, share, facts.group)
            shares.append((facts.id, share))
    return shares
