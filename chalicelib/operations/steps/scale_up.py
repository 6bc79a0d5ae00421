"""Scales up a group: one request at the provider, which is then polled until
the vendor has accepted it.

The provider checks the current size before it requests more (providers/kit/base.py), so this step
may be repeated after any crash. A request that comes late, or in place of an executor that died,
first asks whether the pods that it was planned for still wait; a request that the vendor has
received is followed in any case. The step does not wait for the nodes to register; the scale-up
request in memory tracks that (docs/reference/node-groups.md "Scale-up requests").
"""

from __future__ import annotations

import msgspec

from chalicelib.cluster.errors import Forbidden
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import BROKEN, Operation
from chalicelib.model.outcome import ABANDONED, Failed, InProgress, Outcome
from chalicelib.operations.step_context import (
    VENDOR_STEP,
    OperationDefinition,
    StepContext,
    for_provider,
    from_provider,
)
from chalicelib.operations.steps.recheck import FINISHED

ANNOUNCED = "announce"
"""Step of a provider's InProgress that has sent no request to the vendor."""
LATE = 30.0
"""Seconds after its plan from which a request asks again whether pods wait for it."""
NOT_NEEDED = "NotNeeded"
"""Code of the Failed of a scale-up that no pod waits for any more."""


def scale_up(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Request the new size, unless nothing waits for it any more."""
    reason = _not_needed(operation, context, now)
    if reason and not context.provider().has_requested(for_provider(operation)):
        return Failed(ABANDONED, reason, NOT_NEEDED)
    outcome = from_provider(operation, context.provider().scale_up(for_provider(operation)))
    context.checkpoint("grow:called")
    return _repeat_if_announced(outcome)


def _not_needed(operation: Operation, context: StepContext, now: float) -> str:
    """Return why the growth is not needed any more; "" where it is, and where that need not be
    asked. Raises ClusterError.

    Growth without pods is for rules, headroom or a minimum, which only a pass can judge. That is
    left to the next pass after an executor died. If it is only late, it is requested: it would be
    as late after every further pass. Growth of a replacement is requested in any case: its row is
    saved, and a pass judges it again before any node goes."""
    pods, broken = operation.spec.pods, BROKEN in operation.status.data
    if operation.spec.replacement or not (
        broken or (pods and now - operation.spec.created_at > LATE)
    ):
        return ""
    if not pods:
        return (
            "its executor died before the request; the next pass decides whether it is still needed"
        )
    try:
        if any(_is_waiting(pod, context) for pod in pods):
            return ""
    except Forbidden:
        return ""  # it cannot be known, as in a pass without this right
    return (
        f"none of the pods that it was planned for waits any more ({len(pods)} asked about, first "
        f"{pods[0]})"
    )


def _is_waiting(key: str, context: StepContext) -> bool:
    """Return whether a pod (namespace/name) still has no node, or one that is being removed."""
    pod = context.cluster.pod(*key.split("/", 1))
    if pod is None or pod.deleted or pod.phase in FINISHED:
        return False
    if not pod.node:
        return True
    node = context.cluster.node(pod.node)
    return node is not None and node.taint(TO_BE_DELETED) is not None


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Poll the request."""
    outcome = from_provider(operation, context.provider().poll(for_provider(operation)))
    context.checkpoint("grow:polled")
    return _repeat_if_announced(outcome)


def _repeat_if_announced(outcome: Outcome) -> Outcome:
    """Return to step `request` if the request is only announced: a provider that must first record
    what it will request (ANNOUNCED) has requested nothing so far (docs/architecture.md
    "Providers"). The request follows later, and is omitted if the cluster is switched off in
    between."""
    if isinstance(outcome, InProgress) and outcome.data.get(VENDOR_STEP) == ANNOUNCED:
        return msgspec.structs.replace(outcome, step="request")
    return outcome


SCALE_UP = OperationDefinition(steps=(("request", scale_up), ("poll", poll)))
