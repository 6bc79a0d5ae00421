"""Tables of cases in one test: every row is tried, and a failed row is named."""

from __future__ import annotations

import inspect

import pytest

from tests.cases import each_row


def test_every_row_of_every_table_is_tried() -> None:
    seen = []

    @each_row("number", [1, 2])
    @each_row(("letter", "word"), [("a", "x"), pytest.param("b", "y", id="second")])
    def check(number: int, letter: str, word: str) -> None:
        seen.append((number, letter, word))

    check()
    assert seen == [(1, "a", "x"), (1, "b", "y"), (2, "a", "x"), (2, "b", "y")]


def test_failed_case_is_named_and_the_remaining_cases_are_tried() -> None:
    @each_row("number", [1, 2, 3], ids=["one", "two", "three"])
    def check(number: int) -> None:
        assert number == 2

    with pytest.raises(ExceptionGroup, match="2 of 3 rows failed") as caught:
        check()
    assert [error.__notes__ for error in caught.value.exceptions] == [["row one"], ["row three"]]


def test_one_failed_row_raises_its_own_error() -> None:
    @each_row("number", [1, 2])
    def check(number: int) -> None:
        if number == 2:
            raise ValueError(number)

    with pytest.raises(ValueError, match="2") as caught:
        check()
    assert caught.value.__notes__ == ["row 2"]


def test_fixtures_remain_parameters_of_the_test() -> None:
    @each_row("number", [1])
    def check(number: int, tmp_path: str) -> None:
        assert (number, tmp_path) == (1, "place")

    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    check(tmp_path="place")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="proves nothing"):
        each_row("number", [])
