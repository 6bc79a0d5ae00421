"""Numbers of a cluster over time, for the charts of the page: a point every five minutes for 24
hours, and every hour for 14 days.

Both rings have a fixed size, so the rows in which they are stored never grow. A point says which
five minutes it belongs to, so a pause of the passes leaves a gap and not an old value. A quiet
cluster's points are all equal; they are not written one by one. `continued` adds those that follow
the last stored one, as long as passes were made.
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

# of earlier releases: the number of the five minutes since the epoch, nodes, pods
_POINT = struct.Struct("<IHH")
_COLUMNS = ("I", "H", "H", "H", "B", "B", "I")
_VERSION = b"\x02"  # earlier releases wrote none, and zlib never begins with it
_MOST, _UNKNOWN_COUNT, _UNKNOWN_SHARE, _UNKNOWN_COST = 2**16 - 2, 2**16 - 1, 2**8 - 1, 2**32 - 1
_BYTES = sum(struct.calcsize(column) for column in _COLUMNS)


class GaugePoint(msgspec.Struct, frozen=True):
    """One point. at: epoch seconds of its beginning. nodes: that are ready, wanted: that the groups
    should have, with those in no group. cpu, memory: percent of the ready nodes' allocatable that
    pods request. cost: per hour, of the nodes whose price is known, to a thousandth. -1: unknown.
    Counts are at most 65,534."""

    at: float
    nodes: int
    pending: int
    wanted: int = -1
    cpu: int = -1
    memory: int = -1
    cost: float = -1.0

    @property
    def slot(self) -> int:
        """The number of its five minutes since the epoch."""
        return int(self.at // EVERY)

    @property
    def values(self) -> tuple[float, ...]:
        """Everything but its time."""
        return (self.nodes, self.pending, self.wanted, self.cpu, self.memory, self.cost)


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
    return (*points, *(_at(last, slot) for slot in slots))


def is_due(points: Sequence[GaugePoint], point: GaugePoint, seen: float) -> bool:
    """Return whether a point must be stored: the stored last one does not stand for it.
    seen: when the last point was made, stored or not; after a pause of the passes a
    stored one ends the gap."""
    if not points or int(seen // EVERY) < point.slot - 1:
        return True
    return _stored(point).values != points[-1].values or point.slot >= points[-1].slot + STANDS


def hourly(
    hours: Sequence[GaugePoint], points: Sequence[GaugePoint], now: float
) -> tuple[GaugePoint, ...]:
    """Return the points of the hours, with those of the hours before `now` that are over and have
    five-minute points: most waiting pods, and the mean of everything else that is known."""
    after = hours[-1].at if hours else -1.0
    by_hour: dict[float, list[GaugePoint]] = {}
    for point in points:
        hour = point.at // HOUR * HOUR
        if after < hour < now // HOUR * HOUR:
            by_hour.setdefault(hour, []).append(point)
    return (*hours, *(_mean(hour, by_hour[hour]) for hour in sorted(by_hour)))[-HOURS:]


def _mean(at: float, points: Sequence[GaugePoint]) -> GaugePoint:
    def mean(values: Iterable[float]) -> float:
        known = [value for value in values if value >= 0]
        return sum(known) / len(known) if known else -1.0

    return GaugePoint(
        at,
        round(mean(point.nodes for point in points)),
        max(point.pending for point in points),
        round(mean(point.wanted for point in points)),
        round(mean(point.cpu for point in points)),
        round(mean(point.memory for point in points)),
        round(mean(point.cost for point in points), 3),
    )


def _stored(point: GaugePoint) -> GaugePoint:
    """Return the point as it is read back."""
    return unpacked(packed([point]))[0]


def packed(points: Iterable[GaugePoint]) -> bytes:
    """Return the form that is stored: column after column, the times as differences, because
    most columns hardly change."""
    rows = list(points)[-HOURS:]
    slots = [point.slot for point in rows]
    columns = (
        [slot - before for before, slot in zip([0, *slots], slots, strict=False)],
        [min(max(point.nodes, 0), _MOST) for point in rows],
        [min(max(point.pending, 0), _MOST) for point in rows],
        [min(point.wanted, _MOST) if point.wanted >= 0 else _UNKNOWN_COUNT for point in rows],
        [
            min(point.cpu, _UNKNOWN_SHARE - 1) if point.cpu >= 0 else _UNKNOWN_SHARE
            for point in rows
        ],
        [
            min(point.memory, _UNKNOWN_SHARE - 1) if point.memory >= 0 else _UNKNOWN_SHARE
            for point in rows
        ],
        [
            round(min(point.cost * 1000, _UNKNOWN_COST - 1)) if point.cost >= 0 else _UNKNOWN_COST
            for point in rows
        ],
    )
    kinds = zip(_COLUMNS, columns, strict=True)
    return _VERSION + zlib.compress(
        b"".join(struct.pack(f"<{len(rows)}{kind}", *column) for kind, column in kinds), 9
    )


def unpacked(data: bytes) -> tuple[GaugePoint, ...]:
    """Return the points of a stored form; none for anything that is not one:
    charts are no reason to fail."""
    if not data or len(data) > LARGEST:
        return ()
    is_new, reader = data.startswith(_VERSION), zlib.decompressobj()
    try:
        raw = reader.decompress(data[len(_VERSION) :] if is_new else data, HOURS * _BYTES)
    except zlib.error:
        return ()
    if not is_new:
        whole = raw[: len(raw) - len(raw) % _POINT.size]
        return tuple(
            GaugePoint(slot * EVERY, nodes, pending)
            for slot, nodes, pending in _POINT.iter_unpack(whole)
        )
    count, rest = divmod(len(raw), _BYTES)
    if rest or not reader.eof:
        return ()
    values = struct.unpack("<" + "".join(f"{count}{kind}" for kind in _COLUMNS), raw)
    points, slot = [], 0
    for row in zip(
        *(values[at * count : (at + 1) * count] for at in range(len(_COLUMNS))), strict=True
    ):
        step, nodes, pending, wanted, cpu, memory, cost = row
        slot += step
        points.append(
            GaugePoint(
                slot * EVERY,
                nodes,
                pending,
                -1 if wanted == _UNKNOWN_COUNT else wanted,
                -1 if cpu == _UNKNOWN_SHARE else cpu,
                -1 if memory == _UNKNOWN_SHARE else memory,
                -1.0 if cost == _UNKNOWN_COST else cost / 1000,
            )
        )
    return tuple(points)
