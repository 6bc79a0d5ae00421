"""Operations for tests, from the fields of spec and status side by side."""

from __future__ import annotations

from typing import Any

from chalicelib.model.operation import Operation
from chalicelib.model.operation_document import OperationDocument, from_document


def new_operation(*values: Any, **fields: Any) -> Operation:
    """An operation; values: id, cluster, provider, group, kind, plan, created_at, from_size, to_size, targets …"""
    return from_document(OperationDocument(*values, **fields))
