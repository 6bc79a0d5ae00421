"""`outscaler get nodes CLUSTER` and `get pods CLUSTER`: one line per object of the last decision, with the reason.

The decision is read from the table, so that the commands need no access to the cluster.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chalicelib.command.explain_stored import node_names
from chalicelib.command.explain_view import coded
from chalicelib.command.output import emit
from chalicelib.command.store_access import stored_policy
from chalicelib.command.stored_decision import required_decision
from chalicelib.command.tables import Block, Table
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence

if TYPE_CHECKING:
    from chalicelib.record.last_decision import LastDecision
    from chalicelib.store import Store

_REMOVED, _UNNEEDED, _STAYS = "removed", "unneeded", "stays"
_GROUPS_NAMED = 3  # groups whose reasons a line of a pod shows


def nodes(store: Store, args: argparse.Namespace) -> None:
    """Print each node: removed, unneeded or stays, and why."""
    stored_policy(store, args.name)
    decision = required_decision(store, args.name)
    rows = node_rows(decision.plan)
    emit(
        args.output,
        _document(decision, "nodes", rows),
        lambda: [
            _as_of(decision),
            Table(
                ("node", "decision", "why", "pod"),
                tuple((each["node"], each["decision"], _said(each), each.get("pod", "")) for each in rows),
                empty="no node was seen",
            ),
        ],
    )


def pods(store: Store, args: argparse.Namespace) -> None:
    """Print each pod that waits: with a place on the way, without one, or not considered, and why."""
    stored_policy(store, args.name)
    decision = required_decision(store, args.name)
    rows = pod_rows(decision.plan)
    emit(
        args.output,
        _document(decision, "pods", rows),
        lambda: [
            _as_of(decision),
            Table(
                ("pod", "decision", "why"),
                tuple((each["pod"], each["decision"], _why(each)) for each in rows),
                empty="no pod waits for a place",
            ),
        ],
    )


def node_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per node, removed ones first."""
    removals = {each.node: each for each in plan.removals}
    verdicts, unneeded = {each.node: each for each in plan.unremovable}, set(plan.unneeded)
    rows: list[dict[str, Any]] = []
    for name in node_names(plan):
        row: dict[str, Any] = {"node": name, "decision": _UNNEEDED if name in unneeded else _STAYS}
        if name in removals:
            row |= {"decision": _REMOVED, "group": removals[name].group, "evict": list(removals[name].evict)}
        elif name in verdicts:
            row["reason"] = coded(verdicts[name].reason)
            if verdicts[name].pod:
                row["pod"] = verdicts[name].pod
        rows.append(row)
    order = (_REMOVED, _UNNEEDED, _STAYS)
    return sorted(rows, key=lambda each: (order.index(each["decision"]), each["node"]))


def pod_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per pod of the plan, those without a node first."""
    without: list[dict[str, Any]] = [
        {
            "pod": key,
            "decision": "unschedulable",
            "reasons": {group: _coded(why) for group, why in each.reasons.items()},
        }
        for each in plan.unschedulable
        for key in each.pods
    ]
    grown = [{"pod": key, "decision": "newNode", "group": each.group} for each in plan.scale_ups for key in each.pods]
    fits = [{"pod": key, "decision": "fitsExisting"} for key in plan.fits_existing]
    ignored = [
        {"pod": key, "decision": "notLookedAt", "reason": coded(each.reason)}
        for each in plan.ignored
        for key in each.pods
    ]
    return [row for rows in (without, grown, fits, ignored) for row in sorted(rows, key=lambda each: str(each["pod"]))]


def _coded(reasons: tuple[Reason, ...]) -> list[dict[str, Any]]:
    return [coded(reason) for reason in reasons]


def _said(row: dict[str, Any]) -> str:
    if "reason" in row:
        return str(row["reason"]["message"])
    count = len(row.get("evict", ()))
    return f"group {row['group']}, {count} pods evicted" if "group" in row else ""


def _why(row: dict[str, Any]) -> str:
    if "group" in row:
        return f"group {row['group']} grows"
    if "reason" in row:
        return str(row["reason"]["message"])
    found = [f"{group}: {'; '.join(each['message'] for each in why)}" for group, why in row.get("reasons", {}).items()]
    more = f" and {len(found) - _GROUPS_NAMED} more groups" if len(found) > _GROUPS_NAMED else ""
    return ", ".join(found[:_GROUPS_NAMED]) + more


def _as_of(decision: LastDecision) -> Block:
    blocked = decision.plan.paused
    held = f" No node is removed: {sentence(blocked)}." if blocked is not None else ""
    return f"Decided at {format_time(decision.at)}, last confirmed at {format_time(decision.confirmed_at)}.{held}"


def _document(decision: LastDecision, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "cluster": decision.plan.cluster,
        "plan": decision.plan.id,
        "at": format_time(decision.at),
        "confirmedAt": format_time(decision.confirmed_at),
        name: rows,
    }
