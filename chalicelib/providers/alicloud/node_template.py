"""Builds the template of the node that a scaling group would add.

A group may have several instance types, of which ESS chooses. The template guarantees only what all of them provide:
the smallest cpu, memory and number of GPUs, and the labels that all of them have. The planner prefers a real node of
the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.alicloud.launch_config import Blueprint
from chalicelib.providers.alicloud.models import InstanceType, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.template_tags import TagDeclaration, is_label_value, label_value

GPU, GPU_LABEL = "nvidia.com/gpu", "aliyun.accelerator/nvidia_name"
SPOT_LABEL = "node.alibabacloud.com/spot-strategy"  # the vendor's cloud-controller-manager writes it on every node
_ARCH, _OS, _TYPE = "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_PODS, _GIB = 110, 2**30
_ARCHITECTURES = MappingProxyType({"X86": "amd64", "ARM": "arm64"})
_CARDS = MappingProxyType({"NVIDIA P4": "Tesla-P4", "NVIDIA M40": "M40", "NVIDIA P100": "P100", "NVIDIA V100": "V100"})
# Policies under which a group with a spot configuration also contains on-demand instances.
_MIXED = frozenset({"COST_OPTIMIZED", "COMPOSABLE"})


class AlicloudTemplate(msgspec.Struct, frozen=True):
    """node None: the group cannot be scaled up from zero, and problem is the reason."""

    node: Node | None
    problem: str = ""
    warnings: tuple[str, ...] = ()


def candidates(group: ScalingGroup, blueprint: Blueprint) -> tuple[str, ...]:
    """Return the instance types that a group may create, each once; a group's own list replaces that of its launch
    template."""
    own = tuple(each.instance_type for each in group.launch_template_overrides or () if each.instance_type)
    return tuple(dict.fromkeys(own or blueprint.types))


def make_template(
    group: ScalingGroup,
    instances: Iterable[ScalingInstance],
    blueprint: Blueprint,
    declaration: TagDeclaration,
    types: Mapping[str, InstanceType],
    region: str,
    reserve: Mapping[str, int],
) -> AlicloudTemplate:
    """Return the template of a group. types: instance types by name; reserve: subtracted from each node's capacity."""
    names = candidates(group, blueprint)
    known = [types[name] for name in names if name in types]
    sound = [each for each in known if each.cpu_core_count > 0 and each.memory_size > 0]
    if problem := _problem(names, sound, blueprint, region):
        return AlicloudTemplate(None, problem)
    capacity = {**_capacity(sound, blueprint.disk), **declaration.resources}
    name = f"template-node-for-{group.scaling_group_id}"
    labels = {
        _OS: "linux",
        _REGION: region,
        **_type_labels(sound),
        **_spot(group, blueprint),
        **_zone(group, instances),
        **declaration.labels,
        HOSTNAME_LABEL: name,
    }
    node = Node(
        name=name,
        labels=labels,
        capacity=capacity,
        taints=declaration.taints,
        allocatable={resource: max(0, amount - reserve.get(resource, 0)) for resource, amount in capacity.items()},
    )
    return AlicloudTemplate(node, "", _warnings(names, sound, blueprint, labels))


def _problem(names: tuple[str, ...], sound: list[InstanceType], blueprint: Blueprint, region: str) -> str:
    if not names:
        return blueprint.problem or (
            "its scaling configuration names no instance type (it goes by pattern or by size); name the types in it"
        )
    return "" if sound else f"ECS knows none of {', '.join(names[:5])} in {region}"


def _warnings(
    names: tuple[str, ...], sound: list[InstanceType], blueprint: Blueprint, labels: Mapping[str, str]
) -> tuple[str, ...]:
    unknown = sorted(set(names) - {each.instance_type_id for each in sound})
    rows = (
        (bool(unknown), f"ECS does not know {', '.join(unknown[:5])}; it is left out of the template"),
        (_ARCH not in labels, "its instance types have several architectures, so its template has none; use one"),
        (bool(blueprint.problem), f"{blueprint.problem}; its disk and tags are not in the template"),
    )
    return tuple(text for applies, text in rows if applies)


def _capacity(types: list[InstanceType], disk: int) -> dict[str, int]:
    gpus = min(each.gpu_amount for each in types)
    capacity = {
        CPU: 1000 * min(each.cpu_core_count for each in types),
        MEMORY: int(_GIB * min(each.memory_size for each in types)),
        PODS: _PODS,
        EPHEMERAL: _GIB * disk,
        GPU: gpus,
    }
    return {resource: amount for resource, amount in capacity.items() if amount > 0}


def _type_labels(types: list[InstanceType]) -> dict[str, str]:
    """Return the labels whose values are equal for all types."""
    archs = {_ARCHITECTURES.get(each.cpu_architecture.upper(), "") for each in types}
    names = {each.instance_type_id for each in types}
    cards = {_card(each) for each in types}
    only = {_ARCH: archs, _TYPE: names, GPU_LABEL: cards}
    return {key: next(iter(values)) for key, values in only.items() if len(values) == 1 and "" not in values}


def _card(instance_type: InstanceType) -> str:
    """Return the GPU's name as the label value that nodes have; empty if there is no GPU."""
    spec = " ".join(instance_type.gpu_spec.split())
    return _CARDS.get(spec, label_value(spec)) if instance_type.gpu_amount > 0 else ""


def _spot(group: ScalingGroup, blueprint: Blueprint) -> dict[str, str]:
    strategy = blueprint.spot
    mixed = strategy != "NoSpot" and group.multi_az_policy in _MIXED
    return {SPOT_LABEL: strategy} if strategy and is_label_value(strategy) and not mixed else {}


def _zone(group: ScalingGroup, instances: Iterable[ScalingInstance]) -> dict[str, str]:
    """Return the zone of a group with one VSwitch, taken from its instances, because a VSwitch lies in one zone.

    Empty if there are several VSwitches or no instances; a tag may set the zone."""
    zones = {each.zone_id for each in instances} - {""}
    return {_ZONE: zones.pop()} if len(group.v_switch_ids or ()) == 1 and len(zones) == 1 else {}
