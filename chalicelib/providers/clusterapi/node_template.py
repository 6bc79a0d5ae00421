"""The node that a group would add, before it ever had one (clusterapi.md §5).

Made of what people wrote on the resource, of what Cluster API will hand down to the Node, and, where that says too
little, of what the infrastructure provider tells. The planner prefers a real node of the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.policy.go_patterns import pattern
from chalicelib.providers.clusterapi.annotations import CAPACITY, is_label_value, is_qualified_name
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.capacity import merged, read_capacity, suffices
from chalicelib.providers.clusterapi.infrastructure import Infra, no_infrastructure
from chalicelib.providers.clusterapi.infrastructure_status import Infrastructure
from chalicelib.providers.clusterapi.models import CapiResource
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.clusterapi.template_devices import read_devices, read_volumes

_ARCH, _OS, _ZONE = "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone"
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
    _ZONE,
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
)
_MOST_LABELS, _LONGEST_KEY = 1_000, 317  # of a template; characters of a qualified name
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class CapiTemplate(msgspec.Struct, frozen=True):
    """node None: the group cannot be grown from what is written, and problem says why. volumes: CSI driver -> most
    volumes a new node attaches, 0: as many as one likes; devices: DRA driver -> devices a new node publishes."""

    node: Node | None
    problem: str = ""
    warnings: tuple[str, ...] = ()
    volumes: dict[str, int] = {}
    devices: dict[str, int] = {}


def make_template(
    name: str,
    kind: str,
    resource: CapiResource,
    settings: CapiSettings,
    real: Node | None,
    infra: Infra = no_infrastructure,
) -> CapiTemplate:
    """The template of a group. name: the group's id; kind: the resource's. real: a Node of the group, if it has one,
    whose labels are surest.

    The infrastructure object is asked only where the annotations do not give cpu and memory, and no Node that is ready
    shows what the next will be like (D9).
    """
    annotated = read_capacity(resource.annotations)
    asks = not suffices(annotated) and not _is_ready(real)
    told = infra(kind, resource) if asks else Infrastructure()
    capacity = merged(annotated, told.capacity, told.problem)
    volumes, odd_volumes = read_volumes(resource.annotations)
    devices, odd_devices = read_devices(resource.annotations, annotated.devices)
    taints, odd_taints = template_taints(resource)
    warnings = capacity.warnings + told.warnings + odd_volumes + odd_devices + odd_taints
    if capacity.problem:
        return CapiTemplate(None, capacity.problem, warnings, volumes, devices)
    node_name = f"template-node-for-{name}"
    node = Node(
        name=node_name,
        labels=template_labels(node_name, kind, resource, settings, real, told),
        capacity=capacity.amounts,
        allocatable={
            resource_name: max(0, amount - settings.reserve.get(resource_name, 0))
            for resource_name, amount in capacity.amounts.items()
        },
        taints=taints,
    )
    return CapiTemplate(node, "", warnings, volumes, devices)


def _is_ready(node: Node | None) -> bool:
    condition = node.condition("Ready") if node is not None else None
    return condition is not None and condition.status == "True"


def template_labels(
    name: str, kind: str, resource: CapiResource, settings: CapiSettings, real: Node | None, told: Infrastructure
) -> dict[str, str]:
    """Labels, later wins: defaults and the zone of a single failure domain, what the infrastructure tells, those CAPI
    hands down, the `labels` annotation, those of a real node."""
    labels = {_ARCH: settings.architecture, _OS: "linux", HOSTNAME_LABEL: name}
    if settings.zone_label and (zone := failure_domain(kind, resource)):
        labels[_ZONE] = zone
    labels.update({key: value for key, value in ((_ARCH, told.architecture), (_OS, told.system)) if value})
    labels.update(_handed_down(resource, settings.managed_labels))
    for pair in resource.annotations.get(CAPACITY + "labels", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key:
            labels[key] = value
    if real is not None:
        labels.update({key: real.labels[key] for key in _COPIED if real.labels.get(key)})
    return labels


def failure_domain(kind: str, resource: CapiResource) -> str:
    """The failure domain that all new Machines of a resource will be in, empty where there are several or none (D20).

    A failure domain's name is the zone's with every infrastructure provider of a cloud that has zones; where it is
    not, the setting that asks for this is to be turned off."""
    template = resource.spec.template
    if kind == POOL:
        domains = resource.spec.failure_domains or []
        only = domains[0] if len(domains) == 1 else ""
    else:
        only = (template.spec.failure_domain if template and template.spec else "") or ""
    return only if is_label_value(only) else ""


def _handed_down(resource: CapiResource, patterns: tuple[str, ...]) -> dict[str, str]:
    template = resource.spec.template
    labels: Mapping[str, str] = (template.metadata.labels or {}) if template and template.metadata else {}
    if len(labels) > _MOST_LABELS:
        raise BadInput("spec.template.metadata.labels", f"has {len(labels)} labels", f"keep it under {_MOST_LABELS}")
    return {key: value for key, value in labels.items() if _is_managed(key) or _matches_any(patterns, key)}


def _is_managed(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (
        domain == _MANAGED_EXACT or any(domain == each or domain.endswith(f".{each}") for each in _MANAGED)
    )


def _matches_any(patterns: tuple[str, ...], key: str) -> bool:
    return len(key) <= _LONGEST_KEY and any(pattern(each).found_in(key) for each in patterns)


def template_taints(resource: CapiResource) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
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
