"""Duration of a whole plan, as ratios measured in one run: to decoding the same JSON, and
to upstream's CPU seconds.

Upstream's figures (from the reference data) are CPU seconds of its first loop on the same inputs.
Ours cover the whole backlog to completion, everything except reading. The limits are for a machine
with two cores, best of three; they are asserted with a margin for a busy machine, and
docs/performance.md lists the measured values.
"""

from __future__ import annotations

import gc
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.cluster import api_types
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.reference_data import SHARED, needs_shared

NOW = 1_790_000_000.0
BUSY = 2.0  # factor by which a run may exceed the time on a quiet machine before it fails


class Input(msgspec.Struct, frozen=True):
    """One input of bench/generate.py. limit: seconds of planning; upstream: CPU seconds of its
    first loop, and the number of nodes it needs in total (0: not measured)."""

    nodes: int
    pending: int
    groups: int
    node_groups: int
    limit: float
    upstream: float
    upstream_nodes: int = 0
    variant: str = "plain"

    @property
    def name(self) -> str:
        """The name used in docs/performance.md."""
        return f"{self.nodes:,} / {self.pending:,} / K={self.node_groups}" + (
            "" if self.variant == "plain" else f", {self.variant}"
        )


SMALL = Input(100, 300, 10, 10, 0.03, 0.09, 14)
MIDDLE = Input(1000, 3000, 30, 10, 0.15, 2.11, 287)
LARGE = Input(5000, 20000, 200, 10, 1.0, 30.7, 1450)
MANY_GROUPS = Input(5000, 20000, 200, 50, 2.5, 147.0)
HUGE = Input(15000, 30000, 300, 50, 6.0, 289.0)
AFFINITY = Input(1000, 3000, 30, 10, 0.45, 42.2, variant="affinity")


@contextmanager
def _arguments(*words: str) -> Iterator[None]:
    before, sys.argv = sys.argv, list(words)
    try:
        yield
    finally:
        sys.argv = before


def generate(out: Path, **options: int | float | str | bool) -> Path:
    """The reference data's own generator."""
    words = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in options.items()
    ]
    with _arguments("generate", "--out", str(out), *words):
        runpy.run_path(str(SHARED / "bench" / "generate.py"), run_name="__main__")
    return out


def made(out: Path, given: Input) -> Path:
    """The folder of an input."""
    return generate(
        out / "up",
        nodes=given.nodes,
        pending=given.pending,
        groups=given.groups,
        node_groups=given.node_groups,
        variant=given.variant,
    )


def measure(folder: Path, rounds: int = 3) -> tuple[Plan, dict[str, float]]:
    """CPU seconds, the minimum of several rounds: plain decoding of the pods, reading
    into a snapshot, planning."""
    raw = (folder / "pods.json").read_bytes()
    best = {"decode": 1e9, "read": 1e9, "plan": 1e9}
    plan = None
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        started = time.process_time()
        msgspec.json.decode(
            msgspec.json.decode(raw, type=api_types.Head).items, type=list[api_types.ApiPod]
        )
        best["decode"] = min(best["decode"], time.process_time() - started)
        gc.enable()
        started = time.process_time()
        snapshot = read(folder, node_groups=None, cluster="bench", taken_at=NOW)
        best["read"] = min(best["read"], time.process_time() - started)
        for _again in range(3):
            started = time.process_time()
            plan, _ = plan_cluster(snapshot, Policy("bench"), Memory(), NOW, 0)
            best["plan"] = min(best["plan"], time.process_time() - started)
    assert plan is not None
    return plan, best


def report(name: str, plan: Plan, seconds: dict[str, float], upstream_cpu: float) -> None:
    """Prints one line per input."""
    grown = {s.group: s.to_size - s.from_size for s in plan.scale_ups}
    print(
        f"\n{name}: plan {seconds['plan']:.3f} s = 1/{upstream_cpu / seconds['plan']:.1f} of "
        "upstream's first loop, "
        f"{seconds['plan'] / seconds['decode']:.2f} x bare decode; read "
        f"{seconds['read'] / seconds['decode']:.2f} x; "
        f"+{sum(grown.values())} nodes {grown}, {len(plan.fits_existing)} fit, "
        f"{sum(len(v.pods) for v in plan.unschedulable)} left, {len(plan.unneeded)} unneeded"
    )


@needs_shared
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(SMALL, id=SMALL.name),
        pytest.param(MIDDLE, id=MIDDLE.name),
        pytest.param(LARGE, id=LARGE.name),
        pytest.param(MANY_GROUPS, id=MANY_GROUPS.name),
        pytest.param(HUGE, id=HUGE.name),
    ],
)
def test_planning_time_of_the_whole_backlog_in_one_pass(given: Input, tmp_path: Path) -> None:
    plan, seconds = measure(made(tmp_path, given), rounds=1 if given.nodes > 10_000 else 2)
    report(given.name, plan, seconds, given.upstream)
    assert sum(len(s.pods) for s in plan.scale_ups) + len(plan.fits_existing) == given.pending
    if given.upstream_nodes:
        assert sum(s.to_size - s.from_size for s in plan.scale_ups) <= given.upstream_nodes * 1.01
    assert seconds["plan"] < min(given.limit * BUSY, given.upstream), (
        "never slower than upstream's first loop"
    )


@needs_shared
def test_rules_between_pods_triple_the_planning_time_at_most(tmp_path: Path) -> None:
    _, plain = measure(made(tmp_path / "plain", MIDDLE))
    plan, seconds = measure(made(tmp_path / "affinity", AFFINITY))
    report(AFFINITY.name, plan, seconds, AFFINITY.upstream)
    print(f"{seconds['plan'] / plain['plan']:.2f} x the plain input (upstream: 22 x)")
    assert sum(len(s.pods) for s in plan.scale_ups) + len(plan.fits_existing) == AFFINITY.pending
    assert seconds["plan"] <= 3 * plain["plan"]


@needs_shared
@pytest.mark.parametrize(
    "grown",
    [
        pytest.param(msgspec.structs.replace(MIDDLE, nodes=2000), id="nodes"),
        pytest.param(msgspec.structs.replace(MIDDLE, pending=6000), id="pending pods"),
        pytest.param(
            msgspec.structs.replace(MIDDLE, pending=6000, groups=60),
            id="pending pods and their kinds",
        ),
        pytest.param(msgspec.structs.replace(MIDDLE, node_groups=20), id="node groups"),
    ],
)
def test_planning_time_grows_little_more_than_linearly(grown: Input, tmp_path: Path) -> None:
    _, once = measure(made(tmp_path / "once", MIDDLE))
    _, twice = measure(made(tmp_path / "twice", grown))
    print(f"\n{grown.name}: {twice['plan'] / once['plan']:.2f} x the time of {MIDDLE.name}")
    assert twice["plan"] <= 2.3 * once["plan"]


_PEAK = """
import sys
from chalicelib.cli.main import main
code = main(sys.argv[1:])
high = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
sys.stderr.write(high.split()[1])
sys.exit(code)
"""


@needs_shared
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc"
)
def test_peak_memory_of_planning_170000_pods(tmp_path: Path) -> None:
    folder = made(tmp_path, LARGE)
    run = subprocess.run(
        [sys.executable, "-c", _PEAK, "plan", "--snapshot", str(folder), "-o", "json"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = int(run.stderr.split()[-1]) / 1024
    print(f"\noutscaler plan on {LARGE.name}: {peak:,.0f} MB at the peak")
    assert peak <= 1024
