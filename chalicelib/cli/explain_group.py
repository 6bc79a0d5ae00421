"""`outscaler explain group NAME`: explains whether a node group scales up, what it could have
provided, why it was not chosen, and which pods cannot use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chalicelib.cli import plan_output
from chalicelib.cli.arguments import meant_group, named
from chalicelib.cli.explain_view import ExplainContext, Explanation, sentences, weakening
from chalicelib.cli.managed_machines import unopened_machine
from chalicelib.cli.output import Table
from chalicelib.cli.plan_document import encoded, fields, next_times, option_data, rule_data
from chalicelib.cli.plan_output import on_new, rows_of_group
from chalicelib.model.group import NodeGroup
from chalicelib.model.join_summary import ENOUGH, learnt_timeout
from chalicelib.model.memory import GroupMemory
from chalicelib.model.overview import GroupOverview
from chalicelib.model.plan import GroupVerdict, Plan, RuleVerdict, ScaleUp, UnschedulablePods
from chalicelib.model.quantity import format_duration
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.plan.prices import MICRO, NoPrice, Price, price_book
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.timeouts import provision_time
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import ago, counted, money, some
from chalicelib.views import lifecycle as lifecycle_view
from chalicelib.views.cluster_view import GroupView, as_json, coded, group_view, spot_view
from chalicelib.views.rows import price_words

if TYPE_CHECKING:
    from chalicelib.plan.state.cluster_state import ClusterState


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a node group, found by its id or an alias. Raises BadInput for an
    unknown or ambiguous name."""
    from chalicelib.plan.state.cluster_state import build_cluster_state
    from chalicelib.plan.what_if import members_of

    case = context.case
    plan = context.plan
    unopened = unopened_machine(context, name)
    if unopened is not None:
        return unopened
    name = _id(name, case.snapshot, plan)
    verdicts = {verdict.group: verdict for verdict in plan.groups}
    verdict = named(name, verdicts, "explain group", "node group")
    scale_up = next((up for up in plan.scale_ups if up.group == name), None)
    removed = [removal.node for removal in plan.removals if removal.group == name]
    state = build_cluster_state(case.snapshot, case.policy, case.memory, case.now)
    # spot where the policy says so, too
    group = state.groups[name].group if name in state.groups else None
    nodes: list[str] = []
    if group is not None:
        nodes = [node.name for node in members_of(group, case.snapshot.nodes)]
    promised = on_new(plan, name)
    refused = [unserved for unserved in plan.unschedulable if name in unserved.reasons]
    rules = _rules(plan, name, group)
    times = _next_times(context, rules)
    says = [_growth(verdict, scale_up)]
    if removed:
        says.append(f"{len(removed)} of its nodes would be removed: {', '.join(removed)}.")
    view = group_view(name, context.decided.memory.groups.get(name, GroupMemory()), case.now)
    data = {"verdict": _verdict(verdict, scale_up), **_state_data(verdict, view, nodes, case.now)}
    if scale_up is not None:
        growth = fields(scale_up, "from to max pods", "rules headroom replacement")
        data["growth"] = encoded(growth)
    if rules:
        data["rules"] = [rule_data(rule, times) for rule in rules]
    data |= {
        "promises": [{"number": number, "pods": pods} for number, pods in promised.items()],
        "removals": removed,
        "noHelpTo": [_refusal_data(unserved, name) for unserved in refused],
    }
    tables = (
        _new_nodes_table(name, promised),
        _refusals_table(refused, name),
        plan_output.rules_table(rules, times),
        _own_nodes_table(context, nodes),
    )
    purchases, purchase_words = _purchases(context, group, verdict)
    if purchases:
        data["consolidation"] = purchases
    price, words = _price(context, group)
    learned, learned_facts = _learned(context, group, verdict, view)
    risk, risk_facts = _risk(context, state, name, str(price.get("currency", "")))
    members = set(nodes)
    members.update(node for node, own in context.overview.group_of.items() if own.group == name)
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
        *_rests(plan, name),
        ("consolidation", purchase_words),
    )
    gaps = weakening(plan, removal=False)
    return Explanation("group", name, tuple(says), data, facts, tables, gaps)


def _rules(plan: Plan, name: str, group: NodeGroup | None) -> list[RuleVerdict]:
    """Return what the rules of the group, or of its pool, say."""
    names = {name}
    if group is not None and group.pool is not None:
        names |= {group.pool.id, group.pool.name}
    return [rule for rule in plan.rules if rule.pool in names]


def _next_times(context: ExplainContext, rules: Sequence[RuleVerdict]) -> dict[str, str]:
    if not rules:
        return {}
    case = context.case
    return next_times(rules, case.policy, context.decided.memory, case.now)


def _refusal_data(unschedulable: UnschedulablePods, group: str) -> dict[str, Any]:
    reasons = [coded(reason) for reason in unschedulable.reasons[group]]
    return {"pods": list(unschedulable.pods), "reasons": reasons}


def _refusals_table(refused: Iterable[UnschedulablePods], group: str) -> Table:
    rows = [(some(unserved.pods), sentences(unserved.reasons[group])) for unserved in refused]
    return Table(("pods", "why not"), tuple(rows), title="Pods that it does not help")


def _new_nodes_table(group: str, promised: Mapping[int, Sequence[str]]) -> Table:
    columns = ("group", "new node", "pods per node", "pods")
    return Table(columns, tuple(rows_of_group(group, promised)), title="New nodes")


def _own_nodes_table(context: ExplainContext, nodes: Iterable[str]) -> Table:
    rows = [(node, _fate(context, node)) for node in nodes]
    return Table(("node", "result"), tuple(rows), title="Its nodes")


def _rests(plan: Plan, group: str) -> list[tuple[str, str]]:
    """Return why the group's nodes are not renewed for a while."""
    rests = (note for note in plan.rests if note.params.get("group") == group)
    return [("renewal", sentence(note)) for note in rests]


def _state_data(
    verdict: GroupVerdict, view: GroupView, nodes: list[str], now: float
) -> dict[str, Any]:
    """Return the group's size, its nodes and what it waits for, as `-o json` shows them."""
    request = view.request
    backoff = view.backoff_at(now)
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
        data["option"] = option_data(verdict)
    if verdict.skipped is not None:
        data["skipped"] = coded(verdict.skipped)
    if request is not None:
        expected_at = format_time(request.expected_at)
        shown = {"purchases", "comingFor"}
        details = {key: value for key, value in as_json(request).items() if key in shown}
        data["waitingFor"] = {"nodes": request.increase, "expectedAt": expected_at, **details}
    if backoff is not None:
        data["backoff"] = as_json(backoff)
    return data


def _facts(verdict: GroupVerdict, view: GroupView, now: float) -> tuple[tuple[str, str], ...]:
    request = view.request
    backoff = view.backoff_at(now)
    backoff_words = ""
    if backoff is not None:
        until = f"until {format_time(backoff.until)}:"
        words = (until, backoff.error_class, backoff.code, backoff.message)
        backoff_words = " ".join(filter(None, words))
    return (
        ("provider", verdict.provider),
        ("size", f"{verdict.target}, {verdict.min} to {verdict.max}"),
        ("ready nodes", str(verdict.ready)),
        ("on their way", str(verdict.upcoming or "")),
        ("option", _could(verdict) if verdict.option_nodes else ""),
        ("waiting for", request.words if request else ""),
        ("coming for", request.coming_words if request else ""),
        ("back-off", backoff_words),
    )


def _learned(
    context: ExplainContext, group: NodeGroup | None, verdict: GroupVerdict, view: GroupView
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """Return what the group has taught and what follows from it, as `-o
    json` shows it and in words."""
    policy = context.case.policy
    memory = context.decided.memory.groups.get(view.group, GroupMemory())
    data = as_json(view.joins)
    facts = [("ready time", view.joins.ready_line), ("failures", view.joins.fails_line)]
    if group is not None:
        timeout = longest = provision_time(group, policy.options)
        if policy.scale_up.learned_timeouts:
            timeout = learnt_timeout(memory.joins, longest)
        is_learnt = timeout < longest
        data["timeoutSeconds"] = timeout
        data["timeoutLearned"] = is_learnt
        why = " (learnt: 1.5 times p99, at least 2m)" if is_learnt else ""
        if policy.scale_up.learned_timeouts and view.joins.since_timeout < ENOUGH:
            why = f" (nothing is learnt yet: {ENOUGH} joins since the last time-out are needed)"
        facts.append(("given up after", f"{format_duration(timeout)}{why}"))
    if verdict.expected_price:
        expected_price = verdict.expected_price / MICRO
        data["expectedPerHour"] = expected_price
        facts.append(("expected price", f"{expected_price:g}"))
    return data, tuple(facts)


def _risk(
    context: ExplainContext, state: ClusterState, name: str, currency: str
) -> tuple[dict[str, Any] | None, tuple[tuple[str, str], ...]]:
    """Return the risk of a spot group, as `-o json` shows it and in words; None of another
    group."""
    from chalicelib.journal.pass_overview import spot_overview
    from chalicelib.plan.state.spot_market import spot_groups

    memory = context.decided.memory.groups.get(name, GroupMemory())
    now = context.case.now
    stored = {group.group: group.spot for group in context.overview.groups}
    overview = stored.get(name)
    if name in state.groups:
        overview = spot_overview(name, state, spot_groups(state))
    view = spot_view(overview, memory.risk, now)
    if view is None:
        return None, ()
    premium = last_notice = avoided_until = ""
    if view.premium is not None:
        premium = f"{money(view.premium, currency)} an hour and node"
    if view.last_notice:
        last_notice = f"{format_time(view.last_notice)}, {ago(view.last_notice, now)}"
    if view.avoided_until:
        avoided_until = format_time(view.avoided_until)
    return as_json(view), (
        ("spot", view.risk_line),
        ("last notice", last_notice or "none"),
        ("price of the risk", premium),
        ("avoided until", avoided_until),
        ("nodes with a notice", str(view.leaving or "")),
    )


def _price(context: ExplainContext, group: NodeGroup | None) -> tuple[dict[str, Any], str]:
    """Return the hourly price of a node of the group, as `-o json` shows it and in
    words, or why there is none."""
    from chalicelib.plan.what_if import members_of

    snapshot = context.case.snapshot
    policy = context.case.policy
    if group is None:
        return {}, ""
    uses_spot = policy.spot is not None
    book = price_book(policy.prices, snapshot.groups, snapshot.taken_at, spot=uses_spot)
    example_node = next(iter(members_of(group, snapshot.nodes)), None)
    price = book.of_group(group, example_node)
    missing = ""
    shown: Price | None
    if isinstance(price, NoPrice):
        missing = price.detail
        shown = book.named(group)
    else:
        shown = price
    if shown is None or not shown.amount:
        return {"noPrice": missing}, price_words(None, "", "", "", missing or "it costs nothing")
    source = str(shown.source)
    parts = {
        "perHour": shown.hourly,
        "currency": shown.currency,
        "source": source,
        "date": shown.date,
        "noPrice": missing,
    }
    data = {key: value for key, value in parts.items() if value}
    return data, price_words(shown.hourly, shown.currency, source, shown.date, missing)


def _purchases(
    context: ExplainContext, group: NodeGroup | None, verdict: GroupVerdict
) -> tuple[dict[str, Any], str]:
    """Return how many nodes of the group the moves of consolidation buy, or why they may buy none;
    nothing where consolidation is off."""
    report = context.plan.consolidation
    if report is None or group is None:
        return {}, ""
    purchases = [purchase for move in report.moves for purchase in move.purchases]
    bought = sum(purchase.nodes for purchase in purchases if purchase.group == verdict.group)
    data: dict[str, Any] = {"buys": bought}
    if bought:
        return data, f"moves buy {counted(bought, 'node')}"
    why = _no_purchase(context, group, verdict)
    if not why:
        return data, "its nodes may be bought; no move does"
    return data | {"notBought": why}, why


def _no_purchase(context: ExplainContext, group: NodeGroup, verdict: GroupVerdict) -> str:
    """Return why no move may buy nodes of a group."""
    from chalicelib.plan.removal.consolidation.eligibility import named_groups
    from chalicelib.plan.state.cluster_state import build_cluster_state

    case = context.case
    mode = case.policy.consolidation.mode
    if mode is ConsolidationMode.REMOVE:
        return "mode remove buys nothing"
    state = build_cluster_state(case.snapshot, case.policy, case.memory, case.now)
    if group.id not in named_groups(state):
        return "consolidation.groups does not name it"
    if group.options.zero_or_max:
        return "it grows as a whole or not at all"
    price, _ = _price(context, group)
    if "noPrice" in price and "perHour" not in price:
        return "it has no price"
    if verdict.target >= verdict.max:
        return f"it is at its maximum, {verdict.max}"
    return sentence(verdict.skipped) if verdict.skipped is not None else ""


def _id(name: str, snapshot: Snapshot, plan: Plan) -> str:
    """Return the id of the group with this name. A pool's name is an alias of each of its
    groups."""
    groups = {verdict.group: GroupOverview(verdict.group) for verdict in plan.groups}
    for group in snapshot.groups:
        groups[group.id] = GroupOverview(group.id, group.name, aliases=group.aliases)
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
        pods = counted(len(scale_up.pods), "pod") if scale_up.pods else ""
        reasons = " and ".join(filter(None, (pods, plan_output.causes(scale_up))))
        what = f"for {reasons or '0 pods'}"
        if not reasons and scale_up.to_size <= verdict.min:
            what = f"to its minimum, {verdict.min}"
        sizes = f"{scale_up.from_size} -> {scale_up.to_size} (max {scale_up.max})"
        return f"{start} grows {sizes} {what}."
    if verdict.skipped is not None:
        return f"{start} is not grown: {sentence(verdict.skipped)}."
    if verdict.option_nodes:
        return f"{start} is not grown: {_could(verdict)}, but another was chosen."
    return f"{start} is not grown: it helps no pod."


def _could(verdict: GroupVerdict) -> str:
    pods = counted(verdict.option_pods, "pod")
    nodes = counted(verdict.option_nodes, "new node")
    return f"it could have taken {pods} on {nodes}, waste {verdict.waste or 0.0:.2f}"


def _fate(context: ExplainContext, node: str) -> str:
    plan = context.plan
    if any(removal.node == node for removal in plan.removals):
        return "removed now"
    stays = next((verdict for verdict in plan.unremovable if verdict.node == node), None)
    why = sentence(stays.reason) if stays is not None else ""
    if node in plan.unneeded:
        return f"unneeded, stays for now: {why}"
    return f"stays: {why}" if why else "-"
