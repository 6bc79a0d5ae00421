"""Checks of pods that hold their nodes for ever, counted by drain rule, from the planner's own verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.model.memory import Memory
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster

MANY = 0.25
"""Share of the nodes of node groups from which held nodes are a warning."""
UNNEEDED = 86400.0
_FIXES = {
    ReasonCode.CONTROLLER_NOT_FOUND: "delete the pods, or recreate their controllers",
    ReasonCode.MIN_REPLICAS: "add a replica, or set options.minReplicaCount to 0",
    ReasonCode.NOT_REPLICATED: "run the pods by a controller, or annotate them safe-to-evict: true",
    ReasonCode.LOCAL_STORAGE: "annotate safe-to-evict-local-volumes, or set options.skipNodesWithLocalStorage: false",
    ReasonCode.NOT_SAFE_TO_EVICT: "take off the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: false",
    ReasonCode.KUBE_SYSTEM: "give the pods of kube-system disruption budgets",
    ReasonCode.NOT_ENOUGH_PDB: "loosen the disruption budgets",
}


def check_drains(context: DoctorContext) -> Sequence[Finding]:
    """DR21: nodes that no drain can empty, by rule. DR22: nodes held by kube-system pods without a budget."""
    grouped = {instance.node for group in context.seen.groups for instance in group.instances if instance.node}
    held = [verdict for verdict in _verdicts(context) if verdict.node in grouped]
    if not held:
        return ()
    by_rule: dict[str, list[NodeVerdict]] = {}
    for verdict in held:
        by_rule.setdefault(str(verdict.reason.params.get("rule", "")), []).append(verdict)
    found = [_held(held, by_rule, len(grouped))]
    system = by_rule.get(ReasonCode.KUBE_SYSTEM, [])
    if system:
        found.append(_system(system))
    return found


def _verdicts(context: DoctorContext) -> Sequence[NodeVerdict]:
    """Return the nodes that a pod blocks. Utilization does not count, since it may fall at any time."""
    options = msgspec.structs.replace(
        context.policy.options,
        scale_down_enabled=True,
        scale_down_utilization_threshold=1.0,
        scale_down_gpu_utilization_threshold=1.0,
        ignore_daemonsets_utilization=True,
    )
    policy = msgspec.structs.replace(context.policy, options=options)
    plan, _ = plan_cluster(context.seen, policy, Memory(), context.clock(), 0, assume_unneeded_for=UNNEEDED)
    return [each for each in plan.unremovable if each.reason.code is ReasonCode.BLOCKED_BY_POD]


def _held(held: Sequence[NodeVerdict], by_rule: Mapping[str, Sequence[NodeVerdict]], nodes: int) -> Finding:
    counts = sorted(by_rule.items(), key=lambda each: (-len(each[1]), each[0]))
    words = "; ".join(f"{rule} {len(some)} ({_pods(some)})" for rule, some in counts)
    rules = [rule for rule, _ in counts]
    fixes = [f"{rule}: {_FIXES[ReasonCode(rule)]}" for rule in rules if rule in _FIXES]
    return Finding(
        id="DR21",
        severity=Severity.WARNING if len(held) > MANY * nodes else Severity.INFO,
        subject="drain",
        message=f"{len(held)} of {nodes} nodes cannot be drained at present: {words}",
        fix="\n".join(fixes) or "outscaler explain node NAME --kubeconfig FILE --policy FILE says what helps",
        evidence={"nodes": nodes, "held": {rule: [each.node for each in some] for rule, some in counts}},
    )


def _system(held: Sequence[NodeVerdict]) -> Finding:
    pods = dict.fromkeys(each.pod for each in held)
    budgets = "\n".join(
        f"# {pod}: kubectl -n kube-system create poddisruptionbudget NAME --selector=k8s-app=NAME --max-unavailable=1"
        for pod in list(pods)[:3]
    )
    return Finding(
        id="DR22",
        severity=Severity.WARNING,
        subject="drain",
        message=f"pods of kube-system without a budget hold {len(held)} nodes: {', '.join(list(pods)[:3])}",
        fix=f"give each workload a budget:\n{budgets}",
        evidence={"pods": list(pods)[:100], "nodes": [each.node for each in held][:100]},
    )


def _pods(held: Sequence[NodeVerdict]) -> str:
    names = [each.pod for each in held]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
