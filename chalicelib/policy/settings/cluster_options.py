"""spec.options: the cluster-wide options in force, with Cluster Autoscaler's defaults."""

import re
from typing import Annotated

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.value_types import (
    BOOLEAN,
    DNS_LABEL,
    OBJECT_NAME,
    choice,
    duration,
    listed,
    number,
    scalar,
    text,
    total,
    whole,
)

AVAILABLE_EXPANDERS = (
    "random",
    "most-pods",
    "least-waste",
    "least-nodes",
    "price",
    "priority",
    "least-cost",
)
KNOWN_EXPANDERS = (*AVAILABLE_EXPANDERS, "grpc")


def _parse_gpu_total(value: str) -> tuple[str, int, int]:
    parts = value.split(":")
    if (
        len(parts) != 3
        or not parts[0]
        or not all(part.isascii() and part.isdigit() for part in parts[1:])
    ):
        raise BadInput(
            "", f"{value[:60]!r} is not <type>:<min>:<max>", "write it like nvidia-tesla-t4:0:8"
        )
    least, most = int(parts[1][:18]), int(parts[2][:18])
    if least > most:
        raise BadInput(
            "",
            f"the minimum {least} is above the maximum {most}",
            "write it like nvidia-tesla-t4:0:8",
        )
    return parts[0], least, most


def _parse_drain_priorities(value: str) -> tuple[tuple[int, int], ...]:
    """Parse pairs by ascending priority, which is the order of eviction (docs/reference/drain.md
    "Priority groups"). Empty text means none, as upstream."""
    remedy, highest = "write it like 0:60,2000:120", 2**31 - 1
    pairs: dict[int, int] = {}
    for part in value.split(",") if value.strip() else ():
        match = re.fullmatch(r"(-?[0-9]{1,10}):([0-9]{1,6})", part.strip())
        if match is None:
            raise BadInput("", f"{value[:60]!r} is not priority:seconds pairs", remedy)
        priority, seconds = int(match[1]), int(match[2])
        if abs(priority) > highest:
            raise BadInput(
                "",
                f"priority {priority} is out of range",
                f"write priorities from {-highest} to {highest}",
            )
        if priority in pairs:
            raise BadInput("", f"{value[:60]!r} names priority {priority} twice", remedy)
        pairs[priority] = seconds
    return tuple(sorted(pairs.items()))


DURATION = duration()
WHOLE = whole()
POSITIVE = whole(1)
RATIO = number(0.0, 1.0, "0.5")
PERCENT = number(0.0, 100.0, "45")
TAINT_KEY = text(
    "a taint's key",
    r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?",
    "it like node.cilium.io/agent-not-ready",
)
TAINT_PREFIX = text(
    "the beginning of a taint's key",
    r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}",
    "it like startup.example.com/",
)
LABEL_KEY = text(
    "a label's key",
    r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?",
    "it like topology.example.com/rack",
)
SCHEDULER = text(
    "a scheduler's name",
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?",
    "it like default-scheduler",
)
EXPANDERS = listed(choice(KNOWN_EXPANDERS), name="list of expanders")
_ALL_CORES, _ALL_GIB = 320_000, 6_400_000
CORES = total("cores", 1, (0, _ALL_CORES))
MEMORY = total("GiB", 2**30, (0, _ALL_GIB))
GPUS = listed(
    scalar(
        "text",
        _parse_gpu_total,
        "it like nvidia-tesla-t4:0:8",
        lambda limit: "{}:{}:{}".format(*limit),
    ),
    name="list of type:min:max",
)
DRAIN_PRIORITIES = scalar(
    "priority:seconds pairs",
    _parse_drain_priorities,
    "it like 0:60,2000:120",
    lambda pairs: ",".join(f"{priority}:{seconds}" for priority, seconds in pairs),
)
TAINTS = listed(TAINT_KEY, name="list of taint keys")
_LABELS = listed(LABEL_KEY, name="list of label keys")
_SCHEDULERS = listed(SCHEDULER, name="list of scheduler names")
_PREFIXES = listed(TAINT_PREFIX, name="list of prefixes")
_PRIORITY = whole(-(2**31))


class Options(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Cluster-wide options supported by this version, with Cluster Autoscaler's defaults. Their
    flags, which option_tables.py orders, have the same words. gpu_total: (type, min, max).
    drain_priority_config: (priority, seconds of grace), ascending."""

    expander: Annotated[
        tuple[str, ...], EXPANDERS, "Choice of the option; the next one decides between equal ones."
    ] = ("least-waste",)
    max_nodes_total: Annotated[
        int,
        WHOLE,
        "Most nodes in the cluster, those of no group and those on their way included; 0: no "
        "limit.",
    ] = 0
    cores_total: Annotated[tuple[int, int], CORES, "Fewest and most cores in the cluster."] = (
        0,
        _ALL_CORES,
    )
    memory_total: Annotated[tuple[int, int], MEMORY, "Least and most memory in the cluster."] = (
        0,
        _ALL_GIB * 2**30,
    )
    gpu_total: Annotated[
        tuple[tuple[str, int, int], ...],
        GPUS,
        "Fewest and most GPUs of a type, whatever the provider.",
    ] = ()
    enforce_node_group_min_size: Annotated[
        bool, BOOLEAN, "Grow a group whose target is below its minimum."
    ] = False
    max_nodes_per_scale_up: Annotated[int, WHOLE, "Most new nodes for one option; 0: no limit."] = (
        msgspec.field(default=1000, name="maxNodesPerScaleup")
    )
    expendable_pods_priority_cutoff: Annotated[
        int, _PRIORITY, "Pods of a lower priority get no nodes and do not keep one."
    ] = -10
    new_pod_scale_up_delay: Annotated[
        float, DURATION, "Leave pods alone until they are older than this."
    ] = 0.0
    bypassed_scheduler_names: Annotated[
        tuple[str, ...],
        _SCHEDULERS,
        "Pods of these schedulers count before the scheduler has refused them.",
    ] = ()
    allowed_scheduler_names: Annotated[
        tuple[str, ...], _SCHEDULERS, "Look only at pods of these schedulers; empty: all."
    ] = ()
    startup_taint: Annotated[
        tuple[str, ...],
        TAINTS,
        "Taints that go by themselves: absent from templates; a node that has one is not ready.",
    ] = ()
    startup_taint_prefix: Annotated[
        tuple[str, ...], _PREFIXES, "The same, by the beginning of the key."
    ] = ()
    status_taint: Annotated[
        tuple[str, ...], TAINTS, "Taints absent from templates, while the node counts as ready."
    ] = ()
    scale_from_unschedulable: Annotated[
        bool, BOOLEAN, "Templates of cordoned nodes count as schedulable."
    ] = False
    force_ds: Annotated[
        bool, BOOLEAN, "Add every fitting DaemonSet to templates made from real nodes."
    ] = False
    node_info_cache_expire_time: Annotated[
        float, DURATION, "How long a template from a real node is cached."
    ] = 87600 * 3600.0
    namespace: Annotated[
        str, DNS_LABEL, "Where the status document and the ConfigMap of the priority expander are."
    ] = "kube-system"
    pending_pods_batching_timeout: Annotated[
        float, DURATION, "Time for placing pending pods on nodes that exist."
    ] = 240.0
    max_nodegroup_binpacking_duration: Annotated[
        float, DURATION, "Time for counting one group; 0: no limit."
    ] = 10.0
    max_binpacking_time: Annotated[
        float, DURATION, "Time for counting all groups; what was found by then is used."
    ] = 300.0
    balance_similar_node_groups: Annotated[
        bool, BOOLEAN, "Spread one increase over groups that are alike."
    ] = False
    balancing_ignore_label: Annotated[
        tuple[str, ...], _LABELS, "Labels that do not make groups unlike, for every provider."
    ] = ()
    balancing_label: Annotated[
        tuple[str, ...], _LABELS, "The only labels that make groups alike."
    ] = ()
    memory_difference_ratio: Annotated[
        float,
        RATIO,
        "How far the memory of groups that are alike may differ, as a share of the larger.",
    ] = 0.015
    max_free_difference_ratio: Annotated[float, RATIO, "The same for what is free."] = 0.05
    max_allocatable_difference_ratio: Annotated[
        float, RATIO, "The same for what is allocatable."
    ] = 0.05
    scale_up_from_zero: Annotated[bool, BOOLEAN, "Act even if the cluster has no ready node."] = (
        True
    )
    max_node_provision_time: Annotated[
        float, DURATION, "How long a machine may take to join; then the request has failed."
    ] = 900.0
    max_node_startup_time: Annotated[
        float, DURATION, "How long a node that joined may take to become ready."
    ] = 900.0
    initial_node_group_backoff_duration: Annotated[
        float, DURATION, "First pause for a group that failed to grow."
    ] = 300.0
    max_node_group_backoff_duration: Annotated[
        float, DURATION, "Longest pause; each failure doubles it up to here."
    ] = 1800.0
    node_group_backoff_reset_timeout: Annotated[
        float, DURATION, "Forget earlier failures after this time without one."
    ] = 10800.0
    max_total_unready_percentage: Annotated[
        float, PERCENT, "More unready nodes than this, and the cluster is left alone."
    ] = 45.0
    ok_total_unready_count: Annotated[int, WHOLE, "So many unready nodes are always tolerated."] = 3
    scale_down_enabled: Annotated[bool, BOOLEAN, "Remove nodes at all."] = True
    scale_down_unready_enabled: Annotated[bool, BOOLEAN, "Remove unready nodes too."] = True
    scale_down_utilization_threshold: Annotated[
        float, RATIO, "A node may go at or below this share of its allocatable."
    ] = 0.5
    scale_down_gpu_utilization_threshold: Annotated[
        float, RATIO, "The same for nodes with GPUs, by their GPUs alone."
    ] = 0.5
    ignore_daemonsets_utilization: Annotated[
        bool, BOOLEAN, "Leave DaemonSet pods out of the share."
    ] = False
    ignore_mirror_pods_utilization: Annotated[
        bool, BOOLEAN, "Leave static pods out of the share."
    ] = False
    scale_down_unneeded_time: Annotated[
        float, DURATION, "How long a node must have been unneeded; 0: no time."
    ] = 600.0
    scale_down_unready_time: Annotated[float, DURATION, "The same for an unready node."] = 1200.0
    scale_down_delay_after_add: Annotated[
        float, DURATION, "No removal for so long after a scale-up."
    ] = 600.0
    scale_down_delay_after_delete: Annotated[
        float, DURATION, "No removal for so long after a removal."
    ] = 0.0
    scale_down_delay_after_failure: Annotated[
        float, DURATION, "No removal for so long after a failed one."
    ] = 180.0
    scale_down_delay_type_local: Annotated[bool, BOOLEAN, "Count the three per group."] = False
    scale_down_simulation_timeout: Annotated[
        float, DURATION, "Time for simulating removals in one pass."
    ] = 30.0
    node_deletion_candidate_ttl: Annotated[
        float,
        DURATION,
        "Take unneeded times that the table does not know over from soft taints not older than "
        "this; 0: do not.",
    ] = 0.0
    unremovable_node_recheck_timeout: Annotated[
        float, DURATION, "Leave a node that could not go alone for so long."
    ] = 300.0
    skip_nodes_with_system_pods: Annotated[
        bool, BOOLEAN, "A kube-system pod without a disruption budget keeps its node."
    ] = True
    blocking_system_pod_disruption_timeout: Annotated[
        float, DURATION, "Up to this age of the pod; by default always. Upstream's spelling."
    ] = msgspec.field(
        # ten years: never, as upstream until 1.32; its later releases have an hour
        default=87600 * 3600.0,
        # misspelt in Cluster Autoscaler; kept because users have this name
        name="blockingSystemPodDistruptionTimeout",
    )
    skip_nodes_with_local_storage: Annotated[
        bool, BOOLEAN, "A pod with hostPath or emptyDir keeps its node."
    ] = True
    skip_nodes_with_custom_controller_pods: Annotated[
        bool, BOOLEAN, "A pod of an unknown kind of controller keeps its node."
    ] = True
    min_replica_count: Annotated[
        int, WHOLE, "A pod of a smaller ReplicaSet or ReplicationController keeps its node."
    ] = 0
    max_scale_down_parallelism: Annotated[
        int, POSITIVE, "Maximum number of nodes being removed at once."
    ] = 10
    max_drain_parallelism: Annotated[int, POSITIVE, "Most of these that are being drained."] = 1
    max_bulk_soft_taint_count: Annotated[int, WHOLE, "Soft taints written per pass; 0: none."] = 10
    max_bulk_soft_taint_time: Annotated[float, DURATION, "Time for them."] = 3.0
    cordon_node_before_terminating: Annotated[
        bool, BOOLEAN, "Cordon the node as well as tainting it."
    ] = True
    node_delete_delay_after_taint: Annotated[
        float, DURATION, "Pause after the taint, so that the scheduler sees it."
    ] = 5.0
    max_graceful_termination_sec: Annotated[
        int, WHOLE, "Longest grace period of a pod, in seconds."
    ] = 600
    drain_priority_config: Annotated[
        tuple[tuple[int, int], ...],
        DRAIN_PRIORITIES,
        "Grace per pod priority, lowest first: priority:seconds,…",
    ] = ()
    max_pod_eviction_time: Annotated[float, DURATION, "How long one eviction is tried."] = 120.0
    daemonset_eviction_for_empty_nodes: Annotated[
        bool, BOOLEAN, "Evict DaemonSet pods of empty nodes."
    ] = False
    daemonset_eviction_for_occupied_nodes: Annotated[
        bool, BOOLEAN, "Evict DaemonSet pods of drained nodes."
    ] = True
    node_deletion_delay_timeout: Annotated[
        float, DURATION, "Longest wait for delay-deletion annotations to go."
    ] = 120.0
    record_duplicated_events: Annotated[
        bool, BOOLEAN, "Post the same event for the same object again within 5 minutes."
    ] = False
    force_delete_unregistered_nodes: Annotated[
        bool, BOOLEAN, "Remove machines that never joined even below the minimum."
    ] = False
    write_status_configmap: Annotated[
        bool, BOOLEAN, "Write the status document when it changes, otherwise every minute."
    ] = True
    status_config_map_name: Annotated[
        str, OBJECT_NAME, "Name of the status document, a ConfigMap in `namespace`."
    ] = "cluster-autoscaler-status"
    emit_per_nodegroup_metrics: Annotated[bool, BOOLEAN, "Metrics per node group as well."] = False

    @property
    def cooldowns(self) -> tuple[float, float, float]:
        """Return the seconds without removals after a scale-up, a removal and a failed one."""
        return (
            self.scale_down_delay_after_add,
            self.scale_down_delay_after_delete,
            self.scale_down_delay_after_failure,
        )
