"""`outscaler explain pod NAME`: explains where a pod runs or would run, or why no node fits, group by group."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.command.explain_view import ExplainContext, Explanation, amounts, coded, sentences, weakening
from chalicelib.command.name_lookup import namespaced
from chalicelib.command.placements import by_pod, competing, sureness
from chalicelib.command.tables import Table
from chalicelib.model.plan import Plan, Removal, UnschedulablePods
from chalicelib.model.pod import Pod, PodClass
from chalicelib.reasons.text import sentence, text


class PodPart(msgspec.Struct, frozen=True):
    """One part of an explanation."""

    says: str
    data: dict[str, Any]
    tables: tuple[Table, ...] = ()


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a pod. name: `namespace/name`, or a name that exists in only one namespace. Raises
    BadInput."""
    snapshot, plan = context.case.snapshot, context.plan
    known = {pod.key: pod for pod in snapshot.pods}
    if name not in known:
        unreadable = next((gap for gap in plan.gaps if gap.kind == "Pod" and gap.name == name), None)
        if unreadable is not None:
            return Explanation(
                "pod",
                name,
                (f"Pod {name} could not be read: {unreadable.detail}.",),
                {"verdict": "unreadable"},
                gaps=weakening(plan, removal=False, name=name),
            )
    pod = namespaced(name, known, "explain pod", "pod")
    cls = snapshot.cls(pod)
    parts = [
        part for part in (_runs(context, pod, cls), pending(context, pod.key, bound=bool(pod.node))) if part is not None
    ]
    if not parts:
        parts = [PodPart(f"Pod {pod.key} is not mentioned in the plan.", {"verdict": "unknown"})]
    data: dict[str, Any] = {}
    for part in reversed(parts):  # the part about a running pod comes first and takes precedence
        data.update(part.data)
    if len(parts) > 1:
        data["again"] = parts[1].data["verdict"]  # the pod's fate after its node is removed
    data = {"verdict": data.pop("verdict"), **data, "pod": _about(pod, cls)}
    return Explanation(
        "pod",
        pod.key,
        tuple(part.says for part in parts),
        data,
        _facts(context, pod, cls),
        tuple(table for part in parts for table in part.tables),
        weakening(plan, removal=bool(pod.node), name=pod.key),
    )


# -- a bound pod -------------------------------------------------------------------------------------------------------


def _runs(context: ExplainContext, pod: Pod, pod_class: PodClass) -> PodPart | None:
    """Say where the pod runs and what happens to its node."""
    if not pod.node:
        return None
    plan, node = context.plan, pod.node
    says = f"Pod {pod.key} runs on node {node}" + (" and is being deleted" if pod.deleted else "")
    data: dict[str, Any] = {"verdict": "runs", "node": node}
    removal = next((each for each in plan.removals if each.node == node), None)
    if removal is not None:
        goes, to = _goes(removal, pod, pod_class)
        return PodPart(
            f"{says}. The node would be removed now ({removal.kind}): {goes}.",
            {**data, "nodeVerdict": "removed", **({"destination": to} if to else {})},
        )
    stays = next((each for each in plan.unremovable if each.node == node), None)
    unneeded = node in plan.unneeded
    data["nodeVerdict"] = "unneeded" if unneeded else "stays"
    if stays is None:
        return PodPart(f"{says}.", data)
    data["nodeReason"] = coded(stays.reason) | ({"pod": stays.pod} if stays.pod else {})
    if unneeded:
        return PodPart(f"{says}. The node is unneeded and stays for now: {sentence(stays.reason)}.", data)
    why = "because of this pod: " if stays.pod == pod.key else ""
    return PodPart(f"{says}. The node stays: {why}{sentence(stays.reason)}.", data)


def _goes(removal: Removal, pod: Pod, pod_class: PodClass) -> tuple[str, str]:
    to = removal.destinations.get(pod.key, "")
    if pod.key in removal.evict:
        return (f"the pod is evicted, and there is room for it on {to}" if to else "the pod is evicted"), to
    return (
        "it goes with its node" if pod_class.is_daemonset or pod_class.mirror else "the pod is not evicted for it"
    ), ""


# -- a pending pod -----------------------------------------------------------------------------------------------------


def pending(context: ExplainContext, key: str, *, bound: bool) -> PodPart | None:
    """Return what the scale-up part of the plan says about the pod `namespace/name`, from the first of these sources
    that knows it. bound: whether it runs on a node."""
    plan = context.plan
    subject = f"Pod {key}" if not bound else "It will want another node, and"
    ignored = next((each for each in plan.ignored if key in each.pods), None)
    if ignored is not None:
        return PodPart(
            f"{subject} is not looked at: {sentence(ignored.reason)}.",
            {"verdict": "notLookedAt", "reason": coded(ignored.reason)},
        )
    left = next((each for each in plan.unschedulable if key in each.pods), None)
    if left is not None:
        return _nowhere(plan, left, subject)
    return _promised(context, key, subject)


def _promised(context: ExplainContext, key: str, subject: str) -> PodPart | None:
    plan = context.plan
    promise = by_pod(plan).get(key)
    grown = next((each for each in plan.scale_ups if key in each.pods), None)
    contest = competing(promise.one_place_among) if promise is not None else ""
    sure = sureness(promise) if promise is not None else {}
    if grown is not None:
        number = promise.number if promise is not None else 0
        which = f"new node {number}" if number else "a new node"
        growth = {"group": grown.group, "from": grown.from_size, "to": grown.to_size, "max": grown.max}
        return PodPart(
            f"{subject} is expected on {which} of group {grown.group}, which grows "
            f"{grown.from_size} -> {grown.to_size} (max {grown.max}).{contest}",
            {
                **sure,
                "verdict": "newNode",
                "group": grown.group,
                **({"number": number} if number else {}),
                "growth": growth,
            },
            (_could_have_been(plan, grown.group),),
        )
    if key in plan.fits_existing:
        node = promise.node if promise is not None else ""
        there = any(each.name == node for each in context.case.snapshot.nodes)
        which = f"node {node}" if node else "a node that exists or is on its way"
        coming = ", which is on its way" if node and not there else ""
        return PodPart(
            f"{subject} fits on {which}{coming}: nothing is grown for it.{contest}",
            {**sure, "verdict": "fitsExisting", **({"fitsOn": node, "upcoming": not there} if node else {})},
        )
    return None


def _could_have_been(plan: Plan, chosen: str) -> Table:
    """Return what other groups could have provided in this pass, for all pods together."""
    rows = tuple(
        (
            each.group,
            f"{each.option_nodes} nodes for {each.option_pods} pods, waste {each.waste or 0.0:.2f}"
            if each.option_nodes
            else sentence(each.skipped)
            if each.skipped is not None
            else "",
        )
        for each in plan.groups
        if each.group != chosen and (each.option_nodes or each.skipped is not None)
    )
    return Table(("group", "best option, or why not"), rows, title="Other groups")


def _nowhere(plan: Plan, unschedulable: UnschedulablePods, subject: str) -> PodPart:
    by_reason: dict[str, list[str]] = {}
    for group, reasons in unschedulable.reasons.items():
        by_reason.setdefault(sentences(reasons), []).append(group)
    alike = len(unschedulable.pods) - 1
    others = f", like {alike} other{'' if alike == 1 else 's'} of its class" if alike else ""
    skipped = {each.group: coded(each.skipped) for each in plan.groups if each.skipped is not None}
    why = "" if unschedulable.reasons else ": there are no node groups"
    return PodPart(
        f"{subject} gets no node{others}{why}.",
        {
            "verdict": "unschedulable",
            "alike": len(unschedulable.pods),
            "reasons": {
                group: [text(reason) for reason in reasons] for group, reasons in unschedulable.reasons.items()
            },
            "details": {
                group: [coded(reason) for reason in reasons] for group, reasons in unschedulable.reasons.items()
            },
            "skipped": skipped,
            "nodes": unschedulable.nodes,
            "against": {text(reason): count for reason, count in unschedulable.against},
        },
        (
            Table(
                ("group", "why not"),
                tuple((", ".join(groups), why) for why, groups in by_reason.items()),
                title="Node groups",
            ),
            Table(
                ("nodes", "why not"),
                tuple((f"{count} of {unschedulable.nodes}", text(reason)) for reason, count in unschedulable.against),
                title="Existing nodes after the other placements",
            ),
        ),
    )


# -- the pod itself ----------------------------------------------------------------------------------------------------


def _about(pod: Pod, pod_class: PodClass) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "requests": dict(sorted(pod_class.requests.items())),
        "owner": f"{pod_class.owner.kind}/{pod_class.owner.name}" if pod_class.owner is not None else None,
        "priority": pod_class.priority,
        "phase": pod.phase,
        "scheduler": pod_class.scheduler,
        "schedulerSays": pod.scheduled_message,
    }


def _facts(context: ExplainContext, pod: Pod, pod_class: PodClass) -> tuple[tuple[str, str], ...]:
    group = _group_of(context, pod.node)
    said = "" if pod.node else pod.scheduled_message
    facts = (
        ("requests", amounts(pod_class.requests)),
        ("owner", f"{pod_class.owner.kind}/{pod_class.owner.name}" if pod_class.owner is not None else "none"),
        ("priority", str(pod_class.priority or "")),
        ("node group", group),
        ("the scheduler says", said),
    )
    return tuple((name, value) for name, value in facts if value)


def _group_of(context: ExplainContext, node: str) -> str:
    from chalicelib.plan.what_if import owned_by

    found = next((each for each in context.case.snapshot.nodes if each.name == node), None)
    if found is None:
        return ""
    return next((group.id for group in context.case.snapshot.groups if owned_by(group, found)), "")
