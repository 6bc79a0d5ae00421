"""What is measured after consolidation: crowded hosts and zones, restarts, churn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Controller, Snapshot
from tests.benchmarks.consolidation_afterwards import SCORES, Crowding, crowding, main
from tests.benchmarks.consolidation_changes import Rollout, churn, restart_all
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.consolidation_ends import STRATEGIES
from tests.benchmarks.consolidation_trace import START_UP
from tests.benchmarks.consolidation_world import World
from tests.builders import ClusterBuilder, node
from tests.unit.plan.steering_stage import in_the_world

PRICED: dict[str, Any] = {"price": 0.2, "currency": "EUR"}


class Nothing:
    """A strategy that leaves the world as it is."""

    def act(self, world: World) -> float:
        return 0.0


def three_replicas(*nodes: str) -> Snapshot:
    """On nodes of two zones: a and b in one, c in the other."""
    builder = ClusterBuilder()
    for name, zone in {"a": "z1", "b": "z1", "c": "z2"}.items():
        builder.node(name, "8", "8Gi", zone=zone)
    for name in nodes:
        builder.running(name, 1, "1", "1Gi", owner="web")
    return builder.snapshot()


def full_pool() -> World:
    """Two nodes with four pods of a core each; another pod needs a third node."""
    builder = ClusterBuilder()
    for name in ("a", "b"):
        builder.node(name, "4", "16Gi", group="pool", zone="z1")
        builder.running(name, 4, "1", "1Gi", owner="web")
    builder.group("pool", template=node("new", "4", "16Gi", zone="z1"), **PRICED)
    builder.controllers.append(Controller("ReplicaSet", "default", "web", "uid-web", 8))
    return World(in_the_world(builder.snapshot()), start_up=START_UP, scores=SCORES)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param("abc", Crowding(1, 0, 0), id="as before"),
        pytest.param("aac", Crowding(1, 1, 0), id="two on a host, as many in the zone"),
        pytest.param("aab", Crowding(1, 1, 1), id="two on a host, three in a zone"),
        pytest.param("ab", Crowding(1, 0, 0), id="fewer"),
    ],
)
def test_owner_with_more_pods_on_one_host_or_in_one_zone_is_counted(
    later: str, expected: Crowding
) -> None:
    assert crowding(three_replicas(*"abc"), three_replicas(*later)) == expected


def test_owner_of_two_is_not_counted() -> None:
    assert crowding(three_replicas(*"ab"), three_replicas(*"aa")) == Crowding(0, 0, 0)


def names(pods: Iterable[Pod], snapshot: Snapshot) -> list[str]:
    """Of pods of ReplicaSets."""
    return sorted(pod.name for pod in pods if not snapshot.classes[pod.cls].is_daemonset)


def test_restart_replaces_every_pod_once_and_buys_nothing_where_there_is_room() -> None:
    before = generate(ClusterShape(24, ruled=0.0))
    world = World(before, start_up=START_UP, scores=SCORES)
    after = restart_all(world, Nothing())
    expected = [f"{name}-new" for name in names(before.pods, before)]
    assert names(world.pods.values(), before) == sorted(expected)
    assert all(pod.node for pod in world.pods.values())
    assert (after.waited, after.unfinished) == (0, 0)


def test_rollout_never_has_more_pods_than_its_surge_nor_fewer_running_than_before() -> None:
    world = full_pool()
    rollout = Rollout(world, "uid-web")
    assert not rollout.advance()
    assert (len(world.pods), world.pending) == (10, 2)


def test_restart_without_room_buys_and_its_pods_wait_until_the_node_is_ready(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = full_pool()
    after = restart_all(world, STRATEGIES["consolidation-10"](), explained=True)
    assert (after.bought, after.waited, after.unfinished) == (1, 2, 0)
    assert after.pending == 2 * 180.0
    (line,) = capsys.readouterr().out.splitlines()
    assert "pool +1: 2 x web (1.00 cores 1.00 GiB); " in line
    assert "the rule allows 2 nodes, of which 0 have the cpu, 2 the memory, 0 both" in line


def test_churn_brings_the_same_pods_under_all_rules() -> None:
    shape = ClusterShape(24)
    left = []
    for rules in ("removals", "unsteered-10"):
        world = World(generate(shape), scores=SCORES, live=True)
        churn(world, STRATEGIES[rules](), seed=1, passes=3)
        left.append(names(world.pods.values(), world.snapshot()))
    assert left[0] == left[1] != names(generate(shape).pods, generate(shape))


@pytest.mark.parametrize("more", [[], ["--churn"]])
def test_table_has_a_row_for_each_seed_and_rule(
    capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    main(["--nodes", "4", "--seeds", "1-2", "--rules", "removals", *more])
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[:2] for row in rows] == [["| 1", "removals"], ["| 2", "removals"]]
    assert {text.count("|") for text in (head, line, *rows)} == {head.count("|")}
