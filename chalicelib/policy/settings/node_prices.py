"""spec.prices: what nodes cost."""

from __future__ import annotations

import msgspec


class NodePrices(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Hourly prices of nodes, in one currency. currency: its ISO 4217 code, "" if the policy does
    not say; such prices are only compared with each other and with those of the provider's own
    currency. as_of: the date of the list, YYYY-MM-DD, "" if unknown. A node costs the price of its
    instance type, otherwise cpu (per core) + memory (per GiB) + gpu (per GPU) of its capacity;
    `node` is added per node in both cases. spot: prices of instance types of spot groups, in place
    of the others. None: not set."""

    instance_types: dict[str, float] = {}
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    node: float = 0.0
    currency: str = ""
    as_of: str = ""
    spot: dict[str, float] = {}
