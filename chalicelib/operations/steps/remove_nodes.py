"""Removes nodes in persisted steps that survive the loss of any process:

    look ► taint ► (wait) ► recheck ► evict ◄► gone ► delay ► delete ► poll ► confirm
                 any of them ► undo: untaint, uncordon; the other nodes go on, or
                 the operation has failed

Everything before `delete` can be rolled back, and is: for one node when that node cannot be
removed, for all nodes when the deadline is reached or the provider refuses. Machines are deleted by
instance, never by lowering a size, where the vendor would choose the machine.

The hard taint's value is the Unix second, as upstream writes it (docs/reference/drain.md "Taints"),
so that both programs and people can see its age. The same write notes the operation and whether it
cordoned the node, so that the taint can be removed with only the operation's id, even if the
operation's row is lost. `look` records, before any change, which changes will be Outscaler's own.

An operation has one node, so that a drain that gets stuck blocks no other (plan/plan_builder.py).
Where one has several, a taint that cannot be written rolls the whole batch back, as upstream does
with all nodes of a loop.

Where a vendor takes one change of a pool at a time, `delete` and `poll` of several operations meet
(operations/sibling_removals.py): one request deletes the nodes of all that are ready.

A node that its vendor takes back is removed by other steps (steps/evacuation.py), and a
restart (steps/restart_node.py) shares the first ones of these.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.removal_progress import KEY, Progress, next_step, read, stay_in_step
from chalicelib.operations.step_context import (
    NodeState,
    OperationDefinition,
    SiblingRemovals,
    StepContext,
    for_provider,
    from_provider,
)
from chalicelib.operations.steps.drain import evict, wait_for_pods
from chalicelib.operations.steps.recheck import (
    CHECK_VALID_FOR,
    another_machine,
    delay,
    final_check,
    recheck,
)
from chalicelib.operations.waiting import (
    BUSY,
    RETRIED,
    PollBackoff,
    error_class_of,
    reset_error_count,
    retry_pause,
)
from chalicelib.policy.timeouts import CONFIRM_TIME
from chalicelib.providers.kit.base import OneChangeAtATime
from chalicelib.providers.kit.errors import Conflict, ProviderError

FOREIGN_TAINT_TIME = 300.0
"""A younger taint marks a deletion in progress by another program."""
UNDO_TIME = 600.0
CONFIRM_POLL = 10.0
LONGEST_POLL = 60.0
GATHER = 10.0
"""Seconds until a removal whose turn it is looks again for others that will share its request."""


def look(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Read the nodes, refuse those that differ from the plan, and record which changes
    will have to be rolled back."""
    progress = read(operation)
    for target in operation.spec.targets:
        if target.node in progress.nodes:
            continue
        node = context.cluster.node(target.node)
        if node is None:
            progress = progress.give_up(
                target.node, "NotFound", "the node no longer exists", untouched=True
            )
        elif problem := _not_as_planned(operation, target, node, now):
            progress = progress.give_up(target.node, "Conflict", problem, untouched=True)
        else:
            cordoned = context.options.cordon_node_before_terminating and not node.unschedulable
            unready = operation.spec.reason == DisruptionReason.REPAIR.value and not node.ready
            progress = progress.change(target.node, cordoned=cordoned, unready=unready)
    return next_step(operation, progress, "taint")


def _not_as_planned(
    operation: Operation, target: RemovalTarget, node: NodeState, now: float
) -> str:
    """Return why this node is not the planned one, or may no longer be removed; empty if it may."""
    if why := another_machine(operation, target, node):
        return why
    if node.scale_down_disabled:
        return "annotation scale-down-disabled was set meanwhile"
    return foreign_removal(operation, node, now)


def foreign_removal(operation: Operation, node: NodeState, now: float) -> str:
    """Return why the node is left to another program that has begun to
    delete it; "" where none has."""
    taint = node.taint(TO_BE_DELETED)
    if taint is None or node.operation == operation.spec.id:
        return ""
    age = (
        now - int(taint.value)
        if taint.value.isascii() and taint.value.isdecimal()
        else FOREIGN_TAINT_TIME
    )
    if age >= FOREIGN_TAINT_TIME:
        return ""
    return "somebody else is deleting it: it carries a fresh ToBeDeletedByClusterAutoscaler taint"


def taint(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Taint and cordon every node, then give the scheduler time to notice. An existing taint is
    left unchanged, so a repeated step changes nothing."""
    progress = read(operation)
    mark = Taint(TO_BE_DELETED, "NoSchedule", str(int(now)))
    for name in progress.live:
        try:
            context.cluster.taint(
                name, mark, operation=operation.spec.id, cordon=progress.nodes[name].cordoned
            )
        except NotFound:
            progress = progress.give_up(
                name, "NotFound", "the node no longer exists", untouched=True
            )
        context.checkpoint("taint:called")
    return next_step(operation, progress, "recheck", context.options.node_delete_delay_after_taint)


def delete_nodes(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Delete the instances of the nodes still to be removed; the provider counts one that is gone
    or being deleted as removed. If the final check is old (a message was lost, a function died),
    the nodes are checked again first, and one whose kubelet did not answer is always: it may answer
    again.
    Immediately before its own call, the provider verifies that each machine still belongs to
    that node and to no other."""
    progress = read(operation)
    if now - progress.looked > CHECK_VALID_FOR or any(
        progress.nodes[name].unready for name in progress.live
    ):
        progress = final_check(operation, progress, context, now)
        if progress.to_undo:
            return next_step(operation, progress, "delete")
    narrowed, provider, siblings = narrow(operation), context.provider(), context.siblings
    if siblings is not None and isinstance(provider, OneChangeAtATime):
        vendor_outcome = _delete_together(narrowed, provider, siblings, context, now)
    else:
        vendor_outcome = provider.delete_nodes(for_provider(narrowed))
    context.checkpoint("delete:called")
    return _after_request(operation, from_provider(narrowed, vendor_outcome), now)


def _delete_together(
    narrowed_operation: Operation,
    provider: OneChangeAtATime,
    siblings: SiblingRemovals,
    context: StepContext,
    now: float,
) -> Outcome:
    """Delete the nodes, and in the same request those of the siblings that are ready and
    pass their own last check."""
    claimed: dict[str, Operation] = {}

    def ready() -> Iterator[Operation]:
        if siblings.soon_ready(now):
            raise Conflict(
                "waits until other nodes of the group are ready", code=BUSY, retry_after=GATHER
            )
        for sibling in siblings.claim_ready():
            try:
                progress = final_check(sibling, read(sibling), context, now)
            except ClusterError:
                continue
            if progress.to_undo:
                siblings.end_step(sibling, next_step(sibling, progress, "delete"))
                continue
            claimed[sibling.spec.id] = reset_error_count(sibling)
            yield for_provider(narrow(sibling))

    outcome, joined = provider.delete_together(for_provider(narrowed_operation), ready())
    for name, vendor_outcome in joined.items():
        sibling = claimed[name]
        siblings.end_step(
            sibling, _after_request(sibling, from_provider(sibling, vendor_outcome), now)
        )
    return outcome


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Poll the deletion at the vendor."""
    narrowed, provider = narrow(operation), context.provider()
    outcome = from_provider(narrowed, provider.poll(for_provider(narrowed)))
    context.checkpoint("delete:polled")
    if (
        context.siblings is not None
        and isinstance(provider, OneChangeAtATime)
        and not isinstance(outcome, InProgress)
    ):
        context.siblings.wake_one()
    return _after_request(operation, outcome, now)


def narrow(operation: Operation) -> Operation:
    """Return the operation for the provider: without the nodes that were given up,
    which were recorded before this step, and with the uids that the Node objects
    had when they were planned."""
    live = frozenset(read(operation).live)
    targets = tuple(
        msgspec.structs.replace(target, uid=operation.uid_of(target))
        for target in operation.spec.targets
        if target.node in live
    )
    spared = len(operation.spec.targets) - len(targets)
    to_size = (
        operation.spec.to_size + spared if operation.spec.from_size else operation.spec.to_size
    )
    return operation.with_spec(targets=targets, to_size=to_size)


def _after_request(operation: Operation, outcome: Outcome, now: float) -> Outcome:
    """Return the pause before the next poll: the vendor's own suggestion at first, and
    longer the longer the deletion takes. A failure gives the removal up; after a success
    its nodes must disappear."""
    progress = read(operation)
    match outcome:
        case InProgress():
            return polled_later(progress, outcome, now)
        case Failed():
            return give_up(operation, outcome)
    return next_step(operation, progress, "confirm")


def polled_later(progress: Progress, outcome: InProgress, now: float) -> InProgress:
    """Return a vendor's answer that it is not finished, with the pause before the
    next poll and the progress."""
    pause = min(
        max(outcome.after, progress.wait.elapsed(now) / 2), max(outcome.after, LONGEST_POLL)
    )
    waited = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
    data = {**outcome.data, KEY: msgspec.json.encode(waited).decode()}
    return msgspec.structs.replace(outcome, after=pause, data=data)


def confirm(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Wait for the nodes to disappear. If a node still exists after CONFIRM_TIME, because its Node
    object outlives the machine or because the vendor did not delete it, the removal ends
    nevertheless and the outcome says so. Its taint is then stale, and the next pass removes it
    (plan/removal/taint_updates.py). The outcome also names the nodes that were given up, and
    why."""
    progress = read(operation)
    present = present_nodes(operation, progress, context)
    if present and progress.wait.elapsed(now) < CONFIRM_TIME:
        pause = progress.wait.delay(now, first=CONFIRM_POLL, most=LONGEST_POLL, limit=CONFIRM_TIME)
        waited = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
        return stay_in_step(operation, waited, "confirm", pause)
    unconfirmed = {"unconfirmed": ",".join(present)} if present else {}
    kept = {f"kept {name}": node.kept for name, node in sorted(progress.nodes.items()) if node.kept}
    return Succeeded(
        {"removed": len(progress.live), "nodes": ",".join(progress.live), **unconfirmed, **kept}
    )


def present_nodes(operation: Operation, progress: Progress, context: StepContext) -> list[str]:
    """Return the nodes to be removed whose object is still that of their machine. An API that does
    not respond confirms nothing."""
    instances = {target.node: target.instance for target in operation.spec.targets}
    present = []
    for name in progress.live:
        try:
            node = context.cluster.node(name)
        except ClusterError:
            present.append(name)
            continue
        if node is not None and node.provider_id in ("", instances[name]):
            present.append(name)
    return present


def undo(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Remove Outscaler's taint from the nodes given up; then continue with the others, or fail the
    operation if none is left.

    The vendor's deletion marks are rolled back first, because a mark that stays would cost the node
    its machine later. An API that refuses is retried for UNDO_TIME; after that the taint is left to
    the next pass, and the outcome says so.
    """
    progress = read(operation)
    undoing = progress.undoing.begun(now)
    problem: ClusterError | ProviderError | None = None
    for name in progress.to_undo:
        try:
            progress = _cancel_delete(operation, progress, name, context)
            if not progress.nodes[name].kept:
                continue
            cordoned = progress.nodes[name].cordoned
            context.cluster.untaint(
                name, TO_BE_DELETED, operation=operation.spec.id, uncordon=cordoned
            )
        except (ClusterError, ProviderError) as error:
            problem = error
            if undoing.elapsed(now) >= UNDO_TIME:
                why = (
                    f"{progress.nodes[name].kept} (it could not be given back: "
                    f"{error_class_of(error)})"
                )
                progress = progress.change(name, kept=why, undone=True)
            continue
        context.checkpoint("undo:called")
        progress = progress.change(name, undone=True)
    if progress.to_undo and problem is not None:
        pause = max(
            retry_pause(2, 0.0, operation.spec.id),
            undoing.delay(now, first=10.0, most=60.0, limit=UNDO_TIME),
        )
        again = msgspec.structs.replace(progress, undoing=undoing.next(now, pause))
        return stay_in_step(
            operation, again, "undo", pause, f"rolling back: {error_class_of(problem)}: {problem}"
        )
    progress = msgspec.structs.replace(progress, undoing=PollBackoff())
    if progress.live and progress.resume:
        return stay_in_step(operation, progress, progress.resume, progress.resume_after)
    return progress.failure()


def _cancel_delete(
    operation: Operation, progress: Progress, name: str, context: StepContext
) -> Progress:
    """Roll back what was requested from the vendor for a node. If the vendor has already started
    the removal, the node is removed after all: its taint stays, and its removal is completed. A
    vendor that refuses permanently does not keep the taint on the node; a temporary error is raised
    for a retry."""
    if not progress.ordered or operation.spec.kind is OperationKind.RESTART_NODE:
        return progress
    targets = tuple(target for target in operation.spec.targets if target.node == name)
    try:
        if not context.provider().cancel_delete(
            operation.with_spec(targets=targets).with_status(data={}, step="")
        ):
            removed = progress.change(name, kept="", cls="", code="")
            return msgspec.structs.replace(removed, resume="confirm", resume_after=0.0)
    except RETRIED:
        raise
    except ProviderError as error:
        why = (
            f"{progress.nodes[name].kept} (what the provider was told could not be taken back: "
            f"{error})"
        )
        return progress.change(name, kept=why)
    context.checkpoint("undo:released")
    return progress


def give_up(operation: Operation, failure: Failed) -> Outcome:
    """Give up the whole removal: every node still to be removed is kept for this
    reason and rolled back first."""
    progress = read(operation)
    if not progress.nodes:
        return failure
    for name in progress.live:
        progress = progress.change(
            name, kept=failure.message, cls=failure.error_class, code=failure.code
        )
    return next_step(operation, progress, "undo")


DELETE_NODES = OperationDefinition(
    steps=(
        ("look", look),
        ("taint", taint),
        ("recheck", recheck),
        ("evict", evict),
        ("gone", wait_for_pods),
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
