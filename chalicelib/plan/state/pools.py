"""Pools: combines the node groups of a vendor's pool, and treats every other
group as a pool of its own.

Rules name pools, limits apply to pools, and a pool counts as scaling while any of its groups does.
See docs/reference/node-groups.md "Pools".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.spot_groups import names_of


class PoolFacts(msgspec.Struct, frozen=True):
    """One pool in this pass. groups: ids, sorted. size: targets of all of them, and the pool's
    nodes in other groups. max: -1 if there is none. whole: it includes all groups of the vendor's
    pool, not only one that was named."""

    id: str
    name: str
    groups: tuple[str, ...]
    min: int
    max: int
    size: int
    whole: bool = True


def pool_id(group: NodeGroup) -> str:
    """Return the id of a group's pool; a group without one is its own pool."""
    return group.pool.id if group.pool is not None else group.id


def pools(state: ClusterState) -> dict[str, PoolFacts]:
    """Return every pool by its id."""
    members: dict[str, list[str]] = {}
    for name, group in sorted(state.groups.items()):
        members.setdefault(group.group.pool.id if group.group.pool else name, []).append(name)
    return {name: _pool(name, groups, state) for name, groups in members.items()}


def rooms(groups: Mapping[str, NodeGroupState]) -> dict[str, int]:
    """Return pool -> how many more nodes its maximum allows, for every pool that has one;
    negative if it is exceeded."""
    room: dict[str, int] = {}
    most: dict[str, int] = {}
    for group in groups.values():
        pool = group.group.pool
        if pool is not None and pool.max >= 0:
            room[pool.id] = room.get(pool.id, -pool.elsewhere) - max(0, group.target)
            most[pool.id] = min(pool.max, most.get(pool.id, pool.max))
    return {name: most[name] + negative for name, negative in room.items()}


def spares(
    groups: Mapping[str, NodeGroupState], size: Callable[[NodeGroupState], int]
) -> dict[str, int]:
    """Return pool -> how many nodes it has above its minimum, for every pool that has one. size:
    how many nodes of a group count."""
    total: dict[str, int] = {}
    least: dict[str, int] = {}
    for group in groups.values():
        pool = group.group.pool
        if pool is not None and pool.min > 0:
            total[pool.id] = total.get(pool.id, pool.elsewhere) + size(group)
            least[pool.id] = max(pool.min, least.get(pool.id, 0))
    return {name: nodes - least[name] for name, nodes in total.items()}


def at_minimum(group: NodeGroup, spare: Mapping[str, int]) -> Reason | None:
    """Return why its pool's minimum prevents removals from a group. spare: from `spares`."""
    pool = group.pool
    if pool is None or spare.get(pool.id, 1) > 0:
        return None
    return Reason.of(ReasonCode.POOL_MIN_SIZE, pool=pool.name or pool.id, min=pool.min)


class PoolNames:
    """Finds pools by any name that users and rules use. Create it once for many look-ups: rules can
    have thousands of names."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._pools = state, pools(state)
        # name -> pool -> the groups with that name
        self._other_names: dict[str, dict[str, list[str]]] = {}
        for pool in self._pools.values():
            for group in pool.groups:
                for name in names_of(state.groups[group].group):
                    self._other_names.setdefault(name, {}).setdefault(pool.id, []).append(group)

    def find(self, name: str) -> PoolFacts | None:
        """Return the pool with this id or name, or with a group of this id, name, last part of the
        id, or alias; None: there is none, or several.

        If the name identifies only one group of a pool, the result is that group alone.
        """
        if name in self._pools:
            return self._pools[name]
        if name in self._state.groups:
            return _pool(name, [name], self._state)
        named = self._other_names.get(name, {})
        if len(named) != 1:
            return None
        ((pool, groups),) = named.items()
        alone = len(groups) == 1 and len(self._pools[pool].groups) > 1
        return _pool(groups[0], groups, self._state) if alone else self._pools[pool]


def _pool(name: str, names: list[str], state: ClusterState) -> PoolFacts:
    groups = [state.groups[group] for group in names]
    shared = groups[0].group.pool
    if shared is None or name != shared.id:
        (only,) = groups
        return PoolFacts(
            name, "", (name,), only.group.min, only.group.max, only.target, whole=shared is None
        )
    size = shared.elsewhere + sum(group.target for group in groups)
    return PoolFacts(name, shared.name, tuple(names), shared.min, shared.max, size)
