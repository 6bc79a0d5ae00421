"""How long a whole plan takes, as ratios measured in one run: to decoding the same JSON, and to upstream's CPU seconds.

Upstream's figures (bench/README.md) are CPU seconds of its first loop on the same inputs. Ours is the whole backlog.
"""

from __future__ import annotations

import gc
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.plan.decide import decide
from chalicelib.snapshot import wire
from chalicelib.snapshot.files import read
from tests.shared import SHARED, needs_shared

NOW = 1_790_000_000.0


@contextmanager
def _arguments(*words: str) -> Iterator[None]:
    before, sys.argv = sys.argv, list(words)
    try:
        yield
    finally:
        sys.argv = before


def generate(out: Path, **options: int | float | str | bool) -> Path:
    """The reference data's own generator."""
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in options.items()]
    with _arguments("generate", "--out", str(out), *words):
        runpy.run_path(str(SHARED / "bench" / "generate.py"), run_name="__main__")
    return out


def measure(folder: Path, rounds: int = 3) -> tuple[Plan, dict[str, float]]:
    """CPU seconds, the least of some rounds: bare decode of the pods, reading into a snapshot, planning."""
    raw = (folder / "pods.json").read_bytes()
    best = {"decode": 1e9, "read": 1e9, "plan": 1e9}
    plan = None
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        started = time.process_time()
        msgspec.json.decode(msgspec.json.decode(raw, type=wire.Head).items, type=list[wire.PodObject])
        best["decode"] = min(best["decode"], time.process_time() - started)
        gc.enable()
        started = time.process_time()
        snapshot = read(folder, node_groups=None, cluster="bench", taken_at=NOW)
        best["read"] = min(best["read"], time.process_time() - started)
        started = time.process_time()
        plan, _ = decide(snapshot, Policy("bench"), Memory(), NOW, 0)
        best["plan"] = min(best["plan"], time.process_time() - started)
    assert plan is not None
    return plan, best


def report(name: str, plan: Plan, seconds: dict[str, float], upstream_cpu: float) -> None:
    """One line per input."""
    grown = {s.group: s.to_size - s.from_size for s in plan.scale_ups}
    print(f"\n{name}: plan {seconds['plan']:.3f} s = 1/{upstream_cpu / seconds['plan']:.1f} of upstream's first loop, "
          f"{seconds['plan'] / seconds['decode']:.2f} x bare decode; read {seconds['read'] / seconds['decode']:.2f} x; "
          f"+{sum(grown.values())} nodes {grown}, {len(plan.fits_existing)} fit, "
          f"{sum(len(v.pods) for v in plan.unschedulable)} left, {len(plan.unneeded)} unneeded")


@needs_shared
def test_the_whole_backlog_of_3000_pods_on_1000_nodes(tmp_path: Path) -> None:
    folder = generate(tmp_path / "up", nodes=1000, pending=3000, node_groups=10)
    plan, seconds = measure(folder)
    report("1,000 nodes / 3,000 pending / K=10", plan, seconds, upstream_cpu=2.11)
    assert sum(len(s.pods) for s in plan.scale_ups) + len(plan.fits_existing) == 3000
    assert sum(s.to_size - s.from_size for s in plan.scale_ups) <= 287, "upstream needs 287 nodes to the end"
    assert seconds["plan"] < 2.11, "never slower than upstream's first loop"


@needs_shared
@pytest.mark.slow
def test_the_whole_backlog_of_20000_pods_on_5000_nodes(tmp_path: Path) -> None:
    folder = generate(tmp_path / "up", nodes=5000, pending=20000, groups=200, node_groups=10)
    plan, seconds = measure(folder, rounds=2)
    report("5,000 nodes / 20,000 pending / K=10", plan, seconds, upstream_cpu=30.7)
    assert sum(len(s.pods) for s in plan.scale_ups) + len(plan.fits_existing) == 20000
    assert seconds["plan"] * 10 < 30.7, "at least ten times faster than upstream (architecture §10)"


@needs_shared
def test_every_candidate_of_1000_half_empty_nodes(tmp_path: Path) -> None:
    folder = generate(tmp_path / "down", nodes=1000, utilization=0.4, jitter=0.2, pdbs=True)
    plan, seconds = measure(folder)
    report("1,000 nodes half empty, all candidates", plan, seconds, upstream_cpu=0.78)
    assert len(plan.unneeded) >= 139, "upstream finds 139 to 145"
