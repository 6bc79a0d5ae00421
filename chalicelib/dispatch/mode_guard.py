"""The only reader of the mode in the code base (architecture §2, contract 5). That is what makes shadow mode true.

Whoever wants to plan, write or act asks here and gets a permission, not the mode. So there is one place to read when
the question is whether a cluster in shadow can possibly be touched.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.policy import Mode, Policy


class Permission(msgspec.Struct, frozen=True):
    """plan: look and explain. act: change the cluster and its infrastructure. word: the mode, only to be shown."""

    plan: bool
    act: bool
    word: str


_PERMISSIONS = {
    Mode.OFF: Permission(plan=False, act=False, word="off"),
    Mode.SHADOW: Permission(plan=True, act=False, word="shadow"),
    Mode.ACTIVE: Permission(plan=True, act=True, word="active"),
}


def permitted(policy: Policy) -> Permission:
    """What this policy allows, now."""
    return _PERMISSIONS[policy.mode]
