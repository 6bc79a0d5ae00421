"""Removes nodes in persisted steps that survive the loss of any process:

    look ► taint ► (wait) ► recheck ► evict ◄► gone ► delay ► delete ► poll ► confirm
                 any of them ► undo: untaint, uncordon; the other nodes go on, or the operation has failed

Everything before `delete` can be rolled back, and is: for one node when that node cannot be removed, for all nodes when
the deadline is reached or the provider refuses. Machines are deleted by instance, never by lowering a size, where the
vendor would choose the machine.
"""

from __future__ import annotations

import msgspec

from chalicelib.kube.errors import ClusterError
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.model.timeouts import CONFIRM_TIME
from chalicelib.operations.definition import OperationDefinition
from chalicelib.operations.provider_call import for_provider, from_provider
from chalicelib.operations.removal_progress import KEY, Progress, next_step, read, stay_in_step
from chalicelib.operations.step_context import StepContext
from chalicelib.operations.steps.delay_deletion import LOOK_HOLDS, delay
from chalicelib.operations.steps.drain import evict, gone
from chalicelib.operations.steps.recheck import last_look, recheck
from chalicelib.operations.steps.taint import finished, give_up, look, taint, undo

CONFIRM_POLL = 10.0
LONGEST_POLL = 60.0


def delete_nodes(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Delete the instances of the nodes still to be removed; the provider counts one that is gone or being deleted as
    removed. If the final recheck is old (a message was lost, a function died), the nodes are checked again first.
    Immediately before its own call, the provider verifies that each machine still belongs to that node and to no
    other."""
    progress = read(operation)
    if now - progress.looked > LOOK_HOLDS:
        progress = last_look(operation, progress, context, now)
        if progress.to_undo:
            return next_step(operation, progress, "delete")
    narrowed = _narrowed(operation)
    outcome = from_provider(narrowed, context.provider().delete_nodes(for_provider(narrowed)))
    context.checkpoint("delete:called")
    return _after_vendor(operation, outcome, now)


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Poll the deletion at the vendor."""
    narrowed = _narrowed(operation)
    outcome = from_provider(narrowed, context.provider().poll(for_provider(narrowed)))
    context.checkpoint("delete:polled")
    return _after_vendor(operation, outcome, now)


def _narrowed(operation: Operation) -> Operation:
    """Return the operation for the provider: without the nodes that were given up, which were recorded before this
    step, and with the uids that the Node objects had when they were planned."""
    live = frozenset(read(operation).live)
    targets = tuple(
        msgspec.structs.replace(target, uid=operation.uid_of(target))
        for target in operation.spec.targets
        if target.node in live
    )
    spared = len(operation.spec.targets) - len(targets)
    to_size = operation.spec.to_size + spared if operation.spec.from_size else operation.spec.to_size
    return operation.with_spec(targets=targets, to_size=to_size)


def _after_vendor(operation: Operation, outcome: Outcome, now: float) -> Outcome:
    """Return the pause before the next poll: the vendor's own suggestion at first, and longer the longer the deletion
    takes."""
    progress = read(operation)
    match outcome:
        case InProgress():
            pause = min(max(outcome.after, progress.wait.elapsed(now) / 2), max(outcome.after, LONGEST_POLL))
            waited = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
            data = {**outcome.data, KEY: msgspec.json.encode(waited).decode()}
            return msgspec.structs.replace(outcome, after=pause, data=data)
        case Failed():
            return give_up(operation, outcome)
    return next_step(operation, progress, "confirm")


def confirm(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Wait for the nodes to disappear. If a node still exists after CONFIRM_TIME, because its Node object outlives the
    machine or because the vendor did not delete it, the removal ends nevertheless and the outcome says so. Its taint
    is then stale, and the next pass removes it (plan/scale_down/taint_updates.py)."""
    progress = read(operation)
    there = _still_there(operation, progress, context)
    if there and progress.wait.elapsed(now) < CONFIRM_TIME:
        pause = progress.wait.delay(now, first=CONFIRM_POLL, most=LONGEST_POLL, limit=CONFIRM_TIME)
        waited = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
        return stay_in_step(operation, waited, "confirm", pause)
    return finished(progress, {"unconfirmed": ",".join(there)} if there else {})


def _still_there(operation: Operation, progress: Progress, context: StepContext) -> list[str]:
    """Return the nodes whose object is still that of the removed machine. An API that does not respond confirms
    nothing."""
    instances = {target.node: target.instance for target in operation.spec.targets}
    there = []
    for name in progress.live:
        try:
            node = context.cluster.node(name)
        except ClusterError:
            there.append(name)
            continue
        if node is not None and node.provider_id in ("", instances[name]):
            there.append(name)
    return there


REMOVE = OperationDefinition(
    steps=(
        ("look", look),
        ("taint", taint),
        ("recheck", recheck),
        ("evict", evict),
        ("gone", gone),
        ("delay", delay),
        ("delete", delete_nodes),
        ("poll", poll),
        ("confirm", confirm),
        ("undo", undo),
    ),
    rollback=give_up,
    timed_steps=frozenset({"confirm", "undo"}),
    irreversible_steps=frozenset({"poll", "confirm", "undo"}),
)
