"""What removals, replacements and spot nodes have saved: entries that follow from the ended
operations and from what passes noted, and sums of them (docs/bill.md "Savings").

An entry's id is that of its operation or replacement, so the same operations give the same entries
however often they are read, and nothing is written for them. A saving counts for 24 hours; after
that the lower price is the normal state. In doubt less is counted:

- What was bought for a peak and is not needed any more within a day is given back, not saved.
- As many nodes as are bought again end savings of their pool, the newest first, for whatever they
  are bought, and at whatever price or currency; a dearer one ends as many as it pays for.
- While no passes were made, nobody knows what would have run: nothing is saved then.
- Where a price is missing, or two of a replacement are of different currencies, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import msgspec

from chalicelib.model.cluster_bill import NO_NOTES, ClusterBill, Savings, SavingsNotes, SpotDay
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Memory, ReplacementState
from chalicelib.model.operation import Operation, OperationKind, OperationState

HOUR, DAY = 3600.0, 86400.0
REMOVAL, REPLACEMENT, OVERLAP, FAILED = "removal", "replacement", "overlap", "failedReplacement"
GIVEN_BACK, SPOT = "givenBack", "spot"
_UNNEEDED = ("", DisruptionReason.UNNEEDED.value)
_SAVING_REASONS = (*_UNNEEDED, DisruptionReason.CONSOLIDATION.value)
_NOTED_DAYS = 36
"""Days for which notes are kept: a month, and what `outscaler cost --days` shows."""
_MOST_SPOT_DAYS, _MOST_GAPS = 150, 50


class SavingsEntry(msgspec.Struct, frozen=True):
    """Money that is saved, or given back, from `begin` to `end` (epoch seconds). rate: per hour in
    millionths; below zero for what is paid in addition. id: of the operation, or of the
    replacement."""

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


class _Claim(msgspec.Struct, frozen=True):
    """Nodes that are gone, until as many are bought again. rate: of one of them. planned: since
    when a purchase may be for their pods. have_successors: these run already, so that no purchase
    ends what is saved."""

    id: str
    kind: str
    pool: str
    currency: str
    nodes: int
    rate: int
    planned: float
    begin: float
    end: float
    have_successors: bool = False

    def entry(self, nodes: int, end: float) -> SavingsEntry:
        """Return what some of the nodes save until an instant."""
        rate = self.rate * nodes
        return SavingsEntry(self.id, self.kind, self.pool, self.currency, rate, self.begin, end)


def under_way(memory: Memory) -> frozenset[str]:
    """Return the replacements that are not over."""
    return frozenset(
        name
        for name, item in memory.replacements.items()
        if item.state is not ReplacementState.FAILED
    )


def entries(
    operations: Iterable[Operation],
    now: float,
    open_replacements: Collection[str] = (),
    notes: SavingsNotes = NO_NOTES,
) -> tuple[SavingsEntry, ...]:
    """Return the entries of operations and of notes, the oldest first. open_replacements: those
    that are not over; their new nodes are an overlap until now."""
    ended = _succeeded(operations)
    grown = [operation for operation in ended if operation.spec.kind is OperationKind.SCALE_UP]
    removed = [
        operation for operation in ended if operation.spec.kind is OperationKind.DELETE_NODES
    ]
    paid: list[SavingsEntry] = []
    claims: list[_Claim] = []
    worthless: set[str] = set()  # removals of nodes that a failed replacement bought
    for name in sorted({operation.spec.replacement for operation in grown} - {""}):
        bought = [operation for operation in grown if operation.spec.replacement == name]
        old = [operation for operation in removed if operation.spec.replacement == name]
        is_open = name in open_replacements
        if not all(_is_for_savings(operation) for operation in (*bought, *old)):
            continue
        if not old and not is_open:
            paid += _failed(name, bought, removed, now, worthless)
        elif _has_one_currency((*bought, *old)):
            paid += _overlap(name, bought, old, now, is_open=is_open)
            if not is_open:
                claims += _replacement(name, bought, old)
    claims += _removals(removed, grown, worthless)
    saved = [
        piece
        for entry in _until_bought_again(claims, grown)
        for piece in _outside(entry, notes.gaps)
    ]
    all_entries = (*paid, *saved, *_spot_entries(notes.spot, now))
    counting = (entry for entry in all_entries if entry.rate and entry.begin < entry.end)
    return tuple(sorted(counting, key=lambda entry: (entry.begin, entry.id, entry.kind, entry.end)))


def _succeeded(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations that went well, the oldest first, each once."""
    by_id = {}
    for operation in operations:
        if operation.status.state is OperationState.SUCCEEDED:
            by_id[operation.spec.id] = operation
    return sorted(by_id.values(), key=lambda item: (item.status.updated_at, item.spec.id))


def _is_for_savings(operation: Operation) -> bool:
    return operation.spec.reason in _SAVING_REASONS


def _has_one_currency(operations: Iterable[Operation]) -> bool:
    """Return whether all prices are known, and can be compared."""
    operations = list(operations)
    currencies = {operation.spec.currency for operation in operations}
    return len(currencies) == 1 and all(operation.spec.price > 0 for operation in operations)


def _bought_nodes(operation: Operation) -> int:
    return max(0, operation.spec.to_size - operation.spec.from_size)


def _pool(operation: Operation) -> str:
    return operation.spec.pool or operation.spec.group


# -- replacements


def _overlap(
    name: str, bought: Sequence[Operation], old: Sequence[Operation], now: float, *, is_open: bool
) -> Iterator[SavingsEntry]:
    """Yield what both old and new nodes cost until the last old one is gone."""
    end = now if is_open else _end_of(old)
    for operation in bought:
        rate = -operation.spec.price * _bought_nodes(operation)
        yield _entry(name, OVERLAP, operation, rate, operation.status.updated_at, end)


def _replacement(
    name: str, bought: Sequence[Operation], old: Sequence[Operation]
) -> Iterator[_Claim]:
    """Yield what is saved when the last old node is gone. Nodes that have a successor save the
    difference of the prices; purchases end only what the others save."""
    new_nodes = sum(map(_bought_nodes, bought))
    old_nodes = sum(len(operation.spec.targets) for operation in old)
    new_price = sum(operation.spec.price * _bought_nodes(operation) for operation in bought)
    old_price = sum(operation.spec.price * len(operation.spec.targets) for operation in old)
    difference = old_price - new_price
    gone = max(0, old_nodes - new_nodes)
    of_one = 0
    if gone and difference > 0:
        of_one = min(old_price // old_nodes, difference // gone)
    of_successors = difference - gone * of_one
    pool, currency, begin = _pool(old[0]), old[0].spec.currency, _end_of(old)
    times = begin, begin, begin + DAY
    yield _Claim(name, REPLACEMENT, pool, currency, gone, of_one, *times)
    yield _Claim(name, REPLACEMENT, pool, currency, 1, of_successors, *times, have_successors=True)


def _end_of(operations: Iterable[Operation]) -> float:
    return max(operation.status.updated_at for operation in operations)


def _failed(
    name: str,
    bought: Sequence[Operation],
    removed: Sequence[Operation],
    now: float,
    worthless: set[str],
) -> Iterator[SavingsEntry]:
    """Yield what nodes cost that were bought for nothing, until as many nodes of their group are
    removed, at most a day. These removals save nothing."""
    for operation in bought:
        begin = operation.status.updated_at
        remaining = _bought_nodes(operation)
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


# -- removals


def _removals(
    removed: Iterable[Operation], grown: Iterable[Operation], worthless: Collection[str]
) -> Iterator[_Claim]:
    """Yield the claims of all removals without a successor. Those that save nothing have the rate
    0, so that what is bought in their place ends no other claim."""
    recent = _RecentPurchases(grown)
    for removal in sorted(removed, key=lambda item: (item.spec.created_at, item.spec.id)):
        spec = removal.spec
        if spec.replacement:
            continue
        nodes = len(spec.targets)
        given_back = 0
        if spec.reason in _UNNEEDED:  # what was bought before a schedule let nodes go was its own
            since = max(spec.created_at - DAY, spec.scheduled_at)
            given_back = recent.taken(_pool(removal), nodes, since, spec.created_at)
        is_saving = _is_for_savings(removal) and spec.id not in worthless
        rate = spec.price if is_saving else 0
        yield _claim(removal, GIVEN_BACK, given_back, rate)
        yield _claim(removal, REMOVAL, nodes - given_back, rate)


def _claim(operation: Operation, kind: str, nodes: int, rate: int) -> _Claim:
    spec, begin = operation.spec, operation.status.updated_at
    times = spec.created_at, begin, begin + DAY
    return _Claim(spec.id, kind, _pool(operation), spec.currency, nodes, rate, *times)


class _RecentPurchases:
    """Nodes that were bought, by pool, until as many are given back."""

    def __init__(self, grown: Iterable[Operation]) -> None:
        self._nodes: dict[str, list[tuple[float, int]]] = {}
        for operation in sorted(grown, key=lambda item: (item.spec.created_at, item.spec.id)):
            nodes = operation.spec.created_at, _bought_nodes(operation)
            self._nodes.setdefault(_pool(operation), []).append(nodes)

    def taken(self, pool: str, nodes: int, since: float, until: float) -> int:
        """Take up to so many nodes that were bought in between, the oldest first; return how many
        there were."""
        remaining = nodes
        left = []
        for bought_at, count in self._nodes.get(pool, ()):
            is_recent = since < bought_at <= until
            taken = min(remaining, count) if is_recent else 0
            remaining -= taken
            if count > taken:
                left.append((bought_at, count - taken))
        self._nodes[pool] = left
        return nodes - remaining


def _until_bought_again(
    claims: Sequence[_Claim], grown: Iterable[Operation]
) -> Iterator[SavingsEntry]:
    """Yield what claims save until as many nodes are bought again in their pool, the newest claim
    first, at the latest at their end."""
    by_pool: dict[str, list[_Claim]] = {}
    for claim in sorted(claims, key=lambda claim: (-claim.begin, claim.id, claim.kind)):
        if claim.have_successors:
            yield claim.entry(claim.nodes, claim.end)
        elif claim.nodes > 0:
            by_pool.setdefault(claim.pool, []).append(claim)
    for operation in sorted(grown, key=lambda item: (item.spec.created_at, item.spec.id)):
        pool = _pool(operation)
        if pool in by_pool and not operation.spec.replacement:
            ended, by_pool[pool] = _bought_again(by_pool[pool], operation)
            yield from ended
    for own in by_pool.values():
        for claim in own:
            yield claim.entry(claim.nodes, claim.end)


def _bought_again(
    claims: Iterable[_Claim], operation: Operation
) -> tuple[list[SavingsEntry], list[_Claim]]:
    """Return what a purchase ends, and the claims that are left. It ends as many nodes as it buys,
    and more of them as far as its price is that of more."""
    at, price = operation.spec.created_at, operation.spec.price
    nodes_left = _bought_nodes(operation)
    price_left = nodes_left * price
    ended, left = [], []
    for claim in claims:
        is_current = claim.planned <= at < claim.end
        if not is_current:
            left.append(claim)
            continue
        by_number = min(nodes_left, claim.nodes)
        is_comparable = claim.rate > 0 and claim.currency == operation.spec.currency
        by_price = min(claim.nodes, price_left // claim.rate) if is_comparable else 0
        taken = max(by_number, by_price)
        used = taken * claim.rate if is_comparable else by_number * price
        nodes_left -= by_number
        price_left = max(0, price_left - used)
        if taken:
            ended.append(claim.entry(taken, at))
        if claim.nodes > taken:
            left.append(msgspec.structs.replace(claim, nodes=claim.nodes - taken))
    return ended, left


def _outside(entry: SavingsEntry, gaps: Iterable[tuple[float, float]]) -> Iterator[SavingsEntry]:
    """Yield the parts of a saving that are outside of the times without passes."""
    begin = entry.begin
    if entry.rate > 0:
        for gap_begin, gap_end in sorted(gaps):
            if gap_end <= begin or gap_begin >= entry.end:
                continue
            yield msgspec.structs.replace(entry, begin=begin, end=max(begin, gap_begin))
            begin = gap_end
    yield msgspec.structs.replace(entry, begin=min(begin, entry.end))


def unpriced_removals(operations: Iterable[Operation], since: float) -> int:
    """Return the nodes that were removed since an instant and would have saved something if their
    price were known, or could be compared with that of their successors."""
    ended = [item for item in _succeeded(operations) if item.status.updated_at >= since]
    by_replacement: dict[str, list[Operation]] = {}
    for operation in ended:
        if operation.spec.replacement:
            by_replacement.setdefault(operation.spec.replacement, []).append(operation)
    count = 0
    for operation in ended:
        spec = operation.spec
        if spec.kind is not OperationKind.DELETE_NODES or not _is_for_savings(operation):
            continue
        others = by_replacement.get(spec.replacement, [operation])
        if not _has_one_currency(others):
            count += len(spec.targets)
    return count


# -- what passes note


def with_gap(notes: SavingsNotes, begin: float, end: float) -> SavingsNotes:
    """Return the notes with a time without passes."""
    recent = [gap for gap in notes.gaps if gap[1] > end - _NOTED_DAYS * DAY]
    gaps = (*recent, (begin, end))[-_MOST_GAPS:]
    return msgspec.structs.replace(notes, gaps=gaps)


def with_spot(notes: SavingsNotes, amounts: Mapping[str, float], at: float) -> SavingsNotes:
    """Return the notes with what spot nodes have saved, in millionths by currency, on the day of an
    instant."""
    day = int(at // DAY)
    days = {(item.day, item.currency): item.amount for item in notes.spot}
    for currency, amount in amounts.items():
        days[day, currency] = days.get((day, currency), 0) + round(amount)
    recent = sorted(key for key in days if key[0] > day - _NOTED_DAYS)[-_MOST_SPOT_DAYS:]
    spot = tuple(SpotDay(currency, number, days[number, currency]) for number, currency in recent)
    return msgspec.structs.replace(notes, spot=spot)


def spot_rates(bill: ClusterBill) -> dict[str, int]:
    """Return what spot nodes save an hour at the instant of the bill, by currency."""
    rates = {}
    for one in bill.bills:
        if one.spot is not None and one.spot.saved:
            rates[one.currency] = one.spot.saved
    return rates


def _spot_entries(days: Iterable[SpotDay], now: float) -> Iterator[SavingsEntry]:
    """Yield what spot nodes saved on a day, as if evenly in what has passed of it."""
    for item in days:
        begin = item.day * DAY
        end = min(begin + DAY, now)
        if end > begin:
            rate = round(item.amount * HOUR / (end - begin))
            yield SavingsEntry(str(item.day), SPOT, "", item.currency, rate, begin, end)


# -- sums


def savings(all_entries: Sequence[SavingsEntry], now: float) -> tuple[Savings, ...]:
    """Return the sums by currency: since midnight (UTC), of seven days, since the
    first of the month (UTC)."""
    instant = datetime.fromtimestamp(now, UTC)
    midnight = instant.replace(hour=0, minute=0, second=0, microsecond=0)
    week_ago = instant - timedelta(days=7)
    first_of_month = midnight.replace(day=1)
    periods = [day.timestamp() for day in (midnight, week_ago, first_of_month)]
    sums = []
    for currency in sorted({entry.currency for entry in all_entries}):
        own = [entry for entry in all_entries if entry.currency == currency]
        rate = sum(
            entry.rate
            for entry in own
            if entry.kind != GIVEN_BACK and entry.begin <= now < entry.end
        )
        today, week, month = (amount(own, since, now) for since in periods)
        given_back = [amount(own, since, now, (GIVEN_BACK,)) for since in periods]
        spot = [amount(own, since, now, (SPOT,)) for since in periods]
        sums.append(
            Savings(
                currency,
                rate,
                today,
                week,
                month,
                given_back_today=given_back[0],
                given_back_week=given_back[1],
                given_back_month=given_back[2],
                spot_today=spot[0],
                spot_week=spot[1],
                spot_month=spot[2],
            )
        )
    return tuple(sums)


SAVED = (REMOVAL, REPLACEMENT, OVERLAP, FAILED, SPOT)
"""The kinds whose sum is what is saved."""


def amount(
    own_entries: Iterable[SavingsEntry],
    since: float,
    until: float,
    kinds: Collection[str] = SAVED,
) -> int:
    """Return the millionths of some kinds of entries of one currency between two instants."""
    return round(sum(entry.saved(since, until) for entry in own_entries if entry.kind in kinds))


def counted(
    old_savings: Sequence[Savings],
    all_entries: Sequence[SavingsEntry],
    since: float,
    now: float,
    spot: Mapping[str, float] = MappingProxyType({}),
) -> tuple[tuple[Savings, ...], dict[str, float]]:
    """Return the sums with their totals, and by currency what a counter grows by. since:
    the instant of old_savings. spot: what spot nodes have saved since then, in millionths."""
    before = {item.currency: item for item in old_savings}
    increments = {}
    result = []
    without_spot = tuple(kind for kind in SAVED if kind != SPOT)
    for item in savings(all_entries, now):
        old = before.pop(item.currency, Savings(item.currency))
        own = [entry for entry in all_entries if entry.currency == item.currency]
        of_spot = round(spot.get(item.currency, 0.0))
        total = old.total + amount(own, since, now, without_spot) + of_spot
        increments[item.currency] = max(0, total - old.counted) / 1e6
        result.append(msgspec.structs.replace(item, total=total, counted=max(old.counted, total)))
    unchanged = (
        Savings(old.currency, total=old.total, counted=old.counted) for old in before.values()
    )
    return (*result, *unchanged), increments
