"""The referee of the benchmarks scores as the emulated scheduler does, from a snapshot instead of
objects; and what its choices are."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import numpy as np
import pytest

from chalicelib.model.node import Taint
from chalicelib.model.snapshot import Snapshot
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import read_pod
from infra.emulators.controllers.scheduler.score_formulas import (
    BALANCE,
    FIT,
    IMAGES,
    NODES,
    PODS,
    SPREAD,
    TAINTS,
    NodeSampling,
)
from infra.emulators.controllers.scheduler.scoring import plugin_scores
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.consolidation_ends import main
from tests.benchmarks.consolidation_world import World
from tests.benchmarks.scheduler_referee import DefaultScores, Referee, SchedulerScores, referee
from tests.builders import ClusterBuilder
from tests.differential.scored_clusters import ZONE, lists
from tests.property.objects import NOW
from tests.property.snapshot_reader import read

CLUSTERS = 40
DEFAULT = SchedulerScores.DEFAULT


class BothViews:
    """One cluster as the referee's snapshot and as the emulated scheduler's objects."""

    def __init__(self, seed: int) -> None:
        raw = lists(seed)
        self._snapshot = read(raw, {"nodeGroups": []}, NOW)
        self._referee = Referee(self._snapshot, DEFAULT)
        self._world = ClusterView.of(raw["nodes"], raw["pods"])
        classes = {pod.key: pod.cls for pod in self._snapshot.pods}
        self._waiting = [
            (pod, classes[f"{pod.namespace}/{pod.name}"])
            for pod in map(read_pod, raw["pods"])
            if not pod.node
        ]
        self._draw = random.Random(seed)

    def compare(self) -> Counter[str]:
        """Compare the scores of a sample of nodes for every pending pod; how many, by plugin."""
        counts = Counter[str]()
        chooser = self._referee.chooser
        assert isinstance(chooser, DefaultScores)
        for pod, cls in self._waiting:
            names = self._draw.sample(sorted(self._world.nodes), len(self._world.nodes) - 1)
            nodes = [self._world.nodes[name] for name in names]
            theirs = plugin_scores(pod, nodes, self._world)
            del theirs[IMAGES]
            ours = chooser.scores(cls, np.array([self._referee.rows[name] for name in names]))
            assert ours.keys() == theirs.keys(), pod.name
            for plugin, scores in ours.items():
                assert scores.tolist() == theirs[plugin].tolist(), (pod.name, plugin)
            counts.update(ours.keys())
        return counts

    def place_all(self) -> int:
        """Let the referee place the pending pods; how many got a node."""
        places = [(pod, self._referee.place(cls)) for pod, cls in self._waiting]
        for pod, node in places:
            if node:
                self._world.place(pod, node)
        return sum(bool(node) for _, node in places)


def test_scores_from_a_snapshot_equal_those_from_objects_before_and_after_placements() -> None:
    compared, placed = Counter[str](), 0
    for seed in range(CLUSTERS):
        views = BothViews(seed)
        before = views.compare()
        placed += views.place_all()
        assert views.compare().total() >= before.total()
        compared += before
    assert placed > 5 * CLUSTERS
    assert (
        min(compared[plugin] for plugin in (TAINTS, NODES, SPREAD, PODS, FIT, BALANCE)) > CLUSTERS
    )


def two_nodes(*taints: Taint) -> Snapshot:
    builder = ClusterBuilder().node("a", "8", "8Gi").node("b", "4", "4Gi").pending(3, "1", "1Gi")
    snapshot = builder.snapshot()
    marked = msgspec.structs.replace(snapshot.nodes[0], taints=taints)
    return msgspec.structs.replace(snapshot, nodes=(marked, *snapshot.nodes[1:]))


@pytest.mark.parametrize(
    ("scores", "places"),
    [
        (SchedulerScores.FIRST, ["a", "a", "a", "a", "a"]),
        (SchedulerScores.LEAST_ALLOCATED, ["a", "b", "a", "a", "b"]),
        (DEFAULT, ["b", "b", "b", "b", "a"]),
    ],
)
def test_only_the_default_scores_shun_a_soft_taint(
    scores: SchedulerScores, places: list[str]
) -> None:
    snapshot = two_nodes(Taint("leaving", "PreferNoSchedule"))
    assert referee(snapshot, [snapshot.pods[-1].cls] * 5, scores) == places


def test_default_scores_spread_replicas_before_they_fill_the_emptiest_node() -> None:
    snapshot = two_nodes()
    assert referee(snapshot, [snapshot.pods[-1].cls] * 4, DEFAULT) == ["a", "b", "a", "b"]


def test_sampling_goes_on_from_call_to_call() -> None:
    builder = ClusterBuilder()
    for number in range(300):  # as the zones are looked at in turn, the 144th of them is n072
        builder.node(f"n{number:03d}", "8", "8Gi", labels={ZONE: f"z{number // 150}"})
    snapshot = builder.pending(1, "1", "1Gi").snapshot()
    cls, sampling = snapshot.pods[-1].cls, NodeSampling()
    places = [referee(snapshot, [cls], DEFAULT, sampling) for _ in range(3)]
    assert places == [["n000"], ["n072"], ["n144"]]


def test_default_scores_choose_only_nodes_that_take_the_pod() -> None:
    builder = ClusterBuilder().node("a", "1", "1Gi", labels={ZONE: "z1"})
    builder.node("b", "4", "4Gi", labels={ZONE: "z1"}).node("c", "1", "1Gi", labels={ZONE: "z2"})
    snapshot = builder.pending(1, "2", "1Gi").snapshot()
    assert referee(snapshot, [snapshot.pods[-1].cls] * 3, DEFAULT) == ["b", "b", ""]


def test_world_binds_by_the_scores_that_it_was_given() -> None:
    snapshot = generate(ClusterShape(60))
    places = {}
    for scores in SchedulerScores:
        world = World(snapshot, scores=scores)
        world.remove([node.name for node in snapshot.nodes[:5]])
        world.bind()
        assert world.pending == 0
        places[scores] = [pod.node for pod in world.snapshot().pods]
    assert len({tuple(nodes) for nodes in places.values()}) == 3
    first, same, other = (World(snapshot, scores=DEFAULT, seed=seed) for seed in (0, 0, 1))
    for world in (first, same, other):
        world.remove([node.name for node in snapshot.nodes[:5]])
        world.bind()
    assert first.snapshot() == same.snapshot() != other.snapshot()


def test_ends_of_consolidation_are_shown_for_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--nodes", "12", "--seeds", "1-2", "--rules", "removals", "--scores", "default"])
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| Seed | Rules | Price an hour | x bound | Disrupted | Twice |")
    assert [row.split(" | ")[:2] for row in rows] == [["| 1", "removals"], ["| 2", "removals"]]
    assert all(float(row.split(" | ")[3]) >= 1.0 for row in rows)
    assert {text.count("|") for text in (head, line, *rows)} == {head.count("|")}
