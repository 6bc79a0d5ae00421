"""Stock and price of a plan."""

from __future__ import annotations

import math

from chalicelib.providers.cherryservers.models import AvailableRegion, CherryPlan, Pricing
from chalicelib.providers.errors import OutOfStock

_UNITS = {False: "hourly", True: "spot hourly"}
_CURRENCY = "EUR"  # the vendor's currency, used if a plan has prices in several


def region_of(plan: CherryPlan, region: str) -> AvailableRegion | None:
    """Return the plan's entry for a region, matched by slug, then name or id; None if the plan is not sold there."""
    rows = plan.available_regions
    for keys in (lambda row: (row.slug,), lambda row: (row.name, str(row.id))):
        for row in rows:
            if region in keys(row):
                return row
    return None


def stock_of(plan: CherryPlan, region: str, *, spot: bool = False) -> int:
    """Return the stock in the region, or that of its spot market.

    Raises OutOfStock naming the plan's regions if it is not sold in this one."""
    row = region_of(plan, region)
    if row is None:
        sold = ", ".join(each.slug or each.name for each in plan.available_regions[:10]) or "no region"
        raise OutOfStock(
            f"plan {plan.slug or plan.id} is not sold in region {region!r}; it is sold in {sold}", code="Region"
        )
    return max(0, row.spot_qty if spot else row.stock_qty)


def hourly(plan: CherryPlan, *, spot: bool = False) -> float | None:
    """Return the price of one server per hour, None if the plan has none.

    The price is in the vendor's currency and, if both are listed, without value added tax, because prices are only
    compared between groups. A spot price is a separate entry. The ordinary price does not replace it, and a monthly
    price does not replace an hourly one.
    """
    rows = [
        row
        for row in plan.pricing
        if row.unit.strip().casefold() == _UNITS[spot] and math.isfinite(row.price) and row.price > 0
    ]
    return min(rows, key=_order).price if rows else None


def _order(pricing: Pricing) -> tuple[bool, bool, float]:
    return pricing.currency.upper() != _CURRENCY, pricing.taxed, pricing.price
