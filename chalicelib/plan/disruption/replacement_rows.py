"""Rows of replacements: how they begin, what they hold, how they fail, which of them are kept.

A row (model/memory.py, Replacement) is the durable state of one replacement. replacements.py advances rows from pass to
pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.memory import PurchasedNodes, Replacement, ReplacementState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.reason import Reason
from chalicelib.plan.disruption.consolidation.moves import JudgedMove
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState

FIRST_BACKOFF, LONGEST_BACKOFF = 3600.0, 86_400.0
REMEMBERED = 86_400.0
"""Seconds after the end of its back-off for which a failure still lengthens the next one of the same nodes."""
MOST_FAILED = 100
"""Failed rows that are kept; the oldest go first."""

UNDER_WAY = frozenset({ReplacementState.BUYING, ReplacementState.WAITING, ReplacementState.DRAINING})
"""States in which its nodes belong to the replacement: no other method takes them, and budgets count them."""


def reserved_nodes(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the names of old and new nodes that belong to replacements. No other move takes them or fills them."""
    return frozenset(name for row in rows if row.state in UNDER_WAY for name in (*row.nodes, *row.new_nodes))


def on_their_way_out(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the nodes whose removal is promised, because something is bought for their pods: disruptionBudgets count
    them from the purchase on."""
    return frozenset(name for row in rows if row.state in UNDER_WAY for name in row.nodes)


def softly_tainted(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the nodes that the scheduler should keep empty if it can."""
    return frozenset(name for row in rows if row.state is not ReplacementState.FAILED for name in row.nodes)


def propose_row(move: JudgedMove, state: ClusterState) -> Replacement:
    """Return the row of a move that buys and is wanted for the first time."""
    bought = sum(move.purchases.values())
    purchases = tuple(
        PurchasedNodes(group, count, move.prices.get(group, move.cost // max(1, bought)))
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
        times=before.times if before is not None else 0,
    )


def _id(nodes: Sequence[str], purchases: Sequence[PurchasedNodes], proposed_at: float) -> str:
    content = msgspec.json.encode([sorted(nodes), [(bought.group, bought.nodes) for bought in purchases], proposed_at])
    return hashlib.sha256(content).hexdigest()[:20]


def all_nodes(row: Replacement) -> frozenset[str]:
    """Return the names of all old nodes."""
    return frozenset((*row.nodes, *row.gone))


def _last_failure(nodes: Iterable[str], rows: Iterable[Replacement]) -> Replacement | None:
    same = frozenset(nodes)
    failed = (row for row in rows if row.state is ReplacementState.FAILED and all_nodes(row) == same)
    return max(failed, key=lambda row: row.since, default=None)


def with_operations(rows: Mapping[str, Replacement], operations: Sequence[Operation]) -> dict[str, Replacement]:
    """Return the rows with the ids of the operations that this pass plans for them."""
    planned: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.spec.replacement in rows:
            planned.setdefault(operation.spec.replacement, []).append(operation)
    return {**rows, **{name: _with_operations(rows[name], own) for name, own in planned.items()}}


def _with_operations(row: Replacement, operations: Sequence[Operation]) -> Replacement:
    bought = {op.spec.group: op.spec.id for op in operations if op.spec.kind is OperationKind.SCALE_UP}
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
        for purchase in row.purchases
    )
    return msgspec.structs.replace(row, purchases=purchases, removals={**row.removals, **removals})


def failed(row: Replacement, why: Reason, now: float) -> Replacement:
    """Return the row as failed. Its nodes are not replaced again before its back-off is over, which is longer after
    each failure of the same nodes."""
    until = now + min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(row.times, 10))
    state, times = ReplacementState.FAILED, row.times + 1
    return msgspec.structs.replace(row, state=state, since=now, until=until, times=times, why=why)


def without_failures_of(row: Replacement, rows: Mapping[str, Replacement]) -> dict[str, Replacement]:
    """Return the rows without the earlier failures of the same nodes."""
    same = all_nodes(row)
    return {
        name: other
        for name, other in rows.items()
        if name == row.id or other.state is not ReplacementState.FAILED or all_nodes(other) != same
    }


def kept_failures(rows: Mapping[str, Replacement], now: float) -> dict[str, Replacement]:
    """Return the rows without the failures that are old, or too many."""
    failures = sorted((row for row in rows.values() if row.state is ReplacementState.FAILED), key=by_age)
    old = {row.id for row in failures if now >= row.until + REMEMBERED}
    old |= {row.id for row in failures[: max(0, len(failures) - MOST_FAILED)]}
    return {name: row for name, row in rows.items() if name not in old}


def by_age(row: Replacement) -> tuple[bool, float, str]:
    """Sort key: rows under way, then the others; the oldest first."""
    return row.state not in UNDER_WAY, row.since if row.state is ReplacementState.FAILED else row.proposed_at, row.id


def current_rows(state: ClusterState) -> dict[str, Replacement]:
    """Return the rows of memory with the new nodes that have registered by now: nodes of the group that were created
    since the purchase and that no other replacement has, the newest first."""
    rows = {row.id: _not_from_the_future(row, state.now) for row in state.memory.replacements.values()}
    known = {name for row in rows.values() for name in (*row.new_nodes, *all_nodes(row))}
    for row in sorted(rows.values(), key=by_age):
        if row.state in UNDER_WAY:
            purchases = tuple(_with_new_nodes(bought, row.bought_at, state, known) for bought in row.purchases)
            rows[row.id] = msgspec.structs.replace(row, purchases=purchases)
    return rows


def _with_new_nodes(bought: PurchasedNodes, since: float, state: ClusterState, known: set[str]) -> PurchasedNodes:
    """Return the purchase with the names of new nodes, which become known."""
    group, lacks = state.groups.get(bought.group), bought.nodes - len(bought.names)
    if group is None or lacks <= 0:
        return bought
    new = [
        node
        for node in group.nodes
        if node.created >= since and node.name not in known and node.name not in state.leaving
    ]
    names = tuple(node.name for node in sorted(new, key=lambda node: (-node.created, node.name))[:lacks])
    known.update(names)
    return msgspec.structs.replace(bought, names=(*bought.names, *names))


def _not_from_the_future(row: Replacement, now: float) -> Replacement:
    """Return the row with instants that a wrong clock wrote moved to now, so that it waits no longer than it should."""
    if max(row.proposed_at, row.since, row.bought_at) <= now and row.until <= now + LONGEST_BACKOFF:
        return row
    return msgspec.structs.replace(
        row,
        proposed_at=min(row.proposed_at, now),
        since=min(row.since, now),
        bought_at=min(row.bought_at, now),
        until=min(row.until, now + LONGEST_BACKOFF),
    )


def pool_of(group: NodeGroupState) -> str:
    """Return the id of the pool that the group belongs to, or is."""
    return group.group.pool.id if group.group.pool is not None else group.id


def open_surge(rows: Iterable[Replacement], state: ClusterState) -> dict[str, int]:
    """Return per pool how many nodes these replacements buy that are not yet paid back by a removal."""
    surge: dict[str, int] = {}
    for row in rows:
        for purchase in row.purchases:
            group = state.groups.get(purchase.group)
            pool = pool_of(group) if group is not None else purchase.group
            surge[pool] = surge.get(pool, 0) + max(0, purchase.nodes - len(row.gone))
    return surge


def surge_limit(group: NodeGroupState, state: ClusterState) -> int:
    """Return maxSurge of the group's pool: at least one node."""
    registered = sum(len(other.nodes) for other in state.groups.values() if pool_of(other) == pool_of(group))
    return max(1, state.policy.consolidation.max_surge.of(registered))
