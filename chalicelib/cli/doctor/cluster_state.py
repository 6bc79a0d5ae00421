"""Checks of a cluster as it is: what the planner does not simulate, nodes of no vendor, startup
taints, spot nodes, and what the first passes in mode active would remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.cli.migrate.machines_on_their_way import on_their_way, sentence
from chalicelib.cluster.errors import NotFound
from chalicelib.model.memory import GroupMemory
from chalicelib.model.node import OWN_TAINTS, Node
from chalicelib.model.pod import PodClass
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.readiness import announces_device
from chalicelib.plan.state.spot_groups import is_spot
from chalicelib.plan.state.zones import ZONE_KEYS, zone_label, zones_of_group
from chalicelib.reasons.words import some
from chalicelib.runtime.mode_guard import permitted

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
_KNOWN_TAINTS = (
    *OWN_TAINTS,
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
)


def check_simulation(context: DoctorContext) -> Iterator[Finding]:
    """DR23: pending pods that are not simulated."""
    snapshot = context.required_snapshot
    simulated = {"default-scheduler", *context.policy.options.bypassed_scheduler_names}
    counts: Counter[str] = Counter()
    for pod in snapshot.pods:
        if pod.node:
            continue
        pod_class = snapshot.cls(pod)
        if pod_class.resource_claims:
            counts["resource claims"] += 1
        elif pod_class.scheduler not in simulated:
            counts[f"scheduler {pod_class.scheduler[:60]}"] += 1
    if not counts:
        return
    words = ", ".join(f"{number} with {what}" for what, number in sorted(counts.items())[:10])
    text = f"{counts.total()} pending pods are not simulated: {words}"
    yield finding("DR23", text, pods=dict(counts))


def check_provider_ids(context: DoctorContext) -> Iterator[Finding]:
    """DR24: nodes without a providerID of a provider in the policy."""
    beginnings = tuple(
        scheme for name in context.policy.providers for scheme in _SCHEMES.get(name, ("",))
    )
    nodes = context.required_snapshot.nodes
    missing = [node.name for node in nodes if not node.provider_id]
    foreign = [
        node.name
        for node in nodes
        if node.provider_id and not node.provider_id.startswith(beginnings)
    ]
    for names, what in (
        (missing, "no providerID"),
        (foreign, "a providerID of no provider in the policy"),
    ):
        if names and beginnings:
            yield finding(
                "DR24", f"{len(names)} nodes have {what}: {some(names)}", nodes=names[:200]
            )


def check_startup_taints(context: DoctorContext) -> Iterator[Finding]:
    """DR25: taints that only young nodes carry, and that the policy does
    not know as startup taints."""
    now, nodes, options = context.clock(), context.required_snapshot.nodes, context.policy.options
    known = (*options.startup_taint, *options.startup_taint_prefix, *_KNOWN_TAINTS)
    old = [node for node in nodes if not _is_young(node, now)]
    old_taints = {taint.key for node in old for taint in node.taints}
    young_taints = {taint.key for node in nodes if _is_young(node, now) for taint in node.taints}
    taints = [key for key in sorted(young_taints - old_taints) if not key.startswith(known)]
    if old and taints:
        names = ", ".join(taints[:5])
        text = f"new nodes carry the taints {names}, which older nodes do not have"
        yield finding("DR25", text, fix=f"options.startupTaint: [{names}]", taints=taints)


def _is_young(node: Node, now: float) -> bool:
    return bool(node.created) and now - node.created < YOUNG


def check_apis(context: DoctorContext) -> Iterator[Finding]:
    """DR26: API versions that the cluster does not serve."""
    for path, query, severity, words in (
        (
            "/apis/policy/v1",
            None,
            Severity.ERROR,
            "policy v1: disruption budgets and evictions are missing",
        ),
        (
            "/apis/storage.k8s.io/v1/csistoragecapacities",
            {"limit": "1"},
            Severity.WARNING,
            "csistoragecapacities v1",
        ),
    ):
        try:
            context.cluster.get(path, query=query)
        except NotFound:
            yield finding("DR26", f"the cluster does not serve {words}", severity=severity)


def check_expander(context: DoctorContext) -> Iterator[Finding]:
    """DR31: groups with accelerators that ordinary pods may use."""
    expanders, groups = context.policy.options.expander, context.required_snapshot.groups
    untainted = [
        group.id
        for group in groups
        if group.template is not None
        and announces_device(group.template)
        and not group.template.taints
    ]
    if expanders[:1] in (("price",), ("least-cost",), ("priority",)) or len(untainted) in (
        0,
        len(groups),
    ):
        return
    chain = ", ".join(expanders)
    text = (
        f"groups {some(untainted)} have GPUs and no taint: {chain} may choose them for "
        "ordinary pods"
    )
    yield finding("DR31", text, groups=untainted)


def check_spot(context: DoctorContext) -> Iterator[Finding]:
    """DR33: spot groups and nodes, while the policy does not say that
    interruptions are acted on."""
    if context.policy.spot is not None:
        return
    snapshot = context.required_snapshot
    groups = [group.id for group in snapshot.groups if group.spot]
    nodes = [node.name for node in snapshot.nodes if is_spot(node, None)]
    if groups or nodes:
        what = f"groups {some(groups)} are" if groups else f"nodes {some(nodes)} are"
        text = f"{what} spot, and the policy has no spec.spot: interruptions are only reported"
        yield finding("DR33", text, groups=groups, nodes=nodes[:200])


def check_zones(context: DoctorContext) -> Iterator[Finding]:
    """DR34: groups whose new nodes may be in one of several zones, while pods or
    volumes need a certain one."""
    snapshot = context.required_snapshot
    if not _uses_zones(snapshot):
        return
    by_name = {node.name: node for node in snapshot.nodes}
    by_id = {node.provider_id: node for node in snapshot.nodes if node.provider_id}
    elsewhere = {zone_label(node) for node in snapshot.nodes}
    for group in snapshot.groups:
        machines = (
            by_name.get(instance.node) or by_id.get(instance.id) for instance in group.instances
        )
        nodes = [node for node in machines if node is not None]
        zones = zones_of_group(group, nodes, None, GroupMemory(), elsewhere, context.clock())
        if zones:
            named = ", ".join(zone or "others" for zone in zones)
            text = (
                f"new nodes of group {group.id} may be in any of several zones ({named}): pods "
                "that need one of them"
                " are promised nothing, and get one attempt at a time"
            )
            yield finding("DR34", text, group=group.id, zones=list(zones))


def _uses_zones(snapshot: Snapshot) -> bool:
    """Return whether a pod or a volume depends on the zone of its node."""
    volumes = snapshot.storage.volumes
    if any(volume.node_terms or volume.labels.keys() & ZONE_KEYS for volume in volumes):
        return True
    return any(not ZONE_KEYS.isdisjoint(_place_keys(pod)) for pod in snapshot.classes)


def _place_keys(pod: PodClass) -> set[str]:
    """Return the labels of nodes by which the place of a pod is limited."""
    terms = pod.required_affinity or ()
    keys = {
        *pod.node_selector,
        *(requirement.key for term in terms for requirement in term.expressions),
    }
    keys |= {spread.topology_key for spread in pod.spread}
    return keys | {term.topology_key for term in (*pod.pod_affinity, *pod.pod_anti_affinity)}


def check_machines(context: DoctorContext) -> Iterator[Finding]:
    """DR35: machines that are no nodes yet. Where passes act they are mostly their own."""
    lacking = on_their_way(context.required_snapshot)
    if lacking:
        text = f"{sentence(lacking)}: a change of the autoscaler may buy them a second time"
        severity = Severity.INFO if permitted(context.policy).act else Severity.WARNING
        yield finding("DR35", text, severity=severity, groups=lacking)


def check_removals(context: DoctorContext) -> Iterator[Finding]:
    """DR32: what would be removed first in mode active."""
    if context.plan is None:
        return
    nodes = [removal.node for removal in context.plan.removals]
    later = [verdict.node for verdict in context.plan.unremovable if verdict.reason.code.row.later]
    if nodes or later:
        more = f", then {len(later)} more within the limits" if later else ""
        text = f"first removals in mode active: {len(nodes)} nodes ({some(nodes)}){more}"
        yield finding("DR32", text, nodes=nodes, later=later)
