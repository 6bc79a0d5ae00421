"""Size of a recorded decision, and the time to write it, as a ratio to the plan itself."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from chalicelib.cli.replayed_plan import replay
from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.memory import Memory
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.replay.recorded_decision import RecordedDecision, decode, encode
from tests.benchmarks.test_planning import LARGE, MIDDLE, NOW, SMALL, Input, generate
from tests.reference_data import needs_shared

LARGEST = {SMALL.name: 120_000, MIDDLE.name: 600_000, LARGE.name: 3_000_000}  # bytes


@needs_shared
@pytest.mark.parametrize("case", [SMALL, MIDDLE, LARGE], ids=lambda case: case.name)
def test_recorded_decision_is_small_and_quick_to_write(case: Input, tmp_path: Path) -> None:
    folder = generate(
        tmp_path,
        nodes=case.nodes,
        pending=case.pending,
        groups=case.groups,
        node_groups=case.node_groups,
    )
    snapshot = read(folder, node_groups=None, cluster="bench", taken_at=NOW)
    policy, memory = Policy(name="bench"), Memory()
    begun = time.process_time()
    plan, _ = plan_cluster(snapshot, policy, memory, NOW, 1)
    planned = time.process_time() - begun
    decision = RecordedDecision(
        snapshot, policy, memory, NOW, 1, msgspec.structs.replace(plan, operations=())
    )
    times = []
    for _ in range(3):
        begun = time.process_time()
        data = encode(decision)
        times.append(time.process_time() - begun)
    wrote = min(times)
    print(
        f"\n{case.name}: {len(data):,} bytes, written in {wrote * 1000:.0f} ms = "
        f"{wrote / planned:.2f} plans"
    )
    assert len(data) < LARGEST[case.name]
    assert wrote < planned + 0.05
    assert replay(*decode(data, "file")).same
