"""spec.prices: what nodes cost.

Prices are part of the document because a provider's price list is not what a customer pays, and
reading it needs further permissions.
"""

from datetime import date
from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, Scalar, quote
from chalicelib.policy.schema import entries_of
from chalicelib.policy.value_types import UNSET, ValueType, number, scalar, show_number, text

_NUMBER = number(0.0, 1e9, "0.096")
PRICE = ValueType("price", _NUMBER.read, show_number, _NUMBER.form)
_INSTANCE_TYPE = text("an instance type", r"[^\s\x00-\x1f\x7f]{1,256}", "it like m5.large")


def _read_types(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Return instance type -> price; UNSET if any is invalid."""
    if isinstance(node, Scalar) and not node.is_null:
        diagnostics.problem(
            path, f"is {node.text[:60]!r}", "write one instance type per line, as m5.large: 0.096"
        )
        return UNSET
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return UNSET
    prices: dict[str, float] = {}
    for name, value in entries.items():
        name_node = Scalar(name, plain=False, line=value.line, column=value.column)
        type_name = _INSTANCE_TYPE.read(name_node, (*path, name), diagnostics)
        price = PRICE.read(value, (*path, name), diagnostics)
        if type_name is not UNSET and price is not UNSET:
            prices[name] = price
    return prices if len(prices) == len(entries) else UNSET


_PRICES_OF_TYPES = ValueType(
    "mapping of instance types to prices",
    _read_types,
    lambda prices: {name: show_number(price) for name, price in prices.items()},
    lambda: {"type": "object", "additionalProperties": PRICE.form()},
)


def _parse_date(value: str) -> str:
    try:
        valid = date.fromisoformat(value).isoformat() == value  # 20260701 is a date, too
    except ValueError:
        valid = False
    if not valid:
        raise BadInput("", f"{quote(value)} is not a date", "write it like 2026-07-01")
    return value


class NodePrices(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Hourly prices of nodes, in one currency. currency: "" if the policy does not say; such prices
    are only compared with each other and with those of the provider's own currency. as_of: "" if
    unknown. A node costs the price of its instance type, otherwise cpu (per core) + memory (per
    GiB) + gpu (per GPU) of its capacity; `node` is added per node in both cases. None: not set."""

    document_order: ClassVar = (
        "instanceTypes",
        "spot",
        "cpu",
        "memory",
        "gpu",
        "node",
        "currency",
        "asOf",
    )

    instance_types: Annotated[
        dict[str, float], _PRICES_OF_TYPES, "What a node of a type costs."
    ] = {}
    cpu: Annotated[
        float | None, PRICE, "What a core costs, for nodes of other types and for pods."
    ] = None
    memory: Annotated[float | None, PRICE, "What a GiB of memory costs."] = None
    gpu: Annotated[float | None, PRICE, "What a GPU costs."] = None
    node: Annotated[float, PRICE, "What is added for every node, whatever its type."] = 0.0
    currency: Annotated[
        str,
        text("a currency's code of three capital letters", r"[A-Z]{3}", "it like EUR"),
        "Currency of the list, by its ISO 4217 code. Prices of another currency are not compared "
        "with it.",
    ] = ""
    as_of: Annotated[
        str,
        scalar("date", _parse_date, "a date, such as 2026-07-01"),
        "Date of the list, for reports.",
    ] = ""
    spot: Annotated[
        dict[str, float],
        _PRICES_OF_TYPES,
        "What a spot node of a type costs, in place of the other prices. Without spec.spot only in "
        "groups that their provider calls spot.",
    ] = {}
