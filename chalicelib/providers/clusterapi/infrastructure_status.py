"""Reads the capacity of new machines from an infrastructure object's status (Cluster API provider contract).

The object belongs to another project and its fields are optional, so all of them are validated: an invalid entry is
skipped and does not affect the others.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.policy.vendors.clusterapi import ARCHITECTURES
from chalicelib.providers.clusterapi.annotations import is_qualified_name

_SYSTEM = re.compile(r"[a-z0-9]{1,63}\Z")
# Maximum warnings per object; further ones would add no information.
_MOST_WARNINGS = 5


class Infrastructure(msgspec.Struct, frozen=True):
    """The data of one infrastructure object about its machines. capacity: cpu in millicores, memory and storage in
    bytes, the rest in pieces, without zeros. architecture, system: empty if missing or invalid. problem: why there
    is no capacity, empty if none was expected."""

    capacity: dict[str, int] = {}
    architecture: str = ""
    system: str = ""
    problem: str = ""
    warnings: tuple[str, ...] = ()


def read_status(body: bytes, where: str) -> Infrastructure:
    """Read status.capacity and status.nodeInfo of an object as the API sent it; never raises. where: its name in
    texts."""
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
    """Return a nested object; empty if it is missing or of another type."""
    part = of.get(key) if isinstance(of, dict) else None
    return part if isinstance(part, dict) else {}


def _capacity(given: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Return the valid amounts, and a short description of each invalid one."""
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
