"""What a person can do about a node that stays: one line per reason, printed under `outscaler explain node`.

Reasons themselves become sentences in plan/explain.py; this is advice, which only makes sense to somebody who asks. A
drain rule's advice is part of its sentence, since a pod's owner reads it in events as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from chalicelib.model.reason import Code, Reason

_Advice = Callable[[Reason, str], str]


def remedy(reason: Reason, cluster: str) -> str:
    """The advice, without a full stop; empty where the reason's own sentence has it. cluster: its name, for commands.

    What was found when a node was last tried is what helps it, so RecentlyUnremovable gives that advice.
    """
    if reason.code is Code.RECENTLY_UNREMOVABLE and "was" in reason.params:
        was = {name: value for name, value in reason.params.items() if name not in {"until", "was"}}
        return remedy(Reason(Code(str(reason.params["was"])), was), cluster)
    advice = _ADVICE.get(reason.code)
    return advice(reason, cluster) if advice is not None else ""


def due(reason: Reason) -> float:
    """When it is over by itself, epoch seconds; 0.0 where time alone does not help."""
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


def _more(reason: Reason, cluster: str) -> str:
    del reason
    return f"nothing but time; spec.maxDisruption says how many, and outscaler release {cluster} lifts it for a while"


_ADVICE: Mapping[Code, _Advice] = MappingProxyType(
    {
        Code.SCALE_DOWN_DISABLED: _always("set scaleDownEnabled to true"),
        Code.SCALE_DOWN_DISABLED_ANNOTATION: _always(
            "take the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled off the node"
        ),
        Code.SCALE_DOWN_UNREADY_DISABLED: _always("mend the node, or set scaleDownUnreadyEnabled to true"),
        Code.NOT_AUTOSCALED: _always(
            "if it should be, make its group known: nodeGroups of the policy, or the provider's discovery"
        ),
        Code.NOT_UNNEEDED_LONG_ENOUGH: _always("nothing but time; scaleDownUnneededTime says how long"),
        Code.NOT_UNREADY_LONG_ENOUGH: _always("nothing but time; scaleDownUnreadyTime says how long"),
        Code.GROUP_MIN_SIZE: _always("lower the group's minimum"),
        Code.MINIMAL_RESOURCE_LIMIT: _always("lower the cluster's minimum: coresTotal, memoryTotal, gpuTotal"),
        Code.BEING_DELETED: _always(
            "nothing: it is on its way out; a mark that nobody is coming for is taken off by the next pass"
        ),
        Code.NOT_UNDERUTILIZED: _threshold,
        Code.IDENTITY_CONTESTED: _always(
            "delete the Node object that names the wrong machine, and look at its kubelet"
        ),
        Code.RECENTLY_UNREMOVABLE: _always("nothing but time; unremovableNodeRecheckTimeout says how long"),
        Code.NO_PLACE_TO_MOVE_PODS: _always(
            "make room for the pod on other nodes, or let it ask for less; explain pod "
            "with --remove-node shows what each group has against it"
        ),
        Code.BLOCKED_BY_ON_COMPLETION_POD: _always(
            'wait for the pod, or take its annotation safe-to-evict: "on-completion" off'
        ),
        Code.IN_COOLDOWN: _cooldown,
        Code.PARALLELISM: _always(
            "nothing but time; maxDrainParallelism and maxScaleDownParallelism say how many at once"
        ),
        Code.ATOMIC_FAILED: _always("see why the group's other nodes stay: outscaler explain group"),
        Code.NOT_EVALUATED: _always(
            "nothing: the next pass goes on; if it never comes to this node, raise scaleDownSimulationTimeout"
        ),
        Code.NODE_COOLDOWN: _always("nothing but time; the group's own cooldown at its provider says how long"),
        Code.GROUP_FROZEN: _always("mend its unready nodes; timers go on where they were when it is well again"),
        Code.DISRUPTION_LIMIT: _more,
        Code.DISRUPTION_BRAKE: _release,
        Code.OUTSIDE_WINDOW: _always("nothing but time; spec.maintenanceWindows says when"),
        Code.GROUP_GROWING: _always("nothing but a moment: its group is being made larger"),
        Code.REMOVAL_FAILED: _always(
            "mend what is named; it is tried again later, and the later the more often it failed"
        ),
        Code.NOT_STARTED: _always("nothing but time; maxNodeStartupTime says how long a node may take to be ready"),
        Code.PROMISED: _always("nothing: it is needed for that pod"),
        Code.POOL_MIN_SIZE: _always("lower the minimum of the pool that its group is part of"),
        Code.RULE_NEEDS_NODE: _always(
            "raise the rule's threshold, or switch the rule off: it would buy the node again"
        ),
        Code.HEADROOM: _always("lower spec.headroom, or a schedule's: its free room is what is kept free"),
        Code.CLUSTER_UNHEALTHY: _always(
            "mend the unready nodes; maxTotalUnreadyPercentage and okTotalUnreadyCount say how many are too many"
        ),
        Code.UNEXPECTED: _always("look at what it names; everything else goes on without it"),
    }
)
