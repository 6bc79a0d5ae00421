"""Rollout arithmetic that Deployments and MachineDeployments share, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class SetSize(msgspec.Struct, frozen=True):
    """The size of a set of one template: requested replicas and ready replicas."""

    name: str
    asked: int
    available: int


def share(value: int | str, of: int, *, up: bool) -> int:
    """Return maxSurge or maxUnavailable: an absolute number, or a percentage of the replicas, rounded up or down."""
    if isinstance(value, int):
        return value
    part = int(value.rstrip("%")) * of / 100
    return math.ceil(part) if up else math.floor(part)


def exchange(size: int, surge: int, unavailable: int, new: SetSize, old: Sequence[SetSize]) -> dict[str, int]:
    """Return the sizes to set now, by name: the new set grows as far as surge allows, old sets shrink as far as
    availability allows. Unavailable old replicas can always be removed."""
    if not old:
        return {new.name: size}
    asked = new.asked + sum(each.asked for each in old)
    sizes = {new.name: max(new.asked, min(size, new.asked + size + surge - asked))}
    spare = asked - (size - unavailable) - (new.asked - min(new.asked, new.available))
    for each in sorted(old, key=lambda s: s.name):
        fewer = min(each.asked, max(0, spare))
        spare -= fewer
        sizes[each.name] = each.asked - fewer
    return sizes
