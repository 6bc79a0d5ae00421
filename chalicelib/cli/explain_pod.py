"""`outscaler explain pod NAME`: explains where a pod runs or would run, or why no
node fits, group by group.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.cli.arguments import namespaced
from chalicelib.cli.explain_view import ExplainContext, Explanation, amounts, sentences, weakening
from chalicelib.cli.managed_machines import FittingMachines, live_machines
from chalicelib.cli.output import Table
from chalicelib.cli.plan_document import fields, sureness
from chalicelib.cli.plan_output import by_pod, competing
from chalicelib.model.plan import Plan, PodPlacement, Removal, UnschedulablePods
from chalicelib.model.pod import Pod, PodClass
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import sentence, text
from chalicelib.reasons.words import counted
from chalicelib.views.cluster_view import cause_data, coded


class PodPart(msgspec.Struct, frozen=True):
    """One part of an explanation."""

    says: str
    data: dict[str, Any]
    tables: tuple[Table, ...] = ()


def answer(context: ExplainContext, name: str) -> Explanation:
    """Explain the plan for a pod. name: `namespace/name`, or a name that exists in only one
    namespace. Raises BadInput."""
    snapshot = context.case.snapshot
    plan = context.plan
    pods_by_key = {pod.key: pod for pod in snapshot.pods}
    if name not in pods_by_key:
        gaps_of_pods = (gap for gap in plan.gaps if gap.kind == "Pod")
        unreadable = next((gap for gap in gaps_of_pods if gap.name == name), None)
        if unreadable is not None:
            says = f"Pod {name} was not read: {unreadable.detail}."
            gaps = weakening(plan, removal=False, name=name)
            return Explanation("pod", name, (says,), {"verdict": "unreadable"}, gaps=gaps)
    pod = namespaced(name, pods_by_key, "explain pod", "pod")
    cls = snapshot.cls(pod)
    running = _running(context, pod, cls)
    waiting = pending(context, pod.key, bound=bool(pod.node))
    parts = [part for part in (running, waiting) if part]
    if not parts:
        parts = [PodPart(f"Pod {pod.key} is not mentioned in the plan.", {"verdict": "unknown"})]
    data: dict[str, Any] = {}
    for part in reversed(parts):  # the part about a running pod comes first and takes precedence
        data.update(part.data)
    if len(parts) > 1:
        data["again"] = parts[1].data["verdict"]  # the pod's fate after its node is removed
    owner = f"{cls.owner.kind}/{cls.owner.name}" if cls.owner is not None else None
    about = {
        "namespace": pod.namespace,
        "name": pod.name,
        "requests": dict(sorted(cls.requests.items())),
        "owner": owner,
        "priority": cls.priority,
        "phase": pod.phase,
        "scheduler": cls.scheduler,
        "schedulerSays": pod.scheduled_message,
    }
    facts = (
        ("requests", amounts(cls.requests)),
        ("owner", owner or "none"),
        ("priority", str(cls.priority or "")),
        ("node group", _group_of(context, pod.node)),
        ("the scheduler says", "" if pod.node else pod.scheduled_message),
    )
    machines = FittingMachines()
    if waiting is not None and waiting.data["verdict"] != "notLookedAt":
        machines = live_machines(context, pod.cls)
    all_says = (*(part.says for part in parts), *machines.says)
    data = {"verdict": data.pop("verdict"), **data, "pod": about}
    if machines.data:
        data["managedPools"] = list(machines.data)
    tables = (*(table for part in parts for table in part.tables), machines.table)
    gaps = weakening(plan, removal=bool(pod.node), name=pod.key)
    return Explanation("pod", pod.key, all_says, data, facts, tables, gaps)


def _group_of(context: ExplainContext, node: str) -> str:
    from chalicelib.plan.what_if import members_of

    snapshot = context.case.snapshot
    host = next((candidate for candidate in snapshot.nodes if candidate.name == node), None)
    if host is None:
        return ""
    return next((group.id for group in snapshot.groups if members_of(group, [host])), "")


def _running(context: ExplainContext, pod: Pod, pod_class: PodClass) -> PodPart | None:
    """Say where the pod runs and what happens to its node; None for a pod without a node."""
    if not pod.node:
        return None
    plan = context.plan
    node = pod.node
    says = f"Pod {pod.key} runs on node {node}"
    if pod.deleted:
        says += " and is being deleted"
    data: dict[str, Any] = {"verdict": "runs", "node": node}
    removal = next((removal for removal in plan.removals if removal.node == node), None)
    if removal is not None:
        fate, destination = _fate_in_removal(removal, pod, pod_class)
        data["nodeVerdict"] = "removed"
        if destination:
            data["destination"] = destination
        return PodPart(f"{says}. The node would be removed now ({removal.kind}): {fate}.", data)
    stays = next((verdict for verdict in plan.unremovable if verdict.node == node), None)
    unneeded = node in plan.unneeded
    data["nodeVerdict"] = "unneeded" if unneeded else "stays"
    if stays is None:
        return PodPart(f"{says}.", data)
    reason = coded(stays.reason)
    if stays.pod:
        reason["pod"] = stays.pod
    data["nodeReason"] = reason
    why = sentence(stays.reason)
    if unneeded:
        return PodPart(f"{says}. The node is unneeded and stays for now: {why}.", data)
    cause = "because of this pod: " if stays.pod == pod.key else ""
    return PodPart(f"{says}. The node stays: {cause}{why}.", data)


def _fate_in_removal(removal: Removal, pod: Pod, pod_class: PodClass) -> tuple[str, str]:
    """Return what becomes of a pod whose node is removed, and the node to
    which it goes, "" for none."""
    destination = removal.destinations.get(pod.key, "")
    if pod.key in removal.evict:
        room = f", and there is room for it on {destination}" if destination else ""
        return f"the pod is evicted{room}", destination
    goes = pod_class.is_daemonset or pod_class.mirror
    return "it goes with its node" if goes else "the pod is not evicted for it", ""


def pending(context: ExplainContext, key: str, *, bound: bool) -> PodPart | None:
    """Return what the scale-up part of the plan says about the pod `namespace/name`, from the first
    of these sources that knows it. bound: whether it runs on a node."""
    plan = context.plan
    subject = f"Pod {key}" if not bound else "It will want another node, and"
    ignored = next((ignored for ignored in plan.ignored if key in ignored.pods), None)
    if ignored is not None:
        data = {"verdict": "notLookedAt", "reason": coded(ignored.reason)}
        return PodPart(f"{subject} is not looked at: {sentence(ignored.reason)}.", data)
    unschedulable = next((verdict for verdict in plan.unschedulable if key in verdict.pods), None)
    if unschedulable is not None:
        return _unschedulable(plan, unschedulable, subject)
    return _promised(context, key, subject)


def _promised(context: ExplainContext, key: str, subject: str) -> PodPart | None:
    plan = context.plan
    promise = by_pod(plan).get(key)
    scale_up = next((up for up in plan.scale_ups if key in up.pods), None)
    contest = competing(promise.one_place_among) if promise is not None else ""
    data = sureness(promise) if promise is not None else {}
    if scale_up is not None:
        number = promise.number if promise is not None else 0
        which = f"new node {number}" if number else "a new node"
        group = scale_up.group
        data["verdict"] = "newNode"
        data["group"] = group
        if number:
            data["number"] = number
        data["growth"] = fields(scale_up, "group from to max")
        growth = f"{scale_up.from_size} -> {scale_up.to_size} (max {scale_up.max})"
        does = f"grows {growth}"
        if scale_up.opens and scale_up.choice is not None:
            does = f"is opened with {scale_up.nodes} x {scale_up.choice.machine}"
        place = f"{which} of group {group}, which {does}"
        says = f"{subject} is expected on {place}.{contest}"
        return PodPart(says, data, (_other_groups(plan, group),))
    if key in plan.fits_existing:
        node = promise.node if promise is not None else ""
        data["verdict"] = "fitsExisting"
        place = "a node that exists or is on its way"
        if node:
            exists = any(candidate.name == node for candidate in context.case.snapshot.nodes)
            data["fitsOn"] = node
            data["upcoming"] = not exists
            place = f"node {node}" if exists else f"node {node}, which is on its way"
        says = f"{subject} fits on {place}: nothing is grown for it.{contest}{_waits(promise)}"
        return PodPart(says, data)
    return None


def _waits(placement: PodPlacement | None) -> str:
    """Return a sentence to append for a pod that waits for what its node does not have yet."""
    if placement is None or not placement.lacks:
        return ""
    missing = ", ".join(placement.lacks)
    return f" The node is not finished, so this is not certain; still missing: {missing}."


def _other_groups(plan: Plan, chosen: str) -> Table:
    """Return what other groups could have provided in this pass, for all pods together."""
    rows = []
    for verdict in plan.groups:
        if verdict.group == chosen:
            continue
        if verdict.option_nodes:
            waste = f"{verdict.waste or 0.0:.2f}"
            option = f"{verdict.option_nodes} nodes for {verdict.option_pods} pods, waste {waste}"
            rows.append((verdict.group, option))
        elif verdict.skipped is not None:
            rows.append((verdict.group, sentence(verdict.skipped)))
    return Table(("group", "best option, or why not"), tuple(rows), title="Other groups")


def _unschedulable(plan: Plan, unschedulable: UnschedulablePods, subject: str) -> PodPart:
    by_reason: dict[str, list[str]] = {}
    for group, reasons in unschedulable.reasons.items():
        by_reason.setdefault(sentences(reasons), []).append(group)
    alike = len(unschedulable.pods) - 1
    others = f", like {counted(alike, 'other')} of its class" if alike else ""
    why = no_place(unschedulable, gaps=plan.gaps)
    by_group = unschedulable.reasons.items()
    skipped: dict[str, dict[str, Any]] = {}
    for verdict in plan.groups:
        if verdict.skipped is not None:
            skipped[verdict.group] = coded(verdict.skipped)
    data = {
        "verdict": "unschedulable",
        "alike": len(unschedulable.pods),
        **cause_data(why),
        "reasons": {group: [text(reason) for reason in reasons] for group, reasons in by_group},
        "details": {group: [coded(reason) for reason in reasons] for group, reasons in by_group},
        "skipped": skipped,
        "nodes": unschedulable.nodes,
        "against": {text(reason): count for reason, count in unschedulable.against},
    }
    groups = tuple((", ".join(groups), reason) for reason, groups in by_reason.items())
    nodes = tuple(
        (f"{count} of {unschedulable.nodes}", text(reason))
        for reason, count in unschedulable.against
    )
    tables = (
        Table(("group", "why not"), groups, title="Node groups"),
        Table(("nodes", "why not"), nodes, title="Existing nodes after the other placements"),
    )
    return PodPart(f"{subject} has no place{others}: {why.line}.", data, tables)
