"""The validated, complete policy. Durations are seconds, memory is bytes.

The document uses Cluster Autoscaler's flags in lowerCamelCase; parsing, errors and defaults are in
chalicelib/policy. This module has the values that the planner and the handlers use.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.model.notification import Notifications
from chalicelib.model.pause import Pause
from chalicelib.model.reason import DisruptionReason
from chalicelib.model.scaling_rules import Headroom, Rule, ScaleUp, Schedule


class Mode(StrEnum):
    """`off` does nothing, `shadow` plans and explains but changes nothing, `active` acts.

    Only runtime/mode_guard.py reads it."""

    OFF = "off"
    SHADOW = "shadow"
    ACTIVE = "active"


class ClusterReading(StrEnum):
    """What a pass reads of its cluster: the changes since an earlier pass of the same process,
    everything, or changes that are compared with full lists of the same versions."""

    CHANGES = "changes"
    FULL = "full"
    VERIFY = "verify"


class Metrics(StrEnum):
    """What is written to CloudWatch: nothing, at most six series while they are not
    zero (`summary`), or all."""

    OFF = "off"
    SUMMARY = "summary"
    FULL = "full"


class Options(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Cluster-wide options supported by this version, with Cluster Autoscaler's defaults."""

    expander: tuple[str, ...] = ("least-waste",)
    max_nodes_total: int = 0
    cores_total: tuple[int, int] = (0, 320000)
    memory_total: tuple[int, int] = (0, 6400000 * 2**30)
    gpu_total: tuple[tuple[str, int, int], ...] = ()  # (type, min, max)
    enforce_node_group_min_size: bool = False
    max_nodes_per_scale_up: int = msgspec.field(default=1000, name="maxNodesPerScaleup")
    expendable_pods_priority_cutoff: int = -10
    new_pod_scale_up_delay: float = 0.0
    bypassed_scheduler_names: tuple[str, ...] = ()
    allowed_scheduler_names: tuple[str, ...] = ()
    startup_taint: tuple[str, ...] = ()
    startup_taint_prefix: tuple[str, ...] = ()
    status_taint: tuple[str, ...] = ()
    scale_from_unschedulable: bool = False
    force_ds: bool = False
    node_info_cache_expire_time: float = 87600 * 3600.0
    namespace: str = "kube-system"
    pending_pods_batching_timeout: float = 240.0
    max_nodegroup_binpacking_duration: float = 10.0
    max_binpacking_time: float = 300.0
    balance_similar_node_groups: bool = False
    balancing_ignore_label: tuple[str, ...] = ()
    balancing_label: tuple[str, ...] = ()
    memory_difference_ratio: float = 0.015
    max_free_difference_ratio: float = 0.05
    max_allocatable_difference_ratio: float = 0.05
    scale_up_from_zero: bool = True
    max_node_provision_time: float = 900.0
    max_node_startup_time: float = 900.0
    initial_node_group_backoff_duration: float = 300.0
    max_node_group_backoff_duration: float = 1800.0
    node_group_backoff_reset_timeout: float = 10800.0
    max_total_unready_percentage: float = 45.0
    ok_total_unready_count: int = 3
    scale_down_enabled: bool = True
    scale_down_unready_enabled: bool = True
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    ignore_daemonsets_utilization: bool = False
    ignore_mirror_pods_utilization: bool = False
    scale_down_unneeded_time: float = 600.0
    scale_down_unready_time: float = 1200.0
    scale_down_delay_after_add: float = 600.0
    scale_down_delay_after_delete: float = 0.0
    scale_down_delay_after_failure: float = 180.0
    scale_down_delay_type_local: bool = False
    scale_down_simulation_timeout: float = 30.0
    node_deletion_candidate_ttl: float = 0.0
    unremovable_node_recheck_timeout: float = 300.0
    skip_nodes_with_system_pods: bool = True
    blocking_system_pod_disruption_timeout: float = msgspec.field(
        # ten years: never, as upstream until 1.32; its later releases have an hour
        default=87600 * 3600.0,
        # misspelt in Cluster Autoscaler; kept because users have this name
        name="blockingSystemPodDistruptionTimeout",
    )
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    min_replica_count: int = 0
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    max_bulk_soft_taint_count: int = 10
    max_bulk_soft_taint_time: float = 3.0
    cordon_node_before_terminating: bool = True
    node_delete_delay_after_taint: float = 5.0
    max_graceful_termination_sec: int = 600
    # (priority, seconds of grace), ascending
    drain_priority_config: tuple[tuple[int, int], ...] = ()
    max_pod_eviction_time: float = 120.0
    daemonset_eviction_for_empty_nodes: bool = False
    daemonset_eviction_for_occupied_nodes: bool = True
    node_deletion_delay_timeout: float = 120.0
    record_duplicated_events: bool = False
    force_delete_unregistered_nodes: bool = False
    write_status_configmap: bool = True
    status_config_map_name: str = "cluster-autoscaler-status"
    emit_per_nodegroup_metrics: bool = False


class GroupPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of spec.nodeGroups: bounds and priority for the group with the provider's `id`."""

    provider: str
    id: str
    min: int | None = None
    max: int | None = None
    priority: int = 0


class NodePrices(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Hourly prices of nodes, in one currency. currency: its ISO 4217 code, "" if the policy does
    not say; such prices are only compared with each other and with those of the provider's own
    currency. as_of: the date of the list, YYYY-MM-DD, "" if unknown. A node costs the price of its
    instance type, otherwise cpu (per core) + memory (per GiB) + gpu (per GPU) of its capacity;
    `node` is added per node in both cases. spot: prices of instance types of spot groups, in place
    of the others. None: not set."""

    instance_types: dict[str, float] = {}
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    node: float = 0.0
    currency: str = ""
    as_of: str = ""
    spot: dict[str, float] = {}


class KubernetesAccess(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How to reach the cluster: a kubeconfig in a secret or a file, or an EKS cluster by name.

    in_cluster_kubeconfig_secret: access to the cluster in which Cluster Autoscaler would run, if
    that is a different one; used if there is no other access. context: of kubeconfig_secret or
    kubeconfig_file. watcher_secret: with which a watcher in the cluster seals the lists that it
    posts; empty where there is none.
    """

    kubeconfig_secret: str = ""
    kubeconfig_file: str = ""
    context: str = ""
    eks_cluster: str = ""
    region: str = ""
    allow_insecure_tls: bool = False
    in_cluster_kubeconfig_secret: str = ""
    watcher_secret: str = ""

    @property
    def has_own_way(self) -> bool:
        """Return whether one of the first three kinds of access is set."""
        return bool(self.kubeconfig_secret or self.kubeconfig_file or self.eks_cluster)


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Webhook settings: which senders and events may start a pass. reasons: relevant Event reasons;
    empty means the default list."""

    secret: str = ""
    reasons: tuple[str, ...] = ()
    debounce: float = 2.0


class MaxDisruption(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The circuit breaker: upper limits for removals. 0 and 0.0: no limit. share: the largest part
    of the autoscaled nodes that one plan may remove; a plan that exceeds it removes nothing until
    an operator releases it."""

    nodes_per_hour: int = 0
    pods_per_hour: int = 0
    share: float = 0.0


class ConsolidationMode(StrEnum):
    """`off` looks at nothing, `shadow` plans and explains moves, `remove` drains nodes into room
    that exists, `full` buys cheaper nodes, too."""

    OFF = "off"
    SHADOW = "shadow"
    REMOVE = "remove"
    FULL = "full"


class Effort(StrEnum):
    """How long the programme of a consolidation searches: its rounds and branch nodes."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class NodeLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of nodes, or a share of the nodes of a pool. Exactly one of them is set."""

    nodes: int | None = None
    share: float | None = None

    def of(self, registered: int) -> int:
        """Return the limit for a pool of so many nodes: a share is rounded down, but a share of 1 %
        and more is at least one node of a pool that has any."""
        if self.nodes is not None:
            return self.nodes
        share = self.share or 0.0
        least = 1 if share >= 0.01 and registered > 0 else 0
        return max(least, int(share * registered + 1e-9))


class Consolidation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.consolidation (docs/reference/consolidation.md). groups: ids or names of groups or
    pools, every group with a price. aggressiveness: a move must bring more than 1/aggressiveness of
    its pool's price per share of its disruption. min_savings: a share of the price of the nodes
    that go. replace_timeout: None as the group's maxNodeProvisionTime. Durations are seconds."""

    mode: ConsolidationMode = ConsolidationMode.OFF
    groups: tuple[str, ...] = ()
    aggressiveness: float = 2.0
    min_savings: float = 0.1
    quiet_time: float = 600.0
    min_node_age: float = 1800.0
    confirm_after: float = 60.0
    price_settle_time: float = 1800.0
    max_surge: NodeLimit = NodeLimit(share=0.1)
    max_replacements: int = 3
    moves_per_pod_per_day: int = 4
    split_nodes: bool = True
    spot_to_spot: bool = False
    min_cheaper_groups: int = 3
    replace_timeout: float | None = None
    effort: Effort = Effort.NORMAL


class DisruptionBudget(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of spec.disruptionBudgets: how many nodes of each pool may be on their way out at
    once. groups: the pools, without any all pools. reasons: what it limits, without any every
    reason but `unneeded`. cron, duration, time_zone: when it holds, as for a Window; always if cron
    is empty."""

    name: str
    nodes: NodeLimit
    groups: tuple[str, ...] = ()
    reasons: tuple[DisruptionReason, ...] = ()
    cron: str = ""
    duration: float = 0.0
    time_zone: str = "UTC"


class DriftAction(StrEnum):
    """What happens to a node that its group would create otherwise now."""

    OFF = "off"
    REPORT = "report"
    REPLACE = "replace"


class RepairAction(StrEnum):
    """What happens to a sick node. A node that is sick again after its restart is replaced."""

    RESTART = "restart"
    REPLACE = "replace"


class RepairRule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of spec.nodeLifecycle.repair: nodes with the condition in one of these statuses for
    `after` seconds are sick. flap_time: an interruption of the condition that is shorter does not
    reset this time. groups: ids or names of groups or pools, all groups without any."""

    condition: str
    after: float
    status: tuple[str, ...] = ("True",)
    flap_time: float = 60.0
    action: RepairAction = RepairAction.REPLACE
    groups: tuple[str, ...] = ()


class NodeLifecycle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.nodeLifecycle (docs/reference/node-lifecycle.md). max_node_age: None: nodes may grow
    old. groups: ids or names of groups or pools to which age and drift apply, all groups without
    any. jitter: the largest share of max_node_age by which a node goes earlier. expiry_grace:
    seconds after max_node_age until a node is reported as overdue. max_unhealthy: a group with a
    larger share of sick nodes is not repaired. annotations: whether karpenter.sh/do-not-disrupt
    holds expired and drifted nodes; it never holds a repair."""

    max_node_age: float | None = None
    groups: tuple[str, ...] = ()
    jitter: float = 0.1
    expiry_grace: float = 72 * 3600.0
    drift: DriftAction = DriftAction.REPORT
    repair: tuple[RepairRule, ...] = ()
    max_unhealthy: float = 0.2
    annotations: bool = True


class InterruptionAction(StrEnum):
    """Whether nodes that their vendor takes back are evacuated, or only reported."""

    ACT = "act"
    REPORT = "report"


class RebalanceAction(StrEnum):
    """What a vendor's recommendation to leave a node is worth."""

    IGNORE = "ignore"
    PREFER = "prefer"


class Spot(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.spot (docs/reference/spot.md). groups: ids or names of groups or pools, those that their
    provider or a label calls spot without any. avoid_after_interruption, return_after: seconds.
    max_share: of the nodes of a pool that one spot group may hold. on_demand_base: nodes of a pool
    that stay on demand."""

    groups: tuple[str, ...] = ()
    interruptions: InterruptionAction = InterruptionAction.ACT
    avoid_after_interruption: float = 1800.0
    return_after: float = 3600.0
    max_share: float = 1.0
    on_demand_base: int = 0
    rebalance: RebalanceAction = RebalanceAction.IGNORE


class Window(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A maintenance window: opens when the five-field cron expression matches in time_zone,
    lasts `duration` seconds. removals True: nodes are removed inside such windows only;
    False: not inside this one."""

    cron: str
    duration: float
    removals: bool = True
    time_zone: str = "UTC"
    name: str = ""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One cluster's policy in force. providers: each provider's own settings as validated text
    values. pauses: what an operator has paused now; never part of a document. node_lifecycle: None:
    nodes may grow old, drift and be sick. spot: None: interruptions are only reported."""

    name: str
    mode: Mode = Mode.SHADOW
    scan_interval: float = 60.0
    kubernetes: KubernetesAccess = KubernetesAccess()
    providers: dict[str, dict[str, str]] = {}
    node_groups: tuple[GroupPolicy, ...] = ()
    options: Options = Options()
    webhook: Webhook = Webhook()
    prices: NodePrices | None = None
    max_disruption: MaxDisruption = MaxDisruption()
    consolidation: Consolidation = Consolidation()
    disruption_budgets: tuple[DisruptionBudget, ...] = ()
    node_lifecycle: NodeLifecycle | None = None
    spot: Spot | None = None
    maintenance_windows: tuple[Window, ...] = ()
    rules: tuple[Rule, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    scale_up: ScaleUp = ScaleUp()
    metrics: Metrics = Metrics.SUMMARY
    notifications: Notifications | None = None
    record_decisions: bool = False
    reading: ClusterReading = ClusterReading.CHANGES
    version: int = 0
    pauses: tuple[Pause, ...] = ()


def in_mode(policy: Policy, word: str) -> Policy:
    """Return the policy in another mode, given by the document's word for it. Raises
    ValueError for an unknown mode."""
    return msgspec.structs.replace(policy, mode=Mode(word))
