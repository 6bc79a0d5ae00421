"""Checks the nodes again: after the taint and before the first eviction, for pods bound in the
meantime; and after the drain and before the deletion.

Cluster Autoscaler's logs show a pod bound 371 ms before its node was deleted as empty
(docs/reference/drain.md "Pods bound late"). The scheduler has had the delay after the taint to
notice it; a pod bound before that is seen here, and a pod that the plan did not know keeps the
node. A pod that is coming without being bound also keeps it: nominated, or waiting for a volume
that is being provisioned on this node. The full drain rules are passed in (StepContext.recheck),
because they need more of the cluster than one node. They keep a node for a new on-completion pod
even where upstream drains the node, because the pod was promised that it may complete.
"""

from __future__ import annotations

import zlib

import msgspec

from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.model.outcome import NODE_RECOVERED, Outcome
from chalicelib.operations.removal_progress import Progress, next_step, read, stay_in_step
from chalicelib.operations.step_context import NodeState, PodState, Recheck, StepContext
from chalicelib.policy.settings.cluster_options import Options

OVERDUE = 30.0
FINISHED = frozenset({"Succeeded", "Failed"})
DELAY_POLL, LONGEST_DELAY_POLL = 5.0, 15.0
CHECK_VALID_FOR = 20.0
"""Seconds for which the last check is valid; a later deletion checks the machine again."""


def recheck(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Check every node again: it still exists, is still tainted, has no new pods, and no
    rule blocks its removal."""
    progress = read(operation)
    for target in _live_targets(operation, progress):
        node = context.cluster.node(target.node)
        if node is None:
            progress = progress.give_up(
                target.node, "NotFound", "the node no longer exists", untouched=True
            )
            continue
        progress = check_ownership(progress, operation, target, node)
        if progress.nodes[target.node].kept:
            continue
        if why := _unplanned_pod(target, progress, context, now):
            progress = progress.give_up(target.node, "NodeNotEmpty", why)
        elif not (verdict := context.recheck(target.node)).clear:
            progress = progress.give_up(target.node, "NodeNotEmpty", describe(verdict))
        elif claims := context.cluster.claims_awaiting(target.node):
            why = (
                f"claim {claims[0]} is being given a volume on it, for a pod that is about to be "
                "bound"
            )
            progress = progress.give_up(target.node, "NodeNotEmpty", why)
    return next_step(operation, msgspec.structs.replace(progress, looked=now), "evict")


def delay(operation: Operation, context: StepContext, now: float) -> Outcome:
    """Wait until no delay-deletion annotation is left on the node, at most
    node-deletion-delay-timeout; then do the final check (docs/reference/drain.md "Deletion delay").

    A storage driver that detaches volumes, or a backup that finishes, sets an annotation on the
    node and removes it when it is done. The check follows the wait, because this is the last moment
    at which the removal can be rolled back completely."""
    progress = read(operation)
    limit = context.options.node_deletion_delay_timeout
    if progress.wait.elapsed(now) < limit:
        nodes = [context.cluster.node(name) for name in progress.live]
        delays = [f"{node.name} by {node.delays[0]}" for node in nodes if node and node.delays]
        if delays:
            pause = progress.wait.delay(now, first=DELAY_POLL, most=LONGEST_DELAY_POLL, limit=limit)
            later = msgspec.structs.replace(progress, wait=progress.wait.next(now, pause))
            return stay_in_step(
                operation, later, "delay", pause, f"deletion delayed: {', '.join(delays)}"
            )
    return next_step(operation, final_check(operation, progress, context, now), "delete")


def final_check(
    operation: Operation, progress: Progress, context: StepContext, now: float
) -> Progress:
    """Check once more before the deletion: a drain takes long, and in the meantime the taint may
    have been removed or a pod bound in spite of it. A node that has disappeared by itself is no
    reason to keep its machine."""
    for target in _live_targets(operation, progress):
        node = context.cluster.node(target.node)
        if node is None:
            continue
        progress = check_ownership(progress, operation, target, node)
        stuck = frozenset(progress.nodes[target.node].stuck)
        pods = [
            pod.key
            for pod in context.cluster.pods_on(target.node)
            if blocks_removal(pod, context.options, now) and fingerprint(pod) not in stuck
        ]
        if pods and not progress.nodes[target.node].kept:
            progress = progress.give_up(
                target.node, "NodeNotEmpty", f"pod {pods[0]} was bound to it during the drain"
            )
    return msgspec.structs.replace(progress, looked=now)


def _live_targets(operation: Operation, progress: Progress) -> list[RemovalTarget]:
    return [target for target in operation.spec.targets if target.node in progress.live]


def check_ownership(
    progress: Progress, operation: Operation, target: RemovalTarget, node: NodeState
) -> Progress:
    """Give the node up if it is another machine now, or if its taint or annotations show
    that it must not be removed."""
    if why := another_machine(operation, target, node):
        # The other machine may have joined between `look` and `taint`; it then has our
        # taint, which is removed again.
        return progress.give_up(
            target.node, "Conflict", why, untouched=node.operation != operation.spec.id
        )
    if node.operation not in ("", operation.spec.id):
        why = f"operation {node.operation} has marked it meanwhile"
        return progress.give_up(target.node, "Conflict", why, untouched=True)
    if node.taint(TO_BE_DELETED) is None:
        return progress.give_up(target.node, "Conflict", "its taint was taken off by somebody else")
    if node.scale_down_disabled:
        return progress.give_up(
            target.node, "Conflict", "annotation scale-down-disabled was set meanwhile"
        )
    return with_recovery(progress, target.node, node)


def with_recovery(progress: Progress, name: str, node: NodeState | None) -> Progress:
    """Give a sick node back whose kubelet answers again. node: as it is now. Once the vendor may
    have been asked to restart it, that is the restart's own sign."""
    known = progress.nodes[name]
    if node is None or not (known.unready and node.ready) or known.restarting:
        return progress
    return progress.give_up(name, NODE_RECOVERED, "its kubelet answers again")


def another_machine(operation: Operation, target: RemovalTarget, node: NodeState) -> str:
    """Return why a node with the planned name is not the planned node; "" where it is."""
    if target.instance and node.provider_id and node.provider_id != target.instance:
        return (
            f"another machine has taken its name ({node.provider_id}, planned was "
            f"{target.instance})"
        )
    if node.uid and operation.uid_of(target) not in ("", node.uid):
        return "it was registered anew since it was planned, so it may be another machine"
    return ""


def _unplanned_pod(
    target: RemovalTarget, progress: Progress, context: StepContext, now: float
) -> str:
    """Describe the pod that was not in the plan; empty if there is none. Where the kubelet does not
    answer, a pod that is being deleted needs no plan: it is waited for, and then left."""
    unready = progress.nodes[target.node].unready
    for pod in context.cluster.pods_on(target.node):
        if unready and pod.deleted:
            continue
        if blocks_removal(pod, context.options, now) and pod.key not in target.evict:
            return f"pod {pod.key} was bound to it after it was planned"
    for pod in context.cluster.pods_nominated(target.node):
        if not (pod.node or pod.deleted or pod.gated) and blocks_removal(pod, context.options, now):
            return f"pod {pod.key} is nominated to run on it"
    return ""


def describe(recheck: Recheck) -> str:
    """Describe the pod that blocks a node, and the rule."""
    return f"pod {recheck.pod} holds it: {recheck.rule}" if recheck.pod else recheck.rule


def fingerprint(pod: PodState) -> int:
    """Return 32 bits of the pod's identity, which differ for a successor with the same name."""
    return zlib.crc32(f"{pod.key}/{pod.uid}".encode())


def blocks_removal(pod: PodState, options: Options, now: float) -> bool:
    """Return whether this pod must be moved before the node may be removed
    (docs/reference/drain.md "Drain rules")."""
    return not (pod.daemonset or needs_no_wait(pod, options, now))


def needs_no_wait(pod: PodState, options: Options, now: float) -> bool:
    """Return whether this pod need not be waited for. An expendable pod is deleted with its node.
    Upstream waits for a pod that has been terminating for longer than its grace period and 30 s,
    and so never finishes on a node whose kubelet is dead; the planner ignores such pods (rule
    LongTerminating), and this check does the same."""
    return (
        pod.mirror
        or pod.phase in FINISHED
        or (pod.deleted > 0.0 and pod.deleted + pod.deletion_grace + OVERDUE < now)
        or pod.priority < options.expendable_pods_priority_cutoff
    )
