"""Selects the scale groups that are node groups, and the policy's entries that match nothing.

    a pool with autoscaling on     its enabled groups; the others count into Pool.elsewhere
    a pool with autoscaling off    only what the policy names
    the default pool, prepaid pools and those being deleted     not changed, and their nodes belong to no group

A name matches at most one pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.policy.vendors.huaweicloud import CceBounds, CceSettings
from chalicelib.providers.huaweicloud.instance_states import alone
from chalicelib.providers.huaweicloud.models import NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.size_bounds import entry_of_group, entry_of_pool, is_ours


class CceSelection(msgspec.Struct, frozen=True):
    """A pool with those of its groups that are node groups. error: why it must not be changed."""

    pool: NodePool
    groups: tuple[ScaleGroup, ...]
    error: str = ""

    @property
    def elsewhere(self) -> int:
        """The desired nodes of its other groups."""
        return sum(each.desired for each in self.pool.groups if each not in self.groups)


def choose(pools: Sequence[NodePool], settings: CceSettings) -> tuple[CceSelection, ...]:
    """Return the pools that have node groups, by name and uid.

    A pool that cannot be decoded but has a uid is included, because it may be one of them."""
    names = Counter(pool.name for pool in pools if pool.name)
    chosen = []
    for pool in sorted(pools, key=lambda pool: (pool.name, pool.id)):
        if pool.error or alone(pool):
            continue
        groups = tuple(each for each in pool.groups if is_ours(pool, each, settings))
        if not groups:
            continue
        entries = [entry_of_pool(pool, settings), *(entry_of_group(pool, each, settings) for each in groups)]
        doubtful = names[pool.name] > 1 and any(_by_name(each, pool) for each in entries)
        error = f"{names[pool.name]} pools are called {pool.name}; write the uid of one" if doubtful else ""
        chosen.append(CceSelection(pool, groups, error))
    return tuple(chosen)


def unread(pools: Iterable[NodePool], settings: CceSettings) -> tuple[NodePool, ...]:
    """Return pools that cannot be decoded and may have node groups: all if pools are discovered, otherwise the named
    ones."""
    return tuple(
        pool
        for pool in pools
        if pool.error
        and pool.id
        and (
            settings.autodiscovery
            or entry_of_pool(pool, settings) is not None
            or any(entry.name.startswith(f"{pool.id}/") for entry in settings.groups)
        )
    )


def unmatched(pools: Sequence[NodePool], settings: CceSettings) -> tuple[tuple[str, str], ...]:
    """Return the policy's entries that match no pool, with a remedy."""
    found = []
    for entry in settings.groups:
        name, _, group = entry.name.partition("/")
        meant = [pool for pool in pools if name in {pool.id, pool.name}]
        if not meant:
            found.append((entry.name, f"there is no node pool {name} in the cluster; correct it, or take it out"))
        for pool in meant:
            if text := "" if pool.error else alone(pool):
                found.append((entry.name, f"node pool {name} {text}; take it out of the policy"))
            elif group and not pool.error and pool.group(group) is None:
                names = ", ".join(each.name for each in pool.groups)
                found.append((entry.name, f"node pool {name} has no scale group {group}; it has {names}"))
    return tuple(found)


def _by_name(bounds: CceBounds | None, pool: NodePool) -> bool:
    return bounds is not None and bounds.name.partition("/")[0] != pool.id
