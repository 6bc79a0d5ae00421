"""Applies a policy's size bounds to groups that come from a file, as a provider does for its own groups.

A saved cluster does not record which provider each group will have, so a group is found only by its id or by another
name that it is saved with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.snapshot import Snapshot

_NAMED = 10


def with_bounds(
    snapshot: Snapshot, wanted: tuple[GroupPolicy, ...], *, place: str, warn: Callable[[str], None]
) -> Snapshot:
    """Return the snapshot with the bounds and priorities of the policy; values that the policy omits stay as saved.

    place: the policy's file. warn: called for each group that the snapshot does not have. Raises BadInput for bounds
    that contradict the saved ones.
    """
    by_id = {group.id: group for group in wanted}
    saved = {group.id for group in snapshot.groups}
    known = saved.union(*(group.aliases for group in snapshot.groups))
    for name in by_id:
        if name not in known:
            warn(f"{place}: spec.nodeGroups: {name} is not a group of this snapshot; {_those_there(sorted(saved))}")
    groups = tuple(_bounded(group, _entry_of(group, by_id), place) for group in snapshot.groups)
    return msgspec.structs.replace(snapshot, groups=groups)


def _entry_of(group: NodeGroup, by_id: Mapping[str, GroupPolicy]) -> GroupPolicy | None:
    """Find the entry by the group's id, otherwise by one of its other names."""
    return next((by_id[name] for name in (group.id, *group.aliases) if name in by_id), None)


def _bounded(group: NodeGroup, policy: GroupPolicy | None, place: str) -> NodeGroup:
    if policy is None:
        return group
    least = group.min if policy.min is None else policy.min
    most = group.max if policy.max is None else policy.max
    if most < least:
        side, other = ("max", "min") if policy.max is None else ("min", "max")
        problem = (
            f"max {most} of the snapshot is below min {least}"
            if side == "max"
            else f"{other} {most} is below min {least} of the snapshot"
        )
        raise BadInput(f"{place}: spec.nodeGroups: {group.id}", problem, f"give {side} as well")
    return msgspec.structs.replace(group, min=least, max=most, priority=policy.priority or group.priority)


def _those_there(names: list[str]) -> str:
    if not names:
        return "it has none"
    return f"its groups are {', '.join(names[:_NAMED])}{' …' if len(names) > _NAMED else ''}"
