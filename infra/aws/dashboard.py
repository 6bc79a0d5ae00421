"""The CloudWatch dashboard of a deployment: one cluster by a variable, and the
deployment's functions and queues.

It has the same rows as the dashboard for Grafana (infra/tools/grafana_dashboard.py). Clusters whose
policy asks for a summary send few series, each only while it is not zero
(chalicelib/journal/metrics.py); the other panels need `spec.metrics: full`. Both kinds of
deployment create it as a resource of CloudFormation, on request: each dashboard beyond the free
ones costs about 3 USD a month.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.journal.metrics import COUNTER, METRICS, NAMESPACE, PREFIX, SERIES
from chalicelib.runtime.messages import RECONCILE
from infra.aws.alarm_resources import Names
from infra.aws.alarms import ACT, DEAD_LETTERS, FIVE_MINUTES, LAMBDA, PASSES, SQS
from infra.aws.resources import Resources

CLUSTER = "CLUSTER_NAME"
"""Text in the widgets that the variable replaces with the chosen cluster's name."""

_WIDTH, _HEIGHT = 24, 6
_SINGLE, _TABLE = "singleValue", "table"
_FAILURES = ("failed_scale_ups_total", "failed_node_creations_total", "failed_operations_total")
_TYPES = {metric.name: metric for metric in METRICS}

Json = dict[str, Any]


class Panel(msgspec.Struct, frozen=True):
    """One widget. metrics: names without the prefix, all of one cluster. machinery: metrics of AWS,
    as CloudWatch lists them in widgets, made with the deployment's names."""

    title: str
    metrics: tuple[str, ...] = ()
    view: str = "timeSeries"
    stacked: bool = False
    machinery: str = ""


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Now",
        (
            Panel("Safe to autoscale", ("cluster_safe_to_autoscale",), _SINGLE),
            Panel("Pods without a node", ("unschedulable_pods_count",), _SINGLE),
            Panel("Nodes, and the most", ("nodes_count", "max_nodes_count"), _SINGLE),
            Panel(
                "Leaving, held back", ("pending_node_deletions", "scale_down_in_cooldown"), _SINGLE
            ),
            Panel("Errors", ("errors_total",), _SINGLE),
        ),
    ),
    (
        "Sizes",
        (
            Panel("Nodes by state", ("nodes_count", "max_nodes_count"), stacked=True),
            Panel(
                "Groups: target, min, max",
                ("node_group_target_count", "node_group_min_count", "node_group_max_count"),
            ),
        ),
    ),
    (
        "Done",
        (
            Panel("Nodes bought and removed", ("scaled_up_nodes_total", "scaled_down_nodes_total")),
            Panel(
                "Failures by class",
                (
                    "failed_scale_ups_total",
                    "failed_node_creations_total",
                    "failed_operations_total",
                ),
            ),
            Panel("Evictions by result", ("evicted_pods_total",)),
            Panel("Groups in back-off", ("node_group_backoff_status",)),
        ),
    ),
    (
        "Not done",
        (
            Panel(
                "Nodes that stay, by reason",
                ("unremovable_nodes_count", "unneeded_nodes_count"),
                stacked=True,
            ),
            Panel("Scalings held back by limits", ("skipped_scale_events_count",)),
            Panel("Cores and their limits", ("cluster_cpu_current_cores", "cpu_limits_cores")),
            Panel("Memory and its limits", ("cluster_memory_current_bytes", "memory_limits_bytes")),
        ),
    ),
    (
        "Deployment",
        (
            Panel("Ticks and passes", machinery="passes"),
            Panel("Length of a pass", machinery="lengths"),
            Panel("Queues: age of the oldest message", machinery="queues"),
            Panel("Dead letters", machinery="dead"),
            Panel("Errors of functions", machinery="errors"),
            Panel("Concurrent executions", machinery="concurrency"),
        ),
    ),
    (
        "Groups",
        (
            Panel(
                "Groups",
                (
                    "node_group_min_count",
                    "node_group_target_count",
                    "node_group_max_count",
                    "node_group_healthiness",
                    "node_group_backoff_status",
                ),
                _TABLE,
            ),
        ),
    ),
)


def dashboard_resource(name: Any, names: Names) -> Resources:
    """Return the dashboard as a resource. name: of the dashboard, in a
    stack usually the stack's."""
    body = json.dumps(_body(names), separators=(",", ":"))
    return {
        "ClusterDashboard": {
            "Type": "AWS::CloudWatch::Dashboard",
            "Properties": {"DashboardName": name, "DashboardBody": {"Fn::Sub": body}},
        }
    }


def search(metric: str, labels: tuple[str, ...]) -> str:
    """Return a search for all series of a metric of the chosen cluster with exactly these
    labels besides the cluster."""
    schema = ",".join((NAMESPACE, "cluster", *labels))
    stat = "Sum" if _TYPES[metric].type == COUNTER else "Maximum"
    found = f'{{{schema}}} MetricName="{PREFIX}{metric}" cluster="{CLUSTER}"'
    return f"SEARCH('{found}', '{stat}', {FIVE_MINUTES})"


def _body(names: Names) -> Json:
    return {
        "variables": [
            {
                "type": "pattern",
                "pattern": CLUSTER,
                "inputType": "select",
                "id": "cluster",
                "label": "Cluster",
                "defaultValue": "__FIRST",
                "visible": True,
                "search": f"{{{NAMESPACE},cluster}}",
                "populateFrom": "cluster",
            }
        ],
        "widgets": list(_widgets(names)),
    }


def _widgets(names: Names) -> Iterator[Json]:
    top = 0
    for title, panels in ROWS:
        yield {
            "type": "text",
            "x": 0,
            "y": top,
            "width": _WIDTH,
            "height": 1,
            "properties": {"markdown": f"## {title}"},
        }
        width = _WIDTH // len(panels)
        for number, panel in enumerate(panels):
            yield {
                "type": "metric",
                "x": number * width,
                "y": top + 1,
                "width": width,
                "height": _HEIGHT,
                "properties": _properties(panel, names),
            }
        top += 1 + _HEIGHT


def _properties(panel: Panel, names: Names) -> Json:
    metrics = (
        _MACHINERY[panel.machinery](names) if panel.machinery else list(_searches(panel.metrics))
    )
    return {
        "title": panel.title,
        "view": panel.view,
        "stacked": panel.stacked,
        "region": "${AWS::Region}",
        "period": FIVE_MINUTES,
        "metrics": metrics,
    }


def _searches(metrics: tuple[str, ...]) -> Iterator[list[Json]]:
    """Return the searches of a panel. A summary has no label but the cluster, so its
    series are searched for, too."""
    for metric in metrics:
        labels = _TYPES[metric].labels
        yield [{"expression": search(metric, labels), "label": ""}]
        if labels and metric in SERIES:
            yield [{"expression": search(metric, ()), "label": ""}]


def _lambda(names: Names, metric: str, functions: tuple[str, ...], stat: str) -> list[list[Any]]:
    return [
        [LAMBDA, metric, "FunctionName", _text(names.function(name)), {"stat": stat, "label": name}]
        for name in functions
    ]


def _passes(names: Names) -> list[list[Any]]:
    return [
        *_lambda(names, "Invocations", ("tick", RECONCILE), "Sum"),
        [_text(names.namespace), "Passes", {"stat": "Sum", "label": "passes that succeeded"}],
    ]


def _queues(names: Names) -> list[list[Any]]:
    return [
        [
            SQS,
            "ApproximateAgeOfOldestMessage",
            "QueueName",
            _text(names.queue(name)),
            {"stat": "Maximum", "label": name},
        ]
        for name in (RECONCILE, *ACT)
    ]


def _dead(names: Names) -> list[list[Any]]:
    return [
        [
            SQS,
            "ApproximateNumberOfMessagesVisible",
            "QueueName",
            _text(names.dead_letters(name)),
            {"stat": "Maximum", "label": name},
        ]
        for name in DEAD_LETTERS
    ]


_MACHINERY: Mapping[str, Callable[[Names], list[list[Any]]]] = {
    "passes": _passes,
    "lengths": lambda names: _lambda(names, "Duration", PASSES, "p95"),
    "queues": _queues,
    "dead": _dead,
    "errors": lambda names: _lambda(names, "Errors", ("api_handler", "tick", *PASSES, *ACT), "Sum"),
    "concurrency": lambda names: [
        *_lambda(names, "ConcurrentExecutions", (*PASSES, *ACT), "Maximum"),
        [LAMBDA, "ClaimedAccountConcurrency", {"stat": "Maximum", "label": "account"}],
    ],
}


def _text(value: Any) -> str:
    """Return a name as it is written inside of Fn::Sub."""
    if isinstance(value, str):
        return value
    [(function, argument)] = value.items()
    texts: Mapping[str, Callable[[Any], str]] = {
        "Ref": lambda name: f"${{{name}}}",
        "Fn::GetAtt": lambda names: f"${{{'.'.join(names)}}}",
        "Fn::Sub": str,
    }
    return texts[function](argument)
