"""Reasons for what is not done: each is one row with everything that is said about it, wherever.

A reason is stored as its code and its parameters. A stored reason must be readable by later
versions, so codes are never removed or changed. The texts for users are those of the scheduler and
Cluster Autoscaler.

Not here: reasons/text.py, which puts the parameters into the texts of a row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class ReasonRow(msgspec.Struct, frozen=True):
    """A reason's code, its texts, and what the planner and the journal know of it."""

    code: str

    # texts; the first three name parameters in braces (reasons/text.py)
    words: str  # what scripts rely on
    detail: str = ""  # the numbers behind it, shown in brackets
    tally: str = ""  # what node groups are counted as that take no pods for it
    tile: str = ""  # what nodes are that stay for it, on a cluster's page
    need: str = ""  # what is the matter with the node that it is a note on, on a cluster's page
    need_ends: bool = False  # that ends by itself, and nobody has to do anything
    due: str = ""  # what a node is that it keeps although it is sick, too old or outdated
    # how an operator ends it, for `explain node`; may name {cluster}, {threshold}, {cooldown}
    advice: str = ""
    remedy: str = ""  # how its author lets a pod go that blocks its node
    fix: str = ""  # how an operator frees many such nodes, for `doctor`
    meaning: str = ""  # what it means, and what to do, for docs/runbook.md

    # properties
    passes: bool = False  # ends without a change of the pod, the group or the policy
    # with each pod that comes or goes, nodes change between such reasons
    momentary: bool = False
    awaited: bool = False  # a replacement that is ready waits for its end, but not for ever
    unjudged: bool = False  # the node could not be judged, so its timer stands still
    tried: bool = False  # a simulation found it, which is not repeated for a while
    later: bool = False  # the node goes when others have gone
    replaceable: bool = False  # the node may go if another one comes first
    at_maximum: bool = False  # the group, or its pool, has no room for another node


class ReasonCode(StrEnum):
    """Every reason that the planner gives, equal to its code; `row` has what is said about it."""

    row: ReasonRow

    def __new__(cls, row: Any) -> ReasonCode:
        """Create the member of a row: a string that is its code."""
        member = str.__new__(cls, row.code)
        member._value_ = row.code
        member.row = row
        return member

    # --- why a pod does not fit a node
    NODE_NAME = ReasonRow(
        "NodeName",
        "node(s) didn't match the requested node name",
        tally="node name",
        meaning="reserved; not used in this version",
    )
    UNSCHEDULABLE_NODE = ReasonRow(
        "NodeUnschedulable",
        "node(s) were unschedulable",
        tally="cordoned",
        meaning="the node is cordoned",
    )
    UNTOLERATED_TAINT = ReasonRow(
        "UntoleratedTaint",
        "node(s) had untolerated taint(s)",
        detail="{taint}",
        tally="taints",
        meaning="no toleration for the taint named",
    )
    NODE_AFFINITY = ReasonRow(
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
        detail="{term}",
        tally="labels",
        meaning="selector or required affinity does not match",
    )
    PORTS = ReasonRow(
        "NodePorts",
        "node(s) didn't have free ports for the requested pod ports",
        detail="{port}",
        tally="host ports",
        meaning="the host port is taken",
    )
    INSUFFICIENT = ReasonRow(
        "Insufficient",
        "Insufficient {resource}",
        detail="needs {needs:amount}, template offers {offers:amount}",
        tally="too little {resource}",
        meaning=(
            "the resource is insufficient; the text has both amounts. On an empty template: no "
            "node of this group is large enough"
        ),
    )
    TOO_MANY_PODS = ReasonRow(
        "TooManyPods",
        "Too many pods",
        detail="at most {offers}",
        tally="too many pods",
        meaning="the node's pod limit",
    )
    POD_AFFINITY = ReasonRow(
        "PodAffinity",
        "node(s) didn't match pod affinity rules",
        tally="pod affinity",
        meaning=(
            "the required pods are not in the domain; for a new node: in no possible domain of "
            "the group"
        ),
    )
    POD_ANTI_AFFINITY = ReasonRow(
        "PodAntiAffinity",
        "node(s) didn't match pod anti-affinity rules",
        tally="pod anti-affinity",
        meaning="the domain has pods that it excludes. By zone: every zone has one",
    )
    EXISTING_ANTI_AFFINITY = ReasonRow(
        "ExistingPodsAntiAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        tally="anti-affinity of other pods",
        meaning="an existing pod excludes it",
    )
    TOPOLOGY_SPREAD = ReasonRow(
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints",
        detail="{key}[: skew {skew}, maxSkew {max}]",
        tally="topology spread",
        meaning=(
            "the domain already exceeds the emptiest one; the text has key and skew. Check "
            "whether a group in the other domains may grow"
        ),
    )
    TOPOLOGY_LABEL = ReasonRow(
        "PodTopologySpreadLabel",
        "node(s) didn't match pod topology spread constraints (missing required label)",
        detail="{key}",
        tally="topology label",
        meaning=(
            "the node or template lacks the topology label. A provider's template may need it: "
            "see the provider's page"
        ),
    )
    DISK_CONFLICT = ReasonRow(
        "VolumeRestrictions",
        "node(s) had no available disk",
        tally="disk in use",
        meaning="the disk is in use there",
    )
    EXCLUSIVE_CLAIM = ReasonRow(
        "ReadWriteOncePod",
        (
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
            "access mode"
        ),
        detail="{claim}",
        tally="claim in use",
        meaning="the claim is in use by another pod, and only one may",
    )
    VOLUME_COUNT = ReasonRow(
        "MaxVolumeCount",
        "node(s) exceed max volume count",
        detail="{driver}, at most {max}",
        tally="too many volumes",
        meaning=(
            "the CSI driver named attaches no more volumes to the node. On an empty template: "
            "the pod alone brings more than any node of this group takes"
        ),
    )
    VOLUME_ZONE = ReasonRow(
        "VolumeZone",
        "node(s) had no available volume zone",
        detail="{volume}",
        tally="volume in another zone",
        meaning="the volume is in another zone: add a group there",
    )
    VOLUME_NODE_AFFINITY = ReasonRow(
        "VolumeNodeAffinity",
        "node(s) had volume node affinity conflict",
        detail="{volume}",
        tally="volume elsewhere",
        meaning="the volume named cannot be used on this node",
    )
    UNBOUND_IMMEDIATE = ReasonRow(
        "UnboundImmediateClaim",
        "pod has unbound immediate PersistentVolumeClaims",
        detail="{claim}",
        tally="unbound claim",
        meaning=(
            "the claim must be bound before the pod is scheduled: check its storage class and "
            "provisioner"
        ),
    )
    CLAIM_NOT_FOUND = ReasonRow(
        "ClaimNotFound",
        'persistentvolumeclaim "{claim}" not found',
        tally="missing claim",
        meaning="create the claim",
    )
    VOLUME_NOT_FOUND = ReasonRow(
        "VolumeNotFound",
        'persistentvolume "{volume}" not found',
        tally="missing volume",
        meaning=(
            "its PersistentVolume no longer exists: restore it, or delete the claim and its pod "
            "so that a new one is made"
        ),
    )
    CLAIM_BEING_DELETED = ReasonRow(
        "ClaimBeingDeleted",
        'persistentvolumeclaim "{claim}" is being deleted',
        tally="claim being deleted",
        meaning="it is being deleted; a finalizer may delay this",
    )
    NOTHING_TO_BIND = ReasonRow(
        "NoVolumeToBind",
        "node(s) didn't find available persistent volumes to bind",
        detail="{claim}",
        tally="no volume to bind",
        meaning=(
            "no free volume matches, and none can be provisioned there: `allowedTopologies`, or "
            "no provisioner"
        ),
    )
    STORAGE_CAPACITY = ReasonRow(
        "NotEnoughStorage",
        "node(s) did not have enough free storage",
        detail="{claim}",
        tally="too little storage",
        meaning="the storage system has no capacity there, according to its own published data",
    )
    NOT_SIMULATED = ReasonRow(
        "NotSimulated",
        "NotSimulated({what})",
        tally="not simulated",
        meaning="[not supported in this version](limits.md#missing-features)",
    )

    # --- why a node group does not scale up
    GROUP_UNHEALTHY = ReasonRow(
        "NotReadyForScaleUp",
        "not ready for scale-up",
        detail="{detail}",
        tally="not ready",
        passes=True,
        meaning="too many of its nodes are missing, or an earlier increase is in progress",
    )
    GROUP_BACKOFF = ReasonRow(
        "BackOff",
        "in backoff after failed scale-up",
        detail="until {until:time}: {error}",
        tally="in back-off",
        passes=True,
        meaning="it failed to grow; the error and the end are in the text",
    )
    GROUP_MAX_SIZE = ReasonRow(
        "MaxNodeGroupSizeReached",
        "max node group size reached",
        detail="max {max}",
        tally="at maximum",
        at_maximum=True,
        meaning="raise `max`",
    )
    GROUP_UNREADABLE = ReasonRow(
        "GroupUnreadable",
        "not ready for scale-up",
        detail="could not be read: {detail}",
        tally="not read",
        passes=True,
        meaning="the provider could not read it; the cause is in the text",
    )
    NO_TEMPLATE = ReasonRow(
        "NoTemplate",
        "not ready for scale-up",
        detail="no node template: {detail}",
        tally="no template",
        meaning="its nodes are unknown: annotate their capacity, or create one node",
    )
    MAX_NODES_TOTAL = ReasonRow(
        "MaxNodesTotalReached",
        "max total nodes in cluster reached",
        detail="maxNodesTotal {max}",
        tally="cluster at maximum",
        meaning="raise `maxNodesTotal`",
    )
    RESOURCE_LIMIT = ReasonRow(
        "ResourceLimit",
        'exceeded quota: "cluster-wide", resources: {resources}',
        detail=(
            "[{resources:first}: {used:whole} of {max:whole} in use, a node counts {needs:whole}]"
        ),
        tally="cluster-wide quota",
        meaning=(
            "raise `coresTotal`, `memoryTotal` or `gpuTotal`; the text names all exhausted ones, "
            "with the figures of the first"
        ),
    )
    NOT_CHOSEN = ReasonRow(
        "NotChosen",
        "another group was chosen",
        detail="{chosen}",
        tally="not chosen",
        passes=True,
        meaning=(
            "it would take the pod, but the expander chose another group: `NoPrice`, or no "
            "priority. The next pass evaluates it again"
        ),
    )
    ATOMIC_LIMIT = ReasonRow(
        "AtomicScaleUpExceedsLimit",
        "atomic scale-up exceeds cluster node count limit",
        detail="{nodes} nodes, maxNodesTotal {max}",
        tally="cluster at maximum",
        meaning="a zero-or-max group without capacity for all its nodes: raise `maxNodesTotal`",
    )
    NOT_PROMISED = ReasonRow(
        "NotPromised",
        "pods that the scheduler takes first would close its place; looked at again",
        tally="looked at again",
        passes=True,
        meaning=(
            "a new node would take the pod only before pods that the scheduler takes first "
            "([final placement](reference/scale-up.md#final-placement)). If it recurs: the "
            "constraints of these pods conflict, or its priority is too low"
        ),
    )
    MAX_NODES_PER_SCALE_UP = ReasonRow(
        "MaxNodesPerScaleUp",
        "max nodes per scale-up reached",
        detail="max {max}",
        tally="later",
        passes=True,
        meaning=(
            "the group has reached its limit for one pass (`maxNodesPerScaleup`); the rest "
            "follows in the next"
        ),
    )
    TIME_BUDGET = ReasonRow(
        "TimeBudget",
        "not looked at: time budget used up",
        detail="{seconds:duration}",
        tally="not looked at",
        passes=True,
        meaning=(
            "the group was not evaluated, or not completely: the text names the limit "
            "(`maxBinpackingTime` or what the pass has left of it, "
            "`maxNodegroupBinpackingDuration`). The next pass continues. If it recurs: the "
            "cluster is too large for one pass, or reading it is too slow ([time "
            "limits](reference/scale-up.md#time-limits))"
        ),
    )

    POOL_MAX_SIZE = ReasonRow(
        "PoolMaxSizeReached",
        "max pool size reached",
        detail="pool {pool}, max {max}",
        tally="pool at maximum",
        at_maximum=True,
        meaning=(
            "the groups of the vendor's pool have together reached the pool's maximum: raise it "
            "there"
        ),
    )

    # --- why a declaration of spec.managedPools buys nothing, or no more
    DECLARATION_LIMIT = ReasonRow(
        "DeclarationLimit",
        "limit of its managed pool reached",
        detail="{pool}: {resource} {used} of {max}",
        tally="limit of the managed pool",
        at_maximum=True,
        meaning="raise `limits` of the managed pool; the text has what is used and the limit",
    )
    POOL_BUDGET = ReasonRow(
        "PoolBudget",
        "its managed pool has as many groups as it may have",
        detail="{pool}: at most {max}",
        tally="maxPools",
        at_maximum=True,
        meaning=(
            "raise `maxPools` of the managed pool, or remove its empty groups with `outscaler "
            "pools prune CLUSTER`"
        ),
    )
    CANDIDATE_QUOTA = ReasonRow(
        "CandidateQuota",
        "the quota of its vendor has no room for it",
        detail="{detail}",
        tally="quota of the vendor",
        at_maximum=True,
        meaning=(
            "ask the vendor for a larger quota; the text has what is left of it, or which machines "
            "the vendor has refused"
        ),
    )
    CANDIDATE_DOMINATED = ReasonRow(
        "CandidateDominated",
        "another machine of its managed pool has at least the room at no higher price",
        detail="{machine}, {price} an hour",
        tally="dominated",
        passes=True,
        meaning="nothing: the other machine is bought instead, while it is in stock",
    )
    SPREAD_NOT_REACHED = ReasonRow(
        "SpreadNotReached",
        "nodes of managed pool {pool} are not spread as minTypes or maxShare ask",
        detail="{detail}",
        meaning=(
            "too few machine types or zones are in stock or allowed. Pods got nodes all the same; "
            "with `strict` they would wait"
        ),
    )

    # --- why a rule adds no nodes, or no more
    RULE_NOT_DUE = ReasonRow(
        "RuleNotDue",
        "not due",
        detail="[next at {until:time}]",
        passes=True,
        meaning=(
            "its next time is in the text. If you expected another one: `timeZone`; for a "
            "HorizontalNodeAutoscaler `scaleUp.cronTimeZone`, UTC by default"
        ),
    )
    RULE_EXPIRED = ReasonRow(
        "RuleExpired",
        "its time is over by more than half an hour; dropped",
        detail="was due at {due:time}",
        meaning=(
            "no action was possible within half an hour of its time: it is dropped, and is due "
            "again at its next time"
        ),
    )
    RULE_BELOW = ReasonRow(
        "RuleBelowThreshold",
        "the allocation rate is not above the threshold",
        detail="{metric} {rate:g}%, above {above}%",
        meaning=(
            "the rate is requests by allocatable, not usage, and must be above the threshold: give "
            "the pods requests, or lower `above`"
        ),
    )
    RULE_NO_DATA = ReasonRow(
        "RuleNoData",
        "there is nothing to measure",
        detail="{detail}",
        meaning=(
            "the pool has no ready node, so there is no rate. Cron rules and pending pods are "
            "not affected"
        ),
    )
    RULE_DEVICES = ReasonRow(
        "RuleDevicesNotReady",
        "an accelerator of the pool is not ready, so that its rates mean nothing",
        detail="node {node}",
        meaning=(
            "a node of the pool lacks its accelerator: check its driver. Metric rules of the "
            "pool wait"
        ),
    )
    # other parameters: pool
    RULE_SCALING = ReasonRow(
        "RulePoolScaling",
        "the pool is scaling",
        detail="{detail}",
        passes=True,
        meaning=(
            "nodes of the pool are being added or removed. A cron rule stays pending and runs "
            "afterwards; a metric rule measures again. For hours: a [stuck "
            "operation](#stuck-operations), or machines that never join"
        ),
    )
    RULE_PODS_FIRST = ReasonRow(
        "RulePendingPodsServed",
        "pending pods come first, and got nodes in this pass",
        meaning="pending pods got nodes in this pass; metric rules wait for the next one",
    )
    RULE_SUPERSEDED = ReasonRow(
        "RuleSuperseded",
        "another rule acts on the pool in this pass",
        detail="{by}",
        meaning="another rule acted on the pool in this pass: a cron rule, or one that adds more",
    )
    RULE_INTERVAL = ReasonRow(
        "RuleMinInterval",
        "metric rules acted on the pool a short while ago",
        detail="again after {until:time}",
        passes=True,
        meaning="`scaleUp.metricMinInterval`",
    )
    RULE_INVALID = ReasonRow(
        "RuleInvalid",
        "rule {rule} is not in force",
        detail="{detail}",
        meaning=(
            "the text says why; other rules continue. With `scaleDownUtilizationThreshold`: nodes "
            "would come and go in turn, so raise `above` or lower that option (CCE: the pool's own "
            "condition). With `already`: the pool has a rule of that metric, or ten rules"
        ),
    )
    RULE_THRESHOLD = ReasonRow(
        "RuleThresholdDoubtful",
        "the threshold of rule {rule} is doubtful",
        detail="{detail}",
        meaning=(
            "the rule is in force, but its threshold is not above that of removals: the nodes "
            "that it needs are kept, so raise it if they should go. Or it is 100%, also by "
            '`"-1"`: set `metricValue`, `scaleUp.cpuThreshold` or `memoryThreshold` below'
        ),
    )
    RULE_NO_GROUP = ReasonRow(
        "RuleGroupUnknown",
        "rule {rule} names a node group that does not exist",
        detail="{group}",
        meaning="no node group or pool has the id: correct `groups` or `targetNodepoolIds`",
    )
    RULES_OFF = ReasonRow(
        "RulesDisabled",
        "scaleUp.rules is false",
        meaning="`scaleUp.rules` is false",
    )
    RULE_OBJECT_INVALID = ReasonRow(
        "HorizontalNodeAutoscalerInvalid",
        "HorizontalNodeAutoscaler {object} is refused as a whole",
        detail="{detail}",
        meaning=(
            "the object is refused as a whole, and its last valid version stays in force: fix "
            "the named mistakes"
        ),
    )

    # --- what a cluster should not have, in Plan.notes
    AVOID_TAINT = ReasonRow(
        "IgnoreTaintPrefixUsed",
        "a taint makes nodes count as not ready, and may stop all scaling",
        detail="node {node}, taint {taint}",
        meaning=(
            "remove the taint: nodes with it are not templates and count as not ready, and too "
            "many of them stop all scaling"
        ),
    )
    AVOID_ANNOTATION = ReasonRow(
        "DaemonSetEvictionAnnotationUsed",
        "an annotation on a DaemonSet's pod changes which nodes are empty",
        detail="pod {pod}",
        meaning="remove the annotation: it changes which nodes count as empty",
    )
    POOL_UNKNOWN = ReasonRow(
        "PoolUnknown",
        "{where} has a name that does not mean exactly one pool or node group",
        detail="{name}",
        meaning=(
            "(without an Event) a disruption budget, or `consolidation.groups`, names no pool "
            "or several: correct the name; what it should protect is not protected"
        ),
    )
    BAD_PROTECTION = ReasonRow(
        "DoNotDisruptInvalid",
        "the annotation karpenter.sh/do-not-disrupt does not protect its pod",
        detail="pod {pod}: '{value}' is neither true nor a duration such as 2h",
        meaning=(
            'the pod\'s `karpenter.sh/do-not-disrupt` is ignored: write `"true"`, or a duration '
            'such as `"2h"`'
        ),
    )
    NEW_NODES_LACK = ReasonRow(
        "NewNodesLack",
        "new nodes of group {group} are not what its template says",
        detail="{what}; none is bought for that until {until:time}",
        meaning=(
            "(without an Event) a new node did not get the named labels or resources, or kept "
            "the named taints, within "
            "[`maxNodeStartupTime`](reference/node-groups.md#unfinished-nodes), so none is "
            "bought for pods that need them until then: look at the plugin or driver that sets "
            "them, then `outscaler retry NAME group GROUP`. If it only takes longer, raise "
            "`maxNodeStartupTime`"
        ),
    )

    GROUP_IN_ZONES = ReasonRow(
        "NodeGroupInSeveralZones",
        "new nodes of group {group} may be in any of several zones, and pods need one of them",
        detail="{zones}",
        meaning=(
            "pods need one of the zones of the group, and a new node may come in any: make a "
            "node group for each zone"
        ),
    )
    TEMPLATE_OUTDATED = ReasonRow(
        "VendorTemplateDiffers",
        "the vendor's template of group {group} has changed since its nodes were made",
        detail="{differences}",
        meaning=(
            "the group's nodes are older than a change of its vendor's template, and new nodes "
            "are planned as copies of them: replace the old nodes (`nodeLifecycle.drift`), or "
            "wait until a new one has joined"
        ),
    )

    # --- messages of expanders and limits, in Plan.notes
    EXPANDER_SKIPPED = ReasonRow(
        "ExpanderSkipped",
        "expander {expander} was passed over",
        detail="{detail}",
        meaning=(
            "an expander of the chain was skipped: not available in this version, or, for "
            "`least-cost`, no `spec.prices`, no solver or no time"
        ),
    )
    PRIORITY_CONFIG_INVALID = ReasonRow(
        "PriorityConfigMapInvalid",
        "priorities of the priority expander are invalid",
        detail="{detail}",
        meaning="the ConfigMap is invalid, so nothing is filtered; fix the named mistake",
    )
    PRIORITY_NOT_MATCHED = ReasonRow(
        "PriorityConfigMapNotMatchedGroup",
        "no priority rule matches node group {group}",
        meaning=(
            "no pattern matches the group, so it is not chosen; `.*` at a low priority catches all"
        ),
    )
    PRIORITY_NO_MATCH = ReasonRow(
        "PriorityConfigMapNoGroupMatched",
        "no priority rule matches any node group",
        meaning="no pattern matches any of the groups, so nothing is filtered",
    )
    NO_PRICE = ReasonRow(
        "NoPrice",
        "node group {group} has no price",
        detail="{detail}",
        tally="no price",
        tile="without a price",
        advice="add its instance type or rates to spec.prices",
        meaning=(
            "dropped by `price`, or not consolidated: add its instance type or rates to "
            "`spec.prices`"
        ),
    )

    # --- why a pod is not considered
    SCHEDULING_GATED = ReasonRow(
        "SchedulingGated",
        "scheduling is gated",
        detail="{gates}",
        meaning="it has a scheduling gate",
    )
    DAEMONSET_POD = ReasonRow(
        "DaemonSetPod",
        "DaemonSet pods never trigger scale-up",
        meaning="DaemonSet pods get no nodes; they use existing capacity",
    )
    EXPENDABLE = ReasonRow(
        "Expendable",
        "priority is below the expendable cutoff",
        detail="{priority} < {cutoff}",
        meaning="its priority is below the cut-off",
    )
    TERMINATING = ReasonRow(
        "Terminating",
        "is being deleted",
        meaning="it is being deleted",
    )
    NOMINATED = ReasonRow(
        "Nominated",
        "is nominated to a node",
        detail="{node}",
        meaning="it will get capacity by preemption",
    )
    NOT_YET_SEEN = ReasonRow(
        "NotYetSeenByScheduler",
        "the scheduler has not refused it yet",
        meaning="the scheduler has not rejected it (yet)",
    )
    TOO_YOUNG = ReasonRow(
        "TooYoung",
        "too young",
        detail="{age:duration} old, looked at after {delay:duration}",
        meaning="younger than its delay; it uses existing capacity",
    )
    # other parameters: wait, left
    WAITING_FOR_MORE = ReasonRow(
        "WaitingForMorePods",
        "waiting a moment for more pods",
        detail="the oldest is {age:duration} old",
        meaning="pending pods still arrive. Also delays removals, for this pass",
    )
    # other parameters: left
    WAITING_FOR_SCHEDULER = ReasonRow(
        "WaitingForScheduler",
        "waiting a moment for the scheduler",
        detail=(
            "{scheduler} has refused {refused} pending pods and not looked at {unseen} yet; at "
            "most {longest:duration} more"
        ),
        meaning=(
            "their scheduler has not looked at all pods of a burst: [at most 8 "
            "seconds](reference/scale-up.md#waiting-for-the-scheduler). Also delays removals, "
            "for this pass"
        ),
    )
    OTHER_SCHEDULER = ReasonRow(
        "OtherScheduler",
        "belongs to a scheduler that is not allowed",
        detail="{scheduler}",
        meaning="not among `allowedSchedulerNames`",
    )
    PODS_OFF = ReasonRow(
        "UnschedulablePodsDisabled",
        "scaleUp.unschedulablePods is false",
        meaning=(
            "`scaleUp.unschedulablePods` is false, so that only rules, enforced minima and "
            "headroom make groups grow"
        ),
    )
    CLUSTER_UNHEALTHY = ReasonRow(
        "ClusterUnhealthy",
        "cluster is unhealthy",
        detail=(
            "[no node is ready and {option} is false|{unready} of {registered} nodes are unready]"
        ),
        advice=(
            "mend the unready nodes; maxTotalUnreadyPercentage and okTotalUnreadyCount say how "
            "many are too many"
        ),
        awaited=True,
        meaning="too many nodes are unready; repair them first. Also delays removals",
    )

    STORAGE_NOT_KNOWN = ReasonRow(
        "StorageNotKnown",
        "what a new node of group {group} offers of storage class {storage} is unknown",
        detail="{detail}[, next attempt after {until:time}]",
        tally="storage unknown",
        meaning=(
            "the storage driver publishes capacity per node, and no node of the group has shown "
            "what a new one offers. The next attempt comes by itself "
            "([CSIStorageCapacity](reference/scheduling.md#csistoragecapacity)); check that the "
            "driver runs on the group's nodes"
        ),
    )
    ZONE_NOT_CERTAIN = ReasonRow(
        "ZoneNotCertain",
        "a new node of group {group} may come in another zone",
        detail="zone {zone}: {detail}[, next attempt after {until:time}]",
        tally="zone uncertain",
        meaning=(
            "the pod needs a certain zone, and a new node may come in another one. The next "
            "attempt comes by itself ([groups in several "
            "zones](reference/scale-up.md#groups-in-several-zones)); a node group for each zone "
            "avoids this"
        ),
    )

    # --- why a node is not removed
    SCALE_DOWN_DISABLED = ReasonRow(
        "ScaleDownDisabled",
        "scale-down is disabled",
        advice="set scaleDownEnabled to true",
        meaning="`scaleDownEnabled` is false",
    )
    SCALE_DOWN_DISABLED_ANNOTATION = ReasonRow(
        "ScaleDownDisabledAnnotation",
        "node is annotated scale-down-disabled",
        advice=(
            "take the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled off the node"
        ),
        meaning="the node has the annotation",
    )
    SCALE_DOWN_UNREADY_DISABLED = ReasonRow(
        "ScaleDownUnreadyDisabled",
        "node is unready and scaleDownUnreadyEnabled is false",
        advice="mend the node, or set scaleDownUnreadyEnabled to true",
        meaning="it is unready, and such nodes are not removed",
    )
    NOT_AUTOSCALED = ReasonRow(
        "NotAutoscaled",
        "node is in no autoscaled group",
        tile="in no autoscaled group",
        advice=(
            "if it should be, make its group known: nodeGroups of the policy, or the provider's "
            "discovery"
        ),
        meaning="it is not in a group",
    )
    NOT_UNNEEDED_LONG_ENOUGH = ReasonRow(
        "NotUnneededLongEnough",
        "not unneeded long enough",
        detail="since {since:time}, needs {needs:duration}",
        tile="not unneeded for long enough",
        advice="nothing but time; scaleDownUnneededTime says how long",
        meaning="wait",
    )
    NOT_UNREADY_LONG_ENOUGH = ReasonRow(
        "NotUnreadyLongEnough",
        "not unready long enough",
        detail="since {since:time}, needs {needs:duration}",
        advice="nothing but time; scaleDownUnreadyTime says how long",
        meaning="wait",
    )
    GROUP_MIN_SIZE = ReasonRow(
        "NodeGroupMinSizeReached",
        "node group min size reached",
        detail="size {target}, min {min}",
        tile="at the minimum of their group",
        advice="lower the group's minimum",
        replaceable=True,
        meaning="lower `min`",
    )
    MINIMAL_RESOURCE_LIMIT = ReasonRow(
        "MinimalResourceLimitExceeded",
        "minimal resource limit exceeded",
        detail="{resources}",
        advice="lower the cluster's minimum: coresTotal, memoryTotal, gpuTotal",
        replaceable=True,
        meaning=(
            "the cluster would fall below the lower bound of `coresTotal`, `memoryTotal` or "
            "`gpuTotal`"
        ),
    )
    BEING_DELETED = ReasonRow(
        "CurrentlyBeingDeleted",
        "currently being deleted",
        tile="being deleted",
        advice=(
            "nothing: it is on its way out; a mark that nobody is coming for is taken off by the "
            "next pass"
        ),
        meaning=(
            "it is being removed; or it has the taint for removals, see [stale "
            "taints](#stale-taints)"
        ),
    )
    NOT_UNDERUTILIZED = ReasonRow(
        "NotUnderutilized",
        "not underutilized",
        detail="{resource} {utilization:.0%}, threshold {threshold:.0%}",
        tile="in use",
        advice="let its pods ask for less, or raise {threshold}",
        meaning="its utilization is above the threshold; the text has the figure",
    )
    RECENTLY_UNREMOVABLE = ReasonRow(
        "RecentlyUnremovable",
        "recently found unremovable",
        detail="[{was:sentence}; ]looked at again after {until:time}",
        tile="found unremovable a short while ago",
        advice="nothing but time; unremovableNodeRecheckTimeout says how long",
        meaning=(
            "its last simulation failed; the message has the reason and the time of the next one"
        ),
    )
    NO_PLACE_TO_MOVE_PODS = ReasonRow(
        "NoPlaceToMovePods",
        "no place to move its pods",
        detail="{pod}: {what}",
        tile="with pods that fit nowhere else",
        advice=(
            "make room for the pod on other nodes, or let it ask for less; explain pod with "
            "--remove-node shows what each group has against it"
        ),
        tried=True,
        meaning="the named pod fits on no other node; the text has the scheduler's counts",
    )
    # pod, rule, and the rule's own parameters
    BLOCKED_BY_POD = ReasonRow(
        "BlockedByPod",
        "blocked by pod {pod}",
        detail="{rule}: {rule:sentence}; {rule:remedy}",
        tile="blocked by a pod",
        tried=True,
        meaning="a pod blocks the node; the rules are in the next table",
    )
    BLOCKED_BY_ON_COMPLETION_POD = ReasonRow(
        "BlockedByOnCompletionPod",
        "waits for a pod to complete",
        detail="{pod}",
        advice='wait for the pod, or take its annotation safe-to-evict: "on-completion" off',
        awaited=True,
        meaning="the node waits until that pod has ended",
    )
    IN_COOLDOWN = ReasonRow(
        "InCooldown",
        "scale-down is in cooldown",
        detail="{which}, until {until:time}",
        tile="in the cooldown after a change",
        advice="nothing but time; {cooldown} says how long",
        passes=True,
        awaited=True,
        meaning="the text names the cooldown and its end",
    )
    PARALLELISM = ReasonRow(
        "ParallelismReached",
        "enough nodes are being removed at once",
        detail="limit {limit}",
        advice=(
            "nothing but time; maxDrainParallelism and maxScaleDownParallelism say how many at once"
        ),
        awaited=True,
        later=True,
        meaning="the maximum number of nodes is being removed already",
    )
    ATOMIC_FAILED = ReasonRow(
        "AtomicScaleDownFailed",
        "its group goes as a whole or not at all",
        detail="{nodes} of {of} nodes could go",
        advice=(
            "see why the group's other nodes stay: outscaler explain group GROUP --cluster "
            "{cluster}"
        ),
        meaning="a zero-or-max group is removed as a whole: see why its other nodes stay",
    )
    NOT_EVALUATED = ReasonRow(
        "NotUnneededOtherReason",
        "not looked at: time for simulating removals used up",
        detail="{seconds:duration}",
        advice=(
            "nothing: the next pass goes on; if it never comes to this node, raise "
            "scaleDownSimulationTimeout"
        ),
        awaited=True,
        unjudged=True,
        meaning="`scaleDownSimulationTimeout` was over; the next pass continues",
    )
    NODE_COOLDOWN = ReasonRow(
        "NodeGroupCooldown",
        "its node group protects young nodes",
        detail="until {until:time}",
        tile="too young",
        advice="nothing but time; the group's own cooldown at its provider says how long",
        passes=True,
        awaited=True,
        meaning="its group has a cooldown for new nodes; the message has its end",
    )
    GROUP_FROZEN = ReasonRow(
        "NodeGroupUnhealthy",
        "its node group is unhealthy; nothing is changed there",
        detail="{detail}",
        advice="mend its unready nodes; timers go on where they were when it is well again",
        awaited=True,
        unjudged=True,
        meaning=(
            "too many nodes of the group or its zone are not ready or missing; [find the "
            "cause](#unhealthy-groups); its timers stand still"
        ),
    )
    # what, limit, until; without until: once running removals have ended
    DISRUPTION_LIMIT = ReasonRow(
        "MaxDisruption",
        "maxDisruption: {what} reached",
        detail="limit {limit}[, more at {until:time}]",
        tile="held by maxDisruption",
        advice=(
            "nothing but time; spec.maxDisruption says how many; outscaler release {cluster} "
            "--yes lifts it for a while"
        ),
        awaited=True,
        later=True,
        meaning=(
            "`spec.maxDisruption` allows no more removals this hour; the message has the next time"
        ),
    )
    DISRUPTION_BUDGET = ReasonRow(
        "DisruptionBudget",
        "disruption budget {budget} is used up",
        detail="limit {limit}[, until {until:time}]",
        tile="held by a disruption budget",
        advice="nothing but time; spec.disruptionBudgets says how many at once, and when",
        awaited=True,
        later=True,
        meaning=(
            "as many nodes of its pool are on their way out, or not ready, as a [disruption "
            "budget](reference/consolidation.md#disruption-budgets) allows; the message names "
            "the budget"
        ),
    )
    DISRUPTION_BRAKE = ReasonRow(
        "DisruptionBrake",
        (
            "maxDisruption: the circuit breaker is tripped until somebody releases it (outscaler "
            "release)"
        ),
        detail="{nodes} of {of} nodes at once, share {share:.0%}",
        advice="see whether so many nodes may really go, then: outscaler release {cluster}",
        awaited=True,
        later=True,
        meaning=(
            "a plan would have removed more than `maxDisruption.share` at once: review "
            "`outscaler plan`, then run `outscaler release NAME` "
            "([procedure](#tripped-circuit-breaker))"
        ),
    )
    # window, until; needs: seconds for which it must stay open
    OUTSIDE_WINDOW = ReasonRow(
        "MaintenanceWindow",
        "maintenance windows forbid removals [needs?too soon from ]now",
        detail="[{window}][, until {until:time}][, needs {needs:duration}]",
        advice="nothing but time; spec.maintenanceWindows says when",
        awaited=True,
        meaning=(
            "`spec.maintenanceWindows` allows removals [at other times](#removal-times), or the "
            "open window closes before a new node, or a drain, must have ended"
        ),
    )
    # what, until, detail; for groups that do not scale up, too
    PAUSED = ReasonRow(
        "Paused",
        "an operator has paused {what} (outscaler resume ends it)",
        detail="until {until:time}: {detail}",
        tally="paused",
        advice="end the pause: outscaler resume {cluster}; it ends by itself, too",
        passes=True,
        awaited=True,
        meaning=(
            "an operator has paused the cluster, its removals or its group; the message has the "
            "end and the reason ([pauses](#pauses))"
        ),
    )
    GROUP_GROWING = ReasonRow(
        "NodeGroupGrowing",
        "its node group is being grown just now",
        tile="in a group that grows",
        advice="nothing but a moment: its group is being made larger",
        awaited=True,
        meaning="its group is being scaled up; removals continue once that is recorded",
    )
    REMOVAL_FAILED = ReasonRow(
        "RemovalFailed",
        "its removal failed",
        detail="{detail}; tried again after {until:time}",
        advice=(
            "mend what is named; it is tried again later, and the later the more often it failed"
        ),
        awaited=True,
        meaning=(
            "the last removal of this node failed; the message has the reason. It is tried again "
            "later, other nodes meanwhile"
        ),
    )
    BOUGHT_BACK = ReasonRow(
        "RemovalBoughtBack",
        "after the last removals all nodes were bought back",
        detail="for pods of {owner}, tried again after {until:time}",
        advice=(
            "nothing but time; removals wait as the scheduler places these pods so that a node "
            "must be bought again"
        ),
        meaning=(
            "as many nodes were bought again as the last removals of the owner's pods had "
            "saved. They are moved again [later](reference/scale-down.md#bought-back). If it "
            "repeats, other nodes have too little room for these pods"
        ),
    )
    NOT_STARTED = ReasonRow(
        "NotStarted",
        "node has not started yet",
        tile="not started yet",
        advice="nothing but time; maxNodeStartupTime says how long a node may take to be ready",
        meaning="it is still starting",
    )
    POOL_MIN_SIZE = ReasonRow(
        "PoolMinSizeReached",
        "min pool size reached",
        detail="pool {pool}, min {min}",
        tile="at the minimum of their pool",
        advice="lower the minimum of the pool that its group is part of",
        replaceable=True,
        meaning="the groups of its pool are together at the pool's minimum",
    )
    RULE_NEEDS_NODE = ReasonRow(
        "RuleNeedsNode",
        "rule {rule} needs it",
        detail="without it {metric} would be at {rate:g}%, above {above}%",
        advice="raise the rule's threshold, or switch the rule off: it would buy the node again",
        replaceable=True,
        meaning=(
            "without it a metric rule would buy a node: [raise its "
            "threshold](policy.md#specrules), or switch the rule off"
        ),
    )
    HEADROOM = ReasonRow(
        "HeadroomNeedsNode",
        "its free capacity is headroom",
        detail="{headroom}",
        tile="kept as headroom",
        advice="lower spec.headroom, or a schedule's: its free room is what is kept free",
        meaning="its capacity is needed for [headroom](policy.md#specheadroom)",
    )
    PROMISED = ReasonRow(
        "PromisedToPendingPods",
        "pending pods are expected on it",
        detail="{pod}",
        tile="expected by waiting pods",
        advice="nothing: it is needed for that pod",
        awaited=True,
        # the scheduler may place the pods on another node, and while other nodes are drained there
        # are always such pods
        unjudged=True,
        meaning="pending pods are expected on it; its timer stands still",
    )
    UNEXPECTED = ReasonRow(
        "UnexpectedError",
        "could not be decided",
        detail="{detail}",
        advice="look at what it names; everything else goes on without it",
        awaited=True,
        unjudged=True,
        meaning=(
            "the cause is in the text: an unreadable pod or group, a rollout, a discovered group "
            "that may be another cluster's"
        ),
    )
    IDENTITY_CONTESTED = ReasonRow(
        "NodeIdentityContested",
        "which machine it is cannot be known",
        detail="machine {instance}, nodes {nodes}",
        advice="delete the Node object that names the wrong machine, and look at its kubelet",
        meaning=(
            "more than one node claims to be this machine, or the node makes contradictory "
            "claims: [actions](#conflicting-node-identities)"
        ),
    )

    # --- why a node is not consolidated; prices per hour, disruption as in
    # docs/reference/consolidation.md
    CONSOLIDATION_OFF = ReasonRow(
        "ConsolidationOff",
        "consolidation does not apply to it",
        detail="{detail}",
        tile="left out of it",
        advice="nothing, or name its group in consolidation.groups; see the text",
        meaning=(
            "the node's group is not in `consolidation.groups` or is a zero-or-max group, or "
            "the node is not ready. In a failed replacement: the mode was changed meanwhile"
        ),
    )
    NODE_TOO_YOUNG = ReasonRow(
        "NodeTooYoung",
        "younger than minNodeAge",
        detail="until {until:time}",
        tile="too young",
        advice="nothing but time; consolidation.minNodeAge says how long",
        momentary=True,
        meaning="wait; `minNodeAge` is the least age",
    )
    NOT_QUIET = ReasonRow(
        "NotQuiet",
        "pods came or went within quietTime",
        detail="until {until:time}",
        tile="with pods that came or went",
        advice=(
            "nothing but time; consolidation.quietTime says how long; give short jobs nodes of "
            "their own"
        ),
        momentary=True,
        meaning=(
            "a pod came or left within `quietTime` (DaemonSets' pods do not count). If it never "
            "ends, short jobs run on the node: give them nodes of their own, or shorten "
            "`quietTime`"
        ),
    )
    POD_MOVED_RECENTLY = ReasonRow(
        "PodMovedRecently",
        "its pods were moved often enough today (movesPerPodPerDay)",
        detail="{owner}, until {until:time}",
        tile="with pods moved often enough today",
        advice="nothing but time; consolidation.movesPerPodPerDay says how often",
        momentary=True,
        awaited=True,
        meaning=(
            "the pods of the named owner were moved `movesPerPodPerDay` times per replica within "
            "24 hours; the text has the end"
        ),
    )
    # pod, until; without a pod: the node's own annotation
    DO_NOT_DISRUPT = ReasonRow(
        "DoNotDisrupt",
        "annotated karpenter.sh/do-not-disrupt",
        detail="[{pod}][, until {until:time}]",
        tile="protected by an annotation",
        advice="take the annotation karpenter.sh/do-not-disrupt off, if the node may go",
        meaning=(
            "the node, or the named pod, has the annotation `karpenter.sh/do-not-disrupt`: "
            "remove it if the node may go"
        ),
    )
    NO_CHEAPER_PLACE = ReasonRow(
        "NoCheaperPlace",
        "no cheaper place for its pods",
        detail="it costs {price:g} an hour[, the best other place {best:g}][, {detail}]",
        tile="without a cheaper place",
        advice=(
            "nothing: its pods are where they cost least; mode full of consolidation looks at "
            "purchases, too"
        ),
        meaning=(
            "its pods fit neither existing nodes nor a cheaper purchase; the text has both "
            "prices. With `buys nothing`, mode `full` would look at purchases, too"
        ),
    )
    SAVINGS_TOO_SMALL = ReasonRow(
        "SavingsTooSmall",
        "its replacement would save less than minSavings",
        detail="saves {saves:.1%}, needs {needs:.0%}",
        tile="that would save too little",
        advice="nothing, or lower consolidation.minSavings",
        meaning=(
            "a replacement would save less than `minSavings` of the price of the old nodes; the "
            "text has both shares"
        ),
    )
    NOT_WORTH_DISRUPTION = ReasonRow(
        "NotWorthDisruption",
        "the saving is not worth the disruption",
        detail=(
            "saves {saves:g} an hour for a disruption of {disruption:g}: score {score:.2f}, "
            "needs more than {needs:.2f}[, enough at {until:time} if the saving stands]"
        ),
        tile="not worth the disruption",
        advice="nothing, or raise consolidation.aggressiveness",
        meaning=(
            "the move would save money, but less than the [price of its "
            "disruption](reference/consolidation.md#price-of-a-disruption); the text has the "
            "score. A higher `aggressiveness` accepts a lower score"
        ),
    )
    SAME_SHAPE = ReasonRow(
        "SameShape",
        "only machines of its own shape could replace it",
        detail="node group {group}",
        tile="with equal machines only",
        advice="see why equal machines have different prices, in spec.prices or at the provider",
        meaning=(
            "the only group worth buying has the same instance type, zone and capacity type as "
            "the node. Check why the prices of the two differ"
        ),
    )
    SPOT_FLEXIBILITY = ReasonRow(
        "SpotFlexibility",
        "too few cheaper spot groups (minCheaperGroups)",
        detail="[{cheaper} of {needs}|spotToSpot is false]",
        tile="with too few spot groups",
        advice="set consolidation.spotToSpot and name more spot groups, or leave it as it is",
        meaning=(
            "a spot node is replaced by a cheaper spot node only with `spotToSpot: true` and "
            "`minCheaperGroups` cheaper spot groups"
        ),
    )
    SURGE_LIMIT = ReasonRow(
        "SurgeLimit",
        "maxSurge or maxReplacements is used up",
        detail="limit {limit}",
        tile="waiting for other replacements",
        advice=(
            "nothing but time: a replacement under way must end first; consolidation.maxSurge "
            "and maxReplacements say how many"
        ),
        meaning=(
            "`maxSurge` nodes of the pool, or `maxReplacements` replacements, are under way. The "
            "next one follows when one of them is over"
        ),
    )
    NOT_ROBUST = ReasonRow(
        "NotRobust",
        "in another order of the scheduler its pods find no place",
        detail="{pod}, {order}",
        tile="with pods that fit in one order only",
        advice="make a little more room on other nodes, or loosen the constraints of the named pod",
        meaning=(
            "the pods fit in one order but not in another; the text names the pod and the "
            "order. A little more free room on other nodes solves it"
        ),
    )
    NOT_CONFIRMED = ReasonRow(
        "NotConfirmedYet",
        "a later pass must want it, too (confirmAfter)",
        detail="since {since:time}, needs {needs:duration}",
        tile="to be confirmed",
        advice="nothing but time; consolidation.confirmAfter says how long",
        momentary=True,
        awaited=True,
        due="not as its group is defined, to be confirmed",
        meaning=(
            "the move is wanted, and begins if a pass at least `confirmAfter` later still wants it"
        ),
    )
    STEERING_OFF = ReasonRow(
        "SteeringOff",
        "a pool with soft taints of others is consolidated without marks",
        detail="{pool}: {taint}",
        advice=(
            "nothing: it is consolidated without marks; with consolidation.steering: always, marks "
            "are written beside the other soft taints"
        ),
        meaning=(
            "marks would weaken the soft taints of others, because the scheduler compares their "
            "number; `steering: always` writes marks all the same"
        ),
    )
    MARKS_MISSING = ReasonRow(
        "MarksMissing",
        "marks of nodes that leave do not stay",
        detail="{nodes} nodes",
        meaning=(
            "a controller removes the soft taints `outscaler.dev/leaving`, or the cluster refuses "
            "them. Nodes go on leaving without them, and pods may move more than once"
        ),
    )
    MARKS_AWAITED = ReasonRow(
        "MarksAwaited",
        "it leaves when all nodes that leave are marked",
        detail="{marked} of {of} have marks",
        tile="to be marked",
        advice="nothing but time: marks take a few passes",
        momentary=True,
        awaited=True,
        meaning=(
            "the node leaves; first all nodes of its pool that leave get a soft taint, so that no "
            "pod moves to one of them"
        ),
    )
    STAYS_AT_THE_END = ReasonRow(
        "StaysAtTheEnd",
        "it stays when consolidation is over",
        detail="[{going} nodes leave, at the end the nodes cost {end:g} an hour]",
        tile="that stay at the end",
        advice="nothing: its room is needed for the pods of the nodes that leave",
        meaning=(
            "the pods of the nodes that leave find their place here; `explain node` and the page "
            "have the price at the end"
        ),
    )
    PRICE_UNSETTLED = ReasonRow(
        "PriceUnsettled",
        "the price of node group {group} has just changed (priceSettleTime)",
        detail="until {until:time}",
        tile="with a price that has just changed",
        advice="nothing but time: a price settles in 30 minutes",
        momentary=True,
        meaning="the price of the named group fell in the last 30 minutes; the text has the end",
    )
    OTHER_MOVE_BETTER = ReasonRow(
        "OtherMoveBetter",
        "another move saves more and excludes it",
        detail="{move} brings {gain:g} an hour",
        tile="behind a better move",
        advice="nothing: a later pass looks at it again",
        meaning=(
            "another move saves more and needs the same room or limit; the text names it. A "
            "later pass looks at the node again"
        ),
    )
    SEARCH_LIMIT = ReasonRow(
        "SearchLimit",
        "the search ended before it was decided",
        detail="[at most {gap:gap} from the best plan]",
        tile="not decided in time",
        advice="nothing: a later pass goes on",
        meaning="the search ended at its limit before this node was decided; a later pass goes on",
    )
    IN_REPLACEMENT = ReasonRow(
        "InReplacement",
        "it is part of a replacement",
        detail="{id}",
        tile="in a replacement",
        advice="nothing: outscaler get operations {cluster} shows what is under way",
        unjudged=True,
        meaning=(
            "the node is an old or new node of the "
            "[replacement](reference/consolidation.md#replacements) named; nothing else touches "
            "it"
        ),
    )
    REPLACEMENT_FAILED = ReasonRow(
        "ReplacementFailed",
        "its replacement failed",
        detail="{detail}; tried again after {until:time}",
        tile="whose replacement failed",
        advice="see to what is named; it is tried again by itself, later after each failure",
        meaning=(
            "its last replacement failed; the text has the reason and when it may be tried again "
            "([failures](reference/consolidation.md#failures))"
        ),
    )

    # --- spot: why a group is not bought or a node not moved, and notes (docs/reference/spot.md)
    # until, signal; without until: at once
    NODE_AT_RISK = ReasonRow(
        "NodeAtRisk",
        "its vendor takes it back",
        detail="[until {until:time}][, {signal}]",
        tile="that their vendor takes back",
        advice="nothing: its pods move before the vendor takes it back",
        meaning=(
            "the vendor has announced that it takes the node back; its pods move now. Nothing is "
            "to be done"
        ),
    )
    INTERRUPTION_REPORTED = ReasonRow(
        "InterruptionReported",
        "the vendor takes back node {node}; spec.spot.interruptions: act would evacuate it",
        detail="[until {until:time}][, {signal}]",
        need="its vendor takes it back, and nothing is done about it",
        meaning="the same, but the policy does not act on it: write `spot: {interruptions: act}`",
    )
    NO_REPLACEMENT_IN_TIME = ReasonRow(
        "NoReplacementInTime",
        "a new node may come after the vendor has taken back node {node}",
        detail="[until {until:time}], a new node may take {ready:duration}",
        need="a new node for its pods may be ready only after its vendor takes it back",
        need_ends=True,
        meaning=(
            "a new node takes longer than the notice lasts; pods without room wait for it. "
            "[Headroom](reference/headroom.md) avoids that"
        ),
    )
    SPOT_AVOIDED = ReasonRow(
        "RecentlyInterrupted",
        "its vendor has announced to take back a node of it (avoidAfterInterruption)",
        detail="[until {until:time}]",
        tally="recently interrupted",
        meaning=(
            "the vendor announced within `avoidAfterInterruption` to take back a node of the "
            "group, which may still run; the group is bought only if nothing else fits"
        ),
    )
    SPOT_SHARE = ReasonRow(
        "SpotShareReached",
        "it holds its share of the pool's nodes (spot.maxShare)",
        detail="{nodes} of {of}, at most {share:.0%}",
        tally="spot share",
        tile="in a spot group with its full share",
        advice="raise spot.maxShare, or add spot groups",
        meaning="the spot group holds `maxShare` of the pool's nodes: another group is bought",
    )
    ON_DEMAND_BASE = ReasonRow(
        "OnDemandBase",
        "so many nodes of the pool stay on demand (spot.onDemandBase)",
        detail="{base}",
        tally="on-demand base",
        tile="that stay on demand",
        advice="lower spot.onDemandBase",
        meaning="`onDemandBase` nodes of the pool stay on demand",
    )
    SPOT_RETURN = ReasonRow(
        "SpotReturnsLater",
        "spot group {group} must be quiet for longer first (spot.returnAfter)",
        detail="[until {until:time}]",
        tile="waiting for spot",
        advice="nothing but time; spot.returnAfter says how long",
        meaning=(
            "the node was bought on demand because spot was sold out; it moves back when the "
            "named group has been quiet for `returnAfter`"
        ),
    )

    # --- age, drift, repair: why a node stays, and notes (docs/reference/node-lifecycle.md)
    NOT_EXPIRED = ReasonRow(
        "NotExpired",
        "younger than its part of maxNodeAge",
        detail="[until {until:time}]",
        tile="not old enough",
        advice="nothing but time; nodeLifecycle.maxNodeAge says how long",
        meaning="the node has not reached its own part of `maxNodeAge`; the text has the time",
    )
    NOT_DUE = ReasonRow(
        "NotDueAnyMore",
        "node {node} need not go any more",
        meaning=(
            "in a failed replacement: the node recovered, or no longer differs from its group. "
            "The new node stays as long as it is needed"
        ),
    )
    NODE_OVERDUE = ReasonRow(
        "NodeOverdue",
        "node {node} is older than maxNodeAge and expiryGrace allow",
        detail="expired {since:time}",
        need="it is older than maxNodeAge and expiryGrace allow",
        meaning=(
            "the node is older than `maxNodeAge` and `expiryGrace`, and something holds it: "
            "`outscaler explain node` says what"
        ),
    )
    NODE_DRIFTED = ReasonRow(
        "NodeDrifted",
        "node {node} is not as its group is defined now",
        detail="{detail}",
        due="not as its group is defined, only reported",
        meaning="the node is not as its group would create it now; `drift: replace` replaces it",
    )
    GROUP_BUSY = ReasonRow(
        "GroupBusy",
        "its vendor changes it now",
        detail="{who}",
        tile="that their vendor changes now",
        advice="nothing: it goes on when the vendor is ready",
        awaited=True,
        meaning=(
            "the vendor, or Cluster API, changes or repairs the node or its group now. It goes "
            "on when that is over"
        ),
    )
    NOT_SICK_LONG_ENOUGH = ReasonRow(
        "NotSickLongEnough",
        "{condition} has not lasted for long enough",
        detail="since {since:time}, needs {needs:duration}",
        tile="not sick for long enough",
        advice="nothing but time; nodeLifecycle.repair says how long",
        awaited=True,
        due="sick not for long enough yet",
        meaning="a condition of `repair` is present, but not for the time `after` yet",
    )
    CONDITION_PAUSES = ReasonRow(
        "ConditionPauses",
        "node {node} is not sick now, and was a moment ago (flapTime)",
        detail="[until {until:time}]",
        tile="sick until a moment ago",
        advice="nothing but time; flapTime of nodeLifecycle.repair says how long",
        awaited=True,
        meaning=(
            "the node's condition ended a moment ago, and may come again within its `flapTime`. "
            "What was bought for it is kept until then"
        ),
    )
    RENEWAL_RESTS = ReasonRow(
        "RenewalRests",
        "{renewed:renewal} in group {group} rests: the new node {node} {detail}",
        detail="[until {until:time}]",
        tile="in a group whose new nodes are no better",
        advice="see to what is named, then: outscaler retry {cluster} group NAME",
        meaning=(
            "the group's nodes are not [renewed](reference/node-lifecycle.md#rest-of-a-group) "
            "for this reason until then, because the last new node is no better: it differs in "
            "the same field, is as old by its vendor's word, or fell sick, too. See what the "
            "vendor says of both, or what runs there; then `outscaler retry NAME group GROUP`"
        ),
    )
    TOO_MANY_UNHEALTHY = ReasonRow(
        "TooManyUnhealthy",
        "too many nodes of [{group}|its group] are sick to repair any (maxUnhealthy)",
        detail="{unhealthy} of {of}, at most {share:.0%}",
        tile="in a group with too many sick nodes",
        advice="find the common cause, or raise nodeLifecycle.maxUnhealthy",
        awaited=True,
        meaning=(
            "more than `maxUnhealthy` of the group's nodes are sick: the cause is rarely the "
            "nodes. Look at network, image and the tool that reports the condition"
        ),
    )
    REPAIRED_ONE_BY_ONE = ReasonRow(
        "RepairedOneByOne",
        "its group repairs one node at a time",
        detail="now {node}",
        tile="behind another repair",
        advice="raise the group's maximum, so that a new node may come first",
        meaning=(
            "the group is at its maximum, so that a sick node goes before the new one comes, one "
            "at a time"
        ),
    )
    CANNOT_RESTART = ReasonRow(
        "CannotRestart",
        "provider {provider} cannot restart a node",
        tile="that cannot be restarted",
        advice="write action: replace in nodeLifecycle.repair",
        meaning="the provider cannot restart nodes: write `action: replace`",
    )

    # --- why a pod blocks its node, the `rule` of BLOCKED_BY_POD
    CONTROLLER_NOT_FOUND = ReasonRow(
        "ControllerNotFound",
        "its controller does not exist",
        detail="{controller}",
        remedy="delete the pod, or create its controller again",
        fix="delete the pods, or recreate their controllers",
        meaning="its controller does not exist; delete the pod, or create its controller again",
    )
    MIN_REPLICAS = ReasonRow(
        "MinReplicasReached",
        "its controller has too few replicas",
        detail="{replicas}, minReplicaCount {min}",
        remedy="raise its replicas, or lower minReplicaCount",
        fix="add a replica, or set options.minReplicaCount to 0",
        meaning="fewer replicas than `minReplicaCount`; raise them, or lower the option",
    )
    NOT_REPLICATED = ReasonRow(
        "NotReplicated",
        "nothing would recreate it",
        detail="[{controller}|no controller]",
        remedy=(
            "give it a controller, or annotate it "
            'cluster-autoscaler.kubernetes.io/safe-to-evict: "true"'
        ),
        fix="run the pods by a controller, or annotate them safe-to-evict: true",
        meaning=(
            "nothing would recreate it; give it a controller, or annotate it `safe-to-evict: "
            '"true"`'
        ),
    )
    LOCAL_STORAGE = ReasonRow(
        "LocalStorageRequested",
        "it uses local storage",
        detail="volume {volume}",
        remedy=(
            "name the volume in cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes if "
            "it may go"
        ),
        fix="annotate safe-to-evict-local-volumes, or set options.skipNodesWithLocalStorage: false",
        meaning=(
            "name the volume in `safe-to-evict-local-volumes`, or set "
            "`skipNodesWithLocalStorage: false`"
        ),
    )
    NOT_SAFE_TO_EVICT = ReasonRow(
        "NotSafeToEvictAnnotation",
        "it is annotated safe-to-evict: false",
        remedy="remove the annotation once it may go",
        fix="take off the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: false",
        meaning="the pod has the annotation; remove it when the pod may move",
    )
    KUBE_SYSTEM = ReasonRow(
        "UnmovableKubeSystemPod",
        "kube-system pod without a PodDisruptionBudget",
        remedy=(
            "give it a PodDisruptionBudget in kube-system, or set "
            "blockingSystemPodDistruptionTimeout to the age from which it may move"
        ),
        fix="give the pods of kube-system disruption budgets",
        meaning=(
            "give it a budget, or set `blockingSystemPodDistruptionTimeout` to the age from "
            "which it may move"
        ),
    )
    NOT_ENOUGH_PDB = ReasonRow(
        "NotEnoughPdb",
        "its PodDisruptionBudget allows no disruption",
        detail="{budget}[: it needs all {required} of its pods, so it never will]",
        remedy=(
            "[required?|wait until its pods are healthy, ]add replicas, or let the budget allow a "
            "disruption"
        ),
        fix="loosen the disruption budgets",
        awaited=True,
        meaning=(
            "its budget allows no disruption now: [drains blocked by a "
            "budget](#drains-blocked-by-a-disruption-budget)"
        ),
    )

    # --- why a group is repaired
    LONG_UNREGISTERED = ReasonRow(
        "LongUnregistered",
        "instance {instance} never became a node",
        detail="first seen {since:time}, needs {needs:duration}",
        meaning="a machine never became a node and is deleted: check its boot log",
    )
    CREATION_FAILED = ReasonRow(
        "InstanceCreationFailed",
        "instance {instance} could not be created",
        detail="[{error}][: {detail}]",
        meaning="the vendor could not create the machine; its code says why",
    )
    SIZE_ABOVE_REALITY = ReasonRow(
        "TargetAboveReality",
        "target size is above what is there",
        detail="{registered} nodes, target {target}, so since {since:time}",
        meaning="the target exceeded the existing machines for too long, and is lowered",
    )
    SCALE_UP_TIMED_OUT = ReasonRow(
        "ScaleUpTimedOut",
        "{nodes} nodes did not join in time",
        detail="asked for at {since:time}",
        meaning=(
            "requested machines did not join within `maxNodeProvisionTime`: check images, "
            "network, quota"
        ),
    )
    DISCARD_HELD = ReasonRow(
        "DiscardHeld",
        "instance {instance} of {group} has no node and is not discarded",
        detail="{detail}",
        meaning=(
            "an overdue machine that is not deleted, because it may be someone else's: it is "
            "older than the first sighting of its group, its group is only discovered and has "
            "few nodes of the cluster, or a node without a group may be it"
        ),
    )
    MARK_LEFT = ReasonRow(
        "MarkLeftBehind",
        "a removal that is over has left its mark on {instance}",
        detail="[{machines:several} machines in all]",
        meaning=(
            "a removal that is over has left its `delete-machine` annotation on a Machine; an "
            "operation takes it off"
        ),
    )


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """A code with the numbers behind it: amounts in the resource's own unit,
    instants in epoch seconds."""

    code: ReasonCode
    params: dict[str, str | int | float] = {}

    @property
    def key(self) -> tuple[ReasonCode, tuple[tuple[str, str | int | float], ...]]:
        """Return a hashable key that is equal for equal reasons; a reason itself contains
        a dict and cannot be one."""
        return self.code, tuple(sorted(self.params.items()))

    @property
    def drain_rule(self) -> str:
        """Return the code of the rule by which a pod blocks its node, "" for another reason."""
        return str(self.params.get("rule", "")) if self.code is ReasonCode.BLOCKED_BY_POD else ""

    @property
    def never_drains(self) -> bool:
        """Return whether a node stays for a budget that never allows a disruption, also where that
        was established a few passes ago."""
        rule = self.params.get("rule")
        return rule == ReasonCode.NOT_ENOUGH_PDB.value and "required" in self.params

    @staticmethod
    def of(code: ReasonCode, **params: str | int | float) -> Reason:
        """Create a reason; the texts of its row name its parameters."""
        return Reason(code, params)
