"""The only reader of the policy's mode in the code base, which is what guarantees that
shadow mode changes nothing.

Code that plans, writes or acts asks here for a permission and never sees the mode. A review of
whether a cluster in shadow mode can be changed therefore has to read only this module.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import OperationKind
from chalicelib.model.pause import of_growth, of_removals, whole
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode


class Permission(msgspec.Struct, frozen=True):
    """plan: read and explain. act: change the cluster and its infrastructure. word: the mode, for
    display only. paused: the cluster would act, but an operator has paused it. take_back: remove
    from nodes what passes have written there while they acted, and nothing else; the only change
    that a mode permits which does not act."""

    plan: bool
    act: bool
    word: str
    paused: bool = False
    take_back: bool = False


_PERMISSIONS = {
    Mode.OFF: Permission(plan=False, act=False, word="off", take_back=True),
    Mode.SHADOW: Permission(plan=True, act=False, word="shadow", take_back=True),
    Mode.ACTIVE: Permission(plan=True, act=True, word="active"),
}


def permitted(policy: Policy) -> Permission:
    """Return what this policy permits now. A pause of the whole cluster
    permits what mode shadow does."""
    permission = _PERMISSIONS[policy.mode]
    if permission.act and whole(policy.pauses) is not None:
        return msgspec.structs.replace(permission, act=False, paused=True)
    return permission


def refusal(policy: Policy, kind: OperationKind, group: str) -> str:
    """Return why an operation of this kind on this group must not go on; "" where it may."""
    permission = permitted(policy)
    if not permission.act and not permission.paused:
        return f"the cluster's mode is {permission.word}"
    of_kind = of_growth if kind is OperationKind.SCALE_UP else of_removals
    pause = whole(policy.pauses) or of_kind(policy.pauses, group)
    return f"paused until {format_time(pause.until)}: {pause.reason}" if pause is not None else ""
