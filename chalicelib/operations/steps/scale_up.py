"""Scales up a group: one request at the provider, which is then polled until the vendor has accepted it.

The provider checks the current size before it requests more (providers/base.py), so this step may be repeated after any
crash. It does not wait for the nodes to register; the scale-up request in memory tracks that
(docs/reference/node-groups.md "Scale-up requests").
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.operations.definition import OperationDefinition
from chalicelib.operations.provider_call import VENDOR_STEP, for_provider, from_provider
from chalicelib.operations.step_context import StepContext

ANNOUNCED = "announce"
"""Step of a provider's Pending that has sent no request to the vendor."""


def scale_up(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Request the new size."""
    del now
    outcome = from_provider(operation, context.provider().grow(for_provider(operation)))
    context.checkpoint("grow:called")
    return _announced(outcome)


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Poll the request."""
    del now
    outcome = from_provider(operation, context.provider().poll(for_provider(operation)))
    context.checkpoint("grow:polled")
    return _announced(outcome)


def _announced(outcome: Outcome) -> Outcome:
    """Return to step `request` if the request is only announced: a provider that must first record what it will request
    (ANNOUNCED) has requested nothing so far (docs/reference/providers.md "Announced requests"). The request follows
    later, and is omitted if the cluster is switched off in between."""
    if isinstance(outcome, InProgress) and outcome.data.get(VENDOR_STEP) == ANNOUNCED:
        return msgspec.structs.replace(outcome, step="request")
    return outcome


GROW = OperationDefinition(steps=(("request", scale_up), ("poll", poll)))
