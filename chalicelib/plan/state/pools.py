"""Pools: combines the node groups of a vendor's pool, and treats every other group as a pool of its own.

Rules name pools, limits apply to pools, and a pool counts as scaling while any of its groups does. See
docs/reference/node-groups.md "Pools".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState


class PoolFacts(msgspec.Struct, frozen=True):
    """One pool in this pass. groups: ids, sorted. size: targets of all of them, and the pool's nodes in other groups.
    max: -1 if there is none. whole: it includes all groups of the vendor's pool, not only one that was named."""

    id: str
    name: str
    groups: tuple[str, ...]
    min: int
    max: int
    size: int
    whole: bool = True


def pools(state: ClusterState) -> dict[str, PoolFacts]:
    """Return every pool by its id."""
    members: dict[str, list[str]] = {}
    for name, facts in sorted(state.groups.items()):
        members.setdefault(facts.group.pool.id if facts.group.pool else name, []).append(name)
    return {name: _pool(name, groups, state) for name, groups in members.items()}


def rooms(groups: Mapping[str, NodeGroupState]) -> dict[str, int]:
    """Return pool -> how many more nodes its maximum allows, for every pool that has one; negative if it is
    exceeded."""
    found: dict[str, int] = {}
    most: dict[str, int] = {}
    for facts in groups.values():
        pool = facts.group.pool
        if pool is not None and pool.max >= 0:
            found[pool.id] = found.get(pool.id, -pool.elsewhere) - max(0, facts.target)
            most[pool.id] = min(pool.max, most.get(pool.id, pool.max))
    return {name: most[name] + room for name, room in found.items()}


def spares(groups: Mapping[str, NodeGroupState], size: Callable[[NodeGroupState], int]) -> dict[str, int]:
    """Return pool -> how many nodes it has above its minimum, for every pool that has one. size: how many nodes of a
    group count."""
    found: dict[str, int] = {}
    least: dict[str, int] = {}
    for facts in groups.values():
        pool = facts.group.pool
        if pool is not None and pool.min > 0:
            found[pool.id] = found.get(pool.id, pool.elsewhere) + size(facts)
            least[pool.id] = max(pool.min, least.get(pool.id, 0))
    return {name: size - least[name] for name, size in found.items()}


def at_minimum(group: NodeGroup, spare: Mapping[str, int]) -> Reason | None:
    """Return why its pool's minimum prevents removals from a group. spare: from `spares`."""
    pool = group.pool
    if pool is None or spare.get(pool.id, 1) > 0:
        return None
    return Reason.of(ReasonCode.POOL_MIN_SIZE, pool=pool.name or pool.id, min=pool.min)


class PoolNames:
    """Finds pools by any name that users and rules use. Create it once for many look-ups: rules can have thousands of
    names."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._pools = state, pools(state)
        self._called: dict[str, dict[str, list[str]]] = {}  # other name -> pool -> the groups with that name
        for pool in self._pools.values():
            for group in pool.groups:
                for name in {pool.name, *state.groups[group].group.aliases} - {""}:
                    self._called.setdefault(name, {}).setdefault(pool.id, []).append(group)

    def find(self, name: str) -> PoolFacts | None:
        """Return the pool with this id or name, or with a group of this id or alias; None: there is none, or several.

        If the name identifies only one group of a pool, the result is that group alone.
        """
        if name in self._pools:
            return self._pools[name]
        if name in self._state.groups:
            return _pool(name, [name], self._state)
        meant = self._called.get(name, {})
        if len(meant) != 1:
            return None
        ((pool, groups),) = meant.items()
        whole = self._pools[pool]
        alone = len(groups) == 1 and len(whole.groups) > 1
        return _pool(groups[0], groups, self._state) if alone else whole


def _pool(name: str, groups: list[str], state: ClusterState) -> PoolFacts:
    facts = [state.groups[group] for group in groups]
    shared = facts[0].group.pool
    if shared is None or name != shared.id:
        (only,) = facts
        return PoolFacts(name, "", (name,), only.group.min, only.group.max, only.target, whole=shared is None)
    size = shared.elsewhere + sum(each.target for each in facts)
    return PoolFacts(name, shared.name, tuple(groups), shared.min, shared.max, size)
