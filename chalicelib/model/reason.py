"""Reasons for what is not done: a code and its parameters, never a sentence. Only
reasons/text.py makes sentences.

A stored reason must be readable by later versions, so codes are never removed or changed. The texts
for users are those of the scheduler and Cluster Autoscaler.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ReasonCode(StrEnum):
    """Every reason that the planner gives."""

    # --- why a pod does not fit a node; parameters in the comments
    NODE_NAME = "NodeName"
    UNSCHEDULABLE_NODE = "NodeUnschedulable"
    UNTOLERATED_TAINT = "UntoleratedTaint"  # taint
    NODE_AFFINITY = "NodeAffinity"
    PORTS = "NodePorts"  # port
    INSUFFICIENT = "Insufficient"  # resource, needs, offers
    TOO_MANY_PODS = "TooManyPods"  # offers
    POD_AFFINITY = "PodAffinity"
    POD_ANTI_AFFINITY = "PodAntiAffinity"
    EXISTING_ANTI_AFFINITY = "ExistingPodsAntiAffinity"
    TOPOLOGY_SPREAD = "PodTopologySpread"  # key, skew, max
    TOPOLOGY_LABEL = "PodTopologySpreadLabel"  # key
    DISK_CONFLICT = "VolumeRestrictions"
    EXCLUSIVE_CLAIM = "ReadWriteOncePod"  # claim
    VOLUME_COUNT = "MaxVolumeCount"  # driver, max
    VOLUME_ZONE = "VolumeZone"  # volume
    VOLUME_NODE_AFFINITY = "VolumeNodeAffinity"  # volume
    UNBOUND_IMMEDIATE = "UnboundImmediateClaim"  # claim
    CLAIM_NOT_FOUND = "ClaimNotFound"  # claim
    VOLUME_NOT_FOUND = "VolumeNotFound"  # volume
    CLAIM_BEING_DELETED = "ClaimBeingDeleted"  # claim
    NOTHING_TO_BIND = "NoVolumeToBind"  # claim
    STORAGE_CAPACITY = "NotEnoughStorage"  # claim
    NOT_SIMULATED = "NotSimulated"  # what

    # --- why a node group does not scale up
    GROUP_UNHEALTHY = "NotReadyForScaleUp"  # detail
    GROUP_BACKOFF = "BackOff"  # until, error
    GROUP_MAX_SIZE = "MaxNodeGroupSizeReached"  # max
    GROUP_UNREADABLE = "GroupUnreadable"  # detail
    NO_TEMPLATE = "NoTemplate"  # detail
    MAX_NODES_TOTAL = "MaxNodesTotalReached"  # max
    RESOURCE_LIMIT = "ResourceLimit"  # resources, used, max, needs
    NOT_CHOSEN = "NotChosen"  # chosen
    ATOMIC_LIMIT = "AtomicScaleUpExceedsLimit"  # nodes, max
    NOT_PROMISED = "NotPromised"
    MAX_NODES_PER_SCALE_UP = "MaxNodesPerScaleUp"  # max
    TIME_BUDGET = "TimeBudget"  # seconds

    POOL_MAX_SIZE = "PoolMaxSizeReached"  # pool, max

    # --- why a rule adds no nodes, or no more
    RULE_NOT_DUE = "RuleNotDue"  # until
    RULE_EXPIRED = "RuleExpired"  # due
    RULE_BELOW = "RuleBelowThreshold"  # metric, rate, above
    RULE_NO_DATA = "RuleNoData"  # detail
    RULE_DEVICES = "RuleDevicesNotReady"  # node
    RULE_SCALING = "RulePoolScaling"  # pool, detail
    RULE_PODS_FIRST = "RulePendingPodsServed"
    RULE_SUPERSEDED = "RuleSuperseded"  # by
    RULE_INTERVAL = "RuleMinInterval"  # until
    RULE_INVALID = "RuleInvalid"  # rule, detail
    RULE_THRESHOLD = "RuleThresholdDoubtful"  # rule, detail
    RULE_NO_GROUP = "RuleGroupUnknown"  # rule, group
    RULES_OFF = "RulesDisabled"
    RULE_OBJECT_INVALID = "HorizontalNodeAutoscalerInvalid"  # object, detail

    # --- what a cluster should not have, in Plan.notes
    AVOID_TAINT = "IgnoreTaintPrefixUsed"  # node, taint
    AVOID_ANNOTATION = "DaemonSetEvictionAnnotationUsed"  # pod
    POOL_UNKNOWN = "PoolUnknown"  # where, name
    BAD_PROTECTION = "DoNotDisruptInvalid"  # pod, value
    NEW_NODES_LACK = "NewNodesLack"  # group, what, until

    GROUP_IN_ZONES = "NodeGroupInSeveralZones"  # group, zones
    TEMPLATE_OUTDATED = "VendorTemplateDiffers"  # group, differences

    # --- messages of expanders and limits, in Plan.notes
    EXPANDER_SKIPPED = "ExpanderSkipped"  # expander, detail
    PRIORITY_CONFIG_INVALID = "PriorityConfigMapInvalid"  # detail
    PRIORITY_NOT_MATCHED = "PriorityConfigMapNotMatchedGroup"  # group
    PRIORITY_NO_MATCH = "PriorityConfigMapNoGroupMatched"
    NO_PRICE = "NoPrice"  # group, detail

    # --- why a pod is not considered
    SCHEDULING_GATED = "SchedulingGated"  # gates
    DAEMONSET_POD = "DaemonSetPod"
    EXPENDABLE = "Expendable"  # priority, cutoff
    TERMINATING = "Terminating"
    NOMINATED = "Nominated"  # node
    NOT_YET_SEEN = "NotYetSeenByScheduler"
    TOO_YOUNG = "TooYoung"  # age, delay
    WAITING_FOR_MORE = "WaitingForMorePods"  # age, wait, left
    WAITING_FOR_SCHEDULER = "WaitingForScheduler"  # scheduler, refused, unseen, longest, left
    OTHER_SCHEDULER = "OtherScheduler"  # scheduler
    PODS_OFF = "UnschedulablePodsDisabled"
    CLUSTER_UNHEALTHY = "ClusterUnhealthy"  # unready, registered, option

    STORAGE_NOT_KNOWN = "StorageNotKnown"  # group, storage, detail, until
    ZONE_NOT_CERTAIN = "ZoneNotCertain"  # group, zone, detail, until

    # --- why a node is not removed
    SCALE_DOWN_DISABLED = "ScaleDownDisabled"
    SCALE_DOWN_DISABLED_ANNOTATION = "ScaleDownDisabledAnnotation"
    SCALE_DOWN_UNREADY_DISABLED = "ScaleDownUnreadyDisabled"
    NOT_AUTOSCALED = "NotAutoscaled"
    NOT_UNNEEDED_LONG_ENOUGH = "NotUnneededLongEnough"  # since, needs
    NOT_UNREADY_LONG_ENOUGH = "NotUnreadyLongEnough"  # since, needs
    GROUP_MIN_SIZE = "NodeGroupMinSizeReached"  # min, target
    MINIMAL_RESOURCE_LIMIT = "MinimalResourceLimitExceeded"
    BEING_DELETED = "CurrentlyBeingDeleted"
    NOT_UNDERUTILIZED = "NotUnderutilized"  # resource, utilization, threshold
    RECENTLY_UNREMOVABLE = "RecentlyUnremovable"  # until
    NO_PLACE_TO_MOVE_PODS = "NoPlaceToMovePods"  # pod, what
    BLOCKED_BY_POD = "BlockedByPod"  # pod, rule, and the rule's own parameters
    BLOCKED_BY_ON_COMPLETION_POD = "BlockedByOnCompletionPod"  # pod
    IN_COOLDOWN = "InCooldown"  # which, until
    PARALLELISM = "ParallelismReached"  # limit
    ATOMIC_FAILED = "AtomicScaleDownFailed"  # nodes, of
    NOT_EVALUATED = "NotUnneededOtherReason"  # seconds
    NODE_COOLDOWN = "NodeGroupCooldown"  # until
    GROUP_FROZEN = "NodeGroupUnhealthy"  # detail
    # what, limit, until; without until: once running removals have ended
    DISRUPTION_LIMIT = "MaxDisruption"
    DISRUPTION_BUDGET = "DisruptionBudget"  # budget, limit, until
    DISRUPTION_BRAKE = "DisruptionBrake"  # nodes, of, share
    # window, until; needs: seconds for which it must stay open
    OUTSIDE_WINDOW = "MaintenanceWindow"
    PAUSED = "Paused"  # what, until, detail; for groups that do not scale up, too
    GROUP_GROWING = "NodeGroupGrowing"
    REMOVAL_FAILED = "RemovalFailed"  # until, detail
    BOUGHT_BACK = "RemovalBoughtBack"  # owner, until
    NOT_STARTED = "NotStarted"
    POOL_MIN_SIZE = "PoolMinSizeReached"  # pool, min
    RULE_NEEDS_NODE = "RuleNeedsNode"  # rule, metric, rate, above
    HEADROOM = "HeadroomNeedsNode"  # headroom
    PROMISED = "PromisedToPendingPods"  # pod
    UNEXPECTED = "UnexpectedError"  # detail
    IDENTITY_CONTESTED = "NodeIdentityContested"  # instance, nodes

    # --- why a node is not consolidated; prices per hour, disruption as in
    # docs/reference/consolidation.md
    CONSOLIDATION_OFF = "ConsolidationOff"  # detail
    NODE_TOO_YOUNG = "NodeTooYoung"  # until
    NOT_QUIET = "NotQuiet"  # until
    POD_MOVED_RECENTLY = "PodMovedRecently"  # owner, until
    DO_NOT_DISRUPT = "DoNotDisrupt"  # pod, until; without a pod: the node's own annotation
    NO_CHEAPER_PLACE = "NoCheaperPlace"  # price, best, detail
    SAVINGS_TOO_SMALL = "SavingsTooSmall"  # saves, needs
    NOT_WORTH_DISRUPTION = "NotWorthDisruption"  # saves, disruption, score, needs
    SAME_SHAPE = "SameShape"  # group
    SPOT_FLEXIBILITY = "SpotFlexibility"  # cheaper, needs
    SURGE_LIMIT = "SurgeLimit"  # limit
    NOT_ROBUST = "NotRobust"  # pod, order
    NOT_CONFIRMED = "NotConfirmedYet"  # since, needs
    PRICE_UNSETTLED = "PriceUnsettled"  # group, until
    OTHER_MOVE_BETTER = "OtherMoveBetter"  # move, gain
    SEARCH_LIMIT = "SearchLimit"  # gap
    IN_REPLACEMENT = "InReplacement"  # id
    REPLACEMENT_FAILED = "ReplacementFailed"  # until, detail

    # --- spot: why a group is not bought or a node not moved, and notes (docs/reference/spot.md)
    NODE_AT_RISK = "NodeAtRisk"  # until, signal; without until: at once
    INTERRUPTION_REPORTED = "InterruptionReported"  # node, until, signal
    NO_REPLACEMENT_IN_TIME = "NoReplacementInTime"  # node, until, ready
    SPOT_AVOIDED = "RecentlyInterrupted"  # until
    SPOT_SHARE = "SpotShareReached"  # share, nodes, of
    ON_DEMAND_BASE = "OnDemandBase"  # base
    SPOT_RETURN = "SpotReturnsLater"  # group, until

    # --- age, drift, repair: why a node stays, and notes (docs/reference/node-lifecycle.md)
    NOT_EXPIRED = "NotExpired"  # until
    NOT_DUE = "NotDueAnyMore"  # node
    NODE_OVERDUE = "NodeOverdue"  # node, since
    NODE_DRIFTED = "NodeDrifted"  # node, detail
    GROUP_BUSY = "GroupBusy"  # who
    NOT_SICK_LONG_ENOUGH = "NotSickLongEnough"  # condition, since, needs
    CONDITION_PAUSES = "ConditionPauses"  # node, until
    RENEWAL_RESTS = "RenewalRests"  # group, renewed, until, node, detail
    TOO_MANY_UNHEALTHY = "TooManyUnhealthy"  # group, unhealthy, of, share
    REPAIRED_ONE_BY_ONE = "RepairedOneByOne"  # node
    CANNOT_RESTART = "CannotRestart"  # provider

    # --- why a pod blocks its node, the `rule` of BLOCKED_BY_POD
    CONTROLLER_NOT_FOUND = "ControllerNotFound"
    MIN_REPLICAS = "MinReplicasReached"
    NOT_REPLICATED = "NotReplicated"
    LOCAL_STORAGE = "LocalStorageRequested"
    NOT_SAFE_TO_EVICT = "NotSafeToEvictAnnotation"
    KUBE_SYSTEM = "UnmovableKubeSystemPod"
    NOT_ENOUGH_PDB = "NotEnoughPdb"

    # --- why a group is repaired
    LONG_UNREGISTERED = "LongUnregistered"  # instance, since, needs
    CREATION_FAILED = "InstanceCreationFailed"  # instance, error, detail
    SIZE_ABOVE_REALITY = "TargetAboveReality"  # registered, target, since
    SCALE_UP_TIMED_OUT = "ScaleUpTimedOut"  # nodes, since
    DISCARD_HELD = "DiscardHeld"  # group, instance, detail
    MARK_LEFT = "MarkLeftBehind"  # instance, machines


class DisruptionReason(StrEnum):
    """Why nodes go; a policy's disruptionBudgets name these words, but for the
    last, which nothing limits."""

    UNNEEDED = "unneeded"
    CONSOLIDATION = "consolidation"
    EXPIRED = "expired"
    DRIFTED = "drifted"
    REPAIR = "repair"
    INTERRUPTED = "interrupted"


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

    @staticmethod
    def of(code: ReasonCode, **params: str | int | float) -> Reason:
        """Create a reason; the comment of each code lists its parameter names."""
        return Reason(code, params)
