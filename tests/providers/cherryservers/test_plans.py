"""The stock of a plan in a region."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.providers.cherryservers.decoding import AvailableRegion, CherryPlan
from chalicelib.providers.cherryservers.node_template import stock_of
from chalicelib.providers.kit.errors import OutOfStock
from tests.cases import each_row
from tests.providers.cherryservers.emulated import PLAN


def plan(*regions: AvailableRegion, **more: Any) -> CherryPlan:
    return msgspec.structs.replace(
        msgspec.convert(PLAN, CherryPlan), **{"available_regions": regions} | more
    )


REGIONS = (
    AvailableRegion(id=1, slug="LT-Siauliai", name="Lithuania", stock_qty=4, spot_qty=1),
    AvailableRegion(id=4, slug="US-Chicago", name="United States"),
)


@each_row(
    ("region", "spot", "stock"),
    [
        ("LT-Siauliai", False, 4),
        ("LT-Siauliai", True, 1),
        ("Lithuania", False, 4),
        ("1", False, 4),
        ("US-Chicago", False, 0),
        ("United States", True, 0),
    ],
)
def test_cherry_plan_stock_is_found_by_slug_name_or_id(region: str, spot: bool, stock: int) -> None:
    assert stock_of(plan(*REGIONS), region, spot=spot) == stock


def test_cherry_plan_slug_takes_precedence_over_an_equal_name() -> None:
    odd = AvailableRegion(id=9, slug="other", name="US-Chicago", stock_qty=7)
    assert stock_of(plan(odd, *REGIONS), "US-Chicago") == 0


def test_cherry_plan_negative_stock_counts_as_zero() -> None:
    assert stock_of(plan(AvailableRegion(slug="a", stock_qty=-3)), "a") == 0


def test_cherry_plan_not_sold_in_a_region_is_reported_with_its_regions() -> None:
    with pytest.raises(
        OutOfStock,
        match=r"plan amd-ryzen-9950x is not sold in region 'eu_nord_1'; it is sold in "
        r"LT-Siauliai, US-Chicago",
    ):
        stock_of(plan(*REGIONS), "eu_nord_1")
    with pytest.raises(OutOfStock, match="it is sold in no region"):
        stock_of(plan(), "")
