"""What each mode permits; that nobody else reads the mode is tests/unit/test_house.py."""

from __future__ import annotations

from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.policy import Mode, Policy
from tests.cases import each_row


@each_row(
    ("mode", "plan", "act"),
    [
        (Mode.OFF, False, False),
        (Mode.SHADOW, True, False),
        (Mode.ACTIVE, True, True),
    ],
)
def test_what_each_mode_permits(mode: Mode, plan: bool, act: bool) -> None:
    permission = permitted(Policy(name="shop", mode=mode))
    assert (permission.plan, permission.act, permission.word) == (plan, act, mode.value)
