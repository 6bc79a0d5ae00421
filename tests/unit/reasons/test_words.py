"""Words that everything that speaks has in common."""

from __future__ import annotations

import pytest

from chalicelib.reasons.words import ago, counted, money, some


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "node") == text


@pytest.mark.parametrize(
    ("names", "text"),
    [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")],
)
def test_a_list_shows_its_first_names_and_counts_the_others(names: str, text: str) -> None:
    assert some(list(names)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00 EUR"), (0.1, "0.10 EUR"), (0.0123, "0.012 EUR"), (-2.5, "-2.50 EUR")],
)
def test_an_amount_has_cents_or_two_digits_of_a_smaller_one(value: float, text: str) -> None:
    assert money(value, "EUR") == text
    assert money(value, "") == text.removesuffix(" EUR")


def test_an_instant_lies_before_or_after_now_or_never_was() -> None:
    assert ago(100.0, 410.0) == "5m10s ago"
    assert ago(430.0, 410.0) == "in 20s"
    assert ago(0.0, 410.0) == "never"
