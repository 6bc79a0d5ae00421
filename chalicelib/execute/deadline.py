"""When an operation is given up: the deadline it was planned with, or its kind's own length where it has none."""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.policy import Options
from chalicelib.plan.patience import length


def deadline_of(operation: Operation, options: Options) -> float:
    """The instant after which nothing new is begun (epoch seconds)."""
    return operation.deadline or operation.created_at + length(operation.kind, options)
