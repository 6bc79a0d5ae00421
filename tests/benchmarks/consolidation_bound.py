"""The price that no consolidation can go below: a linear relaxation of the cluster over all limits.

Nodes are x (a share of a node that stays) and y (nodes bought per group), pods are counted per
class and group. Room is summed over the nodes of a group, so a pod may be split; and pods may move
within a group at no cost. Both only lower the bound. Nodes that can never be drained stay with all
their pods and take others into their free room.

Limits: resources and the number of pods, constant predicates, self-repelling classes (at most one
pod for a node), the bounds of groups, and for a single pass the budgets of pods. Over many passes a
budget that allows any disruption is no limit. Rules of spread are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.packing.linear_solver import Entries, Solver
from chalicelib.plan.predicates import static_mask
from chalicelib.plan.prices import node_price
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.tables import NodeTable, ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from tests.differential.karpenter import class_eviction_cost, disruption_cost

UNBOUNDED = 1e7


class PriceBound(msgspec.Struct, frozen=True):
    """price: an hour, of all nodes; value: price and the price of disruption; disrupted: pods of
    the nodes that go. start: price before."""

    price: float
    value: float
    disrupted: float
    start: float


class _Bin(msgspec.Struct):
    """Room that is summed: the nodes of a group that may go with those to be
    bought, or those that stay."""

    node: Node
    room: list[float]  # of the nodes that stay
    nodes: int = 0  # that stay
    column: int = -1  # of y; -1 where nothing is bought
    leaving: dict[int, list[float]] = {}  # column of x -> the room of that node
    offered: list[float] = []  # room of a new node


def lower_bound(
    snapshot: Snapshot,
    policy: Policy,
    *,
    one_pass: bool = False,
    aggressiveness: float = 0.0,
    disrupted: int | None = None,
) -> PriceBound:
    """The relaxation. one_pass: budgets of pods as they are now. aggressiveness: k of the
    price of disruption by the rates of the pools, 0 to leave it out. disrupted: the most
    pods that are moved in all."""
    return _Relaxation(snapshot, policy, one_pass=one_pass, aggressiveness=aggressiveness).solve(
        disrupted
    )


class _Relaxation:
    def __init__(
        self, snapshot: Snapshot, policy: Policy, *, one_pass: bool, aggressiveness: float
    ) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._state: ClusterState = build_cluster_state(
            snapshot, policy, Memory(), snapshot.taken_at
        )
        self._columns = ResourceColumns(snapshot.classes)
        self._one_pass, self._aggressiveness = one_pass, aggressiveness
        self._pdbs = PodDisruptionBudgets(snapshot.budgets, snapshot.classes)
        self._movable = {node.name: self._movable_pods(node.name) for node in snapshot.nodes}
        self._disruption = {
            name: disruption_cost(class_eviction_cost(snapshot.classes[cls]) for cls in classes)
            for name, classes in self._movable.items()
        }
        self._price = {node.name: self._node_price(node) for node in snapshot.nodes}
        self._rate = self._rates()
        # the linear programme, a column at a time: rows are known by name
        self._rows: dict[tuple[object, ...], int] = {}
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._cost: list[float] = []
        self._most: list[float] = []
        self._entries: list[dict[int, float]] = []

    def _movable_pods(self, node: str) -> list[int]:
        classes = self._snapshot.classes
        return [
            pod.cls
            for pod in self._state.occupancy.on(node)
            if not (classes[pod.cls].is_daemonset or classes[pod.cls].mirror or pod.deleted)
        ]

    def _node_price(self, node: Node) -> float:
        group = self._state.groups[self._state.group_of[node.name]].group
        return node_price(node, self._policy.prices, group.price) or 0.0

    def _pool(self, node: str) -> str:
        group = self._state.groups[self._state.group_of[node]].group
        return group.pool.id if group.pool is not None else group.id

    def _rates(self) -> dict[str, float]:
        price: dict[str, float] = {}
        disruption: dict[str, float] = {}
        for name in self._price:
            pool = self._pool(name)
            price[pool] = price.get(pool, 0.0) + self._price[name]
            disruption[pool] = disruption.get(pool, 0.0) + self._disruption[name]
        if not self._aggressiveness:
            return dict.fromkeys(price, 0.0)
        return {pool: price[pool] / (self._aggressiveness * disruption[pool]) for pool in price}

    def _stays(self, node: str) -> bool:
        """Whether a node can never be drained."""
        classes, pdbs = self._snapshot.classes, self._pdbs
        for cls in self._movable[node]:
            names = pdbs.of(cls)
            if classes[cls].safe_to_evict == "false" or any(pdbs.left(name) < 1 for name in names):
                return True
        return False

    # -- the programme

    def _row(self, name: tuple[object, ...], lower: float, upper: float) -> int:
        if name not in self._rows:
            self._rows[name] = len(self._lower)
            self._lower.append(lower)
            self._upper.append(upper)
        return self._rows[name]

    def _column(self, cost: float, most: float) -> int:
        self._cost.append(cost)
        self._most.append(most)
        self._entries.append({})
        return len(self._cost) - 1

    def _put(self, column: int, row: int, value: float) -> None:
        if value:
            self._entries[column][row] = self._entries[column].get(row, 0.0) + value

    def solve(self, disrupted: int | None) -> PriceBound:
        count: dict[int, int] = {}
        leaving: dict[str, int] = {}
        bins, fixed = [], 0.0
        for name, group in sorted(self._state.groups.items()):
            staying = [node for node in group.nodes if self._stays(node.name)]
            going = [node for node in group.nodes if not self._stays(node.name)]
            fixed += sum(self._price[node.name] for node in staying)
            if staying:
                bins.append(self._staying_bin(staying))
            if group.template is None:
                continue
            offered = self._daemonless(group.template.node, group.template.daemons)
            own = _Bin(group.template.node, [0.0] * len(offered), offered=offered, leaving={})
            price = (
                node_price(group.template.node, self._policy.prices, group.group.price) or UNBOUNDED
            )
            room = max(0, group.group.max - len(staying))
            own.column = self._column(price, room)
            bound = self._row(("group", name), group.group.min - len(staying), room)
            self._put(own.column, bound, 1.0)
            for node in going:
                # x = 1: the node stays and nobody is disrupted
                saved = self._rate[self._pool(node.name)] * self._disruption[node.name]
                column = self._column(self._price[node.name] - saved, 1.0)
                fixed += saved
                leaving[node.name] = column
                self._put(column, bound, 1.0)
                own.leaving[column] = self._room_of(node)
                for cls in self._movable[node.name]:
                    count[cls] = count.get(cls, 0) + 1
            bins.append(own)
        for cls, pods in sorted(count.items()):
            self._row(("class", cls), pods, UNBOUNDED)
        for at, own in enumerate(bins):
            self._fill(at, own, count)
        if self._one_pass:
            self._limit_disruptions(leaving)
        if disrupted is not None:
            moved = self._row(("disrupted",), sum(count.values()) - disrupted, UNBOUNDED)
            for gone, column in leaving.items():
                self._put(column, moved, len(self._movable[gone]))
        return self._solved(leaving, fixed)

    def _room_of(self, node: Node) -> list[float]:
        """What a node offers to pods that are no DaemonSet's."""
        classes = self._snapshot.classes
        daemons = [
            pod.cls for pod in self._state.occupancy.on(node.name) if classes[pod.cls].is_daemonset
        ]
        return self._daemonless(node, daemons)

    def _daemonless(self, node: Node, daemons: Iterable[int]) -> list[float]:
        free = self._columns.vector(node.allocatable).astype(np.float64)
        for cls in daemons:
            free -= self._columns.need(cls)
        return [max(0.0, float(amount)) for amount in free]

    def _staying_bin(self, nodes: list[Node]) -> _Bin:
        room = np.zeros(len(self._columns.names))
        for node in nodes:
            free = np.array(self._room_of(node))
            for cls in self._movable[node.name]:
                free -= self._columns.need(cls)
            room += np.maximum(free, 0.0)
        return _Bin(nodes[0], room.tolist(), len(nodes), leaving={})

    def _fill(self, at: int, own: _Bin, count: dict[int, int]) -> None:
        """Pods of each class in a bin; resources are scaled to a node's room."""
        table = NodeTable([own.node], self._columns)
        scale = [max(1.0, amount) for amount in (own.offered or own.room)]
        rooms = [
            self._row(("room", at, r), -UNBOUNDED, own.room[r] / scale[r])
            for r in range(len(scale))
        ]
        for column, room in own.leaving.items():
            for r, row in enumerate(rooms):
                self._put(column, row, -room[r] / scale[r])
        if own.column >= 0:
            for r, row in enumerate(rooms):
                self._put(own.column, row, -own.offered[r] / scale[r])
        for cls, pods in sorted(count.items()):
            pod_class = self._snapshot.classes[cls]
            if not static_mask(cls, pod_class, table)[0]:
                continue
            column = self._column(0.0, pods)
            self._put(column, self._rows["class", cls], 1.0)
            need = self._columns.need(cls)
            for r, row in enumerate(rooms):
                self._put(column, row, float(need[r]) / scale[r])
            if any(term.topology_key == HOSTNAME_LABEL for term in pod_class.pod_anti_affinity):
                apart = self._row(("apart", at, cls), -UNBOUNDED, float(own.nodes))
                self._put(column, apart, 1.0)
                for other in [*own.leaving, *([own.column] if own.column >= 0 else [])]:
                    self._put(other, apart, -1.0)

    def _limit_disruptions(self, leaving: dict[str, int]) -> None:
        """Of each budget, the pods on nodes that go are at most those allowed now."""
        for node, column in leaving.items():
            for cls in self._movable[node]:
                for name in self._pdbs.of(cls):
                    row = self._row(("budget", name), 0.0, UNBOUNDED)
                    self._put(column, row, 1.0)
                    self._lower[row] += 1.0
        for budget in self._snapshot.budgets:
            name = f"{budget.namespace}/{budget.name}"
            if ("budget", name) in self._rows:
                self._lower[self._rows["budget", name]] -= budget.allowed

    def _solved(self, leaving: dict[str, int], fixed: float) -> PriceBound:
        solver = Solver()
        solver.rows(self._lower, self._upper)
        entries: list[Entries] = [(list(column), list(column.values())) for column in self._entries]
        solver.columns(self._cost, self._most, entries)
        value, columns, _ = solver.run()
        gone = {node: 1.0 - float(columns[column]) for node, column in leaving.items()}
        disruption = sum(
            share * self._rate[self._pool(node)] * self._disruption[node]
            for node, share in gone.items()
        )
        return PriceBound(
            price=value + fixed - disruption,
            value=value + fixed,
            disrupted=sum(share * len(self._movable[node]) for node, share in gone.items()),
            start=sum(self._price.values()),
        )
