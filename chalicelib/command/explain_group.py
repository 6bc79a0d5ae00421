"""`outscaler explain group NAME`: explains whether a node group scales up, what it could have provided, why it was not
chosen, and which pods cannot use it."""

from __future__ import annotations

from typing import Any

from chalicelib.command import rule_output
from chalicelib.command.explain_view import ExplainContext, Explanation, coded, sentences, weakening
from chalicelib.command.name_lookup import named
from chalicelib.command.placements import on_new, rows_of_group, some
from chalicelib.command.tables import Table
from chalicelib.model.errors import BadInput
from chalicelib.model.memory import GroupMemory
from chalicelib.model.plan import GroupVerdict, ScaleUp
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a node group, found by its id or an alias. Raises BadInput for an unknown or ambiguous
    name."""
    from chalicelib.plan.what_if import owned_by

    snapshot, plan = context.case.snapshot, context.plan
    name = _id(name, snapshot)
    verdict = named(name, {each.group: each for each in plan.groups}, "explain group", "node group")
    grown = next((each for each in plan.scale_ups if each.group == name), None)
    gone = [removal for removal in plan.removals if removal.group == name]
    group = next((each for each in snapshot.groups if each.id == name), None)
    nodes = [node.name for node in snapshot.nodes if group is not None and owned_by(group, node)]
    promised = on_new(plan, name)
    refused = [(each.pods, each.reasons[name]) for each in plan.unschedulable if name in each.reasons]
    says = [_growth(verdict, grown)]
    mine = {name} if group is None or group.pool is None else {name, group.pool.id, group.pool.name}
    rules = [each for each in plan.rules if each.pool in mine]
    following = (
        rule_output.following(rules, context.case.policy, context.decided.memory, context.case.now) if rules else {}
    )
    if gone:
        says.append(f"{len(gone)} of its nodes would be removed: {', '.join(removal.node for removal in gone)}.")
    known = context.decided.memory.groups.get(name, GroupMemory())
    data: dict[str, Any] = {
        "verdict": "grows"
        if grown is not None
        else "skipped"
        if verdict.skipped is not None
        else "notChosen"
        if verdict.option_nodes
        else "helpsNoPod",
        "provider": verdict.provider,
        "size": verdict.target,
        "min": verdict.min,
        "max": verdict.max,
        "ready": verdict.ready,
        "upcoming": verdict.upcoming,
        "nodes": nodes,
        **_option(verdict),
        **_memory(known, context.case.now),
        **(
            {
                "growth": {
                    "from": grown.from_size,
                    "to": grown.to_size,
                    "max": grown.max,
                    "pods": list(grown.pods),
                    **rule_output.growth_data(grown),
                }
            }
            if grown is not None
            else {}
        ),
        **({"rules": [rule_output.rule_data(verdict, following) for verdict in rules]} if rules else {}),
        "promises": [{"number": number, "pods": pods} for number, pods in promised.items()],
        "removals": [removal.node for removal in gone],
        "noHelpTo": [
            {"pods": list(pods), "reasons": [coded(reason) for reason in reasons]} for pods, reasons in refused
        ],
    }
    return Explanation(
        "group",
        name,
        tuple(says),
        data,
        _facts(verdict, known, context.case.now),
        (
            Table(
                ("group", "new node", "pods per node", "pods"), tuple(rows_of_group(name, promised)), title="New nodes"
            ),
            Table(
                ("pods", "why not"),
                tuple((some(pods), sentences(reasons)) for pods, reasons in refused),
                title="Pods that it does not help",
            ),
            rule_output.rules_table(rules, following),
            Table(("node", "result"), tuple((node, _fate(context, node)) for node in nodes), title="Its nodes"),
        ),
        weakening(plan, removal=False),
    )


def _id(name: str, snapshot: Snapshot) -> str:
    """Return the id of the group with this name. A pool's name is an alias of each of its groups."""
    called = sorted(group.id for group in snapshot.groups if name in group.aliases)
    if not called or any(group.id == name for group in snapshot.groups):
        return name
    if len(called) > 1:
        raise BadInput("explain group", f"{name!r} is {len(called)} node groups", f"write one of {', '.join(called)}")
    return called[0]


def _growth(verdict: GroupVerdict, scale_up: ScaleUp | None) -> str:
    start = f"Node group {verdict.group}"
    if scale_up is not None:
        asked = [f"{len(scale_up.pods)} pod{'' if len(scale_up.pods) == 1 else 's'}"] * bool(scale_up.pods)
        asked += list(filter(None, [rule_output.causes(scale_up)]))
        least = not asked and scale_up.to_size <= verdict.min
        what = f"to its minimum, {verdict.min}" if least else f"for {' and '.join(asked) or '0 pods'}"
        return f"{start} grows {scale_up.from_size} -> {scale_up.to_size} (max {scale_up.max}) {what}."
    if verdict.skipped is not None:
        return f"{start} is not grown: {sentence(verdict.skipped)}."
    if verdict.option_nodes:
        return f"{start} is not grown: {_could(verdict)}, but another was chosen."
    return f"{start} is not grown: it helps no pod."


def _could(verdict: GroupVerdict) -> str:
    pods, nodes = verdict.option_pods, verdict.option_nodes
    return (
        f"it could have taken {pods} pod{'' if pods == 1 else 's'} on {nodes} new node{'' if nodes == 1 else 's'}, "
        f"waste {verdict.waste or 0.0:.2f}"
    )


def _option(verdict: GroupVerdict) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if verdict.option_nodes:
        found["option"] = {
            "nodes": verdict.option_nodes,
            "pods": verdict.option_pods,
            "waste": round(verdict.waste or 0.0, 4),
        }
    if verdict.skipped is not None:
        found["skipped"] = coded(verdict.skipped)
    return found


def _memory(group_memory: GroupMemory, now: float) -> dict[str, Any]:
    """Return the remembered state of the group that is still in force."""
    found: dict[str, Any] = {}
    if group_memory.request is not None:
        found["waitingFor"] = {
            "nodes": group_memory.request.increase,
            "expectedAt": format_time(group_memory.request.expected_at),
        }
    failed = group_memory.backoff
    if failed is not None and failed.until >= now:
        found["backoff"] = {
            "until": format_time(failed.until),
            "class": failed.cls,
            "code": failed.code,
            "message": failed.message,
            "attempt": failed.attempt,
        }
    return found


def _facts(verdict: GroupVerdict, group_memory: GroupMemory, now: float) -> tuple[tuple[str, str], ...]:
    kept = _memory(group_memory, now)
    waiting, failed = kept.get("waitingFor"), kept.get("backoff")
    facts = (
        ("provider", verdict.provider),
        ("size", f"{verdict.target}, {verdict.min} to {verdict.max}"),
        ("ready nodes", str(verdict.ready)),
        ("on their way", str(verdict.upcoming or "")),
        ("option", _could(verdict) if verdict.option_nodes else ""),
        ("waiting for", f"{waiting['nodes']} nodes until {waiting['expectedAt']}" if waiting else ""),
        (
            "back-off",
            " ".join(filter(None, (f"until {failed['until']}:", failed["class"], failed["code"], failed["message"])))
            if failed
            else "",
        ),
    )
    return tuple((name, value) for name, value in facts if value)


def _fate(context: ExplainContext, node: str) -> str:
    plan = context.plan
    if any(removal.node == node for removal in plan.removals):
        return "removed now"
    stays = next((each for each in plan.unremovable if each.node == node), None)
    why = sentence(stays.reason) if stays is not None else ""
    return f"unneeded, stays for now: {why}" if node in plan.unneeded else f"stays: {why}" if why else "-"
