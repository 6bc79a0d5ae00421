"""Operations that are under way when an operator pauses the cluster (docs/runbook.md "Pauses")."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.timestamps import format_time
from tests.functional.operations.harness import OperationHarness


def pause(
    stage: OperationHarness,
    part: PausedPart = PausedPart.ALL,
    group: str = "",
    lasts: float = 3600.0,
) -> Pause:
    made = Pause(
        stage.clock() + lasts,
        stage.clock(),
        part,
        group,
        "release",
        "arn:aws:iam::123456789012:role/ops",
    )
    stage.store.pauses.change(stage.name, lambda before: (*before, made))
    return made


def test_pause_during_a_drain_rolls_back_what_the_vendor_was_not_told(
    stage: OperationHarness,
) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    assert not stage.untouched("g-1")
    made = pause(stage)
    stage.play()
    ended = stage.now(operation).status
    assert (ended.state, ended.outcome) == (
        OperationState.ABANDONED,
        f"node g-1: paused until {format_time(made.until)}: release",
    )
    assert stage.untouched("g-1")
    assert stage.memory().last_scale_down_failure == 0.0


def test_pause_after_the_vendor_was_told_sees_the_scale_up_through(stage: OperationHarness) -> None:
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    while not stage.provider.calls:
        stage.deliver()
    pause(stage)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED


@pytest.mark.parametrize(
    ("part", "group", "grown", "removed"),
    [
        pytest.param(PausedPart.GROWTH, "", False, True, id="growth"),
        pytest.param(PausedPart.REMOVALS, "", True, False, id="removals"),
        pytest.param(PausedPart.ALL, "other", True, True, id="another-group"),
        pytest.param(PausedPart.ALL, "g", False, False, id="its-group"),
    ],
)
def test_pause_of_a_part_stops_only_its_operations(
    stage: OperationHarness, part: PausedPart, group: str, grown: bool, removed: bool
) -> None:
    stage.group(2)
    removal = stage.remove("g-1")
    pause(stage, part, group)
    stage.play()
    scale_up = stage.planned(OperationKind.SCALE_UP, from_size=2 - removed, to_size=3 - removed)
    stage.play()
    states = (stage.now(scale_up).status.state, stage.now(removal).status.state)
    assert tuple(state is OperationState.SUCCEEDED for state in states) == (grown, removed)


def test_pause_that_has_ended_stops_nothing_although_no_function_ran(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    pause(stage, lasts=60.0)
    stage.clock.advance(61.0)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=3)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
