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

from chalicelib.model.bill import Savings
from chalicelib.model.memory import Memory, ReplacementState
from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.model.reason import DisruptionReason

HOUR, DAY = 3600.0, 86400.0
REMOVAL, REPLACEMENT, OVERLAP, FAILED = "removal", "replacement", "overlap", "failedReplacement"
_SAVES = ("", DisruptionReason.UNNEEDED.value, DisruptionReason.CONSOLIDATION.value)


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
    ended = sorted(
        {
            operation.spec.id: operation
            for operation in operations
            if operation.status.state is OperationState.SUCCEEDED and operation.spec.price > 0
        }.values(),
        key=lambda operation: (operation.status.updated_at, operation.spec.id),
    )
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
        if any(operation.spec.reason not in _SAVES for operation in (*bought, *old)):
            continue
        if old or name in open_replacements:
            result += _replacement(name, bought, old, now, is_open=name in open_replacements)
        else:
            result += _failed(name, bought, removed, now, worthless)
    removals = [
        SavingsEntry(
            operation.spec.id,
            REMOVAL,
            _pool(operation),
            operation.spec.currency,
            operation.spec.price * len(operation.spec.targets),
            operation.status.updated_at,
            operation.status.updated_at + DAY,
        )
        for operation in removed
        if not operation.spec.replacement  # of one whose purchase is not known
        and operation.spec.reason in _SAVES
        and operation.spec.id not in worthless
    ]
    for operation in sorted(
        grown, key=lambda operation: (operation.spec.created_at, operation.spec.id)
    ):
        if operation.spec.pods and not operation.spec.replacement:
            removals = _bought_back(removals, operation)
    return tuple(
        sorted(
            (*result, *removals), key=lambda entry: (entry.begin, entry.id, entry.kind, entry.end)
        )
    )


def _replacement(
    name: str, bought: Sequence[Operation], old: Sequence[Operation], now: float, *, is_open: bool
) -> Iterable[SavingsEntry]:
    """Yield what both old and new nodes cost until the last old one is gone, and
    what is saved afterwards."""
    gone = now if is_open else max(operation.status.updated_at for operation in old)
    for operation in bought:
        yield _entry(
            name, OVERLAP, operation, -_bought(operation), operation.status.updated_at, gone
        )
    if not is_open:
        for operation in bought:
            yield _entry(name, REPLACEMENT, operation, -_bought(operation), gone, gone + DAY)
        for operation in old:
            price = operation.spec.price * len(operation.spec.targets)
            yield _entry(name, REPLACEMENT, operation, price, gone, gone + DAY)


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
        begin, left = operation.status.updated_at, operation.spec.to_size - operation.spec.from_size
        for removal in removed:
            if (
                left > 0
                and removal.spec.group == operation.spec.group
                and removal.spec.id not in worthless
                and not removal.spec.replacement
                and begin < removal.status.updated_at < begin + DAY
            ):
                number = min(left, len(removal.spec.targets))
                worthless.add(removal.spec.id)
                left -= number
                yield _entry(
                    name,
                    FAILED,
                    operation,
                    -operation.spec.price * number,
                    begin,
                    removal.status.updated_at,
                )
        if left > 0:
            yield _entry(
                name, FAILED, operation, -operation.spec.price * left, begin, min(now, begin + DAY)
            )


def _entry(
    name: str, kind: str, operation: Operation, rate: int, begin: float, end: float
) -> SavingsEntry:
    return SavingsEntry(name, kind, _pool(operation), operation.spec.currency, rate, begin, end)


def _bought(operation: Operation) -> int:
    return operation.spec.price * max(0, operation.spec.to_size - operation.spec.from_size)


def _pool(operation: Operation) -> str:
    return operation.spec.pool or operation.spec.group


def _bought_back(old_entries: Sequence[SavingsEntry], operation: Operation) -> list[SavingsEntry]:
    """Return the removals without what the purchase of nodes for pods ends: the newest of its
    pool first, up to its price."""
    at, left, pool, result = operation.spec.created_at, _bought(operation), _pool(operation), []
    for entry in sorted(old_entries, key=lambda entry: (-entry.begin, entry.id)):
        same_pool = (entry.pool, entry.currency) == (pool, operation.spec.currency)
        part = min(left, entry.rate) if same_pool and entry.begin <= at < entry.end else 0
        left -= part
        if part:
            result.append(msgspec.structs.replace(entry, rate=part, end=at))
        if entry.rate > part:
            result.append(msgspec.structs.replace(entry, rate=entry.rate - part))
    return result


def savings(all_entries: Sequence[SavingsEntry], now: float) -> tuple[Savings, ...]:
    """Return the sums by currency: since midnight (UTC), of seven days, since the
    first of the month (UTC)."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = (today, datetime.fromtimestamp(now, UTC) - timedelta(days=7), today.replace(day=1))
    sums = []
    for currency in sorted({entry.currency for entry in all_entries}):
        own = [entry for entry in all_entries if entry.currency == currency]
        rate = sum(entry.rate for entry in own if entry.begin <= now < entry.end)
        parts = (
            round(sum(entry.saved(begin.timestamp(), now) for entry in own)) for begin in since
        )
        sums.append(Savings(currency, rate, *parts))
    return tuple(sums)


def counted(
    old_savings: Sequence[Savings], all_entries: Sequence[SavingsEntry], since: float, now: float
) -> tuple[tuple[Savings, ...], dict[str, float]]:
    """Return the sums with their totals, and by currency what a counter grows by. since:
    the instant of old_savings."""
    before, grown = {item.currency: item for item in old_savings}, {}
    result = []
    for item in savings(all_entries, now):
        old = before.pop(item.currency, Savings(item.currency))
        own = (entry for entry in all_entries if entry.currency == item.currency)
        total = old.total + round(sum(entry.saved(since, now) for entry in own))
        grown[item.currency] = max(0, total - old.counted) / 1e6
        result.append(msgspec.structs.replace(item, total=total, counted=max(old.counted, total)))
    unchanged = (
        Savings(old.currency, total=old.total, counted=old.counted) for old in before.values()
    )
    return (*result, *unchanged), grown
