"""Converts a plan into the stable JSON document for scripts and into tables for people.

Reason codes are combined with their sentences only here. Keys of the JSON are only ever added:
`plan`, `cluster`, `at`, `assumed`, `notLookedAt`, `promises`, `groups`, `gaps`, `notes`, `rules`,
`headroom`, and `details` with the numbers were added to the original ones, as was
`unreadProviders`. Scaling rules, headroom, consolidation and restarts are omitted where they are
not used, so that existing output stays unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from itertools import groupby
from typing import Any

import msgspec

from chalicelib.cli.output import Block, Table, plural
from chalicelib.model.memory import Memory
from chalicelib.model.plan import (
    Contest,
    GroupVerdict,
    HeadroomVerdict,
    NodeVerdict,
    Plan,
    PodPlacement,
    Removal,
    Restart,
    RuleVerdict,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.policy import Policy
from chalicelib.model.reason import DisruptionReason, Reason, ReasonCode
from chalicelib.model.scaling_rules import Rule
from chalicelib.model.snapshot import ALL_CAPI_GROUPS, ALL_GROUPS_OF_PROVIDER
from chalicelib.model.timestamps import format_time
from chalicelib.plan.prices import MICRO
from chalicelib.reasons.text import lasting_first, sentence, text
from chalicelib.views import consolidation as consolidation_view
from chalicelib.views import lifecycle as lifecycle_view
from chalicelib.views.cluster_view import coming_words

_Rows = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
_NODES_LISTED = 50  # above this count the table lists rules instead of nodes


def as_document(
    plan: Plan, timings: dict[str, float], assumed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the JSON document; timings in seconds; assumed: a sentence for each hypothetical
    change (cli/whatif.py)."""
    restarts = (
        {"restarts": [_restart_data(restart) for restart in plan.restarts]} if plan.restarts else {}
    )
    unread = unread_providers(plan)
    return {
        "plan": plan.id,
        "cluster": plan.cluster,
        "at": format_time(plan.at),
        "assumed": list(assumed),
        "scaleUps": [
            {
                "group": up.group,
                "from": up.from_size,
                "to": up.to_size,
                "pods": list(up.pods),
                **growth_data(up),
            }
            for up in plan.scale_ups
        ],
        "unschedulable": [
            {
                "pods": list(verdict.pods),
                "reasons": {
                    group: [text(reason) for reason in reasons]
                    for group, reasons in verdict.reasons.items()
                },
                "details": {
                    group: [sentence(reason) for reason in reasons]
                    for group, reasons in verdict.reasons.items()
                },
                "nodes": verdict.nodes,
                "against": {text(reason): count for reason, count in verdict.against},
                **sureness(verdict),
            }
            for verdict in plan.unschedulable
        ],
        "fitsExisting": list(plan.fits_existing),
        "promises": [promise_data(promise) for promise in plan.promises],
        "notLookedAt": [
            {"pods": list(ignored.pods), **_coded(ignored.reason)} for ignored in plan.ignored
        ],
        "scaleDowns": [
            {
                "node": removal.node,
                "group": removal.group,
                "kind": removal.kind,
                "evict": list(removal.evict),
                "destinations": dict(sorted(removal.destinations.items())),
                **removal_data(removal),
            }
            for removal in plan.removals
        ],
        **restarts,
        "unneeded": list(plan.unneeded),
        "unremovable": [
            {
                "node": verdict.node,
                **_coded(verdict.reason),
                **({"pod": verdict.pod} if verdict.pod else {}),
            }
            for verdict in plan.unremovable
        ],
        "groups": [_group_data(verdict) for verdict in plan.groups],
        **_asked_for(plan),
        "notes": [_coded(note) for note in plan.notes],
        **({"unreadProviders": unread} if unread else {}),
        "gaps": [msgspec.to_builtins(gap) for gap in plan.gaps],
        "health": msgspec.to_builtins(msgspec.structs.asdict(plan.health)),
        "timings": {name: round(seconds, 4) for name, seconds in timings.items()},
    }


def _asked_for(plan: Plan) -> dict[str, Any]:
    """Return the parts of a plan that a policy asks for; nothing of the others."""
    consolidation = plan.consolidation
    parts: tuple[tuple[str, Any], ...] = (
        ("rules", [rule_data(verdict) for verdict in plan.rules]),
        ("headroom", [_headroom_data(verdict) for verdict in plan.headroom]),
        (
            "consolidation",
            consolidation_view.report_data(consolidation) if consolidation is not None else None,
        ),
        ("lifecycle", {due.node: lifecycle_view.verdict_data(due) for due in plan.lifecycle}),
    )
    return {name: part for name, part in parts if part}


def removal_data(removal: Removal) -> dict[str, str]:
    """Return why a node is removed that is not unneeded, and the replacement that it belongs to."""
    if removal.reason is DisruptionReason.UNNEEDED:
        return {}
    return {"reason": removal.reason.value} | (
        {"replacement": removal.replacement} if removal.replacement else {}
    )


def _restart_data(restart: Restart) -> dict[str, Any]:
    evict = list(restart.evict)
    return {
        "node": restart.node,
        "group": restart.group,
        "condition": restart.condition,
        "evict": evict,
    }


def _coded(reason: Reason) -> dict[str, str]:
    return {"code": reason.code.value, "message": sentence(reason)}


def _group_data(verdict: GroupVerdict) -> dict[str, Any]:
    data: dict[str, Any] = {
        "group": verdict.group,
        "provider": verdict.provider,
        "min": verdict.min,
        "max": verdict.max,
        "target": verdict.target,
        "ready": verdict.ready,
        "upcoming": verdict.upcoming,
    }
    if verdict.coming_for:
        data["comingFor"] = [{"owner": owner, "pods": pods} for owner, pods in verdict.coming_for]
    data |= {"option": option_data(verdict)} if verdict.option_nodes else {}
    return data | ({"skipped": _coded(verdict.skipped)} if verdict.skipped is not None else {})


def option_data(verdict: GroupVerdict) -> dict[str, Any]:
    """Return what a group could have provided."""
    waste = round(verdict.waste or 0.0, 4)
    data: dict[str, Any] = {
        "nodes": verdict.option_nodes,
        "pods": verdict.option_pods,
        "waste": waste,
    }
    if verdict.expected_price:
        data |= {
            "pricePerHour": verdict.price / MICRO,
            "expectedPerHour": verdict.expected_price / MICRO,
        }
    return data


def as_blocks(plan: Plan, timings: dict[str, float], assumed: Sequence[str] = ()) -> list[Block]:
    """Return the assumptions, a summary, the groups, the expected placements, the pods by reason,
    the nodes, and the objects that were not read."""
    tables: tuple[_Rows | Table, ...] = (
        (
            "Node groups",
            ("group", "size", "min..max", "change", "pods", "best option"),
            _group_rows(plan),
        ),
        (
            "Placement on new nodes",
            ("group", "new node", "pods per node", "pods"),
            rows_of_new(plan),
        ),
        ("Pods without a place", ("pods", "group", "why"), _unschedulable_rows(plan)),
        (
            "Pods that fit on existing or upcoming nodes",
            ("node", "pods", "which"),
            rows_of_existing(plan),
        ),
        ("Pods that compete for places", ("places", "for pods", "which"), rows_of_contests(plan)),
        (
            "Ignored pods",
            ("pods", "why"),
            [(some(item.pods), sentence(item.reason)) for item in plan.ignored],
        ),
        rules_table(plan.rules),
        (
            "Headroom",
            ("headroom", "virtual pods", "have room", "on new nodes", "why not all"),
            [
                (
                    room.name,
                    str(room.wanted),
                    str(room.held),
                    f"+{room.added}" if room.added else "-",
                    "; ".join(
                        f"{group}: {sentence(reason)}"
                        for group, reason in sorted(room.reasons.items())
                    )
                    or "-",
                )
                for room in plan.headroom
            ],
        ),
        _removals_table(plan),
        (
            "Nodes to restart",
            ("node", "group", "because", "pods that leave it"),
            [
                (restart.node, restart.group, restart.condition, some(restart.evict) or "-")
                for restart in plan.restarts
            ],
        ),
        ("Blocked removals", ("node", "rule", "why"), _unremovable_rows(plan.unremovable)),
        (
            "Nodes that should go",
            ("node", "is", "since", "held by"),
            [
                (
                    verdict.node,
                    lifecycle_view.due_words(verdict.why),
                    format_time(verdict.since),
                    sentence(verdict.held) if verdict.held is not None else "nothing: it goes now",
                )
                for verdict in plan.lifecycle
            ],
        ),
        *_consolidation_tables(plan),
        ("Notes", ("what", "why"), [(note.code.value, sentence(note)) for note in plan.notes]),
        (
            "Not read",
            ("what", "where", "why"),
            [(f"{gap.kind} {gap.name}".strip(), gap.place or "-", gap.detail) for gap in plan.gaps],
        ),
    )
    blocks: list[Block] = [assumptions(assumed)] if assumed else []
    blocks.append(summary(plan, timings))
    for table in tables:
        block = (
            table if isinstance(table, Table) else Table(table[1], tuple(table[2]), title=table[0])
        )
        blocks += [block] if block.rows else []
    return blocks


def assumptions(assumed: Sequence[str]) -> str:
    """Return the hypothetical changes, which precede any output that depends on them."""
    return "\n".join(["What if:", *(f"  {change}" for change in assumed)])


def unread_providers(plan: Plan) -> list[str]:
    """Return the names of providers none of whose node groups were read, sorted."""
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
    """Return the line about providers that were not read, which precedes
    everything; none if all were read."""
    unread = unread_providers(plan)
    return (
        [f"{plural(len(unread), 'provider')} {_was(unread)} not read: {', '.join(unread)}."]
        if unread
        else []
    )


def _was(things: Sized) -> str:
    return "was" if len(things) == 1 else "were"


def _counted(number: int, one: str, many: str) -> str:
    """Return a number with its verb."""
    return f"{number} {one if number == 1 else many}"


def summary(plan: Plan, timings: dict[str, float]) -> str:
    """Return the plan in one paragraph. It starts with the providers that were not read."""
    health, helped = plan.health, sum(len(up.pods) for up in plan.scale_ups)
    new = sum(up.to_size - up.from_size for up in plan.scale_ups)
    fitting, no_place = (
        len(plan.fits_existing),
        sum(len(verdict.pods) for verdict in plan.unschedulable),
    )
    pending = helped + no_place + fitting
    nodes = f"{plural(health.registered, 'node')} ({health.ready} ready"
    nodes += f", {health.upcoming} upcoming)" if health.upcoming else ")"
    unhealthy = "" if health.healthy else " UNHEALTHY,"
    ignored = sum(len(item.pods) for item in plan.ignored)
    rules = len({rule for up in plan.scale_ups for rule in up.rules})
    replacements = len({up.replacement for up in plan.scale_ups if up.replacement})
    unneeded = sum(removal.reason is DisruptionReason.UNNEEDED for removal in plan.removals)
    causes = [plural(helped, "pod")]
    causes += [plural(rules, "rule")] * bool(rules)
    causes += ["headroom"] * any(up.headroom for up in plan.scale_ups)
    causes += [plural(replacements, "replacement")] * bool(replacements)
    parts = [
        *headline(plan),
        (
            f"Cluster {plan.cluster} at {format_time(plan.at)}: {nodes},{unhealthy} "
            f"{plural(pending, 'pending pod')}."
        ),
        (
            f"Scale up by {plural(new, 'node')} in {plural(len(plan.scale_ups), 'group')} for "
            f"{' and '.join(causes)}; "
            f"{_counted(no_place, 'has', 'have')} no place, {_counted(fitting, 'fits', 'fit')} on "
            "existing nodes, "
            f"{_counted(ignored, 'is', 'are')} ignored."
        ),
        f"Remove {unneeded} of {plural(len(plan.unneeded), 'unneeded node')}.",
        *(
            [consolidation_view.summary(plan.consolidation)]
            if plan.consolidation is not None
            else []
        ),
        *filter(None, [lifecycle_view.summary(plan)]),
    ]
    if plan.gaps:
        parts.append(f"{plural(len(plan.gaps), 'thing')} {_was(plan.gaps)} not read (below).")
    parts.append(f"Read in {timings['decode']:.3f} s, planned in {timings['plan']:.3f} s.")
    return "\n".join(parts)


def _group_rows(plan: Plan) -> list[tuple[str, ...]]:
    scale_ups = {up.group: up for up in plan.scale_ups}
    removals = Counter(removal.group for removal in plan.removals)
    rows: list[tuple[str, ...]] = []
    for verdict in plan.groups:
        up, removed = scale_ups.get(verdict.group), removals[verdict.group]
        change = (
            f"+{up.to_size - up.from_size} -> {up.to_size}"
            if up
            else f"-{removed}"
            if removed
            else "-"
        )
        if verdict.option_nodes:
            option = (
                f"{verdict.option_nodes} for {verdict.option_pods} pods, waste "
                f"{verdict.waste or 0.0:.2f}"
            )
            if verdict.expected_price:
                option += (
                    f", {verdict.price / MICRO:g} an hour, expected "
                    f"{verdict.expected_price / MICRO:g}"
                )
        elif up:
            option = "-"
        else:
            option = sentence(verdict.skipped) if verdict.skipped else "helps no pod"
        coming = f", coming for: {coming_words(verdict.coming_for)}" if verdict.coming_for else ""
        size = f"{verdict.target}" + (
            f" ({verdict.upcoming} upcoming{coming})" if verdict.upcoming else ""
        )
        other_causes = causes(up) if up else ""
        pods = "-"
        if up:
            pods = "; ".join(
                filter(None, (some(up.pods) if up.pods or not other_causes else "", other_causes))
            )
        rows.append((verdict.group, size, f"{verdict.min}..{verdict.max}", change, pods, option))
    return rows


def _unschedulable_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return one row per distinct reason of a pod class; groups with the
    same reasons share a row."""
    rows: list[tuple[str, ...]] = []
    for verdict in plan.unschedulable:
        by_reason: dict[str, list[str]] = {}
        for group, reasons in verdict.reasons.items():
            by_reason.setdefault("; ".join(map(sentence, lasting_first(reasons))), []).append(group)
        pods = some(verdict.pods)
        for why, groups in by_reason.items():
            rows.append((pods, ", ".join(groups), why))
            pods = ""
        if not by_reason:
            rows.append((pods, "-", "there are no node groups"))
    return rows


def _removals_table(plan: Plan) -> Table:
    """Return the nodes to be removed; with the reasons, if some of them are not unneeded."""
    reasons = any(map(removal_data, plan.removals))
    rows = []
    for removal in plan.removals:
        why = (
            (" ".join(filter(None, (removal.reason.value, removal.replacement))),)
            if reasons
            else ()
        )
        pods = (
            ", ".join(f"{pod} -> {node}" for pod, node in sorted(removal.destinations.items()))
            or "-"
        )
        rows.append((removal.node, removal.group, removal.kind, *why, pods))
    columns = ("node", "group", "how", *(("why",) if reasons else ()), "pods go to")
    return Table(columns, tuple(rows), title="Nodes to remove")


def _consolidation_tables(plan: Plan) -> list[_Rows]:
    """Return the moves, the pools, and why other nodes are not consolidated, unless it is why they
    are not removed. Moves say themselves that their nodes are in a replacement."""
    report = plan.consolidation
    if report is None:
        return []
    known = {verdict.node: verdict.reason.code for verdict in plan.unremovable}
    known |= {
        node: ReasonCode.IN_REPLACEMENT
        for move in report.moves
        for node in move.nodes
        if move.replacement
    }
    stays = [
        verdict for verdict in report.verdicts if known.get(verdict.node) is not verdict.reason.code
    ]
    moves: list[tuple[str, ...]] = [
        (
            consolidation_view.action(move),
            consolidation_view.worth(move),
            f"{move.disruption:g}",
            " ".join(filter(None, (consolidation_view.state_words(move.state), move.replacement))),
        )
        for move in report.moves
    ]
    pools = [consolidation_view.pool_row(pool) for pool in report.pools]
    pool_columns = (
        "pool",
        "price an hour",
        "disruption",
        "one disruption must bring",
        "nodes without a price",
    )
    return [
        ("Consolidation", ("move", "worth", "disruption", "state"), moves),
        ("Pools", pool_columns, pools),
        ("Nodes that are not consolidated", ("node", "rule", "why"), _unremovable_rows(stays)),
    ]


def _unremovable_rows(unremovable: Sequence[NodeVerdict]) -> list[tuple[str, ...]]:
    """Return one row per node or, for many nodes, one row per rule: `outscaler explain node` shows
    the rest, and the JSON is complete. Where pods block nodes, the cause on which to act is part of
    the rule: the drain rule and the budget that allows no disruption."""
    if len(unremovable) <= _NODES_LISTED:
        return [
            (verdict.node, verdict.reason.code.value, sentence(verdict.reason))
            for verdict in unremovable
        ]
    by_rule: dict[tuple[str, ...], list[NodeVerdict]] = {}
    for verdict in unremovable:
        reason, rule = verdict.reason, [verdict.reason.code.value]
        if reason.code is ReasonCode.BLOCKED_BY_POD:
            rule += [str(reason.params.get("rule", "")), str(reason.params.get("budget", ""))]
        by_rule.setdefault(tuple(rule), []).append(verdict)
    rows: list[tuple[str, ...]] = []
    for (code, *_), verdicts in sorted(by_rule.items()):
        first = verdicts[0].reason
        why = sentence(first)
        if len(verdicts) > 1:
            why = (
                f"{why}, and others alike"
                if first.code is ReasonCode.BLOCKED_BY_POD
                else text(first)
            )
        rows.append((some([verdict.node for verdict in verdicts]), code, why))
    return rows


# -- scaling rules and headroom


def _headroom_data(verdict: HeadroomVerdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "wanted": verdict.wanted,
        "held": verdict.held,
        "added": verdict.added,
        "reasons": {group: _coded(reason) for group, reason in sorted(verdict.reasons.items())},
    }


def rule_data(verdict: RuleVerdict, next_times: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return one rule on one pool: `due` and `next` as RFC 3339, `rate` in percent, each
    only where it exists. next_times: see the function; without it, `next` is known of a cron
    rule whose reason says it."""
    data: dict[str, Any] = {
        "rule": verdict.rule,
        "pool": verdict.pool,
        "source": verdict.source,
        "nodes": verdict.nodes,
    }
    reason = verdict.reason
    if verdict.due:
        data["due"] = format_time(verdict.due)
    if verdict.rate is not None:
        data["rate"] = round(verdict.rate, 2)
    if reason is not None:
        data |= _coded(reason)
    upcoming = (next_times or {}).get(_rule_key(verdict))
    if (
        not upcoming
        and reason is not None
        and reason.code is ReasonCode.RULE_NOT_DUE
        and "until" in reason.params
    ):
        upcoming = format_time(float(reason.params["until"]))
    return {**data, **({"next": upcoming} if upcoming else {})}


def _rule_key(verdict: RuleVerdict) -> str:
    return Rule(verdict.rule, source=verdict.source).key


def next_times(
    verdicts: Iterable[RuleVerdict], policy: Policy, memory: Memory, now: float
) -> dict[str, str]:
    """Return when the cron rules are next due after now (epoch seconds), by rule; memory:
    the memory after the plan."""
    from chalicelib.schedules.cron import LocalClock

    keys, clock, times = {_rule_key(verdict) for verdict in verdicts}, LocalClock(now), {}
    zone = policy.scale_up.cron_time_zone
    rules = [(rule, rule.time_zone) for rule in policy.rules]
    rules += [
        (rule, zone)
        for item in memory.rule_objects.values()
        if not item.disabled
        for rule in item.rules
    ]
    for rule, time_zone in rules:
        if rule.cron and rule.key in keys and (at := clock.times(rule.cron, time_zone).following):
            times[rule.key] = format_time(at)
    return times


def growth_data(up: ScaleUp) -> dict[str, Any]:
    """Return the causes of a scale-up other than pods."""
    data = {"rules": list(up.rules), "headroom": list(up.headroom), "replacement": up.replacement}
    return {key: names for key, names in data.items() if names}


def causes(up: ScaleUp) -> str:
    """Return the causes of a scale-up other than pods as `rules a, b; headroom c`; empty where
    pods are the only cause."""
    rules = f"rule{'s' if len(up.rules) > 1 else ''} {', '.join(up.rules)}" if up.rules else ""
    headroom = f"headroom {', '.join(up.headroom)}" if up.headroom else ""
    replacement = f"replacement {up.replacement}" if up.replacement else ""
    return "; ".join(filter(None, (rules, headroom, replacement)))


def rules_table(
    verdicts: Iterable[RuleVerdict], next_times: Mapping[str, str] | None = None
) -> Table:
    """Return one row per rule and pool, with a column for the next time
    where `next_times` is given."""
    rows = []
    for verdict in verdicts:
        cause = "-" if verdict.rate is None else f"{verdict.rate:.1f}%"
        rows.append(
            (
                verdict.rule,
                verdict.pool,
                verdict.source or "policy",
                f"+{verdict.nodes}" if verdict.nodes else "-",
                f"due {format_time(verdict.due)}" if verdict.due else cause,
                *(() if next_times is None else (next_times.get(_rule_key(verdict), "-"),)),
                sentence(verdict.reason) if verdict.reason is not None else "-",
            )
        )
    upcoming = () if next_times is None else ("next",)
    columns = ("rule", "pool", "from", "nodes", "due or rate", *upcoming, "why not (more)")
    return Table(columns, tuple(rows), title="Rules")


_NAMED, _ROWS, _NODES = 3, 4, 10


def promise_data(placement: PodPlacement) -> dict[str, Any]:
    """Return {"pods": […], "node": …} for an existing or upcoming node, otherwise {"pods": […],
    "group": …, "number": …}; each with its certainty."""
    place = (
        {"node": placement.node}
        if placement.node
        else {"group": placement.group, "number": placement.number}
    )
    return {"pods": list(placement.pods), **place, **sureness(placement)}


def sureness(placement: PodPlacement | UnschedulablePods) -> dict[str, Any]:
    """Return {"promised": …}, and {"onePlaceAmong": {"places": …, "among": […]}} for
    pods that compete for places, and {"lacks": […]} for pods that wait for what
    their node does not have yet."""
    contest = placement.one_place_among
    answer: dict[str, Any] = {
        "promised": isinstance(placement, PodPlacement) and placement.promised
    }
    if contest is not None and contest.places:
        answer["onePlaceAmong"] = {"places": contest.places, "among": list(contest.among)}
    if isinstance(placement, PodPlacement) and placement.lacks:
        answer["lacks"] = list(placement.lacks)
    return answer


def contests(plan: Plan) -> list[Contest]:
    """Return the places that are promised to several pods together, sorted by
    the first of these pods."""
    entries: list[PodPlacement | UnschedulablePods] = [*plan.promises, *plan.unschedulable]
    by_pods = {
        entry.one_place_among.among: entry.one_place_among
        for entry in entries
        if entry.one_place_among
    }
    return [by_pods[pods] for pods in sorted(by_pods)]


def rows_of_contests(plan: Plan) -> list[tuple[str, ...]]:
    """Return rows of (guaranteed places, number of pods, pod names)."""
    return [
        (str(contest.places), str(len(contest.among)), some(contest.among))
        for contest in contests(plan)
    ]


def competing(contest: Contest | None) -> str:
    """Return a sentence to append for a pod that competes for a place; empty if it does not."""
    if contest is None:
        return ""
    if not contest.places:
        return " It may get no place: the scheduler may take other pods first."
    return (
        f" It competes for this: {contest.places} of {len(contest.among)} pods "
        f"({some(contest.among)}) "
        "will get a place, and the scheduler chooses which."
    )


def by_pod(plan: Plan) -> Mapping[str, PodPlacement]:
    """Map each pod with a promise to that promise."""
    return {pod: promise for promise in plan.promises for pod in promise.pods}


def on_node(plan: Plan, node: str) -> list[str]:
    """Return the pods expected on a node, by name."""
    return sorted(pod for promise in plan.promises if promise.node == node for pod in promise.pods)


def on_new(plan: Plan, group: str) -> dict[int, list[str]]:
    """Return the pods expected on each new node of a group: number -> pods, by name."""
    nodes: dict[int, list[str]] = {}
    for promise in plan.promises:
        if promise.group == group and not promise.node:
            nodes.setdefault(promise.number, []).extend(promise.pods)
    return {number: sorted(nodes[number]) for number in sorted(nodes)}


def rows_of_new(plan: Plan) -> list[tuple[str, ...]]:
    """Return rows_of_group for all groups with new nodes."""
    groups = sorted({promise.group for promise in plan.promises if promise.group})
    return [row for group in groups for row in rows_of_group(group, on_new(plan, group))]


def rows_of_group(group: str, nodes: Mapping[int, Sequence[str]]) -> list[tuple[str, ...]]:
    """Return rows of (group, numbers of its new nodes, pods per node, pod names); runs of
    equally full nodes share a row."""
    runs = [
        [number for number, _ in run]
        for _, run in groupby(nodes.items(), key=lambda node: len(node[1]))
    ]
    rest = [number for run in runs[_ROWS:] for number in run]
    rows: list[tuple[str, ...]] = []
    for run in [*runs[:_ROWS], *([rest] if rest else [])]:
        counts = [len(nodes[number]) for number in run]
        pods = some([pod for number in run for pod in nodes[number]])
        rows.append((group, _span(run[0], run[-1]), _span(min(counts), max(counts)), pods))
    return rows


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def rows_of_existing(plan: Plan) -> list[tuple[str, ...]]:
    """Return rows of (node, number of pods, pod names), the fullest first, and the number of
    omitted nodes; pods without a known place form the last row."""
    pods_of: dict[str, list[str]] = {}
    for promise in plan.promises:
        if promise.node:
            pods_of.setdefault(promise.node, []).extend(promise.pods)
    order = sorted(pods_of, key=lambda node: (-len(pods_of[node]), node))
    rows = [(node, str(len(pods_of[node])), some(sorted(pods_of[node]))) for node in order[:_NODES]]
    more = sorted(pod for node in order[_NODES:] for pod in pods_of[node])
    if more:
        rows.append((f"{len(order) - _NODES} more", str(len(more)), some(more)))
    placed = {pod for pods in pods_of.values() for pod in pods}
    unplaced = [pod for pod in plan.fits_existing if pod not in placed]
    return [*rows, *([("-", str(len(unplaced)), some(unplaced))] if unplaced else [])]


def some(pods: Sequence[str]) -> str:
    """Return up to three names and the number of the remaining ones."""
    shown = ", ".join(pods[:_NAMED])
    return f"{shown} and {len(pods) - _NAMED} more" if len(pods) > _NAMED else shown
