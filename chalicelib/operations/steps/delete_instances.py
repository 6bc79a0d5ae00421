"""Remove machines that never became nodes (scale-down.md §11): there is nothing to drain, and nothing to roll back
but what the vendor was told.

A machine may have joined since it was planned. Then it is no longer what was meant, and it stays, with all the others
of the operation: the next pass knows which of them are still meant. Nodes are looked for by the names that the plan
knew none under: the one the provider gave, and the last part of the handle, which is the machine's own name at most
vendors. A provider that can find a machine's node by other means looks again itself (providers/base.py, remove).
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


def delete_instances(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Delete by instance, after one look whether a node has taken the place. A node under the name of another machine
    stops it too: names that mean two things are no ground to delete on."""
    del now
    for target in operation.spec.targets:
        for name in sorted({target.node, target.handle.rpartition("/")[2]} - {""}):
            if world.cluster.node(name) is not None:
                joined = f"instance {target.instance} has joined as node {name} meanwhile"
                return give_up(operation, Failed(_SPARED, joined))
    outcome = from_provider(operation, world.provider().remove(for_provider(operation)))
    world.checkpoint("discard:called")
    return give_up(operation, outcome) if isinstance(outcome, Failed) else outcome


def poll(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Where the deletion stands."""
    outcome = scale_up.poll(operation, world, now)
    return give_up(operation, outcome) if isinstance(outcome, Failed) else outcome


def give_up(operation: Operation, failure: Failed) -> Outcome:
    """What the vendor was told comes back first: a mark that stays would cost a machine its life later on."""
    if operation.status.step == "release":
        return failure
    return InProgress(0.0, "release", {**operation.status.data, _FAILURE: msgspec.json.encode(failure).decode()})


def release(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Take it back; then the discarding has failed, unless the vendor had taken it up already. Where a machine was to
    be spared it has failed in any case."""
    del now
    failure = _why(operation)
    plain = operation.with_status(data={}, step="")
    try:
        given_back = world.provider().release(plain)
    except AGAIN:
        raise
    except ProviderError:
        return failure  # it will not have it for good: there is nobody who could be told
    return (
        failure if given_back or failure.error_class == _SPARED else Succeeded({"removed": len(operation.spec.targets)})
    )


def _why(operation: Operation) -> Failed:
    """The failure that it was given up for. One that cannot be read must not keep the operation from its end."""
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
