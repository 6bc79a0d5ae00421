"""Prints the alerting rules for GET /metrics: `python -m infra.tools.prometheus_rules rules` as
a file of Prometheus, `python -m infra.tools.prometheus_rules resource` as a PrometheusRule of
the Prometheus operator.

Every expression keeps the label `cluster`, so that one file serves all clusters of a
deployment. `make docs` writes both files to infra/prometheus; tests compare them with this
table, and the table with the metrics.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import yaml

RUNBOOK = "docs/runbook.md"


class AlertRule(msgspec.Struct, frozen=True):
    """One alert. lasting: how long the expression must have a result. summary:
    with Prometheus' templates."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str

    @property
    def anchor(self) -> str:
        return self.name.lower()


ALERTS: tuple[AlertRule, ...] = (
    AlertRule(
        "OutscalerPassLate",
        "max by (cluster) (outscaler_pass_late) == 1",
        "2m",
        "critical",
        "{{ $labels.cluster }}: no pass for longer than its scan interval and 3 minutes",
    ),
    AlertRule(
        "OutscalerAbsent",
        "absent(cluster_autoscaler_last_activity)",
        "10m",
        "critical",
        "No metrics of any cluster: GET /metrics is not scraped, or no cluster has had a pass",
    ),
    AlertRule(
        "OutscalerUnreadable",
        "max by (cluster) (outscaler_unreadable) > 0",
        "5m",
        "critical",
        "{{ $labels.cluster }}: its policy or one of its rows cannot be read, so no pass starts",
    ),
    AlertRule(
        "OutscalerNotSafe",
        "min by (cluster) (cluster_autoscaler_cluster_safe_to_autoscale) == 0",
        "15m",
        "critical",
        "{{ $labels.cluster }}: too many nodes are not ready, so the cluster is not scaled",
    ),
    AlertRule(
        "OutscalerPodsUnhelped",
        "max by (cluster) (outscaler_pods_without_node_count) > 0",
        "20m",
        "warning",
        "{{ $labels.cluster }}: {{ $value }} pods have no node",
    ),
    AlertRule(
        "OutscalerGrowthFails",
        "sum by (cluster, reason) (increase(cluster_autoscaler_failed_scale_ups_total[30m])) > 3",
        "5m",
        "warning",
        "{{ $labels.cluster }}: scale-ups fail with {{ $labels.reason }}",
    ),
    AlertRule(
        "OutscalerEvictionsFail",
        (
            "sum by (cluster) (increase(cluster_autoscaler_evicted_pods_total{eviction_result="
            '"failed"}[1h])) > 5'
        ),
        "5m",
        "warning",
        "{{ $labels.cluster }}: {{ $value }} evictions failed in an hour",
    ),
    AlertRule(
        "OutscalerLimit",
        (
            "sum by (cluster, direction, reason) "
            "(increase(cluster_autoscaler_skipped_scale_events_count[15m])) > 0"
        ),
        "15m",
        "info",
        "{{ $labels.cluster }}: {{ $labels.reason }} holds back scaling {{ $labels.direction }}",
    ),
    AlertRule(
        "OutscalerGroupAtMax",
        "max by (cluster, node_group) (cluster_autoscaler_node_group_target_count)"
        " / max by (cluster, node_group) (cluster_autoscaler_node_group_max_count) >= 0.95",
        "15m",
        "warning",
        (
            "{{ $labels.cluster }}: {{ $labels.node_group }} is at {{ $value | humanizePercentage "
            "}} of its maximum"
        ),
    ),
    # `unless`, because the counter does not exist before the first removal
    AlertRule(
        "OutscalerRemovalsStuck",
        "min by (cluster) (min_over_time(cluster_autoscaler_pending_node_deletions[30m])) > 0"
        " unless on (cluster) sum by (cluster) "
        "(increase(cluster_autoscaler_scaled_down_nodes_total[30m])) > 0",
        "5m",
        "warning",
        "{{ $labels.cluster }}: nodes are being removed, and none has gone for half an hour",
    ),
    AlertRule(
        "OutscalerNodesSick",
        'max by (cluster) (outscaler_lifecycle_nodes_count{state="sick"}) > 0',
        "90m",
        "warning",
        "{{ $labels.cluster }}: {{ $value }} sick nodes are not repaired",
    ),
    AlertRule(
        "OutscalerBrake",
        "max by (cluster) (outscaler_brake) == 1",
        "1m",
        "critical",
        "{{ $labels.cluster }}: the circuit breaker stops all removals",
    ),
)


def rules() -> dict[str, Any]:
    return {"groups": [{"name": "outscaler", "rules": [_rule(alert) for alert in ALERTS]}]}


def resource() -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "outscaler", "labels": {"app.kubernetes.io/name": "outscaler"}},
        "spec": rules(),
    }


def text(content: dict[str, Any]) -> str:
    return _HEAD + yaml.safe_dump(content, sort_keys=False, width=110)


def _rule(alert: AlertRule) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": f"{RUNBOOK}#{alert.anchor}"},
    }


_HEAD = (
    "# Made by python -m infra.tools.prometheus_rules; do not edit it. docs/alarms.md describes "
    "the alerts.\n"
)
_CONTENTS = {"rules": rules, "resource": resource}


def main() -> int:
    sys.stdout.write(text(_CONTENTS[sys.argv[1]]()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
