"""Decides whether a plan waits for pods that are about to be pending: one plan for a burst
costs less than several.

Two waits, one after the other: for a Deployment that still creates its pods, and for a scheduler
that has not yet looked at all of them. Both end by themselves, by the instants that the cluster has
written. Nodes are bought only for pods that the scheduler has refused: what it has not looked at is
waited for, and never counted as a need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from chalicelib.model.operation import OperationKind
from chalicelib.model.pod import QUIET_AFTER, REFUSAL_WAIT, SETTLED_AFTER, Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import GPU_RESOURCES
from chalicelib.plan.state.cluster_state import ClusterState

_SETTLE_GPU = 30.0  # seconds, in place of SETTLED_AFTER, for pods that request a GPU
# seconds without a refusal after which a scheduler no longer refuses, and a burst is over
_REFUSING_FOR = 10.0
# seconds after its creation; a pod that nobody looks at for longer is not waited for
_LOOKED_AT_WITHIN = 60.0
# a scheduler has to look at one pod for this many refused ones, or it is not waited for
_SHARE = 10
_LOOK_AGAIN = 1.0  # seconds until the next look at a scheduler that refuses pods
# Kubernetes writes instants without fractions: a refusal may be this much younger
_WHOLE_SECOND = 1.0
_CLOCKS = 2.0  # seconds that the API server's clock may be ahead; beyond, its instants say nothing
# seconds between a plan and the instant at which memory has its purchase, as a rule
_CARRIED_OUT = 2.0


def still_arriving(pods: Iterable[Pod], state: ClusterState) -> Reason | None:
    """Return a reason while pods still arrive: the planner waits briefly so that a
    Deployment can finish creating its pods. Its `left` is the seconds until the wait ends
    if no further pod arrives."""
    pending = [pod for pod in pods if not pod.node]
    if not pending or state.options.bypassed_scheduler_names:
        return None
    oldest = min(pending, key=lambda pod: pod.created)
    wait, end = _SETTLE_GPU, oldest.created + _SETTLE_GPU
    if not any(name in state.snapshot.classes[oldest.cls].requests for name in GPU_RESOURCES):
        # What arrives after a growth, or after a plan for one, gets a time of its own: a burst
        # would cause one plan after another.
        growths = (
            op.spec.created_at
            for op in state.memory.operations
            if op.spec.kind is OperationKind.SCALE_UP
        )
        last_growth = max(state.memory.last_scale_up, *growths, 0.0)
        wait, end = SETTLED_AFTER, max(oldest.created, last_growth) + SETTLED_AFTER
        end = min(end, max(pod.created for pod in pending) + QUIET_AFTER)
    # a pass that has waited may look a fraction of a millisecond early
    seconds_left = round(end - state.now, 3)
    if seconds_left <= 0:
        return None
    age = max(0, int(state.now - oldest.created))
    return Reason.of(ReasonCode.WAITING_FOR_MORE, age=age, wait=wait, left=seconds_left)


def still_refusing(
    pods: Iterable[Pod], state: ClusterState, is_wanted: Callable[[Pod], bool]
) -> Reason | None:
    """Return a reason while a scheduler that refuses pods has not looked at all of them. is_wanted:
    whether a pod that it has not looked at would be pending if it refused it. The reason's `left`
    is the seconds until the next look.

    The wait ends REFUSAL_WAIT seconds after the first refusal that no purchase has answered,
    however many pods arrive in between (docs/reference/scale-up.md "Waiting for the scheduler")."""
    classes, now = state.snapshot.classes, state.now
    answered = _last_purchase(state)
    refused = [pod for pod in pods if not pod.node and pod.refused_at + _WHOLE_SECOND > answered]
    instants = [pod.refused_at for pod in refused if 0.0 < pod.refused_at <= now + _CLOCKS]
    end = _burst_began(instants, now) + REFUSAL_WAIT
    seconds_left = round(end - now, 3)
    if seconds_left <= 0:
        return None
    refusing = Counter(
        classes[pod.cls].scheduler for pod in refused if now - pod.refused_at < _REFUSING_FOR
    )
    waiting = Counter(
        classes[pod.cls].scheduler
        for pod in state.occupancy.waiting()
        if not pod.scheduled
        and classes[pod.cls].scheduler in refusing
        and now - pod.created < _LOOKED_AT_WITHIN
        and is_wanted(pod)
    )
    # What is left of a burst after its first purchase is bought at once, and not in pieces.
    share = 0 if now - answered < _REFUSING_FOR else 1
    awaited = [
        name
        for name, unseen in sorted(waiting.items())
        if unseen * _SHARE >= share * refusing[name]
    ]
    if not awaited:
        return None
    name = max(awaited, key=lambda name: waiting[name])
    left = min(seconds_left, _LOOK_AGAIN)
    figures = {
        "refused": refusing[name],
        "unseen": waiting[name],
        "longest": seconds_left,
        "left": left,
    }
    return Reason.of(ReasonCode.WAITING_FOR_SCHEDULER, scheduler=name, **figures)


def _last_purchase(state: ClusterState) -> float:
    """Return when a plan last bought nodes for pods, by what is still open and
    by what was carried out."""
    planned = (
        operation.spec.created_at
        for operation in state.memory.operations
        if operation.spec.kind is OperationKind.SCALE_UP and not operation.spec.replacement
    )
    return max(state.memory.last_scale_up - _CARRIED_OUT, *planned, 0.0)


def _burst_began(instants: Iterable[float], now: float) -> float:
    """Return the first of the newest refusals that follow each other without a pause; 0.0 if there
    are none. An instant of the near future counts as now."""
    began = previous = 0.0
    for instant in sorted(min(instant, now) for instant in instants):
        if instant - previous >= _REFUSING_FOR:
            began = instant
        previous = instant
    return began
