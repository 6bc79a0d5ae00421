"""Prints the Grafana dashboard for GET /metrics: `python -m infra.tools.grafana_dashboard`.

The first row has the panels that users of the kubernetes-autoscaling-mixin look for. The other rows
are those of the CloudWatch dashboard (infra/aws/dashboard.py). `make docs` writes
infra/grafana/outscaler.json; tests compare it, and read every expression.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

Json = dict[str, Any]

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _STAT_HEIGHT, _HEIGHT = 24, 4, 8
_PREFIX = "cluster_autoscaler_"
_STAT, _SERIES, _HEAT, _STATES, _TABLE = "stat", "timeseries", "heatmap", "state-timeline", "table"


class GrafanaPanel(msgspec.Struct, frozen=True):
    """One panel. queries: pairs of an expression and its legend. In expressions, `{}`
    after a metric stands for the selection of the cluster, and `{,` begins further labels.
    help: shown with the panel."""

    title: str
    queries: tuple[tuple[str, str], ...]
    kind: str = _SERIES
    unit: str = "short"
    stacked: bool = False
    help: str = ""


_NEEDS_POOLS = "Needs managedPools in the policy."
_SAFE = ("max(cluster_autoscaler_cluster_safe_to_autoscale{})", "safe")
_PENDING = ('sum(cluster_autoscaler_unschedulable_pods_count{,type="unschedulable"})', "pending")
_TOTAL = ("sum(cluster_autoscaler_nodes_count{})", "nodes")
_LENGTHS = (
    'sum by (le) (increase(cluster_autoscaler_function_duration_seconds_bucket{,function="main"}[$_'
    "_rate_interval]))"
)
_MOST = ("max(cluster_autoscaler_max_nodes_count{})", "most")

ROWS: tuple[tuple[str, tuple[GrafanaPanel, ...]], ...] = (
    (
        "Overview",
        (
            GrafanaPanel(
                "Total nodes", (_TOTAL,), _STAT, help="Unregistered machines are included."
            ),
            GrafanaPanel(
                "Max nodes",
                (_MOST,),
                _STAT,
                help="The lesser of maxNodesTotal and all groups' maximums.",
            ),
            GrafanaPanel(
                "Node groups", (("sum(cluster_autoscaler_node_groups_count{})", "groups"),), _STAT
            ),
            GrafanaPanel(
                "Healthy nodes",
                (
                    (
                        (
                            'sum(cluster_autoscaler_nodes_count{,state="ready"}) / '
                            "sum(cluster_autoscaler_nodes_count{})"
                        ),
                        "",
                    ),
                ),
                _STAT,
                "percentunit",
            ),
            GrafanaPanel("Safe to autoscale", (_SAFE,), _STAT, "bool_yes_no"),
            GrafanaPanel("Unscheduled pods", (_PENDING,), _STAT),
            GrafanaPanel(
                "Last scale-down",
                (('max(cluster_autoscaler_last_activity{,activity="scaleDown"}) * 1000', ""),),
                _STAT,
                "dateTimeFromNow",
                help="The last pass that planned one.",
            ),
            GrafanaPanel(
                "Last scale-up",
                (('max(cluster_autoscaler_last_activity{,activity="scaleUp"}) * 1000', ""),),
                _STAT,
                "dateTimeFromNow",
                help="The last pass that planned one.",
            ),
        ),
    ),
    (
        "Now",
        (
            GrafanaPanel(
                "Age of the last pass",
                (('time() - max(cluster_autoscaler_last_activity{,activity="main"})', ""),),
                _STAT,
                "s",
            ),
            GrafanaPanel("Mode", (("max by (mode) (outscaler_mode{})", "{{mode}}"),), _STAT),
            GrafanaPanel("Paused", (("max(outscaler_paused{})", ""),), _STAT, "bool_yes_no"),
            GrafanaPanel(
                "Circuit breaker tripped", (("max(outscaler_brake{})", ""),), _STAT, "bool_yes_no"
            ),
            GrafanaPanel(
                "Leaving", (("sum(cluster_autoscaler_pending_node_deletions{})", ""),), _STAT
            ),
            GrafanaPanel(
                "Removals in cooldown",
                (("max(cluster_autoscaler_scale_down_in_cooldown{})", ""),),
                _STAT,
                "bool_yes_no",
            ),
            GrafanaPanel(
                "Errors in 1 h",
                (("sum(increase(cluster_autoscaler_errors_total{}[1h]))", ""),),
                _STAT,
            ),
        ),
    ),
    (
        "Sizes",
        (
            GrafanaPanel(
                "Nodes by state",
                (("sum by (state) (cluster_autoscaler_nodes_count{})", "{{state}}"), _MOST),
                stacked=True,
            ),
            GrafanaPanel(
                "Groups: target between minimum and maximum",
                (
                    (
                        "max by (node_group) (cluster_autoscaler_node_group_target_count{})",
                        "{{node_group}} target",
                    ),
                    (
                        "max by (node_group) (cluster_autoscaler_node_group_min_count{})",
                        "{{node_group}} min",
                    ),
                    (
                        "max by (node_group) (cluster_autoscaler_node_group_max_count{})",
                        "{{node_group}} max",
                    ),
                ),
                help="Needs emitPerNodegroupMetrics: true.",
            ),
        ),
    ),
    (
        "Done",
        (
            GrafanaPanel(
                "Nodes bought and removed per hour",
                (
                    ("sum(increase(cluster_autoscaler_scaled_up_nodes_total{}[1h]))", "bought"),
                    (
                        (
                            "sum by (reason) (increase(cluster_autoscaler_scaled_down_nodes_"
                            "total{}[1h]))"
                        ),
                        "removed: {{reason}}",
                    ),
                ),
            ),
            GrafanaPanel(
                "Failures by class",
                (
                    (
                        (
                            "sum by (reason) (increase(cluster_autoscaler_failed_scale_ups_"
                            "total{}[1h]))"
                        ),
                        "up: {{reason}}",
                    ),
                    (
                        (
                            "sum by (reason) (increase(cluster_autoscaler_failed_node_creations_"
                            "total{}[1h]))"
                        ),
                        "creation: {{reason}}",
                    ),
                    (
                        (
                            "sum by (kind) (increase(cluster_autoscaler_failed_operations_"
                            "total{}[1h]))"
                        ),
                        "operation: {{kind}}",
                    ),
                ),
            ),
            GrafanaPanel(
                "Evictions by result",
                (
                    (
                        (
                            "sum by (eviction_result) "
                            "(increase(cluster_autoscaler_evicted_pods_total{}[1h]))"
                        ),
                        "{{eviction_result}}",
                    ),
                ),
            ),
            GrafanaPanel(
                "Groups in back-off",
                (
                    (
                        (
                            "max by (node_group, reason) "
                            "(cluster_autoscaler_node_group_backoff_status{})"
                        ),
                        "{{node_group}}",
                    ),
                ),
                _STATES,
                help="Needs emitPerNodegroupMetrics: true.",
            ),
        ),
    ),
    (
        "Cost",
        (
            GrafanaPanel(
                "Cost an hour",
                (
                    ("sum by (currency) (outscaler_cost_per_hour{})", "{{currency}}"),
                    (
                        "sum by (currency) (outscaler_consolidation_end_cost_per_hour{})",
                        "end of consolidation {{currency}}",
                    ),
                    (
                        "sum by (node_group, currency) (outscaler_node_group_cost_per_hour{})",
                        "{{node_group}} {{currency}}",
                    ),
                ),
                help="Groups need emitPerNodegroupMetrics: true.",
            ),
            GrafanaPanel(
                "Saved in 24 h",
                (("sum by (currency) (increase(outscaler_savings_total{}[24h]))", "{{currency}}"),),
            ),
            GrafanaPanel(
                "Moves of consolidation",
                (("sum by (state) (outscaler_consolidation_moves_count{})", "{{state}}"),),
                stacked=True,
            ),
            GrafanaPanel(
                "Nodes that leave by consolidation",
                (
                    ("sum(outscaler_consolidation_leaving_nodes_count{})", "nodes"),
                    ("sum(outscaler_pods_on_leaving_nodes_count{})", "pods that came to them"),
                ),
            ),
            GrafanaPanel(
                "Replacements and removed nodes per hour",
                (
                    (
                        "sum by (result) (increase(outscaler_replacements_total{}[1h]))",
                        "replacement: {{result}}",
                    ),
                    (
                        "sum by (reason) (increase(outscaler_disrupted_nodes_total{}[1h]))",
                        "removed: {{reason}}",
                    ),
                    (
                        "sum by (result) (increase(outscaler_node_restarts_total{}[1h]))",
                        "restart: {{result}}",
                    ),
                ),
            ),
            GrafanaPanel(
                "Nodes that leave soon, or should be replaced",
                (("sum by (state) (outscaler_lifecycle_nodes_count{})", "{{state}}"),),
                stacked=True,
                help="Needs spot or nodeLifecycle in the policy.",
            ),
        ),
    ),
    (
        "Managed pools",
        (
            GrafanaPanel(
                "Nodes and groups of managed pools",
                (
                    ("sum by (pool) (outscaler_managed_pool_nodes_count{})", "{{pool}}: nodes"),
                    ("sum by (pool) (outscaler_managed_pool_groups_count{})", "{{pool}}: groups"),
                ),
                help=_NEEDS_POOLS,
            ),
            GrafanaPanel(
                "Cost of managed pools an hour",
                (
                    (
                        "sum by (pool, currency) (outscaler_managed_pool_cost_per_hour{})",
                        "{{pool}} {{currency}}",
                    ),
                ),
                stacked=True,
                help=_NEEDS_POOLS,
            ),
            GrafanaPanel(
                "Machines that managed pools may buy",
                (("sum by (pool) (outscaler_managed_pool_candidates_count{})", "{{pool}}"),),
                help=_NEEDS_POOLS,
            ),
        ),
    ),
    (
        "Not done",
        (
            GrafanaPanel(
                "Groups, providers and budgets that are not well",
                (
                    ("sum by (state) (outscaler_unwell_node_groups_count{})", "groups: {{state}}"),
                    ("max(outscaler_unread_providers_count{})", "providers: not read"),
                    ("max(outscaler_nodes_behind_budgets_count{})", "nodes: blocked by a budget"),
                ),
                help="No value: none.",
            ),
            GrafanaPanel(
                "Nodes that stay, by reason",
                (
                    (
                        "sum by (reason) (cluster_autoscaler_unremovable_nodes_count{})",
                        "{{reason}}",
                    ),
                    ("sum(cluster_autoscaler_unneeded_nodes_count{})", "unneeded"),
                ),
                stacked=True,
            ),
            GrafanaPanel(
                "Scalings held back by limits",
                (
                    (
                        (
                            "sum by (direction, reason) "
                            "(increase(cluster_autoscaler_skipped_scale_events_count{}[15m]))"
                        ),
                        "{{direction}}: {{reason}}",
                    ),
                ),
            ),
            GrafanaPanel(
                "Cores and their limits",
                (
                    ("sum(cluster_autoscaler_cluster_cpu_current_cores{})", "cores"),
                    ("max by (direction) (cluster_autoscaler_cpu_limits_cores{})", "{{direction}}"),
                ),
            ),
            GrafanaPanel(
                "Memory and its limits",
                (
                    ("sum(cluster_autoscaler_cluster_memory_current_bytes{})", "memory"),
                    (
                        "max by (direction) (cluster_autoscaler_memory_limits_bytes{})",
                        "{{direction}}",
                    ),
                ),
                unit="bytes",
            ),
        ),
    ),
    (
        "Outscaler",
        (
            GrafanaPanel(
                "Length of a pass",
                (
                    (
                        _LENGTHS,
                        "{{le}}",
                    ),
                ),
                _HEAT,
                "s",
            ),
            GrafanaPanel(
                "Age of the last pass of each cluster",
                (
                    (
                        (
                            "time() - max by (cluster) "
                            '(cluster_autoscaler_last_activity{activity="main"})'
                        ),
                        "{{cluster}}",
                    ),
                ),
                unit="s",
            ),
            GrafanaPanel(
                "Errors by type",
                (("sum by (type) (increase(cluster_autoscaler_errors_total{}[1h]))", "{{type}}"),),
            ),
        ),
    ),
    (
        "What groups teach",
        (
            GrafanaPanel(
                "Time until ready",
                (
                    (
                        "max by (node_group, quantile) (outscaler_node_ready_seconds{})",
                        "{{node_group}} {{quantile}}",
                    ),
                ),
                unit="s",
                help="Needs emitPerNodegroupMetrics: true.",
            ),
            GrafanaPanel(
                "Nodes that do not come",
                (("max by (node_group) (outscaler_node_failure_rate{})", "{{node_group}}"),),
                unit="percentunit",
                help="Needs emitPerNodegroupMetrics: true.",
            ),
        ),
    ),
    (
        "Groups",
        (
            GrafanaPanel(
                "Groups",
                tuple(
                    (f"max by (node_group) ({_PREFIX}node_group_{name}{{}})", name)
                    for name in (
                        "min_count",
                        "target_count",
                        "max_count",
                        "healthiness",
                        "backoff_status",
                    )
                ),
                _TABLE,
                help="Needs emitPerNodegroupMetrics: true.",
            ),
        ),
    ),
)


def dashboard() -> Json:
    return {
        "title": "Outscaler",
        "uid": "outscaler",
        "description": (
            "Made by python -m infra.tools.grafana_dashboard; docs/alarms.md describes it."
        ),
        "tags": ["outscaler", "autoscaling"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


def _variables() -> Iterator[Json]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    query = f"label_values({_PREFIX}last_activity, cluster)"
    yield {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": "clusters"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
    }


def _panels() -> Iterator[Json]:
    top, number = 0, 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": _grid(0, top, _WIDTH, 1),
        }
        top += 1
        width = _WIDTH // len(panels)
        height = _STAT_HEIGHT if panels[0].kind == _STAT else _HEIGHT
        for at, panel in enumerate(panels):
            number += 1
            yield _panel(panel) | {"id": number, "gridPos": _grid(at * width, top, width, height)}
        top += height


def _grid(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: GrafanaPanel) -> Json:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    made = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _DATASOURCE,
        "targets": [_target(panel, number) for number in range(len(panel.queries))],
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "options": _OPTIONS.get(panel.kind, {}),
    }
    return made | _MORE.get(panel.kind, {})


def _target(panel: GrafanaPanel, number: int) -> Json:
    expression, legend = panel.queries[number]
    return {
        "refId": chr(ord("A") + number),
        "datasource": _DATASOURCE,
        "expr": expression.replace("{}", '{cluster="$cluster"}').replace(
            "{,", '{cluster="$cluster",'
        ),
        "legendFormat": legend,
        "format": {_HEAT: "heatmap", _TABLE: "table"}.get(panel.kind, "time_series"),
        "instant": panel.kind == _TABLE,
    }


_OPTIONS: dict[str, Json] = {
    _STAT: {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "textMode": "auto"},
    _HEAT: {"calculate": False, "yAxis": {"unit": "s"}},
}
_MORE: dict[str, Json] = {
    _TABLE: {
        "transformations": [
            {"id": "joinByField", "options": {"byField": "node_group", "mode": "outer"}}
        ]
    }
}


def main() -> int:
    sys.stdout.write(text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
