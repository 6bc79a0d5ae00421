"""Deletes instances that never registered as nodes (docs/reference/node-groups.md "Unregistered instances"). Nothing
has to be drained, and only what was requested from the vendor has to be rolled back.

An instance may have registered since it was planned. It is then kept, together with all other instances of the
operation, and the next pass decides which of them are still to be deleted. Nodes are looked up by the names under which
the plan found none: the name that the provider gave, and the last part of the handle, which is the instance's own name
at most vendors. A provider that can find an instance's node in another way checks again itself (`delete_nodes` in
providers/base.py).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.definition import OperationDefinition
from chalicelib.operations.error_policy import AGAIN
from chalicelib.operations.provider_call import OWN, for_provider, from_provider
from chalicelib.operations.step_context import StepContext
from chalicelib.operations.steps import scale_up
from chalicelib.providers.errors import ProviderError

_FAILURE = f"{OWN}failure"
_SPARED = "Conflict"


def delete_instances(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Delete the instances after one check whether a node has registered for any of them. A node of another instance
    under one of the names also stops the deletion, because an ambiguous name is not a safe basis for it."""
    del now
    for target in operation.spec.targets:
        for name in sorted({target.node, target.handle.rpartition("/")[2]} - {""}):
            if context.cluster.node(name) is not None:
                joined = f"instance {target.instance} has joined as node {name} meanwhile"
                return give_up(operation, Failed(_SPARED, joined))
    outcome = from_provider(operation, context.provider().delete_nodes(for_provider(operation)))
    context.checkpoint("discard:called")
    return give_up(operation, outcome) if isinstance(outcome, Failed) else outcome


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Poll the deletion."""
    outcome = scale_up.poll(operation, context, now)
    return give_up(operation, outcome) if isinstance(outcome, Failed) else outcome


def give_up(operation: Operation, failure: Failed) -> Outcome:
    """Fail the operation after rolling back what was requested from the vendor: a deletion mark that stays would cost
    an instance later."""
    if operation.status.step == "release":
        return failure
    return InProgress(0.0, "release", {**operation.status.data, _FAILURE: msgspec.json.encode(failure).decode()})


def release(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Roll back what was requested from the vendor; then the operation has failed, unless the vendor had started the
    deletion. If an instance was to be kept, the operation has failed in any case."""
    del now
    failure = _why(operation)
    plain = operation.with_status(data={}, step="")
    try:
        given_back = context.provider().cancel_delete(plain)
    except AGAIN:
        raise
    except ProviderError:
        return failure  # a permanent refusal: a retry cannot help
    return (
        failure if given_back or failure.error_class == _SPARED else Succeeded({"removed": len(operation.spec.targets)})
    )


def _why(operation: Operation) -> Failed:
    """Return the failure for which the operation was given up. A failure that cannot be decoded must not keep the
    operation from ending."""
    try:
        return msgspec.json.decode(operation.status.data.get(_FAILURE, ""), type=Failed)
    except (msgspec.MsgspecError, UnicodeError):
        return Failed("InvalidRequest", "why it was given up cannot be read any more")


DISCARD = OperationDefinition(
    steps=(("delete", delete_instances), ("poll", poll), ("release", release)),
    rollback=give_up,
    timed_steps=frozenset({"release"}),
    irreversible_steps=frozenset({"poll", "release"}),
)
