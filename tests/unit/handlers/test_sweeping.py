"""Which operations have been left lying."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Kind, Operation, State
from chalicelib.operations.stuck import left_lying
from tests.operations import new_operation

NOW = 1_795_245_600.0


def _operation(**known: object) -> Operation:
    fields: dict[str, object] = {"created_at": NOW - 3600, **known}
    return new_operation("grow-1", "shop", "clusterapi", "workers", Kind.GROW, "p1", **fields)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"state": State.PLANNED, "created_at": NOW - 31}, "saved but never sent"),
        ({"state": State.PLANNED, "created_at": NOW - 29}, ""),
        ({"state": State.PLANNED, "sent_at": NOW - 121}, "sent but never taken"),
        ({"state": State.PLANNED, "sent_at": NOW - 119}, ""),
        ({"state": State.PLANNED, "sent_at": NOW - 500, "due_at": NOW - 60}, ""),
        ({"state": State.WAITING, "due_at": NOW - 121, "sent_at": NOW - 300}, "waiting and overdue"),
        ({"state": State.WAITING, "due_at": NOW - 119, "sent_at": NOW - 300}, ""),
        ({"state": State.WAITING, "due_at": NOW - 900, "sent_at": NOW - 60}, ""),  # swept a minute ago
        ({"state": State.WAITING, "due_at": NOW + 60}, ""),
        ({"state": State.RUNNING, "claimed_until": NOW - 31}, "its executor's claim ran out"),
        ({"state": State.RUNNING, "claimed_until": NOW - 300, "sent_at": NOW - 10}, ""),
        ({"state": State.RUNNING, "claimed_until": NOW + 60}, ""),
        ({"state": State.SUCCEEDED}, ""),
        ({"state": State.FAILED}, ""),
        ({"state": State.ABANDONED}, ""),
    ],
)
def test_what_is_sent_again(known: dict[str, object], why: str) -> None:
    assert left_lying(_operation(**known), NOW) == why
