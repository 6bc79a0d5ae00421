"""Determines when an operation is given up: at the deadline it was planned with, or after the default duration of its
kind.

Both include the time for one eviction group (model/timeouts.py). A removal whose pods are evicted in several groups
gets the time of the further groups in addition, so that the deadline only stops operations that are stuck.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import operation_timeout
from chalicelib.operations.steps.eviction_order import more_time


def deadline_of(operation: Operation, options: Options) -> float:
    """Return the instant after which no new work is started (epoch seconds)."""
    planned = operation.spec.deadline or operation.spec.created_at + operation_timeout(operation.spec.kind, options)
    return planned + more_time(options) if operation.spec.kind is OperationKind.DELETE_NODES else planned
