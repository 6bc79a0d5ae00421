"""Converts reasons to sentences, in the words of the scheduler and Cluster Autoscaler.
No other module does this.

`text` is what scripts and users of Cluster Autoscaler know (`Insufficient cpu`); `detail` adds
the numbers behind it (`needs 8, template offers 3900m`). There is one ordered table; a test
covers every ReasonCode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.model.quantity import format_amount, format_duration
from chalicelib.model.reason import DisruptionReason, Reason, ReasonCode
from chalicelib.model.timestamps import format_time

_Text = Callable[[Reason], str]
_DISRUPTIONS = {
    DisruptionReason.EXPIRED.value: "because of age",
    DisruptionReason.DRIFTED.value: "because of drift",
    DisruptionReason.REPAIR.value: "because of a fault",
    DisruptionReason.INTERRUPTED.value: "because of an interruption",
}


def disruption_words(reason: str) -> str:
    """Return why nodes go, as the end of a sentence: `because of age`; "" for nodes that are not
    needed. reason: a DisruptionReason, or the word of another release."""
    if reason in ("", DisruptionReason.UNNEEDED.value):
        return ""
    return _DISRUPTIONS.get(reason, f"for {reason}")


def _p(reason: Reason, name: str, default: str = "") -> str:
    return str(reason.params.get(name, default))


def _n(reason: Reason, name: str) -> float:
    value = reason.params.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _amount(reason: Reason, name: str) -> str:
    return format_amount(_p(reason, "resource"), int(_n(reason, name)))


def _time(reason: Reason, name: str) -> str:
    return format_duration(_n(reason, name))


_RENEWED = {"drifted": "drift", "expired": "age", "repair": "repair"}


def _until(reason: Reason) -> str:
    return f"until {format_time(_n(reason, 'until'))}" if "until" in reason.params else ""


def _needs(reason: Reason) -> str:
    return f"needs {_time(reason, 'needs')}" if "needs" in reason.params else ""


def _rule(reason: Reason) -> str:
    rule = Reason(
        ReasonCode(_p(reason, "rule")),
        {k: v for k, v in reason.params.items() if k not in {"pod", "rule"}},
    )
    return f"{rule.code.value}: {sentence(rule)}; {_REMEDY.get(rule.code, 'look at the pod')}"


# How to free a node that a pod blocks.
_REMEDY = {
    ReasonCode.CONTROLLER_NOT_FOUND: "delete the pod, or create its controller again",
    ReasonCode.MIN_REPLICAS: "raise its replicas, or lower minReplicaCount",
    ReasonCode.NOT_REPLICATED: "give it a controller, or annotate it "
    'cluster-autoscaler.kubernetes.io/safe-to-evict: "true"',
    ReasonCode.LOCAL_STORAGE: "name the volume in cluster-autoscaler.kubernetes.io/safe-to-evict-"
    "local-volumes "
    "if it may go",
    ReasonCode.NOT_SAFE_TO_EVICT: "remove the annotation once it may go",
    ReasonCode.KUBE_SYSTEM: "give it a PodDisruptionBudget in kube-system, or set "
    "blockingSystemPodDistruptionTimeout to the age from which it may move",
    ReasonCode.NOT_ENOUGH_PDB: (
        "wait until its pods are healthy, add replicas, or let the budget allow a disruption"
    ),
}


def _recently(reason: Reason) -> str:
    again = f"looked at again after {format_time(_n(reason, 'until'))}"
    if "was" not in reason.params:
        return again
    was = Reason(
        ReasonCode(_p(reason, "was")),
        {k: v for k, v in reason.params.items() if k not in {"until", "was"}},
    )
    return f"{sentence(was)}; {again}"


def _room(reason: Reason) -> str:
    """Return the usage of the first resource of a limit; cores are rounded up to whole ones."""
    if "used" not in reason.params:
        return ""
    name = _p(reason, "resources").partition(",")[0]
    used, most, needs = (
        format_amount(name, int(_n(reason, each)) * (1000 if name == "cpu" else 1))
        for each in ("used", "max", "needs")
    )
    return f"{name}: {used} of {most} in use, a node counts {needs}"


def _fixed(words: str) -> _Text:
    return lambda _: words


_NOT_READY = "not ready for scale-up"
_SPREAD = "node(s) didn't match pod topology spread constraints"

# code: (the text that scripts rely on, the numbers behind it)
_WORDS: dict[ReasonCode, tuple[_Text, _Text | None]] = {
    ReasonCode.NODE_NAME: (_fixed("node(s) didn't match the requested node name"), None),
    ReasonCode.UNSCHEDULABLE_NODE: (_fixed("node(s) were unschedulable"), None),
    ReasonCode.UNTOLERATED_TAINT: (
        _fixed("node(s) had untolerated taint(s)"),
        lambda r: _p(r, "taint"),
    ),
    ReasonCode.NODE_AFFINITY: (
        _fixed("node(s) didn't match Pod's node affinity/selector"),
        lambda r: _p(r, "term"),
    ),
    ReasonCode.PORTS: (
        _fixed("node(s) didn't have free ports for the requested pod ports"),
        lambda r: _p(r, "port"),
    ),
    ReasonCode.INSUFFICIENT: (
        lambda r: f"Insufficient {_p(r, 'resource')}",
        lambda r: f"needs {_amount(r, 'needs')}, template offers {_amount(r, 'offers')}",
    ),
    ReasonCode.TOO_MANY_PODS: (_fixed("Too many pods"), lambda r: f"at most {_p(r, 'offers')}"),
    ReasonCode.POD_AFFINITY: (_fixed("node(s) didn't match pod affinity rules"), None),
    ReasonCode.POD_ANTI_AFFINITY: (_fixed("node(s) didn't match pod anti-affinity rules"), None),
    ReasonCode.EXISTING_ANTI_AFFINITY: (
        _fixed("node(s) didn't satisfy existing pods anti-affinity rules"),
        None,
    ),
    ReasonCode.TOPOLOGY_SPREAD: (
        _fixed(_SPREAD),
        lambda r: (
            _p(r, "key")
            + (f": skew {_p(r, 'skew')}, maxSkew {_p(r, 'max')}" if "skew" in r.params else "")
        ),
    ),
    ReasonCode.TOPOLOGY_LABEL: (
        _fixed(f"{_SPREAD} (missing required label)"),
        lambda r: _p(r, "key"),
    ),
    ReasonCode.DISK_CONFLICT: (_fixed("node(s) had no available disk"), None),
    ReasonCode.EXCLUSIVE_CLAIM: (
        _fixed(
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
            "access mode"
        ),
        lambda r: _p(r, "claim"),
    ),
    ReasonCode.VOLUME_COUNT: (
        _fixed("node(s) exceed max volume count"),
        lambda r: f"{_p(r, 'driver')}, at most {_p(r, 'max')}",
    ),
    ReasonCode.VOLUME_ZONE: (
        _fixed("node(s) had no available volume zone"),
        lambda r: _p(r, "volume"),
    ),
    ReasonCode.VOLUME_NODE_AFFINITY: (
        _fixed("node(s) had volume node affinity conflict"),
        lambda r: _p(r, "volume"),
    ),
    ReasonCode.UNBOUND_IMMEDIATE: (
        _fixed("pod has unbound immediate PersistentVolumeClaims"),
        lambda r: _p(r, "claim"),
    ),
    ReasonCode.CLAIM_NOT_FOUND: (
        lambda r: f'persistentvolumeclaim "{_p(r, "claim")}" not found',
        None,
    ),
    ReasonCode.VOLUME_NOT_FOUND: (
        lambda r: f'persistentvolume "{_p(r, "volume")}" not found',
        None,
    ),
    ReasonCode.CLAIM_BEING_DELETED: (
        lambda r: f'persistentvolumeclaim "{_p(r, "claim")}" is being deleted',
        None,
    ),
    ReasonCode.NOTHING_TO_BIND: (
        _fixed("node(s) didn't find available persistent volumes to bind"),
        lambda r: _p(r, "claim"),
    ),
    ReasonCode.STORAGE_NOT_KNOWN: (
        lambda r: (
            f"what a new node of group {_p(r, 'group')} offers of storage class {_p(r, 'storage')} "
            "is unknown"
        ),
        lambda r: (
            _p(r, "detail")
            + (f", next attempt after {format_time(_n(r, 'until'))}" if "until" in r.params else "")
        ),
    ),
    ReasonCode.ZONE_NOT_CERTAIN: (
        lambda r: f"a new node of group {_p(r, 'group')} may come in another zone",
        lambda r: (
            f"zone {_p(r, 'zone')}: {_p(r, 'detail')}"
            + (f", next attempt after {format_time(_n(r, 'until'))}" if "until" in r.params else "")
        ),
    ),
    ReasonCode.STORAGE_CAPACITY: (
        _fixed("node(s) did not have enough free storage"),
        lambda r: _p(r, "claim"),
    ),
    ReasonCode.NOT_SIMULATED: (lambda r: f"NotSimulated({_p(r, 'what')})", None),
    ReasonCode.GROUP_UNHEALTHY: (_fixed(_NOT_READY), lambda r: _p(r, "detail")),
    ReasonCode.GROUP_BACKOFF: (
        _fixed("in backoff after failed scale-up"),
        lambda r: f"until {format_time(_n(r, 'until'))}: {_p(r, 'error')}",
    ),
    ReasonCode.GROUP_MAX_SIZE: (
        _fixed("max node group size reached"),
        lambda r: f"max {_p(r, 'max')}",
    ),
    ReasonCode.GROUP_UNREADABLE: (
        _fixed(_NOT_READY),
        lambda r: f"could not be read: {_p(r, 'detail')}",
    ),
    ReasonCode.NO_TEMPLATE: (_fixed(_NOT_READY), lambda r: f"no node template: {_p(r, 'detail')}"),
    ReasonCode.MAX_NODES_TOTAL: (
        _fixed("max total nodes in cluster reached"),
        lambda r: f"maxNodesTotal {_p(r, 'max')}",
    ),
    ReasonCode.RESOURCE_LIMIT: (
        lambda r: f'exceeded quota: "cluster-wide", resources: {_p(r, "resources")}',
        _room,
    ),
    ReasonCode.NOT_CHOSEN: (_fixed("another group was chosen"), lambda r: _p(r, "chosen")),
    ReasonCode.ATOMIC_LIMIT: (
        _fixed("atomic scale-up exceeds cluster node count limit"),
        lambda r: f"{_p(r, 'nodes')} nodes, maxNodesTotal {_p(r, 'max')}",
    ),
    ReasonCode.NOT_PROMISED: (
        _fixed("pods that the scheduler takes first would close its place; looked at again"),
        None,
    ),
    ReasonCode.MAX_NODES_PER_SCALE_UP: (
        _fixed("max nodes per scale-up reached"),
        lambda r: f"max {_p(r, 'max')}",
    ),
    ReasonCode.TIME_BUDGET: (
        _fixed("not looked at: time budget used up"),
        lambda r: format_duration(_n(r, "seconds")),
    ),
    ReasonCode.POOL_MAX_SIZE: (
        _fixed("max pool size reached"),
        lambda r: f"pool {_p(r, 'pool')}, max {_p(r, 'max')}",
    ),
    ReasonCode.RULE_NOT_DUE: (
        _fixed("not due"),
        lambda r: f"next at {format_time(_n(r, 'until'))}" if "until" in r.params else "",
    ),
    ReasonCode.RULE_EXPIRED: (
        _fixed("its time is over by more than half an hour; dropped"),
        lambda r: f"was due at {format_time(_n(r, 'due'))}",
    ),
    ReasonCode.RULE_BELOW: (
        _fixed("the allocation rate is not above the threshold"),
        lambda r: f"{_p(r, 'metric')} {_n(r, 'rate'):g}%, above {_p(r, 'above')}%",
    ),
    ReasonCode.RULE_NO_DATA: (_fixed("there is nothing to measure"), lambda r: _p(r, "detail")),
    ReasonCode.RULE_DEVICES: (
        _fixed("an accelerator of the pool is not ready, so that its rates mean nothing"),
        lambda r: f"node {_p(r, 'node')}",
    ),
    ReasonCode.RULE_SCALING: (_fixed("the pool is scaling"), lambda r: _p(r, "detail")),
    ReasonCode.RULE_PODS_FIRST: (
        _fixed("pending pods come first, and got nodes in this pass"),
        None,
    ),
    ReasonCode.RULE_SUPERSEDED: (
        _fixed("another rule acts on the pool in this pass"),
        lambda r: _p(r, "by"),
    ),
    ReasonCode.RULE_INTERVAL: (
        _fixed("metric rules acted on the pool a short while ago"),
        lambda r: f"again after {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.RULE_INVALID: (
        lambda r: f"rule {_p(r, 'rule')} is not in force",
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.RULE_THRESHOLD: (
        lambda r: f"the threshold of rule {_p(r, 'rule')} is doubtful",
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.RULE_NO_GROUP: (
        lambda r: f"rule {_p(r, 'rule')} names a node group that does not exist",
        lambda r: _p(r, "group"),
    ),
    ReasonCode.RULES_OFF: (_fixed("scaleUp.rules is false"), None),
    ReasonCode.RULE_OBJECT_INVALID: (
        lambda r: f"HorizontalNodeAutoscaler {_p(r, 'object')} is refused as a whole",
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.AVOID_TAINT: (
        _fixed("a taint makes nodes count as not ready, and may stop all scaling"),
        lambda r: f"node {_p(r, 'node')}, taint {_p(r, 'taint')}",
    ),
    ReasonCode.AVOID_ANNOTATION: (
        _fixed("an annotation on a DaemonSet's pod changes which nodes are empty"),
        lambda r: f"pod {_p(r, 'pod')}",
    ),
    ReasonCode.POOL_UNKNOWN: (
        lambda r: f"{_p(r, 'where')} has a name that does not mean exactly one pool or node group",
        lambda r: _p(r, "name"),
    ),
    ReasonCode.GROUP_IN_ZONES: (
        lambda r: (
            f"new nodes of group {_p(r, 'group')} may be in any of several zones, and pods need "
            "one of them"
        ),
        lambda r: _p(r, "zones"),
    ),
    ReasonCode.TEMPLATE_OUTDATED: (
        lambda r: (
            f"the vendor's template of group {_p(r, 'group')} has changed since its nodes were made"
        ),
        lambda r: _p(r, "differences"),
    ),
    ReasonCode.BAD_PROTECTION: (
        _fixed("the annotation karpenter.sh/do-not-disrupt does not protect its pod"),
        lambda r: (
            f"pod {_p(r, 'pod')}: '{_p(r, 'value')}' is neither true nor a duration such as 2h"
        ),
    ),
    ReasonCode.NEW_NODES_LACK: (
        lambda r: f"new nodes of group {_p(r, 'group')} are not what its template says",
        lambda r: f"{_p(r, 'what')}; none is bought for that until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.PODS_OFF: (_fixed("scaleUp.unschedulablePods is false"), None),
    ReasonCode.POOL_MIN_SIZE: (
        _fixed("min pool size reached"),
        lambda r: f"pool {_p(r, 'pool')}, min {_p(r, 'min')}",
    ),
    ReasonCode.RULE_NEEDS_NODE: (
        lambda r: f"rule {_p(r, 'rule')} needs it",
        lambda r: (
            f"without it {_p(r, 'metric')} would be at {_n(r, 'rate'):g}%, above {_p(r, 'above')}%"
        ),
    ),
    ReasonCode.HEADROOM: (_fixed("its free capacity is headroom"), lambda r: _p(r, "headroom")),
    ReasonCode.EXPANDER_SKIPPED: (
        lambda r: f"expander {_p(r, 'expander')} was passed over",
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.PRIORITY_CONFIG_INVALID: (
        _fixed("priorities of the priority expander are invalid"),
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.PRIORITY_NOT_MATCHED: (
        lambda r: f"no priority rule matches node group {_p(r, 'group')}",
        None,
    ),
    ReasonCode.PRIORITY_NO_MATCH: (_fixed("no priority rule matches any node group"), None),
    ReasonCode.NO_PRICE: (
        lambda r: f"node group {_p(r, 'group')} has no price",
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.SCHEDULING_GATED: (_fixed("scheduling is gated"), lambda r: _p(r, "gates")),
    ReasonCode.DAEMONSET_POD: (_fixed("DaemonSet pods never trigger scale-up"), None),
    ReasonCode.EXPENDABLE: (
        _fixed("priority is below the expendable cutoff"),
        lambda r: f"{_p(r, 'priority')} < {_p(r, 'cutoff')}",
    ),
    ReasonCode.TERMINATING: (_fixed("is being deleted"), None),
    ReasonCode.NOMINATED: (_fixed("is nominated to a node"), lambda r: _p(r, "node")),
    ReasonCode.NOT_YET_SEEN: (_fixed("the scheduler has not refused it yet"), None),
    ReasonCode.TOO_YOUNG: (
        _fixed("too young"),
        lambda r: f"{_time(r, 'age')} old, looked at after {_time(r, 'delay')}",
    ),
    ReasonCode.WAITING_FOR_MORE: (
        _fixed("waiting a moment for more pods"),
        lambda r: f"the oldest is {_time(r, 'age')} old",
    ),
    ReasonCode.WAITING_FOR_SCHEDULER: (
        _fixed("waiting a moment for the scheduler"),
        lambda r: (
            f"{_p(r, 'scheduler')} has refused {_p(r, 'refused')} pending pods and not looked at "
            f"{_p(r, 'unseen')} yet; at most {_time(r, 'longest')} more"
        ),
    ),
    ReasonCode.OTHER_SCHEDULER: (
        _fixed("belongs to a scheduler that is not allowed"),
        lambda r: _p(r, "scheduler"),
    ),
    ReasonCode.CLUSTER_UNHEALTHY: (
        _fixed("cluster is unhealthy"),
        lambda r: (
            f"no node is ready and {_p(r, 'option')} is false"
            if "option" in r.params
            else f"{_p(r, 'unready')} of {_p(r, 'registered')} nodes are unready"
        ),
    ),
    ReasonCode.SCALE_DOWN_DISABLED: (_fixed("scale-down is disabled"), None),
    ReasonCode.SCALE_DOWN_DISABLED_ANNOTATION: (
        _fixed("node is annotated scale-down-disabled"),
        None,
    ),
    ReasonCode.SCALE_DOWN_UNREADY_DISABLED: (
        _fixed("node is unready and scaleDownUnreadyEnabled is false"),
        None,
    ),
    ReasonCode.NOT_AUTOSCALED: (_fixed("node is in no autoscaled group"), None),
    ReasonCode.NOT_UNNEEDED_LONG_ENOUGH: (
        _fixed("not unneeded long enough"),
        lambda r: f"since {format_time(_n(r, 'since'))}, needs {_time(r, 'needs')}",
    ),
    ReasonCode.NOT_UNREADY_LONG_ENOUGH: (
        _fixed("not unready long enough"),
        lambda r: f"since {format_time(_n(r, 'since'))}, needs {_time(r, 'needs')}",
    ),
    ReasonCode.GROUP_MIN_SIZE: (
        _fixed("node group min size reached"),
        lambda r: f"size {_p(r, 'target')}, min {_p(r, 'min')}",
    ),
    ReasonCode.MINIMAL_RESOURCE_LIMIT: (
        _fixed("minimal resource limit exceeded"),
        lambda r: _p(r, "resources"),
    ),
    ReasonCode.BEING_DELETED: (_fixed("currently being deleted"), None),
    ReasonCode.NOT_UNDERUTILIZED: (
        _fixed("not underutilized"),
        lambda r: (
            f"{_p(r, 'resource')} {_n(r, 'utilization'):.0%}, threshold {_n(r, 'threshold'):.0%}"
        ),
    ),
    ReasonCode.RECENTLY_UNREMOVABLE: (_fixed("recently found unremovable"), _recently),
    ReasonCode.NO_PLACE_TO_MOVE_PODS: (
        _fixed("no place to move its pods"),
        lambda r: f"{_p(r, 'pod')}: {_p(r, 'what')}",
    ),
    ReasonCode.BLOCKED_BY_POD: (lambda r: f"blocked by pod {_p(r, 'pod')}", _rule),
    ReasonCode.BLOCKED_BY_ON_COMPLETION_POD: (
        _fixed("waits for a pod to complete"),
        lambda r: _p(r, "pod"),
    ),
    ReasonCode.IN_COOLDOWN: (
        _fixed("scale-down is in cooldown"),
        lambda r: f"{_p(r, 'which')}, until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.PARALLELISM: (
        _fixed("enough nodes are being removed at once"),
        lambda r: f"limit {_p(r, 'limit')}",
    ),
    ReasonCode.ATOMIC_FAILED: (
        _fixed("its group goes as a whole or not at all"),
        lambda r: f"{_p(r, 'nodes')} of {_p(r, 'of')} nodes could go",
    ),
    ReasonCode.NOT_EVALUATED: (
        _fixed("not looked at: time for simulating removals used up"),
        lambda r: _time(r, "seconds"),
    ),
    ReasonCode.NODE_COOLDOWN: (
        _fixed("its node group protects young nodes"),
        lambda r: f"until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.GROUP_FROZEN: (
        _fixed("its node group is unhealthy; nothing is changed there"),
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.DISRUPTION_LIMIT: (
        lambda r: f"maxDisruption: {_p(r, 'what')} reached",
        lambda r: (
            f"limit {_p(r, 'limit')}"
            + (f", more at {format_time(_n(r, 'until'))}" if "until" in r.params else "")
        ),
    ),
    ReasonCode.DISRUPTION_BRAKE: (
        _fixed(
            "maxDisruption: the circuit breaker is tripped until somebody releases it (outscaler "
            "release)"
        ),
        lambda r: f"{_p(r, 'nodes')} of {_p(r, 'of')} nodes at once, share {_n(r, 'share'):.0%}",
    ),
    ReasonCode.OUTSIDE_WINDOW: (
        lambda r: (
            "maintenance windows forbid removals too soon from now"
            if "needs" in r.params
            else "maintenance windows forbid removals now"
        ),
        lambda r: ", ".join(filter(None, (_p(r, "window"), _until(r), _needs(r)))),
    ),
    ReasonCode.PAUSED: (
        lambda r: f"an operator has paused {_p(r, 'what')} (outscaler resume ends it)",
        lambda r: f"until {format_time(_n(r, 'until'))}: {_p(r, 'detail')}",
    ),
    ReasonCode.GROUP_GROWING: (_fixed("its node group is being grown just now"), None),
    ReasonCode.REMOVAL_FAILED: (
        _fixed("its removal failed"),
        lambda r: f"{_p(r, 'detail')}; tried again after {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.BOUGHT_BACK: (
        _fixed("after the last removals all nodes were bought back"),
        lambda r: f"for pods of {_p(r, 'owner')}, tried again after {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.NOT_STARTED: (_fixed("node has not started yet"), None),
    ReasonCode.PROMISED: (_fixed("pending pods are expected on it"), lambda r: _p(r, "pod")),
    ReasonCode.UNEXPECTED: (_fixed("could not be decided"), lambda r: _p(r, "detail")),
    ReasonCode.IDENTITY_CONTESTED: (
        _fixed("which machine it is cannot be known"),
        lambda r: f"machine {_p(r, 'instance')}, nodes {_p(r, 'nodes')}",
    ),
    ReasonCode.CONSOLIDATION_OFF: (
        _fixed("consolidation does not apply to it"),
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.NODE_TOO_YOUNG: (
        _fixed("younger than minNodeAge"),
        lambda r: f"until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.NOT_QUIET: (
        _fixed("pods came or went within quietTime"),
        lambda r: f"until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.POD_MOVED_RECENTLY: (
        _fixed("its pods were moved often enough today (movesPerPodPerDay)"),
        lambda r: f"{_p(r, 'owner')}, until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.DO_NOT_DISRUPT: (
        _fixed("annotated karpenter.sh/do-not-disrupt"),
        lambda r: ", ".join(
            filter(
                None,
                (
                    _p(r, "pod"),
                    f"until {format_time(_n(r, 'until'))}" if "until" in r.params else "",
                ),
            )
        ),
    ),
    ReasonCode.NO_CHEAPER_PLACE: (
        _fixed("no cheaper place for its pods"),
        lambda r: ", ".join(
            filter(
                None,
                (
                    f"it costs {_n(r, 'price'):g} an hour",
                    f"the best other place {_n(r, 'best'):g}" if "best" in r.params else "",
                    _p(r, "detail"),
                ),
            )
        ),
    ),
    ReasonCode.SAVINGS_TOO_SMALL: (
        _fixed("its replacement would save less than minSavings"),
        lambda r: f"saves {_n(r, 'saves'):.1%}, needs {_n(r, 'needs'):.0%}",
    ),
    ReasonCode.NOT_WORTH_DISRUPTION: (
        _fixed("the saving is not worth the disruption"),
        lambda r: (
            f"saves {_n(r, 'saves'):g} an hour for a disruption of {_n(r, 'disruption'):g}: score "
            f"{_n(r, 'score'):.2f}, needs more than {_n(r, 'needs'):.2f}"
        ),
    ),
    ReasonCode.SAME_SHAPE: (
        _fixed("only machines of its own shape could replace it"),
        lambda r: f"node group {_p(r, 'group')}",
    ),
    ReasonCode.SPOT_FLEXIBILITY: (
        _fixed("too few cheaper spot groups (minCheaperGroups)"),
        lambda r: (
            f"{_p(r, 'cheaper')} of {_p(r, 'needs')}"
            if "needs" in r.params
            else "spotToSpot is false"
        ),
    ),
    ReasonCode.SURGE_LIMIT: (
        _fixed("maxSurge or maxReplacements is used up"),
        lambda r: f"limit {_p(r, 'limit')}",
    ),
    ReasonCode.DISRUPTION_BUDGET: (
        lambda r: f"disruption budget {_p(r, 'budget')} is used up",
        lambda r: (
            f"limit {_p(r, 'limit')}"
            + (f", until {format_time(_n(r, 'until'))}" if "until" in r.params else "")
        ),
    ),
    ReasonCode.NOT_ROBUST: (
        _fixed("in another order of the scheduler its pods find no place"),
        lambda r: f"{_p(r, 'pod')}, {_p(r, 'order')}",
    ),
    ReasonCode.NOT_CONFIRMED: (
        _fixed("a later pass must want it, too (confirmAfter)"),
        lambda r: f"since {format_time(_n(r, 'since'))}, needs {_time(r, 'needs')}",
    ),
    ReasonCode.PRICE_UNSETTLED: (
        lambda r: f"the price of node group {_p(r, 'group')} has just changed (priceSettleTime)",
        lambda r: f"until {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.OTHER_MOVE_BETTER: (
        _fixed("another move saves more and excludes it"),
        lambda r: f"{_p(r, 'move')} brings {_n(r, 'gain'):g} an hour",
    ),
    ReasonCode.SEARCH_LIMIT: (
        _fixed("the search ended before it was decided"),
        # A gap of 1 says nothing: there is no plan to compare with the best one.
        lambda r: (
            f"at most {_n(r, 'gap'):.1%} from the best plan"
            if _n(r, "gap") not in (0.0, 1.0)
            else ""
        ),
    ),
    ReasonCode.IN_REPLACEMENT: (_fixed("it is part of a replacement"), lambda r: _p(r, "id")),
    ReasonCode.REPLACEMENT_FAILED: (
        _fixed("its replacement failed"),
        lambda r: f"{_p(r, 'detail')}; tried again after {format_time(_n(r, 'until'))}",
    ),
    ReasonCode.NODE_AT_RISK: (
        _fixed("its vendor takes it back"),
        lambda r: ", ".join(filter(None, (_until(r), _p(r, "signal")))),
    ),
    ReasonCode.INTERRUPTION_REPORTED: (
        lambda r: (
            f"the vendor takes back node {_p(r, 'node')}; spec.spot.interruptions: act would "
            "evacuate it"
        ),
        lambda r: ", ".join(filter(None, (_until(r), _p(r, "signal")))),
    ),
    ReasonCode.NO_REPLACEMENT_IN_TIME: (
        lambda r: f"a new node may come after the vendor has taken back node {_p(r, 'node')}",
        lambda r: f"{_until(r)}, a new node may take {_time(r, 'ready')}",
    ),
    ReasonCode.SPOT_AVOIDED: (
        _fixed("its vendor has announced to take back a node of it (avoidAfterInterruption)"),
        _until,
    ),
    ReasonCode.SPOT_SHARE: (
        _fixed("it holds its share of the pool's nodes (spot.maxShare)"),
        lambda r: f"{_p(r, 'nodes')} of {_p(r, 'of')}, at most {_n(r, 'share'):.0%}",
    ),
    ReasonCode.ON_DEMAND_BASE: (
        _fixed("so many nodes of the pool stay on demand (spot.onDemandBase)"),
        lambda r: _p(r, "base"),
    ),
    ReasonCode.SPOT_RETURN: (
        lambda r: f"spot group {_p(r, 'group')} must be quiet for longer first (spot.returnAfter)",
        _until,
    ),
    ReasonCode.NOT_EXPIRED: (_fixed("younger than its part of maxNodeAge"), _until),
    ReasonCode.NOT_DUE: (lambda r: f"node {_p(r, 'node')} need not go any more", None),
    ReasonCode.NODE_OVERDUE: (
        lambda r: f"node {_p(r, 'node')} is older than maxNodeAge and expiryGrace allow",
        lambda r: f"expired {format_time(_n(r, 'since'))}",
    ),
    ReasonCode.NODE_DRIFTED: (
        lambda r: f"node {_p(r, 'node')} is not as its group is defined now",
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.GROUP_BUSY: (_fixed("its vendor changes it now"), lambda r: _p(r, "who")),
    ReasonCode.NOT_SICK_LONG_ENOUGH: (
        lambda r: f"{_p(r, 'condition')} has not lasted for long enough",
        lambda r: f"since {format_time(_n(r, 'since'))}, needs {_time(r, 'needs')}",
    ),
    ReasonCode.CONDITION_PAUSES: (
        lambda r: f"node {_p(r, 'node')} is not sick now, and was a moment ago (flapTime)",
        _until,
    ),
    ReasonCode.RENEWAL_RESTS: (
        lambda r: (
            f"{_RENEWED.get(_p(r, 'renewed'), 'renewal')} in group {_p(r, 'group')} rests: "
            f"the new node {_p(r, 'node')} {_p(r, 'detail')}"
        ),
        _until,
    ),
    ReasonCode.TOO_MANY_UNHEALTHY: (
        lambda r: (
            f"too many nodes of {_p(r, 'group', 'its group')} are sick to repair any (maxUnhealthy)"
        ),
        lambda r: f"{_p(r, 'unhealthy')} of {_p(r, 'of')}, at most {_n(r, 'share'):.0%}",
    ),
    ReasonCode.REPAIRED_ONE_BY_ONE: (
        _fixed("its group repairs one node at a time"),
        lambda r: f"now {_p(r, 'node')}",
    ),
    ReasonCode.CANNOT_RESTART: (
        lambda r: f"provider {_p(r, 'provider')} cannot restart a node",
        None,
    ),
    ReasonCode.CONTROLLER_NOT_FOUND: (
        _fixed("its controller does not exist"),
        lambda r: _p(r, "controller"),
    ),
    ReasonCode.MIN_REPLICAS: (
        _fixed("its controller has too few replicas"),
        lambda r: f"{_p(r, 'replicas')}, minReplicaCount {_p(r, 'min')}",
    ),
    ReasonCode.NOT_REPLICATED: (
        _fixed("nothing would recreate it"),
        lambda r: _p(r, "controller", "no controller"),
    ),
    ReasonCode.LOCAL_STORAGE: (
        _fixed("it uses local storage"),
        lambda r: f"volume {_p(r, 'volume')}",
    ),
    ReasonCode.NOT_SAFE_TO_EVICT: (_fixed("it is annotated safe-to-evict: false"), None),
    ReasonCode.KUBE_SYSTEM: (_fixed("kube-system pod without a PodDisruptionBudget"), None),
    ReasonCode.LONG_UNREGISTERED: (
        lambda r: f"instance {_p(r, 'instance')} never became a node",
        lambda r: f"first seen {format_time(_n(r, 'since'))}, needs {_time(r, 'needs')}",
    ),
    ReasonCode.CREATION_FAILED: (
        lambda r: f"instance {_p(r, 'instance')} could not be created",
        lambda r: ": ".join(filter(None, (_p(r, "error"), _p(r, "detail")))),
    ),
    ReasonCode.SIZE_ABOVE_REALITY: (
        _fixed("target size is above what is there"),
        lambda r: (
            f"{_p(r, 'registered')} nodes, target {_p(r, 'target')}, so since "
            f"{format_time(_n(r, 'since'))}"
        ),
    ),
    ReasonCode.SCALE_UP_TIMED_OUT: (
        lambda r: f"{_p(r, 'nodes')} nodes did not join in time",
        lambda r: f"asked for at {format_time(_n(r, 'since'))}",
    ),
    ReasonCode.MARK_LEFT: (
        lambda r: f"a removal that is over has left its mark on {_p(r, 'instance')}",
        lambda r: f"{_p(r, 'machines')} machines in all" if _n(r, "machines") > 1 else "",
    ),
    ReasonCode.DISCARD_HELD: (
        lambda r: (
            f"instance {_p(r, 'instance')} of {_p(r, 'group')} has no node and is not discarded"
        ),
        lambda r: _p(r, "detail"),
    ),
    ReasonCode.NOT_ENOUGH_PDB: (
        _fixed("its PodDisruptionBudget allows no disruption"),
        lambda r: _p(r, "budget"),
    ),
}


def text(reason: Reason) -> str:
    """Return the text alone, as Cluster Autoscaler and the scheduler word it."""
    return _WORDS[reason.code][0](reason)


def sentence(reason: Reason) -> str:
    """Return the text, followed by the numbers in brackets if there are any."""
    words, detail = _WORDS[reason.code]
    more = detail(reason) if detail else ""
    return f"{words(reason)} ({more})" if more else words(reason)


PASSING = frozenset(
    {
        ReasonCode.GROUP_UNHEALTHY,
        ReasonCode.GROUP_BACKOFF,
        ReasonCode.GROUP_UNREADABLE,
        ReasonCode.NOT_CHOSEN,
        ReasonCode.NOT_PROMISED,
        ReasonCode.MAX_NODES_PER_SCALE_UP,
        ReasonCode.TIME_BUDGET,
        ReasonCode.RULE_NOT_DUE,
        ReasonCode.RULE_SCALING,
        ReasonCode.RULE_INTERVAL,
        ReasonCode.NODE_COOLDOWN,
        ReasonCode.IN_COOLDOWN,
        ReasonCode.PAUSED,
    }
)
"""Reasons that pass without a change of the pod, the group or the policy."""


def lasting_first(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons in the order for people: what a person has to change comes before what
    passes by itself. Otherwise the order stays."""
    return tuple(sorted(reasons, key=lambda reason: reason.code in PASSING))
