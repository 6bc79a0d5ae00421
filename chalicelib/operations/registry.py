"""Maps each kind of operation to its definition and runs one step of it.

    (Operation, StepContext, now) -> Succeeded | InProgress(after, step, data) | Failed

A step may run twice, late, or after a crash of the first attempt, with the same result. Errors of a vendor or a cluster
are values here; any other error is a bug and is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from chalicelib.kube.errors import ClusterError
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.model.timestamps import format_time
from chalicelib.operations.deadline import deadline_of
from chalicelib.operations.definition import OperationDefinition
from chalicelib.operations.error_policy import outcome_of_error, reset_error_count
from chalicelib.operations.prior_effects import never_begun
from chalicelib.operations.step_context import StepContext
from chalicelib.operations.steps.decrease_target import SHRINK
from chalicelib.operations.steps.delete_instances import DISCARD
from chalicelib.operations.steps.remove_nodes import REMOVE
from chalicelib.operations.steps.scale_up import GROW
from chalicelib.providers.errors import ProviderError

TABLE: Mapping[OperationKind, OperationDefinition] = MappingProxyType(
    {
        OperationKind.SCALE_UP: GROW,
        OperationKind.DELETE_NODES: REMOVE,
        OperationKind.DECREASE_TARGET: SHRINK,
        OperationKind.DELETE_INSTANCES: DISCARD,
    }
)
DEADLINE_EXCEEDED = "DeadlineExceeded"
NOT_STARTED = "NotStarted"
"""Error class of an operation that started after its deadline: the delay is Outscaler's own."""


def run_step(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Run the operation's next step. InProgress.after 0.0: the next step need not wait."""
    recipe = TABLE[operation.spec.kind]
    name, step = recipe.step(operation.status.step)
    deadline = deadline_of(operation, context.options)
    if now >= deadline and never_begun(operation):
        text = f"not begun by {format_time(deadline)}, its deadline; nothing was asked of the provider"
        return Failed(NOT_STARTED, text)
    if now >= deadline and name not in recipe.timed_steps:
        last = operation.status.data.get(NOTE, "")
        text = f"not finished by {format_time(deadline)}, at step {name}" + (f"; last: {last}" if last else "")
        return recipe.rollback(operation, Failed(DEADLINE_EXCEEDED, text))
    try:
        outcome = step(reset_error_count(operation), context, now)
    except (ProviderError, ClusterError) as error:
        outcome = outcome_of_error(error, operation, name)
        if isinstance(outcome, Failed):
            return recipe.rollback(operation, outcome)
    return _noted(outcome)


def give_up(operation: Operation, context: StepContext, now: float, cls: str, why: str) -> Outcome:
    """Stop the operation for an external reason (policy deleted, mode changed) and roll back what can be rolled back. A
    request that the vendor has already received, and a rollback under way, are completed."""
    recipe = TABLE[operation.spec.kind]
    if operation.status.step in recipe.irreversible_steps:
        return run_step(operation, context, now)
    return recipe.rollback(operation, Failed(cls, why))


NOTE = "own.note"
"""Key in the operation's data: what the last step waited for, so that the error at the deadline can name the cause."""


def _noted(outcome: Outcome) -> Outcome:
    if not isinstance(outcome, InProgress) or not outcome.note:
        return outcome
    return msgspec.structs.replace(outcome, data={**outcome.data, NOTE: outcome.note})
