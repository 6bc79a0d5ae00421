"""Parsing of the options of a valid document, and their warnings."""

from __future__ import annotations

from tests.cases import each_row
from tests.unit.policy.policy_documents import with_options
from tests.unit.policy.test_policy_load import read, warnings


@each_row(
    ("lines", "attribute", "value"),
    [
        ("scaleDownUnneededTime: 1h30m", "scale_down_unneeded_time", 5400.0),
        ("scaleDownUnneededTime: 0", "scale_down_unneeded_time", 0.0),
        # the longest
        ("scaleDownUnneededTime: 175200h", "scale_down_unneeded_time", 20 * 365 * 86400.0),
        ("newPodScaleUpDelay: 1500ms", "new_pod_scale_up_delay", 1.5),
        ("coresTotal: 0:100", "cores_total", (0, 100)),
        ("coresTotal: {max: 100}", "cores_total", (0, 100)),
        ("coresTotal: 100:100", "cores_total", (100, 100)),
        ("memoryTotal: 2:64", "memory_total", (2 * 2**30, 64 * 2**30)),  # GiB in, bytes out
        ("memoryTotal: {min: 2, max: 64}", "memory_total", (2 * 2**30, 64 * 2**30)),
        ("expendablePodsPriorityCutoff: -100", "expendable_pods_priority_cutoff", -100),
        ("expander: least-waste", "expander", ("least-waste",)),
        ("expander: [least-waste]", "expander", ("least-waste",)),
        ("maxTotalUnreadyPercentage: 33.3", "max_total_unready_percentage", 33.3),
        ("scaleDownEnabled: False", "scale_down_enabled", False),
        ("scaleDownEnabled: 'false'", "scale_down_enabled", False),
        (
            "startupTaint: node.cilium.io/agent-not-ready",
            "startup_taint",
            ("node.cilium.io/agent-not-ready",),
        ),
        ("startupTaint: a/b,c", "startup_taint", ("a/b", "c")),
        ("startupTaint:\n- a/b\n- c", "startup_taint", ("a/b", "c")),
        ("startupTaint: []", "startup_taint", ()),
        # upstream appends it as well
        ("ignoreTaint: old\nstartupTaint: new", "startup_taint", ("new", "old")),
        ("maxNodesPerScaleup: 5", "max_nodes_per_scale_up", 5),
        (
            "blockingSystemPodDistruptionTimeout: 2h",
            "blocking_system_pod_disruption_timeout",
            7200.0,
        ),
        (
            "allowedSchedulerNames: [a, b]\nbypassedSchedulerNames: [b]",
            "bypassed_scheduler_names",
            ("b",),
        ),
        ("maxGracefulTerminationSec: 30", "max_graceful_termination_sec", 30),
        (
            "gpuTotal: ['nvidia-tesla-t4:0:8', 'a100:1:2']",
            "gpu_total",
            (("nvidia-tesla-t4", 0, 8), ("a100", 1, 2)),
        ),
        ("gpuTotal: t4:0:8", "gpu_total", (("t4", 0, 8),)),
        ("namespace: autoscaling", "namespace", "autoscaling"),
        ("enforceNodeGroupMinSize: true", "enforce_node_group_min_size", True),
        ("forceDs: true", "force_ds", True),
        ("nodeInfoCacheExpireTime: 1h", "node_info_cache_expire_time", 3600.0),
        ("pendingPodsBatchingTimeout: 10s", "pending_pods_batching_timeout", 10.0),
        ("maxNodegroupBinpackingDuration: 1s", "max_nodegroup_binpacking_duration", 1.0),
        ("maxBinpackingTime: 20s", "max_binpacking_time", 20.0),
        ("balanceSimilarNodeGroups: true", "balance_similar_node_groups", True),
        ("balancingIgnoreLabel: [a, b/c]", "balancing_ignore_label", ("a", "b/c")),
        ("balancingLabel: a,b", "balancing_label", ("a", "b")),
        ("memoryDifferenceRatio: 0.02", "memory_difference_ratio", 0.02),
        ("maxFreeDifferenceRatio: 0.2", "max_free_difference_ratio", 0.2),
        ("maxAllocatableDifferenceRatio: 0.1", "max_allocatable_difference_ratio", 0.1),
        ("drainPriorityConfig: '2000:120,0:60'", "drain_priority_config", ((0, 60), (2000, 120))),
        (
            "drainPriorityConfig: ' -5:0 , 2000000000:30 '",
            "drain_priority_config",
            ((-5, 0), (2_000_000_000, 30)),
        ),
        ("drainPriorityConfig: ''", "drain_priority_config", ()),
        (
            "drainPriorityConfig: '0:60'\nmaxGracefulTerminationSec: 600",
            "drain_priority_config",
            ((0, 60),),
        ),
    ],
)
def test_policy_option_is_parsed(lines: str, attribute: str, value: object) -> None:
    assert getattr(read(with_options(lines)).options, attribute) == value


@each_row(
    ("option", "says"),
    [
        ("capacityQuotasEnabled: true", "accepted, not in force in this version"),
        (
            "frequentLoopsEnabled: true",
            "accepted, not in force in this version: the webhook does this",
        ),
        (
            "salvoScaleUp: false",
            "false changes nothing: here it is always so: one pass plans for all pending pods",
        ),
        ("enableGracefulDegradation: false", "false changes nothing: here it is always so"),
        (
            "scaleDownNonEmptyCandidatesCount: 30",
            "nothing reads it: upstream parses it and no longer reads it",
        ),
        (
            "maxEmptyBulkDelete: 10",
            "nothing reads it: upstream has removed it; write maxScaleDownParallelism",
        ),
        (
            "leaderElect: true",
            "it has no meaning here: one reconcile per cluster is held by a lease in the table",
        ),
        ("address: ':8085'", "it has no meaning here: metrics are pushed, nothing listens"),
        ("predicateParallelism: 4", "it has no meaning here"),
        ("estimator: binpacking", "nothing reads it: there is one way to count"),
        (
            "initialNodeGroupBackoffDuration: 1h",
            "the first back-off, 1h, is longer than the longest, 30m",
        ),
        ("ignoreTaint: a", "is upstream's old name and still counts: write startupTaint"),
    ],
)
def test_policy_option_without_full_effect_is_named_in_a_warning(option: str, says: str) -> None:
    name = option.partition(":")[0]
    (reported,) = warnings(with_options(option))
    assert reported.startswith(f"policy.yaml:10: spec.options.{name}: ")
    assert says in reported


@each_row(
    "name",
    [
        "enableGracefulDegradation",
        "enableCsiNodeAwareScheduling",
        "salvoScaleUp",
        "parallelScaleUp",
        "fastpathBinpackingEnabled",
    ],
)
def test_policy_option_that_requests_fixed_behaviour_causes_no_warning(name: str) -> None:
    assert warnings(with_options(f"{name}: true")) == ()


def test_policy_balancing_labels_override_ignored_labels_with_a_warning() -> None:
    text = with_options("balancingLabel: a\nbalancingIgnoreLabel: b")
    (reported,) = warnings(text)
    assert reported == (
        "policy.yaml:11: spec.options.balancingIgnoreLabel: "
        "has no effect together with balancingLabel, which alone decides similarity"
    )
    assert read(text).options.balancing_ignore_label == ("b",)
