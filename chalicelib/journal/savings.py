"""What removals and replacements have saved: entries that follow from the ended operations, and
sums of them (docs/bill.md "Savings").

An entry's id is that of its operation or replacement, so the same operations give the same entries
however often they are read, and nothing is written for them. A saving counts for 24 hours; after
that the lower price is the normal state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from chalicelib.model.cluster_bill import Savings
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Memory, ReplacementState
from chalicelib.model.operation import Operation, OperationKind, OperationState

HOUR, DAY = 3600.0, 86400.0
REMOVAL, REPLACEMENT, OVERLAP, FAILED = "removal", "replacement", "overlap", "failedReplacement"
_SAVING_REASONS = ("", DisruptionReason.UNNEEDED.value, DisruptionReason.CONSOLIDATION.value)


class SavingsEntry(msgspec.Struct, frozen=True):
    """Money that is saved from `begin` to `end` (epoch seconds). rate: per hour in millionths;
    below zero for what is paid in addition. id: of the operation, or of the replacement."""

    id: str
    kind: str
    pool: str
    currency: str
    rate: int
    begin: float
    end: float

    def saved(self, since: float, until: float) -> float:
        """Return the millionths that are saved between two instants."""
        return self.rate * max(0.0, min(self.end, until) - max(self.begin, since)) / HOUR


def under_way(memory: Memory) -> frozenset[str]:
    """Return the replacements that are not over."""
    return frozenset(
        name
        for name, item in memory.replacements.items()
        if item.state is not ReplacementState.FAILED
    )


def entries(
    operations: Iterable[Operation], now: float, open_replacements: Collection[str] = ()
) -> tuple[SavingsEntry, ...]:
    """Return the entries of operations, the oldest first. open_replacements: those that are not
    over; their new nodes are an overlap until now."""
    ended = _succeeded(operations)
    grown = [operation for operation in ended if operation.spec.kind is OperationKind.SCALE_UP]
    removed = [
        operation for operation in ended if operation.spec.kind is OperationKind.DELETE_NODES
    ]
    replacements = sorted({operation.spec.replacement for operation in grown} - {""})
    result: list[SavingsEntry] = []
    worthless: set[str] = set()  # removals of nodes that a failed replacement bought
    for name in replacements:
        bought = [operation for operation in grown if operation.spec.replacement == name]
        old = [operation for operation in removed if operation.spec.replacement == name]
        if not all(_is_for_savings(operation) for operation in (*bought, *old)):
            continue
        is_open = name in open_replacements
        if old or is_open:
            result += _replacement(name, bought, old, now, is_open=is_open)
        else:
            result += _failed(name, bought, removed, now, worthless)
    removals = []
    for operation in removed:
        spec = operation.spec
        # A removal with a replacement is of one whose purchase is not known.
        if _is_for_savings(operation) and not spec.replacement and spec.id not in worthless:
            begin = operation.status.updated_at
            rate = _removed_price(operation)
            removals.append(_entry(spec.id, REMOVAL, operation, rate, begin, begin + DAY))
    for operation in sorted(grown, key=lambda item: (item.spec.created_at, item.spec.id)):
        if operation.spec.pods and not operation.spec.replacement:
            removals = _bought_back(removals, operation)
    result += removals
    return tuple(sorted(result, key=lambda entry: (entry.begin, entry.id, entry.kind, entry.end)))


def _succeeded(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations that went well and have a price, the oldest first, each once."""
    by_id = {}
    for operation in operations:
        is_over = operation.status.state is OperationState.SUCCEEDED
        if is_over and operation.spec.price > 0:
            by_id[operation.spec.id] = operation
    return sorted(by_id.values(), key=lambda item: (item.status.updated_at, item.spec.id))


def _replacement(
    name: str, bought: Sequence[Operation], old: Sequence[Operation], now: float, *, is_open: bool
) -> Iterable[SavingsEntry]:
    """Yield what both old and new nodes cost until the last old one is gone, and
    what is saved afterwards."""
    end = now if is_open else max(operation.status.updated_at for operation in old)
    for operation in bought:
        begin = operation.status.updated_at
        yield _entry(name, OVERLAP, operation, -_bought_price(operation), begin, end)
    if is_open:
        return
    for operation in bought:
        yield _entry(name, REPLACEMENT, operation, -_bought_price(operation), end, end + DAY)
    for operation in old:
        yield _entry(name, REPLACEMENT, operation, _removed_price(operation), end, end + DAY)


def _failed(
    name: str,
    bought: Sequence[Operation],
    removed: Sequence[Operation],
    now: float,
    worthless: set[str],
) -> Iterable[SavingsEntry]:
    """Yield what nodes cost that were bought for nothing, until as many nodes of their group are
    removed, at most a day. These removals save nothing."""
    for operation in bought:
        begin = operation.status.updated_at
        remaining = operation.spec.to_size - operation.spec.from_size
        price = operation.spec.price
        for removal in removed:
            end = removal.status.updated_at
            is_free = not removal.spec.replacement and removal.spec.id not in worthless
            same_group = removal.spec.group == operation.spec.group
            if remaining > 0 and is_free and same_group and begin < end < begin + DAY:
                number = min(remaining, len(removal.spec.targets))
                worthless.add(removal.spec.id)
                remaining -= number
                yield _entry(name, FAILED, operation, -price * number, begin, end)
        if remaining > 0:
            end = min(now, begin + DAY)
            yield _entry(name, FAILED, operation, -price * remaining, begin, end)


def _entry(
    name: str, kind: str, operation: Operation, rate: int, begin: float, end: float
) -> SavingsEntry:
    return SavingsEntry(name, kind, _pool(operation), operation.spec.currency, rate, begin, end)


def _is_for_savings(operation: Operation) -> bool:
    return operation.spec.reason in _SAVING_REASONS


def _bought_price(operation: Operation) -> int:
    return operation.spec.price * max(0, operation.spec.to_size - operation.spec.from_size)


def _removed_price(operation: Operation) -> int:
    return operation.spec.price * len(operation.spec.targets)


def _pool(operation: Operation) -> str:
    return operation.spec.pool or operation.spec.group


def _bought_back(old_entries: Sequence[SavingsEntry], operation: Operation) -> list[SavingsEntry]:
    """Return the removals without what the purchase of nodes for pods ends: the newest of its
    pool first, up to its price."""
    at = operation.spec.created_at
    remaining = _bought_price(operation)
    own_pool = (_pool(operation), operation.spec.currency)
    result = []
    for entry in sorted(old_entries, key=lambda entry: (-entry.begin, entry.id)):
        is_current = entry.begin <= at < entry.end
        same_pool = (entry.pool, entry.currency) == own_pool
        part = min(remaining, entry.rate) if same_pool and is_current else 0
        remaining -= part
        if part:
            result.append(msgspec.structs.replace(entry, rate=part, end=at))
        if entry.rate > part:
            result.append(msgspec.structs.replace(entry, rate=entry.rate - part))
    return result


def savings(all_entries: Sequence[SavingsEntry], now: float) -> tuple[Savings, ...]:
    """Return the sums by currency: since midnight (UTC), of seven days, since the
    first of the month (UTC)."""
    instant = datetime.fromtimestamp(now, UTC)
    midnight = instant.replace(hour=0, minute=0, second=0, microsecond=0)
    week_ago = instant - timedelta(days=7)
    first_of_month = midnight.replace(day=1)
    sums = []
    for currency in sorted({entry.currency for entry in all_entries}):
        own = [entry for entry in all_entries if entry.currency == currency]
        rate = sum(entry.rate for entry in own if entry.begin <= now < entry.end)
        periods = (midnight, week_ago, first_of_month)
        sums.append(Savings(currency, rate, *(_sum(own, day.timestamp(), now) for day in periods)))
    return tuple(sums)


def _sum(own_entries: Iterable[SavingsEntry], since: float, until: float) -> int:
    return round(sum(entry.saved(since, until) for entry in own_entries))


def counted(
    old_savings: Sequence[Savings], all_entries: Sequence[SavingsEntry], since: float, now: float
) -> tuple[tuple[Savings, ...], dict[str, float]]:
    """Return the sums with their totals, and by currency what a counter grows by. since:
    the instant of old_savings."""
    before = {item.currency: item for item in old_savings}
    increments = {}
    result = []
    for item in savings(all_entries, now):
        old = before.pop(item.currency, Savings(item.currency))
        own = [entry for entry in all_entries if entry.currency == item.currency]
        total = old.total + _sum(own, since, now)
        increments[item.currency] = max(0, total - old.counted) / 1e6
        result.append(msgspec.structs.replace(item, total=total, counted=max(old.counted, total)))
    unchanged = (
        Savings(old.currency, total=old.total, counted=old.counted) for old in before.values()
    )
    return (*result, *unchanged), increments
