"""What a new node will offer, from the capacity annotations (clusterapi.md §5).

One unreadable amount makes the whole capacity unusable, as upstream has it: half a machine in a plan is worse
than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_quantity
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.clusterapi.keys import CAPACITY

DEFAULT_PODS = 110
_QUANTITIES = {"cpu": CPU, "memory": MEMORY, "ephemeral-disk": EPHEMERAL}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


class Capacity(msgspec.Struct, frozen=True):
    """amounts: cpu in millicores, memory and storage in bytes, the rest in pieces. problem: why no node can be made."""

    amounts: dict[str, int]
    problem: str = ""
    warnings: tuple[str, ...] = ()


def read_capacity(annotations: Mapping[str, str]) -> Capacity:
    """The capacity that the annotations give; with a problem where cpu and memory do not both come out of it.

    Absent, empty and zero are all "not given"; a negative amount is left out with a warning (D16).
    """
    amounts: dict[str, int] = {}
    warnings: list[str] = []
    try:
        for name, resource in _QUANTITIES.items():
            amounts[resource] = _positive(_quantity(annotations, name, resource), name, warnings)
        if kind := annotations.get(CAPACITY + "gpu-type", ""):
            amounts[kind] = _positive(_whole(annotations, "gpu-count"), "gpu-count", warnings)
        amounts[PODS] = _positive(_whole(annotations, "maxPods"), "maxPods", warnings) or DEFAULT_PODS
    except BadInput as bad:
        return Capacity({}, str(bad), tuple(warnings))
    amounts = {resource: amount for resource, amount in amounts.items() if amount}
    missing = [name for name, resource in (("cpu", CPU), ("memory", MEMORY)) if resource not in amounts]
    if missing:
        wanted = " and ".join(CAPACITY + name for name in missing)
        return Capacity(amounts, f"nothing says what a new node would offer; set {wanted}", tuple(warnings))
    return Capacity(amounts, "", tuple(warnings))


def _quantity(annotations: Mapping[str, str], name: str, resource: str) -> int:
    text = annotations.get(CAPACITY + name, "")
    if not text:
        return 0
    try:
        return parse_quantity(text, milli=resource == CPU)   # a negative one is judged by _positive
    except BadInput as bad:
        raise BadInput(f"annotation {CAPACITY}{name}", bad.problem, bad.remedy) from None


def _whole(annotations: Mapping[str, str], name: str) -> int:
    text = annotations.get(CAPACITY + name, "")
    if not text:
        return 0
    if not _INTEGER.match(text):
        raise BadInput(f"annotation {CAPACITY}{name}", f"{text!r} is not a whole number", "write it in digits")
    return int(text)


def _positive(amount: int, name: str, warnings: list[str]) -> int:
    if amount >= 0:
        return amount
    warnings.append(f"annotation {CAPACITY}{name} is negative and was left out")
    return 0
