"""When an operation is given up: the deadline it was planned with, or its kind's own length where it has none.

Both count one group of pods (plan/patience.py). A removal whose pods go in several groups gets the others' time on top,
so that the deadline only ever cuts off what is stuck.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import operation_timeout
from chalicelib.operations.steps.eviction_order import more_time


def deadline_of(operation: Operation, options: Options) -> float:
    """The instant after which nothing new is begun (epoch seconds)."""
    planned = operation.spec.deadline or operation.spec.created_at + operation_timeout(operation.spec.kind, options)
    return planned + more_time(options) if operation.spec.kind is OperationKind.DELETE_NODES else planned
