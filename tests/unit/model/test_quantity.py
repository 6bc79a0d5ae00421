"""Quantities and durations: exactly what Kubernetes and Go accept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import (
    format_amount,
    format_duration,
    parse_amount,
    parse_duration,
    parse_quantity,
    quantity_text,
)
from chalicelib.model.timestamps import format_time, parse_time
from tests.cases import each_row


@each_row(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("1.5Gi", 1610612736),
        ("128Mi", 134217728),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1k", 1000),
        ("500m", 1),
        ("1.", 1),
        (".5Ki", 512),
        ("-1", -1),
        ("+2", 2),
        ("10E", 2**63 - 1),
        ("16Ei", 2**63 - 1),
        ("1n", 1),
    ],
)
def test_quantity_valid_values(text: str, value: int) -> None:
    assert parse_quantity(text) == value


@each_row(
    "text",
    [
        "1.5Gii",
        "",
        " 1",
        "1 ",
        "2K",
        "1mi",
        "1_000",
        "inf",
        "NaN",
        "1e",
        "0x1",
        "1Gi2",
        "--1",
        "1e999999999",
        "\u0661",
        "1e" + "9" * 5_000,
        "1e-" + "9" * 5_000,
        "1e-9999",
        "9" * 200_000,
        "1e9999",
        "0x" + "f" * 100,
        "1Ki\n",
        "\uff11",
    ],
)
def test_quantity_invalid_values(text: str) -> None:
    with pytest.raises(BadInput, match="quantity"):
        parse_quantity(text)


def test_quantity_error_does_not_repeat_a_long_text() -> None:
    with pytest.raises(BadInput) as raised:
        parse_quantity("1e" + "9" * 1_000_000)
    assert len(str(raised.value)) < 300


@each_row(
    ("value", "text"),
    [
        pytest.param(10**5_000, str(2**63 - 1), id="long"),
        pytest.param(-(10**5_000), str(-(2**63 - 1)), id="long-negative"),
        pytest.param(7, "7", id="whole"),
        pytest.param(1.5, "1.5", id="fraction"),
        pytest.param("2Gi", "2Gi", id="text"),
    ],
)
def test_quantity_of_any_length_is_printable(value: str | float, text: str) -> None:
    assert quantity_text(value) == text


@each_row("text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_timestamp_that_cannot_be_printed_again_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="time"):
        parse_time(text)


@each_row("instant", [1e300, -1e300, float("inf"), float("-inf")])
def test_timestamp_beyond_the_calendar_is_printed_as_its_end(instant: float) -> None:
    assert format_time(instant) in {"9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"}


def test_quantity_cpu_is_in_millicores_and_rounds_up() -> None:
    assert [parse_amount("cpu", t) for t in ("100m", "1", "0.0001", "1500u")] == [100, 1000, 1, 2]


@given(st.integers(0, 2**50))
def test_quantity_printed_cpu_round_trips(amount: int) -> None:
    assert parse_amount("cpu", format_amount("cpu", amount)) == amount


@each_row(
    ("text", "seconds"),
    [
        ("0", 0),
        ("10s", 10),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("-5m", -300),
        ("1us", 1e-6),
    ],
)
def test_duration_valid_values(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@each_row("text", ["", "10", "1d", "5 m", "m", "1h-5m", "1h,5m", "abc"])
def test_duration_invalid_values(text: str) -> None:
    with pytest.raises(BadInput, match="duration"):
        parse_duration(text)


@given(st.integers(0, 10**7))
def test_duration_printed_value_round_trips(seconds: int) -> None:
    assert parse_duration(format_duration(float(seconds))) == seconds


def test_timestamp_valid_values() -> None:
    assert (
        parse_time("2026-11-21T07:20:54Z")
        == parse_time("2026-11-21T08:20:54+01:00")
        == 1795245654.0
    )
    assert format_time(1795245654.9) == "2026-11-21T07:20:54Z"


@each_row("text", ["2026-11-21", "2026-11-21T07:20:54", "2026-13-01T00:00:00Z", "yesterday", ""])
def test_timestamp_invalid_values(text: str) -> None:
    with pytest.raises(BadInput, match="RFC 3339"):
        parse_time(text)
