"""Decrease of a pool's target size: the vendor keeps no size, so this is only the check that nothing has to go."""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome, Succeeded
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.errors import InvalidRequest


def decrease_target(context: CherryContext, operation: Operation) -> Outcome:
    """A pool has no size apart from its machines: it is no larger than to_size, or it cannot be made so without
    deleting one (D18). Machines that never joined are discarded by name."""
    if not 0 <= operation.spec.to_size < operation.spec.from_size:
        raise InvalidRequest(
            f"{operation.spec.group}: from {operation.spec.from_size} to {operation.spec.to_size} "
            "does not decrease the size"
        )
    context.bounds(operation.spec.group)
    definition = context.definition(operation.spec.group)
    size = len(context.roll(definition).crew(definition))
    if size <= operation.spec.to_size:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})
    raise InvalidRequest(
        f"{operation.spec.group}: its size is the {size} servers it has, so for {operation.spec.to_size} one "
        "would have to be deleted"
    )
