"""Grow a group: one request at the provider, then polled until the vendor has taken it.

The provider asks before it buys (providers/base.py, grow), so this step may be repeated after any crash. Whether the
machines join is not waited for here: that is the scale-up request's business (state.md §5).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.operations.definition import OperationDefinition
from chalicelib.operations.provider_call import VENDOR_STEP, for_provider, from_provider
from chalicelib.operations.step_context import StepContext

ANNOUNCED = "announce"
"""The step of a provider's Pending that has asked the vendor for nothing."""


def scale_up(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Ask for the new size."""
    del now
    outcome = from_provider(operation, world.provider().grow(for_provider(operation)))
    world.checkpoint("grow:called")
    return _announced(outcome)


def poll(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Where the request stands."""
    del now
    outcome = from_provider(operation, world.provider().poll(for_provider(operation)))
    world.checkpoint("grow:polled")
    return _announced(outcome)


def _announced(outcome: Outcome) -> Outcome:
    """A provider that must write down first what it is about to ask for (ANNOUNCED) has asked for nothing so far: the
    request is still to come, and does not come if the cluster is switched off in between."""
    if isinstance(outcome, InProgress) and outcome.data.get(VENDOR_STEP) == ANNOUNCED:
        return msgspec.structs.replace(outcome, step="request")
    return outcome


GROW = OperationDefinition(steps=(("request", scale_up), ("poll", poll)))
