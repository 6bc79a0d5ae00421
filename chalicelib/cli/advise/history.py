"""What a group has bought for waiting pods and how large it was, from its ended operations
(docs/advise.md "Data").

Operations are stored for 14 days, or 35 where the node has a price, with the instant of their plan,
both sizes and the pods they were planned for. Nothing is therefore written for the advice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec

from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.store.gauge_ring import HOUR, GaugePoint

DAY, QUARTER = 86400.0, 900.0
MOST_OPERATIONS = 50_000
"""Newest operations that are looked at."""
_LONGEST_GAP = 2.5 * HOUR  # between two points of the charts, while passes are made
_REMOVES = (OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES)


def _instant(change: tuple[float, int]) -> float:
    return change[0]


class GroupPurchase(msgspec.Struct, frozen=True):
    """Nodes that were bought for waiting pods. at: epoch seconds. pods: that it was planned for; an
    operation names 50 of them at most. size: of the group with these nodes."""

    at: float
    nodes: int
    pods: int
    size: int


class GroupFacts(msgspec.Struct, frozen=True):
    """What is known of a group today. group: its id, "" for several groups together, whose ids are
    in members. lead: seconds from a request until a node is ready; learned: whether it is the
    median of what the group has taught. price: of a node per hour, 0.0: unknown. min, max: its
    bounds, max -1: none. unneeded: seconds after which an unneeded node goes. since: the first
    instant of which its operations are still stored."""

    group: str
    name: str
    lead: float
    learned: bool = False
    price: float = 0.0
    currency: str = ""
    ready: int = 0
    min: int = 0
    max: int = -1
    unneeded: float = 600.0
    since: float = 0.0
    members: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its groups, for a schedule."""
        return (self.group,) if self.group else self.members


class GroupHistory(msgspec.Struct, frozen=True):
    """Purchases for waiting pods, the oldest first. sizes: (instant, size of the group from then
    on), ascending. initial: its size before the first of them."""

    facts: GroupFacts
    purchases: tuple[GroupPurchase, ...] = ()
    sizes: tuple[tuple[float, int], ...] = ()
    initial: int = 0

    def size_at(self, at: float) -> int:
        """Return the size of the group just before an instant."""
        place = bisect_left(self.sizes, at, key=_instant)
        return self.sizes[place - 1][1] if place else self.initial

    def purchases_between(self, begin: float, end: float) -> tuple[GroupPurchase, ...]:
        """Return the purchases from one instant to another."""
        places = (
            bisect_left(self.purchases, at, key=lambda purchase: purchase.at) for at in (begin, end)
        )
        return self.purchases[slice(*places)]


class RecordSpan(msgspec.Struct, frozen=True):
    """The time of which the record is complete. gaps: (since, until) without passes."""

    since: float
    until: float
    gaps: tuple[tuple[float, float], ...] = ()

    @property
    def days(self) -> float:
        """Its length in days."""
        return max(0.0, self.until - self.since) / DAY

    def covers(self, begin: float, end: float) -> bool:
        """Return whether passes were made from begin to end."""
        return (
            self.since <= begin
            and end <= self.until
            and not any(a < end and begin < b for a, b in self.gaps)
        )

    def after(self, since: float) -> RecordSpan:
        """Return the part of it from an instant on."""
        return msgspec.structs.replace(self, since=max(self.since, since))

    def before(self, until: float) -> RecordSpan:
        """Return the part of it up to an instant."""
        return msgspec.structs.replace(self, until=min(self.until, until))


def gaps_between(points: Iterable[GaugePoint]) -> tuple[tuple[float, float], ...]:
    """Return when no passes were made, from the points of the charts: of hours, and of
    the last five-minute ones."""
    instants = sorted({point.at for point in points})
    return tuple(
        (before + HOUR, after)
        for before, after in pairwise(instants)
        if after - before > _LONGEST_GAP
    )


def group_histories(
    operations: Iterable[Operation], facts: Mapping[str, GroupFacts]
) -> tuple[GroupHistory, ...]:
    """Return the histories of these groups, in their order. operations:
    ended ones of one cluster."""
    by_group: dict[str, list[Operation]] = {group: [] for group in facts}
    ended = sorted(operations, key=lambda operation: (operation.spec.created_at, operation.spec.id))
    for operation in ended[-MOST_OPERATIONS:]:
        if operation.status.state is OperationState.SUCCEEDED and operation.spec.group in by_group:
            by_group[operation.spec.group].append(operation)
    return tuple(_history(facts[group], own) for group, own in by_group.items())


def _history(facts: GroupFacts, operations: Sequence[Operation]) -> GroupHistory:
    purchases = tuple(
        GroupPurchase(spec.created_at, spec.to_size - spec.from_size, len(spec.pods), spec.to_size)
        for spec in (operation.spec for operation in operations)
        if spec.kind is OperationKind.SCALE_UP
        and spec.pods
        and not spec.replacement
        and spec.to_size > spec.from_size
    )
    changes = sorted(filter(None, map(_size_change, operations)))
    initial, removed = facts.ready, 0
    for _, old, new in changes:
        if old >= 0:
            initial = old
            break
        removed += new
    size = initial = initial + removed
    sizes = []
    for at, old, new in changes:
        size = new if old >= 0 else max(0, size - new)
        sizes.append((at, size))
    return GroupHistory(facts, purchases, tuple(sizes), initial)


def _size_change(operation: Operation) -> tuple[float, int, int] | None:
    """Return (instant, old size, new size), or (instant, -1, removed nodes)."""
    spec = operation.spec
    if spec.kind is OperationKind.SCALE_UP:
        return spec.created_at, max(0, spec.from_size), spec.to_size
    if spec.kind is OperationKind.DECREASE_TARGET:
        return operation.status.updated_at, max(0, spec.from_size), spec.to_size
    if spec.kind in _REMOVES:
        return operation.status.updated_at, -1, len(spec.targets)
    return None


def together(histories: Sequence[GroupHistory]) -> GroupHistory:
    """Return the groups that buy as one: the lead time is the longest, the price the mean of the
    nodes bought, 0.0 where one is not known or currencies differ."""
    histories = [history for history in histories if history.purchases]
    members = [history.facts for history in histories]
    weights = [sum(purchase.nodes for purchase in history.purchases) for history in histories]
    priced = len({facts.currency for facts in members}) == 1 and all(
        facts.price for facts in members
    )
    total = sum(facts.price * weight for facts, weight in zip(members, weights, strict=True))
    facts = GroupFacts(
        "",
        "changing groups",
        max((facts.lead for facts in members), default=0.0),
        bool(members) and all(facts.learned for facts in members),
        total / sum(weights) if priced else 0.0,
        members[0].currency if priced else "",
        sum(facts.ready for facts in members),
        unneeded=max((facts.unneeded for facts in members), default=600.0),
        since=max((facts.since for facts in members), default=0.0),
        members=tuple(facts.group for facts in members),
    )
    initial = size = sum(history.initial for history in histories)
    sizes = []
    for at, change in sorted(change for history in histories for change in _changes(history)):
        size += change
        sizes.append((at, size))
    purchases = [
        msgspec.structs.replace(
            purchase, size=sizes[bisect_right(sizes, purchase.at, key=_instant) - 1][1]
        )
        for history in histories
        for purchase in history.purchases
    ]
    purchases.sort(key=lambda purchase: (purchase.at, purchase.size, purchase.nodes, purchase.pods))
    return GroupHistory(facts, tuple(purchases), tuple(sizes), initial)


def _changes(history: GroupHistory) -> Iterator[tuple[float, int]]:
    """Yield (instant, added nodes)."""
    old = history.initial
    for at, size in history.sizes:
        yield at, size - old
        old = size


# -- the local calendar


def local_time(at: float, zone: ZoneInfo) -> tuple[date, int]:
    """Return the local date and the minute of the day by its clock."""
    shown = datetime.fromtimestamp(at, zone)
    return shown.date(), shown.hour * 60 + shown.minute


def instant_of(day: date, minute: int, zone: ZoneInfo) -> float:
    """Return when a day's clock shows a minute (0 to 1440); the first time, where it does so
    twice."""
    return (
        datetime(day.year, day.month, day.day, tzinfo=zone) + timedelta(minutes=minute)
    ).timestamp()


def local_dates(span: RecordSpan, zone: ZoneInfo) -> list[date]:
    """Return the dates of which a part is in the span."""
    first, last = local_time(span.since, zone)[0], local_time(span.until, zone)[0]
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
