"""CPU of one decision of the referee, with the full scores and without.

    python -m pytest -s -n 0 -m slow tests/benchmarks/test_scheduler_referee.py

A benchmark of 5,000 nodes moves some 40,000 pods.
"""

from __future__ import annotations

import time

import pytest

from infra.emulators.controllers.scheduler.score_formulas import NodeSampling
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.scheduler_referee import Referee, SchedulerScores

DECISIONS = 3000
SECONDS = 0.003
"""CPU of one decision at most, on a busy machine too."""


@pytest.mark.parametrize("nodes", [1000, 5000])
def test_decision_with_the_default_scores_takes_milliseconds_at_most(nodes: int) -> None:
    snapshot = generate(ClusterShape(nodes, pools=nodes // 1000))
    classes = [pod.cls for pod in snapshot.pods if not snapshot.classes[pod.cls].is_daemonset]
    costs = {}
    for scores in SchedulerScores:
        started = time.process_time()
        scheduler = Referee(snapshot, scores, NodeSampling(seed=1))
        built = time.process_time()
        placed = [scheduler.place(cls) for cls in classes[:DECISIONS]]
        assert all(placed)
        costs[scores] = (time.process_time() - built) / DECISIONS
        print(
            f"\n{nodes:,} nodes, {scores.value}: {costs[scores] * 1e6:.0f} us a decision, "
            f"{built - started:.2f} s to build"
        )
    assert costs[SchedulerScores.DEFAULT] <= SECONDS
