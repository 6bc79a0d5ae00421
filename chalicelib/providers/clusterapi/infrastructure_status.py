"""What an infrastructure object's status says of the machines made from it (clusterapi.md §5, "Infra contract").

The object belongs to another project and its fields are optional, so nothing in it is believed: an entry that makes no
sense costs that entry, never its neighbours (D16, D17, D19).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.providers.clusterapi.annotations import is_qualified_name
from chalicelib.providers.clusterapi.settings import ARCHITECTURES

_SYSTEM = re.compile(r"[a-z0-9]{1,63}\Z")
# Of one object; what comes after them would only repeat the lesson in the report.
_MOST_WARNINGS = 5


class Infrastructure(msgspec.Struct, frozen=True):
    """What one infrastructure object says of its machines. capacity: cpu in millicores, memory and storage in bytes,
    the rest in pieces, nothing that is 0. architecture, system: empty where it does not say, or says nonsense (D19).
    problem: why there is no capacity from there, empty where none was to be expected."""

    capacity: dict[str, int] = {}
    architecture: str = ""
    system: str = ""
    problem: str = ""
    warnings: tuple[str, ...] = ()


def read_status(body: bytes, where: str) -> Infrastructure:
    """status.capacity and status.nodeInfo of an object as the API sent it; never raises. where: its name in texts."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Infrastructure(problem=f"{where} cannot be read: the answer is not the JSON of an object")
    status = _part(found, "status")
    amounts, refused = _capacity(_part(status, "capacity"))
    node_info = _part(status, "nodeInfo")
    architecture, system = node_info.get("architecture"), node_info.get("operatingSystem")
    return Infrastructure(
        capacity=amounts,
        architecture=architecture if architecture in ARCHITECTURES else "",
        system=system if isinstance(system, str) and _SYSTEM.match(system) else "",
        problem="" if amounts else f"{where} has no status.capacity",
        warnings=tuple(f"{where}: status.capacity {entry}" for entry in refused[:_MOST_WARNINGS]),
    )


def _part(of: Any, key: str) -> dict[str, Any]:
    """An object inside an object; empty where there is none or something else."""
    part = of.get(key) if isinstance(of, dict) else None
    return part if isinstance(part, dict) else {}


def _capacity(given: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """The entries that are amounts, and a few words about each of the others."""
    amounts: dict[str, int] = {}
    refused = []
    for name, raw in given.items():
        try:
            amounts[name] = _amount(name, raw)
        except BadInput as bad:
            refused.append(f"{name[:80]!r} was left out: {bad.problem[:80]}")
    return {name: amount for name, amount in amounts.items() if amount}, refused


def _amount(name: str, raw: object) -> int:
    if not is_qualified_name(name):
        raise BadInput(name, "that is not the name of a resource")
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise BadInput(name, "it is neither a whole number nor a quantity")
    return parse_amount(name, quantity_text(raw))
