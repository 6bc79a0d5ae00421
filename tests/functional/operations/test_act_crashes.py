"""The function dies at every point between a change and its record; SQS redelivers the message,
and the result is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.model.operation import (
    BROKEN,
    Operation,
    OperationKind,
    OperationState,
    RemovalTarget,
)
from chalicelib.operations.steps.scale_up import NOT_NEEDED
from chalicelib.store.errors import OperationFinished
from infra.emulators.fake_provider import Purchase
from tests.functional.operations.harness import OperationHarness


def growth(stage: OperationHarness) -> Operation:
    stage.group(2)
    stage.provider.polls = 2
    stage.pod("waiting")
    return stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, pods=("default/waiting",))


def drain(stage: OperationHarness) -> Operation:
    stage.group(2)
    stage.pod("p", "g-1")
    return stage.remove("g-1", evict={"g-1": ("default/p",)})


def refusal(stage: OperationHarness) -> Operation:
    stage.group(1, least=1)
    return stage.remove("g-1")


def interruption(stage: OperationHarness) -> Operation:
    stage.group(2)
    stage.pod("p", "g-1")
    leaves_at = stage.clock() + 600.0
    return stage.remove(
        "g-1", evict={"g-1": ("default/p",)}, reason="interrupted", leaves_at=leaves_at
    )


def restart(stage: OperationHarness) -> Operation:
    stage.group(2)
    stage.pod("p", "g-1")
    stage.provider.polls = 2

    def boot(name: str) -> None:
        node = stage.kube.get("nodes", "g-1")
        assert node is not None
        status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": name}}
        stage.kube.update("nodes", {**node, "status": status})

    boot("first")
    stage.provider.on_restart = lambda machine: boot(f"after the restart of {machine.node}")
    target = RemovalTarget("g-1", "memory://g-1", "g-1", ("default/p",))
    return stage.planned(OperationKind.RESTART_NODE, targets=(target,), reason="repair")


# The first point of each type. tests/unit/operations/test_crashed_steps.py covers all,
# without store and cluster.
PLACES = {
    growth: (
        "act:watched",
        "act:claimed",
        "grow:called",
        "grow:polled",
        "act:stepped",
        "act:recorded",
        "act:sent",
        "act:woken",
    ),
    drain: ("taint:called", "evict:called", "delete:called", "act:recorded"),
    refusal: ("delete:called", "undo:called", "act:woken"),
    interruption: ("taint:called", "evict:called", "delete:called", "act:recorded", "act:sent"),
    restart: (
        "taint:called",
        "evict:called",
        "restart:called",
        "return:called",
        "act:recorded",
        "act:sent",
    ),
}
CASES = [
    pytest.param(scene, place, id=f"{scene.__name__}-{place}")
    for scene, places in PLACES.items()
    for place in places
]


def state(stage: OperationHarness, operation: Operation) -> tuple[object, ...]:
    nodes = [
        (node["metadata"]["name"], stage.untouched(node["metadata"]["name"]))
        for node in stage.kube.list("nodes")
    ]
    ended = stage.now(operation)
    pool = stage.provider.pools["g"]
    return (
        ended.status.state,
        ended.status.error_class,
        nodes,
        pool.target,
        len(pool.machines),
        stage.provider.deleted,
    )


@pytest.mark.parametrize(("scene", "place"), CASES)
def test_operation_killed_at_any_point_has_the_same_result(
    stage: OperationHarness, scene: Callable[[OperationHarness], Operation], place: str
) -> None:
    stage.die_at(place)
    operation = scene(stage)
    stage.play()
    assert place in stage.checkpoints
    ends: dict[object, object] = {
        growth: ("succeeded", "", [("g-1", True), ("g-2", True)], 4, 4, []),
        drain: ("succeeded", "", [("g-2", True)], 1, 1, ["g-1"]),
        refusal: ("failed", "InvalidRequest", [("g-1", True)], 1, 1, []),
        interruption: ("succeeded", "", [("g-2", True)], 1, 1, ["g-1"]),
        restart: ("succeeded", "", [("g-1", True), ("g-2", True)], 2, 2, []),
    }
    assert state(stage, operation) == ends[scene]
    if scene is growth:
        assert stage.provider.purchases == [Purchase("grow-1", "g", 2)]
        request = stage.memory().groups["g"].request
        assert request is not None
        assert request.increase == 2


def test_two_kills_between_purchase_and_record_buy_nothing_twice(stage: OperationHarness) -> None:
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    for _ in range(2):
        stage.die_at("grow:called")
        stage.deliver()
    stage.play()
    assert stage.now(operation).status.attempt == 3
    assert stage.provider.purchases == [Purchase("grow-1", "g", 2)]


def test_growth_whose_executor_died_is_not_bought_for_pods_that_are_gone(
    stage: OperationHarness,
) -> None:
    stage.die_at("act:claimed")
    operation = growth(stage)
    stage.deliver()
    stage.kube.remove("pods", "waiting", "default")
    stage.play()
    ended = stage.now(operation).status
    assert (ended.state, ended.error_code) == (OperationState.ABANDONED, NOT_NEEDED)
    assert stage.provider.purchases == []
    assert "g" not in stage.memory().groups  # no backoff
    assert [wake["reason"] for wake in stage.wakes] == ["operation"]


# -- from a kill to the next step


PLACES_IN_A_STEP = ("act:watched", "act:claimed", "grow:called", "act:stepped", "act:sent")


@pytest.mark.parametrize("second", ["", *PLACES_IN_A_STEP])
@pytest.mark.parametrize("first", PLACES_IN_A_STEP)
def test_killed_executor_is_replaced_within_half_a_minute(
    stage: OperationHarness, first: str, second: str
) -> None:
    operation = growth(stage)
    stage.die_at(first)
    for place, next_place in ((first, second), (second, "")):
        while place in stage.at_checkpoint:
            stage.deliver()
        died, visited = stage.clock(), len(stage.checkpoints)
        if next_place:
            stage.die_at(next_place)
        while "act:watched" not in stage.checkpoints[visited:]:
            stage.deliver()
        assert stage.clock() - died <= 30.0
        if not second:
            break
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.provider.purchases == [Purchase("grow-1", "g", 2)]


@pytest.mark.parametrize("first", [*PLACES_IN_A_STEP, "act:recorded"])
def test_executor_killed_before_its_watch_is_replaced_within_half_a_minute(
    stage: OperationHarness, first: str
) -> None:
    """Its message returns after minutes; the second watch of the executor before
    it does not wait for that."""
    operation = growth(stage)
    stage.die_at(first)
    while first in stage.at_checkpoint:
        stage.deliver()
    stage.die_at("act:received")
    while "act:received" in stage.at_checkpoint:
        stage.deliver()
    due = max(stage.clock(), stage.now(operation).status.due_at)
    visited = len(stage.checkpoints)
    while "act:watched" not in stage.checkpoints[visited:]:
        stage.deliver()
    assert stage.clock() - due <= 30.0
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.provider.purchases == [Purchase("grow-1", "g", 2)]


def test_watches_of_finished_steps_end(stage: OperationHarness) -> None:
    stage.group(2)
    stage.provider.polls = 12
    stage.pod("waiting")
    stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, pods=("default/waiting",))
    most = 0
    while stage.sent:
        stage.deliver()
        most = max(most, len(stage.watches))
    assert most <= 2 * 50 / 5 + 5, "those of the last fifty seconds"
    rounds = len(stage.watches)
    for _ in range(rounds):
        stage.deliver()
    assert stage.watches == []


def test_watch_of_an_executor_that_lives_does_nothing(stage: OperationHarness) -> None:
    operation = growth(stage)
    stage.play()
    ended, calls = stage.now(operation), list(stage.provider.calls)
    assert len(stage.watches) >= 3 * 2  # two for each invocation
    while stage.watches:
        stage.deliver()
    assert (stage.now(operation), stage.provider.calls) == (ended, calls)


def test_step_that_lasts_longer_than_its_claim_is_not_taken_over(stage: OperationHarness) -> None:
    """Every request to the cluster extends the claim; the watch follows it."""
    operation = drain(stage)

    def slow() -> None:
        del stage.at_checkpoint["taint:called"]
        for _ in range(4):
            stage.clock.advance(10.0)
            assert kube_client.get("/api/v1/nodes/g-1")

    kube_client = stage.client()
    stage.at_checkpoint["taint:called"] = slow
    stage.deliver()
    stage.deliver()
    assert stage.now(operation).status.attempt >= 2
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert BROKEN not in stage.now(operation).status.data


def test_executor_that_was_frozen_past_its_claim_sends_nothing_more(
    stage: OperationHarness,
) -> None:
    operation = drain(stage)
    later: list[str] = []

    def frozen() -> None:
        del stage.at_checkpoint["evict:called"]
        while stage.now(operation).is_open:
            stage.deliver()
        writes = len(stage.server.api.requests)
        with pytest.raises(OperationFinished):
            kube_client.get("/api/v1/nodes/g-1")
        later.append("nothing sent" if len(stage.server.api.requests) == writes else "sent")

    kube_client = stage.client()
    stage.at_checkpoint["evict:called"] = frozen
    stage.deliver()
    stage.deliver()
    stage.play()
    assert later == ["nothing sent"]
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.provider.deleted == ["g-1"]
