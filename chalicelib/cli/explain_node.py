"""`outscaler explain node NAME`: explains whether a node is removed or stays, why, until when, and
how to unblock it; lists its pods and the pods expected on it.

reasons/text.py turns reasons into sentences; here, the advice of their rows is added, which is only
useful to an operator who asks. A drain rule's advice is part of its sentence, because a pod's owner
also reads it in events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.cli.arguments import named
from chalicelib.cli.explain_view import ExplainContext, Explanation, amounts, weakening
from chalicelib.cli.output import Table
from chalicelib.cli.plan_document import encoded
from chalicelib.cli.plan_output import on_node
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import GroupOptions, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import OPERATION_ANNOTATION, Operation, OperationKind
from chalicelib.model.plan import Plan, Removal, Restart
from chalicelib.model.pod import Pod
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.spot import InterruptionAction, RebalanceAction
from chalicelib.reasons.text import disruption_words, sentence
from chalicelib.reasons.words import ago, counted, some
from chalicelib.views import consolidation as consolidation_view
from chalicelib.views import lifecycle as lifecycle_view
from chalicelib.views.cluster_view import as_json, breaker_view, coded, notice_view, operation_view
from chalicelib.views.consolidation import HorizonView

_BREAKER_REASONS = (ReasonCode.DISRUPTION_BRAKE.value, ReasonCode.DISRUPTION_LIMIT.value)


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a node, including one that is still being created. Raises
    BadInput for an unknown name."""
    from chalicelib.plan.what_if import members_of

    snapshot = context.case.snapshot
    plan = context.plan
    nodes = {node.name: node for node in snapshot.nodes}
    coming = {promise.node for promise in plan.promises if promise.node}
    candidates = (*coming, *nodes)
    named(name, {candidate: candidate for candidate in candidates}, "explain node", "node")
    expected = on_node(plan, name)
    expected_rows = ((str(len(expected)), some(expected)),) if expected else ()
    expected_table = Table(("how many", "which"), expected_rows, title="Expected on it")
    node = nodes.get(name)
    if node is None:
        says = f"Node {name} is on its way; {_pods_expected(expected)}."
        data: dict[str, Any] = {"verdict": "upcoming", "expected": expected}
        return Explanation("node", name, (says,), data, tables=(expected_table,))
    group = next((group for group in snapshot.groups if members_of(group, [node])), None)
    pods = [pod for pod in snapshot.pods if pod.node == name]
    sentences, data = _all_sentences(context, node)
    if expected:
        sentences.append(f"{_pods_expected(expected)}.")
    destinations: dict[str, str] = data.get("destinations", {})
    ready = node.condition("Ready")
    is_ready = ready is not None and ready.status == "True"
    data |= {
        "spot": _is_spot(context, node, group),
        "group": group.id if group else "",
        "ready": is_ready,
        "unschedulable": node.unschedulable,
        "allocatable": dict(sorted(node.allocatable.items())),
        "taints": [str(taint) for taint in node.taints],
        **_utilization(context, node, group),
        "pods": [pod.key for pod in pods],
        "expected": expected,
    }
    tables = (_pods(context, pods, destinations), replacements(context, name), expected_table)
    facts = _facts(context, node, data)
    gaps = weakening(plan, removal=True, node=name)
    return Explanation("node", name, tuple(sentences), data, facts, tables, gaps)


def _all_sentences(context: ExplainContext, node: Node) -> tuple[list[str], dict[str, Any]]:
    """Return what all parts of a plan say of a node."""
    says, data = fate(context, node.name)
    sentences = list(says)
    says, consolidation_data = consolidation(context, node.name, data)
    sentences += says
    says, lifecycle_data = lifecycle(context.plan, node.name)
    sentences += says
    sentences += recommendation(context, node)
    says, notice_data = notice(context, node.name)
    sentences += says
    return sentences, data | consolidation_data | lifecycle_data | notice_data


def fate(context: ExplainContext, name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Say whether the node is removed, could be removed, or stays; what blocks the removal,
    until when, and what helps."""
    plan = context.plan
    removal = next((removal for removal in plan.removals if removal.node == name), None)
    if removal is not None:
        return _removed(removal)
    restart = next((restart for restart in plan.restarts if restart.node == name), None)
    if restart is not None:
        return _restarted(restart)
    verdict = next((verdict for verdict in plan.unremovable if verdict.node == name), None)
    operation = _open_operation(context, name)
    if operation is not None:
        says, data = _leaving(name, operation)
    else:
        why = sentence(verdict.reason) if verdict is not None else "the plan does not mention it"
        is_unneeded = name in plan.unneeded
        stays = "is unneeded, and stays for now" if is_unneeded else "stays"
        says = [f"Node {name} {stays}: {why}."]
        data = {"verdict": "unneeded" if is_unneeded else "stays"}
    if verdict is not None:
        advice = remedy(verdict.reason, plan.cluster)
        if advice and operation is None and not consolidation_view.is_going(plan, name):
            says.append(f"What helps: {advice}.")
        data["reason"] = coded(verdict.reason)
        if verdict.pod:
            data["holds"] = verdict.pod
        data |= _until_and_remedy(verdict.reason, advice)
    return tuple(says), data


def _removed(removal: Removal) -> tuple[tuple[str, ...], dict[str, Any]]:
    evict = list(removal.evict)
    data: dict[str, Any] = {
        "verdict": "removed",
        "how": removal.kind,
        "evict": evict,
        "destinations": dict(sorted(removal.destinations.items())),
    }
    why = ""
    if removal.reason is not DisruptionReason.UNNEEDED:
        why = f" {disruption_words(removal.reason.value)}"
        data["removedFor"] = removal.reason.value
    if removal.replacement:
        data["replacement"] = removal.replacement
    return (f"Node {removal.node} would be removed now{why}, {_eviction(evict)}.",), data


def _restarted(restart: Restart) -> tuple[tuple[str, ...], dict[str, Any]]:
    evict = list(restart.evict)
    condition = restart.condition
    says = f"Node {restart.node} would be restarted now because of {condition}, {_eviction(evict)}."
    return (says,), {"verdict": "restarted", "evict": evict, "condition": condition}


def _eviction(pods: Sequence[str]) -> str:
    return f"evicting {counted(len(pods), 'pod')}" if pods else "empty as it is"


def _leaving(name: str, operation: Operation) -> tuple[list[str], dict[str, Any]]:
    verdict, change = "leaving", "removed"
    if operation.spec.kind is OperationKind.RESTART_NODE:
        verdict, change = "restarting", "restarted"
    step = f"at step {operation.status.step or 'look'}, {operation.status.state.value}"
    says = f"Node {name} is being {change}: operation {operation.spec.id} is {step}."
    return [says], {"verdict": verdict, "operation": _operation(operation)}


def _until_and_remedy(reason: Reason, advice: str) -> dict[str, str]:
    data: dict[str, str] = {}
    until = due(reason)
    if until:
        data["until"] = format_time(until)
    if advice:
        data["remedy"] = advice
    return data


def consolidation(
    context: ExplainContext, name: str, said: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Say by which move a node goes, or why it is not consolidated, unless that is why it is not
    removed. said: what `fate` returned."""
    plan = context.plan
    if plan.consolidation is None:
        return (), {}
    move = consolidation_view.move_of(plan, name)
    verdict = consolidation_view.verdict_of(plan, name)
    data: dict[str, Any] = {"mode": plan.consolidation.mode}
    says = []
    if move is not None:
        data["move"] = encoded(move)
        action = consolidation_view.action(move)
        worth = consolidation_view.worth(move)
        state = consolidation_view.state_words(move.state)
        says.append(f"Consolidation: {action}: {worth}; {state}.")
    if verdict is not None:
        advice = remedy(verdict.reason, plan.cluster)
        data["reason"] = coded(verdict.reason)
        data |= _until_and_remedy(verdict.reason, advice)
        is_repeated = said.get("reason") == data["reason"]
        follows_from_move = move is not None and verdict.reason.code is ReasonCode.IN_REPLACEMENT
        if not is_repeated and not follows_from_move:
            start = "It waits" if move is not None else "It is not consolidated"
            says.append(f"{start}: {sentence(verdict.reason)}.")
            if advice:
                says.append(f"What helps: {advice}.")
    view = consolidation_view.horizon_view(plan)
    if view is not None:
        horizon_says, data["horizon"] = _horizon(view, name)
        says.append(horizon_says)
    rows = consolidation_view.replacements_of(context.decided.memory, name)
    if rows:
        data["replacements"] = [as_json(row) for row in rows]
    return tuple(says), {"consolidation": data}


def _horizon(view: HorizonView, name: str) -> tuple[str, dict[str, Any]]:
    """Say whether a node leaves or stays at the end of consolidation, and what its marks are."""
    report = view.report
    level = report.levels.get(name, 0)
    leaves = name in report.going
    verb = "leave" if leaves else "stay"
    since = format_time(report.since)
    says = f"Horizon {report.id} of {since}: it {view.would or 'will '}{verb}"
    if level and not leaves:
        says += " and keep room for pods that may be nowhere else"
    if level:
        says += f", marked at level {level} by taints with the value {report.id}"
    says += f"; price at the end: {view.end} an hour."
    return says, {
        "id": report.id,
        "since": since,
        "leaves": leaves,
        "level": level,
        "end": report.end,
    }


def _is_spot(context: ExplainContext, node: Node, group: NodeGroup | None) -> bool:
    """Return whether a node is spot, by its labels or by its group as the policy has it."""
    from chalicelib.plan.state.cluster_state import build_cluster_state
    from chalicelib.plan.state.spot_groups import is_spot

    case = context.case
    states = build_cluster_state(case.snapshot, case.policy, case.memory, case.now).groups
    if group is not None and group.id in states:
        group = states[group.id].group
    return is_spot(node, group)


def notice(context: ExplainContext, name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Say when a node's vendor takes it back, and what happens until then."""
    now = context.case.now
    settings = context.case.policy.spot
    memories = context.decided.memory.groups.values()
    risks = [memory.risk for memory in memories if memory.risk is not None]
    notices = (risk.notices[name] for risk in risks if name in risk.notices)
    view = notice_view(next(notices, None))
    if view is None:
        return (), {}
    takes = "takes it back" if view.leaves_at > now else "was to take it back"
    leaves = f"Its vendor {takes} at {format_time(view.leaves_at)}, {ago(view.leaves_at, now)}"
    happens = "nothing is done about it, as spec.spot.interruptions says"
    if settings is not None and settings.interruptions is InterruptionAction.ACT:
        happens = "its pods are evicted as their budgets permit, and nothing is forced"
    return (f"{leaves}: {happens}.",), {"notice": as_json(view)}


def recommendation(context: ExplainContext, node: Node) -> tuple[str, ...]:
    """Say what follows from a vendor's recommendation to leave a node, where
    spec.spot.rebalance asks for it."""
    from chalicelib.plan.state.interruptions import REBALANCE_TAINT

    settings = context.case.policy.spot
    if settings is None or settings.rebalance is not RebalanceAction.PREFER:
        return ()
    if node.taint(REBALANCE_TAINT) is None:
        return ()
    is_consolidated = context.plan.consolidation is not None
    first = ", and consolidation takes it first" if is_consolidated else ""
    return (f"Its vendor recommends to leave it: new pods avoid it{first} (spec.spot.rebalance).",)


def _pods_expected(pods: Sequence[str]) -> str:
    verb = "is" if len(pods) == 1 else "are"
    return f"{counted(len(pods), 'pending pod')} {verb} expected on it"


def lifecycle(plan: Plan, name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Say why a node should go although it is needed, what holds it, and what helps;
    nothing where it need not."""
    verdict = lifecycle_view.verdict_of(plan, name)
    if verdict is None:
        return (), {}
    is_restarted = lifecycle_view.restarts(plan, name)
    says = [lifecycle_view.says(verdict, is_restarted=is_restarted)]
    advice = remedy(verdict.held, plan.cluster) if verdict.held is not None else ""
    if advice:
        says.append(f"What helps: {advice}.")
    return tuple(says), {"lifecycle": lifecycle_view.verdict_data(verdict)}


def replacements(context: ExplainContext, name: str) -> Table:
    """Return how far the replacements of a node have come."""
    now = context.case.now
    rows = []
    for row in consolidation_view.replacements_of(context.decided.memory, name):
        bought = f"bought {ago(row.bought_at, now)}" if row.bought_at else ""
        proposed = f"proposed {ago(row.proposed_at, now)}"
        since = f"{consolidation_view.state_words(row.state)} since {format_time(row.since)}"
        new = f"new nodes: {some(row.new_nodes)}" if row.new_nodes else ""
        gone = f"gone: {some(row.gone)}" if row.gone else ""
        why = f"{row.why}; not before {format_time(row.until)}" if row.is_over else ""
        history = "; ".join(filter(None, (proposed, bought, since, new, gone, why)))
        rows.append((row.id, consolidation_view.replacement_action(row), history))
    return Table(("replacement", "what", "how far"), tuple(rows), title="Replacements")


def _open_operation(context: ExplainContext, node: str) -> Operation | None:
    for operation in context.case.memory.operations:
        targets = [target.node for target in operation.spec.targets]
        if operation.is_open and node in targets:
            return operation
    return None


def _operation(operation: Operation) -> dict[str, Any]:
    view = as_json(operation_view(operation))
    shown = ("id", "kind", "state", "step", "attempt", "plan", "createdAt")
    data = {key: view[key] for key in shown}
    data["step"] = view["step"] or "look"
    data["createdAt"] = format_time(operation.spec.created_at)
    if operation.spec.deadline:
        data["deadline"] = view["deadline"]
    return data


def _utilization(context: ExplainContext, node: Node, group: NodeGroup | None) -> dict[str, Any]:
    """Return the node's requested share and the threshold that applies to it
    (docs/reference/scale-down.md "Utilization")."""
    from chalicelib.plan.removal.candidates import Usage
    from chalicelib.plan.state.cluster_state import build_cluster_state

    case = context.case
    defaults = case.policy.options
    own = group.options if group else GroupOptions()
    ignore_daemonsets = own.ignore_daemonsets_utilization
    if ignore_daemonsets is None:
        ignore_daemonsets = defaults.ignore_daemonsets_utilization
    usage = Usage(build_cluster_state(case.snapshot, case.policy, case.memory, case.now))
    used = usage.of(node, ignore_daemonsets=ignore_daemonsets)
    if used is None:
        return {}
    threshold = own.scale_down_utilization_threshold
    default_threshold = defaults.scale_down_utilization_threshold
    if used.gpu:
        threshold = own.scale_down_gpu_utilization_threshold
        default_threshold = defaults.scale_down_gpu_utilization_threshold
    utilization = {
        "resource": used.resource,
        "share": round(used.share, 4),
        "threshold": default_threshold if threshold is None else threshold,
    }
    return {"utilization": utilization}


def _facts(
    context: ExplainContext, node: Node, data: dict[str, Any]
) -> tuple[tuple[str, str], ...]:
    memory = context.decided.memory
    now = context.case.now
    timers = memory.nodes.get(node.name)
    unneeded_since = timers.unneeded_since if timers is not None else 0.0
    unneeded = in_use = operation_words = deadline = breaker = ""
    if unneeded_since:
        duration = format_duration(now - unneeded_since)
        unneeded = f"{format_time(unneeded_since)}, for {duration}"
    if used := data.get("utilization"):
        in_use = f"{used['resource']} {used['share']:.0%}, threshold {used['threshold']:.0%}"
    if operation := data.get("operation"):
        operation_words = f"{operation['id']}, since {operation['createdAt']}"
        deadline = operation.get("deadline", "")
    if data.get("reason", {}).get("code") in _BREAKER_REASONS:
        breaker = breaker_view(memory, now).line
    return (
        ("node group", data["group"] or "none: it is not autoscaled"),
        ("ready", "yes" if data["ready"] else "no"),
        ("cordoned", "yes" if node.unschedulable else ""),
        ("spot", "yes" if data["spot"] else ""),
        ("allocatable", amounts(node.allocatable)),
        ("taints", ", ".join(data["taints"])),
        ("marked by", node.annotations.get(OPERATION_ANNOTATION, "")),
        ("in use", in_use),
        ("unneeded since", unneeded),
        ("held by", data.get("holds", "")),
        ("until", data.get("until", "")),
        ("circuit breaker", breaker),
        ("operation", operation_words),
        ("given up after", deadline),
    )


def _pods(context: ExplainContext, pods: list[Pod], destinations: dict[str, str]) -> Table:
    """Return the node's pods and, if it is to be removed, their destinations."""
    rows: list[tuple[str, ...]] = []
    for pod in pods:
        cls = context.case.snapshot.cls(pod)
        owner = f"{cls.owner.kind}/{cls.owner.name}" if cls.owner is not None else "none"
        cells = [pod.key, amounts(cls.requests), owner]
        if destinations:
            cells.append(destinations.get(pod.key, "-"))
        rows.append(tuple(cells))
    columns = ["pod", "requests", "owner"]
    if destinations:
        columns.append("would go to")
    return Table(tuple(columns), tuple(rows), title="Pods on it", empty="no pod runs on it")


# -- advice


def remedy(reason: Reason, cluster: str) -> str:
    """Return the advice without a full stop; empty where the reason's own sentence contains it.
    cluster: its name, for commands.

    RecentlyUnremovable returns the advice for the cause that the last simulation of the node found.
    """
    params = reason.params
    if reason.code is ReasonCode.RECENTLY_UNREMOVABLE and "was" in params:
        cause = {name: value for name, value in params.items() if name not in {"until", "was"}}
        code = ReasonCode(str(params["was"]))
        return remedy(Reason(code, cause), cluster)
    share = "Utilization" if params.get("resource") in ("cpu", "memory") else "GpuUtilization"
    threshold = f"scaleDown{share}Threshold"
    cooldown = params.get("which", "a cooldown")
    return reason.code.row.advice.format(cluster=cluster, threshold=threshold, cooldown=cooldown)


def due(reason: Reason) -> float:
    """Return the instant at which the reason expires by itself, epoch seconds; 0.0
    where it does not expire."""
    params = reason.params
    if "until" in params:
        return float(params["until"])
    if {"since", "needs"} <= params.keys():
        return float(params["since"]) + float(params["needs"])
    return 0.0
