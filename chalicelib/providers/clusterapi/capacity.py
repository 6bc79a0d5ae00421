"""Determines the capacity of a new node from the infrastructure object, overridden by the capacity annotations.

One unreadable annotation makes the whole capacity unusable, as in upstream, because a plan must not use an incomplete
machine. An invalid value in the infrastructure object affects only its own entry, because the user cannot correct it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_quantity
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.clusterapi.annotations import CAPACITY

DEFAULT_PODS = 110
_QUANTITIES = {"cpu": CPU, "memory": MEMORY, "ephemeral-disk": EPHEMERAL}
_NEEDED = (("cpu", CPU), ("memory", MEMORY))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}\Z")


class Capacity(msgspec.Struct, frozen=True):
    """amounts: cpu in millicores, memory and storage in bytes, the rest in pieces. devices: the gpu-count, 0 for none.
    problem: why no template can be built."""

    amounts: dict[str, int]
    devices: int = 0
    problem: str = ""
    warnings: tuple[str, ...] = ()


def suffices(capacity: Capacity) -> bool:
    """Whether the annotations alone give a template or make it impossible; the infrastructure object is then not
    read."""
    return bool(capacity.problem) or all(resource in capacity.amounts for _, resource in _NEEDED)


def read_capacity(annotations: Mapping[str, str]) -> Capacity:
    """Return the capacity in the annotations, with a problem if one of them cannot be read.

    Absent, empty and zero all mean "not given"; a negative amount is skipped with a warning. Blanks around a value do
    not count.
    """
    amounts: dict[str, int] = {}
    warnings: list[str] = []
    try:
        for name, resource in _QUANTITIES.items():
            amounts[resource] = _positive(_quantity(annotations, name, resource), name, warnings)
        devices = _positive(_whole(annotations, "gpu-count"), "gpu-count", warnings)
        if kind := _gpu_type(annotations):
            amounts[kind] = devices
        amounts[PODS] = _positive(_whole(annotations, "maxPods"), "maxPods", warnings)
    except BadInput as bad:
        return Capacity({}, 0, str(bad), tuple(warnings))
    return Capacity({name: amount for name, amount in amounts.items() if amount}, devices, "", tuple(warnings))


def merged(annotated_capacity: Capacity, infrastructure: Mapping[str, int], hint: str = "") -> Capacity:
    """Return the complete capacity, per resource from the annotation before the infrastructure object; 110 pods by
    default.

    It has a problem if cpu or memory is missing. hint: why the infrastructure object gave nothing."""
    if annotated_capacity.problem:
        return annotated_capacity
    amounts = {PODS: DEFAULT_PODS, **infrastructure, **annotated_capacity.amounts}
    missing = [CAPACITY + name for name, resource in _NEEDED if not amounts.get(resource)]
    if not missing:
        return msgspec.structs.replace(annotated_capacity, amounts=amounts)
    problem = f"nothing says what a new node would offer; set {' and '.join(missing)}"
    return msgspec.structs.replace(
        annotated_capacity, amounts=amounts, problem=f"{problem} ({hint})" if hint else problem
    )


def _quantity(annotations: Mapping[str, str], name: str, resource: str) -> int:
    text = annotations.get(CAPACITY + name, "").strip()
    if not text:
        return 0
    try:
        return parse_quantity(text, milli=resource == CPU)  # _positive handles a negative amount
    except BadInput as bad:
        raise BadInput(f"annotation {CAPACITY}{name}", bad.problem, bad.remedy) from None


def _whole(annotations: Mapping[str, str], name: str) -> int:
    text = annotations.get(CAPACITY + name, "").strip()
    if not text:
        return 0
    if not _INTEGER.match(text):
        raise BadInput(f"annotation {CAPACITY}{name}", f"{text[:40]!r} is not a whole number", "write it in digits")
    return int(text)


def _gpu_type(annotations: Mapping[str, str]) -> str:
    kind = annotations.get(CAPACITY + "gpu-type", "").strip()
    if kind in {CPU, MEMORY, EPHEMERAL, PODS}:
        place, remedy = f"annotation {CAPACITY}gpu-type", "name the resource that pods ask for, such as nvidia.com/gpu"
        raise BadInput(place, f"{kind!r} is not a device", remedy)
    return kind


def _positive(amount: int, name: str, warnings: list[str]) -> int:
    if amount >= 0:
        return amount
    warnings.append(f"annotation {CAPACITY}{name} is negative and was left out")
    return 0
