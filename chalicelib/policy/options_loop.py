"""Flags about the loop, its process, and the discovery of groups."""

from __future__ import annotations

from chalicelib.policy.option_definitions import (
    DURATION,
    POSITIVE,
    TEXT,
    TEXTS,
    WHOLE,
    OptionGroup,
    boolean,
    elsewhere,
    ignored,
    later,
    no_meaning,
    on,
)
from chalicelib.policy.value_types import BOOLEAN, DNS_LABEL, OBJECT_NAME, number

_QPS = number(0.0, 10000.0, "5")
_LEASE = "one reconcile per cluster is held by a lease in the table"
_PUSHED = "metrics are pushed, nothing listens"

GROUPS = (
    OptionGroup(
        "Loop and reporting",
        (
            elsewhere("scan-interval", "Time between two passes over the cluster.", "spec.scanInterval"),
            boolean(
                "frequent-loops-enabled",
                "true",
                "Scan again at once after a change or a new unschedulable pod.",
                "the webhook does this",
            ),
            on("namespace", DNS_LABEL, "Where the status document and the ConfigMap of the priority expander are."),
            on("write-status-configmap", BOOLEAN, "Write the status document when it changes, otherwise every minute."),
            on("status-config-map-name", OBJECT_NAME, "Name of the status document, a ConfigMap in `namespace`."),
            on("record-duplicated-events", BOOLEAN, "Post the same event for the same object again within 5 minutes."),
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
    ),
    OptionGroup(
        "Access and identity",
        (
            elsewhere("kubernetes", "The cluster's API address.", "spec.kubernetes"),
            elsewhere("kubeconfig", "The cluster's credentials.", "spec.kubernetes.kubeconfigSecret"),
            elsewhere("cluster-name", "The cluster's name.", "metadata.name"),
            elsewhere("cloud-provider", "The provider's name.", "it as a key of spec.providers"),
            elsewhere("cloud-config", "The provider's configuration file.", "its settings under spec.providers"),
            elsewhere(
                "clusterapi-cloud-config-authoritative",
                "Which kubeconfig the management cluster has.",
                "spec.providers.clusterapi.cloudConfigAuthoritative",
            ),
        ),
    ),
    OptionGroup(
        "Which groups exist",
        (
            elsewhere(
                "nodes", "One group as <min>:<max>:<id>.", "it as an entry of spec.nodeGroups: {provider, id, min, max}"
            ),
            elsewhere(
                "node-group-auto-discovery", "Find groups by tags or labels.", "spec.providers.clusterapi.autoDiscovery"
            ),
            on("node-info-cache-expire-time", DURATION, "How long a template from a real node is cached."),
            boolean("async-node-groups", "false", "Create and delete groups in the background."),
            boolean("aws-use-static-instance-list", "false", "Use the built-in list of AWS instance types."),
            no_meaning("gce-concurrent-refreshes", POSITIVE, "1", "GCE: groups refreshed at once."),
            no_meaning(
                "gce-mig-instances-min-refresh-wait-time",
                DURATION,
                "5s",
                "GCE: pause between two refreshes of a group.",
            ),
            no_meaning("bulk-mig-instances-listing-enabled", BOOLEAN, "false", "GCE: list all instances in one call."),
        ),
    ),
    OptionGroup(
        "The process inside the cluster",
        (
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
            no_meaning("leader-elect-lease-duration", DURATION, "15s", "Length of the leader's lease.", _LEASE),
            no_meaning("leader-elect-renew-deadline", DURATION, "10s", "Time to renew it in.", _LEASE),
            no_meaning("leader-elect-retry-period", DURATION, "2s", "Pause between two tries.", _LEASE),
            no_meaning("leader-elect-resource-lock", TEXT, "leases", "Kind of the lease object.", _LEASE),
            no_meaning("leader-elect-resource-name", TEXT, "cluster-autoscaler", "Name of the lease object.", _LEASE),
            no_meaning("leader-elect-resource-namespace", TEXT, "", "Namespace of the lease object.", _LEASE),
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
    ),
)
