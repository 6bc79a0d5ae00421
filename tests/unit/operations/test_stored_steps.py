"""Names of steps are stored with an open operation: another release continues
it, so they never change.
"""

from __future__ import annotations

from chalicelib.model.memory import FailedRemoval, GroupMemory, Memory
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import ABANDONED, NOTICE_TAKEN_BACK, Failed, Succeeded
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.operations.removal_progress import KEY
from chalicelib.operations.runner import DEFINITIONS
from chalicelib.operations.step_context import NOT_STARTED
from chalicelib.operations.steps.evacuation import INTERRUPTED_REMOVAL
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import retry_delay
from tests.cases import each_row
from tests.unit.operations.harness import START, interrupted, remove, restart


def test_names_and_order_of_the_steps_of_each_kind_are_those_that_are_stored() -> None:
    assert {
        kind: [name for name, _ in definition.steps] for kind, definition in DEFINITIONS.items()
    } == {
        OperationKind.SCALE_UP: ["request", "poll"],
        OperationKind.DELETE_NODES: [
            *(
                "look",
                "taint",
                "recheck",
                "evict",
                "gone",
                "delay",
                "delete",
                "poll",
                "confirm",
                "undo",
            ),
        ],
        OperationKind.DECREASE_TARGET: ["lower", "poll"],
        OperationKind.DELETE_INSTANCES: ["delete", "poll", "release"],
        OperationKind.REMOVE_GROUP: ["delete", "poll"],
        OperationKind.RESTART_NODE: [
            *(
                "look",
                "taint",
                "recheck",
                "evict",
                "gone",
                "restart",
                "poll",
                "ready",
                "return",
                "undo",
            ),
        ],
    }
    assert [name for name, _ in INTERRUPTED_REMOVAL.steps] == [
        *("look", "taint", "evict", "delete", "poll", "leave", "confirm", "undo"),
    ]


def test_failed_removal_is_remembered_with_its_count_and_its_delay() -> None:
    options, group = (
        Options(),
        GroupMemory(failed_removals={"g-1": FailedRemoval(START, 2, "before")}),
    )
    patch, cluster = memory_updates(
        remove("g-1", "g-2"), Failed("NodeNotEmpty", "a pod"), options, START
    )
    assert patch is not None
    assert cluster is not None
    after = patch(group)
    assert after.last_failure == START
    assert after.failed_removals == {
        "g-1": FailedRemoval(START + retry_delay(3, options), 3, "a pod"),
        "g-2": FailedRemoval(START + retry_delay(1, options), 1, "a pod"),
    }
    assert cluster(Memory()).last_scale_down_failure == START


@each_row(
    ("facts", "target"),
    [({"removed": 1, "nodes": "g-1"}, 4), ({"removed": 1, "nodes": "g-1", "gone": "g-1"}, 5)],
)
def test_interruption_starts_no_cooldown_and_lowers_what_the_provider_lowered(
    facts: dict[str, str | int], target: int
) -> None:
    patch, cluster = memory_updates(interrupted("g-1"), Succeeded(facts), Options(), START)
    assert cluster is None
    assert patch is not None
    assert patch(GroupMemory(target=5)) == GroupMemory(target=target)


def test_notice_that_was_taken_back_delays_the_next_evacuation_and_nothing_else() -> None:
    options, ordinary = Options(), FailedRemoval(START, 2, "before")
    group = GroupMemory(target=5, failed_removals={"g-1": ordinary})
    for times in (1, 2):
        patch, cluster = memory_updates(
            interrupted("g-1"), Failed(NOTICE_TAKEN_BACK, "why"), options, START
        )
        assert cluster is None
        assert patch is not None
        group = patch(group)
        failed = FailedRemoval(START + retry_delay(times, options), times, "why", taken_back=True)
        assert group == GroupMemory(target=5, failed_removals={"g-1": failed})
    patch, _ = memory_updates(remove("g-1"), Failed("NodeNotEmpty", "a pod"), options, START)
    assert patch is not None
    assert patch(group).failed_removals == {
        "g-1": FailedRemoval(START + retry_delay(1, options), 1, "a pod")
    }


@each_row("error_class", [ABANDONED, "Conflict", "DeadlineExceeded", "InvalidRequest"])
def test_interruption_that_did_not_happen_counts_nowhere(error_class: str) -> None:
    assert memory_updates(interrupted("g-1"), Failed(error_class, "why"), Options(), START) == (
        None,
        None,
    )


def test_restart_changes_no_size_and_starts_no_cooldown() -> None:
    options, group = Options(), GroupMemory(target=5)
    assert memory_updates(restart("g-1"), Succeeded({"restarted": 1}), options, START) == (
        None,
        None,
    )
    asked = restart("g-1", data={KEY: '{"nodes": {"g-1": {"restarting": 1.0}}}'})
    assert memory_updates(asked, Failed(ABANDONED, "paused"), options, START) == (None, None)
    patch, cluster = memory_updates(asked, Failed("NodeNotReady", "why"), options, START)
    assert cluster is None
    assert patch is not None
    failed = {"g-1": FailedRemoval(START + retry_delay(1, options), 1, "why")}
    assert patch(group) == GroupMemory(target=5, failed_removals=failed)


@each_row(
    ("error_class", "delays"), [(ABANDONED, False), (NOT_STARTED, False), ("EvictionBlocked", True)]
)
def test_restart_that_ended_before_its_vendor_was_asked_is_none(
    error_class: str, delays: bool
) -> None:
    options, operation = Options(), restart("g-1")
    patch, cluster = memory_updates(operation, Failed(error_class, "why"), options, START + 60.0)
    assert cluster is None
    assert patch is not None
    after = patch(GroupMemory(not_restarted={"g-2": 1.0}))
    assert after.not_restarted == {"g-1": operation.spec.created_at, "g-2": 1.0}
    assert list(after.failed_removals) == ["g-1"] * delays
