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
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.state import backoff
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.state.readiness import Bucket
from chalicelib.policy.timeouts import provision_time

FIRST_BACKOFF = 3600.0
LONGEST_BACKOFF = 86_400.0
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
    names: set[str] = set()
    for replacement in rows:
        if replacement.state in UNDER_WAY:
            names.update(replacement.nodes, replacement.new_nodes)
    return frozenset(names)


def on_their_way_out(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the nodes whose removal is promised, because something is bought for their pods:
    disruptionBudgets count them from the purchase on."""
    under_way = (replacement for replacement in rows if replacement.state in UNDER_WAY)
    return frozenset(name for replacement in under_way for name in replacement.nodes)


def softly_tainted(rows: Iterable[Replacement]) -> frozenset[str]:
    """Return the nodes that the scheduler should keep empty if it can."""
    current = (replacement for replacement in rows if not _is_failed(replacement))
    return frozenset(name for replacement in current for name in replacement.nodes)


def _is_failed(replacement: Replacement) -> bool:
    return replacement.state is ReplacementState.FAILED


def belongs_to(replacement: Replacement) -> Reason:
    """Return why nothing else touches the old and new nodes of a replacement."""
    return Reason.of(ReasonCode.IN_REPLACEMENT, id=replacement.id)


def propose_row(move: JudgedMove, state: ClusterState) -> Replacement:
    """Return the row of a move that buys and is wanted for the first time."""
    nodes = sum(move.purchases.values())
    mean_price = move.cost // max(1, nodes)
    purchases = tuple(
        PurchasedNodes(group, count, move.prices.get(group, mean_price))
        for group, count in sorted(move.purchases.items())
    )
    last_failure = _last_failure(move.nodes, state.memory.replacements.values())
    failures = last_failure.times if last_failure is not None else 0
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
        times=failures,
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
    sizes = [(purchase.group, purchase.nodes) for purchase in purchases]
    content = msgspec.json.encode([sorted(nodes), sizes, proposed_at])
    return hashlib.sha256(content).hexdigest()[:20]


def all_nodes(replacement: Replacement) -> frozenset[str]:
    """Return the names of all old nodes."""
    return frozenset((*replacement.nodes, *replacement.gone))


def _last_failure(nodes: Iterable[str], rows: Iterable[Replacement]) -> Replacement | None:
    names = frozenset(nodes)
    failures = (replacement for replacement in rows if _is_failed(replacement))
    own_failures = (replacement for replacement in failures if all_nodes(replacement) == names)
    return max(own_failures, key=lambda replacement: replacement.since, default=None)


def with_operations(
    rows: Mapping[str, Replacement], operations: Sequence[Operation]
) -> dict[str, Replacement]:
    """Return the rows with the ids of the operations that this pass plans for them."""
    planned: dict[str, list[Operation]] = {}
    for operation in operations:
        name = operation.spec.replacement
        if name in rows:
            planned.setdefault(name, []).append(operation)
    changed = {name: _with_operations(rows[name], own) for name, own in planned.items()}
    return {**rows, **changed}


def _with_operations(replacement: Replacement, operations: Sequence[Operation]) -> Replacement:
    bought: dict[str, str] = {}
    removals = dict(replacement.removals)
    for operation in operations:
        spec = operation.spec
        if spec.kind is OperationKind.SCALE_UP:
            bought[spec.group] = spec.id
        elif spec.kind is OperationKind.DELETE_NODES:
            removals.update((target.node, spec.id) for target in spec.targets)
    purchases = []
    for purchase in replacement.purchases:
        operation_id = purchase.operation or bought.get(purchase.group, "")
        purchases.append(msgspec.structs.replace(purchase, operation=operation_id))
    return msgspec.structs.replace(replacement, purchases=tuple(purchases), removals=removals)


def failed(replacement: Replacement, reason: Reason, now: float) -> Replacement:
    """Return the row as failed. Its nodes are not replaced again before its back-off is over, which
    is longer after each failure of the same nodes."""
    doublings = min(replacement.times, 10)
    backoff_time = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**doublings)
    return msgspec.structs.replace(
        replacement,
        state=ReplacementState.FAILED,
        since=now,
        until=now + backoff_time,
        times=replacement.times + 1,
        why=reason,
    )


def ended_rows(
    before: Mapping[str, Replacement], after: Mapping[str, Replacement]
) -> tuple[EndedReplacement, ...]:
    """Return the replacements that were under way before a pass and are over after it. One of which
    nothing was bought in time is none of them: it may be proposed again at once."""
    ended = []
    for name, row in sorted(before.items()):
        row_after = after.get(name)
        is_over = _was_begun(row) if row_after is None else _is_failed(row_after)
        if row.state not in UNDER_WAY or not is_over:
            continue
        last = row_after or row
        nodes = tuple(sorted(all_nodes(last)))
        saves = (row.price - row.cost) / MICRO
        why = row_after.why if row_after else None
        ended.append(EndedReplacement(name, nodes, last.new_nodes, saves, why, last.until))
    return tuple(ended)


def _was_begun(replacement: Replacement) -> bool:
    """Return whether any of its purchases was begun."""
    ends = [replacement.ends.get(purchase.operation) for purchase in replacement.purchases]
    return any(end != NOT_BEGUN for end in ends)


def without_failures_of(
    replacement: Replacement, rows: Mapping[str, Replacement]
) -> dict[str, Replacement]:
    """Return the rows without the earlier failures of the same nodes."""
    nodes = all_nodes(replacement)

    def is_earlier_failure(other_replacement: Replacement) -> bool:
        return _is_failed(other_replacement) and all_nodes(other_replacement) == nodes

    return {
        name: other
        for name, other in rows.items()
        if name == replacement.id or not is_earlier_failure(other)
    }


def kept_failures(rows: Mapping[str, Replacement], now: float) -> dict[str, Replacement]:
    """Return the rows without the failures that are old, or too many."""
    failures = sorted(filter(_is_failed, rows.values()), key=by_age)
    surplus = max(0, len(failures) - MOST_FAILED)
    dropped = {replacement.id for replacement in failures[:surplus]}
    dropped |= {replacement.id for replacement in failures if now >= replacement.until + REMEMBERED}
    return {name: replacement for name, replacement in rows.items() if name not in dropped}


def by_age(replacement: Replacement) -> tuple[bool, float, str]:
    """Sort key: rows under way, then the others; the oldest first."""
    begin = replacement.since if _is_failed(replacement) else replacement.proposed_at
    return replacement.state not in UNDER_WAY, begin, replacement.id


def current_rows(state: ClusterState) -> dict[str, Replacement]:
    """Return the rows of memory with the new nodes that have registered by now: nodes of the group
    that were created since the purchase and that no other replacement has, the newest first."""
    rows = {
        replacement.id: _not_from_the_future(replacement, state.now)
        for replacement in state.memory.replacements.values()
    }
    known_names: set[str] = set()
    for replacement in rows.values():
        known_names.update(replacement.new_nodes, all_nodes(replacement))
    for replacement in sorted(rows.values(), key=by_age):
        if replacement.state not in UNDER_WAY:
            continue
        purchases = tuple(
            _with_new_nodes(purchase, replacement.bought_at, state, known_names)
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
            ready = sum(state.buckets.get(name) is Bucket.READY for name in purchase.names)
            lacking = purchase.nodes - ready
            last_backoff = memory.backoff
            is_counted = last_backoff is not None and last_backoff.last_failed >= row.bought_at
            if lacking <= 0 or is_counted:
                continue
            message = f"{lacking} nodes bought as successors are not ready after {int(timeout)}s"
            next_backoff = backoff.fail(
                last_backoff, state.now, state.options, "Unknown", "timeout", message
            )
            changed[group.id] = msgspec.structs.replace(memory, backoff=next_backoff)
    if not changed:
        return state
    groups = {**state.memory.groups, **changed}
    memory_after = msgspec.structs.replace(state.memory, groups=groups)
    counted_state = build_cluster_state(state.snapshot, state.policy, memory_after, state.now)
    return msgspec.structs.replace(counted_state, timed_out=state.timed_out)


def _with_new_nodes(
    purchase: PurchasedNodes, since: float, state: ClusterState, known_names: set[str]
) -> PurchasedNodes:
    """Return the purchase with the names of new nodes, which become known."""
    group = state.groups.get(purchase.group)
    lacking = purchase.nodes - len(purchase.names)
    if group is None or lacking <= 0:
        return purchase
    excluded = known_names | state.leaving
    new_nodes = [
        node for node in group.nodes if node.created >= since and node.name not in excluded
    ]
    newest_first = sorted(new_nodes, key=lambda node: (-node.created, node.name))
    names = tuple(node.name for node in newest_first[:lacking])
    known_names.update(names)
    return msgspec.structs.replace(purchase, names=(*purchase.names, *names))


def _not_from_the_future(replacement: Replacement, now: float) -> Replacement:
    """Return the row with instants that a wrong clock wrote moved to now, so that it waits
    no longer than it should."""
    last_instant = max(replacement.proposed_at, replacement.since, replacement.bought_at)
    latest_end = now + LONGEST_BACKOFF
    if last_instant <= now and replacement.until <= latest_end:
        return replacement
    return msgspec.structs.replace(
        replacement,
        proposed_at=min(replacement.proposed_at, now),
        since=min(replacement.since, now),
        bought_at=min(replacement.bought_at, now),
        until=min(replacement.until, latest_end),
    )


def open_surge(rows: Iterable[Replacement], state: ClusterState) -> dict[str, int]:
    """Return per pool how many nodes these replacements buy that are not
    yet paid back by a removal."""
    surge: dict[str, int] = {}
    for replacement in rows:
        for purchase in replacement.purchases:
            group = state.groups.get(purchase.group)
            pool = pool_id(group.group) if group is not None else purchase.group
            unpaid = max(0, purchase.nodes - len(replacement.gone))
            surge[pool] = surge.get(pool, 0) + unpaid
    return surge


def surge_limit(pool: str, state: ClusterState) -> int:
    """Return maxSurge of a pool: at least one node."""
    groups = (group for group in state.groups.values() if pool_id(group.group) == pool)
    registered = sum(len(group.nodes) for group in groups)
    return max(1, state.policy.consolidation.max_surge.of(registered))
