"""Taints the nodes to be removed, and removes the taint from those that are kept: look, taint, undo.

The hard taint's value is the Unix second, as upstream writes it (docs/reference/drain.md "Taints"), so that both
programs and people can see its age. The same write notes the operation and whether it cordoned the node, so that the
taint can be removed with only the operation's id, even if the operation's row is lost. `look` records, before any
change, which changes will be Outscaler's own.

An operation has one node, so that a drain that gets stuck blocks no other (plan/plan_builder.py). Where one has
several, a taint that cannot be written rolls the whole batch back, as upstream does with all nodes of a loop.
"""

from __future__ import annotations

import msgspec

from chalicelib.kube.errors import ClusterError, NotFound
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.model.outcome import Failed, Outcome, Succeeded
from chalicelib.operations.error_policy import AGAIN, error_class_of, wait
from chalicelib.operations.poll_backoff import PollBackoff
from chalicelib.operations.removal_progress import Progress, next_step, read, stay_in_step
from chalicelib.operations.step_context import NodeState, StepContext
from chalicelib.operations.steps.recheck import another
from chalicelib.providers.errors import ProviderError

FOREIGN_TAINT_TIME = 300.0
"""A younger taint marks a deletion in progress by another program."""
UNDO_TIME = 600.0


def look(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Read the nodes, refuse those that differ from the plan, and record which changes will have to be rolled back."""
    progress = read(operation)
    for target in operation.spec.targets:
        if target.node in progress.nodes:
            continue
        node = context.cluster.node(target.node)
        if node is None:
            progress = progress.give_up(target.node, "NotFound", "the node no longer exists", untouched=True)
        elif problem := _not_as_planned(operation, target, node, now):
            progress = progress.give_up(target.node, "Conflict", problem, untouched=True)
        else:
            ours = context.options.cordon_node_before_terminating and not node.unschedulable
            progress = progress.change(target.node, cordoned=ours)
    return next_step(operation, progress, "taint")


def _not_as_planned(operation: Operation, target: RemovalTarget, node: NodeState, now: float) -> str:
    """Return why this node is not the planned one, or may no longer be removed; empty if it may."""
    if why := another(operation, target, node):
        return why
    if node.scale_down_disabled:
        return "annotation scale-down-disabled was set meanwhile"
    taint = node.taint(TO_BE_DELETED)
    if taint and node.operation != operation.spec.id and _fresh(taint, now):
        return "somebody else is deleting it: it carries a fresh ToBeDeletedByClusterAutoscaler taint"
    return ""


def _fresh(taint: Taint, now: float) -> bool:
    """Return whether the taint was set less than FOREIGN_TAINT_TIME ago, by its value."""
    age = now - int(taint.value) if taint.value.isascii() and taint.value.isdecimal() else FOREIGN_TAINT_TIME
    return age < FOREIGN_TAINT_TIME


def taint(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Taint and cordon every node, then give the scheduler time to notice. An existing taint is left unchanged, so a
    repeated step changes nothing."""
    progress = read(operation)
    mark = Taint(TO_BE_DELETED, "NoSchedule", str(int(now)))
    for name in progress.live:
        try:
            context.cluster.taint(name, mark, operation=operation.spec.id, cordon=progress.nodes[name].cordoned)
        except NotFound:
            progress = progress.give_up(name, "NotFound", "the node no longer exists", untouched=True)
        context.checkpoint("taint:called")
    return next_step(operation, progress, "recheck", context.options.node_delete_delay_after_taint)


def undo(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Remove Outscaler's taint from the nodes given up; then continue with the others, or fail the operation if none is
    left.

    The vendor's deletion marks are rolled back first, because a mark that stays would cost the node its machine later.
    An API that refuses is retried for UNDO_TIME; after that the taint is left to the next pass, and the outcome says
    so.
    """
    progress = read(operation)
    undoing = progress.undoing.begun(now)
    trouble: ClusterError | ProviderError | None = None
    for name in progress.to_undo:
        try:
            progress = _released(operation, progress, name, context)
            if not progress.nodes[name].kept:
                continue
            context.cluster.untaint(
                name, TO_BE_DELETED, operation=operation.spec.id, uncordon=progress.nodes[name].cordoned
            )
        except (ClusterError, ProviderError) as error:
            trouble = error
            if undoing.elapsed(now) >= UNDO_TIME:
                left = f"{progress.nodes[name].kept} (it could not be given back: {error_class_of(error)})"
                progress = progress.change(name, kept=left, undone=True)
            continue
        context.checkpoint("undo:called")
        progress = progress.change(name, undone=True)
    if progress.to_undo and trouble is not None:
        pause = max(wait(2, 0.0, operation.spec.id), undoing.delay(now, first=10.0, most=60.0, limit=UNDO_TIME))
        again = msgspec.structs.replace(progress, undoing=undoing.next(now, pause))
        return stay_in_step(operation, again, "undo", pause, f"rolling back: {error_class_of(trouble)}: {trouble}")
    return after_undo(operation, msgspec.structs.replace(progress, undoing=PollBackoff()))


def _released(operation: Operation, progress: Progress, name: str, context: StepContext) -> Progress:
    """Roll back what was requested from the vendor for a node. If the vendor has already started the removal, the node
    is removed after all: its taint stays, and its removal is completed. A vendor that refuses permanently does not
    keep the taint on the node; a temporary error is raised for a retry."""
    if not progress.ordered:
        return progress
    try:
        if not context.provider().cancel_delete(_alone(operation, name)):
            going = progress.change(name, kept="", cls="", code="")
            return msgspec.structs.replace(going, resume="confirm", resume_after=0.0)
    except AGAIN:
        raise
    except ProviderError as error:
        left = f"{progress.nodes[name].kept} (what the provider was told could not be taken back: {error})"
        return progress.change(name, kept=left)
    context.checkpoint("undo:released")
    return progress


def _alone(operation: Operation, node: str) -> Operation:
    """Return the operation for the provider with this one node."""
    targets = tuple(target for target in operation.spec.targets if target.node == node)
    return operation.with_spec(targets=targets).with_status(data={}, step="")


def after_undo(operation: Operation, progress: Progress) -> Outcome:
    """Continue with the other nodes, or end the operation."""
    if progress.live and progress.resume:
        return stay_in_step(operation, progress, progress.resume, progress.resume_after)
    return progress.failure()


def give_up(operation: Operation, failure: Failed) -> Outcome:
    """Give up the whole removal: every node still to be removed is kept for this reason and rolled back first."""
    progress = read(operation)
    if not progress.nodes:
        return failure
    for name in progress.live:
        progress = progress.change(name, kept=failure.message, cls=failure.error_class, code=failure.code)
    return next_step(operation, progress, "undo")


def finished(progress: Progress, facts: dict[str, str | int]) -> Succeeded:
    """Return the end of a removal of which at least one node is gone; the outcome names the kept nodes and the
    reasons."""
    kept = {f"kept {name}": node.kept for name, node in sorted(progress.nodes.items()) if node.kept}
    return Succeeded({"removed": len(progress.live), "nodes": ",".join(progress.live), **facts, **kept})
