"""Price of a machine per hour."""

from __future__ import annotations

import msgspec

from chalicelib.providers.cherryservers.decoding import CherryPlan, Pricing
from chalicelib.providers.cherryservers.node_template import hourly
from tests.cases import each_row
from tests.providers.cherryservers.emulated import PLAN

EUR = "EUR"


@each_row(
    ("rows", "plain", "spot"),
    [
        (
            (
                Pricing(0.1016, currency=EUR, unit="Hourly"),
                Pricing(0.0812, currency=EUR, unit="Spot hourly"),
            ),
            0.1016,
            0.0812,
        ),
        (
            (
                Pricing(0.1016, currency=EUR, unit="Hourly"),
                Pricing(50.0, currency=EUR, unit="Monthly"),
            ),
            0.1016,
            None,
        ),
        ((Pricing(50.0, currency=EUR, unit="Monthly"),), None, None),
        ((), None, None),
        ((Pricing(0.0, unit="Hourly"), Pricing(-1.0, unit="Spot hourly")), None, None),
        (
            (Pricing(float("inf"), unit="Hourly"), Pricing(float("nan"), unit="Spot hourly")),
            None,
            None,
        ),
        ((Pricing(0.2, unit=" HOURLY "),), 0.2, None),
        ((Pricing(0.121, taxed=True, unit="Hourly"), Pricing(0.1, unit="Hourly")), 0.1, None),
        (
            (
                Pricing(0.05, taxed=True, currency=EUR, unit="Hourly"),
                Pricing(0.1, currency=EUR, unit="Hourly"),
            ),
            0.1,
            None,
        ),
        (
            (
                Pricing(0.09, currency="USD", unit="Hourly"),
                Pricing(0.1, currency=EUR, unit="Hourly"),
            ),
            0.1,
            None,
        ),
        ((Pricing(0.121, taxed=True, unit="Hourly"),), 0.121, None),
    ],
    ids=[
        "both",
        "no-spot",
        "monthly-only",
        "none",
        "nothing",
        "nonsense",
        "case",
        "untaxed",
        "untaxed-though-dearer",
        "own-currency",
        "taxed-only",
    ],
)
def test_cherry_price_per_hour(
    rows: tuple[Pricing, ...], plain: float | None, spot: float | None
) -> None:
    for some in (rows, rows[::-1]):
        plan = CherryPlan(slug="a", pricing=some)
        stated = [hourly(plan, spot=False), hourly(plan, spot=True)]
        assert [price and price[0] for price in stated] == [plain, spot]


def test_cherry_price_of_the_example_plan() -> None:
    plan = msgspec.convert(PLAN, CherryPlan)
    assert (hourly(plan), hourly(plan, spot=True)) == ((0.4932, "EUR"), (0.37, "EUR"))


@each_row(
    ("currency", "expected"),
    [("EUR", "EUR"), (" usd ", "USD"), ("", ""), ("€", ""), ("EURO", ""), ("E\x1bR", "")],
)
def test_cherry_price_states_a_currency_by_its_code_only(currency: str, expected: str) -> None:
    plan = CherryPlan(slug="a", pricing=(Pricing(0.2, currency=currency, unit="Hourly"),))
    assert hourly(plan) == (0.2, expected)
