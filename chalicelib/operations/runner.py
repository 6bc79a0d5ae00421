"""Runs an operation message: claim, one step at the provider or the cluster, record the outcome, possibly schedule the
next.

    message ─► claim ─┬─ OperationClaimed, OperationFinished ──► nothing: another executor has it, or it is finished
                      ├─ OperationNotDue ──► the message again, when it is due
                      └─ step ─► InProgress(after > 0) ─► recorded as waiting, a delayed message
                           ▲   └ InProgress(0) ─┐       └ Succeeded, Failed ─► recorded with the memory updates;
                           └────────────────────┘                            reported; a new plan requested

Every arrow is recorded before the next begins. A function that is killed at any point leaves an operation whose claim
expires, and whose step is repeated. No step waits; short steps follow each other until BUDGET seconds are used.

A message that arrives too early is either a duplicate, whose original will arrive in time, or it was sent by a function
whose clock is ahead. To distinguish the two, a follow-up message names the attempt that sent it: as long as no other
attempt has begun since, it is the message that the operation is waiting for.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from chalicelib.dispatch.messages import ActMessage, Cause, act_queue, decode_act, encode
from chalicelib.dispatch.mode_guard import permitted, refusal
from chalicelib.dispatch.sqs import MAX_DELAY, whole_delay
from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationState
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.model.policy import Policy
from chalicelib.net.time_limit import time_limit
from chalicelib.operations.clients import OperationClients
from chalicelib.operations.memory_updates import ABANDONED, NOT_A_PROVIDER_FAILURE, memory_updates
from chalicelib.operations.ordering import blocked_by_other_operation
from chalicelib.operations.recording import record_operation
from chalicelib.operations.registry import NOT_STARTED, give_up, run_step
from chalicelib.runtime import active_policy
from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.wakeup import request_reconcile
from chalicelib.store.errors import NotMoved, OperationClaimed, OperationFinished, OperationNotDue, StaleWrite

CLAIM = 90.0
"""Seconds an executor has before another may take over: longer than an invocation can last (60, .chalice/config)."""
BUDGET = 25.0
"""Seconds after which an invocation starts no further step; the rest of its 60 is for the current step."""
STEP = 25.0
"""Seconds that all requests of a step to a cluster and a vendor may take together, whatever answers how slowly. With
BUDGET it leaves 10 of the 60 to record the outcome."""
REPORTED = 5.0
"""Seconds for the requests that report an outcome which is recorded."""
OLDER_POLICIES = 5
"""Older versions of a policy that are tried if the active one cannot be read."""
EARLY = 5.0
"""Seconds by which a message may arrive before its step is due; an earlier message is a duplicate."""


class _FollowUp(ActMessage, frozen=True, omit_defaults=True):
    """The message for an operation's next step. attempt: the one that sent it; 0: sent by other code."""

    attempt: int = 0


@dataclass(frozen=True, slots=True)
class _Task:
    """The values common to all steps of one invocation. why_not: why the operation must be cancelled, if it must."""

    cluster: str
    policy: Policy | None
    why_not: str
    way: OperationClients | None


def handle(body: bytes | str, rt: Runtime) -> None:
    """Continue one operation. Raises BadInput for a message that cannot be decoded, StoreError where the table fails,
    and NewerSchema where a newer release has written it; the queue then delivers the message again."""
    message = _decode(body)
    rt.store.schema.check()
    begun, task = rt.clock(), None
    while True:
        operation = _claim(message, rt)
        if operation is None:
            return
        rt.checkpoint("act:claimed")
        task = task or _task(operation, rt)
        with rt.tracing.part(operation.status.step or "begin", **_annotations(operation)), time_limit(STEP, rt.clock):
            outcome = _step(operation, task, rt)
        rt.checkpoint("act:stepped")
        more = isinstance(outcome, InProgress) and outcome.after <= 0.0 and rt.clock() - begun < BUDGET
        try:
            after = _advance(operation, outcome, task, rt)
        except (OperationClaimed, OperationFinished, StaleWrite) as error:
            logger.warning("overtaken", cluster=message.cluster, operation=message.operation, detail=str(error))
            return
        rt.checkpoint("act:recorded")
        if isinstance(outcome, InProgress) and not more:
            _come_back(after, rt)
        connect = task.way.cluster if task.way and not task.why_not else None
        with time_limit(REPORTED, rt.clock):
            record_operation(operation, after, outcome, task.policy, connect, rt)
        if not isinstance(outcome, InProgress):
            _plan_again(outcome, task, rt)
        if not more:
            return


def _annotations(operation: Operation) -> dict[str, str]:
    """Return what a trace is searched by: the operation's id, and what it is for."""
    spec = operation.spec
    return {"operation": spec.id, "cluster": spec.cluster, "group": spec.group, "kind": spec.kind.value}


def _decode(body: bytes | str) -> _FollowUp:
    message = decode_act(body)
    try:
        return msgspec.json.decode(body, type=_FollowUp)
    except msgspec.ValidationError:  # another sender's field `attempt`
        return _FollowUp(message.cluster, message.operation)


def _claim(message: _FollowUp, rt: Runtime) -> Operation | None:
    """Claim the operation, or find that there is nothing to do now."""
    try:
        return rt.store.operations.claim(message.cluster, message.operation, rt.owner(), CLAIM)
    except (OperationClaimed, OperationFinished) as error:
        logger.info("nothing to do", cluster=message.cluster, operation=message.operation, detail=str(error))
    except OperationNotDue as early:
        _too_early(message, early.due_at, rt)
    return None


def _too_early(message: _FollowUp, due_at: float, rt: Runtime) -> None:
    """Send the message on, unless the message for the next step is known to be under way. This one is then a duplicate,
    and re-sending duplicates would multiply them."""
    operation, now = rt.store.operations.get(message.cluster, message.operation), rt.clock()
    if operation is None or not operation.is_open:
        return
    arrival = operation.status.sent_at + min(MAX_DELAY, max(0.0, due_at - operation.status.sent_at))
    awaited = message.attempt == operation.status.attempt
    not_a_duplicate = awaited if message.attempt else not operation.status.sent_at or now >= arrival - EARLY
    if not_a_duplicate:
        _send(operation, due_at - now, rt)


def _task(operation: Operation, rt: Runtime) -> _Task:
    """Return the policy in force, or the last one that can be read, and whether it permits changes. Raises NotMoved."""
    try:
        policy = active_policy.current(operation.spec.cluster, rt)
        if policy is None and rt.store.moving.waits_for_move(operation.spec.cluster):
            raise NotMoved(operation.spec.cluster)
        why_not = "" if policy else "the cluster's policy is gone"
    except BadInput as error:
        policy, why_not = None, f"the cluster's policy cannot be read: {error}".splitlines()[0]
    if policy is not None:
        why_not = refusal(policy, operation.spec.kind, operation.spec.group)
        return _Task(operation.spec.cluster, policy, why_not, OperationClients(operation, policy, rt))
    old = _last_readable(operation.spec.cluster, rt)
    return _Task(operation.spec.cluster, old, why_not, OperationClients(operation, old, rt) if old else None)


def _last_readable(cluster: str, rt: Runtime) -> Policy | None:
    """Return the newest policy version that this program understands: an operation started under it can be rolled back
    under it."""
    for stored in rt.store.policies.history(cluster, OLDER_POLICIES):
        try:
            return active_policy.in_force(stored, rt.clock(), rt.deployment)
        except BadInput:
            continue
    return None


def _step(operation: Operation, task: _Task, rt: Runtime) -> Outcome:
    if task.way is None:
        return Failed(ABANDONED, f"{task.why_not}; what it had marked, if anything, could not be rolled back")
    if task.why_not:
        return give_up(operation, task.way.context(), rt.clock(), ABANDONED, task.why_not)
    if task.policy is not None and (later := blocked_by_other_operation(operation, task.policy.options, rt)):
        return later
    return run_step(operation, task.way.context(), rt.clock())


def _advance(before: Operation, outcome: Outcome, task: _Task, rt: Runtime) -> Operation:
    """Record the outcome of the step, and its memory updates in the same transaction."""
    now = rt.clock()
    if isinstance(outcome, InProgress):
        due = now + max(0.0, outcome.after)
        after = before.with_status(
            state=OperationState.WAITING, step=outcome.step, data=outcome.data, due_at=due, sent_at=now
        )
        return rt.store.operations.advance(before, after, before.status.claimed_by)
    after = _ended(before, outcome)
    group, memory = memory_updates(before, outcome, task.policy.options, now) if task.policy else (None, None)
    return rt.store.operations.advance(before, after, before.status.claimed_by, group, memory)


def _ended(before: Operation, outcome: Succeeded | Failed) -> Operation:
    if isinstance(outcome, Succeeded):
        facts = ", ".join(f"{name} {value}" for name, value in outcome.facts.items())
        return before.with_status(state=OperationState.SUCCEEDED, outcome=facts or "done")
    state = OperationState.ABANDONED if outcome.error_class == ABANDONED else OperationState.FAILED
    return before.with_status(
        state=state, outcome=outcome.message, error_class=outcome.error_class, error_code=outcome.code
    )


def _come_back(operation: Operation, rt: Runtime) -> None:
    """Send the message for the next step. It is recorded as sent already; if it gets lost, the tick's sweeper sends
    it."""
    _send(operation, operation.status.due_at - rt.clock(), rt)
    rt.checkpoint("act:sent")


def _send(operation: Operation, delay: float, rt: Runtime) -> None:
    body = encode(_FollowUp(operation.spec.cluster, operation.spec.id, operation.status.attempt))
    rt.sender.send(act_queue(operation.spec.provider), body, whole_delay(delay))


def _plan_again(outcome: Succeeded | Failed, task: _Task, rt: Runtime) -> None:
    """Request a pass now instead of at the next scan, because the end of an operation changes what is possible. Several
    operations that end together cause one wake-up.

    No pass is requested after a failure that changes no memory: the same plan would fail the same way, in a loop as
    fast as the queues. An operation that never started is planned again, because its deadline is minutes after its
    start.
    """
    if isinstance(outcome, Failed) and outcome.error_class in NOT_A_PROVIDER_FAILURE - {NOT_STARTED}:
        return
    if task.policy is None or not permitted(task.policy).plan:
        return
    if request_reconcile(task.policy, Cause.OPERATION, rt):
        rt.checkpoint("act:woken")
