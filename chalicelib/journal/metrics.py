"""Defines the metrics, and how their values are named, stored and written for CloudWatch.

Names are upstream's, so that dashboards carry over; docs/metrics.md shows this table. Labels are
the cluster, the node group (only where the option emitPerNodegroupMetrics is set), the reason, and
those of upstream's own labels that have a small number of fixed values. A label is never a pod, a
node or a machine type: every combination of values is a series that costs money, so a test counts
them.

CloudWatch reads metrics from the log, in its embedded metric format. Powertools' serializer
produces the lines and is given a whole line at once: it thus keeps no state between lines, writes
nothing by itself, and uses the given instant instead of the wall clock's. Powertools' `Metrics`
class is not used, because it keeps everything in class attributes and prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from urllib.parse import quote, unquote

import msgspec

from chalicelib.policy.settings.cluster_policy import Metrics

NAMESPACE = "Outscaler"
PREFIX = "cluster_autoscaler_"
OWN_PREFIX = "outscaler_"
"""Of metrics that upstream does not have in any form. They are on the page of GET /metrics only."""
COSTS = ("cost_per_hour", "node_group_cost_per_hour")
"""Gauges of the bill, which is made once in five minutes."""
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
CLUSTER, GROUP, POOL, CURRENCY = "cluster", "node_group", "pool", "currency"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histogram in seconds; a function lives 120 at most."""
_PER_LINE = 100  # maximum metrics in one line of CloudWatch's format


class Metric(msgspec.Struct, frozen=True):
    """One row of the table. labels: in addition to the cluster, in the order in which they are
    written. alarm: what an alarm means on its sum over the labels, which a summary then has."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    prefix: str = PREFIX
    alarm: str = ""

    @property
    def full_name(self) -> str:
        """Return the name under which it is published."""
        return self.prefix + self.name


METRICS: tuple[Metric, ...] = (
    Metric("cluster_safe_to_autoscale", GAUGE, "1 if the cluster is healthy enough to be scaled."),
    Metric("nodes_count", GAUGE, "Nodes, and instances without one, by state.", ("state",)),
    Metric("node_groups_count", GAUGE, "Node groups that are scaled.", ("node_group_type",)),
    Metric(
        "unschedulable_pods_count",
        GAUGE,
        "Pods that wait for a place.",
        ("type",),
        alarm="pods wait for a place (`type` is `unschedulable`) for a long time",
    ),
    Metric("max_nodes_count", GAUGE, "The most nodes that policy and groups allow."),
    Metric("cluster_cpu_current_cores", GAUGE, "Cores of all nodes."),
    Metric("cluster_memory_current_bytes", GAUGE, "Memory of all nodes."),
    Metric("cpu_limits_cores", GAUGE, "Cluster-wide limits of cores.", ("direction",)),
    Metric("memory_limits_bytes", GAUGE, "Cluster-wide limits of memory.", ("direction",)),
    Metric("last_activity", GAUGE, "When something was done last, in Unix seconds.", ("activity",)),
    Metric("unneeded_nodes_count", GAUGE, "Nodes that the cluster could do without."),
    Metric("unremovable_nodes_count", GAUGE, "Nodes that stay, by reason.", ("reason",)),
    Metric("scale_down_in_cooldown", GAUGE, "1 while removals wait for a cooldown."),
    Metric("pending_node_deletions", GAUGE, "Nodes under way out."),
    Metric("node_group_min_count", GAUGE, "Smallest size of a group.", (GROUP,)),
    Metric("node_group_max_count", GAUGE, "Largest size of a group.", (GROUP,)),
    Metric("node_group_target_count", GAUGE, "Size that is asked of a group.", (GROUP,)),
    Metric("node_group_healthiness", GAUGE, "1 if a group is healthy.", (GROUP,)),
    Metric(
        "node_group_backoff_status", GAUGE, "1 while a group is in back-off.", (GROUP, "reason")
    ),
    Metric(
        "function_duration_seconds", HISTOGRAM, "Length of a pass and of its parts.", ("function",)
    ),
    Metric(
        "errors_total",
        COUNTER,
        "Errors, by where they came from.",
        ("type",),
        alarm="passes fail, or a provider cannot be read",
    ),
    Metric(
        "scaled_up_nodes_total", COUNTER, "Nodes bought.", alarm="more nodes are bought than usual"
    ),
    Metric(
        "failed_scale_ups_total",
        COUNTER,
        "Scale-ups that failed, by class of error.",
        ("reason",),
        alarm="nodes cannot be bought, or never join",
    ),
    Metric(
        "failed_operations_total",
        COUNTER,
        "Operations that failed or ran out of time.",
        ("kind",),
        alarm="operations fail, or end too late",
    ),
    Metric(
        "failed_node_creations_total", COUNTER, "Instances that could not be created.", ("reason",)
    ),
    Metric(
        "scaled_down_nodes_total",
        COUNTER,
        "Nodes removed, by why they could go.",
        ("reason",),
        alarm="more nodes are removed than usual",
    ),
    Metric("evicted_pods_total", COUNTER, "Evictions, by what came of them.", ("eviction_result",)),
    Metric(
        "old_unregistered_nodes_removed_count",
        COUNTER,
        "Instances removed that never became nodes.",
    ),
    Metric(
        "skipped_scale_events_count",
        COUNTER,
        "Scalings held back by a cluster-wide limit.",
        ("direction", "reason"),
    ),
    Metric(
        "cost_per_hour",
        GAUGE,
        "Price of all machines whose price is known.",
        (CURRENCY,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "node_group_cost_per_hour",
        GAUGE,
        "Price of a group's machines.",
        (GROUP, CURRENCY),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "node_ready_seconds",
        GAUGE,
        "Time from the request of a group's node until it is ready.",
        (GROUP, "quantile"),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "node_failure_rate",
        GAUGE,
        "Share of a group's nodes that do not come.",
        (GROUP,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "savings_total",
        COUNTER,
        "Money saved by removals, replacements and spot nodes.",
        (CURRENCY,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "disrupted_nodes_total",
        COUNTER,
        "Nodes removed, by why the plan chose them.",
        ("reason",),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "replacements_total",
        COUNTER,
        "Replacements, by how far they came.",
        ("result",),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "node_restarts_total",
        COUNTER,
        "Restarts of sick nodes, by what came of them.",
        ("result",),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "lifecycle_nodes_count",
        GAUGE,
        "Nodes that leave soon, or should be replaced.",
        ("state",),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "consolidation_moves_count",
        GAUGE,
        "Moves that the last pass wants.",
        ("state",),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "consolidation_leaving_nodes_count",
        GAUGE,
        "Nodes that leave until consolidation is over.",
        prefix=OWN_PREFIX,
    ),
    Metric(
        "consolidation_end_cost_per_hour",
        GAUGE,
        "Price of all nodes when they have left.",
        (CURRENCY,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "pods_on_leaving_nodes_count",
        GAUGE,
        "Pods that came to nodes that leave, although these were marked.",
        prefix=OWN_PREFIX,
    ),
    Metric(
        "pods_without_node_count",
        GAUGE,
        "Waiting pods for which no node is coming.",
        prefix=OWN_PREFIX,
    ),
    Metric(
        "unwell_node_groups_count",
        GAUGE,
        "Node groups that are not read, unhealthy, cannot grow or back off.",
        ("state",),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "unread_providers_count",
        GAUGE,
        "Providers whose groups could not be read.",
        prefix=OWN_PREFIX,
    ),
    Metric(
        "nodes_behind_budgets_count",
        GAUGE,
        "Unneeded nodes blocked by a PodDisruptionBudget that never allows a disruption.",
        prefix=OWN_PREFIX,
    ),
    Metric(
        "managed_pool_candidates_count",
        GAUGE,
        "Machine types in a zone and a market that a managed pool may buy.",
        (POOL,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "managed_pool_groups_count",
        GAUGE,
        "Groups of a managed pool that the vendor has.",
        (POOL,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "managed_pool_nodes_count",
        GAUGE,
        "Nodes of a managed pool.",
        (POOL,),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "managed_pool_cost_per_hour",
        GAUGE,
        "Price of a managed pool's nodes.",
        (POOL, CURRENCY),
        prefix=OWN_PREFIX,
    ),
    Metric(
        "pass_late",
        GAUGE,
        "1 while a pass is overdue, also where none has ever begun.",
        prefix=OWN_PREFIX,
    ),
    Metric("brake", GAUGE, "1 while the circuit breaker stops removals.", prefix=OWN_PREFIX),
    Metric(
        "paused",
        GAUGE,
        "1 while an operator has paused the cluster, or a part of it.",
        prefix=OWN_PREFIX,
    ),
    Metric("mode", GAUGE, "1 for the mode of the policy in force.", ("mode",), prefix=OWN_PREFIX),
    Metric(
        "unreadable",
        GAUGE,
        "1 while the policy or a row of the cluster cannot be read.",
        prefix=OWN_PREFIX,
    ),
)

PAGE_ONLY = frozenset(metric.name for metric in METRICS if metric.prefix == OWN_PREFIX)
"""Metrics that are not written to CloudWatch."""

Values = Mapping[str, float]
"""Values of series by key()."""


def key(name: str, **labels: str) -> str:
    """Return a series without its cluster as text: `nodes_count;state=ready`. Labels
    in the order of the table."""
    pairs = (f"{label}={_escaped(value)}" for label, value in labels.items())
    return ";".join((name, *pairs))


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return quote(value, safe="/:@ ,.+")


def parts(series: str) -> tuple[str, dict[str, str]]:
    """Return the name and labels that key() was given."""
    name, *labels = series.split(";")
    pairs = (label.partition("=") for label in labels)
    return name, {label: unquote(value) for label, _, value in pairs}


def to_stdout(line: str) -> None:
    """Print a line to standard output, where CloudWatch reads metrics of a Lambda function."""
    sys.stdout.write(line + "\n")


def lines(
    cluster: str, values: Values, now: float, *, fields: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Return lines of CloudWatch's format, one for all series with the same
    labels. now: epoch seconds.

    values: for counters the increments. fields: further fields for log queries; they are not
    dimensions and create no series.
    """
    by_labels: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for series, value in values.items():
        name, labels = parts(series)
        by_labels.setdefault(tuple(labels.items()), {})[name] = value
    # Imported here because the page of GET /metrics needs only the table above.
    from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
        AmazonCloudWatchEMFProvider,
    )

    provider = AmazonCloudWatchEMFProvider(namespace=NAMESPACE)
    provider.service = ""  # otherwise the environment's would be one more dimension
    provider.timestamp = int(now * 1000)
    for pairs, named in by_labels.items():
        dimensions = {CLUSTER: cluster, **dict(pairs)}
        metadata = {name: value for name, value in (fields or {}).items() if name not in dimensions}
        metrics = [
            (PREFIX + name, {"Unit": _unit(name), "Value": value}) for name, value in named.items()
        ]
        for start in range(0, len(metrics), _PER_LINE):
            metric_set = dict(metrics[start : start + _PER_LINE])
            line = provider.serialize_metric_set(metric_set, dimensions, metadata)
            yield msgspec.json.encode(line).decode()


def _unit(name: str) -> str:
    if name.endswith("_bytes"):
        return "Bytes"
    return "Seconds" if name.endswith(("_seconds", "last_activity")) else "Count"


SERIES = tuple(sorted(metric.name for metric in METRICS if metric.alarm))
"""The names of a summary, each of which is one series per cluster: the sum over its labels."""

# excludes pods that the scheduler has not processed yet
_ONLY = {"unschedulable_pods_count": {"type": "unschedulable"}}


def for_cloudwatch(values: Values, metrics: Metrics) -> Values:
    """Return the values that are written to CloudWatch. values: by key(), for
    counters the increments.

    CloudWatch charges for a metric in each hour in which it is sent. In a summary, a series is
    therefore written only where it is not zero, and none has a label but the cluster: an idle
    cluster writes nothing, and a busy one has six series at most. An alarm on one of them treats
    missing data as good. `GET /metrics` does not depend on this.
    """
    if metrics is Metrics.OFF:
        return {}
    if metrics is Metrics.FULL:
        return {
            series: value for series, value in values.items() if parts(series)[0] not in PAGE_ONLY
        }
    sums: dict[str, float] = {}
    for series, value in values.items():
        name, labels = parts(series)
        required_labels = _ONLY.get(name, {}).items()
        if name in SERIES and value and required_labels <= labels.items():
            total = key(name)
            sums[total] = sums.get(total, 0.0) + value
    return sums
