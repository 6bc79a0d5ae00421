"""Checks of templates against real nodes. A template that promises too much makes the
planner buy nodes in vain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chalicelib.cli.doctor.finding import QUESTIONS, DoctorContext, Finding, Severity, finding
from chalicelib.cli.doctor.needed_rules import capi_namespaces
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.pod import PodClass
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.predicates import matches_node
from chalicelib.policy.settings.cluster_policy import Policy

SHARE, MEMORY = 0.02, 100 * 2**20
"""A template may exceed the smallest real node by this share, or by these
bytes of memory and storage."""
ARCHITECTURE = "kubernetes.io/arch"
# The read of a machine's template that RBAC refuses, in the words of the provider clusterapi.
_FORBIDDEN = re.compile(
    (
        r"GET /apis/(?P<group>[a-z0-9.-]+)/[^/\s]+/namespaces/(?P<space>[a-z0-9-]+)/(?P<plural>[a-"
        r"z]+)/\S+ .*?forbidden"
    ),
    re.IGNORECASE,
)
_OF_ONE_NODE = frozenset({HOSTNAME_LABEL})
_UNITS = {"cpu": ("m", 1), "memory": (" MiB", 2**20), "ephemeral-storage": (" MiB", 2**20)}
# of which too much in a template buys nodes in vain for nearly every pod
_DECISIVE = frozenset({"cpu", "memory"})


def check_templates(context: DoctorContext) -> Iterator[Finding]:
    """DR15: templates that differ from their nodes. DR16: groups that can never grow from zero."""
    snapshot = context.required_snapshot
    nodes = {node.name: node for node in snapshot.nodes}
    selected = frozenset(
        key for pod_class in snapshot.classes for key in selected_labels(pod_class)
    )
    for group in snapshot.groups:
        real_nodes = [
            nodes[instance.node] for instance in group.instances if instance.node in nodes
        ]
        if not real_nodes and group.template is None and group.max > 0 and not group.error:
            yield _without_template(group, context.policy)
        elif real_nodes and group.template is not None:
            yield from _compare_resources(group, group.template, real_nodes)
            yield from _compare_labels(selected, group, group.template, real_nodes)


def _without_template(group: NodeGroup, policy: Policy) -> Finding:
    fix = QUESTIONS["DR16"].fix
    if refused := _FORBIDDEN.search(group.template_error):
        role = f"Role outscaler-cluster-api in namespace {refused['space']}"
        if "" in capi_namespaces(policy):
            role = "ClusterRole outscaler-cluster-api"
        rule = (
            f'- {{apiGroups: ["{refused["group"]}"], resources: [{refused["plural"]}], verbs: '
            f"[get]}}"
        )
        fix = f"{fix}; or let it be read, with a rule of {role}:\n{rule}"
    reason = f": {group.template_error[:200]}" if group.template_error else ""
    text = f"group {group.id} has no node and no template, so it can never grow from zero{reason}"
    return finding("DR16", text, fix=fix, group=group.id)


def _compare_resources(
    group: NodeGroup, template_node: Node, real_nodes: Sequence[Node]
) -> Iterator[Finding]:
    too_much: dict[str, str] = {}
    less = []
    for resource, offered in template_node.allocatable.items():
        smallest = min(node.allocatable.get(resource, 0) for node in real_nodes)
        tolerance = max(
            SHARE * smallest, MEMORY if resource in ("memory", "ephemeral-storage") else 0
        )
        if offered - smallest > tolerance:
            unit, scale = _UNITS.get(resource, ("", 1))
            amounts = f"{offered // scale}{unit}, its real nodes {smallest // scale}{unit}"
            too_much[resource] = (
                f"{resource} {amounts} ({(offered - smallest) // scale}{unit} too much)"
            )
        elif smallest - offered > tolerance and offered:
            less.append(resource)
    if too_much:
        severity = Severity.WARNING if _DECISIVE.isdisjoint(too_much) else Severity.ERROR
        text = f"group {group.id}: the template offers {'; '.join(too_much.values())}"
        yield finding(
            "DR15", text, severity=severity, group=group.id, resources=list(too_much.values())
        )
    elif less:
        text = (
            f"group {group.id}: the template offers less {', '.join(less)} than its real nodes have"
        )
        fix = "nothing to do; a smaller template only leaves some room unused"
        yield finding("DR15", text, severity=Severity.INFO, fix=fix, group=group.id, resources=less)


def _compare_labels(
    selected: frozenset[str], group: NodeGroup, template_node: Node, real_nodes: Sequence[Node]
) -> Iterator[Finding]:
    """Labels that all real nodes have and the template lacks count only where a
    workload selects by them."""
    common = set.intersection(*(set(node.labels.items()) for node in real_nodes))
    lacking = {
        key for key, value in common if template_node.labels.get(key) != value
    } - _OF_ONE_NODE
    labels = sorted(lacking & selected)
    if labels:
        text = (
            f"group {group.id}: pods select by {', '.join(labels[:5])}, which its template does "
            "not have"
        )
        fix = "add the labels to the group's template by the provider's annotations or tags"
        yield finding("DR15", text, fix=fix, group=group.id, labels=labels)


def selected_labels(pod_class: PodClass) -> frozenset[str]:
    """Return the keys of node labels that a pod requires."""
    terms = pod_class.required_affinity or ()
    return frozenset(pod_class.node_selector) | {
        expression.key for term in terms for expression in term.expressions
    }


def check_architectures(context: DoctorContext) -> Iterator[Finding]:
    """DR17: DaemonSets that select another architecture than a group's. Images are not asked."""
    snapshot = context.required_snapshot
    for group in snapshot.groups:
        template = group.template
        architecture = template.labels.get(ARCHITECTURE, "") if template else ""
        if not architecture or template is None:
            continue
        missing = [
            f"{daemonset.namespace}/{daemonset.name}"
            for daemonset in snapshot.daemonsets
            if ARCHITECTURE in selected_labels(snapshot.classes[daemonset.cls])
            and not matches_node(snapshot.classes[daemonset.cls], template.name, template.labels)
            and _fits_other_architecture(snapshot, daemonset.cls, architecture)
        ]
        if missing:
            names = ", ".join(missing[:5])
            text = (
                f"group {group.id} is {architecture}; DaemonSets {names} do not select "
                f"{architecture}: its new nodes "
                "may not get ready"
            )
            yield finding("DR17", text, group=group.id, daemonsets=missing)


def _fits_other_architecture(snapshot: Snapshot, class_index: int, architecture: str) -> bool:
    """Whether the DaemonSet runs on nodes of another architecture."""
    pod_class = snapshot.classes[class_index]
    return any(
        node.labels.get(ARCHITECTURE) != architecture
        and matches_node(pod_class, node.name, node.labels)
        for node in snapshot.nodes
    )
