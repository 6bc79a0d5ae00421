"""Checks of a cluster as it is: what the planner does not simulate, nodes of no vendor, startup taints, and what the
first passes in mode active would remove."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.kube.errors import NotFound
from chalicelib.model.node import Node
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.readiness import announces_device

YOUNG = 300.0
"""Seconds after its creation for which a node may carry taints of its startup."""
_SCHEMES = {
    "alicloud": ("alicloud://", "cn-", "ap-", "eu-", "us-", "me-"),
    "cherryservers": ("cherryservers://",),
    "exoscale": ("exoscale://",),
    "huaweicloud": ("",),
    "clusterapi": ("",),
}
"""Beginnings of providerIDs; an empty one: any, since the infrastructure decides."""
_OWN_TAINTS = ("node.kubernetes.io/", "ToBeDeletedBy", "DeletionCandidateOf", "node.cloudprovider.kubernetes.io/")


def check_simulation(context: DoctorContext) -> Sequence[Finding]:
    """DR23: pending pods that are not simulated."""
    snapshot = context.seen
    bypassed = set(context.policy.options.bypassed_scheduler_names)
    counts: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.node:
            continue
        cls = snapshot.cls(pod)
        if cls.resource_claims:
            counts["resource claims"] = counts.get("resource claims", 0) + 1
        elif cls.scheduler not in {"default-scheduler", *bypassed}:
            name = f"scheduler {cls.scheduler[:60]}"
            counts[name] = counts.get(name, 0) + 1
    if not counts:
        return ()
    words = ", ".join(f"{number} with {what}" for what, number in sorted(counts.items())[:10])
    return (
        Finding(
            id="DR23",
            severity=Severity.WARNING,
            subject="pods",
            message=f"{sum(counts.values())} pending pods are not simulated: {words}",
            fix="docs/limits.md names what is simulated; bypassedSchedulerNames treats a scheduler as the default one",
            evidence={"pods": counts},
        ),
    )


def check_provider_ids(context: DoctorContext) -> Sequence[Finding]:
    """DR24: nodes without a providerID of a provider in the policy."""
    beginnings = tuple(each for name in context.policy.providers for each in _SCHEMES.get(name, ("",)))
    nodes = context.seen.nodes
    missing = [node.name for node in nodes if not node.provider_id]
    other = [node.name for node in nodes if node.provider_id and not node.provider_id.startswith(beginnings)]
    found = []
    for names, words in ((missing, "no providerID"), (other, "a providerID of no provider in the policy")):
        if names and beginnings:
            found.append(
                Finding(
                    id="DR24",
                    severity=Severity.WARNING,
                    subject="nodes",
                    message=f"{len(names)} nodes have {words}: {_some(names)}",
                    fix="run the vendor's cloud controller, or start the kubelet with --provider-id",
                    evidence={"nodes": names[:200]},
                )
            )
    return found


def check_startup_taints(context: DoctorContext) -> Sequence[Finding]:
    """DR25: taints that only young nodes carry, and that the policy does not know as startup taints."""
    now, nodes = context.clock(), context.seen.nodes
    young = [node for node in nodes if _is_young(node, now)]
    old = [node for node in nodes if not _is_young(node, now)]
    known = (*context.policy.options.startup_taint, *context.policy.options.startup_taint_prefix, *_OWN_TAINTS)
    carried = {taint.key for node in old for taint in node.taints}
    fresh = sorted({taint.key for node in young for taint in node.taints} - carried)
    fresh = [key for key in fresh if not key.startswith(tuple(known))]
    if not old or not fresh:
        return ()
    return (
        Finding(
            id="DR25",
            severity=Severity.WARNING,
            subject="nodes",
            message=f"new nodes carry the taints {', '.join(fresh[:5])}, which older nodes do not have",
            fix=f"options.startupTaint: [{', '.join(fresh[:5])}]",
            evidence={"taints": fresh},
        ),
    )


def check_apis(context: DoctorContext) -> Sequence[Finding]:
    """DR26: API versions that the cluster does not serve."""
    found = []
    for path, severity, words in (
        ("/apis/policy/v1", Severity.ERROR, "policy v1: disruption budgets and evictions are missing"),
        ("/apis/storage.k8s.io/v1/csistoragecapacities?limit=1", Severity.WARNING, "csistoragecapacities v1"),
    ):
        try:
            base, _, query = path.partition("?")
            context.cluster.get(base, query=dict([query.split("=")]) if query else None)
        except NotFound:
            fix = "docs/versions.md has the supported versions of Kubernetes"
            text = f"the cluster does not serve {words}"
            found.append(Finding(id="DR26", severity=severity, subject="versions", message=text, fix=fix))
    return found


def check_expander(context: DoctorContext) -> Sequence[Finding]:
    """DR31: groups with accelerators that ordinary pods may use."""
    if context.policy.options.expander[:1] in (("price",), ("least-cost",), ("priority",)):
        return ()
    open_ = [
        group.id
        for group in context.seen.groups
        if group.template is not None and announces_device(group.template) and not group.template.taints
    ]
    if not open_ or len(context.seen.groups) == len(open_):
        return ()
    chain = ", ".join(context.policy.options.expander)
    return (
        Finding(
            id="DR31",
            severity=Severity.WARNING,
            subject="expander",
            message=f"groups {_some(open_)} have GPUs and no taint: {chain} may choose them for ordinary pods",
            fix="taint the groups, or set expander: priority or spec.prices with expander: price",
            evidence={"groups": open_},
        ),
    )


def check_removals(context: DoctorContext) -> Sequence[Finding]:
    """DR32: what would be removed first in mode active."""
    plan = context.plan
    if plan is None:
        return ()
    nodes = [each.node for each in plan.removals]
    waiting = [
        each.node
        for each in plan.unremovable
        if each.reason.code in (ReasonCode.PARALLELISM, ReasonCode.DISRUPTION_LIMIT, ReasonCode.DISRUPTION_BRAKE)
    ]
    if not nodes and not waiting:
        return ()
    later = f", then {len(waiting)} more within the limits" if waiting else ""
    return (
        Finding(
            id="DR32",
            severity=Severity.INFO,
            subject="removals",
            message=f"first removals in mode active: {len(nodes)} nodes ({_some(nodes)}){later}",
            fix="set maxDisruption or maintenanceWindows, if these are too many or at the wrong time",
            evidence={"nodes": nodes, "later": waiting},
        ),
    )


def _is_young(node: Node, now: float) -> bool:
    return bool(node.created) and now - node.created < YOUNG


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
