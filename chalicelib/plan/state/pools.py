"""Pools: the node groups of a vendor's pool seen together, and every other group as a pool of its own (A2, A6).

Rules name pools, bounds hold for pools, and a pool is scaling while any of its groups is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState


class PoolFacts(msgspec.Struct, frozen=True):
    """One pool in this pass. groups: ids, sorted. size: targets of all of them, and what the pool has elsewhere. max:
    -1 where there is none. whole: it has all groups of the vendor's pool, and not only one that was named."""

    id: str
    name: str
    groups: tuple[str, ...]
    min: int
    max: int
    size: int
    whole: bool = True


def pools(world: ClusterState) -> dict[str, PoolFacts]:
    """Every pool by its id."""
    members: dict[str, list[str]] = {}
    for name, facts in sorted(world.groups.items()):
        members.setdefault(facts.group.pool.id if facts.group.pool else name, []).append(name)
    return {name: _pool(name, groups, world) for name, groups in members.items()}


def rooms(groups: Mapping[str, NodeGroupState]) -> dict[str, int]:
    """Pool -> how many more nodes its maximum allows, for every pool that has one; negative where it is passed."""
    found: dict[str, int] = {}
    most: dict[str, int] = {}
    for facts in groups.values():
        pool = facts.group.pool
        if pool is not None and pool.max >= 0:
            found[pool.id] = found.get(pool.id, -pool.elsewhere) - max(0, facts.target)
            most[pool.id] = min(pool.max, most.get(pool.id, pool.max))
    return {name: most[name] + room for name, room in found.items()}


def spares(groups: Mapping[str, NodeGroupState], size: Callable[[NodeGroupState], int]) -> dict[str, int]:
    """Pool -> how many nodes it has above its minimum, for every pool that has one. size: what counts of a group."""
    found: dict[str, int] = {}
    least: dict[str, int] = {}
    for facts in groups.values():
        pool = facts.group.pool
        if pool is not None and pool.min > 0:
            found[pool.id] = found.get(pool.id, pool.elsewhere) + size(facts)
            least[pool.id] = max(pool.min, least.get(pool.id, 0))
    return {name: size - least[name] for name, size in found.items()}


def at_minimum(group: NodeGroup, spare: Mapping[str, int]) -> Reason | None:
    """Why nothing may be removed from a group for its pool's sake (A6.1, A8.3). spare: from `spares`."""
    pool = group.pool
    if pool is None or spare.get(pool.id, 1) > 0:
        return None
    return Reason.of(ReasonCode.POOL_MIN_SIZE, pool=pool.name or pool.id, min=pool.min)


class PoolNames:
    """Pools by whatever people and rules call them. Made once where many names are asked for: rules have thousands."""

    def __init__(self, world: ClusterState) -> None:
        self._world, self._pools = world, pools(world)
        self._called: dict[str, dict[str, list[str]]] = {}  # another name -> pool -> the groups that it means
        for pool in self._pools.values():
            for group in pool.groups:
                for name in {pool.name, *world.groups[group].group.aliases} - {""}:
                    self._called.setdefault(name, {}).setdefault(pool.id, []).append(group)

    def find(self, name: str) -> PoolFacts | None:
        """The pool that is meant: by its id or name, or by a group's id or alias; None: there is none, or several.

        One group of a pool by a name that is its own is that group alone.
        """
        if name in self._pools:
            return self._pools[name]
        if name in self._world.groups:
            return _pool(name, [name], self._world)
        meant = self._called.get(name, {})
        if len(meant) != 1:
            return None
        ((pool, groups),) = meant.items()
        whole = self._pools[pool]
        alone = len(groups) == 1 and len(whole.groups) > 1
        return _pool(groups[0], groups, self._world) if alone else whole


def resolve(name: str, world: ClusterState) -> PoolFacts | None:
    """As `Names.find`, for one name."""
    return PoolNames(world).find(name)


def _pool(name: str, groups: list[str], world: ClusterState) -> PoolFacts:
    facts = [world.groups[group] for group in groups]
    shared = facts[0].group.pool
    if shared is None or name != shared.id:
        (only,) = facts
        return PoolFacts(name, "", (name,), only.group.min, only.group.max, only.target, whole=shared is None)
    size = shared.elsewhere + sum(each.target for each in facts)
    return PoolFacts(name, shared.name, tuple(groups), shared.min, shared.max, size)
