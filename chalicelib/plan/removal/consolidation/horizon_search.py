"""The search for a horizon: which nodes stay, so that the pods of all others find a place on them.

    the cheapest room that holds most requests of a pool ► every other node is tried once, dearest
    for its disruption and its room first ► where a node fails, one with the best room stays, too,
    and the rest is tried again

A zone that keeps little room, while pods must be spread over zones, is scarce. See
docs/reference/consolidation.md "Horizon".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.removal.bought_back import owner_of
from chalicelib.plan.removal.candidates import Candidate
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.removal.consolidation.emptiest_first import EmptiestFirst
from chalicelib.plan.removal.consolidation.move_limits import Limits
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.removal.simulate import RemovalSimulation, SimulatedRemoval
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.csi_topology import ZONE_LABELS
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.tables import Floats, Ints, integers

CERTAIN = 0.8
"""Part of the requests for which the cheapest room stays in any case. Which nodes hold the rest
follows from the nodes whose pods find no place."""
EVEN = 0.8
"""A zone is scarce that keeps less than this part of its even share of a pool's room."""
MOVED_AGAIN = 1.5
"""What a pod counts more that has been moved within a day."""
SURGE, MOST_SURGE = 0.25, 0.05
"""Part of a Deployment's pods that a rollout starts beside the old ones, and the most room of a
pool that is left for it."""
_ROUNDS = 5  # a part of the failing nodes stays in a round, at least one

Scarcity = tuple[str, str]
"""A pool and a zone in which pods may have to stay."""


class _PoolRoom(NamedTuple):
    """The candidates of a pool, cheapest room first; what they and other nodes of the pool must
    hold, and what the others have free: cpu and memory."""

    by_price: Ints
    need: Floats
    others: Floats


class Ending(msgspec.Struct, frozen=True):
    """An end. going: the nodes that leave, in the order in which they were tried."""

    going: tuple[str, ...]
    scarce: frozenset[Scarcity]


def zone_of(node: Node) -> str:
    """Return a node's zone, "" without one."""
    return next((node.labels[key] for key in ZONE_LABELS if key in node.labels), "")


class HorizonSearch:
    """The search among the nodes that may leave. limits: those that stand, without purchases."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        costs: Costs,
        candidates: Sequence[Candidate],
        limits: Limits,
        over: Callable[[], bool],
    ) -> None:
        self._state = state
        self._simulated = simulated
        self._candidates = candidates
        self._limits = limits
        self._over = over
        index = simulated.table.index
        self._rows = integers([index[candidate.node.name] for candidate in candidates])
        self._pools = [pool_id(state.groups[candidate.group].group) for candidate in candidates]
        node_costs = [costs.nodes[candidate.node.name] for candidate in candidates]
        self._prices = integers([cost.price for cost in node_costs])
        self._moved_parts = self._parts_that_moved()
        disruption_prices = [
            costs.disruption_price(candidate.node.name) * (1 + MOVED_AGAIN * self._moved(candidate))
            for candidate in candidates
        ]
        self._may_gain = self._prices > np.array(disruption_prices)
        self._columns = [
            column
            for name in (CPU, MEMORY)
            if (column := simulated.table.columns.at(name)) is not None
        ]
        self._needs = np.array([self._need(candidate) for candidate in candidates])
        self._rooms: Floats = simulated.table.free[self._rows][:, self._columns] + self._needs
        self._prices_of_room: Floats = np.zeros(len(candidates))
        self._used: Ints = np.zeros(len(limits.room), dtype=np.int64)
        self._pool_rooms = {pool: self._pool_room(pool) for pool in sorted({*self._pools})}
        per_disruption = self._prices / integers([cost.disruption for cost in node_costs])
        values = per_disruption * self._prices_of_room
        self._order: list[int] = np.argsort(-values, kind="stable").tolist()

    def _moved(self, candidate: Candidate) -> float:
        """Return the part of a node's pods that consolidation has moved within a day."""
        moved = 0.0
        for pod in candidate.pods:
            owner = owner_of(self._state.snapshot.classes[pod.cls])
            if self._is_newer(pod, owner):
                moved += self._moved_parts[owner]
        return moved / max(1, len(candidate.pods))

    def _parts_that_moved(self) -> dict[str, float]:
        """Return for each owner of moved pods which part of its newer pods these are: others are
        new since then."""
        classes = self._state.snapshot.classes
        newer: Counter[str] = Counter()
        for pod in self._state.snapshot.pods:
            owner = owner_of(classes[pod.cls])
            newer[owner] += self._is_newer(pod, owner)
        moves = self._state.memory.consolidation.moves
        return {
            owner: min(1.0, sum(count for _, count in moves[owner]) / pods)
            for owner, pods in newer.items()
            if pods
        }

    def _is_newer(self, pod: Pod, owner: str) -> bool:
        """Return whether a pod was created since pods of its owner were moved, in the last day."""
        times = self._state.memory.consolidation.moves.get(owner, ())
        return bool(times) and pod.created >= times[0][0]

    def _need(self, candidate: Candidate) -> Ints:
        """Return cpu and memory that the moving pods of a node request."""
        columns = self._simulated.table.columns
        total: Ints = np.zeros(len(self._columns), dtype=np.int64)
        for pod in candidate.pods:
            total = total + columns.need(pod.cls)[self._columns]
        return total

    # --- who stays in any case

    def _pool_room(self, pool: str) -> _PoolRoom:
        """Return the candidates of a pool by the price of their room, and what they must hold."""
        members = np.flatnonzero(np.array([own == pool for own in self._pools]))
        rooms = self._rooms[members]
        need = self._needs[members].sum(axis=0) + self._reserve(pool, members)
        total = np.maximum(rooms.sum(axis=0), 1.0)
        # What is requested most of is worth most.
        values = (rooms / total * (need / total)).sum(axis=1)
        prices_of_room = self._prices[members] / np.maximum(values, 1e-12)
        self._prices_of_room[members] = prices_of_room
        by_price = members[np.argsort(prices_of_room, kind="stable")]
        return _PoolRoom(by_price, need, self._room_of_others(pool))

    def _room_of_others(self, pool: str) -> Floats:
        """Return the free room of the pool's nodes that stay whatever happens."""
        simulated = self._simulated
        groups = self._state.groups.values()
        nodes = [
            node.name for group in groups if pool_id(group.group) == pool for node in group.nodes
        ]
        index = simulated.table.index
        rows = np.setdiff1d([index[name] for name in nodes if name in index], self._rows)
        rows = rows.astype(np.int64)
        open_rows = rows[simulated.open[rows]]
        free: Floats = np.maximum(simulated.table.free[open_rows][:, self._columns], 0)
        total: Floats = free.sum(axis=0)
        return total

    def _reserve(self, pool: str, members: Ints) -> Floats:
        """Return the room for headroom, and for the largest rollout of one Deployment."""
        simulated = self._simulated
        classes = self._state.snapshot.classes
        columns = simulated.table.columns
        pods = Counter(pod.cls for at in members.tolist() for pod in self._candidates[at].pods)
        surge: Floats = np.zeros(len(self._columns))
        for cls, count in pods.items():
            if owner_of(classes[cls]).split("/")[1:2] == ["ReplicaSet"]:
                need = columns.need(cls)[self._columns] * ceil(count * SURGE)
                surge = np.maximum(surge, need)
        room: Floats = np.minimum(surge, self._needs[members].sum(axis=0) * MOST_SURGE)
        for spare in simulated.spare:
            fits = simulated.static(spare.cls)[self._rows]
            if fits.any() and self._pools[int(fits.argmax())] == pool:
                room = room + columns.need(spare.cls)[self._columns] * spare.pods
        return room

    # --- one trial

    def ending(self) -> Ending:
        """Return the cheapest end that was found."""
        simulated = self._simulated
        staying = set(chain.from_iterable(map(self._cheapest, self._pool_rooms.values())))
        tried = [at for at in self._order if at not in staying and self._may_gain[at]]
        open_rows = np.flatnonzero(simulated.open[: simulated.real])
        staying_rows = np.setdiff1d(open_rows, self._rows[tried])
        places = EmptiestFirst(simulated, staying_rows)
        budgets = PodDisruptionBudgets((), self._state.snapshot.classes)
        simulation = RemovalSimulation(
            simulated, budgets, open_rows, open_rows, destinations=places
        )
        going: list[int] = []
        left = tried
        while left:
            failing = [at for at in left if not self._leaves(simulation, at, going)]
            by_room = sorted(failing, key=lambda at: float(self._prices_of_room[at]))
            staying_now = by_room[: max(1, len(failing) // _ROUNDS)]
            for at in staying_now:
                places.stay(int(self._rows[at]))
            left = [at for at in failing if at not in staying_now]
        self._balance(simulation, going)
        simulation.undo()
        names = tuple(self._candidates[at].node.name for at in going)
        return Ending(names, self._uneven_zones(names))

    def _cheapest(self, pool_room: _PoolRoom) -> list[int]:
        """Return the candidates of a pool whose room stays in any case."""
        rooms = self._rooms[pool_room.by_price]
        room_before = pool_room.others + np.cumsum(rooms, axis=0) - rooms
        lacks = (room_before < pool_room.need * CERTAIN).any(axis=1)
        staying: list[int] = pool_room.by_price[lacks].tolist()
        return staying

    def _balance(self, simulation: RemovalSimulation, going: list[int]) -> None:
        """Let nodes go whose room is not needed beside those that stay because others failed, the
        dearest room first; and let the cheapest stay where the room for a rollout is missing."""
        gone = set(going)
        for pool_room in self._pool_rooms.values():
            by_price = pool_room.by_price.tolist()
            staying = [at for at in by_price if at not in gone]
            spare = pool_room.others + self._rooms[staying].sum(axis=0) - pool_room.need
            for at in reversed(staying):
                left = spare - self._rooms[at]
                if self._may_gain[at] and (left >= 0).all() and self._leaves(simulation, at, going):
                    spare = left
            for at in by_price:
                if at in gone and (spare < 0).any():
                    going.remove(at)
                    spare = spare + self._rooms[at]

    def _leaves(self, simulation: RemovalSimulation, at: int, going: list[int]) -> bool:
        """Try one node beside those that leave already, and note it."""
        no_purchase: Ints = np.zeros(0, dtype=np.int64)
        if self._over() or self._limits.refusal(self._used, at, no_purchase) is not None:
            return False
        # Budgets delay evictions; they do not say where pods find room.
        candidate = msgspec.structs.replace(self._candidates[at], limited=(), used={})
        if not isinstance(simulation.attempt(candidate), SimulatedRemoval):
            return False
        going.append(at)
        self._used = self._used + self._limits.going[:, at]
        return True

    def _must_spread(self, cls: int) -> bool:
        needs = self._simulated.needs(cls) if cls >= 0 else None
        return needs is not None and bool(needs.evenness)

    def _uneven_zones(self, going: Sequence[str]) -> frozenset[Scarcity]:
        """Return the zones that keep less than their even part of a pool's room, where pods of the
        pool must be spread: the scheduler spreads other pods over zones, too."""
        gone = set(going)
        rooms: dict[str, dict[str, float]] = {}
        for at, candidate in enumerate(self._candidates):
            zones = rooms.setdefault(self._pools[at], {})
            zone = zone_of(candidate.node)
            stays = candidate.node.name not in gone
            room = float(self._rooms[at][:1].sum())  # 0.0 where no pod requests anything
            zones[zone] = zones.get(zone, 0.0) + stays * room
        spread = {
            self._pools[at]
            for at, candidate in enumerate(self._candidates)
            if any(self._must_spread(pod.cls) for pod in candidate.pods)
        }
        return frozenset(
            (pool, zone)
            for pool in spread
            for zone, room in rooms[pool].items()
            if room * len(rooms[pool]) < EVEN * sum(rooms[pool].values())
        )
