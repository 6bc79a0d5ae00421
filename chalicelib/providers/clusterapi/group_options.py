"""Reads per-group options from annotations.

An unreadable value is reported, and the cluster's own value applies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.model.quantity import parse_duration
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
