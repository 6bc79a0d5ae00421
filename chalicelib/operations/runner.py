"""Runs an operation message: claim, one step at the provider or the cluster, record the outcome, possibly schedule the
next.

    message ─► claim ─┬─ claimed by another executor, or finished ──► nothing
                      ├─ not due ──► the message again, when it is due
                      └─ step ─► InProgress(after > 0) ─► a delayed message, recorded as waiting
                           ▲   └ InProgress(0) ─┐       └ Succeeded, Failed ─► recorded with the memory updates;
                           └────────────────────┘                            reported; a new plan requested

Every arrow is recorded before the next begins. Only the message for the next step is sent before its record: a function
that is killed between the two would otherwise leave an operation that waits and has no message. A function that is
killed at any other point leaves a claim that ends soon, and the step is repeated (operations/claims.py). No step waits;
short steps follow each other until BUDGET seconds are used.

A message that arrives too early is either a duplicate, whose original will arrive in time, or it was sent by a function
whose clock is ahead. To distinguish the two, a follow-up message names the attempt that sent it: as long as no other
attempt has begun since, it is the message that the operation is waiting for.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.dispatch.messages import Cause
from chalicelib.dispatch.mode_guard import permitted, refusal
from chalicelib.dispatch.senders import NotSent
from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationState
from chalicelib.model.outcome import ABANDONED, Failed, InProgress, Outcome, Succeeded
from chalicelib.model.policy import Policy
from chalicelib.net.time_limit import time_limit
from chalicelib.operations import claims
from chalicelib.operations.clients import OperationClients
from chalicelib.operations.memory_updates import NOT_A_PROVIDER_FAILURE, memory_updates
from chalicelib.operations.ordering import blocked_by_other_operation
from chalicelib.operations.recording import record_operation
from chalicelib.operations.registry import NOT_STARTED, give_up, run_step
from chalicelib.operations.steps.scale_up import NOT_NEEDED
from chalicelib.runtime import active_policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.wakeup import request_reconcile
from chalicelib.store.errors import NotMoved, OperationClaimed, OperationFinished, OperationNotDue, StaleWrite

BUDGET = 25.0
"""Seconds after which an invocation starts no further step; the rest of its 60 is for the current step."""
SOONEST = 1.0
"""Seconds after which the message for the next step arrives at the earliest."""
STEP = 25.0
"""Seconds that all requests of a step to a cluster and a vendor may take together, whatever answers how slowly. With
BUDGET it leaves 10 of the 60 to record the outcome."""
REPORTED = 5.0
"""Seconds for the requests that report an outcome which is recorded."""
OLDER_POLICIES = 5
"""Older versions of a policy that are tried if the active one cannot be read."""


@dataclass(frozen=True, slots=True)
class _Task:
    """The values common to all steps of one invocation. why_not: why the operation must be cancelled, if it must."""

    cluster: str
    policy: Policy | None
    why_not: str
    way: OperationClients | None


def handle(body: bytes | str, runtime: Runtime, seconds: float = claims.LONGEST) -> None:
    """Continue one operation. seconds: that this invocation may still last. Raises BadInput for a message that cannot
    be decoded, StoreError where the table fails, and NewerSchema where a newer release has written it; the queue then
    delivers the message again."""
    message = claims.decode(body)
    runtime.store.schema.check()
    executor = claims.Executor(runtime, seconds)
    begun, task = runtime.clock(), None
    operation = executor.begin(message)
    while operation is not None:
        runtime.checkpoint("act:claimed")
        task = task or _task(operation, runtime)
        try:
            part = runtime.tracing.part(operation.status.step or "begin", **_annotations(operation))
            with part, executor.working(operation), time_limit(STEP, runtime.clock):
                outcome = _step(operation, task, runtime)
            runtime.checkpoint("act:stepped")
            more = isinstance(outcome, InProgress) and outcome.after <= 0.0 and runtime.clock() - begun < BUDGET
            after = _after(operation, outcome, runtime.clock())
            if isinstance(outcome, InProgress) and not more:
                _come_back(after, runtime)
            after = _advance(operation, after, outcome, task, runtime)
        except (OperationClaimed, OperationNotDue, OperationFinished, StaleWrite) as error:
            logger.warning("overtaken", cluster=message.cluster, operation=message.operation, detail=str(error))
            return
        runtime.checkpoint("act:recorded")
        connect = task.way.cluster if task.way and not task.why_not else None
        with time_limit(REPORTED, runtime.clock):
            record_operation(operation, after, outcome, task.policy, connect, runtime)
        if not isinstance(outcome, InProgress):
            _plan_again(outcome, task, runtime)
        operation = executor.again(after) if more else None


def _annotations(operation: Operation) -> dict[str, str]:
    """Return what a trace is searched by: the operation's id, and what it is for."""
    spec = operation.spec
    return {"operation": spec.id, "cluster": spec.cluster, "group": spec.group, "kind": spec.kind.value}


def _task(operation: Operation, runtime: Runtime) -> _Task:
    """Return the policy in force, or the last one that can be read, and whether it permits changes. Raises NotMoved."""
    try:
        policy = active_policy.current(operation.spec.cluster, runtime)
        if policy is None and runtime.store.moving.waits_for_move(operation.spec.cluster):
            raise NotMoved(operation.spec.cluster)
        why_not = "" if policy else "the cluster's policy is gone"
    except BadInput as error:
        policy, why_not = None, f"the cluster's policy cannot be read: {error}".splitlines()[0]
    if policy is not None:
        why_not = refusal(policy, operation.spec.kind, operation.spec.group)
        return _Task(operation.spec.cluster, policy, why_not, OperationClients(operation, policy, runtime))
    old = _last_readable(operation.spec.cluster, runtime)
    return _Task(operation.spec.cluster, old, why_not, OperationClients(operation, old, runtime) if old else None)


def _last_readable(cluster: str, runtime: Runtime) -> Policy | None:
    """Return the newest policy version that this program understands: an operation started under it can be rolled back
    under it."""
    for stored in runtime.store.policies.history(cluster, OLDER_POLICIES):
        try:
            return active_policy.in_force(stored, runtime.clock(), runtime.deployment)
        except BadInput:
            continue
    return None


def _step(operation: Operation, task: _Task, runtime: Runtime) -> Outcome:
    if task.way is None:
        return Failed(ABANDONED, f"{task.why_not}; what it had marked, if anything, could not be rolled back")
    if task.why_not:
        return give_up(operation, task.way.context(), runtime.clock(), ABANDONED, task.why_not)
    if task.policy is not None and (later := blocked_by_other_operation(operation, task.policy.options, runtime)):
        return later
    return run_step(operation, task.way.context(), runtime.clock())


def _after(old_operation: Operation, outcome: Outcome, now: float) -> Operation:
    """Return the operation with the outcome of the step."""
    if isinstance(outcome, InProgress):
        due = now + max(0.0, outcome.after)
        return old_operation.with_status(
            state=OperationState.WAITING, step=outcome.step, data=outcome.data, due_at=due, sent_at=now
        )
    return _ended(old_operation, outcome)


def _advance(
    old_operation: Operation, new_operation: Operation, outcome: Outcome, task: _Task, runtime: Runtime
) -> Operation:
    """Record the outcome of the step, and its memory updates in the same transaction."""
    group, memory = None, None
    if not isinstance(outcome, InProgress) and task.policy:
        group, memory = memory_updates(old_operation, outcome, task.policy.options, runtime.clock())
    return runtime.store.operations.advance(
        old_operation, new_operation, old_operation.status.claimed_by, group, memory
    )


def _ended(old_operation: Operation, outcome: Succeeded | Failed) -> Operation:
    if isinstance(outcome, Succeeded):
        facts = ", ".join(f"{name} {value}" for name, value in outcome.facts.items())
        return old_operation.with_status(state=OperationState.SUCCEEDED, outcome=facts or "done")
    state = OperationState.ABANDONED if outcome.error_class == ABANDONED else OperationState.FAILED
    return old_operation.with_status(
        state=state, outcome=outcome.message, error_class=outcome.error_class, error_code=outcome.code
    )


def _come_back(new_operation: Operation, runtime: Runtime) -> None:
    """Send the message for the next step, after a second at the earliest: it must not arrive before the record."""
    try:
        claims.send(
            new_operation,
            claims.next_message(new_operation),
            max(SOONEST, new_operation.status.due_at - runtime.clock()),
            runtime,
        )
    except NotSent as error:  # the step is recorded nevertheless; the watch or the tick's sweeper sends the next one
        spec = new_operation.spec
        logger.error("next step not sent", cluster=spec.cluster, operation=spec.id, **failure(error))
    runtime.checkpoint("act:sent")


def _plan_again(outcome: Succeeded | Failed, task: _Task, runtime: Runtime) -> None:
    """Request a pass now instead of at the next scan, because the end of an operation changes what is possible. Several
    operations that end together cause one wake-up.

    No pass is requested after a failure that changes no memory: the same plan would fail the same way, in a loop as
    fast as the queues. An operation that never started is planned again, because its deadline is minutes after its
    start. After growth that no pod waits for any more, the next pass decides anew what is needed.
    """
    lasting = NOT_A_PROVIDER_FAILURE - {NOT_STARTED}
    if isinstance(outcome, Failed) and outcome.error_class in lasting and outcome.code != NOT_NEEDED:
        return
    if task.policy is None or not permitted(task.policy).plan:
        return
    if request_reconcile(task.policy, Cause.OPERATION, runtime):
        runtime.checkpoint("act:woken")
