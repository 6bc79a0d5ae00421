"""Deletes an empty group that Outscaler has made, at the vendor. Nothing has to be drained: a group
that has machines again is left alone.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome
from chalicelib.operations.step_context import (
    OperationDefinition,
    StepContext,
    for_provider,
    from_provider,
)
from chalicelib.providers.kit.base import PoolMaker


def delete_group(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Look whether the group is still empty, and delete it; the provider says when to look
    again."""
    provider = context.provider()
    if not isinstance(provider, PoolMaker):
        return Failed("InvalidRequest", f"{provider.name} deletes no groups")
    outcome = from_provider(operation, provider.remove_group(for_provider(operation)))
    context.checkpoint("close:called")
    return outcome


REMOVE_GROUP = OperationDefinition(steps=(("delete", delete_group), ("poll", delete_group)))
