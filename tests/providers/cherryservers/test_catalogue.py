"""The list of plans: pages, rows that cannot be read, prices and stock that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.catalogue import CatalogueEntry
from chalicelib.providers.cherryservers.catalogue import read_catalogue
from chalicelib.providers.kit.errors import ProviderError, Transient, Unknown
from infra.emulators.vendor_common.http_messages import Answer, scripted
from tests.providers.cherryservers.emulated import PLAN, EmulatedCloud


def plan(number: int, **fields: Any) -> dict[str, Any]:
    return PLAN | {"id": number, "slug": f"plan-{number}"} | fields


def page(*rows: object, total: int | None = None) -> Answer:
    headers = {} if total is None else {"X-Total-Count": str(total)}
    return scripted(200, list(rows), headers)


def entries(*answers: Answer) -> tuple[CatalogueEntry, ...]:
    cloud = EmulatedCloud()
    cloud.server.reply("/v1/plans", *answers)
    return read_catalogue(cloud.api(), "EUR").entries


def names(*answers: Answer) -> list[str]:
    return sorted({entry.name for entry in entries(*answers)})


def test_pages_of_plans_are_read_to_the_stated_total() -> None:
    pages = page(plan(1), plan(2), total=3), page(plan(3), total=3)
    assert names(*pages) == ["plan-1", "plan-2", "plan-3"]


def test_list_of_plans_that_changes_while_it_is_read_is_an_error() -> None:
    with pytest.raises(Transient, match="the list changes"):
        names(*[page(plan(1), total=2), page(total=2)] * 2)


ODD_ROWS = {
    "no object": 7,
    "null": None,
    "no id": {"slug": "plan-9", "specs": PLAN["specs"]},
    "negative id": plan(-1),
    "no slug": plan(9, slug=""),
    "no cores": plan(9, specs={**PLAN["specs"], "cpus": {"cores": 0}}),
    "no memory": plan(9, specs={**PLAN["specs"], "memory": {"total": 0, "unit": "GB"}}),
    "unknown unit": plan(9, specs={**PLAN["specs"], "memory": {"total": 8, "unit": "parsec"}}),
    "not sold": plan(9, available_regions=[]),
}


@pytest.mark.parametrize("row", ODD_ROWS.values(), ids=ODD_ROWS)
def test_plan_that_cannot_be_read_or_bought_hides_no_other(row: object) -> None:
    assert names(page(plan(1), row, plan(2), total=3)) == ["plan-1", "plan-2"]


@pytest.mark.parametrize("body", [{}, {"plans": []}, "plans", None])
def test_answer_that_is_no_list_of_plans_is_an_error(body: object) -> None:
    with pytest.raises(ProviderError) as raised:
        entries(scripted(200, body))
    assert isinstance(raised.value, Unknown | Transient)


def test_stock_below_zero_counts_as_none_and_foreign_prices_are_left_out() -> None:
    region = {"id": 1, "slug": "LT-Siauliai", "name": "Lithuania", "stock_qty": -4, "spot_qty": 2}
    prices = [{"price": 0.2, "currency": "USD", "unit": "Hourly"},
              {"price": 0.1, "currency": "EUR", "unit": "Spot hourly"}]  # fmt: skip
    [entry] = entries(page(plan(1, available_regions=[region], pricing=prices), total=1))
    assert (entry.zone, entry.stock, entry.spot_stock) == ("LT-Siauliai", 0, 2)
    assert (entry.price, entry.spot_price) == (None, 0.1)
