"""`outscaler explain group NAME`: explains whether a node group scales up, what it could have
provided, why it was not chosen, and which pods cannot use it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from chalicelib.cli import plan_output
from chalicelib.cli.arguments import meant_group, named
from chalicelib.cli.explain_view import ExplainContext, Explanation, sentences, weakening
from chalicelib.cli.output import Table, plural
from chalicelib.cli.plan_output import on_new, rows_of_group, some
from chalicelib.model.group import NodeGroup
from chalicelib.model.join_summary import ENOUGH, learnt_timeout
from chalicelib.model.memory import GroupMemory
from chalicelib.model.overview import GroupOverview
from chalicelib.model.plan import GroupVerdict, Plan, ScaleUp
from chalicelib.model.policy import ConsolidationMode
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timeouts import provision_time
from chalicelib.model.timestamps import format_time
from chalicelib.plan.prices import MICRO, NoPrice, price_book
from chalicelib.reasons.text import sentence
from chalicelib.views import lifecycle as lifecycle_view
from chalicelib.views.cluster_view import GroupView, ago, as_json, coded, group_view, spot_view
from chalicelib.views.consolidation import money
from chalicelib.views.rows import price_words

if TYPE_CHECKING:
    from chalicelib.plan.state.cluster_state import ClusterState


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a node group, found by its id or an alias. Raises BadInput for an
    unknown or ambiguous name."""
    from chalicelib.plan.state.cluster_state import build_cluster_state
    from chalicelib.plan.what_if import owned_by

    case, plan = context.case, context.plan
    name = _id(name, case.snapshot, plan)
    verdict = named(
        name, {verdict.group: verdict for verdict in plan.groups}, "explain group", "node group"
    )
    scale_up = next((up for up in plan.scale_ups if up.group == name), None)
    removed = [removal.node for removal in plan.removals if removal.group == name]
    state = build_cluster_state(case.snapshot, case.policy, case.memory, case.now)
    # spot where the policy says so, too
    group = state.groups[name].group if name in state.groups else None
    nodes = [
        node.name for node in case.snapshot.nodes if group is not None and owned_by(group, node)
    ]
    promised = on_new(plan, name)
    refused = [
        (unserved.pods, unserved.reasons[name])
        for unserved in plan.unschedulable
        if name in unserved.reasons
    ]
    pools = (
        {name} if group is None or group.pool is None else {name, group.pool.id, group.pool.name}
    )
    rules = [rule for rule in plan.rules if rule.pool in pools]
    next_times = (
        plan_output.next_times(rules, case.policy, context.decided.memory, case.now)
        if rules
        else {}
    )
    says = [_growth(verdict, scale_up)]
    if removed:
        says.append(f"{len(removed)} of its nodes would be removed: {', '.join(removed)}.")
    view = group_view(name, context.decided.memory.groups.get(name, GroupMemory()), case.now)
    data = {"verdict": _verdict(verdict, scale_up), **_state_data(verdict, view, nodes, case.now)}
    if scale_up is not None:
        sizes = {"from": scale_up.from_size, "to": scale_up.to_size, "max": scale_up.max}
        data["growth"] = {**sizes, "pods": list(scale_up.pods), **plan_output.growth_data(scale_up)}
    if rules:
        data["rules"] = [plan_output.rule_data(rule, next_times) for rule in rules]
    data |= {
        "promises": [{"number": number, "pods": pods} for number, pods in promised.items()],
        "removals": removed,
        "noHelpTo": [
            {"pods": list(pods), "reasons": [coded(reason) for reason in reasons]}
            for pods, reasons in refused
        ],
    }
    rows = tuple((some(pods), sentences(reasons)) for pods, reasons in refused)
    refusals = Table(("pods", "why not"), rows, title="Pods that it does not help")
    new_nodes = Table(
        ("group", "new node", "pods per node", "pods"),
        tuple(rows_of_group(name, promised)),
        title="New nodes",
    )
    own_nodes = Table(
        ("node", "result"), tuple((node, _fate(context, node)) for node in nodes), title="Its nodes"
    )
    purchases, purchase_words = _purchases(context, group, verdict)
    data |= {"consolidation": purchases} if purchases else {}
    tables = (new_nodes, refusals, plan_output.rules_table(rules, next_times), own_nodes)
    price, words = _price(context, group)
    learned, learned_facts = _learned(context, group, verdict, view)
    risk, risk_facts = _risk(context, state, name, str(price.get("currency", "")))
    members = {
        *nodes,
        *(node for node, own in context.overview.group_of.items() if own.group == name),
    }
    due = lifecycle_view.due_counts(
        verdict for verdict in plan.lifecycle if verdict.node in members
    )
    data |= {"price": price, "learned": learned, "spot": risk, "due": due}
    facts = (
        *_facts(verdict, view, case.now),
        ("price", words),
        *learned_facts,
        *risk_facts,
        ("nodes that should go", lifecycle_view.count_words(due)),
        *_rests(plan.notes, name),
        ("consolidation", purchase_words),
    )
    return Explanation(
        "group", name, tuple(says), data, facts, tables, weakening(plan, removal=False)
    )


def _rests(notes: Iterable[Reason], group: str) -> list[tuple[str, str]]:
    """Return why the group's nodes are not renewed for a while."""
    codes = (
        note
        for note in notes
        if note.code is ReasonCode.RENEWAL_RESTS and note.params.get("group") == group
    )
    return [("renewal", sentence(note)) for note in codes]


def _state_data(
    verdict: GroupVerdict, view: GroupView, nodes: list[str], now: float
) -> dict[str, Any]:
    """Return the group's size, its nodes and what it waits for, as `-o json` shows them."""
    request, backoff = view.request, view.backoff_at(now)
    data: dict[str, Any] = {
        "provider": verdict.provider,
        "size": verdict.target,
        "min": verdict.min,
        "max": verdict.max,
        "ready": verdict.ready,
        "upcoming": verdict.upcoming,
        "nodes": nodes,
    }
    if verdict.option_nodes:
        data["option"] = plan_output.option_data(verdict)
    if verdict.skipped is not None:
        data["skipped"] = coded(verdict.skipped)
    if request is not None:
        data["waitingFor"] = {
            "nodes": request.increase,
            "expectedAt": format_time(request.expected_at),
        }
        details = {
            key: value
            for key, value in as_json(request).items()
            if key in {"purchases", "comingFor"}
        }
        data["waitingFor"] |= details
    if backoff is not None:
        data["backoff"] = as_json(backoff)
    return data


def _facts(verdict: GroupVerdict, view: GroupView, now: float) -> tuple[tuple[str, str], ...]:
    request, backoff = view.request, view.backoff_at(now)
    failed = ""
    if backoff is not None:
        words = (
            f"until {format_time(backoff.until)}:",
            backoff.error_class,
            backoff.code,
            backoff.message,
        )
        failed = " ".join(filter(None, words))
    return (
        ("provider", verdict.provider),
        ("size", f"{verdict.target}, {verdict.min} to {verdict.max}"),
        ("ready nodes", str(verdict.ready)),
        ("on their way", str(verdict.upcoming or "")),
        ("option", _could(verdict) if verdict.option_nodes else ""),
        ("waiting for", request.words if request else ""),
        ("coming for", request.coming_words if request else ""),
        ("back-off", failed),
    )


def _learned(
    context: ExplainContext, group: NodeGroup | None, verdict: GroupVerdict, view: GroupView
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """Return what the group has taught and what follows from it, as `-o
    json` shows it and in words."""
    policy, statistics = (
        context.case.policy,
        context.decided.memory.groups.get(view.group, GroupMemory()).joins,
    )
    data, facts = (
        as_json(view.joins),
        [("ready time", view.joins.ready_line), ("failures", view.joins.fails_line)],
    )
    if group is not None:
        longest = provision_time(group, policy.options)
        timeout = (
            learnt_timeout(statistics, longest) if policy.scale_up.learned_timeouts else longest
        )
        data |= {"timeoutSeconds": timeout, "timeoutLearned": timeout < longest}
        why = " (learnt: 1.5 times p99, at least 2m)" if timeout < longest else ""
        if policy.scale_up.learned_timeouts and view.joins.since_timeout < ENOUGH:
            why = f" (nothing is learnt yet: {ENOUGH} joins since the last time-out are needed)"
        facts.append(("given up after", f"{format_duration(timeout)}{why}"))
    if verdict.expected_price:
        data["expectedPerHour"] = verdict.expected_price / MICRO
        facts.append(("expected price", f"{verdict.expected_price / MICRO:g}"))
    return data, tuple(facts)


def _risk(
    context: ExplainContext, state: ClusterState, name: str, currency: str
) -> tuple[dict[str, Any] | None, tuple[tuple[str, str], ...]]:
    """Return the risk of a spot group, as `-o json` shows it and in words; None of another
    group."""
    from chalicelib.journal.pass_overview import spot_overview
    from chalicelib.plan.state.spot_market import spot_groups

    risk, now = context.decided.memory.groups.get(name, GroupMemory()).risk, context.case.now
    stored = {group.group: group.spot for group in context.overview.groups}
    known = (
        spot_overview(name, state, spot_groups(state)) if name in state.groups else stored.get(name)
    )
    view = spot_view(known, risk, now)
    if view is None:
        return None, ()
    premium = (
        f"{money(view.premium, currency)} an hour and node" if view.premium is not None else ""
    )
    last = (
        f"{format_time(view.last_notice)}, {ago(view.last_notice, now)}"
        if view.last_notice
        else "none"
    )
    return as_json(view), (
        ("spot", view.risk_line),
        ("last notice", last),
        ("price of the risk", premium),
        ("avoided until", format_time(view.avoided_until) if view.avoided_until else ""),
        ("nodes with a notice", str(view.leaving or "")),
    )


def _price(context: ExplainContext, group: NodeGroup | None) -> tuple[dict[str, Any], str]:
    """Return the hourly price of a node of the group, as `-o json` shows it and in
    words, or why there is none."""
    from chalicelib.plan.what_if import owned_by

    snapshot = context.case.snapshot
    if group is None:
        return {}, ""
    book = price_book(
        context.case.policy.prices,
        snapshot.groups,
        snapshot.taken_at,
        spot=context.case.policy.spot is not None,
    )
    price = book.of_group(
        group, next((node for node in snapshot.nodes if owned_by(group, node)), None)
    )
    missing, shown = (
        (price.detail, book.named(group)) if isinstance(price, NoPrice) else ("", price)
    )
    if shown is None or not shown.amount:
        return {"noPrice": missing}, price_words(None, "", "", "", missing or "it costs nothing")
    amounts = {
        "perHour": shown.hourly,
        "currency": shown.currency,
        "source": str(shown.source),
        "date": shown.date,
    }
    data = {key: value for key, value in amounts.items() if value} | (
        {"noPrice": missing} if missing else {}
    )
    return data, price_words(shown.hourly, shown.currency, str(shown.source), shown.date, missing)


def _purchases(
    context: ExplainContext, group: NodeGroup | None, verdict: GroupVerdict
) -> tuple[dict[str, Any], str]:
    """Return how many nodes of the group the moves of consolidation buy, or why they may buy none;
    nothing where consolidation is off."""
    report = context.plan.consolidation
    if report is None or group is None:
        return {}, ""
    bought = sum(
        bought.nodes
        for move in report.moves
        for bought in move.purchases
        if bought.group == verdict.group
    )
    why = "" if bought else _no_purchase(context, group, verdict)
    data: dict[str, Any] = {"buys": bought} | ({"notBought": why} if why else {})
    return (
        data,
        f"moves buy {plural(bought, 'node')}"
        if bought
        else why or "its nodes may be bought; no move does",
    )


def _no_purchase(context: ExplainContext, group: NodeGroup, verdict: GroupVerdict) -> str:
    """Return why no move may buy nodes of a group."""
    from chalicelib.plan.removal.consolidation.eligibility import named_groups
    from chalicelib.plan.state.cluster_state import build_cluster_state

    case = context.case
    mode = case.policy.consolidation.mode
    if mode is ConsolidationMode.REMOVE:
        return "mode remove buys nothing"
    if group.id not in named_groups(
        build_cluster_state(case.snapshot, case.policy, case.memory, case.now)
    ):
        return "consolidation.groups does not name it"
    if group.options.zero_or_max:
        return "it grows as a whole or not at all"
    if "noPrice" in (price := _price(context, group)[0]) and "perHour" not in price:
        return "it has no price"
    if verdict.target >= verdict.max:
        return f"it is at its maximum, {verdict.max}"
    return sentence(verdict.skipped) if verdict.skipped is not None else ""


def _id(name: str, snapshot: Snapshot, plan: Plan) -> str:
    """Return the id of the group with this name. A pool's name is an alias of each of its
    groups."""
    groups = {verdict.group: GroupOverview(verdict.group) for verdict in plan.groups}
    groups |= {
        group.id: GroupOverview(group.id, group.name, aliases=group.aliases)
        for group in snapshot.groups
    }
    return meant_group(list(groups.values()), name, "explain group")


def _verdict(verdict: GroupVerdict, scale_up: ScaleUp | None) -> str:
    if scale_up is not None:
        return "grows"
    if verdict.skipped is not None:
        return "skipped"
    return "notChosen" if verdict.option_nodes else "helpsNoPod"


def _growth(verdict: GroupVerdict, scale_up: ScaleUp | None) -> str:
    start = f"Node group {verdict.group}"
    if scale_up is not None:
        reasons = [plural(len(scale_up.pods), "pod")] * bool(scale_up.pods)
        reasons += list(filter(None, [plan_output.causes(scale_up)]))
        to_minimum = not reasons and scale_up.to_size <= verdict.min
        what = (
            f"to its minimum, {verdict.min}"
            if to_minimum
            else f"for {' and '.join(reasons) or '0 pods'}"
        )
        return (
            f"{start} grows {scale_up.from_size} -> {scale_up.to_size} (max {scale_up.max}) {what}."
        )
    if verdict.skipped is not None:
        return f"{start} is not grown: {sentence(verdict.skipped)}."
    if verdict.option_nodes:
        return f"{start} is not grown: {_could(verdict)}, but another was chosen."
    return f"{start} is not grown: it helps no pod."


def _could(verdict: GroupVerdict) -> str:
    pods, nodes = plural(verdict.option_pods, "pod"), plural(verdict.option_nodes, "new node")
    return f"it could have taken {pods} on {nodes}, waste {verdict.waste or 0.0:.2f}"


def _fate(context: ExplainContext, node: str) -> str:
    plan = context.plan
    if any(removal.node == node for removal in plan.removals):
        return "removed now"
    stays = next((verdict for verdict in plan.unremovable if verdict.node == node), None)
    why = sentence(stays.reason) if stays is not None else ""
    return (
        f"unneeded, stays for now: {why}"
        if node in plan.unneeded
        else f"stays: {why}"
        if why
        else "-"
    )
