"""The operations of repairs (plan/group_repair.py): deletes instances that never registered as
nodes, and decreases a target by instances that were never created (docs/reference/node-groups.md
"Unregistered instances"); and deletes empty groups that Outscaler has made. Nothing has to be
drained, and only what was requested from the vendor has to be rolled back.

An instance may have registered since its deletion was planned. It is then kept, together with all
other instances of the operation, and the next pass decides which of them are still to be deleted.
Nodes are looked up by the names under which the plan found none: the name that the provider gave,
and the last part of the handle, which is the instance's own name at most vendors. A provider that
can find an instance's node in another way checks again itself (`delete_nodes` in
providers/kit/base.py).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.step_context import (
    OWN,
    OperationDefinition,
    StepContext,
    for_provider,
    from_provider,
)
from chalicelib.operations.steps.scale_up import poll
from chalicelib.operations.waiting import RETRIED
from chalicelib.providers.kit.base import PoolMaker
from chalicelib.providers.kit.errors import ProviderError

_FAILURE = f"{OWN}failure"
_JOINED = "Conflict"


def decrease_target(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Set the lower target; it is absolute, so the call may be repeated. No machine is deleted: the
    provider refuses where one would be."""
    outcome = from_provider(operation, context.provider().decrease_target(for_provider(operation)))
    context.checkpoint("shrink:called")
    return outcome


def delete_instances(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Delete the instances after one check whether a node has registered for any of them. A node of
    another instance under one of the names also stops the deletion, because an ambiguous name is
    not a safe basis for it."""
    for target in operation.spec.targets:
        for name in sorted({target.node, target.handle.rpartition("/")[2]} - {""}):
            if context.cluster.node(name) is not None:
                joined = f"instance {target.instance} has joined as node {name} meanwhile"
                return give_up(operation, Failed(_JOINED, joined))
    outcome = from_provider(operation, context.provider().delete_nodes(for_provider(operation)))
    context.checkpoint("discard:called")
    return give_up(operation, outcome) if isinstance(outcome, Failed) else outcome


def poll_deletion(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Poll the deletion."""
    outcome = poll(operation, context, now)
    return give_up(operation, outcome) if isinstance(outcome, Failed) else outcome


def give_up(operation: Operation, failure: Failed) -> Outcome:
    """Fail the operation after rolling back what was requested from the vendor: a deletion mark
    that stays would cost an instance later."""
    if operation.status.step == "release":
        return failure
    return InProgress(
        0.0, "release", {**operation.status.data, _FAILURE: msgspec.json.encode(failure).decode()}
    )


def release(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Roll back what was requested from the vendor; then the operation has failed,
    unless the vendor had started the deletion. If an instance was to be kept, the
    operation has failed in any case."""
    try:
        failure = msgspec.json.decode(operation.status.data.get(_FAILURE, ""), type=Failed)
    except (msgspec.MsgspecError, UnicodeError):  # must not keep the operation from ending
        failure = Failed("InvalidRequest", "why it was given up cannot be read any more")
    try:
        cancelled = context.provider().cancel_delete(operation.with_status(data={}, step=""))
    except RETRIED:
        raise
    except ProviderError:
        return failure  # a permanent refusal: a retry cannot help
    if cancelled or failure.error_class == _JOINED:
        return failure
    return Succeeded({"removed": len(operation.spec.targets)})


def delete_group(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Look whether the group is still empty, and delete it; the provider says when to look
    again."""
    provider = context.provider()
    if not isinstance(provider, PoolMaker):
        return Failed("InvalidRequest", f"{provider.name} deletes no groups")
    outcome = from_provider(operation, provider.remove_group(for_provider(operation)))
    context.checkpoint("close:called")
    return outcome


DECREASE_TARGET = OperationDefinition(steps=(("lower", decrease_target), ("poll", poll)))
DELETE_INSTANCES = OperationDefinition(
    steps=(("delete", delete_instances), ("poll", poll_deletion), ("release", release)),
    rollback=give_up,
    timed_steps=frozenset({"release"}),
    irreversible_steps=frozenset({"poll", "release"}),
)
REMOVE_GROUP = OperationDefinition(steps=(("delete", delete_group), ("poll", delete_group)))
