"""Advice for an operator about a node that cannot be removed: one line per reason, printed under `outscaler explain
node`.

reasons/text.py turns reasons into sentences; this module adds advice, which is only useful to an operator who asks. A
drain rule's advice is part of its sentence, because a pod's owner also reads it in events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from chalicelib.model.reason import Reason, ReasonCode

_Advice = Callable[[Reason, str], str]


def remedy(reason: Reason, cluster: str) -> str:
    """Return the advice without a full stop; empty where the reason's own sentence contains it. cluster: its name, for
    commands.

    RecentlyUnremovable returns the advice for the cause that the last simulation of the node found.
    """
    if reason.code is ReasonCode.RECENTLY_UNREMOVABLE and "was" in reason.params:
        was = {name: value for name, value in reason.params.items() if name not in {"until", "was"}}
        return remedy(Reason(ReasonCode(str(reason.params["was"])), was), cluster)
    advice = _ADVICE.get(reason.code)
    return advice(reason, cluster) if advice is not None else ""


def due(reason: Reason) -> float:
    """Return the instant at which the reason expires by itself, epoch seconds; 0.0 where it does not expire."""
    params = reason.params
    if "until" in params:
        return float(params["until"])
    return float(params["since"]) + float(params["needs"]) if {"since", "needs"} <= params.keys() else 0.0


def _always(words: str) -> _Advice:
    return lambda _reason, _cluster: words


def _threshold(reason: Reason, cluster: str) -> str:
    del cluster
    option = (
        "scaleDownUtilizationThreshold"
        if reason.params.get("resource") in ("cpu", "memory")
        else "scaleDownGpuUtilizationThreshold"
    )
    return f"let its pods ask for less, or raise {option}"


def _cooldown(reason: Reason, cluster: str) -> str:
    del cluster
    return f"nothing but time; {reason.params.get('which', 'a cooldown')} says how long"


def _release(reason: Reason, cluster: str) -> str:
    del reason
    return f"see whether so many nodes may really go, then: outscaler release {cluster}"


def _siblings(reason: Reason, cluster: str) -> str:
    del reason
    return f"see why the group's other nodes stay: outscaler explain group GROUP --cluster {cluster}"


def _resume(reason: Reason, cluster: str) -> str:
    del reason
    return f"end the pause: outscaler resume {cluster}; it ends by itself, too"


def _more(reason: Reason, cluster: str) -> str:
    del reason
    return f"nothing but time; spec.maxDisruption says how many, and outscaler release {cluster} lifts it for a while"


_ADVICE: Mapping[ReasonCode, _Advice] = MappingProxyType(
    {
        ReasonCode.SCALE_DOWN_DISABLED: _always("set scaleDownEnabled to true"),
        ReasonCode.SCALE_DOWN_DISABLED_ANNOTATION: _always(
            "take the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled off the node"
        ),
        ReasonCode.SCALE_DOWN_UNREADY_DISABLED: _always("mend the node, or set scaleDownUnreadyEnabled to true"),
        ReasonCode.NOT_AUTOSCALED: _always(
            "if it should be, make its group known: nodeGroups of the policy, or the provider's discovery"
        ),
        ReasonCode.NOT_UNNEEDED_LONG_ENOUGH: _always("nothing but time; scaleDownUnneededTime says how long"),
        ReasonCode.NOT_UNREADY_LONG_ENOUGH: _always("nothing but time; scaleDownUnreadyTime says how long"),
        ReasonCode.GROUP_MIN_SIZE: _always("lower the group's minimum"),
        ReasonCode.MINIMAL_RESOURCE_LIMIT: _always("lower the cluster's minimum: coresTotal, memoryTotal, gpuTotal"),
        ReasonCode.BEING_DELETED: _always(
            "nothing: it is on its way out; a mark that nobody is coming for is taken off by the next pass"
        ),
        ReasonCode.NOT_UNDERUTILIZED: _threshold,
        ReasonCode.IDENTITY_CONTESTED: _always(
            "delete the Node object that names the wrong machine, and look at its kubelet"
        ),
        ReasonCode.RECENTLY_UNREMOVABLE: _always("nothing but time; unremovableNodeRecheckTimeout says how long"),
        ReasonCode.NO_PLACE_TO_MOVE_PODS: _always(
            "make room for the pod on other nodes, or let it ask for less; explain pod "
            "with --remove-node shows what each group has against it"
        ),
        ReasonCode.BLOCKED_BY_ON_COMPLETION_POD: _always(
            'wait for the pod, or take its annotation safe-to-evict: "on-completion" off'
        ),
        ReasonCode.IN_COOLDOWN: _cooldown,
        ReasonCode.PARALLELISM: _always(
            "nothing but time; maxDrainParallelism and maxScaleDownParallelism say how many at once"
        ),
        ReasonCode.ATOMIC_FAILED: _siblings,
        ReasonCode.NOT_EVALUATED: _always(
            "nothing: the next pass goes on; if it never comes to this node, raise scaleDownSimulationTimeout"
        ),
        ReasonCode.NODE_COOLDOWN: _always("nothing but time; the group's own cooldown at its provider says how long"),
        ReasonCode.GROUP_FROZEN: _always("mend its unready nodes; timers go on where they were when it is well again"),
        ReasonCode.DISRUPTION_LIMIT: _more,
        ReasonCode.DISRUPTION_BRAKE: _release,
        ReasonCode.OUTSIDE_WINDOW: _always("nothing but time; spec.maintenanceWindows says when"),
        ReasonCode.PAUSED: _resume,
        ReasonCode.GROUP_GROWING: _always("nothing but a moment: its group is being made larger"),
        ReasonCode.REMOVAL_FAILED: _always(
            "mend what is named; it is tried again later, and the later the more often it failed"
        ),
        ReasonCode.NOT_STARTED: _always(
            "nothing but time; maxNodeStartupTime says how long a node may take to be ready"
        ),
        ReasonCode.PROMISED: _always("nothing: it is needed for that pod"),
        ReasonCode.POOL_MIN_SIZE: _always("lower the minimum of the pool that its group is part of"),
        ReasonCode.RULE_NEEDS_NODE: _always(
            "raise the rule's threshold, or switch the rule off: it would buy the node again"
        ),
        ReasonCode.HEADROOM: _always("lower spec.headroom, or a schedule's: its free room is what is kept free"),
        ReasonCode.CLUSTER_UNHEALTHY: _always(
            "mend the unready nodes; maxTotalUnreadyPercentage and okTotalUnreadyCount say how many are too many"
        ),
        ReasonCode.UNEXPECTED: _always("look at what it names; everything else goes on without it"),
    }
)
