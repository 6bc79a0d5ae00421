"""Computes the size bounds of a pool and its scale groups.

The policy's values for a pool or a group replace the pool's own. The pool's bounds apply to all its groups together,
the group's to its own nodes; a group without bounds may be as large as the pool.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.policy.vendors.huaweicloud import CceBounds, CceSettings
from chalicelib.providers.huaweicloud.models import NodePool, ScaleGroup


class CceRange(msgspec.Struct, frozen=True):
    """The minimum and maximum number of nodes. error: why these bounds are unusable."""

    min: int
    max: int
    error: str = ""


def entry_of_pool(pool: NodePool, settings: CceSettings) -> CceBounds | None:
    """Return the policy's entry for the pool, by uid or by name."""
    return _first(settings.groups, (pool.id, pool.name))


def entry_of_group(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceBounds | None:
    """Return the policy's entry for one scale group."""
    return _first(settings.groups, tuple(f"{of}/{group.name}" for of in (pool.id, pool.name) if of))


def _first(entries: Iterable[CceBounds], names: tuple[str, ...]) -> CceBounds | None:
    entries = tuple(entries)
    found = (each for name in names if name for each in entries if each.name == name)
    return next(found, None)


def is_ours(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> bool:
    """Whether the group is a node group: it is named itself, or it is enabled in a pool that is named or discovered.

    The pool's own flavour has only the pool's switch, and naming the pool enables it."""
    if entry_of_group(pool, group, settings) is not None:
        return True
    if entry_of_pool(pool, settings) is not None:
        return group.enabled or group is pool.groups[0]
    return settings.autodiscovery and pool.autoscaling.enable and group.enabled


def pool_range(pool: NodePool, settings: CceSettings) -> CceRange:
    """Return the pool's bounds: the policy's, otherwise its own.

    If the pool's autoscaling is off and the policy names only one of its groups, that group's entry applies."""
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
    """Return the group's bounds within the pool's (`pool_range`, whose error applies to the group too).

    A group's own maximum of 0 means that it has none, as the vendor writes it. The only group of a pool has the pool's
    minimum."""
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
    """Return the sum of the desired sizes of the pool's groups."""
    return sum(each.desired for each in pool.groups)


def is_settled(pool: NodePool) -> bool:
    """Whether the groups' sizes add up to the pool's; otherwise one of the numbers is outdated."""
    return total_of(pool) == pool.desired
