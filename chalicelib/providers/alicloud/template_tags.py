"""Reads the tags of a scaling group that describe its future nodes.

    k8s.io/cluster-autoscaler/node-template/label/KEY                = VALUE
    k8s.io/cluster-autoscaler/node-template/taint/KEY                = VALUE:EFFECT
    k8s.io/cluster-autoscaler/node-template/resources/NAME           = QUANTITY
    k8s.io/cluster-autoscaler/node-template/autoscaling-options/NAME = VALUE

Other tags of a scaling configuration become labels, as in upstream, but only if they are valid Kubernetes labels. A tag
that cannot be read is skipped with a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.model.node import Taint
from chalicelib.model.quantity import parse_amount, parse_duration

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
