"""Flags about limits, pods, templates, expanders, and waiting for nodes."""

from __future__ import annotations

from chalicelib.policy.option_definitions import (
    CORES,
    DURATION,
    EXPANDERS,
    GPUS,
    LABEL_KEY,
    MEMORY,
    PERCENT,
    POSITIVE,
    RATIO,
    SCHEDULER,
    TAINT_KEY,
    TAINT_PREFIX,
    TEXT,
    WHOLE,
    OptionDefinition,
    OptionGroup,
    Status,
    always,
    boolean,
    later,
    no_meaning,
    on,
)
from chalicelib.policy.value_types import BOOLEAN, choice, listed, whole

_TAINTS = listed(TAINT_KEY, name="list of taint keys")
_LABELS = listed(LABEL_KEY, name="list of label keys")
_SCHEDULERS = listed(SCHEDULER, name="list of scheduler names")
_BUFFERS = "ProvisioningRequest objects"

GROUPS = (
    OptionGroup(
        "Limits of the whole cluster",
        (
            on(
                "max-nodes-total",
                WHOLE,
                "Most nodes in the cluster, those of no group and those on their way included; 0: no limit.",
            ),
            on("cores-total", CORES, "Fewest and most cores in the cluster."),
            on("memory-total", MEMORY, "Least and most memory in the cluster."),
            on("gpu-total", GPUS, "Fewest and most GPUs of a type, whatever the provider."),
            boolean("capacity-quotas-enabled", "false", "Obey CapacityQuota objects too."),
            on("enforce-node-group-min-size", BOOLEAN, "Grow a group whose target is below its minimum."),
        ),
    ),
    OptionGroup(
        "Which pods ask for nodes",
        (
            on(
                "expendable-pods-priority-cutoff",
                whole(-(2**31)),
                "Pods of a lower priority get no nodes and do not keep one.",
            ),
            on("new-pod-scale-up-delay", DURATION, "Leave pods alone until they are older than this."),
            on(
                "bypassed-scheduler-names",
                _SCHEDULERS,
                "Pods of these schedulers count before the scheduler has refused them.",
            ),
            on("allowed-scheduler-names", _SCHEDULERS, "Look only at pods of these schedulers; empty: all."),
            on("pending-pods-batching-timeout", DURATION, "Time for placing pending pods on nodes that exist."),
            always("enable-graceful-degradation", "When time runs out, go on with the pods placed so far."),
            boolean("enable-proactive-scaleup", "false", "Count pods that controllers are about to create."),
            later("pod-injection-limit", WHOLE, "5000", "Most pods to count ahead."),
            boolean("capacity-buffer-controller-enabled", "false", "Handle CapacityBuffer objects."),
            boolean("capacity-buffer-pod-injection-enabled", "false", "Count the pods that buffers stand for."),
            boolean("capacity-buffer-pod-dry-run-enabled", "true", "Try the buffers' pods out first."),
            boolean("enable-provisioning-requests", "false", f"Handle {_BUFFERS}."),
            later("provisioning-request-initial-backoff-time", DURATION, "1m", f"First pause for {_BUFFERS}."),
            later("provisioning-request-max-backoff-time", DURATION, "10m", f"Longest pause for {_BUFFERS}."),
            later("provisioning-request-max-backoff-cache-size", WHOLE, "1000", f"Pauses remembered for {_BUFFERS}."),
            boolean("check-capacity-batch-processing", "false", f"Handle several {_BUFFERS} at once."),
            later("check-capacity-provisioning-request-max-batch-size", WHOLE, "10", f"Most {_BUFFERS} at once."),
            later(
                "check-capacity-provisioning-request-batch-timebox", DURATION, "10s", f"Time for a batch of {_BUFFERS}."
            ),
            later("check-capacity-processor-instance", TEXT, "", f"Which {_BUFFERS} are ours."),
        ),
    ),
    OptionGroup(
        "Templates and predicates",
        (
            on(
                "startup-taint",
                _TAINTS,
                "Taints that go by themselves: absent from templates; a node that has one is not ready.",
            ),
            on(
                "startup-taint-prefix",
                listed(TAINT_PREFIX, name="list of prefixes"),
                "The same, by the beginning of the key.",
            ),
            on("status-taint", _TAINTS, "Taints absent from templates, while the node counts as ready."),
            OptionDefinition(
                "ignore-taint",
                _TAINTS,
                Status.ALIAS,
                "Old name of startupTaint; its keys are added there.",
                "",
                "write startupTaint",
                "startup_taint",
            ),
            on("force-ds", BOOLEAN, "Add every fitting DaemonSet to templates made from real nodes."),
            on("scale-from-unschedulable", BOOLEAN, "Templates of cordoned nodes count as schedulable."),
            later("scheduler-config-file", TEXT, "", "KubeSchedulerConfiguration with one profile."),
            no_meaning("predicate-parallelism", POSITIVE, "4", "Threads per search."),
            no_meaning("cluster-snapshot-parallelism", WHOLE, "16", "Threads for the snapshot."),
            boolean(
                "enable-dynamic-resource-allocation",
                "true",
                "Simulate resource claims.",
                "pods with claims are reported as not simulated",
            ),
            always("enable-csi-node-aware-scheduling", "Simulate volume limits of new nodes."),
            no_meaning(
                "enable-inter-pod-affinity-hostname-fast-path", BOOLEAN, "false", "A shortcut for hostname affinity."
            ),
        ),
    ),
    OptionGroup(
        "How many, and of which group",
        (
            OptionDefinition(
                "estimator",
                choice(("binpacking",)),
                Status.IGNORED,
                "How new nodes are counted; binpacking is the only way.",
                "binpacking",
                "there is one way to count",
            ),
            on("expander", EXPANDERS, "Choice of the option; the next one decides between equal ones."),
            later("grpc-expander-url", TEXT, "", "Address of an expander of your own."),
            later("grpc-expander-cert", TEXT, "", "Its certificate."),
            on("max-nodes-per-scaleup", WHOLE, "Most new nodes for one option; 0: no limit."),
            on("max-nodegroup-binpacking-duration", DURATION, "Time for counting one group; 0: no limit."),
            on("max-binpacking-time", DURATION, "Time for counting all groups; what was found by then is used."),
            always("fastpath-binpacking-enabled", "Count by arithmetic where pods are alike.", "counting is by class"),
            on("balance-similar-node-groups", BOOLEAN, "Spread one increase over groups that are alike."),
            on("balancing-ignore-label", _LABELS, "Labels that do not make groups unlike, for every provider."),
            on("balancing-label", _LABELS, "The only labels that make groups alike."),
            on(
                "memory-difference-ratio",
                RATIO,
                "How far the memory of groups that are alike may differ, as a share of the larger.",
            ),
            on("max-free-difference-ratio", RATIO, "The same for what is free."),
            on("max-allocatable-difference-ratio", RATIO, "The same for what is allocatable."),
            on("scale-up-from-zero", BOOLEAN, "Act even if the cluster has no ready node."),
            always("parallel-scale-up", "Grow the chosen groups at the same time.", "each operation runs by itself"),
            always("salvo-scale-up", "Grow several options in one pass.", "one pass plans for all pending pods"),
            later("salvo-scale-up-budget", DURATION, "1m", "Time for that."),
            boolean(
                "scaleup-simulation-for-skipped-node-groups-enabled",
                "false",
                "Report which skipped group would have fitted.",
            ),
        ),
    ),
    OptionGroup(
        "Node provisioning, health and backoff",
        (
            on(
                "max-node-provision-time", DURATION, "How long a machine may take to join; then the request has failed."
            ),
            on("max-node-startup-time", DURATION, "How long a node that joined may take to become ready."),
            on("initial-node-group-backoff-duration", DURATION, "First pause for a group that failed to grow."),
            on("max-node-group-backoff-duration", DURATION, "Longest pause; each failure doubles it up to here."),
            on("node-group-backoff-reset-timeout", DURATION, "Forget earlier failures after this time without one."),
            on("max-total-unready-percentage", PERCENT, "More unready nodes than this, and the cluster is left alone."),
            on("ok-total-unready-count", WHOLE, "So many unready nodes are always tolerated."),
            on("force-delete-unregistered-nodes", BOOLEAN, "Remove machines that never joined even below the minimum."),
            boolean("force-delete-failed-nodes", "false", "Force the deletion of machines whose creation failed."),
        ),
    ),
)
