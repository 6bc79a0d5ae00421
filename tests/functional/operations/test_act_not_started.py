"""An operation first claimed after its deadline was delayed by Outscaler itself, so its group
gets no backoff or cooldown."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.providers.kit import errors
from tests.functional.operations.harness import START, OperationHarness


def test_scale_up_first_claimed_after_its_deadline_starts_no_backoff(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, deadline=START + 60.0)
    stage.clock.advance(61.0)
    stage.play()
    ended = stage.now(operation)
    assert (ended.status.state, ended.status.error_class) == (OperationState.FAILED, "NotStarted")
    assert (
        ended.status.outcome
        == "not begun by 2026-11-21T07:21:54Z, its deadline; nothing was asked of the provider"
    )
    assert stage.provider.calls == []
    assert "g" not in stage.memory().groups
    assert [wake["reason"] for wake in stage.wakes] == ["operation"]


@pytest.mark.parametrize("kind", [OperationKind.DECREASE_TARGET, OperationKind.DELETE_INSTANCES])
def test_repair_first_claimed_after_its_deadline_may_be_planned_again_at_once(
    kind: OperationKind, stage: OperationHarness
) -> None:
    stage.group(2)
    targets = (
        (RemovalTarget("g-2", "memory://g-2", "g-2"),)
        if kind is OperationKind.DELETE_INSTANCES
        else ()
    )
    operation = stage.planned(kind, from_size=2, to_size=1, targets=targets, deadline=START + 60.0)
    stage.clock.advance(61.0)
    stage.play()
    assert stage.now(operation).status.error_class == "NotStarted"
    assert "g" not in stage.memory().groups


def test_removal_first_claimed_after_its_deadline_starts_no_cooldown(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    operation = stage.remove("g-2", deadline=START + 60.0)
    stage.clock.advance(4000.0)
    stage.play()
    assert stage.now(operation).status.error_class == "NotStarted"
    assert stage.untouched("g-2")
    assert "g" not in stage.memory().groups
    assert stage.memory().last_scale_down_failure == 0.0


def test_wait_for_another_operation_of_the_pool_is_not_a_group_failure(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    first = stage.planned(
        OperationKind.SCALE_UP,
        id="grow-0",
        from_size=2,
        to_size=3,
        pool="p",
        created_at=START - 10.0,
        due_at=START + 500.0,
        deadline=START + 900.0,
    )
    second = stage.planned(
        OperationKind.SCALE_UP, from_size=2, to_size=4, pool="p", deadline=START + 60.0
    )
    stage.play()
    assert stage.now(first).status.state is OperationState.SUCCEEDED
    assert stage.now(second).status.error_class == "NotStarted"
    backoff = stage.memory().groups["g"].backoff
    assert backoff is None


def test_scale_up_whose_first_invocation_died_counts_as_started(stage: OperationHarness) -> None:
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, deadline=START + 20.0)
    stage.die_at("act:claimed")
    stage.play()
    assert stage.now(operation).status.error_class == "DeadlineExceeded"


def test_scale_up_throttled_by_the_vendor_past_its_deadline_is_backed_off(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    stage.provider.fail_next("scale_up", errors.Throttled("slow down", retry_after=300.0))
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, deadline=START + 60.0)
    stage.play()
    assert stage.now(operation).status.error_class == "DeadlineExceeded"
    backoff = stage.memory().groups["g"].backoff
    assert backoff is not None
