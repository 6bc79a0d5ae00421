"""The values of the templates: what each page says about a cluster.

Lists are bounded here; what is left out is counted and can be found on a page of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from chalicelib.model.memory import GroupMemory
from chalicelib.model.operation import Operation
from chalicelib.model.plan import GroupVerdict, Plan
from chalicelib.model.reason import Reason
from chalicelib.page import charts
from chalicelib.page.cluster_data import ClusterDetails, ClusterSummary, pause_text, status_of
from chalicelib.reasons.text import sentence
from chalicelib.record.metrics import key
from chalicelib.store.journal import JournalEntry

PODS_SHOWN, LAST_SHOWN, ROWS = 20, 8, 1000
"""Lines of a cluster's page, and rows of a list at most."""


def cluster_rows(clusters: Sequence[ClusterSummary], now: float) -> list[dict[str, Any]]:
    """Return the list of clusters, the worst status first."""
    rows = [cluster_row(each, now) for each in clusters]
    return sorted(rows, key=lambda row: (row["status"].rank, row["name"]))


def cluster_row(summary: ClusterSummary, now: float) -> dict[str, Any]:
    """Return one line about a cluster."""
    gauges = summary.gauges
    nodes = [value for series, value in gauges.items() if series.startswith("nodes_count;")]
    return {
        "name": summary.name,
        "status": status_of(summary, now),
        "mode": summary.mode_word,
        "version": summary.version,
        "last_pass": summary.passed.last_pass,
        "next_pass": summary.passed.last_pass + summary.policy.scan_interval if summary.policy else 0.0,
        "nodes": int(sum(nodes)),
        "ready": int(gauges.get(key("nodes_count", state="ready"), 0)),
        "most": int(gauges.get(key("max_nodes_count"), 0)),
        "pending": int(gauges.get(key("unschedulable_pods_count", type="unschedulable"), 0)),
        "leaving": int(gauges.get(key("pending_node_deletions"), 0)),
    }


def cluster_values(details: ClusterDetails, now: float) -> dict[str, Any]:
    """Return the values of a cluster's page."""
    plan = details.decision.plan if details.decision is not None else None
    stays = Counter(each.reason.code.value for each in plan.unremovable) if plan is not None else Counter()
    points = details.points
    return {
        "row": cluster_row(details.summary, now),
        "pauses": [pause_text(each) for each in details.summary.pauses],
        "brake": bool(details.memory.breaker.tripped_at) and details.memory.released_until <= now,
        "decision": details.decision,
        "undecided": details.undecided,
        "blocked": plan.paused if plan is not None else None,
        "operations": [operation_row(each) for each in details.memory.operations[:ROWS]],
        "groups": group_rows(details, plan, now),
        "pods": pod_lines(plan)[:PODS_SHOWN],
        "pods_total": len(pod_rows(plan)),
        "stays": stays.most_common(),
        "stays_total": stays.total(),
        "last": [entry_row(each) for each in details.entries[:LAST_SHOWN]],
        "nodes_line": charts.sparkline(points, [each.nodes for each in points], now),
        "pending_line": charts.sparkline(points, [each.pending for each in points], now),
        "points": points,
        "strip": charts.strip(details.entries, now),
        "gaps": plan.gaps[:ROWS] if plan is not None else (),
        "reason": sentence,
    }


def group_rows(details: ClusterDetails, plan: Plan | None, now: float) -> list[dict[str, Any]]:
    """Return a line per node group of the last decision."""
    verdicts = plan.groups if plan is not None else ()
    grown = {up.group: up for up in plan.scale_ups} if plan is not None else {}
    rows = []
    for verdict in verdicts[:ROWS]:
        memory, up = details.memory.groups.get(verdict.group, GroupMemory()), grown.get(verdict.group)
        rows.append(
            {
                "group": verdict.group,
                "provider": verdict.provider,
                "min": verdict.min,
                "max": verdict.max,
                "ready": verdict.ready,
                "target": max(verdict.target, up.to_size if up is not None else 0),
                "bar": charts.size_bar(verdict.ready, verdict.target, verdict.min, verdict.max),
                "state": _state(verdict, memory, bool(up), now),
                "why": verdict.skipped,
            }
        )
    return rows


def _state(verdict: GroupVerdict, memory: GroupMemory, grows: bool, now: float) -> str:  # noqa: FBT001
    if memory.backoff is not None and memory.backoff.until >= now:
        return f"back-off: {memory.backoff.cls or 'failed'}"
    if grows:
        return "grows"
    if memory.request is not None:
        return f"waits for {memory.request.increase}"
    return "" if verdict.healthy else "unhealthy"


def node_rows(plan: Plan | None, reason: str, words: str) -> list[dict[str, Any]]:
    """Return a line per node of the decision. reason: a code, words: a part of the name; "" for all."""
    if plan is None:
        return []
    unneeded = set(plan.unneeded)
    rows: list[dict[str, Any]] = [
        {"node": each.node, "decision": "removed", "why": None, "pod": "", "evict": len(each.evict)}
        for each in plan.removals
    ]
    rows += [
        {
            "node": each.node,
            "decision": "unneeded" if each.node in unneeded else "stays",
            "why": each.reason,
            "pod": each.pod,
            "evict": 0,
        }
        for each in plan.unremovable
    ]
    return [
        row
        for row in rows
        if words in row["node"] and (not reason or (row["why"] is not None and row["why"].code.value == reason))
    ]


def use_of(reason: Reason | None) -> charts.UseBar | None:
    """Return the bar of a node that stays because it is used too much; None for any other reason."""
    if reason is None:
        return None
    use, threshold = reason.params.get("utilization"), reason.params.get("threshold")
    if not isinstance(use, int | float) or not isinstance(threshold, int | float):
        return None
    return charts.use_bar(float(use), float(threshold))


def pod_rows(plan: Plan | None, words: str = "") -> list[dict[str, Any]]:
    """Return a line per waiting pod, those without a node first."""
    if plan is None:
        return []
    rows: list[dict[str, Any]] = [
        {"pod": pod, "decision": "no node", "group": "", "reasons": each.reasons, "why": None}
        for each in plan.unschedulable
        for pod in each.pods
    ]
    rows += [
        {"pod": pod, "decision": "new node", "group": up.group, "reasons": {}, "why": None}
        for up in plan.scale_ups
        for pod in up.pods
    ]
    rows += [{"pod": pod, "decision": "fits", "group": "", "reasons": {}, "why": None} for pod in plan.fits_existing]
    rows += [
        {"pod": pod, "decision": "not considered", "group": "", "reasons": {}, "why": each.reason}
        for each in plan.ignored
        for pod in each.pods
    ]
    return [row for row in rows if words in row["pod"]]


def pod_lines(plan: Plan | None) -> list[dict[str, Any]]:
    """Return a line per class of pods without a node, and one per group that grows for pods."""
    if plan is None:
        return []
    lines: list[dict[str, Any]] = [
        {"count": len(each.pods), "pod": each.pods[0], "decision": "no node fits", "group": ""}
        for each in plan.unschedulable
        if each.pods
    ]
    lines += [
        {"count": len(up.pods), "pod": up.pods[0], "decision": "new nodes of", "group": up.group}
        for up in plan.scale_ups
        if up.pods
    ]
    if plan.fits_existing:
        fits = plan.fits_existing
        lines.append({"count": len(fits), "pod": fits[0], "decision": "fits on nodes that exist or come", "group": ""})
    return lines


def operation_row(operation: Operation) -> dict[str, Any]:
    """Return one line about an open operation."""
    spec, status = operation.spec, operation.status
    nodes = ", ".join(target.node or target.instance for target in spec.targets[:10])
    return {
        "id": spec.id,
        "kind": spec.kind.value,
        "group": spec.group,
        "change": nodes or f"{spec.from_size} to {spec.to_size}",
        "state": status.state.value,
        "step": status.step,
        "attempt": status.attempt,
        "since": spec.created_at,
    }


def entry_row(entry: JournalEntry) -> dict[str, Any]:
    """Return one line of the journal."""
    hidden = ("decision",)
    facts = ", ".join(f"{name} {value}" for name, value in entry.facts.items() if name not in hidden)
    return {"at": entry.at, "kind": entry.kind, "group": entry.group, "facts": facts, "plan": entry.plan}
