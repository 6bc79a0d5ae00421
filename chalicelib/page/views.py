"""The values of the templates: what each page says about a cluster.

Lists are bounded here; what is left out is counted and can be found on a page of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from chalicelib.model.memory import GroupMemory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason
from chalicelib.page import charts
from chalicelib.page.cluster_data import ClusterDetails, ClusterSummary, status_of
from chalicelib.record.metrics import key
from chalicelib.record.views import (
    GroupView,
    NodeView,
    PodView,
    group_view,
    node_views,
    operation_view,
    pause_view,
    pod_views,
)

PODS_SHOWN, LAST_SHOWN, ROWS = 20, 8, 1000
"""Lines of a cluster's page, and rows of a list at most."""


def cluster_rows(clusters: Sequence[ClusterSummary], now: float) -> list[dict[str, Any]]:
    """Return a line per cluster, the worst status first."""
    rows = [cluster_row(summary, now) for summary in clusters]
    return sorted(rows, key=lambda row: (row["status"].rank, row["name"]))


def cluster_row(summary: ClusterSummary, now: float) -> dict[str, Any]:
    """Return one line about a cluster."""
    gauges, passed = summary.gauges, summary.passed
    return {
        "name": summary.name,
        "status": status_of(summary, now),
        "mode": summary.mode_word,
        "version": summary.version,
        "last_pass": passed.last_pass,
        "next_pass": passed.last_pass + summary.policy.scan_interval if summary.policy else 0.0,
        "nodes": int(sum(value for series, value in gauges.items() if series.startswith("nodes_count;"))),
        "ready": int(gauges.get(key("nodes_count", state="ready"), 0)),
        "most": int(gauges.get(key("max_nodes_count"), 0)),
        "pending": int(gauges.get(key("unschedulable_pods_count", type="unschedulable"), 0)),
        "leaving": int(gauges.get(key("pending_node_deletions"), 0)),
    }


def cluster_values(details: ClusterDetails, now: float) -> dict[str, Any]:
    """Return the values of a cluster's page."""
    plan, points, memory = details.plan, details.points, details.memory
    stays = Counter(verdict.reason.code.value for verdict in plan.unremovable)
    return {
        "row": cluster_row(details.summary, now),
        "pauses": [pause_view(pause).line for pause in details.summary.pauses],
        "brake": bool(memory.breaker.tripped_at) and memory.released_until <= now,
        "blocked": plan.paused,
        "operations": [operation_view(operation) for operation in memory.operations[:ROWS]],
        "groups": group_rows(details, now),
        "pods": _pod_lines(plan)[:PODS_SHOWN],
        "pods_total": len(pod_views(plan)),
        "stays": stays.most_common(),
        "stays_total": stays.total(),
        "last": details.entries[:LAST_SHOWN],
        "nodes_line": charts.sparkline(points, [point.nodes for point in points], now),
        "pending_line": charts.sparkline(points, [point.pending for point in points], now),
        "points": points,
        "strip": charts.strip(details.entries, now),
        "gaps": plan.gaps[:ROWS],
    }


def group_rows(details: ClusterDetails, now: float) -> list[dict[str, Any]]:
    """Return a line per node group of the last decision."""
    scale_ups = {up.group: up for up in details.plan.scale_ups}
    rows = []
    for verdict in details.plan.groups[:ROWS]:
        name, up = verdict.group, scale_ups.get(verdict.group)
        memory = group_view(name, details.memory.groups.get(name, GroupMemory()))
        rows.append(
            {
                "group": name,
                "provider": verdict.provider,
                "min": verdict.min,
                "max": verdict.max,
                "ready": verdict.ready,
                "target": max(verdict.target, up.to_size if up is not None else 0),
                "bar": charts.size_bar(verdict.ready, verdict.target, verdict.min, verdict.max),
                "state": _state(memory, now, grows=up is not None) or ("" if verdict.healthy else "unhealthy"),
                "why": verdict.skipped,
            }
        )
    return rows


def _state(group: GroupView, now: float, *, grows: bool) -> str:
    backoff = group.backoff_at(now)
    if backoff is not None:
        return f"back-off: {backoff.title}"
    if grows:
        return "grows"
    return f"waits for {group.request.increase}" if group.request is not None else ""


def shown_nodes(plan: Plan, code: str, name_part: str) -> list[NodeView]:
    """Return the nodes of the decision with this code of a reason and this part of the name; "" for all."""
    return [
        view
        for view in node_views(plan)
        if name_part in view.node and (not code or (view.reason is not None and view.reason.code.value == code))
    ]


def use_of(reason: Reason | None) -> charts.UseBar | None:
    """Return the bar of a node that stays because it is used too much; None for any other reason."""
    use, threshold = (reason.params.get(name) if reason else None for name in ("utilization", "threshold"))
    if not isinstance(use, int | float) or not isinstance(threshold, int | float):
        return None
    return charts.use_bar(float(use), float(threshold))


def shown_pods(plan: Plan, name_part: str) -> list[PodView]:
    """Return the waiting pods with this part of the name, those without a node first."""
    return [view for view in pod_views(plan) if name_part in view.pod]


def _pod_lines(plan: Plan) -> list[dict[str, Any]]:
    """Return a line per class of pods without a node, one per group that grows for pods, and one for those that fit."""
    fits = plan.fits_existing
    classes = [
        *((verdict.pods, "no node fits", "") for verdict in plan.unschedulable),
        *((up.pods, "new nodes of", up.group) for up in plan.scale_ups),
        (fits, "fits on nodes that exist or come", ""),
    ]
    return [
        {"count": len(pods), "pod": pods[0], "decision": decision, "group": group}
        for pods, decision, group in classes
        if pods
    ]
