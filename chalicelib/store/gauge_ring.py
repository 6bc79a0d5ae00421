"""Numbers of a cluster over time, for the charts of the page: a point every five minutes for 24
hours, and every hour for 14 days.

Both rings have a fixed size, so the rows in which they are stored never grow. A point says which
five minutes it belongs to, so a pause of the passes leaves a gap and not an old value. A quiet
cluster's points are all equal; they are not written one by one. `continued` adds those that follow
the last stored one, as long as passes were made.

Passes are more frequent than points, and points more frequent than hours. A point therefore has
extremes beside its values, so that what lasted one pass is still to be seen after 14 days. Those of
a point's passes are known when its time is over: the pass that makes the next point adds them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import msgspec

EVERY = 300.0
"""Seconds from one point to the next."""
POINTS = 288
HOUR = 3600.0
HOURS = 336
STANDS = 6
"""Points for which a stored one may stand, if nothing changes: half an hour."""
LARGEST = 16_000
"""Bytes of the packed form that are read; a full ring has about 2,000."""

# of the first releases: the number of the five minutes since the epoch, nodes, pods
_POINT = struct.Struct("<IHH")
_VERSION = b"\x02"  # the first releases wrote none, and zlib never begins with it


class _Column(msgspec.Struct, frozen=True):
    """How one number of a point is stored. kind: of struct. scale: stored units of one. least: of
    the number; -1 is not known."""

    name: str
    kind: str
    scale: int
    least: int

    @property
    def unknown(self) -> int:
        """The stored form of a number that is not known; the largest known one is one less."""
        return int(256 ** struct.calcsize(self.kind)) - 1

    def stored(self, value: float) -> int:
        """Return the stored form."""
        known = max(value, self.least)
        return self.unknown if known < 0 else round(min(known * self.scale, self.unknown - 1))

    def read(self, stored: int) -> float:
        """Return the number that a stored form means."""
        return -1.0 if stored == self.unknown else stored / self.scale


_COLUMNS = (
    _Column("nodes", "H", 1, 0),
    _Column("pending", "H", 1, 0),
    _Column("wanted", "H", 1, -1),
    _Column("cpu", "B", 1, -1),
    _Column("memory", "B", 1, -1),
    _Column("cost", "I", 1000, -1),
)
_STEPS = "I"  # the points' times, as differences
_FEWER = "H"  # nodes below the point's own, at the least
_KINDS = (_STEPS, *(column.kind for column in _COLUMNS))
_EXTREME_KINDS = (_FEWER, *(column.kind for column in _COLUMNS))


class Extremes(msgspec.Struct, frozen=True, array_like=True):
    """The fewest ready nodes, and the most of everything that a point has. -1: not known."""

    least_nodes: int = -1
    nodes: int = -1
    pending: int = -1
    wanted: int = -1
    cpu: int = -1
    memory: int = -1
    cost: float = -1

    def joined(self, other_extremes: Extremes) -> Extremes:
        """Return the extremes of both."""
        known = [count for count in (self.least_nodes, other_extremes.least_nodes) if count >= 0]
        return Extremes(
            min(known, default=-1),
            max(self.nodes, other_extremes.nodes),
            max(self.pending, other_extremes.pending),
            max(self.wanted, other_extremes.wanted),
            max(self.cpu, other_extremes.cpu),
            max(self.memory, other_extremes.memory),
            max(self.cost, other_extremes.cost),
        )


NO_EXTREMES = Extremes()


class GaugePoint(msgspec.Struct, frozen=True):
    """One point. at: epoch seconds of its beginning. nodes: that are ready, wanted: that the groups
    should have, with those in no group. cpu, memory: percent of the ready nodes' allocatable that
    pods request. cost: per hour, of the nodes whose price is known, to a thousandth. -1: unknown.
    Counts are at most 65,534. extremes: of all passes in its time, as far as they are known."""

    at: float
    nodes: int
    pending: int
    wanted: int = -1
    cpu: int = -1
    memory: int = -1
    cost: float = -1.0
    extremes: Extremes = NO_EXTREMES

    @property
    def slot(self) -> int:
        """The number of its five minutes since the epoch."""
        return int(self.at // EVERY)

    @property
    def bounds(self) -> Extremes:
        """The extremes, with the point's own values; these alone where no others are known."""
        own = Extremes(
            self.nodes, self.nodes, self.pending, self.wanted, self.cpu, self.memory, self.cost
        )
        return own.joined(self.extremes)

    @property
    def values(self) -> tuple[float | Extremes, ...]:
        """Everything but its time."""
        own = (self.nodes, self.pending, self.wanted, self.cpu, self.memory, self.cost)
        return (*own, self.bounds)


def _at(point: GaugePoint, slot: int) -> GaugePoint:
    return msgspec.structs.replace(point, at=slot * EVERY)


def added(points: Iterable[GaugePoint], point: GaugePoint) -> tuple[GaugePoint, ...]:
    """Return the points of the 24 hours up to a new one; another one of the same
    five minutes is replaced."""
    by_slot = {
        other.slot: other for other in points if point.slot - POINTS < other.slot < point.slot
    }
    by_slot[point.slot] = _at(_stored(point), point.slot)
    return tuple(by_slot[slot] for slot in sorted(by_slot))


def continued(points: Sequence[GaugePoint], until: float) -> tuple[GaugePoint, ...]:
    """Return the points with those for which the last one stands. until: the
    last pass (epoch seconds)."""
    if not points:
        return ()
    last = points[-1]
    slots = range(last.slot + 1, min(int(until // EVERY) + 1, last.slot + STANDS))
    standing = msgspec.structs.replace(last, extremes=NO_EXTREMES)
    return (*points, *(_at(standing, slot) for slot in slots))


def with_extremes(
    points: Sequence[GaugePoint], at: float, extremes: Extremes
) -> tuple[GaugePoint, ...]:
    """Return the points, the one of this instant with further extremes."""
    slot = int(at // EVERY)
    return tuple(
        msgspec.structs.replace(point, extremes=point.extremes.joined(extremes))
        if point.slot == slot
        else point
        for point in points
    )


def is_due(
    points: Sequence[GaugePoint], point: GaugePoint, seen: float, extremes: Extremes = NO_EXTREMES
) -> bool:
    """Return whether a point must be stored: the stored last one does not stand for it, or not for
    the one before. seen: when the last point was made, stored or not; after a pause of the passes a
    stored one ends the gap. extremes: of the passes since then."""
    if not points or int(seen // EVERY) < point.slot - 1:
        return True
    before = continued(points, seen)[-1]
    if before.bounds.joined(extremes) != before.bounds:
        return True
    return _stored(point).values != points[-1].values or point.slot >= points[-1].slot + STANDS


def hourly(
    hours: Sequence[GaugePoint], points: Sequence[GaugePoint], now: float
) -> tuple[GaugePoint, ...]:
    """Return the points of the hours, with those of the hours before `now` that are over and have
    five-minute points: most waiting pods, and of everything else that is known the mean and the
    extremes."""
    after = hours[-1].at if hours else -1.0
    by_hour: dict[float, list[GaugePoint]] = {}
    for point in points:
        hour = point.at // HOUR * HOUR
        if after < hour < now // HOUR * HOUR:
            by_hour.setdefault(hour, []).append(point)
    return (*hours, *(_mean(hour, by_hour[hour]) for hour in sorted(by_hour)))[-HOURS:]


def extremes_of(points: Iterable[GaugePoint]) -> Extremes:
    """Return the extremes of several points."""
    extremes = NO_EXTREMES
    for point in points:
        extremes = extremes.joined(point.bounds)
    return extremes


def _mean(at: float, points: Sequence[GaugePoint]) -> GaugePoint:
    def mean(values: Iterable[float]) -> float:
        known = [value for value in values if value >= 0]
        return sum(known) / len(known) if known else -1.0

    extremes = extremes_of(points)
    return GaugePoint(
        at,
        round(mean(point.nodes for point in points)),
        extremes.pending,
        round(mean(point.wanted for point in points)),
        round(mean(point.cpu for point in points)),
        round(mean(point.memory for point in points)),
        round(mean(point.cost for point in points), 3),
        extremes,
    )


def _stored(point: GaugePoint) -> GaugePoint:
    """Return the point as it is read back."""
    return unpacked(packed([point]))[0]


def packed(points: Iterable[GaugePoint]) -> bytes:
    """Return the form that is stored: column after column, because most columns hardly change, the
    times as differences. The extremes follow as a second part, as differences from the values.
    Releases that know no extremes ignore it."""
    rows = list(points)[-HOURS:]
    slots = [point.slot for point in rows]
    steps = [slot - before for before, slot in zip([0, *slots], slots, strict=False)]
    own = _own_columns(rows)
    values = _compressed(_KINDS, [steps, *own.values()])
    extremes = _extreme_columns(rows, own)
    has_extremes = any(map(any, extremes))
    return _VERSION + values + (_compressed(_EXTREME_KINDS, extremes) if has_extremes else b"")


def _own_columns(rows: Sequence[GaugePoint]) -> dict[str, list[int]]:
    """Return the stored values by name, in the order of _COLUMNS."""
    return {
        column.name: [column.stored(getattr(point, column.name)) for point in rows]
        for column in _COLUMNS
    }


def _extreme_columns(rows: Sequence[GaugePoint], own: dict[str, list[int]]) -> list[list[int]]:
    """Return how far the extremes are from the values, in the order of _EXTREME_KINDS; 0 where a
    value is not known."""
    bounds = [point.bounds for point in rows]
    nodes = _COLUMNS[0]
    least = [nodes.stored(extremes.least_nodes) for extremes in bounds]
    columns = [[max(0, most - few) for most, few in zip(own["nodes"], least, strict=True)]]
    for column in _COLUMNS:
        most = [column.stored(getattr(extremes, column.name)) for extremes in bounds]
        pairs = zip(own[column.name], most, strict=True)
        columns.append([0 if value == column.unknown else high - value for value, high in pairs])
    return columns


def _compressed(kinds: Iterable[str], columns: Sequence[Sequence[int]]) -> bytes:
    count = len(columns[0])
    pairs = zip(kinds, columns, strict=True)
    return zlib.compress(
        b"".join(struct.pack(f"<{count}{kind}", *column) for kind, column in pairs), 9
    )


def unpacked(data: bytes) -> tuple[GaugePoint, ...]:
    """Return the points of a stored form; none for anything that is not one:
    charts are no reason to fail."""
    if not data or len(data) > LARGEST:
        return ()
    if not data.startswith(_VERSION):
        return _unpacked_first_form(data)
    raw, rest = _decompressed(data.removeprefix(_VERSION))
    columns = _columns(_KINDS, raw)
    if columns is None:
        return ()
    steps, *own = columns
    extremes = _read_extremes(rest, own)
    points, slot = [], 0
    for step, stored, of_passes in zip(steps, zip(*own, strict=True), extremes, strict=True):
        slot += step
        points.append(GaugePoint(slot * EVERY, *_numbers(stored), of_passes))
    return tuple(points)


def _unpacked_first_form(data: bytes) -> tuple[GaugePoint, ...]:
    try:
        raw = zlib.decompressobj().decompress(data, HOURS * _POINT.size)
    except zlib.error:
        return ()
    whole = raw[: len(raw) - len(raw) % _POINT.size]
    return tuple(
        GaugePoint(slot * EVERY, nodes, pending)
        for slot, nodes, pending in _POINT.iter_unpack(whole)
    )


def _read_extremes(data: bytes, own: Sequence[Sequence[int]]) -> list[Extremes]:
    """Return the extremes of each point; none are known where the stored part is missing, or does
    not belong to these points. own: the stored values, by column."""
    count = len(own[0])
    raw, _ = _decompressed(data)
    columns = _columns(_EXTREME_KINDS, raw)
    if columns is None or len(columns[0]) != count:
        return [NO_EXTREMES] * count
    fewer, *beyond = columns
    most = []
    for column, values, more in zip(_COLUMNS, own, beyond, strict=True):
        pairs = zip(values, more, strict=True)
        most.append([min(value + excess, column.unknown) for value, excess in pairs])
    least = [max(0, nodes - few) for nodes, few in zip(own[0], fewer, strict=True)]
    return [
        Extremes(nodes, *_numbers(stored))
        for nodes, stored in zip(least, zip(*most, strict=True), strict=True)
    ]


def _numbers(stored: Sequence[int]) -> tuple[int, int, int, int, int, float]:
    """Return the numbers of one point in the order of _COLUMNS."""
    numbers = [column.read(value) for column, value in zip(_COLUMNS, stored, strict=True)]
    nodes, pending, wanted, cpu, memory, cost = numbers
    return int(nodes), int(pending), int(wanted), int(cpu), int(memory), cost


def _decompressed(data: bytes) -> tuple[bytes | None, bytes]:
    """Return the first compressed part, None where there is no whole one, and what follows it."""
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(data, HOURS * struct.calcsize("<" + "".join(_KINDS)))
    except zlib.error:
        return None, b""
    return (raw if reader.eof else None), reader.unused_data


def _columns(kinds: Sequence[str], raw: bytes | None) -> list[tuple[int, ...]] | None:
    """Return the columns of a decompressed part, None where it is not made of these."""
    if raw is None:
        return None
    count, rest = divmod(len(raw), struct.calcsize("<" + "".join(kinds)))
    if rest:
        return None
    values = struct.unpack("<" + "".join(f"{count}{kind}" for kind in kinds), raw)
    return [values[at * count : (at + 1) * count] for at in range(len(kinds))]
