"""Data that a pass carries over to the next one, and to readers of metrics, in the row
that it writes when it ends.

No decision depends on it: if it is lost or unreadable, the next pass acts like the first one
(events are reported again, counters begin at 0, which readers of counters treat as a restart).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from chalicelib.journal.metrics import Values
from chalicelib.model.cluster_bill import NO_NOTES, Savings, SavingsNotes
from chalicelib.store.gauge_ring import NO_EXTREMES, Extremes
from chalicelib.store.leases import LARGEST_IN_LEASE_ROW, join_carry_over, split_carry_over

UNREADY_KEPT = 6 * 3600.0
"""Seconds for which it is known that a node was not ready when its removal was planned;
no removal takes longer."""
LONGEST = 100_000
"""Bytes of the row, packed; DynamoDB takes 400 KB. Beyond it the gauges of
single groups are left out."""


class PublishedStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The status ConfigMap as last written. digest: of everything but its times; at: epoch
    seconds of the last attempt; missing: the ConfigMap did not exist at that attempt,
    which was reported then."""

    digest: str = ""
    at: float = 0.0
    missing: bool = False


class CarryOver(msgspec.Struct, frozen=True, omit_defaults=True):
    """told: see events.py (filter_new). gauges: of the last pass; counts: since the cluster was
    first seen (metrics.key). unready: nodes being removed that were not ready, with the instant of
    their plan. decided: the instant of the last decision in the journal (journal/journal.py), 0.0:
    not known. ring_at: of the last point of the charts (store/gauge_ring.py), extremes: of the
    passes since then. savings: of the operations that had ended at savings_at
    (journal/savings.py), with the notes; spot_open: what spot nodes have saved since then, in
    millionths by currency. billed_at: of the last bill. unpriced_removals: see ClusterBill.
    offers: the name of the last MachineOffers in the table."""

    told: bytes = b""
    gauges: dict[str, float] = {}
    counts: dict[str, float] = {}
    unready: dict[str, float] = {}
    published: PublishedStatus = PublishedStatus()
    decided: float = 0.0
    ring_at: float = 0.0
    savings: tuple[Savings, ...] = ()
    savings_at: float = 0.0
    extremes: Extremes = NO_EXTREMES
    billed_at: float = 0.0
    spot_open: dict[str, float] = {}
    unpriced_removals: int = 0
    notes: SavingsNotes = NO_NOTES
    offers: str = ""

    def counting(self, grown: Values) -> CarryOver:
        """Return it with counters incremented."""
        total = self.counts | {
            series: self.counts.get(series, 0.0) + more for series, more in grown.items()
        }
        return msgspec.structs.replace(self, counts=total)

    def removing(self, unready: Mapping[str, float], now: float) -> CarryOver:
        """Return it with further unready nodes that are being removed, and without outdated
        ones."""
        still = {
            node: at
            for node, at in (self.unready | dict(unready)).items()
            if now - at < UNREADY_KEPT
        }
        return msgspec.structs.replace(self, unready=still)


def read(data: bytes) -> CarryOver:
    """Return the value that `write` encoded; CarryOver() for any other bytes."""
    both = split_carry_over(data)
    try:
        if both is None:
            return _unpacked(data)
        seldom = _unpacked(both[1])
        return msgspec.structs.replace(
            _unpacked(both[0]), told=seldom.told, notes=seldom.notes, offers=seldom.offers
        )
    except (zlib.error, msgspec.MsgspecError, ValueError):
        return CarryOver()


def write(carry_over: CarryOver) -> bytes:
    """Encode it for the rows, a kilobyte or two. `told`, `notes` and `offers` change seldom, so
    they are a separate part (store/leases.py)."""
    seldom = CarryOver(told=carry_over.told, notes=carry_over.notes, offers=carry_over.offers)
    changing = msgspec.structs.replace(carry_over, told=b"", notes=NO_NOTES, offers="")
    often = _packed(changing, _WORDS)
    if len(often) < LARGEST_IN_LEASE_ROW:
        return join_carry_over(often, _packed(seldom) if seldom != CarryOver() else b"")
    data = _packed(carry_over)
    if len(data) <= LONGEST:
        return data
    whole = {
        series: value
        for series, value in carry_over.gauges.items()
        if not series.startswith("node_group_")
    }
    return _packed(msgspec.structs.replace(carry_over, gauges=whole))


def _packed(carry_over: CarryOver, words: bytes = b"") -> bytes:
    packer = zlib.compressobj(9, zdict=words) if words else zlib.compressobj(6)
    return packer.compress(msgspec.msgpack.encode(carry_over)) + packer.flush()


def _unpacked(data: bytes) -> CarryOver:
    """Decompress. Raises zlib.error, MsgspecError; ValueError for more than is ever written."""
    if not data:
        return CarryOver()
    unpacker = zlib.decompressobj(zdict=_WORDS)
    data_read = unpacker.decompress(data, _LONGEST_UNPACKED)
    if not unpacker.eof:
        raise ValueError("what the last pass left is longer than any")
    return msgspec.msgpack.decode(data_read, type=CarryOver)


def _words() -> bytes:
    """Return the compression dictionary: the names of most series, as they are encoded.
    Stored rows depend on it, so it must never change; another dictionary would need
    another prefix in the rows."""
    states = ("ready", "unready", "notStarted", "suspended", "unregistered", "longUnregistered")
    gauges = (
        "cluster_safe_to_autoscale",
        *(f"nodes_count;state={state}" for state in states),
        "node_groups_count;node_group_type=autoscaled",
        "unschedulable_pods_count;type=unschedulable",
        "unschedulable_pods_count;type=scheduler_unprocessed",
        "max_nodes_count",
        "cluster_cpu_current_cores",
        "cluster_memory_current_bytes",
        "cpu_limits_cores;direction=minimum",
        "cpu_limits_cores;direction=maximum",
        "memory_limits_bytes;direction=minimum",
        "memory_limits_bytes;direction=maximum",
        "unneeded_nodes_count",
        "unremovable_nodes_count;reason=NotAutoscaled",
        "scale_down_in_cooldown",
        "pending_node_deletions",
        "last_activity;activity=main",
        "last_activity;activity=autoscaling",
        "last_activity;activity=scaleDown",
    )
    bounds = ("0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "120", "+Inf")
    name = "function_duration_seconds"
    counts = [
        f"{name}_{part}"
        for function in ("main", "updateClusterState", "autoscaling")
        for part in (
            *(f"bucket;function={function};le={bound}" for bound in bounds),
            f"sum;function={function}",
            f"count;function={function}",
        )
    ]
    return msgspec.msgpack.encode(dict.fromkeys((*gauges, *counts), 3.0))


_WORDS = _words()
_LONGEST_UNPACKED = 16_000_000
