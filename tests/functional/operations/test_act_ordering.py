"""A started scale-up is recorded before a removal of the same group lowers the size; otherwise it would be bought
again."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from infra.emulators.fake_provider import Purchase
from tests.functional.operations.harness import OperationHarness


@pytest.mark.parametrize("deaths", [1, 2])
def test_removal_waits_for_a_scale_up_that_died_before_its_record(stage: OperationHarness, deaths: int) -> None:
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
    never = next(handle for handle in stage.provider.pools["g"].machines if handle not in {"g-1", "g-2", "g-3"})
    discard = stage.planned(OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", f"memory://{never}", never),))
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


def test_CCE_18_second_scale_up_of_a_pool_waits_until_the_first_is_accepted(stage: OperationHarness) -> None:
    stage.group(3)
    stage.provider.add_pool("h", size=1)
    first = stage.planned(OperationKind.SCALE_UP, id="grow-1", from_size=3, to_size=4, pool="p")
    second = stage.planned(OperationKind.SCALE_UP, id="grow-2", group="h", from_size=1, to_size=2, pool="p")
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
