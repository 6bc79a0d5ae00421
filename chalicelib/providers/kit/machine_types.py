"""The machines that a declaration may use: every type of the catalogue in every zone and market
that meets its requirements, and how many fail at which of them.

    types x zones x markets ► requirements, in the order of CHECKS ► the image ► a price ► stock
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import msgspec

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.policy.settings.managed_pools import AMD64, ManagedPool, Market, Requirements

_GIB = 2**30
KEYS = {field.name: field.encode_name for field in msgspec.structs.fields(Requirements)}
"""The keys of requirements in a document, by attribute."""
OTHER_IMAGE, NO_PRICE, NO_STOCK = "architecture of the image", "price", "stock"
"""Stages after the requirements."""


class Machine(msgspec.Struct, frozen=True):
    """A type in a zone and a market. price: of a node an hour, its disk included. stock: how many
    can be ordered, None where the vendor does not say."""

    entry: CatalogueEntry
    market: Market
    price: float
    stock: int | None = None


class Selection(msgspec.Struct, frozen=True):
    """What the catalogue leaves of a declaration. offered: all types in all zones and markets.
    failed: stage -> how many fail there first. machines: the cheapest first."""

    offered: int = 0
    failed: dict[str, int] = {}
    machines: tuple[Machine, ...] = ()


def select_machines(
    pool: ManagedPool, catalogue: Catalogue, disk_gib: int = 0, architecture: str = ""
) -> Selection:
    """Return the machines that a declaration may use. disk_gib: size of the system disk, where its
    price is not part of the machine's. architecture: of the image, "" if it is unknown."""
    failed: Counter[str] = Counter()
    machines: list[Machine] = []
    disk_price = disk_gib * (catalogue.disk_price or 0.0)
    for entry in catalogue.entries:
        stage = first_failure(pool.requirements, entry)
        if not stage and architecture not in ("", _architecture(entry)):
            stage = OTHER_IMAGE
        for market in Market:
            if market not in pool.requirements.markets:
                continue
            price, stock = _offer(entry, market)
            reason = stage or _missing(pool.requirements, price, stock, disk_price)
            if reason or price is None:
                failed[reason] += 1
                continue
            machines.append(Machine(entry, market, price + disk_price, stock))
    machines.sort(key=_cheapest_first)
    offered = len(catalogue.entries) * len(pool.requirements.markets)
    return Selection(offered, dict(failed), tuple(machines))


def _cheapest_first(machine: Machine) -> tuple[float, str, str, str]:
    return machine.price, machine.entry.name, machine.entry.zone, machine.market


def _offer(entry: CatalogueEntry, market: Market) -> tuple[float | None, int | None]:
    if market is Market.SPOT:
        return entry.spot_price, entry.spot_stock
    return entry.price, entry.stock


def _missing(
    requirements: Requirements, price: float | None, stock: int | None, disk_price: float
) -> str:
    """Return the stage at which an offer fails that meets the requirements, "" if none."""
    if price is None:
        return NO_PRICE
    most = requirements.max_price
    if most is not None and price + disk_price > most:
        return KEYS["max_price"]
    return NO_STOCK if stock == 0 else ""


def first_failure(
    requirements: Requirements, entry: CatalogueEntry, keys: Collection[str] = ()
) -> str:
    """Return the key of the first requirement that a type does not meet, "" if it meets all. keys:
    of the requirements that are checked, all if empty."""
    return next(
        (
            key
            for key, meets in CHECKS
            if (not keys or key in keys) and not meets(requirements, entry)
        ),
        "",
    )


def _named(patterns: Sequence[str], name: str) -> bool:
    """Return whether a name matches a pattern, and none of those that begin with !. Only such
    patterns: every other name matches."""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    if any(_form(pattern).fullmatch(name) for pattern in unwanted):
        return False
    return not wanted or any(_form(pattern).fullmatch(name) for pattern in wanted)


@lru_cache(maxsize=1024)
def _form(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in pattern)
    return re.compile("".join(parts))


def _architecture(entry: CatalogueEntry) -> str:
    return entry.architecture or AMD64


def _has_gpus(requirements: Requirements, entry: CatalogueEntry) -> bool:
    """GPUs are dear: types that have some are used only where a declaration asks for them."""
    if requirements.gpus is None:
        return entry.gpus == 0
    return entry.gpus in requirements.gpus


CHECKS: tuple[tuple[str, Callable[[Requirements, CatalogueEntry], bool]], ...] = (
    ("types", lambda wanted, entry: _named(wanted.types, entry.name)),
    ("families", lambda wanted, entry: _named(wanted.families, entry.family)),
    ("zones", lambda wanted, entry: not wanted.zones or entry.zone in wanted.zones),
    ("architectures", lambda wanted, entry: _architecture(entry) in wanted.architectures),
    ("gpus", _has_gpus),
    ("cpu", lambda wanted, entry: wanted.cpu is None or entry.cores in wanted.cpu),
    (
        "memory",
        lambda wanted, entry: wanted.memory is None or entry.memory / _GIB in wanted.memory,
    ),
    (
        KEYS["memory_per_cpu"],
        lambda wanted, entry: (
            wanted.memory_per_cpu is None
            or entry.memory / _GIB / entry.cores in wanted.memory_per_cpu
        ),
    ),
)
"""Requirements in the order in which they are checked, by their keys."""
KNOWN_BY_NAME = frozenset({"types", "zones"})
"""Those that can be checked for a type of which only the name is known."""
