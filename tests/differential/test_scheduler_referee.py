"""The referee of the benchmarks scores as the emulated scheduler does, from a snapshot instead of
objects; and what its choices are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from chalicelib.model.node import Taint
from chalicelib.model.snapshot import Snapshot
from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.pod_and_node_info import PodView, read_pod
from infra.emulators.controllers.scheduler.score_formulas import (
    BALANCE,
    FIT,
    IMAGES,
    NODES,
    PODS,
    SPREAD,
    TAINTS,
    UNASKED,
    NodeSampling,
)
from infra.emulators.controllers.scheduler.scoring import plugin_scores
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.consolidation_ends import main
from tests.benchmarks.consolidation_world import World
from tests.benchmarks.scheduler_referee import DefaultScores, Referee, SchedulerScores, referee
from tests.builders import ClusterBuilder
from tests.property.clusters import make
from tests.property.objects import NOW
from tests.property.snapshot_reader import read

CLUSTERS = 60
DEFAULT = SchedulerScores.DEFAULT


def have_one_container(pods: Iterable[PodView]) -> bool:
    """Whether every pod counts as one container would, which is all that a snapshot can tell."""
    return all(
        pod.counted_requests.get(name, 0) == pod.requests.get(name, least)
        for pod in pods
        for name, least in UNASKED.items()
    )


def test_scores_from_a_snapshot_equal_those_from_its_objects() -> None:
    equal = Counter[str]()
    for seed in range(CLUSTERS):
        cluster = make(seed)
        snapshot = read(cluster.lists, cluster.manifest, NOW)
        scheduler = Referee(snapshot, DEFAULT)
        assert isinstance(scheduler.chooser, DefaultScores)
        namespaces = Surroundings(namespaces=tuple(cluster.lists["namespaces"]))
        world = ClusterView.of(cluster.lists["nodes"], cluster.lists["pods"], namespaces)
        names = [name for name in world.nodes if name in scheduler.rows]
        rows = np.array([scheduler.rows[name] for name in names], dtype=np.int64)
        bound = [pod for _, pod in world.placed()]
        classes = {pod.key: pod.cls for pod in snapshot.pods}
        for pod in map(read_pod, cluster.lists["pods"]):
            cls = classes.get(f"{pod.namespace}/{pod.name}")
            if pod.node or cls is None or not names:
                continue
            theirs = plugin_scores(pod, [world.nodes[name] for name in names], world)
            ours = scheduler.chooser.scores(cls, rows)
            ignored = {IMAGES} if have_one_container([pod, *bound]) else {IMAGES, FIT}
            assert ours.keys() - ignored == theirs.keys() - ignored
            for plugin in ours.keys() - ignored:
                assert ours[plugin].tolist() == theirs[plugin].tolist(), (seed, pod.name, plugin)
                equal[plugin] += 1
    assert equal.keys() == {TAINTS, NODES, SPREAD, PODS, FIT, BALANCE}
    assert sum(equal.values()) > 30 * CLUSTERS


def test_scores_follow_what_was_placed() -> None:
    snapshot = generate(ClusterShape(40, ruled=0.5))
    pods = [pod for pod in snapshot.pods if not snapshot.classes[pod.cls].is_daemonset][:60]
    scheduler = Referee(snapshot, DEFAULT)
    for pod in pods:  # so that its counts exist before
        scheduler.place(pod.cls)
    placed = [
        msgspec.structs.replace(pod, name=f"{pod.name}-{number}", node=scheduler.place(pod.cls))
        for number, pod in enumerate(pods)
    ]
    again = Referee(snapshot, DEFAULT)
    first = [
        msgspec.structs.replace(pod, name=f"{pod.name}-first", node=again.place(pod.cls))
        for pod in pods
    ]
    whole = msgspec.structs.replace(snapshot, pods=(*snapshot.pods, *first, *placed))
    anew = Referee(whole, DEFAULT)
    rows = np.arange(len(snapshot.nodes))
    assert isinstance(anew.chooser, DefaultScores)
    assert isinstance(scheduler.chooser, DefaultScores)
    for cls in {pod.cls for pod in pods}:
        expected, followed = anew.chooser.scores(cls, rows), scheduler.chooser.scores(cls, rows)
        assert {name: scores.tolist() for name, scores in expected.items()} == {
            name: scores.tolist() for name, scores in followed.items()
        }


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
    for number in range(300):
        builder.node(f"n{number:03d}", "8", "8Gi")
    snapshot = builder.pending(1, "1", "1Gi").snapshot()
    cls, sampling = snapshot.pods[-1].cls, NodeSampling()
    places = [referee(snapshot, [cls], DEFAULT, sampling) for _ in range(3)]
    assert places == [["n000"], ["n144"], ["n288"]]


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
