"""The plans that the vendor sells, by region, with their prices and stock."""

from __future__ import annotations

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.decoding import AvailableRegion, CherryPlan
from chalicelib.providers.cherryservers.node_template import amount_of, hourly
from chalicelib.providers.kit.errors import InvalidRequest

CURRENCY = "EUR"


def read_catalogue(api: CherryApi, currency: str) -> Catalogue:
    """Return every plan in every region where it is sold. currency: EUR. Raises
    ProviderError."""
    if currency != CURRENCY:
        problem = f"there are no prices in {currency}, but in {CURRENCY}"
        raise InvalidRequest(problem, code="Currency")
    entries = [
        _entry(plan, region)
        for plan in api.plans()
        for region in plan.available_regions
        if _is_complete(plan)
    ]
    entries.sort(key=lambda entry: (entry.name, entry.zone))
    return Catalogue(currency, tuple(entries))


def _is_complete(plan: CherryPlan) -> bool:
    memory = plan.specs.memory
    return bool(plan.slug and plan.specs.cpus.cores > 0 and amount_of(memory.total, memory.unit))


def _entry(plan: CherryPlan, region: AvailableRegion) -> CatalogueEntry:
    memory = plan.specs.memory
    return CatalogueEntry(
        name=plan.slug,
        family=plan.type,
        zone=region.slug or region.name,
        cores=plan.specs.cpus.cores,
        memory=amount_of(memory.total, memory.unit) or 0,
        disk=_disk(plan),
        price=_price(plan, is_spot=False),
        spot_price=_price(plan, is_spot=True),
        stock=max(0, region.stock_qty),
        spot_stock=max(0, region.spot_qty),
    )


def _disk(plan: CherryPlan) -> int:
    """Return the bytes of the first disk, 0 if they are unknown."""
    row = next(iter(plan.specs.storage), None)
    return (amount_of(row.size, row.unit) or 0) if row is not None else 0


def _price(plan: CherryPlan, *, is_spot: bool) -> float | None:
    stated = hourly(plan, spot=is_spot)
    return stated[0] if stated is not None and stated[1] in ("", CURRENCY) else None
