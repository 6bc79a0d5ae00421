"""The function dies at every point between a change and its record; SQS redelivers the message, and the result is the
same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.model.operation import Operation, OperationKind
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


# The first point of each type. tests/unit/operations/test_crashed_steps.py covers all, without store and cluster.
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
}
CASES = [
    pytest.param(scene, place, id=f"{scene.__name__}-{place}") for scene, places in PLACES.items() for place in places
]


def state(stage: OperationHarness, operation: Operation) -> tuple[object, ...]:
    nodes = [(node["metadata"]["name"], stage.untouched(node["metadata"]["name"])) for node in stage.kube.list("nodes")]
    ended = stage.now(operation)
    pool = stage.provider.pools["g"]
    return ended.status.state, ended.status.error_class, nodes, pool.target, len(pool.machines), stage.provider.deleted


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
