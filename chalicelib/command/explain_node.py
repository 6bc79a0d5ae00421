"""`outscaler explain node NAME`: explains whether a node is removed or stays, why, until when, and how to unblock it;
lists its pods and the pods expected on it."""

from __future__ import annotations

from typing import Any

from chalicelib.command.breaker_view import brake_data, brake_line
from chalicelib.command.explain_view import ExplainContext, Explanation, amounts, coded, weakening
from chalicelib.command.name_lookup import named
from chalicelib.command.node_advice import due, remedy
from chalicelib.command.placements import on_node, some
from chalicelib.command.tables import Table
from chalicelib.model.group import GroupOptions, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import OPERATION_ANNOTATION, Operation
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.pod import Pod
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence

_BRAKES = (ReasonCode.DISRUPTION_BRAKE.value, ReasonCode.DISRUPTION_LIMIT.value)


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a node, including one that is still being created. Raises BadInput for an unknown name."""
    from chalicelib.plan.what_if import owned_by

    snapshot, plan = context.case.snapshot, context.plan
    coming = {promise.node: promise.node for promise in plan.promises if promise.node}
    nodes = {node.name: node for node in snapshot.nodes}
    named(name, {**coming, **{node: node for node in nodes}}, "explain node", "node")
    expected = on_node(plan, name)
    node = nodes.get(name)
    if node is None:
        return Explanation(
            "node",
            name,
            (f"Node {name} is on its way; {len(expected)} pending pods are expected on it.",),
            {"verdict": "upcoming", "expected": expected},
            tables=(_expected(expected),),
        )
    group = next((each for each in snapshot.groups if owned_by(each, node)), None)
    pods = [pod for pod in snapshot.pods if pod.node == name]
    says, data = fate(context, node.name)
    if expected:
        says = (*says, f"{len(expected)} pending pods are expected on it.")
    to: dict[str, str] = data.get("destinations", {})
    data |= {
        "group": group.id if group else "",
        "ready": _is_ready(node),
        "unschedulable": node.unschedulable,
        "allocatable": dict(sorted(node.allocatable.items())),
        "taints": [str(taint) for taint in node.taints],
        **_filled(context, node, group),
        "pods": [pod.key for pod in pods],
        "expected": expected,
    }
    return Explanation(
        "node",
        name,
        says,
        data,
        _facts(context, node, data),
        (_pods(context, pods, to), _expected(expected)),
        weakening(plan, removal=True, node=name),
    )


def fate(context: ExplainContext, name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Say whether the node is removed, could be removed, or stays."""
    plan = context.plan
    removal = next((each for each in plan.removals if each.node == name), None)
    if removal is not None:
        evicting = len(removal.evict)
        what = f"evicting {evicting} pod{'' if evicting == 1 else 's'}" if evicting else "empty as it is"
        return (f"Node {name} would be removed now, {what}.",), {
            "verdict": "removed",
            "how": removal.kind,
            "evict": list(removal.evict),
            "destinations": dict(sorted(removal.destinations.items())),
        }
    stays = next((each for each in plan.unremovable if each.node == name), None)
    open_ = next(
        (
            each
            for each in context.case.memory.operations
            if each.is_open and any(target.node == name for target in each.spec.targets)
        ),
        None,
    )
    data: dict[str, Any] = {"verdict": "unneeded" if name in plan.unneeded else "stays"}
    why = sentence(stays.reason) if stays is not None else "the plan does not mention it"
    says = [
        f"Node {name} is unneeded, and stays for now: {why}." if name in plan.unneeded else f"Node {name} stays: {why}."
    ]
    if open_ is not None:
        data |= {"verdict": "leaving", "operation": _operation(open_)}
        step = f"at step {open_.status.step or 'look'}, {open_.status.state.value}"
        says = [f"Node {name} is being removed: operation {open_.spec.id} is {step}."]
    if stays is not None:
        more, found = _held(stays, plan.cluster)
        says += more if open_ is None else []
        data |= found
    return tuple(says), data


def _held(verdict: NodeVerdict, cluster: str) -> tuple[list[str], dict[str, Any]]:
    """Return what blocks the removal, until when, and the advice."""
    helps, until = remedy(verdict.reason, cluster), due(verdict.reason)
    data = {
        "reason": coded(verdict.reason),
        **({"holds": verdict.pod} if verdict.pod else {}),
        **({"until": format_time(until)} if until else {}),
        **({"remedy": helps} if helps else {}),
    }
    return [f"What helps: {helps}."] if helps else [], data


def _operation(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.spec.id,
        "kind": operation.spec.kind.value,
        "state": operation.status.state.value,
        "step": operation.status.step or "look",
        "attempt": operation.status.attempt,
        "plan": operation.spec.plan,
        "createdAt": format_time(operation.spec.created_at),
        **({"deadline": format_time(operation.spec.deadline)} if operation.spec.deadline else {}),
    }


def _is_ready(node: Node) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "True"


def _filled(context: ExplainContext, node: Node, group: NodeGroup | None) -> dict[str, Any]:
    """Return the node's requested share and the threshold that applies to it (docs/reference/scale-down.md
    "Utilization")."""
    from chalicelib.plan.scale_down.candidates import Usage
    from chalicelib.plan.state.cluster_state import build_cluster_state

    case, own, options = context.case, group.options if group else GroupOptions(), context.case.policy.options
    ignore = own.ignore_daemonsets_utilization
    usage = Usage(build_cluster_state(case.snapshot, case.policy, case.memory, case.now))
    used = usage.of(node, ignore_daemonsets=options.ignore_daemonsets_utilization if ignore is None else ignore)
    if used is None:
        return {}
    mine, default = (
        (own.scale_down_gpu_utilization_threshold, options.scale_down_gpu_utilization_threshold)
        if used.gpu
        else (own.scale_down_utilization_threshold, options.scale_down_utilization_threshold)
    )
    return {
        "utilization": {
            "resource": used.resource,
            "share": round(used.share, 4),
            "threshold": default if mine is None else mine,
        }
    }


def _facts(context: ExplainContext, node: Node, data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    known, now = context.decided.memory.nodes.get(node.name), context.case.now
    since = known.unneeded_since if known is not None else 0.0
    used, operation = data.get("utilization"), data.get("operation")
    facts = (
        ("node group", data["group"] or "none: it is not autoscaled"),
        ("ready", "yes" if data["ready"] else "no"),
        ("cordoned", "yes" if node.unschedulable else ""),
        ("allocatable", amounts(node.allocatable)),
        ("taints", ", ".join(data["taints"])),
        ("marked by", node.annotations.get(OPERATION_ANNOTATION, "")),
        ("in use", f"{used['resource']} {used['share']:.0%}, threshold {used['threshold']:.0%}" if used else ""),
        ("unneeded since", f"{format_time(since)}, for {format_duration(now - since)}" if since else ""),
        ("held by", data.get("holds", "")),
        ("until", data.get("until", "")),
        (
            "brake",
            brake_line(brake_data(context.decided.memory, now))
            if data.get("reason", {}).get("code") in _BRAKES
            else "",
        ),
        ("operation", f"{operation['id']}, since {operation['createdAt']}" if operation else ""),
        ("given up after", operation.get("deadline", "") if operation else ""),
    )
    return tuple((name, value) for name, value in facts if value)


def _pods(context: ExplainContext, pods: list[Pod], to: dict[str, str]) -> Table:
    """Return the node's pods and, if it is to be removed, their destinations."""
    snapshot = context.case.snapshot
    rows = tuple(
        (pod.key, amounts(snapshot.cls(pod).requests), _owner(context, pod), *([to.get(pod.key, "-")] if to else []))
        for pod in pods
    )
    return Table(
        ("pod", "requests", "owner", *(["would go to"] if to else [])),
        rows,
        title="Pods on it",
        empty="no pod runs on it",
    )


def _owner(context: ExplainContext, pod: Pod) -> str:
    owner = context.case.snapshot.cls(pod).owner
    return f"{owner.kind}/{owner.name}" if owner is not None else "none"


def _expected(pods: list[str]) -> Table:
    return Table(("how many", "which"), ((str(len(pods)), some(pods)),) if pods else (), title="Expected on it")
