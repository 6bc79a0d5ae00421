"""Empty the nodes: ask for evictions, a few per step, until all are granted; then wait until the pods are gone.

Nothing of this lives in a loop that waits. A round of evictions is cut into steps of EVICTIONS_PER_STEP, the last pod
asked is recorded, and what the budgets refuse is asked again in a later message (scale-down.md §10).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chalicelib.execute.progress import Progress, onward, read, stay
from chalicelib.execute.recheck import holds
from chalicelib.execute.world import Eviction, PodState, World
from chalicelib.kube.errors import ClusterError, Unauthorized
from chalicelib.model.operation import Operation, Target
from chalicelib.model.outcome import Outcome
from chalicelib.model.policy import Options

EVICTIONS_PER_STEP = 20
RETRY = 10.0
POLL = 5.0
SLACK = 30.0


def evict(operation: Operation, world: World, now: float) -> Outcome:
    """A part of one round: the pods after the cursor. At the end of a round, refused ones are asked again in 10 s,
    until max-pod-eviction-time is over and the node is given up by the name of the pod and the budget."""
    progress, last = _timed(read(operation), now), ""
    pods = {name: world.cluster.pods_on(name) for name in progress.live}
    for count, (name, pod) in enumerate(_to_ask(operation, progress, pods, world.options, now)):
        if count == EVICTIONS_PER_STEP:
            return stay(operation, msgspec.structs.replace(progress, cursor=last), "evict", 0.0)
        answer = _ask(pod, world)
        world.checkpoint("evict:called")
        if not answer.accepted and not pod.daemonset:
            progress = progress.change(name, blocked=f"pod {pod.key} cannot be evicted: {answer.why_not}")
        last = f"{name}/{pod.key}"
    return _end_of_round(operation, progress, pods, world, now)


def _timed(progress: Progress, now: float) -> Progress:
    """The clock of max-pod-eviction-time starts with the first eviction asked for on a node."""
    for name in progress.live:
        if not progress.nodes[name].evicting_since:
            progress = progress.change(name, evicting_since=now)
    return progress


def _to_ask(operation: Operation, progress: Progress, pods: dict[str, tuple[PodState, ...]], options: Options,
            now: float) -> Iterator[tuple[str, PodState]]:
    """The pods still to ask in this round, in a fixed order: those that must go, and DaemonSet pods once, as the
    options say."""
    targets = {target.node: target for target in operation.targets}
    for name in progress.live:
        for pod in sorted(pods[name], key=lambda each: each.key):
            if pod.deleted or f"{name}/{pod.key}" <= progress.cursor:
                continue
            asked = progress.nodes[name].daemons_asked
            if holds(pod, options, now) or (not asked and _daemon_goes(pod, targets[name], options)):
                yield name, pod


def _daemon_goes(pod: PodState, target: Target, options: Options) -> bool:
    """Whether a DaemonSet pod is evicted, best effort; its annotation overrides both options (scale-down.md §6)."""
    if not pod.daemonset or pod.mirror:
        return False
    if pod.enable_ds_eviction in ("true", "false"):
        return pod.enable_ds_eviction == "true"
    return options.daemonset_eviction_for_occupied_nodes if target.evict else options.daemonset_eviction_for_empty_nodes


def _ask(pod: PodState, world: World) -> Eviction:
    """One eviction. An API error about one pod is a refusal of that pod (upstream retries any error alike); only
    refused credentials say something about all of them."""
    try:
        return world.cluster.evict(pod, grace_of(pod, world.options))
    except Unauthorized:
        raise
    except ClusterError as error:
        return Eviction(accepted=False, why_not=str(error))


def grace_of(pod: PodState, options: Options) -> float:
    """Seconds the pod gets: its own, at most max-graceful-termination-sec."""
    return min(pod.grace, float(options.max_graceful_termination_sec))


def _end_of_round(operation: Operation, progress: Progress, pods: dict[str, tuple[PodState, ...]], world: World,
                  now: float) -> Outcome:
    """All asked: go on, ask again, or give up the nodes whose time for evictions is over."""
    waiting = ""
    for name in progress.live:
        node = progress.nodes[name]
        graces = [grace_of(pod, world.options) for pod in pods[name] if holds(pod, world.options, now)]
        tried = now - node.evicting_since
        progress = progress.change(name, daemons_asked=True, blocked="",
                                   gone_by=now + max(graces, default=0.0) + SLACK)
        if node.blocked and tried >= world.options.max_pod_eviction_time:
            progress = progress.keep(name, "EvictionBlocked", f"{node.blocked} (tried for {tried:.0f} s)")
        elif node.blocked:
            waiting = waiting or node.blocked
    if waiting and not progress.to_undo:
        return stay(operation, msgspec.structs.replace(progress, cursor=""), "evict", RETRY, waiting)
    return onward(operation, progress, "evict" if waiting else "gone")


def gone(operation: Operation, world: World, now: float) -> Outcome:
    """Wait for the evicted pods, at most their grace and 30 s: a pod still there then keeps the node (scale-down.md
    §10, 5). A pod that came in spite of taint and cordon keeps it too."""
    progress = read(operation)
    targets = {target.node: target for target in operation.targets}
    step = ""
    for name in progress.live:
        here = [pod for pod in world.cluster.pods_on(name) if holds(pod, world.options, now)]
        alive = [pod for pod in here if not pod.deleted]
        if stranger := next((pod for pod in alive if pod.key not in targets[name].evict), None):
            progress = progress.keep(name, "NodeNotEmpty", f"pod {stranger.key} was bound to it during the drain")
        elif here and now >= progress.nodes[name].gone_by:
            progress = progress.keep(name, "PodNotGone", f"pod {here[0].key} was evicted and has not gone in time")
        elif alive:
            step = "evict"
        elif here:
            step = step or "gone"
    if not step or progress.to_undo:
        return onward(operation, progress, step or "delay")
    return stay(operation, msgspec.structs.replace(progress, cursor=""), step, POLL)


def delay(operation: Operation, world: World, now: float) -> Outcome:
    """Others may hold the deletion back by an annotation, at most node-deletion-delay-timeout (scale-down.md §9, 6)."""
    progress = read(operation)
    since = progress.since or now
    if now - since < world.options.node_deletion_delay_timeout:
        nodes = [world.cluster.node(name) for name in progress.live]
        held = [f"{node.name} by {node.delays[0]}" for node in nodes if node and node.delays]
        if held:
            later = msgspec.structs.replace(progress, since=since)
            return stay(operation, later, "delay", POLL, f"deletion delayed: {', '.join(held)}")
    return onward(operation, progress, "delete")
