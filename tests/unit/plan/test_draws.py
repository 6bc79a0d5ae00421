"""Draws are the published generator's, so that a plan is the same wherever it is made."""

from __future__ import annotations

from chalicelib.plan.draws import Draws


def test_draws_are_those_of_splitmix64() -> None:
    draws = Draws(1234567)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]     # the reference's first outputs
    assert [draws.random() for _ in expected] == [(each >> 11) * 2.0**-53 for each in expected]
