"""The function dies at every point at which the state has changed and the
table does not know it yet.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.policy.settings.cluster_options import Options
from tests.cases import each_row
from tests.unit.operations.harness import OperationFixture, interrupted, remove, restart


def goes(fixture: OperationFixture) -> Operation:
    """Two nodes, one of them drained."""
    fixture.group(3)
    keys = tuple(f"default/p-{n}" for n in range(3))
    for key in keys:
        fixture.cluster.add_pod(key, "g-1")
    return remove("g-1", "g-3", evict={"g-1": keys})


def stays(fixture: OperationFixture) -> Operation:
    """One empty node, and one blocked by a budget."""
    operation = goes(fixture)
    fixture.cluster.add_budget("web", ["default/p-1"], room=0)
    return operation


def refused(fixture: OperationFixture) -> Operation:
    """The provider refuses to go below its minimum."""
    operation = goes(fixture)
    fixture.provider.pools["g"].min = 2
    return operation


def long(fixture: OperationFixture) -> Operation:
    """Fifty pods in two groups, with grace periods of ten minutes, and a budget
    that delays some of them."""
    fixture.options = Options(drain_priority_config=((0, 600), (1000, 600)))
    fixture.group(2)
    keys = tuple(f"default/p-{n:02}" for n in range(50))
    for number, key in enumerate(keys):
        fixture.cluster.add_pod(key, "g-1", grace=900.0, priority=2000 if number % 3 else 0)
    fixture.cluster.add_pod("kube-system/ds", "g-1", daemonset=True, priority=2_000_001_000)
    return remove("g-1", evict={"g-1": keys})


def taken_back(fixture: OperationFixture) -> Operation:
    """A node that its vendor takes back, in 20 minutes, with a pod that nobody has planned."""
    fixture.group(2)
    for key in ("default/p-0", "default/p-1", "default/late"):
        fixture.cluster.add_pod(key, "g-1")
    return interrupted("g-1", "default/p-0", "default/p-1", leaves_at=fixture.now + 1200.0)


def restarted(fixture: OperationFixture) -> Operation:
    """A sick node with two pods, one of which its kubelet never ends."""
    fixture.group(2)
    for key in ("default/p-0", "default/p-1"):
        fixture.cluster.add_pod(key, "g-1")
    fixture.cluster.stuck.add("default/p-1")
    return restart("g-1", "default/p-0", "default/p-1")


SCENES: list[Callable[[OperationFixture], Operation]] = [
    goes,
    stays,
    refused,
    long,
    taken_back,
    restarted,
]


def run(
    scene: Callable[[OperationFixture], Operation], kill_at: int | None
) -> tuple[OperationFixture, Succeeded | Failed]:
    fixture = OperationFixture(polls=2, kill_at=kill_at)
    return fixture, fixture.play(scene(fixture))


def state(fixture: OperationFixture) -> tuple[object, ...]:
    nodes = sorted(
        (node.name, node.unschedulable, len(node.taints)) for node in fixture.cluster.nodes.values()
    )
    return nodes, sorted(fixture.provider.deleted), fixture.provider.pools["g"].target


@each_row("scene", SCENES, ids=lambda scene: scene.__name__)
def test_operation_killed_anywhere_and_redelivered_ends_the_same(
    scene: Callable[[OperationFixture], Operation],
) -> None:
    whole, outcome = run(scene, None)
    assert len(whole.checkpoints) >= 6
    for kill_at in range(len(whole.checkpoints)):
        again, ended = run(scene, kill_at)
        place = whole.checkpoints[kill_at]
        assert state(again) == state(whole), f"killed at {place} ({kill_at})"
        assert type(ended) is type(outcome), f"killed at {place} ({kill_at})"


@each_row("scene", SCENES, ids=lambda scene: scene.__name__)
def test_operation_steps_run_twice_change_nothing_more(
    scene: Callable[[OperationFixture], Operation],
) -> None:
    whole, outcome = run(scene, None)
    fixture = OperationFixture(polls=2)
    operation = scene(fixture)
    ended: object = None
    while not isinstance(ended, Succeeded | Failed):
        fixture.step(operation)  # a first executor, overtaken before it could record
        operation, ended = fixture.step(operation)
    assert state(fixture) == state(whole)
    assert type(ended) is type(outcome)


def test_removal_leaves_no_taint_on_a_node_that_stays() -> None:
    for kill_at in range(20):
        fixture, _ = run(stays, kill_at)
        assert all(
            not node.taints and not node.unschedulable for node in fixture.cluster.nodes.values()
        )


def test_long_drain_killed_anywhere_evicts_no_pod_twice() -> None:
    whole, _ = run(long, None)
    assert len(whole.checkpoints) > 2
    for kill_at in range(len(whole.checkpoints)):
        fixture, _ = run(long, kill_at)
        asked = [name for verb, name in fixture.cluster.calls if verb == "evict"]
        assert len(asked) == len(set(asked)) == 51, (
            f"killed at {whole.checkpoints[kill_at]} ({kill_at})"
        )
        assert fixture.provider.deleted == ["g-1"]
