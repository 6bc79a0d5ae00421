"""Drains the nodes: requests evictions, a few per step, until all of a group are granted; waits
until its pods are gone; then starts the next group.

With drain-priority-config the pods of a node form groups, the least important first, and a group
begins when the one before it is gone. Without it, there is one group with the longest grace period
that max-graceful-termination-sec allows (docs/reference/drain.md "Priority groups").

No state of this is kept in a loop that waits. A round of evictions is split into steps of
EVICTIONS_PER_STEP, the last pod requested is recorded, and evictions that budgets refuse are
requested again in a later message (docs/reference/drain.md "Evictions"). Granted evictions are
recorded by the pod's identity, so a repeated step evicts no pod twice, and a successor with the
same name is not mistaken for the pod that was evicted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chalicelib.cluster.errors import ClusterError, Unauthorized
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress
from chalicelib.operations.removal_progress import (
    NodeProgress,
    Progress,
    next_step,
    read,
    stay_in_step,
)
from chalicelib.operations.step_context import Eviction, PodState, StepContext
from chalicelib.operations.steps.recheck import (
    FINISHED,
    blocks_removal,
    describe,
    fingerprint,
    needs_no_wait,
    with_recovery,
)
from chalicelib.operations.waiting import LEAST, PollBackoff
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import TERMINATION_SLACK

EVICTIONS_PER_STEP = 20
RETRY = 10.0
POLL, LONGEST_POLL = 5.0, 60.0
LONGER = 90.0
"""A terminating pod is evicted again if its remaining time exceeds its group's
grace period by more seconds."""
ONLY = -(2**31)
"""Priority of the single default group, below the priority of every pod."""

Pods = dict[str, tuple[PodState, ...]]


class EvictionGroup(msgspec.Struct, frozen=True):
    """The pods that are evicted at the same time. grace: the maximum grace
    period of its pods in seconds."""

    priority: int
    grace: float


def eviction_groups(options: Options) -> tuple[EvictionGroup, ...]:
    """Return all groups in eviction order; never empty."""
    configured = sorted(options.drain_priority_config)
    if not configured:
        return (EvictionGroup(ONLY, float(options.max_graceful_termination_sec)),)
    return tuple(EvictionGroup(priority, float(seconds)) for priority, seconds in configured)


def group_of(pod: PodState, options: Options) -> EvictionGroup:
    """Return the group with the highest priority that is not above the pod's; the first group for
    a pod below all of them."""
    groups = eviction_groups(options)
    return next((group for group in reversed(groups) if group.priority <= pod.priority), groups[0])


def grace_of(pod: PodState, options: Options) -> float:
    """Return the pod's grace period in seconds: its own (30 where it has
    none), at most its group's."""
    return min(pod.grace, group_of(pod, options).grace)


def time_of_further_groups(options: Options) -> float:
    """Return the seconds that groups add to the maximum duration of a removal: each group has its
    own time for evictions and for waiting, and policy/timeouts.py counts one of each."""
    one = options.max_pod_eviction_time + TERMINATION_SLACK
    total = sum(one + group.grace for group in eviction_groups(options))
    return max(0.0, total - one - options.max_graceful_termination_sec)


def must_go(pod: PodState, node: NodeProgress, options: Options, now: float) -> bool:
    """Return whether this pod must be gone before the node is deleted. This applies to pods that
    block a removal and, where groups are configured, to the DaemonSet pods that existed when the
    drain began. DaemonSet pods that their controller creates again are deleted with the node. An
    evicted pod is waited for even when it is long overdue, because Outscaler evicted it and its
    group's time limit applies."""
    if (pod.daemonset and fingerprint(pod) not in node.daemons) or fingerprint(pod) in node.stuck:
        return False
    if fingerprint(pod) in node.asked:
        return pod.phase not in FINISHED
    return not needs_no_wait(pod, options, now)


def evicts_daemonset_pod(pod: PodState, target: RemovalTarget, options: Options) -> bool:
    """Return whether a DaemonSet pod is evicted, best effort; its annotation overrides both options
    (docs/reference/drain.md "DaemonSet evictions")."""
    if not pod.daemonset or pod.mirror:
        return False
    if pod.enable_ds_eviction in ("true", "false"):
        return pod.enable_ds_eviction == "true"
    return (
        options.daemonset_eviction_for_occupied_nodes
        if target.evict
        else options.daemonset_eviction_for_empty_nodes
    )


def evict(operation: Operation, context: StepContext, now: float) -> InProgress:
    """Request evictions for a part of one round: the pods after the cursor. At the end of a round,
    refused evictions are requested again in 10 s, or when the API says, until max-pod-eviction-time
    has passed; then the node is given up with the names of the pod and the budget. The outcome
    names the pods that were granted and refused in this step."""
    progress = without_recovered(read(operation), context)
    if progress.to_undo:
        return next_step(operation, progress, "evict")
    pods: Pods = {name: context.cluster.pods_on(name) for name in progress.live}
    progress = _with_groups(operation, progress, pods, context.options, now)
    granted: list[str] = []
    refused: list[str] = []
    outcome: InProgress | None = None
    for count, (name, pod) in enumerate(
        list(_pods_to_evict(operation, progress, pods, context.options, now))
    ):
        if count == EVICTIONS_PER_STEP:
            outcome = stay_in_step(operation, progress, "evict", 0.0)
            break
        eviction = request_eviction(pod, context, grace_of(pod, context.options))
        context.checkpoint("evict:called")
        if eviction.accepted:
            granted += [] if eviction.gone else [pod.key]
        else:
            refused.append(pod.key)
        progress = with_eviction(progress, name, pod, eviction)
    outcome = outcome or _end_of_round(operation, progress, context, now)
    return msgspec.structs.replace(outcome, evicted=tuple(granted), refused=tuple(refused))


def without_recovered(progress: Progress, context: StepContext) -> Progress:
    """Return the progress with the nodes given up whose kubelet answers again."""
    for name in progress.live:
        if progress.nodes[name].unready:
            progress = with_recovery(progress, name, context.cluster.node(name))
    return progress


def _with_groups(
    operation: Operation, progress: Progress, pods: Pods, options: Options, now: float
) -> Progress:
    """Return the progress with each node's group of this round: the first one that still has pods.
    A new group starts its own clock. A node with a pod that was not planned to be moved is given
    up, because a rule may protect that pod."""
    for target in operation.spec.targets:
        if (name := target.node) not in progress.live:
            continue
        if stranger := _unplanned_pod(pods[name], target, options, now):
            progress = progress.give_up(
                name, "NodeNotEmpty", f"pod {stranger.key} was bound to it during the drain"
            )
            continue
        if progress.nodes[name].group is None:
            progress = progress.change(
                name, daemons=_daemonset_pods(pods[name], target, options, now)
            )
        node = progress.nodes[name]
        group = min(
            (
                group_of(pod, options).priority
                for pod in pods[name]
                if must_go(pod, node, options, now)
            ),
            default=None,
        )
        if group is not None and (node.group is None or group > node.group):
            progress = progress.change(
                name, group=group, granted=False, wait=PollBackoff(now), blocked=""
            )
    return progress


def _daemonset_pods(
    pods: tuple[PodState, ...], target: RemovalTarget, options: Options, now: float
) -> tuple[int, ...]:
    """Return the fingerprints of the DaemonSet pods that are evicted like all others: with groups
    configured, and only where a node is drained."""
    if not (options.drain_priority_config and target.evict):
        return ()
    return tuple(
        sorted(
            fingerprint(pod)
            for pod in pods
            if pod.daemonset and not needs_no_wait(pod, options, now)
        )
    )


def _unplanned_pod(
    pods: tuple[PodState, ...], target: RemovalTarget, options: Options, now: float
) -> PodState | None:
    return next(
        (
            pod
            for pod in pods
            if blocks_removal(pod, options, now) and not pod.deleted and pod.key not in target.evict
        ),
        None,
    )


def _pods_to_evict(
    operation: Operation, progress: Progress, pods: Pods, options: Options, now: float
) -> Iterator[tuple[str, PodState]]:
    """Return the pods still to evict in this round, in a fixed order: those of the group, and
    DaemonSet pods once, as the options say."""
    targets = {target.node: target for target in operation.spec.targets}
    last_node, _, last_pod = progress.cursor.partition("/")
    for name in progress.live:
        node = progress.nodes[name]
        for pod in sorted(pods[name], key=lambda pod: pod.key):
            if (name, pod.key) <= (last_node, last_pod) or fingerprint(pod) in node.asked:
                continue
            if _is_in_turn(pod, node, options, now):
                if not pod.deleted or pod.deleted - now > grace_of(pod, options) + LONGER:
                    yield name, pod
            elif not (pod.deleted or node.daemons_asked or options.drain_priority_config) and (
                evicts_daemonset_pod(pod, targets[name], options)
            ):
                yield name, pod


def _is_in_turn(pod: PodState, node: NodeProgress, options: Options, now: float) -> bool:
    """Return whether the pod must go and belongs to the node's current group or an earlier one."""
    priority = group_of(pod, options).priority
    return must_go(pod, node, options, now) and node.group is not None and priority <= node.group


def request_eviction(pod: PodState, context: StepContext, grace: float) -> Eviction:
    """Request one eviction; grace: seconds. An API error about one pod counts as a refusal of that
    pod (upstream also retries any error); only refused credentials affect all pods."""
    try:
        return context.cluster.evict(pod, grace)
    except Unauthorized:
        raise
    except ClusterError as error:
        return Eviction(accepted=False, why_not=str(error), retry_after=error.retry_after)


def with_eviction(progress: Progress, name: str, pod: PodState, eviction: Eviction) -> Progress:
    """Return the progress with the answer to one request."""
    node, progress = (
        progress.nodes[name],
        msgspec.structs.replace(progress, cursor=f"{name}/{pod.key}"),
    )
    if eviction.accepted:
        return progress.change(name, asked=(*node.asked, fingerprint(pod)))
    if pod.daemonset and fingerprint(pod) not in node.daemons:
        return progress  # best effort
    why = f"pod {pod.key} cannot be evicted: {eviction.why_not}"
    again = max(progress.again, eviction.retry_after)
    return msgspec.structs.replace(progress.change(name, blocked=node.blocked or why), again=again)


def _end_of_round(
    operation: Operation, progress: Progress, context: StepContext, now: float
) -> InProgress:
    """Finish a round: continue, request again, or give up the nodes whose
    time for evictions is over."""
    limit, blocked, remaining = context.options.max_pod_eviction_time, "", 0.0
    for name in progress.live:
        node = progress.nodes[name]
        progress = progress.change(name, daemons_asked=True, blocked="")
        tried = node.wait.elapsed(now)
        if node.blocked and tried >= limit:
            why = f"{node.blocked} (tried for {tried:.0f} s){_blocking_rule(name, context)}"
            progress = progress.give_up(name, "EvictionBlocked", why)
        elif node.blocked:
            blocked, remaining = blocked or node.blocked, max(remaining, limit - tried)
        elif not node.granted:
            progress = progress.change(name, granted=True, wait=PollBackoff(now))
    if not blocked:
        return next_step(operation, progress, "gone")
    pause = max(LEAST, min(max(RETRY, progress.again), max(RETRY, remaining)))
    for name in progress.live:
        progress = progress.change(name, wait=progress.nodes[name].wait.next(now, pause))
    if progress.to_undo:
        return next_step(operation, progress, "evict", pause)
    return stay_in_step(
        operation, msgspec.structs.replace(progress, cursor="", again=0.0), "evict", pause, blocked
    )


def _blocking_rule(name: str, context: StepContext) -> str:
    """Return the drain rules' reason for a node that is given up. The rules know all the budgets,
    while the API names only one or, with several on one pod, none."""
    try:
        verdict = context.recheck(name)
    except ClusterError:
        return ""
    return "" if verdict.clear else f"; {describe(verdict)}"


def wait_for_pods(operation: Operation, context: StepContext, now: float) -> InProgress:
    """Wait for the evicted pods, at most their group's grace period and 30 s: a pod still present
    after that keeps the node (docs/reference/drain.md "Waiting for pods"). A pod that was bound in
    spite of taint and cordon keeps it, too. A restart, and a repair whose kubelet does not answer,
    wait for a pod that is being deleted for its own grace period and 30 s, and then leave it: a
    kubelet that is dead ends no pod. A pod that nothing deletes is never left."""
    progress, options = without_recovered(read(operation), context), context.options
    restarts = operation.spec.kind is OperationKind.RESTART_NODE
    targets = {target.node: target for target in operation.spec.targets}
    pauses: dict[str, float] = {}  # nodes whose pods are waited for -> seconds until the next look
    next_group = False
    for name in progress.live:
        node, pods = progress.nodes[name], context.cluster.pods_on(name)
        leaves_ending = restarts or node.unready
        if leaves_ending:
            stuck = [
                fingerprint(pod)
                for pod in pods
                if must_go(pod, node, options, now) and _is_stuck(pod, now)
            ]
            progress = progress.change(name, stuck=(*node.stuck, *stuck))
            node = progress.nodes[name]
        remaining = [pod for pod in pods if must_go(pod, node, options, now)]
        current = [pod for pod in remaining if _is_in_turn(pod, node, options, now)]
        ends = [pod.deleted for pod in current if pod.deleted]
        limit = (
            max((group_of(pod, options).grace for pod in current), default=0.0) + TERMINATION_SLACK
        )
        stranger = _unplanned_pod(pods, targets[name], options, now) or next(
            (
                pod
                for pod in current
                if not (pod.deleted or pod.daemonset or fingerprint(pod) in node.asked)
            ),
            None,
        )
        if stranger is not None:  # a pod with a planned name counts if it is not the evicted pod
            progress = progress.give_up(
                name, "NodeNotEmpty", f"pod {stranger.key} was bound to it during the drain"
            )
        elif (
            current
            and node.wait.elapsed(now) >= limit
            and leaves_ending
            and len(ends) == len(current)
        ):
            progress = progress.change(name, stuck=(*node.stuck, *map(fingerprint, current)))
            next_group = next_group or len(remaining) > len(current)
        elif current and node.wait.elapsed(now) >= limit:
            why = f"pod {current[0].key} was evicted and has not gone in time"
            progress = progress.give_up(name, "PodNotGone", why)
        elif current:
            pauses[name] = _next_look(current, node.wait, limit, now)
            if leaves_ending and ends:
                until_stuck = min(ends) + TERMINATION_SLACK - now
                pauses[name] = max(LEAST, min(pauses[name], until_stuck))
        else:
            next_group = next_group or bool(remaining)
    pause = 0.0 if next_group else min(pauses.values(), default=0.0)
    for name in pauses:
        progress = progress.change(name, wait=progress.nodes[name].wait.next(now, pause))
    step = "evict" if next_group else "gone" if pauses else "restart" if restarts else "delay"
    return next_step(operation, progress, step, pause)


def _is_stuck(pod: PodState, now: float) -> bool:
    """Return whether a pod should have ended 30 s ago: its deletion is due
    after its own grace period."""
    return pod.deleted > 0.0 and now >= pod.deleted + TERMINATION_SLACK


def _next_look(current: list[PodState], backoff: PollBackoff, limit: float, now: float) -> float:
    """Return the seconds until the next check: soon at first, because most pods terminate early;
    then less and less often; and just after the last of them must have terminated."""
    pause = backoff.delay(now, first=POLL, most=LONGEST_POLL, limit=limit)
    remaining = max(pod.deleted for pod in current) + 2.0 - now
    return max(LEAST, min(pause, remaining if remaining > 0.0 else max(POLL, -remaining)))
