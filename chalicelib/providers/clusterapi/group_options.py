"""Reads per-group options from annotations.

An unreadable value is reported, and the cluster's own value applies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.quantity import parse_duration
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.clusterapi.annotations import CapiAnnotations

_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?\Z")


def _threshold(text: str) -> float:
    value = float(text) if _FLOAT.match(text) else math.nan
    if not math.isfinite(value):
        raise BadInput("option", f"{text!r} is not a number", "write a share such as 0.5")
    return value


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0 or not math.isfinite(seconds):
        raise BadInput("option", f"{text[:40]!r} is not a duration", "write a duration such as 10m")
    return seconds


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadInput("option", f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


# Annotation suffix -> (field of GroupOptions, reader of the lower-cased value).
_OPTIONS: dict[str, tuple[str, Callable[[str], float | bool]]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", _threshold),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", _threshold),
    "scaledownunneededtime": ("scale_down_unneeded_time", _duration),
    "scaledownunreadytime": ("scale_down_unready_time", _duration),
    "maxnodeprovisiontime": ("max_node_provision_time", _duration),
    "maxnodestartuptime": ("max_node_startup_time", _duration),
    # an extension of Outscaler, as is the next one
    "ignoredaemonsetsutilization": ("ignore_daemonsets_utilization", _flag),
    "zeroormaxnodescaling": ("zero_or_max", _flag),
}


def read_options(annotations: Mapping[str, str], keys: CapiAnnotations) -> tuple[GroupOptions, tuple[str, ...]]:
    """Return the options, and one sentence per annotation that was skipped as unreadable."""
    fields: dict[str, float | bool] = {}
    warnings = []
    for suffix, (field, reader) in _OPTIONS.items():
        text = annotations.get(keys.options + suffix, "").lower()
        if not text:
            continue
        try:
            fields[field] = reader(text)
        except BadInput as bad:
            warnings.append(f"annotation {keys.options}{suffix}: {bad.problem}; {bad.remedy}")
    return msgspec.convert(fields, GroupOptions), tuple(warnings)


_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_LONGEST, _SHOWN_TEXT = (
    19,
    40,
)  # digits that Go's parser accepts; characters shown


class CapiBounds(msgspec.Struct, frozen=True):
    """min <= size <= max, max at least 1."""

    min: int
    max: int


def read_bounds(
    annotations: Mapping[str, str], keys: CapiAnnotations, policy: GroupPolicy | None, place: str
) -> CapiBounds | None:
    """Return the bounds, None if the resource is not meant to be a group; raises BadInput for invalid bounds.

    A bound in the policy replaces the annotation, which is then not read. place: the resource.
    """
    low = policy.min if policy and policy.min is not None else _annotation(annotations, keys.min_size, place)
    high = policy.max if policy and policy.max is not None else _annotation(annotations, keys.max_size, place)
    if not low and not high:
        return None
    low, high = low or 0, high or 0
    if low < 0:
        raise BadInput(place, f"the minimum {low} is negative", "write 0 or more")
    if high < low:
        raise BadInput(place, f"the maximum {high} is below the minimum {low}", f"set {keys.max_size} to {low} or more")
    return CapiBounds(low, high)


def _annotation(annotations: Mapping[str, str], key: str, place: str) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    # int() also accepts spaces, underscores and digits of other scripts, which Go's parser refuses. The length is
    # limited so that a text of a million digits does not affect the other groups.
    if not _INTEGER.match(text) or len(text) > _LONGEST:
        raise BadInput(place, f"annotation {key} is {text[:_SHOWN_TEXT]!r}", "write a whole number in digits")
    return int(text)


_SHOWN_GROUPS = 5


class Overrides(msgspec.Struct, frozen=True):
    """by_group: group id -> its entry. contested: group id -> why it must not be changed."""

    by_group: dict[str, GroupPolicy]
    contested: dict[str, str] = {}
    gaps: tuple[MissingData, ...] = ()


def speaks_of(group_policy: GroupPolicy, group: str) -> bool:
    """Whether an entry's id may refer to this group (`Kind/namespace/name`)."""
    return group_policy.id == group or group.endswith(f"/{group_policy.id}")


def resolve(entries: Sequence[GroupPolicy], groups: Iterable[str], paused: Iterable[str] = ()) -> Overrides:
    """Match the entries to the ids of discovered resources; paused ones are included, although they are not groups."""
    known, resting = sorted(groups), sorted(paused)
    by_group: dict[str, GroupPolicy] = {}
    contested: dict[str, str] = {}
    gaps = []
    for entry in entries:
        fits = [group for group in known if speaks_of(entry, group)]
        if len(fits) > 1:
            problem = f"nodeGroups entry {entry.id!r} fits {', '.join(fits)}; write one of these in full"
            contested.update(dict.fromkeys(fits, problem))
            gaps.append(_gap(entry, problem))
        elif not fits:
            gaps.append(_gap(entry, _not_found(entry, known, resting)))
        elif fits[0] in by_group:
            gaps.append(_gap(entry, f"{fits[0]} already has the entry {by_group[fits[0]].id!r}; remove one of the two"))
        else:
            by_group[fits[0]] = entry
    return Overrides(by_group, contested, tuple(gaps))


def _not_found(group_policy: GroupPolicy, known: Sequence[str], resting: Sequence[str]) -> str:
    paused = [group for group in resting if speaks_of(group_policy, group)]
    if paused:
        return f"{paused[0]} is paused, so it is left alone"
    shown = ", ".join(known[:_SHOWN_GROUPS]) + (", …" if len(known) > _SHOWN_GROUPS else "")
    return f"no such MachineDeployment, MachineSet or MachinePool in this cluster; there are: {shown or 'none'}"


def _gap(group_policy: GroupPolicy, detail: str) -> MissingData:
    return MissingData(
        "NodeGroup", detail, name=group_policy.id, place=f"spec.nodeGroups[provider=clusterapi, id={group_policy.id}]"
    )
