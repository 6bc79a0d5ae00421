"""Restarts a node by its provider, after a drain like that of any removal
(docs/reference/node-lifecycle.md "Restart"):

    look ► taint ► (wait) ► recheck ► evict ◄► gone ► restart ► poll ► ready ► return
              any of them ► undo: untaint, uncordon; the operation has failed

No size changes. The first steps are those of a removal (steps/remove_nodes.py), with its rules and
limits; one pod that was granted its eviction does not hold the restart, because the kubelet of a
sick node may end none. A kubelet that did not answer and answers again before the vendor is asked
ends it.

What the node says of its boot is recorded before the vendor is asked. An attempt that repeats the
step therefore sees whether the machine has started again, and asks for nothing a second time then.
A machine that has not may be asked for twice; it restarts once or twice, and is drained.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.removal_progress import NodeProgress, next_step, read, stay_in_step
from chalicelib.operations.step_context import (
    NodeState,
    OperationDefinition,
    StepContext,
    for_provider,
    from_provider,
)
from chalicelib.operations.steps import remove_nodes
from chalicelib.operations.steps.drain import evict, wait_for_pods
from chalicelib.operations.steps.recheck import (
    another_machine,
    blocks_removal,
    check_ownership,
    fingerprint,
    recheck,
)
from chalicelib.operations.steps.remove_nodes import give_up, narrow, polled_later, undo
from chalicelib.policy.timeouts import startup_deadline
from chalicelib.providers.kit.base import NodeRestarter

READY_POLL, LONGEST_READY_POLL = 10.0, 30.0
CANNOT_RESTART = "InvalidRequest"
NOT_READY = "NodeNotReady"
"""Error class of a restart after which the node did not become Ready in time."""


def look(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Refuse a provider that restarts nothing before any change; else as for a removal."""
    if not isinstance(context.provider(), NodeRestarter):
        return _cannot_restart(operation)
    return remove_nodes.look(operation, context, now)


def restart(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Check the node once more, record what it says of its boot, and then ask
    the vendor, in this order."""
    progress = read(operation)
    for target in operation.spec.targets:
        name = target.node
        node = context.cluster.node(name)
        if node is None:
            progress = progress.give_up(
                name, "NotFound", "the node no longer exists", untouched=True
            )
            continue
        if _has_restarted(progress.nodes[name], node):
            return next_step(operation, progress, "ready")
        progress = check_ownership(progress, operation, target, node)
        evicted = {*progress.nodes[name].asked, *progress.nodes[name].stuck}
        late = [
            pod.key
            for pod in context.cluster.pods_on(name)
            if blocks_removal(pod, context.options, now) and fingerprint(pod) not in evicted
        ]
        if late and not progress.nodes[name].kept:
            progress = progress.give_up(
                name, "NodeNotEmpty", f"pod {late[0]} was bound to it during the drain"
            )
        if progress.to_undo:
            continue
        if not progress.nodes[name].restarting:
            noted = progress.change(
                name, restarting=now, boot=node.boot, ready_since=node.ready_since
            )
            return stay_in_step(operation, noted, "restart", 0.0)
    if progress.to_undo or not progress.live:
        return next_step(operation, progress, "restart")
    return poll(operation, context, now)


def poll(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Ask the vendor, which knows by the operation's data how far it has come."""
    progress, provider = read(operation), context.provider()
    if not isinstance(provider, NodeRestarter):
        return give_up(operation, _cannot_restart(operation))
    narrowed = narrow(operation)
    outcome = from_provider(narrowed, provider.restart(for_provider(narrowed)))
    context.checkpoint("restart:called")
    match outcome:
        case InProgress():
            return polled_later(progress, outcome, now)
        case Failed():
            return give_up(operation, outcome)
    return next_step(operation, progress, "ready")


def wait_until_ready(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Wait until the restarted node is Ready, at most for the time that a new node of its
    group may take. Its object may be missing for a while: a cloud's controller removes it
    while the machine is off."""
    progress = read(operation)
    for target in operation.spec.targets:
        node = context.cluster.node(target.node)
        if node is None:
            continue
        if target.instance and node.provider_id not in ("", target.instance):
            why = another_machine(operation, target, node)
            return next_step(
                operation, progress.give_up(target.node, "Conflict", why, untouched=True), "ready"
            )
        if node.ready and _has_restarted(progress.nodes[target.node], node):
            return next_step(operation, progress, "return")
    limit = startup_deadline(operation, context.options)
    if progress.wait.elapsed(now) >= limit:
        names = ",".join(progress.live)
        return give_up(
            operation, Failed(NOT_READY, f"{names} is not Ready {limit:.0f} s after its restart")
        )
    pause = progress.wait.delay(now, first=READY_POLL, most=LONGEST_READY_POLL, limit=limit)
    note = "waits until the restarted node is Ready"
    waited = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
    return stay_in_step(operation, waited, "ready", pause, note)


def _has_restarted(progress: NodeProgress, node: NodeState) -> bool:
    """Return whether the node has started again since the vendor may have been asked: its boot has
    another id or, where ids are not known, it became Ready again."""
    if not progress.restarting:
        return False
    if progress.boot and node.boot:
        return node.boot != progress.boot
    return node.ready and node.ready_since > progress.ready_since


def give_back(operation: Operation, context: StepContext, now: float) -> Outcome:  # noqa: ARG001 - a step
    """Untaint and uncordon the node."""
    progress = read(operation)
    for name in progress.live:
        cordoned = progress.nodes[name].cordoned
        context.cluster.untaint(name, TO_BE_DELETED, operation=operation.spec.id, uncordon=cordoned)
        context.checkpoint("return:called")
    return Succeeded({"restarted": len(progress.live), "nodes": ",".join(progress.live)})


def _cannot_restart(operation: Operation) -> Failed:
    return Failed(CANNOT_RESTART, f"provider {operation.spec.provider} cannot restart a node")


RESTART_NODE = OperationDefinition(
    steps=(
        ("look", look),
        ("taint", remove_nodes.taint),
        ("recheck", recheck),
        ("evict", evict),
        ("gone", wait_for_pods),
        ("restart", restart),
        ("poll", poll),
        ("ready", wait_until_ready),
        ("return", give_back),
        ("undo", undo),
    ),
    rollback=give_up,
    timed_steps=frozenset({"ready", "return", "undo"}),
    irreversible_steps=frozenset({"poll", "ready", "return", "undo"}),
)
