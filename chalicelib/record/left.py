"""What a pass leaves to the next one, and to those who look at metrics, in the row that it writes when it ends.

Nothing is decided by it: lost or unreadable, it is as at the first pass (events are told anew, counters begin at 0,
which those who read counters know as a restart).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from chalicelib.record.metrics import Values

UNREADY_KEPT = 6 * 3600.0
"""Seconds for which it is known that a node was not ready when its removal was planned; no removal takes longer."""
LONGEST = 100_000
"""Bytes of the row, packed; DynamoDB takes 400 KB. Beyond it the gauges of single groups are left out."""


class Published(msgspec.Struct, frozen=True, omit_defaults=True):
    """The status ConfigMap as last written. digest: of all but its times; at: epoch seconds of the last attempt;
    missing: there was none at that attempt, which was told then."""

    digest: str = ""
    at: float = 0.0
    missing: bool = False


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """told: repeats.py. gauges: as of the last pass; counts: since the cluster is known (metrics.key). unready: nodes
    being removed that were not ready, with the instant that was planned."""

    told: bytes = b""
    gauges: dict[str, float] = {}
    counts: dict[str, float] = {}
    unready: dict[str, float] = {}
    published: Published = Published()

    def counting(self, grown: Values) -> Left:
        """With counters grown."""
        total = self.counts | {series: self.counts.get(series, 0.0) + more for series, more in grown.items()}
        return msgspec.structs.replace(self, counts=total)

    def removing(self, unready: Mapping[str, float], now: float) -> Left:
        """With more nodes that go although they are not ready, and without those of long ago."""
        still = {node: at for node, at in (self.unready | dict(unready)).items() if now - at < UNREADY_KEPT}
        return msgspec.structs.replace(self, unready=still)


def read(data: bytes) -> Left:
    """What `write` was given; Left() for anything else."""
    if not data:
        return Left()
    try:
        return msgspec.msgpack.decode(zlib.decompress(data), type=Left)
    except (zlib.error, msgspec.MsgspecError):
        return Left()


def write(left: Left) -> bytes:
    """As bytes for the row, a kilobyte or two."""
    data = zlib.compress(msgspec.msgpack.encode(left), 6)
    if len(data) <= LONGEST:
        return data
    whole = {series: value for series, value in left.gauges.items() if not series.startswith("node_group_")}
    return zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(left, gauges=whole)), 6)
