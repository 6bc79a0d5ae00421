"""Who of several similar groups gets how many of the new nodes (scale-up.md §9 "Split")."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import NodeGroupState


def free_capacity(sizes: Iterable[tuple[int, int]]) -> int:
    """What groups of these (target, max) can still take together; one over its maximum takes nothing from the others.
    0: none may be added (upstream says -1, as its 0 stands for "no limit")."""
    return sum(max(0, most - target) for target, most in sizes)


def split(total: int, targets: Sequence[tuple[int, int]]) -> list[int]:
    """New targets for groups of these (target, max), in the same order, when they get `total` nodes together.

    The smallest group that is not full gets the next node; of equals, the first. What no group can take is dropped.
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
    best: NodeGroupState,
    similar: Sequence[NodeGroupState],
    ledger: ResourceLimiter,
    grown: Mapping[str, int] | None = None,
) -> list[tuple[str, int]]:
    """group -> nodes, when `total` nodes of the best group are spread over it and its similar groups.

    The cluster's limits cap the total first, then, with the pool's maximum, each share in turn, smallest group first;
    what a share loses is not given to others, and a group with no room for one node gets none from the start (cases B8,
    B9). A zero-or-max group shares with nobody. grown: what the pass already gave each group. The ledger stays as it
    is: taking is the caller's.
    """
    assert best.template is not None
    spare, given, room = ledger.copy(), grown or {}, ledger.room(best.template.node)
    if best.group.options.zero_or_max:
        return [(best.id, total)] if 0 < total <= room else []
    total = min(total, room)
    able = [
        (facts, facts.template.node)
        for facts in (best, *similar)
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
