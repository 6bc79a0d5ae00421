"""Which pods want a node (scale-up.md §2): sorted into those that count and those that do not, each with its reason.

Pods that count stand in a queue in the order in which the scheduler takes them: higher priority first, then older, then
by name, so that the order of the input does not matter. Neighbours of one class are one demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.plan import IgnoredPods
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.policy import Options
from chalicelib.model.quantity import parse_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import GPU_RESOURCES
from chalicelib.plan.state.cluster_state import ClusterState

_SETTLE, _SETTLE_GPU = 2.0, 30.0  # seconds the oldest pending pod must have waited
_BYSTANDERS = frozenset(
    {ReasonCode.DAEMONSET_POD, ReasonCode.TOO_YOUNG}
)  # dropped only after "schedulable elsewhere" (§2)


class PodBatch(msgspec.Struct, frozen=True):
    """Pods of one class that want a node, in order. counts: whether a node may be bought for them; DaemonSet pods and
    young ones only take the room that there is."""

    cls: int
    pods: tuple[Pod, ...]
    counts: bool = True


class PendingPods(msgspec.Struct, frozen=True):
    """What wants a node, what does not, and what occupies one without being bound to it yet."""

    queue: tuple[PodBatch, ...]
    ignored: tuple[IgnoredPods, ...]
    nominated: tuple[Pod, ...]
    hold: Reason | None = None  # why nothing is removed either


def collect_pending_pods(world: ClusterState) -> PendingPods:
    """Sort all pods without a node, and the pods of nodes being drained."""
    wanted: list[Pod] = []
    bystanders: list[Pod] = []
    nominated: list[Pod] = []
    ignored: dict[tuple[int, Reason | str], tuple[Reason, list[str]]] = {}
    for node in sorted(world.leaving):
        wanted += [pod for pod in world.occupancy.on(node) if _comes_back(pod, world.snapshot.classes[pod.cls])]
    for pod in world.occupancy.waiting():
        reason = _reason(pod, world.snapshot.classes[pod.cls], world.options, world.now)
        if reason is None:
            wanted.append(pod)
            continue
        if reason.code is ReasonCode.NOMINATED:
            nominated.append(pod)
        elif reason.code in _BYSTANDERS:
            bystanders.append(pod)
        ignored.setdefault((pod.cls, msgspec.json.encode(reason).decode()), (reason, []))[1].append(pod.key)
    waiting = _too_fresh(wanted, world)
    if waiting is not None:
        ignored[(-1, "waiting")] = (waiting, [pod.key for pod in wanted])
        wanted = []
    return PendingPods(
        queue=tuple(_queue(wanted, bystanders, world.snapshot.classes)),
        nominated=tuple(nominated),
        hold=waiting,
        ignored=tuple(IgnoredPods(tuple(sorted(pods)), reason) for reason, pods in ignored.values()),
    )


def is_expendable(cls: PodClass, options: Options) -> bool:
    """A set priority strictly below the cutoff: neither a reason to grow nor one to keep a node."""
    return cls.priority is not None and cls.priority < options.expendable_pods_priority_cutoff


def _reason(pod: Pod, cls: PodClass, options: Options, now: float) -> Reason | None:
    """Why a pod without a node does not count, None if it does. First match wins, in the order of scale-up.md §2."""
    if options.allowed_scheduler_names and cls.scheduler not in options.allowed_scheduler_names:
        return Reason.of(ReasonCode.OTHER_SCHEDULER, scheduler=cls.scheduler)
    if pod.deleted:
        return Reason.of(ReasonCode.TERMINATING)
    gated = bool(cls.gates) or pod.scheduled_reason == "SchedulingGated"
    expendable = is_expendable(cls, options)
    if pod.nominated and not gated and not expendable:  # the room of others is not for these, whoever nominates them
        return Reason.of(ReasonCode.NOMINATED, node=pod.nominated)
    unseen = pod.scheduled == "" or (pod.scheduled == "False" and not pod.scheduled_reason)
    refused = pod.scheduled == "False" and pod.scheduled_reason == "Unschedulable"
    if not refused and not (unseen and cls.scheduler in options.bypassed_scheduler_names):
        return (
            Reason.of(ReasonCode.SCHEDULING_GATED, gates=", ".join(cls.gates))
            if gated
            else Reason.of(ReasonCode.NOT_YET_SEEN)
        )
    if expendable:
        return Reason.of(
            ReasonCode.EXPENDABLE, priority=cls.priority or 0, cutoff=options.expendable_pods_priority_cutoff
        )
    return Reason.of(ReasonCode.DAEMONSET_POD) if cls.is_daemonset else _young(pod, cls, options, now)


def _young(pod: Pod, cls: PodClass, options: Options, now: float) -> Reason | None:
    """Looked at only when strictly older than its delay."""
    delay, age = _delay(cls, options), now - pod.created
    return Reason.of(ReasonCode.TOO_YOUNG, age=max(0, int(age)), delay=delay) if delay > 0 and not age > delay else None


def _delay(cls: PodClass, options: Options) -> float:
    """The annotation may only lengthen the flag; one that cannot be read counts as absent."""
    try:
        own = parse_duration(cls.scale_up_delay) if cls.scale_up_delay else 0.0
    except BadInput:
        own = 0.0
    return max(own, options.new_pod_scale_up_delay)


def _comes_back(pod: Pod, cls: PodClass) -> bool:
    """Whether a pod on a leaving node will want another one: its controller makes it again."""
    return not pod.deleted and not cls.mirror and not cls.is_daemonset and cls.owner is not None


def _too_fresh(wanted: list[Pod], world: ClusterState) -> Reason | None:
    """All of them very new: wait a moment, so that a Deployment finishes creating its pods (scale-up.md §2)."""
    pending = [pod for pod in wanted if not pod.node]
    if not pending or world.options.bypassed_scheduler_names:
        return None
    oldest = min(pending, key=lambda pod: pod.created)
    gpu = any(name in world.snapshot.classes[oldest.cls].requests for name in GPU_RESOURCES)
    wait, age = _SETTLE_GPU if gpu else _SETTLE, world.now - oldest.created
    return Reason.of(ReasonCode.WAITING_FOR_MORE, age=max(0, int(age)), wait=wait) if age < wait else None


def _queue(pods: list[Pod], bystanders: list[Pod], classes: tuple[PodClass, ...]) -> Iterator[PodBatch]:
    """Runs of pods of one class, in the scheduler's order."""
    everybody = [*((pod, True) for pod in pods), *((pod, False) for pod in bystanders)]
    everybody.sort(
        key=lambda each: (-(classes[each[0].cls].priority or 0), each[0].created, each[0].namespace, each[0].name)
    )
    for (cls, counts), run in groupby(everybody, key=lambda each: (each[0].cls, each[1])):
        yield PodBatch(cls, tuple(pod for pod, _ in run), counts)
