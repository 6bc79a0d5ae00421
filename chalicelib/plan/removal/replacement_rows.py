"""Rows of replacements: how they begin, what they hold, how they fail, which of them are kept.

A row (model/memory.py, Replacement) is the durable state of one replacement. replacements.py
advances rows from pass to pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.memory import (
    NOT_BEGUN,
    GroupMemory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
)
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.plan import EndedReplacement
from chalicelib.model.reason import Reason
from chalicelib.model.timeouts import provision_time
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.state import backoff
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.state.readiness import Bucket

FIRST_BACKOFF, LONGEST_BACKOFF = 3600.0, 86_400.0
REMEMBERED = 86_400.0
"""Seconds after the end of its back-off for which a failure still lengthens the
next one of the same nodes."""
MOST_FAILED = 100
"""Failed rows that are kept; the oldest go first."""

UNDER_WAY = frozenset(
    {ReplacementState.BUYING, ReplacementState.WAITING, ReplacementState.DRAINING}
)
"""States in which its nodes belong to the replacement: no other method takes
them, and budgets count them."""
_WAITS = frozenset({ReplacementState.BUYING, ReplacementState.WAITING})


def reserved_nodes(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the names of old and new nodes that belong to replacements. No other move
    takes them or fills them."""
    return frozenset(
        name
        for replacement in rows
        if replacement.state in UNDER_WAY
        for name in (*replacement.nodes, *replacement.new_nodes)
    )


def on_their_way_out(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the nodes whose removal is promised, because something is bought for their pods:
    disruptionBudgets count them from the purchase on."""
    return frozenset(
        name for replacement in rows if replacement.state in UNDER_WAY for name in replacement.nodes
    )


def softly_tainted(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the nodes that the scheduler should keep empty if it can."""
    return frozenset(
        name
        for replacement in rows
        if replacement.state is not ReplacementState.FAILED
        for name in replacement.nodes
    )


def propose_row(move: JudgedMove, state: ClusterState) -> Replacement:
    """Return the row of a move that buys and is wanted for the first time."""
    nodes = sum(move.purchases.values())
    purchases = tuple(
        PurchasedNodes(group, count, move.prices.get(group, move.cost // max(1, nodes)))
        for group, count in sorted(move.purchases.items())
    )
    before = _last_failure(move.nodes, state.memory.replacements.values())
    return Replacement(
        id=_id(move.nodes, purchases, state.now),
        state=ReplacementState.PROPOSED,
        nodes=move.nodes,
        purchases=purchases,
        price=move.price,
        disruption=move.disruption,
        disruption_price=move.disruption_price,
        score=move.score,
        pool=move.pool,
        proposed_at=state.now,
        since=state.now,
        reason=move.reason,
        times=before.times if before is not None else 0,
    )


def proposed_again(replacement: Replacement, now: float) -> Replacement:
    """Return a row of which nothing was bought as proposed, for as long as it has been."""
    purchases = tuple(
        msgspec.structs.replace(purchase, operation="") for purchase in replacement.purchases
    )
    return msgspec.structs.replace(
        replacement,
        state=ReplacementState.PROPOSED,
        since=now,
        bought_at=0.0,
        purchases=purchases,
        ends={},
    )


def _id(nodes: Sequence[str], purchases: Sequence[PurchasedNodes], proposed_at: float) -> str:
    content = msgspec.json.encode(
        [sorted(nodes), [(purchase.group, purchase.nodes) for purchase in purchases], proposed_at]
    )
    return hashlib.sha256(content).hexdigest()[:20]


def all_nodes(replacement: Replacement) -> frozenset[str]:
    """Return the names of all old nodes."""
    return frozenset((*replacement.nodes, *replacement.gone))


def _last_failure(nodes: Iterable[str], rows: Iterable[Replacement]) -> Replacement | None:
    same = frozenset(nodes)
    failed = (
        replacement
        for replacement in rows
        if replacement.state is ReplacementState.FAILED and all_nodes(replacement) == same
    )
    return max(failed, key=lambda replacement: replacement.since, default=None)


def with_operations(
    rows: Mapping[str, Replacement], operations: Sequence[Operation]
) -> dict[str, Replacement]:
    """Return the rows with the ids of the operations that this pass plans for them."""
    planned: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.spec.replacement in rows:
            planned.setdefault(operation.spec.replacement, []).append(operation)
    return {**rows, **{name: _with_operations(rows[name], own) for name, own in planned.items()}}


def _with_operations(replacement: Replacement, operations: Sequence[Operation]) -> Replacement:
    bought = {
        op.spec.group: op.spec.id for op in operations if op.spec.kind is OperationKind.SCALE_UP
    }
    removals = {
        target.node: op.spec.id
        for op in operations
        if op.spec.kind is OperationKind.DELETE_NODES
        for target in op.spec.targets
    }
    purchases = tuple(
        purchase
        if purchase.operation or purchase.group not in bought
        else msgspec.structs.replace(purchase, operation=bought[purchase.group])
        for purchase in replacement.purchases
    )
    return msgspec.structs.replace(
        replacement, purchases=purchases, removals={**replacement.removals, **removals}
    )


def failed(replacement: Replacement, reason: Reason, now: float) -> Replacement:
    """Return the row as failed. Its nodes are not replaced again before its back-off is over, which
    is longer after each failure of the same nodes."""
    until = now + min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(replacement.times, 10))
    state, times = ReplacementState.FAILED, replacement.times + 1
    return msgspec.structs.replace(
        replacement, state=state, since=now, until=until, times=times, why=reason
    )


def ended_rows(
    before: Mapping[str, Replacement], after: Mapping[str, Replacement]
) -> tuple[EndedReplacement, ...]:
    """Return the replacements that were under way before a pass and are over after it. One of which
    nothing was bought in time is none of them: it may be proposed again at once."""
    ended = []
    for name, row in sorted(before.items()):
        now = after.get(name)
        is_over = now is None or now.state is ReplacementState.FAILED
        not_begun = now is None and all(
            row.ends.get(bought.operation) == NOT_BEGUN for bought in row.purchases
        )
        if row.state in UNDER_WAY and is_over and not not_begun:
            last = now or row
            nodes = tuple(sorted(all_nodes(last)))
            saves = (row.price - row.cost) / MICRO
            ended.append(
                EndedReplacement(
                    name, nodes, last.new_nodes, saves, last.why if now else None, last.until
                )
            )
    return tuple(ended)


def without_failures_of(
    replacement: Replacement, rows: Mapping[str, Replacement]
) -> dict[str, Replacement]:
    """Return the rows without the earlier failures of the same nodes."""
    same = all_nodes(replacement)
    return {
        name: other
        for name, other in rows.items()
        if name == replacement.id
        or other.state is not ReplacementState.FAILED
        or all_nodes(other) != same
    }


def kept_failures(rows: Mapping[str, Replacement], now: float) -> dict[str, Replacement]:
    """Return the rows without the failures that are old, or too many."""
    failures = sorted(
        (
            replacement
            for replacement in rows.values()
            if replacement.state is ReplacementState.FAILED
        ),
        key=by_age,
    )
    old = {replacement.id for replacement in failures if now >= replacement.until + REMEMBERED}
    old |= {replacement.id for replacement in failures[: max(0, len(failures) - MOST_FAILED)]}
    return {name: replacement for name, replacement in rows.items() if name not in old}


def by_age(replacement: Replacement) -> tuple[bool, float, str]:
    """Sort key: rows under way, then the others; the oldest first."""
    return (
        replacement.state not in UNDER_WAY,
        replacement.since
        if replacement.state is ReplacementState.FAILED
        else replacement.proposed_at,
        replacement.id,
    )


def current_rows(state: ClusterState) -> dict[str, Replacement]:
    """Return the rows of memory with the new nodes that have registered by now: nodes of the group
    that were created since the purchase and that no other replacement has, the newest first."""
    rows = {
        replacement.id: _not_from_the_future(replacement, state.now)
        for replacement in state.memory.replacements.values()
    }
    known = {
        name
        for replacement in rows.values()
        for name in (*replacement.new_nodes, *all_nodes(replacement))
    }
    for replacement in sorted(rows.values(), key=by_age):
        if replacement.state in UNDER_WAY:
            purchases = tuple(
                _with_new_nodes(purchase, replacement.bought_at, state, known)
                for purchase in replacement.purchases
            )
            rows[replacement.id] = msgspec.structs.replace(replacement, purchases=purchases)
    return rows


def replacement_timeout(replacement: Replacement, state: ClusterState) -> float:
    """Return the seconds that the nodes of a row may take until they are ready."""
    own = state.policy.consolidation.replace_timeout
    if own is not None:
        return own
    groups = (state.groups.get(purchase.group) for purchase in replacement.purchases)
    times = (provision_time(group.group, state.options) for group in groups if group is not None)
    return max(times, default=state.options.max_node_provision_time)


def count_late_successors(state: ClusterState) -> ClusterState:
    """Return the cluster state in which groups are backed off whose nodes, bought as
    successors, are not ready in time. A replacement counts once: not if its group has failed
    since the purchase already."""
    changed: dict[str, GroupMemory] = {}
    for row in sorted(current_rows(state).values(), key=by_age):
        timeout = replacement_timeout(row, state)
        if row.state not in _WAITS or state.now - row.bought_at <= timeout:
            continue
        for purchase in row.purchases:
            group = state.groups.get(purchase.group)
            if group is None or group.group.error or row.ends.get(purchase.operation) != "":
                continue
            memory = changed.get(group.id, group.memory)
            lacks = purchase.nodes - sum(
                state.buckets.get(name) is Bucket.READY for name in purchase.names
            )
            counted = memory.backoff is not None and memory.backoff.last_failed >= row.bought_at
            if lacks > 0 and not counted:
                message = f"{lacks} nodes bought as successors are not ready after {int(timeout)}s"
                failed = backoff.fail(
                    memory.backoff, state.now, state.options, "Unknown", "timeout", message
                )
                changed[group.id] = msgspec.structs.replace(memory, backoff=failed)
    if not changed:
        return state
    memory_after = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    counted_state = build_cluster_state(state.snapshot, state.policy, memory_after, state.now)
    return msgspec.structs.replace(counted_state, timed_out=state.timed_out)


def _with_new_nodes(
    purchase: PurchasedNodes, since: float, state: ClusterState, known: set[str]
) -> PurchasedNodes:
    """Return the purchase with the names of new nodes, which become known."""
    group, lacks = state.groups.get(purchase.group), purchase.nodes - len(purchase.names)
    if group is None or lacks <= 0:
        return purchase
    new = [
        node
        for node in group.nodes
        if node.created >= since and node.name not in known and node.name not in state.leaving
    ]
    names = tuple(
        node.name for node in sorted(new, key=lambda node: (-node.created, node.name))[:lacks]
    )
    known.update(names)
    return msgspec.structs.replace(purchase, names=(*purchase.names, *names))


def _not_from_the_future(replacement: Replacement, now: float) -> Replacement:
    """Return the row with instants that a wrong clock wrote moved to now, so that it waits
    no longer than it should."""
    if (
        max(replacement.proposed_at, replacement.since, replacement.bought_at) <= now
        and replacement.until <= now + LONGEST_BACKOFF
    ):
        return replacement
    return msgspec.structs.replace(
        replacement,
        proposed_at=min(replacement.proposed_at, now),
        since=min(replacement.since, now),
        bought_at=min(replacement.bought_at, now),
        until=min(replacement.until, now + LONGEST_BACKOFF),
    )


def open_surge(rows: Iterable[Replacement], state: ClusterState) -> dict[str, int]:
    """Return per pool how many nodes these replacements buy that are not
    yet paid back by a removal."""
    surge: dict[str, int] = {}
    for replacement in rows:
        for purchase in replacement.purchases:
            group = state.groups.get(purchase.group)
            pool = pool_id(group.group) if group is not None else purchase.group
            surge[pool] = surge.get(pool, 0) + max(0, purchase.nodes - len(replacement.gone))
    return surge


def surge_limit(pool: str, state: ClusterState) -> int:
    """Return maxSurge of a pool: at least one node."""
    registered = sum(
        len(group.nodes) for group in state.groups.values() if pool_id(group.group) == pool
    )
    return max(1, state.policy.consolidation.max_surge.of(registered))
