"""Drains the nodes: requests evictions, a few per step, until all of a group are granted; waits until its pods are
gone; then starts the next group (operations/steps/eviction_order.py).

No state of this is kept in a loop that waits. A round of evictions is split into steps of EVICTIONS_PER_STEP, the last
pod requested is recorded, and evictions that budgets refuse are requested again in a later message
(docs/reference/drain.md "Evictions"). Granted evictions are recorded by the pod's identity, so a repeated step evicts
no pod twice, and a successor with the same name is not mistaken for the pod that was evicted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chalicelib.kube.errors import ClusterError, Unauthorized
from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.model.outcome import InProgress
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import TERMINATION_SLACK
from chalicelib.operations.poll_backoff import LEAST, PollBackoff
from chalicelib.operations.removal_progress import NodeProgress, Progress, next_step, read, stay_in_step
from chalicelib.operations.step_context import Eviction, PodState, StepContext
from chalicelib.operations.steps.eviction_order import daemon_goes, daemons, fingerprint, grace_of, must_go, phase_of
from chalicelib.operations.steps.recheck import blocking_pods, describe

EVICTIONS_PER_STEP = 20
RETRY = 10.0
POLL, LONGEST_POLL = 5.0, 60.0
LONGER = 90.0
"""A terminating pod is evicted again if its remaining time exceeds its group's grace period by more seconds."""

Pods = dict[str, tuple[PodState, ...]]


def evict(operation: Operation, context: StepContext, now: float) -> InProgress:
    """Request evictions for a part of one round: the pods after the cursor. At the end of a round, refused evictions
    are requested again in 10 s, or when the API says, until max-pod-eviction-time has passed; then the node is given
    up with the names of the pod and the budget. The outcome names the pods that were granted and refused in this
    step."""
    progress = read(operation)
    pods: Pods = {name: context.cluster.pods_on(name) for name in progress.live}
    progress = _begun(operation, progress, pods, context.options, now)
    granted: list[str] = []
    refused: list[str] = []
    outcome: InProgress | None = None
    for count, (name, pod) in enumerate(list(_to_ask(operation, progress, pods, context.options, now))):
        if count == EVICTIONS_PER_STEP:
            outcome = stay_in_step(operation, progress, "evict", 0.0)
            break
        answer = _ask(pod, context)
        context.checkpoint("evict:called")
        if answer.accepted:
            granted += [] if answer.gone else [pod.key]
        else:
            refused.append(pod.key)
        progress = msgspec.structs.replace(_answered(progress, name, pod, answer), cursor=f"{name}/{pod.key}")
    outcome = outcome or _end_of_round(operation, progress, context, now)
    return msgspec.structs.replace(outcome, evicted=tuple(granted), refused=tuple(refused))


def _begun(operation: Operation, progress: Progress, pods: Pods, options: Options, now: float) -> Progress:
    """Return each node's group of this round: the first one that still has pods. A new group starts its own clock. A
    node with a pod that was not planned to be moved is given up, because a rule may protect that pod."""
    for target in operation.spec.targets:
        if (name := target.node) not in progress.live:
            continue
        if stranger := _unplanned(pods[name], target, options, now):
            progress = progress.give_up(name, "NodeNotEmpty", f"pod {stranger.key} was bound to it during the drain")
            continue
        if progress.nodes[name].group is None:
            progress = progress.change(name, daemons=daemons(pods[name], target, options, now))
        node = progress.nodes[name]
        left = [phase_of(pod, options).priority for pod in pods[name] if must_go(pod, node, options, now)]
        group = min(left, default=node.group)
        if left and (node.group is None or min(left) > node.group):
            progress = progress.change(name, group=group, granted=False, wait=PollBackoff(now), blocked="")
    return progress


def _unplanned(pods: tuple[PodState, ...], target: RemovalTarget, options: Options, now: float) -> PodState | None:
    return next(
        (pod for pod in pods if blocking_pods(pod, options, now) and not pod.deleted and pod.key not in target.evict),
        None,
    )


def _to_ask(
    operation: Operation, progress: Progress, pods: Pods, options: Options, now: float
) -> Iterator[tuple[str, PodState]]:
    """Return the pods still to evict in this round, in a fixed order: those of the group, and DaemonSet pods once, as
    the options say."""
    targets = {target.node: target for target in operation.spec.targets}
    done, _, last = progress.cursor.partition("/")
    for name in progress.live:
        node = progress.nodes[name]
        for pod in sorted(pods[name], key=lambda each: each.key):
            if (name, pod.key) <= (done, last) or fingerprint(pod) in node.asked:
                continue
            if _in_turn(pod, node, options, now):
                if not pod.deleted or pod.deleted - now > grace_of(pod, options) + LONGER:
                    yield name, pod
            elif not (pod.deleted or node.daemons_asked or options.drain_priority_config) and (
                daemon_goes(pod, targets[name], options)
            ):
                yield name, pod


def _in_turn(pod: PodState, node: NodeProgress, options: Options, now: float) -> bool:
    """Return whether the pod must go and belongs to the node's current group or an earlier one."""
    first = phase_of(pod, options).priority
    return must_go(pod, node, options, now) and node.group is not None and first <= node.group


def _ask(pod: PodState, context: StepContext) -> Eviction:
    """Request one eviction. An API error about one pod counts as a refusal of that pod (upstream also retries any
    error); only refused credentials affect all pods."""
    try:
        return context.cluster.evict(pod, grace_of(pod, context.options))
    except Unauthorized:
        raise
    except ClusterError as error:
        return Eviction(accepted=False, why_not=str(error), retry_after=error.retry_after)


def _answered(progress: Progress, name: str, pod: PodState, eviction: Eviction) -> Progress:
    node = progress.nodes[name]
    if eviction.accepted:
        return progress.change(name, asked=(*node.asked, fingerprint(pod)))
    if pod.daemonset and fingerprint(pod) not in node.daemons:
        return progress  # best effort
    why = f"pod {pod.key} cannot be evicted: {eviction.why_not}"
    again = max(progress.again, eviction.retry_after)
    return msgspec.structs.replace(progress.change(name, blocked=node.blocked or why), again=again)


def _end_of_round(operation: Operation, progress: Progress, context: StepContext, now: float) -> InProgress:
    """Finish a round: continue, request again, or give up the nodes whose time for evictions is over."""
    limit, waiting, left = context.options.max_pod_eviction_time, "", 0.0
    for name in progress.live:
        node = progress.nodes[name]
        progress = progress.change(name, daemons_asked=True, blocked="")
        tried = node.wait.elapsed(now)
        if node.blocked and tried >= limit:
            why = f"{node.blocked} (tried for {tried:.0f} s){_rules(name, context)}"
            progress = progress.give_up(name, "EvictionBlocked", why)
        elif node.blocked:
            waiting, left = waiting or node.blocked, max(left, limit - tried)
        elif not node.granted:
            progress = progress.change(name, granted=True, wait=PollBackoff(now))
    if not waiting:
        return next_step(operation, progress, "gone")
    pause = max(LEAST, min(max(RETRY, progress.again), max(RETRY, left)))
    for name in progress.live:
        progress = progress.change(name, wait=progress.nodes[name].wait.next(now, pause))
    if progress.to_undo:
        return next_step(operation, progress, "evict", pause)
    return stay_in_step(operation, msgspec.structs.replace(progress, cursor="", again=0.0), "evict", pause, waiting)


def _rules(name: str, context: StepContext) -> str:
    """Return the drain rules' reason for a node that is given up. The rules know all the budgets, while the API names
    only one or, with several on one pod, none."""
    try:
        verdict = context.recheck(name)
    except ClusterError:
        return ""
    return "" if verdict.clear else f"; {describe(verdict)}"


def gone(operation: Operation, context: StepContext, now: float) -> InProgress:
    """Wait for the evicted pods, at most their group's grace period and 30 s: a pod still present after that keeps the
    node (docs/reference/drain.md "Waiting for pods"). A pod that was bound in spite of taint and cordon keeps it,
    too."""
    progress = read(operation)
    targets = {target.node: target for target in operation.spec.targets}
    waiting: list[tuple[str, float]] = []
    next_group = False
    for name in progress.live:
        node, options = progress.nodes[name], context.options
        pods = context.cluster.pods_on(name)
        here = [pod for pod in pods if must_go(pod, node, options, now)]
        current = [pod for pod in here if _in_turn(pod, node, options, now)]
        limit = max((phase_of(pod, options).grace for pod in current), default=0.0) + TERMINATION_SLACK
        stranger = _unplanned(pods, targets[name], options, now) or next(
            (pod for pod in current if not (pod.deleted or pod.daemonset or fingerprint(pod) in node.asked)), None
        )
        if stranger is not None:  # a pod with a planned name counts if it is not the evicted pod
            progress = progress.give_up(name, "NodeNotEmpty", f"pod {stranger.key} was bound to it during the drain")
        elif current and node.wait.elapsed(now) >= limit:
            progress = progress.give_up(
                name, "PodNotGone", f"pod {current[0].key} was evicted and has not gone in time"
            )
        elif current:
            waiting.append((name, _next_look(current, node.wait, limit, now)))
        else:
            next_group = next_group or bool(here)
    pause = 0.0 if next_group else min((after for _, after in waiting), default=0.0)
    for name, _ in waiting:
        progress = progress.change(name, wait=progress.nodes[name].wait.next(now, pause))
    step = "evict" if next_group else "gone" if waiting else "delay"
    return next_step(operation, progress, step, pause)


def _next_look(current: list[PodState], backoff: PollBackoff, limit: float, now: float) -> float:
    """Return the seconds until the next check: soon at first, because most pods terminate early; then less and less
    often; and just after the last of them must have terminated."""
    pause = backoff.delay(now, first=POLL, most=LONGEST_POLL, limit=limit)
    left = max(pod.deleted for pod in current) + 2.0 - now
    if left > 0.0:
        return max(LEAST, min(pause, left))
    return max(LEAST, min(pause, max(POLL, -left)))
