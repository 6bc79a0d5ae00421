"""A started scale-up is recorded before a removal of the same group lowers the size; otherwise
it would be bought again."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.providers.kit.errors import OutOfStock
from infra.emulators.fake_provider import Purchase
from tests.functional.operations.harness import OperationHarness


@pytest.mark.parametrize("deaths", [1, 2])
def test_removal_waits_for_a_scale_up_that_died_before_its_record(
    stage: OperationHarness, deaths: int
) -> None:
    stage.group(3)
    growth = stage.planned(OperationKind.SCALE_UP, from_size=3, to_size=4)
    for _ in range(deaths):
        stage.die_at("grow:called")
        stage.deliver()
    removal = stage.remove("g-1")
    stage.play()
    assert stage.provider.purchases == [Purchase(growth.spec.id, "g", 1)]
    assert (stage.now(growth).status.state, stage.now(removal).status.state) == (
        OperationState.SUCCEEDED,
        OperationState.SUCCEEDED,
    )
    assert (stage.provider.pools["g"].target, stage.provider.deleted) == (3, ["g-1"])


def test_delete_instances_waits_for_unrecorded_scale_up(stage: OperationHarness) -> None:
    stage.group(3)
    growth = stage.planned(OperationKind.SCALE_UP, from_size=3, to_size=4)
    stage.die_at("grow:called")
    stage.deliver()
    never = next(
        handle
        for handle in stage.provider.pools["g"].machines
        if handle not in {"g-1", "g-2", "g-3"}
    )
    discard = stage.planned(
        OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", f"memory://{never}", never),)
    )
    stage.play()
    assert stage.provider.purchases == [Purchase(growth.spec.id, "g", 1)]
    assert stage.now(discard).status.state is OperationState.SUCCEEDED
    assert stage.provider.pools["g"].target == 3


def test_scale_up_that_has_not_started_blocks_nothing(stage: OperationHarness) -> None:
    stage.group(3)
    removal = stage.remove("g-1")
    stage.play()
    began = stage.clock()
    assert stage.now(removal).status.state is OperationState.SUCCEEDED
    stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=3, due_at=began + 3600.0)
    second = stage.remove("g-2", id="remove-2")
    stage.play()
    assert stage.now(second).status.state is OperationState.SUCCEEDED
    assert stage.now(second).status.updated_at - began < 600.0


def test_CCE_18_second_scale_up_of_a_pool_waits_until_the_first_is_accepted(
    stage: OperationHarness,
) -> None:
    stage.group(3)
    stage.provider.add_pool("h", size=1)
    first = stage.planned(OperationKind.SCALE_UP, id="grow-1", from_size=3, to_size=4, pool="p")
    second = stage.planned(
        OperationKind.SCALE_UP, id="grow-2", group="h", from_size=1, to_size=2, pool="p"
    )
    stage.die_at("grow:called")
    stage.deliver()
    bought = [Purchase(first.spec.id, "g", 1)]
    assert stage.provider.purchases == bought
    while stage.now(first).status.attempt < 2:
        assert stage.provider.purchases == bought, "nobody knows yet what became of the first"
        stage.deliver()
    stage.play()
    assert stage.provider.purchases == [*bought, Purchase(second.spec.id, "h", 1)]
    assert {stage.now(each).status.state for each in (first, second)} == {OperationState.SUCCEEDED}


def test_scale_ups_of_groups_without_a_common_pool_do_not_wait(stage: OperationHarness) -> None:
    stage.group(3)
    stage.provider.add_pool("h", size=1)
    stage.planned(OperationKind.SCALE_UP, id="grow-1", from_size=3, to_size=4)
    second = stage.planned(OperationKind.SCALE_UP, id="grow-2", group="h", from_size=1, to_size=2)
    stage.die_at("grow:called")
    stage.deliver()
    stage.deliver()
    assert Purchase(second.spec.id, "h", 1) in stage.provider.purchases


KILLED = ("act:claimed", "act:stepped", "act:sent", "act:recorded")
"""Checkpoints of every invocation, whichever operation it is for."""


@pytest.mark.parametrize("place", ["", "grow:called", "taint:called", "delete:called", *KILLED])
def test_drain_starts_after_its_replacement_is_recorded(
    stage: OperationHarness, place: str
) -> None:
    stage.group(3)
    stage.provider.add_pool("h", size=1)
    stage.pod("waits")
    growth = stage.planned(
        OperationKind.SCALE_UP,
        id="grow-1",
        group="h",
        from_size=1,
        to_size=2,
        pods=("default/waits",),
    )
    removal = stage.remove("g-1", id="remove-1", after=(growth.spec.id,))
    assert stage.now(removal).spec.after == (growth.spec.id,)
    if place:
        stage.die_at(place)
    while stage.now(growth).is_open:
        assert stage.untouched("g-1"), "its replacement is not recorded yet"
        stage.deliver()
    assert stage.untouched("g-1")
    stage.play()
    assert place not in stage.at_checkpoint, "the function died"
    assert {stage.now(each).status.state for each in (growth, removal)} == {
        OperationState.SUCCEEDED
    }
    assert stage.provider.purchases == [Purchase(growth.spec.id, "h", 1)]
    assert (stage.provider.pools["g"].target, stage.provider.deleted) == (2, ["g-1"])


@pytest.mark.parametrize(
    ("delay", "place"),
    [
        *((0.0, place) for place in ("", *KILLED) if place != "act:sent"),
        *((5.0, place) for place in ("", *KILLED)),
    ],
)
def test_drain_is_called_off_if_its_replacement_fails(
    stage: OperationHarness, delay: float, place: str
) -> None:
    stage.group(3)
    stage.provider.add_pool("h", size=1)
    stage.pod("waits")
    stage.provider.fail_next("scale_up", OutOfStock("none left", code="ZONE_STOCK"), times=2)
    before, due = stage.memory().groups.get("g"), stage.clock() + delay
    growth = stage.planned(
        OperationKind.SCALE_UP,
        id="grow-1",
        group="h",
        from_size=1,
        to_size=2,
        pods=("default/waits",),
        due_at=due,
    )
    removal = stage.remove("g-1", id="remove-1", after=(growth.spec.id,))
    if place:
        stage.die_at(place)
    stage.play()
    assert place not in stage.at_checkpoint, "the function died"
    assert stage.now(growth).status.state is OperationState.FAILED
    ended = stage.now(removal).status
    assert (ended.state, ended.error_class) == (OperationState.ABANDONED, "Abandoned")
    assert ended.outcome.startswith(
        "called off: it was to start after grow-1, which did not succeed (failed: "
    )
    assert "none left" in ended.outcome
    assert (stage.provider.purchases, stage.provider.deleted) == ([], [])
    assert stage.untouched("g-1")
    assert stage.memory().groups.get("g") == before, (
        "no back-off: the group and the node did not fail"
    )


def test_drain_is_called_off_if_what_it_waits_for_is_unknown(stage: OperationHarness) -> None:
    stage.group(3)
    removal = stage.remove("g-1", after=("grow-unknown",))
    stage.play()
    ended = stage.now(removal).status
    assert ended.state is OperationState.ABANDONED
    assert ended.outcome == "called off: it was to start after grow-unknown, which is not known"
    assert stage.untouched("g-1")
    assert stage.provider.deleted == []
