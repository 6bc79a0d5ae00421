"""Builds the template of the node that a group would add, before it has any node.

Its sources are the resource's annotations, the labels and taints that Cluster API copies to the Node and, if these are
insufficient, the infrastructure object. The planner prefers a real node of the group (docs/providers/clusterapi.md
"Scale-up from zero").
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
# Domains whose labels CAPI copies from the template to the Node, also of subdomains for those in _MANAGED.
_MANAGED_EXACT = "node-role.kubernetes.io"
_MANAGED = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
# Labels for which a real node of the group takes precedence over annotations.
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
_MOST_LABELS, _LONGEST_KEY = 1_000, 317  # maximum labels of a template; maximum characters of a qualified name
_SHOWN = 80  # characters of an invalid entry that a warning repeats
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class CapiTemplate(msgspec.Struct, frozen=True):
    """node None: the group cannot be scaled up without a node, and problem is the reason. volumes: CSI driver ->
    maximum volumes of a new node, 0 for unlimited; devices: DRA driver -> devices that a new node publishes."""

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
    real_node: Node | None,
    infra: Infra = no_infrastructure,
) -> CapiTemplate:
    """Return the template of a group.

    name: the group's id; kind: the resource's. real_node: a Node of the group, if it has one, whose labels are the most
    reliable. The infrastructure object is read only if the annotations lack cpu or memory, and no ready Node shows what
    the next one will be like.
    """
    annotated = read_capacity(resource.annotations)
    asks = not suffices(annotated) and not _is_ready(real_node)
    reported = infra(kind, resource) if asks else Infrastructure()
    capacity = merged(annotated, reported.capacity, reported.problem)
    volumes, odd_volumes = read_volumes(resource.annotations)
    devices, odd_devices = read_devices(resource.annotations, annotated.devices)
    taints, odd_taints = template_taints(resource)
    odd_labels = _annotated_labels(resource)[1]
    warnings = capacity.warnings + reported.warnings + odd_volumes + odd_devices + odd_labels + odd_taints
    if capacity.problem:
        return CapiTemplate(None, capacity.problem, warnings, volumes, devices)
    node_name = f"template-node-for-{name}"
    node = Node(
        name=node_name,
        labels=template_labels(node_name, kind, resource, settings, real_node, reported),
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
    name: str,
    kind: str,
    resource: CapiResource,
    settings: CapiSettings,
    real_node: Node | None,
    infrastructure: Infrastructure,
) -> dict[str, str]:
    """Return the labels; later sources take precedence.

    The sources are defaults and the zone of a single failure domain, the infrastructure object, the labels that CAPI
    copies, the `labels` annotation, and a real node."""
    labels = {_ARCH: settings.scale_zero_default_arch, _OS: "linux", HOSTNAME_LABEL: name}
    if settings.zone_from_failure_domain and (zone := failure_domain(kind, resource)):
        labels[_ZONE] = zone
    labels.update(
        {key: value for key, value in ((_ARCH, infrastructure.architecture), (_OS, infrastructure.system)) if value}
    )
    labels.update(_handed_down(resource, settings.sync_machine_labels))
    labels.update(_annotated_labels(resource)[0])
    if real_node is not None:
        labels.update({key: real_node.labels[key] for key in _COPIED if real_node.labels.get(key)})
    return labels


def _annotated_labels(resource: CapiResource) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels of the annotation `labels`, and a warning about each entry that cannot be a Node's label."""
    labels: dict[str, str] = {}
    warnings = []
    for text in _entries(resource.annotations.get(CAPACITY + "labels", "")):
        key, equals, value = (part.strip() for part in text.partition("="))
        if equals and is_qualified_name(key) and is_label_value(value):
            labels[key] = value
        else:
            warnings.append(f"annotation {CAPACITY}labels: {text[:_SHOWN]!r} is not a label; write key=value")
    return labels, tuple(warnings)


def failure_domain(kind: str, resource: CapiResource) -> str:
    """Return the failure domain of all new Machines of a resource, empty if there are several or none.

    Infrastructure providers of clouds with zones name a failure domain after its zone; if one does not, the setting
    that enables this must be turned off."""
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
    """Return taints of the template's spec, then of the `taints` annotation, which replace those of the same key and
    effect.

    A taint that is set only while a node starts is left out, because it is gone when pods arrive. The taints come with
    warnings about invalid entries of the annotation.
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
            warnings.append(
                f"annotation {CAPACITY}taints: {text[:_SHOWN]!r} is not a taint; write key=value:NoSchedule"
            )
        else:
            taints[taint.key, taint.effect] = taint
    return tuple(taints.values()), tuple(warnings)


def _entries(text: str) -> Iterator[str]:
    """Return the entries of a list that is separated by commas, without blanks around them."""
    return (entry for part in text.split(",") if (entry := part.strip()))


def parse_taint(text: str) -> Taint | None:
    """Parse `key=value:Effect`, `key=:Effect` or `key:Effect`; None for anything else, including an unknown effect."""
    body, _, effect = (part.strip() for part in text.partition(":"))
    key, _, value = (part.strip() for part in body.partition("="))
    if ":" in effect or "=" in value or effect not in _EFFECTS:
        return None
    return Taint(key, effect, value) if is_qualified_name(key) and is_label_value(value) else None
