"""Builds the template of the node that a scaling group would add, from its launch
source, its types and its tags.

A group may have several instance types, of which ESS chooses. The template guarantees only what all
of them provide: the smallest cpu, memory and number of GPUs, and the labels that all of them have.
The planner prefers a real node of the group. Tags of the group describe its future nodes:

    k8s.io/cluster-autoscaler/node-template/label/KEY                = VALUE
    k8s.io/cluster-autoscaler/node-template/taint/KEY                = VALUE:EFFECT
    k8s.io/cluster-autoscaler/node-template/resources/NAME           = QUANTITY
    k8s.io/cluster-autoscaler/node-template/autoscaling-options/NAME = VALUE

Other tags of a scaling configuration become labels, as in upstream, but only if they are valid
Kubernetes labels. A tag that cannot be read is skipped with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.model.label_syntax import TAINT_EFFECTS, is_label_key, is_label_value
from chalicelib.model.node import Taint
from chalicelib.model.quantity import parse_amount
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.decoding import (
    InstanceType,
    LaunchTemplateData,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
)
from chalicelib.providers.alicloud.vswitches import only_zone
from chalicelib.providers.kit.errors import ProviderError, Throttled, Unauthorized
from chalicelib.providers.kit.group_builder import OPTION_READERS
from chalicelib.providers.kit.node_template import (
    ARCH,
    GPU,
    INSTANCE_TYPE,
    OS,
    REGION,
    USUAL_PODS,
    ZONE,
    GroupTemplate,
    template_name,
    template_node,
)

# -- tags

_PREFIX = "k8s.io/cluster-autoscaler/"
_TEMPLATE = f"{_PREFIX}node-template/"
# Domains of labels that a plain tag must not set, because nodes get them from other sources.
_RESERVED = re.compile(r"(.*\.)?(kubernetes|k8s)\.io\Z", re.DOTALL)

Pairs = Iterable[tuple[str, str]]


class TagDeclaration(msgspec.Struct, frozen=True):
    """labels and taints of new nodes; resources added to, or replacing, those of the
    machine; options of the group."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, int] = {}
    options: GroupOptions = GroupOptions()
    warnings: tuple[str, ...] = ()


def label_value(text: str) -> str:
    """Return the closest valid label value: `NVIDIA A10` becomes `NVIDIA-A10`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text, flags=re.ASCII)[:63].strip("-_.")


def read_tags(group_tags: Pairs, source_tags: Pairs) -> TagDeclaration:
    """Read the tags of a scaling group and of its configuration or launch template; those of
    the group take precedence."""
    reader, source_tags = _AlicloudTagReader(), list(source_tags)
    for key, value in source_tags:
        plain = not key.startswith(_PREFIX) and not (
            "/" in key and _RESERVED.match(key.rpartition("/")[0])
        )
        if plain and is_label_key(key) and is_label_value(value):
            reader.labels[key] = value
    for key, value in (*source_tags, *group_tags):
        kind, slash, name = key.removeprefix(_TEMPLATE).partition("/")
        if key.startswith(_TEMPLATE) and slash:  # other tags belong to other tools
            try:
                reader.read(kind, name, value.strip())
            except BadInput as bad:
                reader.warnings.append(
                    f"tag {key}: {bad.problem}{f'; {bad.remedy}' if bad.remedy else ''}"
                )
    return TagDeclaration(
        reader.labels,
        tuple(reader.taints.values()),
        reader.resources,
        msgspec.convert(reader.options, GroupOptions),
        tuple(reader.warnings),
    )


class _AlicloudTagReader:
    """Reads one tag after another; later ones replace earlier ones."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.taints: dict[tuple[str, str], Taint] = {}
        self.resources: dict[str, int] = {}
        self.options: dict[str, float | bool] = {}
        self.warnings: list[str] = []

    def read(self, kind: str, name: str, value: str) -> None:
        """Read one tag; raises BadInput."""
        if kind == "label":
            if not is_label_key(name) or not is_label_value(value):
                remedy = "write a key and a value that Kubernetes takes"
                raise BadInput("tag", f"{name}={value!r} is not a label", remedy)
            self.labels[name] = value
        elif kind == "taint":
            text, _, effect = value.rpartition(":")
            if not is_label_key(name) or not is_label_value(text) or effect not in TAINT_EFFECTS:
                raise BadInput(
                    "tag", f"{value!r} is not a taint value and effect", "write value:NoSchedule"
                )
            self.taints[name, effect] = Taint(name, effect, text)
        elif kind == "resources":
            if not is_label_key(name):
                raise BadInput(
                    "tag", f"{name!r} is not a resource", "write its name as a pod requests it"
                )
            self.resources[name] = parse_amount(name, value)
        elif kind == "autoscaling-options" and name in OPTION_READERS:
            field, reader = OPTION_READERS[name]
            self.options[field] = reader(value.lower())


# -- launch source: a scaling configuration or a launch template. Both seldom change,
# and api.py caches them for a few minutes for all functions, so an idle pass requests
# only groups and instances.


class Blueprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """types: instance types in order of preference; disk: GiB; version: of a launch template, 0 if
    it is unknown or for a configuration; problem: why the launch source is unknown."""

    types: tuple[str, ...] = ()
    disk: int = 0
    spot: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    version: int = 0


_NOTHING = Blueprint(
    problem="the scaling group has neither a scaling configuration nor a launch template; give it "
    "one "
    "and make it active"
)


def read_blueprints(api: AlicloudApi, groups: Iterable[ScalingGroup]) -> dict[str, Blueprint]:
    """Return the blueprints by group. Never raises: a group whose blueprint cannot be read has one
    with a problem. The launch template takes precedence, as at ESS, where a group with a launch
    template has no active configuration."""
    sources = {
        group.scaling_group_id: (
            group.launch_template_id,
            group.launch_template_version or "Default",
        )
        if group.launch_template_id
        else (group.active_scaling_configuration_id, "")
        for group in groups
    }
    ordered = sorted({(name, version) for name, version in sources.values() if name})
    blueprints = _configuration_blueprints(api, [name for name, version in ordered if not version])
    stopped = ""
    for template, version in ordered:
        if not version:
            continue
        if stopped:  # a refusal or throttling applies to all remaining requests
            blueprints[template, version] = Blueprint(problem=stopped)
            continue
        try:
            blueprints[template, version] = _blueprint(api.launch_template(template, version))
        except ProviderError as error:
            problem = f"launch template {template} ({version}) could not be read: {error.message}"
            blueprints[template, version] = Blueprint(problem=problem)
            if isinstance(error, Throttled | Unauthorized):
                stopped = f"launch templates could not be read: {error.message}"
    return {group: blueprints.get(source, _NOTHING) for group, source in sources.items()}


def _configuration_blueprints(
    api: AlicloudApi, names: list[str]
) -> dict[tuple[str, str], Blueprint]:
    try:
        configurations = api.configurations(names) if names else {}
    except ProviderError as error:
        problem = f"its scaling configuration could not be read: {error.message}"
        return {(name, ""): Blueprint(problem=problem) for name in names}
    missing = Blueprint(problem="its scaling configuration does not exist")
    return {
        (name, ""): _blueprint(configurations[name]) if name in configurations else missing
        for name in names
    }


def _blueprint(source: ScalingConfiguration | LaunchTemplateData) -> Blueprint:
    several = source.instance_types if isinstance(source, ScalingConfiguration) else None
    types = tuple(dict.fromkeys(name for name in (*(several or ()), source.instance_type) if name))
    tags = tuple(tag.pair for tag in source.tags or () if tag.pair[0])
    version = source.version if isinstance(source, LaunchTemplateData) else 0
    return Blueprint(types, source.system_disk_size, source.spot_strategy, tags, version=version)


# -- template

GPU_LABEL = "aliyun.accelerator/nvidia_name"
# the vendor's cloud-controller-manager writes it on every node
SPOT_LABEL = "node.alibabacloud.com/spot-strategy"
_GIB = 2**30
_ARCHITECTURES = MappingProxyType({"X86": "amd64", "ARM": "arm64"})
_CARDS = MappingProxyType(
    {"NVIDIA P4": "Tesla-P4", "NVIDIA M40": "M40", "NVIDIA P100": "P100", "NVIDIA V100": "V100"}
)
# Policies under which a group with a spot configuration also contains on-demand instances.
_MIXED = frozenset({"COST_OPTIMIZED", "COMPOSABLE"})
SPOT = frozenset({"SpotWithPriceLimit", "SpotAsPriceGo"})


def candidates(group: ScalingGroup, blueprint: Blueprint) -> tuple[str, ...]:
    """Return the instance types that a group may create, each once; a group's own list replaces
    that of its launch template."""
    own = tuple(
        override.instance_type
        for override in group.launch_template_overrides or ()
        if override.instance_type
    )
    return tuple(dict.fromkeys(own or blueprint.types))


def make_template(
    group: ScalingGroup,
    instances: Iterable[ScalingInstance],
    blueprint: Blueprint,
    declaration: TagDeclaration,
    types: Mapping[str, InstanceType],
    switch_zones: Mapping[str, str],
    region: str,
    reserve: Mapping[str, int],
) -> GroupTemplate:
    """Return the template of a group. types: instance types by name, without unknown ones;
    switch_zones: VSwitch -> its zone, as far as it is known; reserve: subtracted from each node's
    capacity, cpu in millicores and the rest in bytes. Raises nothing: what is missing is the
    problem of the template."""
    names = candidates(group, blueprint)
    if not names:
        problem = "its scaling configuration names no instance type (it goes by pattern or by size)"
        return GroupTemplate(None, blueprint.problem or f"{problem}; name the types in it")
    described = [types[name] for name in names if name in types]
    usable = [each for each in described if each.cpu_core_count > 0 and each.memory_size > 0]
    if not usable:
        return GroupTemplate(None, f"ECS knows none of {', '.join(names[:5])} in {region}")
    capacity = {
        CPU: 1000 * min(each.cpu_core_count for each in usable),
        MEMORY: int(_GIB * min(each.memory_size for each in usable)),
        PODS: USUAL_PODS,
        EPHEMERAL: _GIB * blueprint.disk,
        GPU: min(each.gpu_amount for each in usable),
    }
    capacity = {
        resource: amount for resource, amount in capacity.items() if amount > 0
    } | declaration.resources
    labels = {
        OS: "linux",
        REGION: region,
        **_type_labels(usable),
        **_spot_label(group, blueprint),
        **({ZONE: zone} if (zone := only_zone(group, instances, switch_zones)) else {}),
        **declaration.labels,
    }
    unknown = sorted(set(names) - {each.instance_type_id for each in usable})
    rows = (
        (
            bool(unknown),
            f"ECS does not know {', '.join(unknown[:5])}; it is left out of the template",
        ),
        (
            ARCH not in labels,
            "its instance types have several architectures, so its template has none; use one",
        ),
        (
            bool(blueprint.problem),
            f"{blueprint.problem}; its disk and tags are not in the template",
        ),
    )
    name = template_name(group.scaling_group_id)
    node = template_node(name, labels, capacity, reserve, declaration.taints)
    return GroupTemplate(node, "", tuple(text for applies, text in rows if applies))


def priced_type(
    group: ScalingGroup, blueprint: Blueprint, types: Mapping[str, InstanceType]
) -> str:
    """Return the instance type whose price counts for the group: that of the template. With several
    types the template has the least of each resource, so this is the smallest one; among equal ones
    the first in the group's order."""
    usable = [types[name] for name in candidates(group, blueprint) if name in types]
    smallest = min(usable, key=lambda kind: (kind.cpu_core_count, kind.memory_size), default=None)
    return smallest.instance_type_id if smallest is not None else ""


def spot_strategy(group: ScalingGroup, blueprint: Blueprint) -> str:
    """Return how the group's instances are preemptible; "" if they are not, or not all of them."""
    return blueprint.spot if blueprint.spot in SPOT and group.multi_az_policy not in _MIXED else ""


def _type_labels(types: list[InstanceType]) -> dict[str, str]:
    """Return the labels whose values are equal for all types."""
    values = {
        ARCH: {_ARCHITECTURES.get(each.cpu_architecture.upper(), "") for each in types},
        INSTANCE_TYPE: {each.instance_type_id for each in types},
        GPU_LABEL: {_card(each) for each in types},
    }
    return {
        key: next(iter(several))
        for key, several in values.items()
        if len(several) == 1 and "" not in several
    }


def _card(instance_type: InstanceType) -> str:
    """Return the GPU's name as the label value that nodes have; empty if there is no GPU."""
    spec = " ".join(instance_type.gpu_spec.split())
    return _CARDS.get(spec, label_value(spec)) if instance_type.gpu_amount > 0 else ""


def _spot_label(group: ScalingGroup, blueprint: Blueprint) -> dict[str, str]:
    mixed = blueprint.spot != "NoSpot" and group.multi_az_policy in _MIXED
    valid = blueprint.spot and is_label_value(blueprint.spot)
    return {SPOT_LABEL: blueprint.spot} if valid and not mixed else {}
