"""The score formulas against a real kube-scheduler: its scores, its choice among equals, and the
part of the cluster that it looks at.

The recording has 150 nodes with none to three soft taints, 900 running pods and, in two runs, 240
pods of 26 kinds: one run scores all nodes, the other samples.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from infra.emulators.controllers.scheduler.predicates import Nowhere, judge
from infra.emulators.controllers.scheduler.score_formulas import (
    NodeSampling,
    choose,
    sort_by_tree,
)
from infra.emulators.controllers.scheduler.scoring import plugin_scores
from tests.differential.recorded_decisions import RECORDED, ZONE, RecordedDecision, RecordedRun

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not RECORDED.is_dir(),
        reason="recorded scores (../shared/data/scheduler-scores) are not beside this checkout; "
        "set OUTSCALER_SHARED",
    ),
]
DEVICES = "DynamicResources"
"""Scores 0 for pods without a claim to devices, and none here has one."""


def compared(run: RecordedRun, decision: RecordedDecision) -> Counter[str]:
    """Compare the scores of one decision: how many are equal, by plugin."""
    positions = sorted(decision.order)
    nodes = [run.nodes[at] for at in positions]
    ours = {
        plugin: scores.tolist()
        for plugin, scores in plugin_scores(decision.pod, nodes, run.world).items()
    }
    recorded = {plugin: list(scores) for plugin, scores in decision.scores.items()}
    assert not any(recorded.pop(DEVICES))
    assert ours.keys() == recorded.keys(), decision.pod.name
    for plugin, scores in recorded.items():
        assert ours[plugin] == scores, (decision.pod.name, plugin)
    totals = dict(zip(positions, np.sum(list(ours.values()), axis=0).tolist(), strict=True))
    assert [totals[at] for at in positions] == list(decision.total)
    winner = choose(np.array([totals[at] for at in decision.order]))
    assert decision.order[winner] == decision.node, decision.pod.name
    tied = decision.total.count(max(decision.total)) > 1
    sizes = {plugin: len(scores) for plugin, scores in recorded.items()}
    return Counter({**sizes, DEVICES: len(nodes), "decisions": 1, "ties": int(tied)})


@pytest.mark.parametrize(
    ("file", "run", "scores", "ties"),
    [("decisions-all.ndjson", "A", 160_324, 33), ("decisions-sampled.ndjson", "B", 120_575, 29)],
)
def test_scores_and_choices_equal_those_of_a_real_scheduler(
    file: str, run: str, scores: int, ties: int
) -> None:
    recording = RecordedRun(file, run)
    sums = Counter[str]()
    for decision in recording.decisions():
        if decision.order:
            sums += compared(recording, decision)
    decisions, equals = sums.pop("decisions"), sums.pop("ties")
    print(f"\nrun {run}: {decisions} decisions, {sum(sums.values()):,} scores: {dict(sums)}")
    assert (decisions, equals, sum(sums.values())) == (228, ties, scores)


def test_every_feasible_node_is_one_that_the_emulated_scheduler_accepts() -> None:
    recording = RecordedRun("decisions-all.ndjson", "A")
    counts = Counter[str]()
    for decision in recording.decisions():
        verdict = judge(decision.pod, recording.world)
        fitting = [
            at
            for at, node in enumerate(recording.nodes)
            if not isinstance(verdict, Nowhere) and not verdict(node)
        ]
        if decision.order:
            assert sorted(decision.order) == fitting, decision.pod.name
        else:
            assert fitting == ([] if decision.node is None else [decision.node])
        counts[f"{min(len(fitting), 2)} or more"] += 1
    assert counts == {"2 or more": 228, "1 or more": 5, "0 or more": 7}


def test_sample_starts_where_the_one_before_ended() -> None:
    """The workers race: a sample may have nodes from further on instead of nearer ones. Where it
    has not, it is ours."""
    recording = RecordedRun("decisions-sampled.ndjson", "B")
    zones = [recording.nodes[at].labels.get(ZONE, "") for at in recording.added]
    order = [recording.added[at] for at in sort_by_tree(zones)]
    sampling, counts = NodeSampling(), Counter[str]()
    for decision in recording.decisions():
        verdict = judge(decision.pod, recording.world)
        fits = [
            not isinstance(verdict, Nowhere) and not verdict(recording.nodes[at]) for at in order
        ]
        start = sampling.start
        sample = {order[at] for at in sampling.take(np.array(fits)).tolist()}
        start_after = (start + (decision.evaluated or len(order))) % len(order)
        counts["same start after"] += sampling.start == start_after
        sampling.start = start_after
        if len(decision.order) == 100:
            counts["equal" if sample == set(decision.order) else "raced"] += 1
            assert len(sample) == 100
        else:
            counts["all"] += 1
            assert set(decision.order) == sample or len(sample) < 2
    assert counts == {"equal": 102, "raced": 66, "all": 72, "same start after": 217}
