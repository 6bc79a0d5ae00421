"""Minimum scan interval of a cluster (docs/rules.md)."""

from __future__ import annotations

from chalicelib.passes.scan_scheduler import scan_slots

TICK = 1_800_000_000.0


def test_CCE_A1_6_scan_interval_may_be_ten_seconds() -> None:
    passes = [
        instant - TICK
        for minute in range(3)
        for instant in scan_slots(
            TICK + 60 * minute - 10 if minute else 0.0, 10.0, TICK + 60 * minute
        )
    ]
    assert passes == [float(at) for at in range(0, 180, 10)]
