"""Numbers of nodes and waiting pods of the last 24 hours, a point every five minutes, for the charts of the page.

The ring has a fixed size, so the row in which it is stored never grows. A point says which five minutes it belongs to,
so a pause of the passes leaves a gap and not an old value.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import msgspec

EVERY = 300.0
"""Seconds from one point to the next."""
POINTS = 288
LARGEST = 16_000
"""Bytes of the packed form that are read; a full ring has about 2,000."""

_POINT = struct.Struct("<IHH")  # the number of the five minutes since the epoch, nodes, pods
_MOST = 2**16 - 1


class GaugePoint(msgspec.Struct, frozen=True):
    """One point. at: epoch seconds of the beginning of its five minutes. nodes, pending: at most 65,535."""

    at: float
    nodes: int
    pending: int


def added(points: Iterable[GaugePoint], at: float, nodes: int, pending: int) -> tuple[GaugePoint, ...]:
    """Return the points of the 24 hours up to `at`, with a new one; another one of the same five minutes is
    replaced."""
    slot = int(at // EVERY)
    by_slot = {int(point.at // EVERY): point for point in points if slot - POINTS < point.at // EVERY < slot}
    by_slot[slot] = GaugePoint(slot * EVERY, min(max(nodes, 0), _MOST), min(max(pending, 0), _MOST))
    return tuple(by_slot[point] for point in sorted(by_slot))


def packed(points: Iterable[GaugePoint]) -> bytes:
    """Return the form that is stored."""
    return zlib.compress(
        b"".join(_POINT.pack(int(point.at // EVERY), point.nodes, point.pending) for point in list(points)[-POINTS:]), 9
    )


def unpacked(data: bytes) -> tuple[GaugePoint, ...]:
    """Return the points of a stored form; none for anything that is not one: charts are no reason to fail."""
    if not data or len(data) > LARGEST:
        return ()
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(data, POINTS * _POINT.size)
    except zlib.error:
        return ()
    whole = raw[: len(raw) - len(raw) % _POINT.size]
    return tuple(GaugePoint(slot * EVERY, nodes, pending) for slot, nodes, pending in _POINT.iter_unpack(whole))
