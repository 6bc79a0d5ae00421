"""Converts operations to rows and back: the immutable definition is one text, the progress is in attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from pynamodb.expressions.update import Action

from chalicelib.model.operation import Operation, OperationSpec, OperationStatus
from chalicelib.store.codec import decode, encode
from chalicelib.store.table_client import Raw, readable, row_of
from chalicelib.store.tables import OPEN, OVER, OperationRow

KEPT = 14 * 86400.0  # seconds that an ended operation is kept


def to_row(operation: Operation) -> OperationRow:
    """Return the row; under the open key while it is open, under the other key once it is over."""
    spec, status = operation.spec, operation.status
    item = (OPEN if operation.is_open else OVER) + spec.id
    row = OperationRow(spec.cluster, item, text=encode(spec).decode(), **_attributes(status))
    if not operation.is_open:
        row.expires_at = int(status.updated_at + KEPT)
    return row


def to_operation(raw: Raw | OperationRow) -> Operation:
    """Return the operation in a row. Raises RowUnreadable."""
    row = row_of(OperationRow, raw) if isinstance(raw, dict) else raw
    with readable(row.cluster, row.item):
        progress = {name: getattr(row, name) for name in OperationStatus.__struct_fields__}
        progress |= {"data": decode(row.data, dict[str, str]), "attempt": int(row.attempt)}
        return Operation(decode(row.text, OperationSpec), msgspec.convert(progress, OperationStatus))


def to_operations(rows: Iterable[Raw]) -> tuple[Operation, ...]:
    """Return several operations, the oldest first."""
    return tuple(sorted(map(to_operation, rows), key=lambda operation: (operation.spec.created_at, operation.spec.id)))


def status_actions(status: OperationStatus, *, leave: tuple[str, ...] = ()) -> list[Action]:
    """Return its progress as an update; leave: attributes that stay unchanged."""
    return [getattr(OperationRow, name).set(value) for name, value in _attributes(status).items() if name not in leave]


def _attributes(status: OperationStatus) -> dict[str, Any]:
    return msgspec.structs.asdict(status) | {"state": status.state.value, "data": encode(status.data).decode()}
