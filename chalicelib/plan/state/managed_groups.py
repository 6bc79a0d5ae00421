"""Groups of spec.managedPools in a pass: those that exist, and those that could be opened."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.snapshot import Snapshot

MOST_IN_VAIN = 3
"""Groups of a declaration with the same failure after which no further one is tried: the cause is
then not the machine type."""
MOST_CANDIDATES = 5000
"""Groups of a snapshot that could be opened; the cheapest are used of more."""


def with_candidates(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the groups that could be opened among its groups, so that memory,
    back-off and learning of a candidate are those of its group."""
    if not snapshot.candidates:
        return snapshot
    groups = sorted([*snapshot.groups, *used_candidates(snapshot)], key=lambda group: group.id)
    return msgspec.structs.replace(snapshot, groups=tuple(groups))


def used_candidates(snapshot: Snapshot) -> list[NodeGroup]:
    """Return the candidates with which a plan is made."""
    existing = {group.id for group in snapshot.groups}
    new = [group for group in snapshot.candidates if group.id not in existing]
    if len(new) > MOST_CANDIDATES:
        new = sorted(new, key=lambda group: (group.price, group.id))[:MOST_CANDIDATES]
    return new


def is_candidate(group: NodeGroup) -> bool:
    """Return whether it is a group that Outscaler could open and the vendor does not have."""
    return group.managed is not None and not group.managed.exists


def declaration_of(group: NodeGroup) -> str:
    """Return the managed pool of a group, "" for a group that somebody else has made."""
    return group.managed.choice.declaration if group.managed is not None else ""


def open_groups(groups: Iterable[NodeGroup]) -> dict[str, set[str]]:
    """Return declaration -> its groups that exist."""
    opened: dict[str, set[str]] = {}
    for group in groups:
        if group.managed is not None and group.managed.exists:
            opened.setdefault(declaration_of(group), set()).add(group.id)
    return opened
