"""The page shows evacuations and restarts under way, and replacements that
are not for their saving.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.policy_permissions import STRICT
from chalicelib.operations.runner import definition_of
from chalicelib.page.attention import OperationProgress, under_way
from chalicelib.page.cluster_data import details
from chalicelib.page.timeline import event_of
from chalicelib.store.journal import JournalEntry
from infra.emulators.example_clusters import ARM, NOW, example
from tests.operations import new_operation
from tests.unit.page.test_consolidation_pages import ROW, progress


def operation(kind: OperationKind, reason: str, step: str) -> Operation:
    target = RemovalTarget("arm-1", "i-1", evict=("d/p", "d/q"))
    fields: dict[str, Any] = {
        "targets": (target,),
        "reason": reason,
        "step": step,
        "state": OperationState.WAITING,
    }
    return new_operation("x", "prod", "clusterapi", ARM, kind, "p", NOW - 60, **fields)


def shown(*operations: Operation) -> list[OperationProgress]:
    cluster = details(example(), "prod", NOW, STRICT)
    assert cluster is not None
    memory = msgspec.structs.replace(cluster.memory, operations=operations)
    return under_way(msgspec.structs.replace(cluster, memory=memory))


@pytest.mark.parametrize(
    ("kind", "reason", "step", "text", "says", "done", "of"),
    [
        (
            OperationKind.DELETE_NODES,
            "interrupted",
            "leave",
            "arm-1 of arm is removed because of an interruption, 2 pods to move",
            "waiting until its vendor takes it",
            5,
            7,
        ),
        (
            OperationKind.RESTART_NODE,
            "repair",
            "ready",
            "arm-1 of arm is restarted because of a fault, 2 pods to move",
            "waiting until the node is ready",
            7,
            9,
        ),
        (
            OperationKind.DELETE_NODES,
            "expired",
            "",
            "arm-1 of arm is removed because of age, 2 pods to move",
            "waiting for its turn",
            0,
            9,
        ),
        (
            OperationKind.DELETE_NODES,
            "unneeded",
            "",
            "arm-1 of arm is removed, 2 pods to move",
            "waiting for its turn",
            0,
            9,
        ),
    ],
)
def test_what_is_under_way_says_why_and_how_far_it_is(
    kind: OperationKind, reason: str, step: str, text: str, says: str, done: int, of: int
) -> None:
    (row,) = shown(operation(kind, reason, step))
    assert (row.text, row.step, row.done, row.of) == (text, says, done, of)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(OperationKind.DELETE_NODES, "interrupted"), (OperationKind.RESTART_NODE, "repair")],
)
def test_every_step_has_words(kind: OperationKind, reason: str) -> None:
    steps = [name for name, _ in definition_of(operation(kind, reason, "")).steps]
    assert len(steps) >= 8
    rows = [shown(operation(kind, reason, step))[0] for step in steps]
    assert [row.done for row in rows] == list(range(len(steps)))
    assert not {row.step for row in rows} & set(steps)


def test_replacement_for_another_reason_than_its_saving_says_why() -> None:
    [first, *_] = progress(msgspec.structs.replace(ROW, reason=DisruptionReason.DRIFTED))
    assert first.text == "batch-2 is replaced by 1 of arm because of drift"


def test_restart_in_the_history_is_a_repair() -> None:
    facts: dict[str, str | int | float | bool] = {
        "kind": "restart",
        "state": "succeeded",
        "targets": "a",
        "seconds": 9,
    }
    event = event_of(JournalEntry(NOW, "operation", group="g", facts=facts), {})
    assert (event.kind, event.text, event.failed) == (
        "repair",
        "a was restarted in g, in 9 s",
        False,
    )
