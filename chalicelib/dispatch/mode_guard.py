"""The only reader of the policy's mode in the code base, which is what guarantees that shadow mode changes nothing.

Code that plans, writes or acts asks here for a permission and never sees the mode. A review of whether a cluster in
shadow mode can be changed therefore has to read only this module.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.policy import Mode, Policy


class Permission(msgspec.Struct, frozen=True):
    """plan: read and explain. act: change the cluster and its infrastructure. word: the mode, for display only."""

    plan: bool
    act: bool
    word: str


_PERMISSIONS = {
    Mode.OFF: Permission(plan=False, act=False, word="off"),
    Mode.SHADOW: Permission(plan=True, act=False, word="shadow"),
    Mode.ACTIVE: Permission(plan=True, act=True, word="active"),
}


def permitted(policy: Policy) -> Permission:
    """Return what this policy permits now."""
    return _PERMISSIONS[policy.mode]
