"""Which operations the sweeper re-sends."""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.operations.stuck import resend_reason
from tests.cases import each_row
from tests.operations import new_operation

NOW = 1_795_245_600.0


def _operation(**known: object) -> Operation:
    fields: dict[str, object] = {"created_at": NOW - 3600, **known}
    return new_operation(
        "grow-1", "shop", "clusterapi", "workers", OperationKind.SCALE_UP, "p1", **fields
    )


@each_row(
    ("known", "why"),
    [
        ({"state": OperationState.PLANNED, "created_at": NOW - 31}, "saved but never sent"),
        ({"state": OperationState.PLANNED, "created_at": NOW - 29}, ""),
        ({"state": OperationState.PLANNED, "sent_at": NOW - 121}, "sent but never taken"),
        ({"state": OperationState.PLANNED, "sent_at": NOW - 119}, ""),
        ({"state": OperationState.PLANNED, "sent_at": NOW - 500, "due_at": NOW - 60}, ""),
        (
            {"state": OperationState.WAITING, "due_at": NOW - 121, "sent_at": NOW - 300},
            "waiting and overdue",
        ),
        ({"state": OperationState.WAITING, "due_at": NOW - 119, "sent_at": NOW - 300}, ""),
        # re-sent a minute ago
        ({"state": OperationState.WAITING, "due_at": NOW - 900, "sent_at": NOW - 60}, ""),
        ({"state": OperationState.WAITING, "due_at": NOW + 60}, ""),
        (
            {"state": OperationState.RUNNING, "claimed_until": NOW - 31},
            "its executor's claim ran out",
        ),
        ({"state": OperationState.RUNNING, "claimed_until": NOW - 300, "sent_at": NOW - 10}, ""),
        ({"state": OperationState.RUNNING, "claimed_until": NOW + 60}, ""),
        ({"state": OperationState.SUCCEEDED}, ""),
        ({"state": OperationState.FAILED}, ""),
        ({"state": OperationState.ABANDONED}, ""),
    ],
)
def test_sweeper_resends_stuck_operations(known: dict[str, object], why: str) -> None:
    assert resend_reason(_operation(**known), NOW) == why
