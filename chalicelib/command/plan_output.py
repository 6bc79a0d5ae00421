"""Converts a plan into the stable JSON document for scripts and into tables for people.

Reason codes are combined with their sentences only here. Keys of the JSON are only ever added: `plan`, `cluster`, `at`,
`assumed`, `notLookedAt`, `promises`, `groups`, `gaps`, `notes`, `rules`, `headroom`, and `details` with the numbers
were added to the original ones, as was `unreadProviders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chalicelib.command import placements, rule_output
from chalicelib.command.placements import some
from chalicelib.command.tables import Block, Table
from chalicelib.model.plan import GroupVerdict, NodeVerdict, Plan, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import ALL_CAPI_GROUPS, ALL_GROUPS_OF_PROVIDER
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence, text

_NODES = 50  # above this count the table lists rules instead of nodes


def as_document(plan: Plan, timings: dict[str, float], assumed: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON document; timings in seconds; assumed: a sentence for each hypothetical change
    (command/whatif.py)."""
    return {
        "plan": plan.id,
        "cluster": plan.cluster,
        "at": format_time(plan.at),
        "assumed": list(assumed),
        "scaleUps": [
            {"group": s.group, "from": s.from_size, "to": s.to_size, "pods": list(s.pods), **rule_output.growth_data(s)}
            for s in plan.scale_ups
        ],
        "unschedulable": [_unschedulable(verdict) for verdict in plan.unschedulable],
        "fitsExisting": list(plan.fits_existing),
        "promises": [placements.as_data(promise) for promise in plan.promises],
        "notLookedAt": [
            {"pods": list(i.pods), "code": i.reason.code.value, "message": sentence(i.reason)} for i in plan.ignored
        ],
        "scaleDowns": [
            {
                "node": r.node,
                "group": r.group,
                "kind": r.kind,
                "evict": list(r.evict),
                "destinations": dict(sorted(r.destinations.items())),
            }
            for r in plan.removals
        ],
        "unneeded": list(plan.unneeded),
        "unremovable": [
            {
                "node": v.node,
                "code": v.reason.code.value,
                "message": sentence(v.reason),
                **({"pod": v.pod} if v.pod else {}),
            }
            for v in plan.unremovable
        ],
        "groups": [_group(verdict) for verdict in plan.groups],
        **rule_output.as_data(plan),
        "notes": [{"code": note.code.value, "message": sentence(note)} for note in plan.notes],
        **({"unreadProviders": unread} if (unread := unread_providers(plan)) else {}),
        "gaps": [msgspec.to_builtins(gap) for gap in plan.gaps],
        "health": msgspec.to_builtins(msgspec.structs.asdict(plan.health)),
        "timings": {name: round(seconds, 4) for name, seconds in timings.items()},
    }


def _unschedulable(unschedulable: UnschedulablePods) -> dict[str, Any]:
    return {
        "pods": list(unschedulable.pods),
        "reasons": {group: [text(reason) for reason in reasons] for group, reasons in unschedulable.reasons.items()},
        "details": {
            group: [sentence(reason) for reason in reasons] for group, reasons in unschedulable.reasons.items()
        },
        "nodes": unschedulable.nodes,
        "against": {text(reason): count for reason, count in unschedulable.against},
        **placements.sureness(unschedulable),
    }


def _group(verdict: GroupVerdict) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "group": verdict.group,
        "provider": verdict.provider,
        "min": verdict.min,
        "max": verdict.max,
        "target": verdict.target,
        "ready": verdict.ready,
        "upcoming": verdict.upcoming,
    }
    if verdict.option_nodes:
        answer["option"] = {
            "nodes": verdict.option_nodes,
            "pods": verdict.option_pods,
            "waste": round(verdict.waste or 0.0, 4),
        }
    if verdict.skipped is not None:
        answer["skipped"] = {"code": verdict.skipped.code.value, "message": sentence(verdict.skipped)}
    return answer


def as_blocks(plan: Plan, timings: dict[str, float], assumed: Sequence[str] = ()) -> list[Block]:
    """Return the assumptions, a summary, the groups, the expected placements, the pods by reason, the nodes, and the
    objects that could not be read."""
    gone = [
        (r.node, r.group, r.kind, ", ".join(f"{pod} -> {to}" for pod, to in sorted(r.destinations.items())) or "-")
        for r in plan.removals
    ]
    tables = (
        _table("Node groups", ("group", "size", "min..max", "change", "pods", "best option"), _groups(plan)),
        _table("Placement on new nodes", ("group", "new node", "pods per node", "pods"), placements.rows_of_new(plan)),
        _table("Pods that get no node", ("pods", "group", "why"), _left(plan)),
        _table(
            "Pods that fit on existing or upcoming nodes",
            ("node", "pods", "which"),
            placements.rows_of_existing(plan),
        ),
        _table("Pods that compete for places", ("places", "for pods", "which"), placements.rows_of_contests(plan)),
        _table("Ignored pods", ("pods", "why"), [(some(i.pods), sentence(i.reason)) for i in plan.ignored]),
        rule_output.rules_table(plan.rules),
        rule_output.headroom_table(plan.headroom),
        _table("Nodes to remove", ("node", "group", "how", "pods go to"), gone),
        _table("Blocked removals", ("node", "rule", "why"), _stay(plan)),
        _table("Notes", ("what", "why"), [(note.code.value, sentence(note)) for note in plan.notes]),
        _table(
            "Could not be read",
            ("what", "where", "why"),
            [(f"{g.kind} {g.name}".strip(), g.place or "-", g.detail) for g in plan.gaps],
        ),
    )
    said: list[Block] = [assumptions(assumed)] if assumed else []
    return [*said, summary(plan, timings), *(table for table in tables if table.rows)]


def assumptions(assumed: Sequence[str]) -> str:
    """Return the hypothetical changes, which precede any output that depends on them."""
    return "\n".join(["What if:", *(f"  {each}" for each in assumed)])


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(columns=columns, rows=tuple(rows), title=title)


def unread_providers(plan: Plan) -> list[str]:
    """Return the names of providers none of whose node groups could be read, sorted."""
    prefix = "provider/"
    return sorted(
        {
            gap.kind.removeprefix(prefix)
            for gap in plan.gaps
            if gap.kind.startswith(prefix)
            and not {ALL_CAPI_GROUPS, ALL_GROUPS_OF_PROVIDER}.isdisjoint(gap.affected_decisions)
        }
    )


def headline(plan: Plan) -> list[str]:
    """Return the line about providers that could not be read, which precedes everything; none if all were read."""
    unread = unread_providers(plan)
    return [f"{len(unread)} provider{_s(len(unread))} could not be read: {', '.join(unread)}."] if unread else []


def summary(plan: Plan, timings: dict[str, float]) -> str:
    """Return the plan in one paragraph. It starts with the providers that could not be read."""
    health, asked = plan.health, sum(len(s.pods) for s in plan.scale_ups)
    new = sum(s.to_size - s.from_size for s in plan.scale_ups)
    left = sum(len(v.pods) for v in plan.unschedulable)
    pending = asked + left + len(plan.fits_existing)
    nodes = f"{health.registered} node{_s(health.registered)} ({health.ready} ready"
    nodes += f", {health.upcoming} upcoming)" if health.upcoming else ")"
    unwell = "" if health.healthy else " UNHEALTHY,"
    unseen = sum(len(i.pods) for i in plan.ignored)
    parts = [
        *headline(plan),
        (f"Cluster {plan.cluster} at {format_time(plan.at)}: {nodes},{unwell} {pending} pending pod{_s(pending)}."),
        (
            f"Scale up by {new} node{_s(new)} in {len(plan.scale_ups)} group{_s(len(plan.scale_ups))} for "
            f"{_for(plan, asked)}; {left} get no node, {len(plan.fits_existing)} fit on existing nodes, "
            f"{unseen} are ignored."
        ),
        f"Remove {len(plan.removals)} of {len(plan.unneeded)} unneeded node{_s(len(plan.unneeded))}.",
    ]
    if plan.gaps:
        parts.append(f"{len(plan.gaps)} thing{_s(len(plan.gaps))} could not be read (below).")
    parts.append(f"Read in {timings['decode']:.3f} s, planned in {timings['plan']:.3f} s.")
    return "\n".join(parts)


def _for(plan: Plan, asked: int) -> str:
    """Return what the scale-ups are for: pods, and rules and headroom where these request nodes."""
    rules = len({rule for up in plan.scale_ups for rule in up.rules})
    also = [f"{rules} rule{_s(rules)}"] * bool(rules)
    also += ["headroom"] * any(up.headroom for up in plan.scale_ups)
    return " and ".join([f"{asked} pods", *also])


def _groups(plan: Plan) -> list[tuple[str, ...]]:
    ups = {s.group: s for s in plan.scale_ups}
    downs: dict[str, int] = {}
    for removal in plan.removals:
        downs[removal.group] = downs.get(removal.group, 0) + 1
    rows: list[tuple[str, ...]] = []
    for verdict in plan.groups:
        up, down = ups.get(verdict.group), downs.get(verdict.group, 0)
        change = f"+{up.to_size - up.from_size} -> {up.to_size}" if up else f"-{down}" if down else "-"
        option = (
            f"{verdict.option_nodes} for {verdict.option_pods} pods, waste {verdict.waste or 0.0:.2f}"
            if verdict.option_nodes
            else sentence(verdict.skipped)
            if verdict.skipped
            else "helps no pod"
        )
        option = "-" if up and not verdict.option_nodes else option
        size = f"{verdict.target}" + (f" ({verdict.upcoming} upcoming)" if verdict.upcoming else "")
        causes = rule_output.causes(up) if up else ""
        pods = "; ".join(filter(None, (some(up.pods) if up.pods or not causes else "", causes))) if up else "-"
        rows.append((verdict.group, size, f"{verdict.min}..{verdict.max}", change, pods, option))
    return rows


def _left(plan: Plan) -> list[tuple[str, ...]]:
    """Return one row per distinct reason of a pod class; groups with the same reasons share a row."""
    rows: list[tuple[str, ...]] = []
    for verdict in plan.unschedulable:
        by_reason: dict[str, list[str]] = {}
        for group, reasons in verdict.reasons.items():
            by_reason.setdefault("; ".join(_sentences(reasons)), []).append(group)
        pods = some(verdict.pods)
        for why, groups in by_reason.items():
            rows.append((pods, ", ".join(groups), why))
            pods = ""
        if not by_reason:
            rows.append((pods, "-", "there are no node groups"))
    return rows


def _stay(plan: Plan) -> list[tuple[str, ...]]:
    """Return one row per node or, for many nodes, one row per rule: `outscaler explain node` shows the rest, and the
    JSON is complete."""
    verdicts = plan.unremovable
    if len(verdicts) <= _NODES:
        return [(v.node, v.reason.code.value, sentence(v.reason)) for v in verdicts]
    by_rule: dict[tuple[str, ...], list[NodeVerdict]] = {}
    for verdict in verdicts:
        by_rule.setdefault((verdict.reason.code.value, *_cause(verdict.reason)), []).append(verdict)
    return [(some([v.node for v in stay]), rule, _of_all(stay)) for (rule, *_), stay in sorted(by_rule.items())]


def _cause(reason: Reason) -> tuple[str, ...]:
    """Return the actionable cause where a pod blocks a node: the drain rule and the budget that allows no
    disruption."""
    if reason.code is not ReasonCode.BLOCKED_BY_POD:
        return ()
    return str(reason.params.get("rule", "")), str(reason.params.get("budget", ""))


def _of_all(stay: list[NodeVerdict]) -> str:
    """Return the text that applies to each of several nodes; where pods block them, the first node's text with its
    cause."""
    first = stay[0].reason
    if len(stay) > 1 and first.code is ReasonCode.BLOCKED_BY_POD:
        return f"{sentence(first)}, and others alike"
    return text(first) if len(stay) > 1 else sentence(first)


def _sentences(reasons: Iterable[Reason]) -> list[str]:
    return [sentence(reason) for reason in reasons]


def _s(count: int) -> str:
    return "" if count == 1 else "s"
