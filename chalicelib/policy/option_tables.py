"""Upstream's flags, one row each: how it is read, whether it is in force here, and what it means.

Order and grouping follow upstream's areas. The defaults of options in force come from the model;
the table has only those of the other options. The meanings are for docs/policy.md.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.value_types import (
    BOOLEAN,
    DNS_LABEL,
    OBJECT_NAME,
    ValueType,
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
        first, *rest = self.flag.split("-")
        return first + "".join(word[:1].upper() + word[1:] for word in rest)


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
TEXT = text("text")
TEXTS = listed(TEXT, commas=False)
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
CORES = total("cores", 1, (0, 320000))
MEMORY = total("GiB", 2**30, (0, 6400000))
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


def on(flag: str, value_type: ValueType, meaning: str) -> OptionDefinition:
    """Define an option in force: a field of Options."""
    return OptionDefinition(flag, value_type, Status.IN_FORCE, meaning)


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
_TAINTS = listed(TAINT_KEY, name="list of taint keys")
_LABELS = listed(LABEL_KEY, name="list of label keys")
_SCHEDULERS = listed(SCHEDULER, name="list of scheduler names")
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
        on(
            "namespace",
            DNS_LABEL,
            "Where the status document and the ConfigMap of the priority expander are.",
        ),
        on(
            "write-status-configmap",
            BOOLEAN,
            "Write the status document when it changes, otherwise every minute.",
        ),
        on(
            "status-config-map-name",
            OBJECT_NAME,
            "Name of the status document, a ConfigMap in `namespace`.",
        ),
        on(
            "record-duplicated-events",
            BOOLEAN,
            "Post the same event for the same object again within 5 minutes.",
        ),
        on("emit-per-nodegroup-metrics", BOOLEAN, "Metrics per node group as well."),
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
        on(
            "node-info-cache-expire-time",
            DURATION,
            "How long a template from a real node is cached.",
        ),
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
        on(
            "max-nodes-total",
            WHOLE,
            (
                "Most nodes in the cluster, those of no group and those on their way included; 0: "
                "no limit."
            ),
        ),
        on("cores-total", CORES, "Fewest and most cores in the cluster."),
        on("memory-total", MEMORY, "Least and most memory in the cluster."),
        on("gpu-total", GPUS, "Fewest and most GPUs of a type, whatever the provider."),
        boolean("capacity-quotas-enabled", "false", "Obey CapacityQuota objects too."),
        on(
            "enforce-node-group-min-size",
            BOOLEAN,
            "Grow a group whose target is below its minimum.",
        ),
    ),
    "Which pods ask for nodes": (
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
        on(
            "allowed-scheduler-names",
            _SCHEDULERS,
            "Look only at pods of these schedulers; empty: all.",
        ),
        on(
            "pending-pods-batching-timeout",
            DURATION,
            "Time for placing pending pods on nodes that exist.",
        ),
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
        on(
            "startup-taint",
            _TAINTS,
            (
                "Taints that go by themselves: absent from templates; a node that has one is not "
                "ready."
            ),
        ),
        on(
            "startup-taint-prefix",
            listed(TAINT_PREFIX, name="list of prefixes"),
            "The same, by the beginning of the key.",
        ),
        on(
            "status-taint", _TAINTS, "Taints absent from templates, while the node counts as ready."
        ),
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
        on(
            "scale-from-unschedulable", BOOLEAN, "Templates of cordoned nodes count as schedulable."
        ),
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
        on("expander", EXPANDERS, "Choice of the option; the next one decides between equal ones."),
        later("grpc-expander-url", TEXT, "", "Address of an expander of your own."),
        later("grpc-expander-cert", TEXT, "", "Its certificate."),
        on("max-nodes-per-scaleup", WHOLE, "Most new nodes for one option; 0: no limit."),
        on(
            "max-nodegroup-binpacking-duration",
            DURATION,
            "Time for counting one group; 0: no limit.",
        ),
        on(
            "max-binpacking-time",
            DURATION,
            "Time for counting all groups; what was found by then is used.",
        ),
        always(
            "fastpath-binpacking-enabled",
            "Count by arithmetic where pods are alike.",
            "counting is by class",
        ),
        on(
            "balance-similar-node-groups",
            BOOLEAN,
            "Spread one increase over groups that are alike.",
        ),
        on(
            "balancing-ignore-label",
            _LABELS,
            "Labels that do not make groups unlike, for every provider.",
        ),
        on("balancing-label", _LABELS, "The only labels that make groups alike."),
        on(
            "memory-difference-ratio",
            RATIO,
            "How far the memory of groups that are alike may differ, as a share of the larger.",
        ),
        on("max-free-difference-ratio", RATIO, "The same for what is free."),
        on("max-allocatable-difference-ratio", RATIO, "The same for what is allocatable."),
        on("scale-up-from-zero", BOOLEAN, "Act even if the cluster has no ready node."),
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
        on(
            "max-node-provision-time",
            DURATION,
            "How long a machine may take to join; then the request has failed.",
        ),
        on(
            "max-node-startup-time",
            DURATION,
            "How long a node that joined may take to become ready.",
        ),
        on(
            "initial-node-group-backoff-duration",
            DURATION,
            "First pause for a group that failed to grow.",
        ),
        on(
            "max-node-group-backoff-duration",
            DURATION,
            "Longest pause; each failure doubles it up to here.",
        ),
        on(
            "node-group-backoff-reset-timeout",
            DURATION,
            "Forget earlier failures after this time without one.",
        ),
        on(
            "max-total-unready-percentage",
            PERCENT,
            "More unready nodes than this, and the cluster is left alone.",
        ),
        on("ok-total-unready-count", WHOLE, "So many unready nodes are always tolerated."),
        on(
            "force-delete-unregistered-nodes",
            BOOLEAN,
            "Remove machines that never joined even below the minimum.",
        ),
        boolean(
            "force-delete-failed-nodes",
            "false",
            "Force the deletion of machines whose creation failed.",
        ),
    ),
    "Which nodes may go": (
        on("scale-down-enabled", BOOLEAN, "Remove nodes at all."),
        on("scale-down-unready-enabled", BOOLEAN, "Remove unready nodes too."),
        on(
            "scale-down-utilization-threshold",
            RATIO,
            "A node may go at or below this share of its allocatable.",
        ),
        on(
            "scale-down-gpu-utilization-threshold",
            RATIO,
            "The same for nodes with GPUs, by their GPUs alone.",
        ),
        on("ignore-daemonsets-utilization", BOOLEAN, "Leave DaemonSet pods out of the share."),
        on("ignore-mirror-pods-utilization", BOOLEAN, "Leave static pods out of the share."),
        on(
            "scale-down-unneeded-time",
            DURATION,
            "How long a node must have been unneeded; 0: no time.",
        ),
        on("scale-down-unready-time", DURATION, "The same for an unready node."),
        on("scale-down-delay-after-add", DURATION, "No removal for so long after a scale-up."),
        on("scale-down-delay-after-delete", DURATION, "No removal for so long after a removal."),
        on(
            "scale-down-delay-after-failure", DURATION, "No removal for so long after a failed one."
        ),
        on("scale-down-delay-type-local", BOOLEAN, "Count the three per group."),
        on("scale-down-simulation-timeout", DURATION, "Time for simulating removals in one pass."),
        on(
            "unremovable-node-recheck-timeout",
            DURATION,
            "Leave a node that could not go alone for so long.",
        ),
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
        on(
            "node-deletion-candidate-ttl",
            DURATION,
            (
                "Take unneeded times that the table does not know over from soft taints not older "
                "than this; 0: do not."
            ),
        ),
        on(
            "skip-nodes-with-system-pods",
            BOOLEAN,
            "A kube-system pod without a disruption budget keeps its node.",
        ),
        on(
            "blocking-system-pod-distruption-timeout",
            DURATION,
            "Up to this age of the pod; by default always. Upstream's spelling.",
        ),
        on(
            "skip-nodes-with-local-storage",
            BOOLEAN,
            "A pod with hostPath or emptyDir keeps its node.",
        ),
        on(
            "skip-nodes-with-custom-controller-pods",
            BOOLEAN,
            "A pod of an unknown kind of controller keeps its node.",
        ),
        on(
            "min-replica-count",
            WHOLE,
            "A pod of a smaller ReplicaSet or ReplicationController keeps its node.",
        ),
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
        on(
            "max-scale-down-parallelism", POSITIVE, "Maximum number of nodes being removed at once."
        ),
        on("max-drain-parallelism", POSITIVE, "Most of these that are being drained."),
        on("max-bulk-soft-taint-count", WHOLE, "Soft taints written per pass; 0: none."),
        on("max-bulk-soft-taint-time", DURATION, "Time for them."),
        on("cordon-node-before-terminating", BOOLEAN, "Cordon the node as well as tainting it."),
        on(
            "node-delete-delay-after-taint",
            DURATION,
            "Pause after the taint, so that the scheduler sees it.",
        ),
        boolean(
            "dynamic-node-delete-delay-after-taint-enabled", "false", "Measure that pause instead."
        ),
        on("max-graceful-termination-sec", WHOLE, "Longest grace period of a pod, in seconds."),
        on(
            "drain-priority-config",
            DRAIN_PRIORITIES,
            "Grace per pod priority, lowest first: priority:seconds,…",
        ),
        on("max-pod-eviction-time", DURATION, "How long one eviction is tried."),
        on("daemonset-eviction-for-empty-nodes", BOOLEAN, "Evict DaemonSet pods of empty nodes."),
        on(
            "daemonset-eviction-for-occupied-nodes",
            BOOLEAN,
            "Evict DaemonSet pods of drained nodes.",
        ),
        on(
            "node-deletion-delay-timeout",
            DURATION,
            "Longest wait for delay-deletion annotations to go.",
        ),
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
