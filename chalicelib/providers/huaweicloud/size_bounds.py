"""Which sizes a pool and its scale groups may have (huaweicloud-cce.md A6.1, A6.3, B5).

What the policy says of a pool or a group stands in place of what the pool says of itself. The pool's bounds hold for
all its groups together, the group's for its own nodes; a group that has none may be as large as the pool.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.providers.huaweicloud.models import NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.settings import CceBounds, CceSettings


class CceRange(msgspec.Struct, frozen=True):
    """The least and the most nodes. error: why these are none to work with."""

    min: int
    max: int
    error: str = ""


def entry_of_pool(pool: NodePool, settings: CceSettings) -> CceBounds | None:
    """The policy's entry for the pool, by uid or by name."""
    return _first(settings.groups, (pool.id, pool.name))


def entry_of_group(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceBounds | None:
    """The policy's entry for one scale group."""
    return _first(settings.groups, tuple(f"{of}/{group.name}" for of in (pool.id, pool.name) if of))


def _first(entries: Iterable[CceBounds], names: tuple[str, ...]) -> CceBounds | None:
    entries = tuple(entries)
    found = (each for name in names if name for each in entries if each.name == name)
    return next(found, None)


def is_ours(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> bool:
    """Whether the group is a node group: it is named itself, or it is switched on in a pool that is named or found. The
    pool's own flavour has no switch but the pool's, which naming the pool stands for."""
    if entry_of_group(pool, group, settings) is not None:
        return True
    if entry_of_pool(pool, settings) is not None:
        return group.enabled or group is pool.groups[0]
    return settings.discover and pool.autoscaling.enable and group.enabled


def pool_range(pool: NodePool, settings: CceSettings) -> CceRange:
    """The pool's bounds: the policy's, else its own. A pool whose autoscaling is off and of which the policy names a
    group alone is bounded by that group's entry."""
    entry, own = entry_of_pool(pool, settings) or CceBounds(pool.id), pool.autoscaling
    on = own.enable
    groups = [found for group in pool.groups if (found := entry_of_group(pool, group, settings)) is not None]
    least = entry.min if entry.min is not None else (own.min or 0) if on else 0
    most = entry.max if entry.max is not None else own.max if on else None
    if most is None and groups and all(each.max is not None for each in groups):
        most = -1
    if most is None:
        return CceRange(least, 0, "neither the pool nor the policy says how large it may be; write max in the policy")
    if 0 <= most < least:
        return CceRange(least, most, f"its minimum {least} is above its maximum {most}; correct the pool or the policy")
    return CceRange(least, most)


def group_range(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceRange:
    """The group's bounds within the pool's (`pool_range`, whose error is the group's, too). 0 as a group's own maximum
    means that it has none, as the vendor writes it. The only group of a pool has the pool's minimum."""
    whole, entry = pool_range(pool, settings), entry_of_group(pool, group, settings) or CceBounds(pool.id)
    sole = whole.min if len(pool.groups) == 1 else 0
    least = entry.min if entry.min is not None else max(group.min or 0, sole)
    own = entry.max if entry.max is not None else group.max or None
    most = own if own is not None else max(whole.max, 0)
    if whole.max >= 0:
        most = min(most, whole.max)
    error = whole.error
    if not error and least > most:
        error = f"its minimum {least} is above its maximum {most}; correct the scale group or the policy"
    return CceRange(least, max(most, 0), error)


def total_of(pool: NodePool) -> int:
    """What the pool's groups are to have, all together."""
    return sum(each.desired for each in pool.groups)


def is_settled(pool: NodePool) -> bool:
    """Whether the groups' sizes add up to the pool's: else one of the numbers is older than the other."""
    return total_of(pool) == pool.desired
