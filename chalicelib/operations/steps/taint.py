"""Mark the nodes that are to go, and take the mark off those that are not: look, taint, undo.

The hard taint's value is the Unix second (scale-down.md §9), as upstream writes it, so that both programs and people
can read how old it is. Who put it there stands beside it: the same write notes the operation and whether it cordoned
the node, so that a mark can be undone by anybody who holds the operation's id, even where its row is lost. `look`
records, before anything is touched, what will be ours.

An operation has one node, so that a drain that gets stuck holds up no other (plan/intent.py). Where one has several, a
taint that cannot be put on rolls the whole batch back, as upstream does with all of a loop (cases.md S14).
"""

from __future__ import annotations

import msgspec

from chalicelib.kube.errors import ClusterError, NotFound
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.model.outcome import Failed, Outcome, Succeeded
from chalicelib.operations.error_policy import AGAIN, error_class_of, wait
from chalicelib.operations.poll_backoff import PollBackoff
from chalicelib.operations.removal_progress import Progress, give_up_node, next_step, read
from chalicelib.operations.step_context import NodeState, StepContext
from chalicelib.operations.steps.recheck import another
from chalicelib.providers.errors import ProviderError

FOREIGN_TAINT_TIME = 300.0
"""A taint younger than this is somebody else's deletion in progress (scale-down.md §3)."""
UNDO_TIME = 600.0


def look(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Read the nodes, refuse those that are not what was planned, and record what will be ours to undo."""
    progress = read(operation)
    for target in operation.spec.targets:
        if target.node in progress.nodes:
            continue
        node = world.cluster.node(target.node)
        if node is None:
            progress = progress.keep(target.node, "NotFound", "the node no longer exists", untouched=True)
        elif problem := _not_as_planned(operation, target, node, now):
            progress = progress.keep(target.node, "Conflict", problem, untouched=True)
        else:
            ours = world.options.cordon_node_before_terminating and not node.unschedulable
            progress = progress.change(target.node, cordoned=ours)
    return next_step(operation, progress, "taint")


def _not_as_planned(operation: Operation, target: RemovalTarget, node: NodeState, now: float) -> str:
    """Why this node is not the one the plan meant, or is not ours to remove any more; empty if it is."""
    if why := another(operation, target, node):
        return why
    if node.scale_down_disabled:
        return "annotation scale-down-disabled was set meanwhile"
    taint = node.taint(TO_BE_DELETED)
    if taint and node.operation != operation.spec.id and _fresh(taint, now):
        return "somebody else is deleting it: it carries a fresh ToBeDeletedByClusterAutoscaler taint"
    return ""


def _fresh(taint: Taint, now: float) -> bool:
    """Put on less than FOREIGN_TAINT_TIME ago, as far as its value says."""
    age = now - int(taint.value) if taint.value.isascii() and taint.value.isdecimal() else FOREIGN_TAINT_TIME
    return age < FOREIGN_TAINT_TIME


def taint(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Taint and cordon every node, then let the scheduler notice. A taint already there is left as it is, so a repeated
    step changes nothing."""
    progress = read(operation)
    mark = Taint(TO_BE_DELETED, "NoSchedule", str(int(now)))
    for name in progress.live:
        try:
            world.cluster.taint(name, mark, operation=operation.spec.id, cordon=progress.nodes[name].cordoned)
        except NotFound:
            progress = progress.keep(name, "NotFound", "the node no longer exists", untouched=True)
        world.checkpoint("taint:called")
    return next_step(operation, progress, "recheck", world.options.node_delete_delay_after_taint)


def undo(operation: Operation, world: StepContext, now: float) -> Outcome:
    """Take our mark off the nodes given up; then the others go on, or, if there are none, the operation has failed.

    What the vendor was told comes back first: a mark that stays there would cost the node its machine later on. An API
    that refuses is asked again for UNDO_TIME; after that the taint is left to the next pass, and this is said.
    """
    progress = read(operation)
    undoing = progress.undoing.begun(now)
    trouble: ClusterError | ProviderError | None = None
    for name in progress.to_undo:
        try:
            progress = _released(operation, progress, name, world)
            if not progress.nodes[name].kept:
                continue
            world.cluster.untaint(
                name, TO_BE_DELETED, operation=operation.spec.id, uncordon=progress.nodes[name].cordoned
            )
        except (ClusterError, ProviderError) as error:
            trouble = error
            if undoing.elapsed(now) >= UNDO_TIME:
                left = f"{progress.nodes[name].kept} (it could not be given back: {error_class_of(error)})"
                progress = progress.change(name, kept=left, undone=True)
            continue
        world.checkpoint("undo:called")
        progress = progress.change(name, undone=True)
    if progress.to_undo and trouble is not None:
        pause = max(wait(2, 0.0, operation.spec.id), undoing.delay(now, first=10.0, most=60.0, limit=UNDO_TIME))
        again = msgspec.structs.replace(progress, undoing=undoing.next(now, pause))
        return give_up_node(operation, again, "undo", pause, f"rolling back: {error_class_of(trouble)}: {trouble}")
    return after_undo(operation, msgspec.structs.replace(progress, undoing=PollBackoff()))


def _released(operation: Operation, progress: Progress, name: str, world: StepContext) -> Progress:
    """What the vendor was told of a node, taken back. Where it has taken the removal up, the node goes after all: its
    taint stays, and its end is seen through. A vendor that will not answer for good does not keep the taint on the
    node; a passing error is raised, to be tried again."""
    if not progress.ordered:
        return progress
    try:
        if not world.provider().release(_alone(operation, name)):
            going = progress.change(name, kept="", cls="", code="")
            return msgspec.structs.replace(going, resume="confirm", resume_after=0.0)
    except AGAIN:
        raise
    except ProviderError as error:
        left = f"{progress.nodes[name].kept} (what the provider was told could not be taken back: {error})"
        return progress.change(name, kept=left)
    world.checkpoint("undo:released")
    return progress


def _alone(operation: Operation, node: str) -> Operation:
    """For the provider: about this one node."""
    targets = tuple(target for target in operation.spec.targets if target.node == node)
    return operation.with_spec(targets=targets).with_status(data={}, step="")


def after_undo(operation: Operation, progress: Progress) -> Outcome:
    """Back to where the others were, or the end."""
    if progress.live and progress.resume:
        return give_up_node(operation, progress, progress.resume, progress.resume_after)
    return progress.failure()


def give_up(operation: Operation, failure: Failed) -> Outcome:
    """The whole removal is off: every node still to go is kept for this reason and rolled back first."""
    progress = read(operation)
    if not progress.nodes:
        return failure
    for name in progress.live:
        progress = progress.change(name, kept=failure.message, cls=failure.error_class, code=failure.code)
    return next_step(operation, progress, "undo")


def finished(progress: Progress, facts: dict[str, str | int]) -> Succeeded:
    """The end of a removal of which at least one node is gone; what was kept, and why, is part of the answer."""
    kept = {f"kept {name}": node.kept for name, node in sorted(progress.nodes.items()) if node.kept}
    return Succeeded({"removed": len(progress.live), "nodes": ",".join(progress.live), **facts, **kept})
