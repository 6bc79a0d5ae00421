"""Operations for tests, from the fields of spec and status side by side."""

from __future__ import annotations

from typing import Any

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.operation_document import OperationDocument, from_document
from chalicelib.model.outcome import Outcome
from chalicelib.providers.kit.base import Provider

PROVIDER_METHODS = {
    OperationKind.SCALE_UP: "scale_up",
    OperationKind.DECREASE_TARGET: "decrease_target",
    OperationKind.DELETE_NODES: "delete_nodes",
    OperationKind.DELETE_INSTANCES: "delete_nodes",
    OperationKind.RESTART_NODE: "restart",
    OperationKind.REMOVE_GROUP: "remove_group",
}
"""The method of a provider that begins an operation of each kind."""


def ask(provider: Provider, operation: Operation) -> Outcome:
    """Makes the first call of an operation, or the next call of one in progress."""
    method = "poll" if operation.status.step else PROVIDER_METHODS[operation.spec.kind]
    outcome: Outcome = getattr(provider, method)(operation)
    return outcome


def new_operation(*values: Any, **fields: Any) -> Operation:
    """An operation; values: id, cluster, provider, group, kind, plan, created_at,
    from_size, to_size, targets …"""
    return from_document(OperationDocument(*values, **fields))
