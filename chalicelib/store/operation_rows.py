"""Operations as rows and back: what one does never changes and is one text, how far it has come is in attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from pynamodb.expressions.update import Action

from chalicelib.model.operation import Operation, State
from chalicelib.store.codec import decode, encode
from chalicelib.store.table_client import Raw
from chalicelib.store.tables import OPEN, OVER, OperationRow

KEPT = 14 * 86400.0  # seconds that an operation is kept after it has ended

# What executors change. Everything else is fixed when the operation is planned.
PROGRESS = (
    "state",
    "step",
    "data",
    "attempt",
    "due_at",
    "claimed_by",
    "claimed_until",
    "sent_at",
    "updated_at",
    "outcome",
    "error_class",
    "error_code",
)
_FRESH = {
    field.name: field.default if field.default is not msgspec.NODEFAULT else {}
    for field in msgspec.structs.fields(Operation)
    if field.name in PROGRESS
}


def intent(operation: Operation) -> Operation:
    """What it does, without how far it has come."""
    return msgspec.structs.replace(operation, **_FRESH)


def to_row(operation: Operation) -> OperationRow:
    """The row; under the open key while it is open, under the other once it is over."""
    item = (OPEN if operation.is_open else OVER) + operation.id
    row = OperationRow(operation.cluster, item, text=encode(intent(operation)).decode(), **_progress(operation))
    if not operation.is_open:
        row.expires_at = int(operation.updated_at + KEPT)
    return row


def to_operation(raw: Raw | OperationRow) -> Operation:
    """The operation that a row holds."""
    row = OperationRow.from_raw_data(raw) if isinstance(raw, dict) else raw
    return msgspec.structs.replace(
        decode(row.text, Operation),
        state=State(row.state),
        step=row.step,
        data=decode(row.data, dict[str, str]),
        attempt=int(row.attempt),
        due_at=row.due_at,
        claimed_by=row.claimed_by,
        claimed_until=row.claimed_until,
        sent_at=row.sent_at,
        updated_at=row.updated_at,
        outcome=row.outcome,
        error_class=row.error_class,
        error_code=row.error_code,
    )


def to_operations(rows: Iterable[Raw]) -> tuple[Operation, ...]:
    """Several, the oldest first."""
    return tuple(sorted(map(to_operation, rows), key=lambda operation: (operation.created_at, operation.id)))


def progress_actions(operation: Operation, *, leave: tuple[str, ...] = ()) -> list[Action]:
    """How far it has come, as an update; leave: attributes that stay as they are."""
    return [getattr(OperationRow, name).set(value) for name, value in _progress(operation).items() if name not in leave]


def _progress(operation: Operation) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(operation, name) for name in PROGRESS}
    return values | {"state": operation.state.value, "data": encode(operation.data).decode()}
