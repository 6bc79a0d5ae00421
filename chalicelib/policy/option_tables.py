"""Upstream's flags, one row each: whether it is in force here, and what it means.

Order and grouping follow upstream's areas. Options in force are declared by the fields of Options
(settings/cluster_options.py), the others here. The meanings are for docs/policy.md.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.policy.schema import fields_of
from chalicelib.policy.settings.cluster_options import (
    DURATION,
    POSITIVE,
    RATIO,
    TAINTS,
    WHOLE,
    Options,
)
from chalicelib.policy.value_types import (
    BOOLEAN,
    ValueType,
    choice,
    listed,
    number,
    text,
)

PRICED_EXPANDERS = ("price", "least-cost")  # requires spec.prices


class Status(StrEnum):
    """Effect of an option that a document sets."""

    IN_FORCE = "in force"
    ALIAS = "in force, old name"  # read into the Options field named by alias_of
    ACCEPTED = "accepted, not in force"  # known and checked; for a later version
    ALWAYS = "always so"  # an upstream switch that is always on here
    IGNORED = "read by nothing"  # parsed but not used upstream, or dropped there
    MEANINGLESS = "no meaning here"  # about a long-lived process in the cluster
    ELSEWHERE = "elsewhere"  # has another place in the document: refused with that place


class OptionDefinition(msgspec.Struct, frozen=True):
    """One flag. default: text, for options not in force. note: text added to
    the warning or the refusal."""

    flag: str
    kind: ValueType
    status: Status
    meaning: str
    default: str = ""
    note: str = ""
    alias_of: str = ""

    @property
    def name(self) -> str:
        """Return its name in the document: `scale-down-unneeded-time` ->
        `scaleDownUnneededTime`."""
        return _key(self.flag)


def _key(flag: str) -> str:
    first, *rest = flag.split("-")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


TEXT = text("text")
TEXTS = listed(TEXT, commas=False)
_DECLARED = {field.key: field for field in fields_of(Options)}


def on(flag: str) -> OptionDefinition:
    """Define an option in force, which a field of Options declares."""
    field = _DECLARED[_key(flag)]
    return OptionDefinition(flag, field.kind, Status.IN_FORCE, field.meaning)


def later(
    flag: str, value_type: ValueType, default: str, meaning: str, note: str = ""
) -> OptionDefinition:
    """Define an option that is known and checked but not in force in this version."""
    return OptionDefinition(flag, value_type, Status.ACCEPTED, meaning, default, note)


def always(flag: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define a switch that is always on here; documents that turn it off get a warning."""
    return OptionDefinition(flag, BOOLEAN, Status.ALWAYS, meaning, "true", note)


def ignored(
    flag: str, value_type: ValueType, default: str, meaning: str, note: str = ""
) -> OptionDefinition:
    """Define an option that neither upstream nor Outscaler uses."""
    return OptionDefinition(flag, value_type, Status.IGNORED, meaning, default, note)


def no_meaning(
    flag: str, value_type: ValueType, default: str, meaning: str, note: str = ""
) -> OptionDefinition:
    """Define an option about a process inside the cluster, which does not apply here."""
    return OptionDefinition(flag, value_type, Status.MEANINGLESS, meaning, default, note)


def elsewhere(flag: str, meaning: str, place: str) -> OptionDefinition:
    """Define an option that has its own place in the document."""
    return OptionDefinition(flag, TEXT, Status.ELSEWHERE, meaning, "", place)


def boolean(flag: str, default: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define a switch for a later version."""
    return later(flag, BOOLEAN, default, meaning, note)


_QPS = number(0.0, 10000.0, "5")
_LEASE = "one reconcile per cluster is held by a lease in the table"
_PUSHED = "metrics are pushed, nothing listens"
_BUFFERS = "ProvisioningRequest objects"
_POOL = "upstream parses it and no longer reads it"
_GONE = "upstream has removed it"

GROUPS: dict[str, tuple[OptionDefinition, ...]] = {
    "Loop and reporting": (
        elsewhere(
            "scan-interval", "Time between two passes over the cluster.", "spec.scanInterval"
        ),
        boolean(
            "frequent-loops-enabled",
            "true",
            "Scan again at once after a change or a new unschedulable pod.",
            "the webhook does this",
        ),
        on("namespace"),
        on("write-status-configmap"),
        on("status-config-map-name"),
        on("record-duplicated-events"),
        on("emit-per-nodegroup-metrics"),
        boolean(
            "debugging-snapshot-enabled",
            "false",
            "Offer the last snapshot for inspection.",
            "outscaler plan shows it",
        ),
        later("kube-client-qps", _QPS, "5", "Requests per second to the cluster's API."),
        later("kube-client-burst", WHOLE, "10", "How many of these may come at once."),
        later("user-agent", TEXT, "cluster-autoscaler", "Name of the HTTP client."),
    ),
    "Access and identity": (
        elsewhere("kubernetes", "The cluster's API address.", "spec.kubernetes"),
        elsewhere("kubeconfig", "The cluster's credentials.", "spec.kubernetes.kubeconfigSecret"),
        elsewhere("cluster-name", "The cluster's name.", "metadata.name"),
        elsewhere("cloud-provider", "The provider's name.", "it as a key of spec.providers"),
        elsewhere(
            "cloud-config",
            "The provider's configuration file.",
            "its settings under spec.providers",
        ),
        elsewhere(
            "clusterapi-cloud-config-authoritative",
            "Which kubeconfig the management cluster has.",
            "spec.providers.clusterapi.cloudConfigAuthoritative",
        ),
    ),
    "Which groups exist": (
        elsewhere(
            "nodes",
            "One group as <min>:<max>:<id>.",
            "it as an entry of spec.nodeGroups: {provider, id, min, max}",
        ),
        elsewhere(
            "node-group-auto-discovery",
            "Find groups by tags or labels.",
            "spec.providers.clusterapi.autoDiscovery",
        ),
        on("node-info-cache-expire-time"),
        boolean("async-node-groups", "false", "Create and delete groups in the background."),
        boolean(
            "aws-use-static-instance-list", "false", "Use the built-in list of AWS instance types."
        ),
        no_meaning("gce-concurrent-refreshes", POSITIVE, "1", "GCE: groups refreshed at once."),
        no_meaning(
            "gce-mig-instances-min-refresh-wait-time",
            DURATION,
            "5s",
            "GCE: pause between two refreshes of a group.",
        ),
        no_meaning(
            "bulk-mig-instances-listing-enabled",
            BOOLEAN,
            "false",
            "GCE: list all instances in one call.",
        ),
    ),
    "The process inside the cluster": (
        no_meaning(
            "kube-api-content-type",
            TEXT,
            "application/vnd.kubernetes.protobuf",
            "Wire format of the cluster's API.",
        ),
        no_meaning("address", TEXT, ":8085", "Where metrics are served.", _PUSHED),
        no_meaning(
            "max-inactivity",
            DURATION,
            "10m",
            "Liveness: longest time without activity.",
            "each pass is independent of earlier processes",
        ),
        no_meaning(
            "max-failing-time",
            DURATION,
            "15m",
            "Liveness: longest time without success.",
            "each pass is independent of earlier processes",
        ),
        no_meaning(
            "max-startup-time",
            DURATION,
            "20m",
            "Liveness: longest start.",
            "each pass is independent of earlier processes",
        ),
        no_meaning("leader-elect", BOOLEAN, "true", "One active replica.", _LEASE),
        no_meaning(
            "leader-elect-lease-duration", DURATION, "15s", "Length of the leader's lease.", _LEASE
        ),
        no_meaning("leader-elect-renew-deadline", DURATION, "10s", "Time to renew it in.", _LEASE),
        no_meaning("leader-elect-retry-period", DURATION, "2s", "Pause between two tries.", _LEASE),
        no_meaning(
            "leader-elect-resource-lock", TEXT, "leases", "Kind of the lease object.", _LEASE
        ),
        no_meaning(
            "leader-elect-resource-name",
            TEXT,
            "cluster-autoscaler",
            "Name of the lease object.",
            _LEASE,
        ),
        no_meaning(
            "leader-elect-resource-namespace", TEXT, "", "Namespace of the lease object.", _LEASE
        ),
        no_meaning("profiling", BOOLEAN, "false", "Serve profiles.", _PUSHED),
        ignored("regional", BOOLEAN, "false", "The cluster spans a region."),
        no_meaning("feature-gates", TEXTS, "", "Switches of the embedded Kubernetes code."),
        no_meaning("v", WHOLE, "0", "Log level."),
        no_meaning("vmodule", TEXT, "", "Log level per file."),
        no_meaning("logging-format", TEXT, "text", "Log format."),
        no_meaning("log-flush-frequency", DURATION, "5s", "How often logs are flushed."),
        no_meaning("log-dir", TEXT, "", "Folder of the log files."),
        no_meaning("log-file", TEXT, "", "Log file."),
        no_meaning("log-file-max-size", WHOLE, "1800", "Largest log file, in megabytes."),
        no_meaning("log-backtrace-at", TEXT, "", "Line whose log entry carries a stack."),
        no_meaning("logtostderr", BOOLEAN, "true", "Log to standard error."),
        no_meaning("alsologtostderr", BOOLEAN, "false", "Log to standard error too."),
        no_meaning("stderrthreshold", TEXT, "2", "Severity that goes to standard error."),
        no_meaning("one-output", BOOLEAN, "false", "Each entry to one log only."),
        no_meaning("skip-headers", BOOLEAN, "false", "No header in log entries."),
        no_meaning("skip-log-headers", BOOLEAN, "false", "No header in log files."),
        no_meaning("add-dir-header", BOOLEAN, "false", "File's folder in log entries."),
        no_meaning("scheduler-verbosity", WHOLE, "0", "Log level of the embedded scheduler."),
    ),
    "Limits of the whole cluster": (
        on("max-nodes-total"),
        on("cores-total"),
        on("memory-total"),
        on("gpu-total"),
        boolean("capacity-quotas-enabled", "false", "Obey CapacityQuota objects too."),
        on("enforce-node-group-min-size"),
    ),
    "Which pods ask for nodes": (
        on("expendable-pods-priority-cutoff"),
        on("new-pod-scale-up-delay"),
        on("bypassed-scheduler-names"),
        on("allowed-scheduler-names"),
        on("pending-pods-batching-timeout"),
        always(
            "enable-graceful-degradation", "When time runs out, go on with the pods placed so far."
        ),
        boolean(
            "enable-proactive-scaleup", "false", "Count pods that controllers are about to create."
        ),
        later("pod-injection-limit", WHOLE, "5000", "Most pods to count ahead."),
        boolean("capacity-buffer-controller-enabled", "false", "Handle CapacityBuffer objects."),
        boolean(
            "capacity-buffer-pod-injection-enabled",
            "false",
            "Count the pods that buffers stand for.",
        ),
        boolean("capacity-buffer-pod-dry-run-enabled", "true", "Try the buffers' pods out first."),
        boolean("enable-provisioning-requests", "false", f"Handle {_BUFFERS}."),
        later(
            "provisioning-request-initial-backoff-time",
            DURATION,
            "1m",
            f"First pause for {_BUFFERS}.",
        ),
        later(
            "provisioning-request-max-backoff-time",
            DURATION,
            "10m",
            f"Longest pause for {_BUFFERS}.",
        ),
        later(
            "provisioning-request-max-backoff-cache-size",
            WHOLE,
            "1000",
            f"Pauses remembered for {_BUFFERS}.",
        ),
        boolean("check-capacity-batch-processing", "false", f"Handle several {_BUFFERS} at once."),
        later(
            "check-capacity-provisioning-request-max-batch-size",
            WHOLE,
            "10",
            f"Most {_BUFFERS} at once.",
        ),
        later(
            "check-capacity-provisioning-request-batch-timebox",
            DURATION,
            "10s",
            f"Time for a batch of {_BUFFERS}.",
        ),
        later("check-capacity-processor-instance", TEXT, "", f"Which {_BUFFERS} are ours."),
    ),
    "Templates and predicates": (
        on("startup-taint"),
        on("startup-taint-prefix"),
        on("status-taint"),
        OptionDefinition(
            "ignore-taint",
            TAINTS,
            Status.ALIAS,
            "Old name of startupTaint; its keys are added there.",
            "",
            "write startupTaint",
            "startup_taint",
        ),
        on("force-ds"),
        on("scale-from-unschedulable"),
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
            "enable-inter-pod-affinity-hostname-fast-path",
            BOOLEAN,
            "false",
            "A shortcut for hostname affinity.",
        ),
    ),
    "How many, and of which group": (
        OptionDefinition(
            "estimator",
            choice(("binpacking",)),
            Status.IGNORED,
            "How new nodes are counted; binpacking is the only way.",
            "binpacking",
            "there is one way to count",
        ),
        on("expander"),
        later("grpc-expander-url", TEXT, "", "Address of an expander of your own."),
        later("grpc-expander-cert", TEXT, "", "Its certificate."),
        on("max-nodes-per-scaleup"),
        on("max-nodegroup-binpacking-duration"),
        on("max-binpacking-time"),
        always(
            "fastpath-binpacking-enabled",
            "Count by arithmetic where pods are alike.",
            "counting is by class",
        ),
        on("balance-similar-node-groups"),
        on("balancing-ignore-label"),
        on("balancing-label"),
        on("memory-difference-ratio"),
        on("max-free-difference-ratio"),
        on("max-allocatable-difference-ratio"),
        on("scale-up-from-zero"),
        always(
            "parallel-scale-up",
            "Grow the chosen groups at the same time.",
            "each operation runs by itself",
        ),
        always(
            "salvo-scale-up",
            "Grow several options in one pass.",
            "one pass plans for all pending pods",
        ),
        later("salvo-scale-up-budget", DURATION, "1m", "Time for that."),
        boolean(
            "scaleup-simulation-for-skipped-node-groups-enabled",
            "false",
            "Report which skipped group would have fitted.",
        ),
    ),
    "Node provisioning, health and backoff": (
        on("max-node-provision-time"),
        on("max-node-startup-time"),
        on("initial-node-group-backoff-duration"),
        on("max-node-group-backoff-duration"),
        on("node-group-backoff-reset-timeout"),
        on("max-total-unready-percentage"),
        on("ok-total-unready-count"),
        on("force-delete-unregistered-nodes"),
        boolean(
            "force-delete-failed-nodes",
            "false",
            "Force the deletion of machines whose creation failed.",
        ),
    ),
    "Which nodes may go": (
        on("scale-down-enabled"),
        on("scale-down-unready-enabled"),
        on("scale-down-utilization-threshold"),
        on("scale-down-gpu-utilization-threshold"),
        on("ignore-daemonsets-utilization"),
        on("ignore-mirror-pods-utilization"),
        on("scale-down-unneeded-time"),
        on("scale-down-unready-time"),
        on("scale-down-delay-after-add"),
        on("scale-down-delay-after-delete"),
        on("scale-down-delay-after-failure"),
        on("scale-down-delay-type-local"),
        on("scale-down-simulation-timeout"),
        on("unremovable-node-recheck-timeout"),
        ignored(
            "scale-down-non-empty-candidates-count",
            WHOLE,
            "30",
            "Most drained candidates per pass.",
            _POOL,
        ),
        ignored(
            "scale-down-candidates-pool-ratio",
            RATIO,
            "0.1",
            "Share of nodes that are candidates.",
            _POOL,
        ),
        ignored("scale-down-candidates-pool-min-count", WHOLE, "50", "Fewest candidates.", _POOL),
        on("node-deletion-candidate-ttl"),
        on("skip-nodes-with-system-pods"),
        on("blocking-system-pod-distruption-timeout"),
        on("skip-nodes-with-local-storage"),
        on("skip-nodes-with-custom-controller-pods"),
        on("min-replica-count"),
        boolean(
            "node-removal-latency-tracking-enabled", "false", "Measure how long removals take."
        ),
        boolean(
            "max-node-skip-eval-time-tracker-enabled",
            "false",
            "Measure how long nodes go unlooked at.",
        ),
    ),
    "How nodes go": (
        on("max-scale-down-parallelism"),
        on("max-drain-parallelism"),
        on("max-bulk-soft-taint-count"),
        on("max-bulk-soft-taint-time"),
        on("cordon-node-before-terminating"),
        on("node-delete-delay-after-taint"),
        boolean(
            "dynamic-node-delete-delay-after-taint-enabled", "false", "Measure that pause instead."
        ),
        on("max-graceful-termination-sec"),
        on("drain-priority-config"),
        on("max-pod-eviction-time"),
        on("daemonset-eviction-for-empty-nodes"),
        on("daemonset-eviction-for-occupied-nodes"),
        on("node-deletion-delay-timeout"),
        later(
            "node-deletion-batcher-interval",
            DURATION,
            "0s",
            "Gather removals of a group for so long.",
        ),
    ),
    "Dropped by upstream": (
        ignored(
            "max-empty-bulk-delete",
            WHOLE,
            "10",
            "Maximum number of empty nodes removed at once.",
            f"{_GONE}; write maxScaleDownParallelism",
        ),
        ignored(
            "parallel-drain",
            BOOLEAN,
            "true",
            "Drain several nodes at once.",
            f"{_GONE}; it is always on",
        ),
        ignored(
            "gce-expander-ephemeral-storage-support",
            BOOLEAN,
            "false",
            "GCE: count local disks.",
            _GONE,
        ),
        ignored("node-autoprovisioning-enabled", BOOLEAN, "false", "Create groups.", _GONE),
        ignored("max-autoprovisioned-node-group-count", WHOLE, "15", "Most groups created.", _GONE),
    ),
}
"""Heading of the reference -> options."""
