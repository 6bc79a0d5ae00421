"""Tables of a plan for people; plan_document.py has the JSON for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from itertools import groupby

import msgspec

from chalicelib.cli.output import Block, Table
from chalicelib.cli.plan_document import rule_key, unread_providers
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.plan import (
    Contest,
    GroupVerdict,
    HeadroomVerdict,
    LifecycleVerdict,
    NodeVerdict,
    Plan,
    PodPlacement,
    RuleVerdict,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.reason import ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.plan.prices import MICRO
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import sentence, text
from chalicelib.reasons.words import counted, some
from chalicelib.views import consolidation as consolidation_view
from chalicelib.views import lifecycle as lifecycle_view
from chalicelib.views.cluster_view import coming_words

_Rows = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
_NOTES = {
    "Node groups": ("pods",),
    "Nodes to remove": ("pods go to",),
    "Nodes to restart": ("pods that leave it",),
}
"""Columns, by the title of a table, that a narrow terminal shows below their row."""
_SPARE = {
    "Node groups": ("min..max", "size"),
    "Nodes to remove": ("how",),
    "Nodes to restart": ("group",),
    "Rules": ("from", "due or rate"),
    "Headroom": ("on new nodes", "virtual pods"),
    "Blocked removals": ("rule",),
    "Nodes that are not consolidated": ("rule",),
    "Nodes that should go": ("since",),
    "Consolidation": ("disruption",),
    "Pools": ("nodes without a price", "disruption"),
}
"""Columns, by the title of a table, that a narrow terminal may leave out, the first one first."""
_NODES_LISTED = 50  # above this count the table lists rules instead of nodes


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
        ("Pods without a place", ("pods", "why"), _unschedulable_rows(plan)),
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
            [_headroom_row(verdict) for verdict in plan.headroom],
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
            [_lifecycle_row(verdict) for verdict in plan.lifecycle],
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
        if isinstance(table, Table):
            block = table
        else:
            title, columns, rows = table
            block = _narrowable(Table(columns, tuple(rows), title=title))
        if block.rows:
            blocks.append(block)
    return blocks


def _narrowable(table: Table) -> Table:
    """Return the table with what a narrow terminal may show below a row or leave out."""
    spare = [table.columns.index(name) for name in _SPARE.get(table.title, ())]
    notes = [table.columns.index(name) for name in _NOTES.get(table.title, ())]
    return msgspec.structs.replace(table, spare=tuple(spare), notes=frozenset(notes))


def _headroom_row(verdict: HeadroomVerdict) -> tuple[str, ...]:
    added = f"+{verdict.added}" if verdict.added else "-"
    reasons = sorted(verdict.reasons.items())
    why = "; ".join(f"{group}: {sentence(reason)}" for group, reason in reasons)
    return (verdict.name, str(verdict.wanted), str(verdict.held), added, why or "-")


def _lifecycle_row(verdict: LifecycleVerdict) -> tuple[str, ...]:
    due = lifecycle_view.due_words(verdict.why)
    held_by = sentence(verdict.held) if verdict.held is not None else "nothing: it goes now"
    return (verdict.node, due, format_time(verdict.since), held_by)


def assumptions(assumed: Sequence[str]) -> str:
    """Return the hypothetical changes, which precede any output that depends on them."""
    return "\n".join(["What if:", *(f"  {change}" for change in assumed)])


def headline(plan: Plan) -> list[str]:
    """Return the line about providers that were not read, which precedes
    everything; none if all were read."""
    unread = unread_providers(plan)
    if not unread:
        return []
    return [f"{counted(len(unread), 'provider')} {_was(unread)} not read: {', '.join(unread)}."]


def _was(things: Sized) -> str:
    return "was" if len(things) == 1 else "were"


def _counted(number: int, one: str, many: str) -> str:
    """Return a number with its verb."""
    return f"{number} {one if number == 1 else many}"


def summary(plan: Plan, timings: dict[str, float]) -> str:
    """Return the plan in one paragraph. It starts with the providers that were not read."""
    helped = sum(len(up.pods) for up in plan.scale_ups)
    fitting = len(plan.fits_existing)
    unplaced = sum(len(verdict.pods) for verdict in plan.unschedulable)
    ignored = sum(len(item.pods) for item in plan.ignored)
    pending = counted(helped + unplaced + fitting, "pending pod")
    new_nodes = sum(up.to_size - up.from_size for up in plan.scale_ups)
    growth = f"{counted(new_nodes, 'node')} in {counted(len(plan.scale_ups), 'group')}"
    unneeded = sum(removal.reason is DisruptionReason.UNNEEDED for removal in plan.removals)
    lines = headline(plan)
    lines.append(f"Cluster {plan.cluster} at {format_time(plan.at)}: {_nodes(plan)}, {pending}.")
    lines.append(
        f"Scale up by {growth} for {_all_causes(plan, helped)}; "
        f"{_counted(unplaced, 'has', 'have')} no place, {_counted(fitting, 'fits', 'fit')} on "
        f"existing nodes, {_counted(ignored, 'is', 'are')} ignored."
    )
    lines += purchase_lines(plan.scale_ups)
    lines.append(f"Remove {unneeded} of {counted(len(plan.unneeded), 'unneeded node')}.")
    if plan.consolidation is not None:
        lines.append(consolidation_view.summary(plan.consolidation))
    horizon = consolidation_view.horizon_view(plan)
    if horizon is not None:
        lines.append(horizon.words)
    due = lifecycle_view.summary(plan)
    if due:
        lines.append(due)
    if plan.gaps:
        lines.append(f"{counted(len(plan.gaps), 'thing')} {_was(plan.gaps)} not read (below).")
    lines.append(f"Read in {timings['decode']:.3f} s, planned in {timings['plan']:.3f} s.")
    return "\n".join(lines)


def _nodes(plan: Plan) -> str:
    """Return the number of nodes and how they are."""
    health = plan.health
    upcoming = f", {health.upcoming} upcoming" if health.upcoming else ""
    unhealthy = "" if health.healthy else ", UNHEALTHY"
    return f"{counted(health.registered, 'node')} ({health.ready} ready{upcoming}){unhealthy}"


def _all_causes(plan: Plan, helped_pods: int) -> str:
    """Return what all scale-ups are for."""
    rules = {rule for up in plan.scale_ups for rule in up.rules}
    replacements = {up.replacement for up in plan.scale_ups if up.replacement}
    parts = [counted(helped_pods, "pod")]
    if rules:
        parts.append(counted(len(rules), "rule"))
    if any(up.headroom for up in plan.scale_ups):
        parts.append("headroom")
    if replacements:
        parts.append(counted(len(replacements), "replacement"))
    return " and ".join(parts)


def _group_rows(plan: Plan) -> list[tuple[str, ...]]:
    scale_ups = {up.group: up for up in plan.scale_ups}
    removals = Counter(removal.group for removal in plan.removals)
    rows: list[tuple[str, ...]] = []
    for verdict in plan.groups:
        up = scale_ups.get(verdict.group)
        removed = removals[verdict.group]
        change = f"-{removed}" if removed else "-"
        pods = "-"
        if up:
            change, pods = _growth(up), _grown_for(up)
        size = f"{verdict.target}"
        if verdict.upcoming:
            owners = verdict.coming_for
            coming = f", coming for: {coming_words(owners)}" if owners else ""
            size += f" ({verdict.upcoming} upcoming{coming})"
        option = _option(verdict, has_grown=up is not None)
        rows.append((verdict.group, size, f"{verdict.min}..{verdict.max}", change, pods, option))
    rows += [
        (up.group, "-", f"0..{up.max}", f"open, {_growth(up)}", _grown_for(up), "-")
        for up in plan.scale_ups
        if up.opens
    ]
    return rows


def _growth(up: ScaleUp) -> str:
    return f"+{up.nodes} -> {up.to_size}"


def _grown_for(up: ScaleUp) -> str:
    other_causes = causes(up)
    names = some(up.pods) if up.pods or not other_causes else ""
    return "; ".join(filter(None, (names, other_causes)))


def purchase_lines(scale_ups: Sequence[ScaleUp]) -> list[str]:
    """Return what managed groups buy, a line each, such as `  open osc-c5f524-general-bc37acc1c6: 2
    x standard.large ch-gva-2 on-demand, 0.2007 EUR/h`; without `open` for a group that exists."""
    lines: list[str] = []
    for up in scale_ups:
        if up.choice is None:
            continue
        verb = "open " if up.opens else ""
        price = f", {f'{up.price:.4f} {up.currency}'.strip()}/h" if up.price else ""
        lines.append(f"  {verb}{up.group}: {up.nodes} x {up.choice.machine}{price}")
    return lines


def _option(verdict: GroupVerdict, *, has_grown: bool) -> str:
    """Return what a group could have provided, or why nothing."""
    if verdict.option_nodes:
        waste = f"{verdict.waste or 0.0:.2f}"
        option = f"{verdict.option_nodes} for {verdict.option_pods} pods, waste {waste}"
        if not verdict.expected_price:
            return option
        price = verdict.price / MICRO
        expected_price = verdict.expected_price / MICRO
        return f"{option}, {price:g} an hour, expected {expected_price:g}"
    if has_grown:
        return "-"
    return sentence(verdict.skipped) if verdict.skipped else "helps no pod"


def _unschedulable_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return the cause for each pod class, by the nearest groups, and a row that counts the
    others; `outscaler explain pod` and the JSON have all of them."""
    rows: list[tuple[str, ...]] = []
    for verdict in plan.unschedulable:
        why = no_place(verdict, gaps=plan.gaps)
        rows.append((some(verdict.pods), why.cause))
        if why.others:
            rows.append(("", why.others))
    return rows


def _removals_table(plan: Plan) -> Table:
    """Return the nodes to be removed; with the reasons, if some of them are not unneeded."""
    has_reasons = any(removal.reason is not DisruptionReason.UNNEEDED for removal in plan.removals)
    rows: list[tuple[str, ...]] = []
    for removal in plan.removals:
        cells = [removal.node, removal.group, removal.kind]
        if has_reasons:
            why = filter(None, (removal.reason.value, removal.replacement))
            cells.append(" ".join(why))
        destinations = sorted(removal.destinations.items())
        moves = [f"{pod} -> {node}" for pod, node in destinations]
        cells.append(", ".join(moves) or "-")
        rows.append(tuple(cells))
    why_column = ("why",) if has_reasons else ()
    columns = ("node", "group", "how", *why_column, "pods go to")
    return _narrowable(Table(columns, tuple(rows), title="Nodes to remove"))


def _consolidation_tables(plan: Plan) -> list[_Rows]:
    """Return the moves, the pools, and why other nodes are not consolidated, unless it is why they
    are not removed. Moves say themselves that their nodes are in a replacement."""
    report = plan.consolidation
    if report is None:
        return []
    known = {verdict.node: verdict.reason.code for verdict in plan.unremovable}
    moves: list[tuple[str, ...]] = []
    for move in report.moves:
        if move.replacement:
            known |= dict.fromkeys(move.nodes, ReasonCode.IN_REPLACEMENT)
        state = filter(None, (consolidation_view.state_words(move.state), move.replacement))
        action = consolidation_view.action(move)
        worth = consolidation_view.worth(move)
        moves.append((action, worth, f"{move.disruption:g}", " ".join(state)))
    stays = [
        verdict for verdict in report.verdicts if known.get(verdict.node) is not verdict.reason.code
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
        reason = verdict.reason
        rule = [reason.code.value]
        if reason.drain_rule:
            rule += [reason.drain_rule, str(reason.params.get("budget", ""))]
        by_rule.setdefault(tuple(rule), []).append(verdict)
    rows: list[tuple[str, ...]] = []
    for (code, *_), verdicts in sorted(by_rule.items()):
        first = verdicts[0].reason
        why = sentence(first)
        if len(verdicts) > 1:
            why = f"{why}, and others alike" if first.drain_rule else text(first)
        nodes = some([verdict.node for verdict in verdicts])
        rows.append((nodes, code, why))
    return rows


# -- scaling rules and headroom


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
    rows: list[tuple[str, ...]] = []
    for verdict in verdicts:
        nodes = f"+{verdict.nodes}" if verdict.nodes else "-"
        rate = "-" if verdict.rate is None else f"{verdict.rate:.1f}%"
        due_or_rate = f"due {format_time(verdict.due)}" if verdict.due else rate
        why = sentence(verdict.reason) if verdict.reason is not None else "-"
        cells = [verdict.rule, verdict.pool, verdict.source or "policy", nodes, due_or_rate]
        if next_times is not None:
            cells.append(next_times.get(rule_key(verdict), "-"))
        rows.append((*cells, why))
    upcoming = () if next_times is None else ("next",)
    columns = ("rule", "pool", "from", "nodes", "due or rate", *upcoming, "why not (more)")
    return _narrowable(Table(columns, tuple(rows), title="Rules"))


_ROWS = 4
_NODES = 10


def contests(plan: Plan) -> list[Contest]:
    """Return the places that are promised to several pods together, sorted by
    the first of these pods."""
    entries: list[PodPlacement | UnschedulablePods] = [*plan.promises, *plan.unschedulable]
    all_contests = [entry.one_place_among for entry in entries]
    by_pods = {contest.among: contest for contest in all_contests if contest}
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
    places = f"{contest.places} of {len(contest.among)} pods ({some(contest.among)})"
    return f" It competes for this: {places} will get a place, and the scheduler chooses which."


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
    runs = [list(numbers) for _, numbers in groupby(nodes, key=lambda number: len(nodes[number]))]
    rest = [number for run in runs[_ROWS:] for number in run]
    shown = runs[:_ROWS]
    if rest:
        shown.append(rest)
    rows: list[tuple[str, ...]] = []
    for run in shown:
        counts = [len(nodes[number]) for number in run]
        pods_per_node = _span(min(counts), max(counts))
        pods = [pod for number in run for pod in nodes[number]]
        rows.append((group, _span(run[0], run[-1]), pods_per_node, some(pods)))
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
    placed = {pod for pods in pods_of.values() for pod in pods}
    unplaced = [pod for pod in plan.fits_existing if pod not in placed]
    order = sorted(pods_of, key=lambda node: (-len(pods_of[node]), node))
    more = [pod for node in order[_NODES:] for pod in pods_of[node]]
    lists = [(node, sorted(pods_of[node])) for node in order[:_NODES]]
    if more:
        lists.append((f"{len(order) - _NODES} more", sorted(more)))
    if unplaced:
        lists.append(("-", unplaced))
    return [(node, str(len(pods)), some(pods)) for node, pods in lists]
