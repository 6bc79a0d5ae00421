"""spec.prices: reads and writes machine prices.

Prices are part of the document because a provider's price list is not what a customer pays, and reading it needs
further permissions.
"""

from __future__ import annotations

from typing import Any

from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.schema import Field, Section, entries_of
from chalicelib.policy.value_types import UNSET, ValueType, number, text
from chalicelib.policy.yaml_document import Node, Scalar

MOST = 1e9
_NUMBER = number(0.0, MOST, "0.096")
_TYPE = text("an instance type", r"[^\s\x00-\x1f\x7f]{1,256}", "it like m5.large")


def _show(price: float) -> float | int | str:
    """Return a number that reads back; a number that Python would write with an exponent becomes text in full."""
    if price == int(price):
        return int(price)
    return price if "e" not in repr(price) else f"{price:.12f}".rstrip("0")


PRICE = ValueType("price", _NUMBER.read, _show, _NUMBER.form)


def _read_types(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Return instance type -> price; UNSET if any is invalid."""
    if isinstance(node, Scalar) and not node.is_null:
        diagnostics.problem(path, f"is {node.text[:60]!r}", "write one instance type per line, as m5.large: 0.096")
        return UNSET
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return UNSET
    found: dict[str, float] = {}
    for name, value in entries.items():
        below = (*path, name)
        kind = _TYPE.read(Scalar(name, plain=False, line=value.line, column=value.column), below, diagnostics)
        price = PRICE.read(value, below, diagnostics)
        if kind is not UNSET and price is not UNSET:
            found[name] = price
    return found if len(found) == len(entries) else UNSET


PRICES = Section(
    fields=(
        Field(
            "instanceTypes",
            ValueType(
                "mapping of instance types to prices",
                _read_types,
                lambda types: {name: _show(price) for name, price in types.items()},
                lambda: {"type": "object", "additionalProperties": PRICE.form()},
            ),
            "instance_types",
            "What a node of a type costs.",
        ),
        Field("cpu", PRICE, "cpu", "What a core costs, for nodes of other types and for pods."),
        Field("memory", PRICE, "memory", "What a GiB of memory costs."),
        Field("gpu", PRICE, "gpu", "What a GPU costs."),
        Field("node", PRICE, "node", "What is added for every node, whatever its type.", default="0"),
    )
)
