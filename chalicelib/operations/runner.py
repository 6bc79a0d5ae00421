"""Runs an operation message: claim, one step at the provider or the cluster, record the outcome,
possibly schedule the next.

    message ─► claim ─┬─ claimed by another executor, or finished ──► nothing
                      ├─ not due ──► the message again, when it is due
                      └─ step ─► InProgress(after > 0) ─► a delayed message, recorded as waiting
                           ▲   └ InProgress(0) ─┐       └ Succeeded, Failed ─► recorded
                                                        with the memory updates;
                           └────────────────────┘                            reported; a new plan
                                                                             requested

Every arrow is recorded before the next begins. Only the message for the next step is sent before
its record: a function that is killed between the two would otherwise leave an operation that waits
and has no message. A function that is killed at any other point leaves a claim that ends soon, and
the step is repeated (operations/executor.py). No step waits; short steps follow each other until
STEPS_WITHIN seconds are used.

A message that arrives too early is either a duplicate, whose original will arrive in time, or it
was sent by a function whose clock is ahead. To distinguish the two, a follow-up message names the
attempt that sent it: as long as no other attempt has begun since, it is the message that the
operation is waiting for.

A step may run twice, late, or after a crash of the first attempt, with the same result. Errors of a
vendor or a cluster are values here; any other error is a bug and is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from chalicelib.cluster.errors import ClusterError
from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.model.outcome import ABANDONED, NOT_FAILED, Failed, InProgress, Outcome, Succeeded
from chalicelib.model.timestamps import format_time
from chalicelib.net.time_limit import time_limit
from chalicelib.operations.clients import OperationClients
from chalicelib.operations.executor import LONGEST, Executor, decode, next_message, send
from chalicelib.operations.memory_updates import (
    NOT_A_PROVIDER_FAILURE,
    memory_updates,
    replacement_update,
)
from chalicelib.operations.ordering import blocked_by_other_operation, deadline_of, never_begun
from chalicelib.operations.recording import record_operation
from chalicelib.operations.sibling_removals import Siblings
from chalicelib.operations.step_context import NOT_STARTED, OWN, OperationDefinition, StepContext
from chalicelib.operations.steps.evacuation import INTERRUPTED_REMOVAL
from chalicelib.operations.steps.remove_nodes import DELETE_NODES
from chalicelib.operations.steps.repairs import DECREASE_TARGET, DELETE_INSTANCES, REMOVE_GROUP
from chalicelib.operations.steps.restart_node import RESTART_NODE
from chalicelib.operations.steps.scale_up import NOT_NEEDED, SCALE_UP
from chalicelib.operations.waiting import outcome_of_error, reset_error_count
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit.errors import ProviderError
from chalicelib.runtime.active_policy import in_force
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import Cause
from chalicelib.runtime.mode_guard import permitted, refusal
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotSent
from chalicelib.runtime.wakeup import request_reconcile
from chalicelib.store.errors import (
    NotMoved,
    OperationClaimed,
    OperationFinished,
    OperationNotDue,
    StaleWrite,
)

STEPS_WITHIN = 25.0
"""Seconds after which an invocation starts no further step; the rest of its 60
is for the current step."""
SOONEST = 1.0
"""Seconds after which the message for the next step arrives at the earliest."""
STEP = 25.0
"""Seconds that all requests of a step to a cluster and a vendor may take together, whatever answers
how slowly. With STEPS_WITHIN it leaves 10 of the 60 to record the outcome."""
REPORTED = 5.0
"""Seconds for the requests that report an outcome which is recorded."""
OLDER_POLICIES = 5
"""Older versions of a policy that are tried if the active one cannot be read."""
DEADLINE_EXCEEDED = "DeadlineExceeded"
_OVERTAKEN = (OperationClaimed, OperationNotDue, OperationFinished, StaleWrite)
"""Errors of a write after another executor has taken the operation over."""
NOTE = f"{OWN}note"
"""Key in the operation's data: what the last step waited for, so that the error at the
deadline can name the cause."""

DEFINITIONS: Mapping[OperationKind, OperationDefinition] = MappingProxyType(
    {
        OperationKind.SCALE_UP: SCALE_UP,
        OperationKind.DELETE_NODES: DELETE_NODES,
        OperationKind.DECREASE_TARGET: DECREASE_TARGET,
        OperationKind.DELETE_INSTANCES: DELETE_INSTANCES,
        OperationKind.RESTART_NODE: RESTART_NODE,
        OperationKind.REMOVE_GROUP: REMOVE_GROUP,
    }
)


def definition_of(operation: Operation) -> OperationDefinition:
    """Return the steps of an operation: those of its kind, and others where the
    vendor takes the node back."""
    return INTERRUPTED_REMOVAL if operation.spec.interrupted else DEFINITIONS[operation.spec.kind]


@dataclass(frozen=True, slots=True)
class _Authority:
    """What all steps of one invocation run under. policy: the one in force, or the last one that
    can be read, if any. why_not: why the operation must be cancelled, if it must. clients: None
    where no policy can be read."""

    policy: Policy | None
    why_not: str
    clients: OperationClients | None

    def context(self, siblings: Siblings | None = None) -> StepContext:
        """Return the dependencies of a step."""
        assert self.clients is not None, "a step needs a policy"
        return replace(self.clients.context(), siblings=siblings)


def handle(body: bytes | str, runtime: Runtime, seconds: float = LONGEST) -> None:
    """Continue one operation. seconds: that this invocation may still last. Raises BadInput for a
    message that cannot be decoded, StoreError where the table fails, and NewerSchema where a newer
    release has written it; the queue then delivers the message again."""
    message = decode(body)
    runtime.store.schema.check()
    executor = Executor(runtime, seconds)
    began, authority = runtime.clock(), None
    operation = executor.begin(message)
    while operation is not None:
        runtime.checkpoint("act:claimed")
        authority = authority or _authority(operation, runtime)
        spec, siblings = operation.spec, None
        searched = {
            "operation": spec.id,
            "cluster": spec.cluster,
            "group": spec.group,
            "kind": spec.kind.value,
        }
        try:
            part = runtime.tracing.part(operation.status.step or "begin", **searched)
            if (
                authority.policy is not None
                and spec.kind is OperationKind.DELETE_NODES
                and not spec.interrupted
            ):
                siblings = Siblings(operation, executor, authority.policy.options, runtime)
            with part, executor.working(operation), time_limit(STEP, runtime.clock):
                outcome = _instead_of_step(operation, authority, runtime) or run_step(
                    operation, authority.context(siblings), runtime.clock()
                )
            runtime.checkpoint("act:stepped")
        except _OVERTAKEN as error:
            _log_overtaken(operation, error)
            return
        for sibling, its_outcome in siblings.outcomes() if siblings is not None else ():
            _record(sibling, its_outcome, authority, runtime)
        more = (
            isinstance(outcome, InProgress)
            and outcome.after <= 0.0
            and runtime.clock() - began < STEPS_WITHIN
        )
        after = _record(operation, outcome, authority, runtime, more=more)
        operation = executor.claim(after) if more and after is not None else None


def _record(
    operation: Operation,
    outcome: Outcome,
    authority: _Authority,
    runtime: Runtime,
    *,
    more: bool = False,
) -> Operation | None:
    """Record and report the outcome of an operation's step; return the operation as stored, None
    where another executor has taken it over. more: its next step follows in this invocation, and
    needs no message. Raises StoreError."""
    after = _after(operation, outcome, runtime.clock())
    if isinstance(outcome, InProgress) and not more:
        _send_next(after, runtime)
    group, memory, replacement = None, None, None
    if not isinstance(outcome, InProgress):
        replacement = replacement_update(operation, outcome)
        if authority.policy:
            group, memory = memory_updates(
                operation, outcome, authority.policy.options, runtime.clock()
            )
    owner = operation.status.claimed_by
    try:
        after = runtime.store.operations.advance(
            operation, after, owner, group, memory, replacement
        )
    except _OVERTAKEN as error:
        _log_overtaken(operation, error)
        return None
    runtime.checkpoint("act:recorded")
    connect = authority.clients.cluster if authority.clients and not authority.why_not else None
    with time_limit(REPORTED, runtime.clock):
        record_operation(operation, after, outcome, authority.policy, connect, runtime)
    if not isinstance(outcome, InProgress):
        _plan_again(outcome, authority.policy, runtime)
    return after


def _log_overtaken(operation: Operation, error: Exception) -> None:
    logger.warning(
        "overtaken", cluster=operation.spec.cluster, operation=operation.spec.id, detail=str(error)
    )


def _authority(operation: Operation, runtime: Runtime) -> _Authority:
    """Return the policy in force, or the last one that can be read, and whether it permits
    changes. Raises NotMoved."""
    cluster = operation.spec.cluster
    try:
        policy = runtime.policy(cluster)
        if policy is None and runtime.store.moving.waits_for_move(cluster):
            raise NotMoved(cluster)
        why_not = "" if policy else "the cluster's policy is gone"
    except BadInput as error:
        policy, why_not = None, f"the cluster's policy cannot be read: {error}".splitlines()[0]
    if policy is not None:
        why_not = refusal(policy, operation.spec.kind, operation.spec.group)
    else:
        policy = _last_readable(cluster, runtime)
    return _Authority(
        policy, why_not, OperationClients(operation, policy, runtime) if policy else None
    )


def _last_readable(cluster: str, runtime: Runtime) -> Policy | None:
    """Return the newest policy version that this program understands: an operation started under it
    can be rolled back under it."""
    for stored in runtime.store.policies.history(cluster, OLDER_POLICIES):
        try:
            return in_force(stored, runtime.clock(), runtime.deployment)
        except BadInput:
            continue
    return None


def _instead_of_step(
    operation: Operation, authority: _Authority, runtime: Runtime
) -> Outcome | None:
    """Cancel an operation that is not permitted any more, or let another operation go first; None
    where the next step may run."""
    if authority.policy is None:
        return Failed(
            ABANDONED,
            f"{authority.why_not}; what it had marked, if anything, could not be rolled back",
        )
    if authority.why_not:
        return give_up(
            operation, authority.context(), runtime.clock(), ABANDONED, authority.why_not
        )
    return blocked_by_other_operation(operation, authority.policy.options, runtime)


def run_step(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Run the operation's next step. InProgress.after 0.0: the next step need not wait."""
    definition = definition_of(operation)
    name, step = definition.step(operation.status.step)
    deadline = deadline_of(operation, context.options)
    if now >= deadline and never_begun(operation):
        text = (
            f"not begun by {format_time(deadline)}, its deadline; nothing was asked of the provider"
        )
        return Failed(NOT_STARTED, text)
    if now >= deadline and name not in definition.timed_steps:
        note = operation.status.data.get(NOTE, "")
        text = f"not finished by {format_time(deadline)}, at step {name}" + (
            f"; last: {note}" if note else ""
        )
        return definition.rollback(operation, Failed(DEADLINE_EXCEEDED, text))
    try:
        outcome = step(reset_error_count(operation), context, now)
    except (ProviderError, ClusterError) as error:
        outcome = outcome_of_error(error, operation, name)
        if isinstance(outcome, Failed):
            return definition.rollback(operation, outcome)
    if isinstance(outcome, InProgress) and outcome.note:
        return msgspec.structs.replace(outcome, data={**outcome.data, NOTE: outcome.note})
    return outcome


def give_up(
    operation: Operation, context: StepContext, now: float, error_class: str, why: str
) -> Outcome:
    """Stop the operation for an external reason (policy deleted, mode changed) and roll back
    what can be rolled back. A request that the vendor has already received, and a rollback
    under way, are completed."""
    definition = definition_of(operation)
    if operation.status.step in definition.irreversible_steps:
        return run_step(operation, context, now)
    return definition.rollback(operation, Failed(error_class, why))


def _after(old_operation: Operation, outcome: Outcome, now: float) -> Operation:
    """Return the operation with the outcome of the step."""
    match outcome:
        case InProgress():
            due = now + max(0.0, outcome.after)
            return old_operation.with_status(
                state=OperationState.WAITING,
                step=outcome.step,
                data=outcome.data,
                due_at=due,
                sent_at=now,
            )
        case Succeeded():
            text = ", ".join(f"{name} {value}" for name, value in outcome.facts.items())
            return old_operation.with_status(state=OperationState.SUCCEEDED, outcome=text or "done")
    is_failure = outcome.error_class not in NOT_FAILED
    state = OperationState.FAILED if is_failure else OperationState.ABANDONED
    return old_operation.with_status(
        state=state,
        outcome=outcome.message,
        error_class=outcome.error_class,
        error_code=outcome.code,
    )


def _send_next(new_operation: Operation, runtime: Runtime) -> None:
    """Send the message for the next step, after a second at the earliest: it must not
    arrive before the record."""
    delay = max(SOONEST, new_operation.status.due_at - runtime.clock())
    try:
        send(new_operation, next_message(new_operation), delay, runtime)
    except NotSent as error:
        # the step is recorded nevertheless; the watch or the tick's sweeper sends the next one
        spec = new_operation.spec
        logger.error(
            "next step not sent", cluster=spec.cluster, operation=spec.id, **failure(error)
        )
    runtime.checkpoint("act:sent")


def _plan_again(outcome: Succeeded | Failed, policy: Policy | None, runtime: Runtime) -> None:
    """Request a pass now instead of at the next scan, because the end of an operation changes what
    is possible. Several operations that end together cause one wake-up.

    No pass is requested after a failure that changes no memory: the same plan would fail the same
    way, in a loop as fast as the queues. An operation that never started is planned again, because
    its deadline is minutes after its start. After growth that no pod waits for any more, the next
    pass decides anew what is needed.
    """
    lasting = NOT_A_PROVIDER_FAILURE - {NOT_STARTED}
    if (
        isinstance(outcome, Failed)
        and outcome.error_class in lasting
        and outcome.code != NOT_NEEDED
    ):
        return
    if policy is None or not permitted(policy).plan:
        return
    if request_reconcile(policy, Cause.OPERATION, runtime):
        runtime.checkpoint("act:woken")
