"""Flags about removing nodes, and those that upstream has dropped."""

from __future__ import annotations

from chalicelib.policy.option_definitions import (
    DRAIN_PRIORITIES,
    DURATION,
    POSITIVE,
    RATIO,
    WHOLE,
    OptionGroup,
    boolean,
    ignored,
    later,
    on,
)
from chalicelib.policy.value_types import BOOLEAN

_POOL = "upstream parses it and no longer reads it"
_GONE = "upstream has removed it"

GROUPS = (
    OptionGroup(
        "Which nodes may go",
        (
            on("scale-down-enabled", BOOLEAN, "Remove nodes at all."),
            on("scale-down-unready-enabled", BOOLEAN, "Remove unready nodes too."),
            on("scale-down-utilization-threshold", RATIO, "A node may go at or below this share of its allocatable."),
            on("scale-down-gpu-utilization-threshold", RATIO, "The same for nodes with GPUs, by their GPUs alone."),
            on("ignore-daemonsets-utilization", BOOLEAN, "Leave DaemonSet pods out of the share."),
            on("ignore-mirror-pods-utilization", BOOLEAN, "Leave static pods out of the share."),
            on("scale-down-unneeded-time", DURATION, "How long a node must have been unneeded; 0: no time."),
            on("scale-down-unready-time", DURATION, "The same for an unready node."),
            on("scale-down-delay-after-add", DURATION, "No removal for so long after a scale-up."),
            on("scale-down-delay-after-delete", DURATION, "No removal for so long after a removal."),
            on("scale-down-delay-after-failure", DURATION, "No removal for so long after a failed one."),
            on("scale-down-delay-type-local", BOOLEAN, "Count the three per group."),
            on("scale-down-simulation-timeout", DURATION, "Time for simulating removals in one pass."),
            on("unremovable-node-recheck-timeout", DURATION, "Leave a node that could not go alone for so long."),
            ignored("scale-down-non-empty-candidates-count", WHOLE, "30", "Most drained candidates per pass.", _POOL),
            ignored("scale-down-candidates-pool-ratio", RATIO, "0.1", "Share of nodes that are candidates.", _POOL),
            ignored("scale-down-candidates-pool-min-count", WHOLE, "50", "Fewest candidates.", _POOL),
            on(
                "node-deletion-candidate-ttl",
                DURATION,
                "Take unneeded times that the table does not know over from soft taints "
                "not older than this; 0: do not.",
            ),
            on("skip-nodes-with-system-pods", BOOLEAN, "A kube-system pod without a disruption budget keeps its node."),
            on(
                "blocking-system-pod-distruption-timeout",
                DURATION,
                "Up to this age of the pod; by default always. Upstream's spelling.",
            ),
            on("skip-nodes-with-local-storage", BOOLEAN, "A pod with hostPath or emptyDir keeps its node."),
            on(
                "skip-nodes-with-custom-controller-pods",
                BOOLEAN,
                "A pod of an unknown kind of controller keeps its node.",
            ),
            on("min-replica-count", WHOLE, "A pod of a smaller ReplicaSet or ReplicationController keeps its node."),
            boolean("node-removal-latency-tracking-enabled", "false", "Measure how long removals take."),
            boolean("max-node-skip-eval-time-tracker-enabled", "false", "Measure how long nodes go unlooked at."),
        ),
    ),
    OptionGroup(
        "How nodes go",
        (
            on("max-scale-down-parallelism", POSITIVE, "Maximum number of nodes being removed at once."),
            on("max-drain-parallelism", POSITIVE, "Most of these that are being drained."),
            on("max-bulk-soft-taint-count", WHOLE, "Soft taints written per pass; 0: none."),
            on("max-bulk-soft-taint-time", DURATION, "Time for them."),
            on("cordon-node-before-terminating", BOOLEAN, "Cordon the node as well as tainting it."),
            on("node-delete-delay-after-taint", DURATION, "Pause after the taint, so that the scheduler sees it."),
            boolean("dynamic-node-delete-delay-after-taint-enabled", "false", "Measure that pause instead."),
            on("max-graceful-termination-sec", WHOLE, "Longest grace period of a pod, in seconds."),
            on("drain-priority-config", DRAIN_PRIORITIES, "Grace per pod priority, lowest first: priority:seconds,…"),
            on("max-pod-eviction-time", DURATION, "How long one eviction is tried."),
            on("daemonset-eviction-for-empty-nodes", BOOLEAN, "Evict DaemonSet pods of empty nodes."),
            on("daemonset-eviction-for-occupied-nodes", BOOLEAN, "Evict DaemonSet pods of drained nodes."),
            on("node-deletion-delay-timeout", DURATION, "Longest wait for delay-deletion annotations to go."),
            later("node-deletion-batcher-interval", DURATION, "0s", "Gather removals of a group for so long."),
        ),
    ),
    OptionGroup(
        "Dropped by upstream",
        (
            ignored(
                "max-empty-bulk-delete",
                WHOLE,
                "10",
                "Maximum number of empty nodes removed at once.",
                f"{_GONE}; write maxScaleDownParallelism",
            ),
            ignored("parallel-drain", BOOLEAN, "true", "Drain several nodes at once.", f"{_GONE}; it is always on"),
            ignored("gce-expander-ephemeral-storage-support", BOOLEAN, "false", "GCE: count local disks.", _GONE),
            ignored("node-autoprovisioning-enabled", BOOLEAN, "false", "Create groups.", _GONE),
            ignored("max-autoprovisioned-node-group-count", WHOLE, "15", "Most groups created.", _GONE),
        ),
    ),
)
