"""Removes a node that its vendor takes back (docs/reference/spot.md "Evacuation"): what can
leave it in time leaves.

    look ► taint ► evict ⟲ ► delete ► poll ► confirm
                                └───────┴──► leave ⟲   the provider does not delete it:
                                                       wait until the vendor has
    node gone: succeeded, at any step but poll         node Ready RETURN_TIME after the
                                                       deadline ► undo ► failed
    evict, delete, leave: no signal left and Ready, in two reads ► undo ► failed

The machine goes whatever is decided here. The drain rules are therefore not asked, and the pods are
evicted at once and all together, those that were bound in the meantime included. Evictions respect
budgets and are never forced: a refused one is requested again until the vendor's deadline, and no
error ends the removal before. A pod that is still there then is lost with its machine, as it would
be without Outscaler.

The provider is asked to delete the node when its pods are gone, and at the deadline at the latest,
so that its group does not keep the size of a machine that has left. It may refuse, or only wait:
some vendors take the size back by themselves, and some refuse to delete a machine that they are
reclaiming.

A notice may be taken back. Before each round of evictions and before the provider is asked, the
node is read again. If the pass read the notice from the Node, and it shows no signal any more and
is Ready, the step waits for a second read of the same, and the node is given back. What the
vendor's API says does not show there: then the memory of passes decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import SIGNAL, Operation
from chalicelib.model.outcome import (
    NOTICE_TAKEN_BACK,
    SIGNAL_GONE,
    Failed,
    InProgress,
    Outcome,
    Succeeded,
)
from chalicelib.model.timestamps import format_time
from chalicelib.operations.removal_progress import KEY, Progress, next_step, read, stay_in_step
from chalicelib.operations.step_context import (
    OperationDefinition,
    PodState,
    Step,
    StepContext,
    for_provider,
    from_provider,
)
from chalicelib.operations.steps.drain import (
    EVICTIONS_PER_STEP,
    grace_of,
    request_eviction,
    with_eviction,
)
from chalicelib.operations.steps.recheck import blocks_removal, fingerprint
from chalicelib.operations.steps.remove_nodes import (
    confirm,
    foreign_removal,
    give_up,
    narrow,
    polled_later,
    present_nodes,
    undo,
)
from chalicelib.operations.waiting import LEAST, RETRIED, PollBackoff, error_class_of
from chalicelib.plan.state.interruptions import shows_signal
from chalicelib.policy.timeouts import (
    LONGEST_NOTICE,
    RETURN_TIME,
    SHORTEST_NOTICE,
    interruption_deadline,
    leaving_time,
)
from chalicelib.providers.kit.base import Provider
from chalicelib.providers.kit.errors import ProviderError

RETRY, LONGEST_RETRY = 5.0, 15.0
"""Seconds between two requests for the same eviction, and at most, where
the API asks for more time."""
LEAVE_POLL, LONGEST_LEAVE_POLL = 5.0, 30.0
SECOND_READ = 10.0
"""Seconds between the two reads after which a notice counts as taken back."""


def _persistent(step: Step) -> Step:
    """Return the step, which an API that does not answer only delays: the deadline
    is the vendor's, not ours."""

    def run(operation: Operation, context: StepContext, now: float) -> Outcome:
        try:
            return step(operation, context, now)
        except ClusterError as error:
            return _again(operation, operation.status.step or "look", error)

    return run


def _again(operation: Operation, step: str, error: ClusterError | ProviderError) -> InProgress:
    pause = min(max(RETRY, error.retry_after), LONGEST_RETRY)
    return InProgress(pause, step, operation.status.data, f"{error_class_of(error)}: {error}")


def _while_announced(name: str, step: Step) -> Step:
    """Return the step of that name, which only runs while its node is announced to go."""

    def run(operation: Operation, context: StepContext, now: float) -> Outcome:
        progress = read(operation)
        if not _is_sound(operation, progress, context):
            return step(_announced_again(operation, progress), context, now)
        waits = [progress.nodes[live].sound for live in progress.live]
        if all(wait.elapsed(now) >= SECOND_READ for wait in waits):
            why = (
                f"it is Ready and shows no signal any more (it was {operation.status.data[SIGNAL]})"
            )
            return give_up(operation, Failed(NOTICE_TAKEN_BACK, why, SIGNAL_GONE))
        for live in progress.live:
            progress = progress.change(
                live, sound=progress.nodes[live].sound.next(now, SECOND_READ)
            )
        return stay_in_step(
            operation, progress, name, SECOND_READ, "its notice may have been taken back"
        )

    return run


def _is_sound(operation: Operation, progress: Progress, context: StepContext) -> bool:
    """Return whether no node is announced to go any more. An API that does not
    answer says nothing of it."""
    if SIGNAL not in operation.status.data or not progress.live:
        return False  # planned by a release that could not say how it was announced
    instances = {target.node: target.instance for target in operation.spec.targets}
    try:
        nodes = [(name, context.cluster.node(name)) for name in progress.live]
    except ClusterError:
        return False
    return all(
        node is not None
        and node.provider_id in ("", instances[name])
        and node.ready
        and not shows_signal(node.taints, node.conditions)
        and not context.announced_by_vendor(name)
        for name, node in nodes
    )


def _announced_again(operation: Operation, progress: Progress) -> Operation:
    """Return the operation without the memory of an earlier read."""
    sound = [name for name in progress.live if progress.nodes[name].sound != PollBackoff()]
    for name in sound:
        progress = progress.change(name, sound=PollBackoff())
    data = {**operation.status.data, KEY: msgspec.json.encode(progress).decode()}
    return operation.with_status(data=data) if sound else operation


@_persistent
def look(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Read the node, and record which changes will have to be rolled back. A node that another
    program is deleting is left to it."""
    progress = read(operation)
    for target in operation.spec.targets:
        node = context.cluster.node(target.node)
        progress = progress.change(
            target.node, cordoned=node is not None and not node.unschedulable
        )
        if node is not None and (why := foreign_removal(operation, node, now)):
            progress = progress.give_up(target.node, "Conflict", why, untouched=True)
    return next_step(operation, progress, "taint")


@_persistent
def taint(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Taint and cordon the node. Evictions begin at once: what the scheduler binds until it has
    noticed is evicted, too."""
    progress = read(operation)
    for name in present_nodes(operation, progress, context):
        cordon = progress.nodes[name].cordoned
        mark = Taint(TO_BE_DELETED, "NoSchedule", str(int(now)))
        try:
            context.cluster.taint(name, mark, operation=operation.spec.id, cordon=cordon)
        except NotFound:
            continue
        context.checkpoint("taint:called")
    return next_step(operation, progress, "evict")


@_persistent
def evict(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Request the evictions that have not been granted, a few per step, and again until all pods
    are gone. A pod has no more time to end than its machine has.

    A node that is still Ready after its deadline runs, so its evictions are requested once before
    it is deleted. An API that does not answer prevents that only for the shortest notice."""
    progress, leaves_at = read(operation), leaving_time(operation.spec)
    present = present_nodes(operation, progress, context)
    if not present:
        return _gone(progress)
    try:
        if now >= leaves_at and (progress.wait.since or not _is_ready(present, context)):
            return next_step(operation, progress, "delete")
        return _request_evictions(operation, progress, context, present, now)
    except ClusterError:
        if now < max(leaves_at, operation.spec.created_at + SHORTEST_NOTICE):
            raise
        return next_step(operation, progress, "delete")


def _is_ready(names: Iterable[str], context: StepContext) -> bool:
    nodes = [context.cluster.node(name) for name in names]
    return any(node is not None and node.ready for node in nodes)


def _request_evictions(
    operation: Operation,
    progress: Progress,
    context: StepContext,
    present: Iterable[str],
    now: float,
) -> Outcome:
    leaves_at = leaving_time(operation.spec)
    pods = [(name, pod) for name in present for pod in _pods_that_leave(name, context, now)]
    due = [(name, pod) for name, pod in pods if _is_due(name, pod, progress)]
    granted: list[str] = []
    refused: list[str] = []
    for name, pod in due[:EVICTIONS_PER_STEP]:
        grace = max(LEAST, min(grace_of(pod, context.options), leaves_at - now))
        eviction = request_eviction(pod, context, grace)
        context.checkpoint("evict:called")
        if not eviction.accepted:
            refused.append(pod.key)
        elif not eviction.gone:
            granted.append(pod.key)
        progress = with_eviction(progress, name, pod, eviction)
    outcome = (
        stay_in_step(operation, progress, "evict", 0.0)
        if len(due) > EVICTIONS_PER_STEP
        else _end_of_round(operation, progress, pods, leaves_at - now, now)
    )
    return msgspec.structs.replace(outcome, evicted=tuple(granted), refused=tuple(refused))


def _pods_that_leave(name: str, context: StepContext, now: float) -> list[PodState]:
    pods = (
        pod for pod in context.cluster.pods_on(name) if blocks_removal(pod, context.options, now)
    )
    return sorted(pods, key=lambda pod: pod.key)


def _is_due(name: str, pod: PodState, progress: Progress) -> bool:
    """Return whether the pod's eviction is to be requested in this round."""
    last_node, _, last_pod = progress.cursor.partition("/")
    asked = pod.deleted or fingerprint(pod) in progress.nodes[name].asked
    return not asked and (name, pod.key) > (last_node, last_pod)


def _end_of_round(
    operation: Operation,
    progress: Progress,
    pods: Iterable[tuple[str, PodState]],
    remaining: float,
    now: float,
) -> InProgress:
    """Begin the next round in a moment, while there are pods. remaining: seconds until the vendor's
    deadline. The wait of the step says that a round was completed."""
    if not [*pods]:
        return next_step(operation, progress, "delete")
    blocked = next(
        (progress.nodes[name].blocked for name in progress.live if progress.nodes[name].blocked), ""
    )
    pause = max(LEAST, min(max(RETRY, progress.again), LONGEST_RETRY, remaining))
    for name in progress.live:
        progress = progress.change(name, blocked="")
    again = msgspec.structs.replace(
        progress, cursor="", again=0.0, wait=progress.wait.next(now, pause)
    )
    return stay_in_step(operation, again, "evict", pause, blocked)


def delete_nodes(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Ask the provider to delete the node, which decides by the removal's reason whether it may."""
    return _ask(
        operation,
        context,
        now,
        "delete",
        lambda provider, narrowed: provider.delete_nodes(narrowed),
    )


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Poll the deletion, or the provider's wait for the vendor's own. It has
    an end, as every wait has."""
    outcome = _ask(
        operation, context, now, "poll", lambda provider, narrowed: provider.poll(narrowed)
    )
    late = (
        isinstance(outcome, InProgress) and outcome.step == "poll" and now >= _returns_at(operation)
    )
    return _wait_for_end(operation, context, now, outcome) if late else outcome


def _ask(
    operation: Operation,
    context: StepContext,
    now: float,
    step: str,
    method: Callable[[Provider, Operation], Outcome],
) -> Outcome:
    """Return what follows from the provider's answer. One that is "not now" is asked for again, and
    any other refusal leaves the node to its vendor."""
    progress, narrowed = read(operation), narrow(operation)
    try:
        outcome = from_provider(narrowed, method(context.provider(), for_provider(narrowed)))
    except RETRIED as error:
        return _wait_for_end(operation, context, now, _again(operation, step, error))
    except (ProviderError, ClusterError) as error:
        outcome = Failed(error_class_of(error), str(error))
    context.checkpoint("delete:called")
    match outcome:
        case InProgress():
            return polled_later(progress, outcome, now)
        case Failed():
            note = f"not deleted: {outcome.error_class}: {outcome.message}"
            return msgspec.structs.replace(next_step(operation, progress, "leave"), note=note)
    return next_step(operation, progress, "confirm")


@_persistent
def leave(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Wait until the vendor has taken the node."""
    progress = read(operation)
    pause = LONGEST_LEAVE_POLL
    if now < _returns_at(operation):
        pause = progress.wait.delay(
            now, first=LEAVE_POLL, most=LONGEST_LEAVE_POLL, limit=LONGEST_NOTICE
        )
        pause = max(LEAST, min(pause, _returns_at(operation) - now))
    waited = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
    return _wait_for_end(operation, context, now, stay_in_step(operation, waited, "leave", pause))


def _wait_for_end(
    operation: Operation, context: StepContext, now: float, outcome: Outcome
) -> Outcome:
    """Return the end of a removal whose node is gone, or has not been taken; `outcome` while
    neither is certain. A node that is there and not Ready is switched off: its object is removed
    later by whoever registered it."""
    progress = read(operation)
    present = present_nodes(operation, progress, context)
    if not present:
        return _gone(progress)
    if now < _returns_at(operation):
        return outcome
    try:
        nodes = [context.cluster.node(name) for name in present]
    except ClusterError:
        nodes = []
    if any(node is not None and node.ready for node in nodes):
        announced = format_time(leaving_time(operation.spec))
        why = f"the vendor did not take it back: it was to leave at {announced} and is Ready"
        return give_up(operation, Failed(NOTICE_TAKEN_BACK, why))
    return (
        _gone(progress, present)
        if now >= (operation.spec.deadline or interruption_deadline(operation.spec))
        else outcome
    )


def _returns_at(operation: Operation) -> float:
    """Return from when on a node that is Ready has not been taken (epoch seconds)."""
    return leaving_time(operation.spec) + RETURN_TIME


def _gone(progress: Progress, present: Iterable[str] = ()) -> Succeeded:
    """Return the end of a removal that the vendor has completed. `gone` says that the provider has
    lowered nothing. present: nodes whose object is still there."""
    unconfirmed = {"unconfirmed": ",".join(present)} if present else {}
    names = ",".join(progress.live)
    return Succeeded({"removed": len(progress.live), "nodes": names, "gone": names, **unconfirmed})


INTERRUPTED_REMOVAL = OperationDefinition(
    steps=(
        ("look", look),
        ("taint", taint),
        ("evict", _while_announced("evict", evict)),
        ("delete", _while_announced("delete", delete_nodes)),
        ("poll", poll),
        ("leave", _while_announced("leave", leave)),
        ("confirm", confirm),
        ("undo", undo),
    ),
    rollback=give_up,
    timed_steps=frozenset({"poll", "leave", "confirm", "undo"}),
    irreversible_steps=frozenset({"poll", "confirm", "undo"}),
)
