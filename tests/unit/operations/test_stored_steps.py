"""Names of steps are stored with an open operation: another release continues it, so they never change."""

from __future__ import annotations

from chalicelib.model.memory import FailedRemoval, GroupMemory, Memory
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import retry_delay
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.operations.runner import DEFINITIONS
from tests.unit.operations.harness import START, remove


def test_names_and_order_of_the_steps_of_each_kind_are_those_that_are_stored() -> None:
    assert {kind: [name for name, _ in definition.steps] for kind, definition in DEFINITIONS.items()} == {
        OperationKind.SCALE_UP: ["request", "poll"],
        OperationKind.DELETE_NODES: [
            *("look", "taint", "recheck", "evict", "gone", "delay", "delete", "poll", "confirm", "undo"),
        ],
        OperationKind.DECREASE_TARGET: ["lower", "poll"],
        OperationKind.DELETE_INSTANCES: ["delete", "poll", "release"],
    }


def test_failed_removal_is_remembered_with_its_count_and_its_delay() -> None:
    options, group = Options(), GroupMemory(failed_removals={"g-1": FailedRemoval(START, 2, "before")})
    patch, cluster = memory_updates(remove("g-1", "g-2"), Failed("NodeNotEmpty", "a pod"), options, START)
    assert patch is not None
    assert cluster is not None
    after = patch(group)
    assert after.last_failure == START
    assert after.failed_removals == {
        "g-1": FailedRemoval(START + retry_delay(3, options), 3, "a pod"),
        "g-2": FailedRemoval(START + retry_delay(1, options), 1, "a pod"),
    }
    assert cluster(Memory()).last_scale_down_failure == START
