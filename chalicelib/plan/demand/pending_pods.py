"""Collects pending pods: separates those that may cause a scale-up from those that may
not, each with its reason.

Counted pods are queued in the order of the scheduler: higher priority first, then older, then by
name, so that the input order does not matter. Consecutive pods of one class form one batch.
"""

from __future__ import annotations

from itertools import groupby

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.plan import IgnoredPods
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.quantity import parse_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand import Demand, blocking_reason
from chalicelib.plan.demand.arriving_pods import still_arriving, still_refusing
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.policy.settings.cluster_options import Options

# Dropped only after the search for room on existing nodes.
_BYSTANDERS = frozenset({ReasonCode.DAEMONSET_POD, ReasonCode.TOO_YOUNG})


class PodBatch(Demand, frozen=True):
    """Pods of one class that need a node, in order. DaemonSet pods and young pods only use
    existing room: they have a verdict."""

    cls: int
    pods: tuple[Pod, ...]

    @property
    def owner(self) -> str:
        """The first pod."""
        return self.pods[0].key

    @property
    def counts(self) -> bool:
        """True if a node may be bought for these pods."""
        return self.verdict is None

    def only(self, pods: tuple[Pod, ...]) -> PodBatch:
        """Return the batch with these pods alone."""
        return PodBatch(self.cls, pods, verdict=self.verdict)


class PendingPods(msgspec.Struct, frozen=True):
    """Pods that need a node, pods that do not, and pods that occupy a node
    without being bound to it yet."""

    queue: tuple[PodBatch, ...]
    ignored: tuple[IgnoredPods, ...]
    nominated: tuple[Pod, ...]
    hold: Reason | None = None  # why removals are blocked as well
    notes: tuple[Reason, ...] = ()  # a wait that is left out


def collect_pending_pods(state: ClusterState, *, wait: bool = True) -> PendingPods:
    """Sort all pods without a node, and the pods of nodes being drained. wait: whether pods may
    wait for the scheduler; if not, a note says that they would.

    If no scale-up is allowed, all pods are dropped from the queue. With rules-only scale-up, pods
    use the existing room and keep a node that they will run on, but buy no nodes.
    """
    classes = state.snapshot.classes
    waiting: list[Pod] = []
    bystanders: list[tuple[Pod, Reason]] = []
    nominated: list[Pod] = []
    ignored: dict[tuple[int, Reason | str], tuple[Reason, list[str]]] = {}
    for node in sorted(state.leaving):
        # Pods that will need another node because their controller recreates them.
        waiting += [
            pod
            for pod in state.occupancy.on(node)
            if not pod.deleted
            and not classes[pod.cls].mirror
            and not classes[pod.cls].is_daemonset
            and classes[pod.cls].owner is not None
        ]
    for pod in state.occupancy.waiting():
        reason = _why_ignored(pod, classes[pod.cls], state.options, state.now)
        if reason is None:
            waiting.append(pod)
            continue
        if reason.code is ReasonCode.NOMINATED:
            nominated.append(pod)
        elif reason.code in _BYSTANDERS:
            bystanders.append((pod, reason))
        ignored.setdefault((pod.cls, msgspec.json.encode(reason).decode()), (reason, []))[1].append(
            pod.key
        )
    hold = still_arriving(waiting, state)
    refusing = (
        None
        if hold is not None
        else still_refusing(waiting, state, lambda pod: _is_wanted(pod, state))
    )
    notes = () if wait or refusing is None else (refusing,)
    if hold is None and wait:
        hold = refusing
    if hold is not None:
        # Pods of nodes that their vendor takes back have no time to wait.
        urgent = [pod for pod in waiting if pod.node in state.at_risk]
        ignored[(-1, "waiting")] = (
            hold,
            [pod.key for pod in waiting if pod.node not in state.at_risk],
        )
        waiting = urgent
    entries: list[tuple[Pod, Reason | None]] = [*((pod, None) for pod in waiting), *bystanders]
    entries.sort(
        key=lambda entry: (
            -(classes[entry[0].cls].priority or 0),
            entry[0].created,
            entry[0].namespace,
            entry[0].name,
        )
    )
    queue: list[PodBatch] = []
    for (cls, _), group in groupby(entries, key=lambda entry: (entry[0].cls, entry[1] is None)):
        run = list(group)
        queue.append(PodBatch(cls, tuple(pod for pod, _ in run), verdict=run[0][1]))
    blocked = blocking_reason(state)
    refusal = (
        blocked
        if state.policy.scale_up.unschedulable_pods
        else blocked or Reason.of(ReasonCode.PODS_OFF)
    )
    if refusal is not None:
        refused = [pod.key for batch in queue if batch.counts for pod in batch.pods]
        if refused:
            ignored[(-1, "refused")] = (refusal, refused)
        queue = [
            msgspec.structs.replace(batch, verdict=batch.verdict or refusal)
            for batch in queue
            if blocked is None
        ]
    return PendingPods(
        queue=tuple(queue),
        nominated=tuple(nominated),
        hold=hold,
        notes=notes,
        ignored=tuple(
            IgnoredPods(tuple(sorted(pods)), reason) for reason, pods in ignored.values()
        ),
    )


def is_expendable(pod_class: PodClass, options: Options) -> bool:
    """Return whether a set priority is strictly below the cutoff: such a pod neither causes a
    scale-up nor keeps a node."""
    return (
        pod_class.priority is not None
        and pod_class.priority < options.expendable_pods_priority_cutoff
    )


def _why_ignored(pod: Pod, pod_class: PodClass, options: Options, now: float) -> Reason | None:
    """Return why a pod without a node does not count, None if it does. The first match wins, in
    Cluster Autoscaler's order."""
    if (
        options.allowed_scheduler_names
        and pod_class.scheduler not in options.allowed_scheduler_names
    ):
        return Reason.of(ReasonCode.OTHER_SCHEDULER, scheduler=pod_class.scheduler)
    if pod.deleted:
        return Reason.of(ReasonCode.TERMINATING)
    gated = bool(pod_class.gates) or pod.scheduled_reason == "SchedulingGated"
    expendable = is_expendable(pod_class, options)
    # these pods get no room of other pods, whatever they are nominated for
    if pod.nominated and not gated and not expendable:
        return Reason.of(ReasonCode.NOMINATED, node=pod.nominated)
    unseen = pod.scheduled == "" or (pod.scheduled == "False" and not pod.scheduled_reason)
    refused = pod.scheduled == "False" and pod.scheduled_reason == "Unschedulable"
    if not refused and not (unseen and pod_class.scheduler in options.bypassed_scheduler_names):
        gates = ", ".join(pod_class.gates)
        return (
            Reason.of(ReasonCode.SCHEDULING_GATED, gates=gates)
            if gated
            else Reason.of(ReasonCode.NOT_YET_SEEN)
        )
    if expendable:
        cutoff = options.expendable_pods_priority_cutoff
        return Reason.of(ReasonCode.EXPENDABLE, priority=pod_class.priority or 0, cutoff=cutoff)
    return (
        Reason.of(ReasonCode.DAEMONSET_POD)
        if pod_class.is_daemonset
        else _too_young(pod, pod_class, options, now)
    )


def _is_wanted(pod: Pod, state: ClusterState) -> bool:
    """Return whether a pod, which the scheduler has not looked at, would be pending if
    the scheduler refused it."""
    pod_class = state.snapshot.classes[pod.cls]
    reason = _why_ignored(pod, pod_class, state.options, state.now)
    if reason is None or reason.code is not ReasonCode.NOT_YET_SEEN:
        return False
    refused = msgspec.structs.replace(pod, scheduled="False", scheduled_reason="Unschedulable")
    return _why_ignored(refused, pod_class, state.options, state.now) is None


def _too_young(pod: Pod, pod_class: PodClass, options: Options, now: float) -> Reason | None:
    """Return a reason if the pod is young: it counts only when strictly older than its delay. The
    annotation may only lengthen the option's value, and an unreadable one counts as absent."""
    try:
        own = parse_duration(pod_class.scale_up_delay) if pod_class.scale_up_delay else 0.0
    except BadInput:
        own = 0.0
    delay, age = max(own, options.new_pod_scale_up_delay), now - pod.created
    return (
        Reason.of(ReasonCode.TOO_YOUNG, age=max(0, int(age)), delay=delay)
        if delay > 0 and not age > delay
        else None
    )
