"""Quantities and durations: what Kubernetes and Go accept, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import format_amount, format_duration, parse_amount, parse_duration, parse_quantity
from chalicelib.model.times import format_time, parse_time


@pytest.mark.parametrize(("text", "value"), [
    ("0", 0), ("1", 1), ("1.5Gi", 1610612736), ("128Mi", 134217728), ("1e3", 1000), ("1E3", 1000), ("1k", 1000),
    ("500m", 1), ("1.", 1), (".5Ki", 512), ("-1", -1), ("+2", 2), ("10E", 2**63 - 1), ("16Ei", 2**63 - 1), ("1n", 1),
])
def test_quantities(text: str, value: int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["1.5Gii", "", " 1", "1 ", "2K", "1mi", "1_000", "inf", "NaN", "1e", "0x1", "1Gi2",
                                  "--1", "1e999999999", "\u0661"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(BadInput, match="quantity"):
        parse_quantity(text)


def test_cpu_is_in_millicores_and_rounds_up() -> None:
    assert [parse_amount("cpu", t) for t in ("100m", "1", "0.0001", "1500u")] == [100, 1000, 1, 2]


@given(st.integers(0, 2**50))
def test_a_printed_amount_of_cpu_reads_back(amount: int) -> None:
    assert parse_amount("cpu", format_amount("cpu", amount)) == amount


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("10s", 10), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5),
                                               ("-5m", -300), ("1us", 1e-6)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "1d", "5 m", "m", "1h-5m", "1h,5m", "abc"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadInput, match="duration"):
        parse_duration(text)


@given(st.integers(0, 10**7))
def test_a_printed_duration_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(float(seconds))) == seconds


def test_times() -> None:
    assert parse_time("2026-11-21T07:20:54Z") == parse_time("2026-11-21T08:20:54+01:00") == 1795245654.0
    assert format_time(1795245654.9) == "2026-11-21T07:20:54Z"


@pytest.mark.parametrize("text", ["2026-11-21", "2026-11-21T07:20:54", "2026-13-01T00:00:00Z", "yesterday", ""])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadInput, match="RFC 3339"):
        parse_time(text)
