"""The node that a group would add, before it ever had one (clusterapi.md §5).

Made of what people wrote on the resource and of what Cluster API will hand down to the Node, nothing else: objects of
the infrastructure provider are not read in this version (D9). The planner prefers a real node of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.providers.clusterapi.capacity import read_capacity
from chalicelib.providers.clusterapi.keys import CAPACITY, is_label_value, is_qualified_name
from chalicelib.providers.clusterapi.settings import Settings
from chalicelib.providers.clusterapi.wire import Resource

_ARCH, _OS = "kubernetes.io/arch", "kubernetes.io/os"
# CAPI copies labels of these domains from the template to the Node, also of their subdomains where marked so.
_MANAGED_EXACT = "node-role.kubernetes.io"
_MANAGED = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
# What a real node of the group knows better than any annotation.
_COPIED = (
    _ARCH,
    _OS,
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
)
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class Template(msgspec.Struct, frozen=True):
    """node None: the group cannot be grown from its annotations, and problem says why."""

    node: Node | None
    problem: str = ""
    warnings: tuple[str, ...] = ()


def make_template(group: str, resource: Resource, settings: Settings, real: Node | None) -> Template:
    """The template of a group. real: a Node of the group, if it has one, whose labels are surest."""
    capacity = read_capacity(resource.annotations)
    if capacity.problem:
        return Template(None, capacity.problem, capacity.warnings)
    taints, warnings = template_taints(resource)
    name = f"template-node-for-{group}"
    node = Node(
        name=name,
        labels=template_labels(name, resource, settings, real),
        capacity=capacity.amounts,
        allocatable={
            resource_name: max(0, amount - settings.reserve.get(resource_name, 0))
            for resource_name, amount in capacity.amounts.items()
        },
        taints=taints,
    )
    return Template(node, "", capacity.warnings + warnings)


def template_labels(name: str, resource: Resource, settings: Settings, real: Node | None) -> dict[str, str]:
    """Labels, later wins: defaults, those CAPI hands down, the `labels` annotation, those of a real node."""
    labels = {_ARCH: settings.architecture, _OS: "linux", HOSTNAME_LABEL: name}
    labels.update(_handed_down(resource, settings.managed_labels))
    for pair in resource.annotations.get(CAPACITY + "labels", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key:
            labels[key] = value
    if real is not None:
        labels.update({key: real.labels[key] for key in _COPIED if real.labels.get(key)})
    return labels


def _handed_down(resource: Resource, patterns: tuple[str, ...]) -> dict[str, str]:
    template = resource.spec.template
    labels: Mapping[str, str] = (template.metadata.labels or {}) if template and template.metadata else {}
    return {key: value for key, value in labels.items() if _is_managed(key) or _matches_any(patterns, key)}


def _is_managed(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (
        domain == _MANAGED_EXACT or any(domain == each or domain.endswith(f".{each}") for each in _MANAGED)
    )


def _matches_any(patterns: tuple[str, ...], key: str) -> bool:
    return any(re.search(pattern, key) for pattern in patterns)


def template_taints(resource: Resource) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    """Taints of the template's spec, then of the `taints` annotation, which replace those of the same key and effect.

    A taint only set while a node starts is not on the node that pods will meet, so it is left out (D22). With the
    taints come warnings about entries of the annotation that are none.
    """
    taints: dict[tuple[str, str], Taint] = {}
    warnings = []
    template = resource.spec.template
    for given in (template.spec.taints or ()) if template and template.spec else ():
        if given.propagation != "OnInitialization" and given.effect in _EFFECTS:
            taints[given.key, given.effect] = Taint(given.key, given.effect, given.value or "")
    for text in _entries(resource.annotations.get(CAPACITY + "taints", "")):
        taint = parse_taint(text)
        if taint is None:
            warnings.append(f"annotation {CAPACITY}taints: {text!r} is not a taint; write key=value:NoSchedule")
        else:
            taints[taint.key, taint.effect] = taint
    return tuple(taints.values()), tuple(warnings)


def _entries(text: str) -> Iterator[str]:
    return (entry for entry in text.split(",") if entry)


def parse_taint(text: str) -> Taint | None:
    """`key=value:Effect`, `key=:Effect` or `key:Effect`; None for anything else, also for an unknown effect (D22)."""
    body, _, effect = text.partition(":")
    key, _, value = body.partition("=")
    if ":" in effect or "=" in value or effect not in _EFFECTS:
        return None
    return Taint(key, effect, value) if is_qualified_name(key) and is_label_value(value) else None
