"""TODO"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.quantity import parse_amount, parse_duration
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.decoding import (
    InstanceType,
    LaunchTemplateData,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
    Tag,
)
from chalicelib.providers.errors import ProviderError, Throttled, Unauthorized

PREFIX = "k8s.io/cluster-autoscaler/"
TEMPLATE = f"{PREFIX}node-template/"
_LABEL, _TAINT, _RESOURCE = f"{TEMPLATE}label/", f"{TEMPLATE}taint/", f"{TEMPLATE}resources/"
_OPTION = f"{TEMPLATE}autoscaling-options/"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z", re.ASCII)
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
# labels that a plain tag must not set, because nodes get them from other sources
_RESERVED = ("kubernetes.io", "k8s.io")

Pairs = Iterable[tuple[str, str]]


class TagDeclaration(msgspec.Struct, frozen=True):
    """labels and taints of new nodes; resources added to, or replacing, those of the machine; options of the group."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, int] = {}
    options: GroupOptions = GroupOptions()
    warnings: tuple[str, ...] = ()


def is_label_value(text: str) -> bool:
    """Whether the text is a valid Kubernetes label value."""
    return not text or _NAME.match(text) is not None


def is_label_key(text: str) -> bool:
    """Whether the text is a valid Kubernetes label key: `name` or `domain/name`."""
    domain, slash, name = text.rpartition("/")
    fits = not slash or (0 < len(domain) <= 253 and _DOMAIN.match(domain) is not None)
    return fits and _NAME.match(name) is not None


def label_value(text: str) -> str:
    """Return the closest valid label value: `NVIDIA A10` becomes `NVIDIA-A10`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text, flags=re.ASCII)[:63].strip("-_.")


def read_tags(group: Pairs, configuration: Pairs) -> TagDeclaration:
    """Read the tags of a scaling group and of its configuration or launch template; those of the group take
    precedence."""
    reader, plain = _AlicloudReader(), list(configuration)
    for key, value in plain:
        if not key.startswith(PREFIX) and is_label_key(key) and is_label_value(value) and not _is_reserved(key):
            reader.labels[key] = value
    for key, value in (*plain, *group):
        reader.read(key, value)
    return TagDeclaration(
        reader.labels,
        tuple(reader.taints.values()),
        reader.resources,
        msgspec.convert(reader.options, GroupOptions),
        tuple(reader.warnings),
    )


def _is_reserved(key: str) -> bool:
    domain, slash, _ = key.rpartition("/")
    return bool(slash) and any(domain == each or domain.endswith(f".{each}") for each in _RESERVED)


class _AlicloudReader:
    """Reads one tag after another; later ones replace earlier ones."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.taints: dict[tuple[str, str], Taint] = {}
        self.resources: dict[str, int] = {}
        self.options: dict[str, float | bool] = {}
        self.warnings: list[str] = []

    def read(self, tag: str, value: str) -> None:
        """Read one tag. Tags with other prefixes belong to other tools."""
        rows = ((_LABEL, self._label), (_TAINT, self._taint), (_RESOURCE, self._resource), (_OPTION, self._option))
        for prefix, reader in rows:
            if tag.startswith(prefix):
                try:
                    reader(tag.removeprefix(prefix), value.strip())
                except BadInput as bad:
                    remedy = f"; {bad.remedy}" if bad.remedy else ""
                    self.warnings.append(f"tag {tag}: {bad.problem}{remedy}")

    def _label(self, key: str, value: str) -> None:
        if not is_label_key(key) or not is_label_value(value):
            raise BadInput("tag", f"{key}={value!r} is not a label", "write a key and a value that Kubernetes takes")
        self.labels[key] = value

    def _taint(self, key: str, value: str) -> None:
        text, _, effect = value.rpartition(":")
        if not is_label_key(key) or not is_label_value(text) or effect not in _EFFECTS:
            raise BadInput("tag", f"{value!r} is not a taint value and effect", "write value:NoSchedule")
        self.taints[key, effect] = Taint(key, effect, text)

    def _resource(self, name: str, value: str) -> None:
        if not is_label_key(name):
            raise BadInput("tag", f"{name!r} is not a resource", "write its name as a pod requests it")
        self.resources[name] = parse_amount(name, value)

    def _option(self, name: str, value: str) -> None:
        if name in _OPTIONS:
            field, reader = _OPTIONS[name]
            self.options[field] = reader(value.lower())


def _share(text: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput("tag", f"{text!r} is not a number", "write a share such as 0.5")
    return value


def _seconds(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0:
        raise BadInput("tag", f"{text!r} is negative", "write a duration such as 10m")
    return seconds


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadInput("tag", f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


# The last part of the tag, as on AWS -> (field of GroupOptions, reader of the lower-cased value).
_OPTIONS: Mapping[str, tuple[str, Callable[[str], float | bool]]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", _share),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", _share),
    "scaledownunneededtime": ("scale_down_unneeded_time", _seconds),
    "scaledownunreadytime": ("scale_down_unready_time", _seconds),
    "maxnodeprovisiontime": ("max_node_provision_time", _seconds),
    "maxnodestartuptime": ("max_node_startup_time", _seconds),
    "ignoredaemonsetsutilization": ("ignore_daemonsets_utilization", _flag),
}


class Blueprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """types: instance types in order of preference; disk: GiB; problem: why the launch source is unknown."""

    types: tuple[str, ...] = ()
    disk: int = 0
    spot: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    problem: str = ""


_NOTHING = Blueprint(
    problem="the scaling group has neither a scaling configuration nor a launch template; give it one "
    "and make it active"
)


def read_blueprints(api: AlicloudApi, groups: Iterable[ScalingGroup]) -> dict[str, Blueprint]:
    """Return the blueprints by group. Never raises: a group whose blueprint cannot be read has one with a problem."""
    sources = {group.scaling_group_id: source_of(group) for group in groups}
    found = _read(api, sorted({source for source in sources.values() if source}))
    return {group: found.get(source, _NOTHING) for group, source in sources.items()}


def source_of(group: ScalingGroup) -> str:
    """Return `asc-…` or `lt-…@version`; empty if the group has neither.

    The launch template takes precedence, as at ESS, where a group with a launch template has no active configuration.
    """
    if group.launch_template_id:
        return f"{group.launch_template_id}@{group.launch_template_version or 'Default'}"
    return group.active_scaling_configuration_id


def _read(api: AlicloudApi, wanted: list[str]) -> dict[str, Blueprint]:
    plain = [source for source in wanted if "@" not in source]
    found: dict[str, Blueprint] = {}
    try:
        configurations = api.configurations(plain) if plain else {}
        missing = Blueprint(problem="its scaling configuration does not exist")
        found = {name: _of_configuration(configurations[name]) if name in configurations else missing for name in plain}
    except ProviderError as error:
        found = dict.fromkeys(plain, Blueprint(problem=f"its scaling configuration could not be read: {error.message}"))
    stopped = ""
    for source in (each for each in wanted if "@" in each):
        template, _, version = source.partition("@")
        if stopped:  # a refusal or throttling applies to all remaining requests
            found[source] = Blueprint(problem=stopped)
            continue
        try:
            found[source] = _of_launch_template(api.launch_template(template, version))
        except ProviderError as error:
            problem = f"launch template {template} ({version}) could not be read: {error.message}"
            found[source] = Blueprint(problem=problem)
            refused = isinstance(error, Throttled | Unauthorized)
            stopped = f"launch templates could not be read: {error.message}" if refused else ""
    return found


def _of_configuration(configuration: ScalingConfiguration) -> Blueprint:
    types = tuple(
        dict.fromkeys(each for each in (*(configuration.instance_types or ()), configuration.instance_type) if each)
    )
    return Blueprint(types, configuration.system_disk_size, configuration.spot_strategy, _pairs(configuration.tags))


def _of_launch_template(template: LaunchTemplateData) -> Blueprint:
    types = (template.instance_type,) if template.instance_type else ()
    return Blueprint(types, template.system_disk_size, template.spot_strategy, _pairs(template.tags))


def _pairs(tags: Iterable[Tag] | None) -> tuple[tuple[str, str], ...]:
    return tuple(tag.pair for tag in tags or () if tag.pair[0])


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
