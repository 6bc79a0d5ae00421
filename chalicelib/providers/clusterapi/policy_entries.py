"""Matches entries of the policy's nodeGroups to resources.

A user may write `MachineDeployment/ns/name`, `ns/name` or just `name`; the last two must match one resource only. An
entry that matches several is refused for all of them, because a guess could give a group another group's maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.policy import GroupPolicy
from chalicelib.model.snapshot import MissingData

_SHOWN = 5


class Overrides(msgspec.Struct, frozen=True):
    """by_group: group id -> its entry. contested: group id -> why it must not be changed."""

    by_group: dict[str, GroupPolicy]
    contested: dict[str, str] = {}
    gaps: tuple[MissingData, ...] = ()


def speaks_of(group_policy: GroupPolicy, group: str) -> bool:
    """Whether an entry's id may refer to this group (`Kind/namespace/name`)."""
    return group_policy.id == group or group.endswith(f"/{group_policy.id}")


def resolve(entries: Sequence[GroupPolicy], groups: Iterable[str], paused: Iterable[str] = ()) -> Overrides:
    """Match the entries to the ids of discovered resources; paused ones are included, although they are not groups."""
    known, resting = sorted(groups), sorted(paused)
    by_group: dict[str, GroupPolicy] = {}
    contested: dict[str, str] = {}
    gaps = []
    for entry in entries:
        fits = [group for group in known if speaks_of(entry, group)]
        if len(fits) > 1:
            problem = f"nodeGroups entry {entry.id!r} fits {', '.join(fits)}; write one of these in full"
            contested.update(dict.fromkeys(fits, problem))
            gaps.append(_gap(entry, problem))
        elif not fits:
            gaps.append(_gap(entry, _not_found(entry, known, resting)))
        elif fits[0] in by_group:
            gaps.append(_gap(entry, f"{fits[0]} already has the entry {by_group[fits[0]].id!r}; remove one of the two"))
        else:
            by_group[fits[0]] = entry
    return Overrides(by_group, contested, tuple(gaps))


def _not_found(group_policy: GroupPolicy, known: Sequence[str], resting: Sequence[str]) -> str:
    paused = [group for group in resting if speaks_of(group_policy, group)]
    if paused:
        return f"{paused[0]} is paused, so it is left alone"
    shown = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"no such MachineDeployment, MachineSet or MachinePool in this cluster; there are: {shown or 'none'}"


def _gap(group_policy: GroupPolicy, detail: str) -> MissingData:
    return MissingData(
        "NodeGroup", detail, name=group_policy.id, place=f"spec.nodeGroups[provider=clusterapi, id={group_policy.id}]"
    )
