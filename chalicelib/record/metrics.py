"""Metrics as one line of CloudWatch's embedded metric format on standard output: no client, no call, no import.

Names are upstream's (state.md §12), so that dashboards carry over. Dimensions are the cluster and the node group and
nothing else: every combination of values is a metric that somebody pays for (demands.md 30). Upstream's other labels
(state, reason) are fields beside them, which log queries find.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Done, Failed
from chalicelib.model.plan import Plan

NAMESPACE = "Outscaler"
PREFIX = "cluster_autoscaler_"


def to_stdout(line: str) -> None:
    """Where CloudWatch reads metrics of a Lambda function."""
    sys.stdout.write(line + "\n")


def line(cluster: str, values: Mapping[str, float], now: float, *, group: str = "",
         fields: Mapping[str, str] | None = None) -> str:
    """One EMF line; values by upstream's name without its prefix, fields: labels that are no dimension."""
    dimensions = {"cluster": cluster} | ({"node_group": group} if group else {})
    metrics = [{"Name": PREFIX + name, "Unit": "Seconds" if name.endswith("_seconds") else "Count"} for name in values]
    head = {"Timestamp": int(now * 1000), "CloudWatchMetrics": [
        {"Namespace": NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": metrics}]}
    data = {"_aws": head, **dimensions, **(fields or {}), **{PREFIX + name: value for name, value in values.items()}}
    return msgspec.json.encode(data).decode()


def of_plan(plan: Plan, seconds: float) -> list[str]:
    """What one pass says of its cluster. seconds: how long the pass took."""
    health = plan.health
    values = {
        "unschedulable_pods_count": float(sum(len(verdict.pods) for verdict in plan.unschedulable)),
        "nodes_count": float(health.registered),
        "unneeded_nodes_count": float(len(plan.unneeded)),
        "last_activity": plan.at,
        "function_duration_seconds": round(seconds, 3),
    }
    states = {"ready": health.ready, "unready": health.unready, "notStarted": health.not_started,
              "unregistered": health.unregistered}
    fields = {"activity": "main", "function": "main", **{f"nodes_{name}": str(count) for name, count in states.items()}}
    return [line(plan.cluster, values, plan.at, fields=fields)]


def of_outcome(operation: Operation, outcome: Done | Failed, now: float) -> list[str]:
    """What an ended operation says of its group; nothing for the kinds that upstream counts elsewhere."""
    values: dict[str, float] = {}
    reason = ""
    if operation.kind is Kind.GROW and isinstance(outcome, Failed):
        values, reason = {"failed_scale_ups_total": 1.0}, outcome.code or outcome.cls
    elif operation.kind is Kind.GROW:
        values = {"scaled_up_nodes_total": float(operation.to_size - operation.from_size)}
    elif operation.kind is Kind.REMOVE and isinstance(outcome, Done):
        values = {"scaled_down_nodes_total": float(outcome.facts.get("removed", len(operation.targets)))}
        reason = "underutilized" if any(target.evict for target in operation.targets) else "empty"
    if not values:
        return []
    fields = {"reason": reason} if reason else {}
    return [line(operation.cluster, values, now, group=operation.group, fields=fields)]
