"""spec.nodeGroups: bounds and priorities of groups."""

from __future__ import annotations

import msgspec


class GroupPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of spec.nodeGroups: bounds and priority for the group with the provider's `id`."""

    provider: str
    id: str
    min: int | None = None
    max: int | None = None
    priority: int = 0
