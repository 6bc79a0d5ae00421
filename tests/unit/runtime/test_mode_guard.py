"""Permissions of each mode. tests/unit/test_project_rules.py checks that no
other module reads the mode.
"""

from __future__ import annotations

from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.runtime.mode_guard import permitted
from tests.cases import each_row


@each_row(
    ("mode", "plan", "act"),
    [
        (Mode.OFF, False, False),
        (Mode.SHADOW, True, False),
        (Mode.ACTIVE, True, True),
    ],
)
def test_mode_guard_permissions_of_each_mode(mode: Mode, plan: bool, act: bool) -> None:
    permission = permitted(Policy(name="shop", mode=mode))
    assert (permission.plan, permission.act, permission.word) == (plan, act, mode.value)
