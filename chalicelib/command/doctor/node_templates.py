"""Checks of templates against real nodes. A template that promises too much makes the planner buy nodes in vain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.command.doctor.needed_rules import capi_namespaces
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.pod import PodClass
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.predicates import matches_node

SHARE, MEMORY = 0.02, 100 * 2**20
"""A template may exceed the smallest real node by this share, or by these bytes of memory and storage."""
ARCHITECTURE = "kubernetes.io/arch"
# The read of a machine's template that RBAC refuses, in the words of the provider clusterapi.
_FORBIDDEN = re.compile(
    r"GET /apis/(?P<group>[a-z0-9.-]+)/[^/\s]+/namespaces/(?P<space>[a-z0-9-]+)/(?P<plural>[a-z]+)/\S+ .*?forbidden",
    re.IGNORECASE,
)
_OF_ONE_NODE = frozenset({HOSTNAME_LABEL})
_UNITS = {"cpu": ("m", 1), "memory": (" MiB", 2**20), "ephemeral-storage": (" MiB", 2**20)}


def check_templates(context: DoctorContext) -> Sequence[Finding]:
    """DR15: templates that differ from their nodes. DR16: groups that can never grow from zero."""
    snapshot = context.seen
    nodes = {node.name: node for node in snapshot.nodes}
    selected = frozenset(key for cls in snapshot.classes for key in selected_labels(cls))
    found: list[Finding] = []
    for group in snapshot.groups:
        real = [nodes[each.node] for each in group.instances if each.node in nodes]
        if not real and group.template is None and group.max > 0 and not group.error:
            found.append(_none(group, context.policy))
        elif real and group.template is not None:
            found.extend(_resources(group, group.template, real))
            found.extend(_labels(selected, group, group.template, real))
    return found


def _none(group: NodeGroup, policy: Policy) -> Finding:
    fix = "describe its nodes by the provider's annotations or tags (docs/providers), or keep one node"
    if refused := _FORBIDDEN.search(group.template_error):
        wide = "" in capi_namespaces(policy)
        role = "ClusterRole outscaler-cluster-api"
        role = role if wide else f"Role outscaler-cluster-api in namespace {refused['space']}"
        rule = f'- {{apiGroups: ["{refused["group"]}"], resources: [{refused["plural"]}], verbs: [get]}}'
        fix = f"{fix}; or let it be read, with a rule of {role}:\n{rule}"
    why = f": {group.template_error[:200]}" if group.template_error else ""
    return Finding(
        id="DR16",
        severity=Severity.ERROR,
        subject="template",
        message=f"group {group.id} has no node and no template, so it can never grow from zero{why}",
        fix=fix,
        evidence={"group": group.id},
    )


def _resources(group: NodeGroup, template_node: Node, real: Sequence[Node]) -> Iterator[Finding]:
    too_much, less = [], []
    for resource, offered in template_node.allocatable.items():
        smallest = min(node.allocatable.get(resource, 0) for node in real)
        allowed = max(SHARE * smallest, MEMORY if resource in ("memory", "ephemeral-storage") else 0)
        if offered - smallest > allowed:
            unit, scale = _UNITS.get(resource, ("", 1))
            amounts = f"{offered // scale}{unit}, its real nodes {smallest // scale}{unit}"
            too_much.append(f"{resource} {amounts} ({(offered - smallest) // scale}{unit} too much)")
        elif smallest - offered > allowed and offered:
            less.append(resource)
    if too_much:
        yield Finding(
            id="DR15",
            severity=Severity.ERROR
            if any("cpu" in each or "memory" in each for each in too_much)
            else Severity.WARNING,
            subject="template",
            message=f"group {group.id}: the template offers {'; '.join(too_much)}",
            fix="set reservedCpu, reservedMemory or reservedEphemeralStorage of the provider, or capacity annotations",
            evidence={"group": group.id, "resources": too_much},
        )
    elif less:
        yield Finding(
            id="DR15",
            severity=Severity.INFO,
            subject="template",
            message=f"group {group.id}: the template offers less {', '.join(less)} than its real nodes have",
            fix="nothing to do; a smaller template only leaves some room unused",
            evidence={"group": group.id, "resources": less},
        )


def _labels(selected: frozenset[str], group: NodeGroup, template_node: Node, real: Sequence[Node]) -> Iterator[Finding]:
    """Labels that all real nodes have and the template lacks count only where a workload selects by them."""
    common = set.intersection(*(set(node.labels.items()) for node in real))
    lacking = {key for key, value in common if template_node.labels.get(key) != value} - _OF_ONE_NODE
    used = sorted(lacking & selected)
    if used:
        yield Finding(
            id="DR15",
            severity=Severity.WARNING,
            subject="template",
            message=f"group {group.id}: pods select by {', '.join(used[:5])}, which its template does not have",
            fix="add the labels to the group's template by the provider's annotations or tags",
            evidence={"group": group.id, "labels": used},
        )


def selected_labels(pod_class: PodClass) -> frozenset[str]:
    """Return the keys of node labels that a pod requires."""
    terms = pod_class.required_affinity or ()
    return frozenset(pod_class.node_selector) | {each.key for term in terms for each in term.expressions}


def check_architectures(context: DoctorContext) -> Sequence[Finding]:
    """DR17: DaemonSets that select another architecture than a group's. Images are not asked."""
    snapshot = context.seen
    found = []
    for group in snapshot.groups:
        own = group.template.labels.get(ARCHITECTURE, "") if group.template else ""
        if not own or group.template is None:
            continue
        missing = [
            f"{daemonset.namespace}/{daemonset.name}"
            for daemonset in snapshot.daemonsets
            if ARCHITECTURE in selected_labels(snapshot.classes[daemonset.cls])
            and not matches_node(snapshot.classes[daemonset.cls], group.template.name, group.template.labels)
            and _fits_other(snapshot, daemonset.cls, own)
        ]
        if missing:
            text = f"group {group.id} is {own}; DaemonSets {', '.join(missing[:5])} do not select {own}"
            found.append(
                Finding(
                    id="DR17",
                    severity=Severity.WARNING,
                    subject="template",
                    message=f"{text}: its new nodes may not get ready",
                    fix="extend the node affinity of these DaemonSets, if their images have the architecture",
                    evidence={"group": group.id, "daemonsets": missing},
                )
            )
    return found


def _fits_other(snapshot: Snapshot, cls: int, own: str) -> bool:
    """Whether the DaemonSet runs on nodes of another architecture."""
    return any(
        node.labels.get(ARCHITECTURE) != own and matches_node(snapshot.classes[cls], node.name, node.labels)
        for node in snapshot.nodes
    )
