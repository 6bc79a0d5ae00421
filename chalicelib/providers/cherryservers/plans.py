"""What a plan says of its stock and its price (cherryservers.md §4, §9)."""

from __future__ import annotations

import math

from chalicelib.providers.cherryservers.models import AvailableRegion, CherryPlan, Pricing
from chalicelib.providers.errors import OutOfStock

_UNITS = {False: "hourly", True: "spot hourly"}
_CURRENCY = "EUR"  # the vendor's own; taken where a plan is priced in several


def region_of(plan: CherryPlan, region: str) -> AvailableRegion | None:
    """Where the plan is sold, by the region's slug, else its name or id (§4); None where it is not sold there."""
    rows = plan.available_regions
    for keys in (lambda row: (row.slug,), lambda row: (row.name, str(row.id))):
        for row in rows:
            if region in keys(row):
                return row
    return None


def stock_of(plan: CherryPlan, region: str, *, spot: bool = False) -> int:
    """How many can be had there now, of the spot market's where that is meant. Raises OutOfStock where the plan is not
    sold in that region at all, naming those where it is."""
    row = region_of(plan, region)
    if row is None:
        sold = ", ".join(each.slug or each.name for each in plan.available_regions[:10]) or "no region"
        raise OutOfStock(
            f"plan {plan.slug or plan.id} is not sold in region {region!r}; it is sold in {sold}", code="Region"
        )
    return max(0, row.spot_qty if spot else row.stock_qty)


def hourly(plan: CherryPlan, *, spot: bool = False) -> float | None:
    """What one machine costs per hour, None where the plan does not say.

    In the vendor's currency and, where both are listed, without value added tax: prices weigh groups against each
    other, and all of them by the same measure. A spot price is asked for by itself; that of an ordinary machine does
    not stand in for it, nor one by the month for one by the hour.
    """
    rows = [
        row
        for row in plan.pricing
        if row.unit.strip().casefold() == _UNITS[spot] and math.isfinite(row.price) and row.price > 0
    ]
    return min(rows, key=_order).price if rows else None


def _order(row: Pricing) -> tuple[bool, bool, float]:
    return row.currency.upper() != _CURRENCY, row.taxed, row.price
