"""Decreases a group's target by instances that were never created. No machine is deleted: the provider refuses where
one would be."""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.operations.definition import OperationDefinition
from chalicelib.operations.provider_call import for_provider, from_provider
from chalicelib.operations.step_context import StepContext
from chalicelib.operations.steps.scale_up import poll


def decrease_target(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Set the lower target; it is absolute, so the call may be repeated."""
    del now
    outcome = from_provider(operation, context.provider().decrease_target(for_provider(operation)))
    context.checkpoint("shrink:called")
    return outcome


SHRINK = OperationDefinition(steps=(("lower", decrease_target), ("poll", poll)))
