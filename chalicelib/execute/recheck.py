"""Look again after the taint and before the first eviction: what has been bound to the node meanwhile?

Upstream's own logs show a pod bound 371 ms before its node was deleted as empty (demands.md 7). The scheduler has had
the delay after the taint to notice; what it bound before is seen here, and a pod that the plan did not know keeps the
node. The full drain rules come from outside (World.recheck), since they need more of the cluster than one node.
"""

from __future__ import annotations

from chalicelib.execute.progress import onward, read
from chalicelib.execute.world import PodState, Recheck, World
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import Operation, Target
from chalicelib.model.outcome import Outcome
from chalicelib.model.policy import Options

OVERDUE = 30.0
FINISHED = frozenset({"Succeeded", "Failed"})


def recheck(operation: Operation, world: World, now: float) -> Outcome:
    """Every node again: still there, still marked, nothing new on it, no rule against it."""
    progress = read(operation)
    targets = {target.node: target for target in operation.targets}
    for name in progress.live:
        node = world.cluster.node(name)
        if node is None:
            progress = progress.keep(name, "NotFound", "the node no longer exists", untouched=True)
        elif node.taint(TO_BE_DELETED) is None:
            progress = progress.keep(name, "Conflict", "its taint was taken off by somebody else")
        elif node.scale_down_disabled:
            progress = progress.keep(name, "Conflict", "annotation scale-down-disabled was set meanwhile")
        elif why := _occupied(targets[name], world, now):
            progress = progress.keep(name, "NodeNotEmpty", why)
        elif not (verdict := world.recheck(name)).clear:
            progress = progress.keep(name, "NodeNotEmpty", _blocked(verdict))
    return onward(operation, progress, "evict")


def _occupied(target: Target, world: World, now: float) -> str:
    """The pod that was not in the plan, in words; empty if there is none."""
    for pod in world.cluster.pods_on(target.node):
        if holds(pod, world.options, now) and pod.key not in target.evict:
            return f"pod {pod.key} was bound to it after it was planned"
    for pod in world.cluster.pods_nominated(target.node):
        if not pod.node and not pod.deleted:
            return f"pod {pod.key} is nominated to run on it"
    return ""


def _blocked(verdict: Recheck) -> str:
    return f"pod {verdict.pod} holds it: {verdict.rule}" if verdict.pod else verdict.rule


def holds(pod: PodState, options: Options, now: float) -> bool:
    """This pod must be moved before the node may go (scale-down.md §6 rules 1, 2 and 4; §10, 1). An expendable pod dies
    with its node. Upstream waits for a pod long overdue and so never finishes on a node whose kubelet is dead; the
    planner ignores such pods, and so do we here."""
    return not (pod.mirror or pod.daemonset or pod.phase in FINISHED or overdue(pod, now)
                or pod.priority < options.expendable_pods_priority_cutoff)


def overdue(pod: PodState, now: float) -> bool:
    """Terminating for longer than its grace period and 30 s (rule LongTerminating)."""
    return pod.deleted > 0.0 and pod.deleted + pod.deletion_grace + OVERDUE < now
