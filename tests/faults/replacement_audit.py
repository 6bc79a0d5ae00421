"""Checks replacements from outside: what rows of memory say, against what our
requests do to the cluster.

    readiness   a node is drained by a replacement only after all nodes that it buys were ready
    purchases   a replacement buys each group once, and no more than its row says
    rows        a node is in one row at most; a row that has bought does not end while
                one of its old nodes stays
    chains      a node bought by a replacement is not drained by consolidation before minNodeAge
    surge       no more nodes of a group are bought and not yet paid back than maxSurge
    price       a finished replacement of consolidation has lowered the price
    moves       consolidation moves the pods of an owner at most
                movesPerPodPerDay times a day and replica

Rows are read as they are stored; ages and readiness are those of the cluster,
prices those of the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Replacement, ReplacementState

UNDER_WAY = {ReplacementState.BUYING, ReplacementState.WAITING, ReplacementState.DRAINING}
LATE = 150.0
"""Seconds between what a pass has read and the operations that it plans: it may be
paused, and lives for 120 s."""
SKEW = 20.0
"""Seconds by which the clocks of two processes may differ (run_steps.skew)."""
DAY = 86_400.0


class ReplacementLimits(msgspec.Struct, frozen=True):
    """The limits of the policy: nodes, seconds, and moves a day and replica."""

    surge: int
    min_node_age: float
    moves: int


class AuditedNode(msgspec.Struct, frozen=True):
    """A Node as it is now. created: of it or of its Machine, the earlier one. outdated: whether its
    group has another template. noticed: whether its vendor has announced to take it back.
    conditions: type -> (status, instant of its last change)."""

    group: str
    created: float
    ready: bool
    outdated: bool = False
    noticed: bool = False
    conditions: Mapping[str, tuple[str, float]] = {}


class ReplacementAudit:
    """fault, count: as those of Audit. read: the rows as stored, and the Nodes by name."""

    def __init__(
        self,
        clock: Callable[[], float],
        fault: Callable[[str], None],
        count: Callable[[str], None],
        limits: ReplacementLimits,
        read: Callable[[], tuple[Mapping[str, Replacement], Mapping[str, AuditedNode]]],
    ) -> None:
        self._clock, self._fault, self._count = clock, fault, count
        self._limits, self._read = limits, read
        self.rows: dict[str, Replacement] = {}  # as last stored, those that have ended too
        self._stored: frozenset[str] = frozenset()
        self._nodes: dict[str, AuditedNode] = {}  # as last seen, those that have gone too
        self._ready: dict[str, float] = {}  # node -> when it was last seen ready
        self._buyer: dict[str, str] = {}  # node -> row that has bought it
        self._bought: dict[tuple[str, str], int] = {}  # row, group -> nodes
        self._moves: dict[str, list[float]] = {}  # owner -> instants of its pods' moves
        self._prices: list[tuple[float, Mapping[str, int]]] = []
        self._replicas: dict[str, int] = {}  # owner -> most pods that it has had
        self.own_price: Callable[[str], float] = lambda _: 0.0  # of a node that prices lack

    def note_prices(self, prices: Mapping[str, int]) -> None:
        """Record the prices in force from now on: group -> price of a node."""
        self._prices.append((self._clock(), dict(prices)))

    # -- rows

    def look(self) -> None:
        """Check the rows as they are now."""
        rows, nodes = self._read()
        now = self._clock()
        self._nodes.update(nodes)
        self._ready.update((name, now) for name, node in nodes.items() if node.ready)
        for name in sorted(self._stored - rows.keys()):
            self._ended(self.rows[name], nodes)
        for name, row in sorted(rows.items()):
            if (
                name not in self.rows or self.rows[name].state is not row.state
            ) and row.state is not None:
                self._count(f"replacements {row.state.value}")
        self.rows.update(rows)
        self._stored = frozenset(rows)
        under_way = [row for row in rows.values() if row.state in UNDER_WAY]
        self._one_row_each(under_way)
        self._surge(under_way)

    def _one_row_each(self, under_way: list[Replacement]) -> None:
        owners: dict[str, str] = {}
        for row in under_way:
            for name in (*row.nodes, *row.new_nodes):
                if owners.setdefault(name, row.id) != row.id:
                    self._fault(f"node {name} is in the replacements {owners[name]} and {row.id}")
            self._buyer.update(dict.fromkeys(row.new_nodes, row.id))

    def _surge(self, under_way: list[Replacement]) -> None:
        surge: dict[str, int] = {}
        for row in under_way:
            for purchase in row.purchases:
                open_nodes = max(0, purchase.nodes - len(row.gone))
                surge[purchase.group] = surge.get(purchase.group, 0) + open_nodes
        for group, nodes in sorted(surge.items()):
            if nodes > self._limits.surge:
                self._fault(
                    f"{nodes} nodes of {group} are bought by replacements and not paid back"
                )

    def _ended(self, row: Replacement, nodes: Mapping[str, AuditedNode]) -> None:
        """A row that is not stored any more: one under way has finished."""
        if row.state not in UNDER_WAY:
            return
        if row.state is ReplacementState.BUYING and not any(
            buyer == row.id for buyer, _ in self._bought
        ):
            # its purchases never began, and it is not wanted any more
            self._count("replacements forgotten")
            return
        self._count("replacements finished")
        stays = [
            name
            for name in row.nodes
            if name in nodes and row.ends.get(row.removals.get(name, "-"), "-")
        ]
        if stays:
            self._fault(
                f"replacement {row.id} was {row.state.value} and has ended, and {', '.join(stays)} "
                "stays"
            )
        consolidates = row.reason is DisruptionReason.CONSOLIDATION
        self._count(f"replacements of {row.reason.value} finished")
        if consolidates and not any(
            self._saves(row, prices) for prices in self._prices_since(row.bought_at - LATE)
        ):
            self._fault(f"replacement {row.id} has ended and did not lower the price")

    def _saves(self, row: Replacement, prices: Mapping[str, int]) -> bool:
        before = sum(
            self._price(prices, self._nodes[name].group)
            for name in (*row.gone, *row.nodes)
            if name in self._nodes
        )
        return before > sum(
            self._price(prices, _name(purchase.group)) * purchase.nodes
            for purchase in row.purchases
        )

    def _price(self, prices: Mapping[str, int], group: str) -> float:
        return prices[group] if group in prices else self.own_price(group)

    def _prices_since(self, instant: float) -> list[Mapping[str, int]]:
        """Return the prices in force at any time since then."""
        ends = [at for at, _ in self._prices[1:]] + [float("inf")]
        return [
            prices for (_, prices), end in zip(self._prices, ends, strict=True) if end >= instant
        ]

    # -- requests

    def bought(self, row_id: str, group: str, nodes: int) -> None:
        """Check a purchase for a replacement."""
        self.look()
        self._count("nodes bought by replacements")
        row = self.rows.get(row_id)
        if row is None:
            self._fault(f"{group} grew by {nodes} for a replacement {row_id} that is not stored")
            return
        key = row_id, group
        self._bought[key] = self._bought.get(key, 0) + nodes
        most = sum(purchase.nodes for purchase in row.purchases if _name(purchase.group) == group)
        if self._bought[key] > most:
            self._fault(
                f"replacement {row_id} has bought {self._bought[key]} nodes of {group}, and its "
                f"row says {most}"
            )

    def tainted(self, row_id: str, node: str, planned_at: float) -> None:
        """Check the begin of a drain by a replacement. planned_at: when its removal was planned."""
        self.look()
        self._count("nodes drained by replacements")
        row = self.rows.get(row_id)
        if row is None:
            self._fault(f"node {node} is drained by a replacement {row_id} that is not stored")
            return
        for purchase in row.purchases:
            ready = [
                name for name in purchase.names if self._ready.get(name, 0.0) >= planned_at - LATE
            ]
            if len(ready) < purchase.nodes:
                self._fault(
                    f"node {node} is drained by replacement {row_id}, and of {purchase.nodes} "
                    "nodes of "
                    f"{purchase.group} only {len(ready)} have been ready"
                )
        buyer, known = self._buyer.get(node, row_id), self._nodes.get(node)
        chained = buyer != row_id and row.reason is DisruptionReason.CONSOLIDATION
        if (
            chained
            and known is not None
            and planned_at - known.created < self._limits.min_node_age - SKEW
        ):
            self._fault(
                f"node {node} was bought by replacement {buyer}, and {row_id} drains it already"
            )

    def moved(self, owner: str, replicas: int) -> None:
        """Check the eviction of a pod by consolidation. replicas: pods that its owner has now."""
        now = self._clock()
        self._count("pods moved by consolidation")
        self._replicas[owner] = most = max(self._replicas.get(owner, 0), replicas)
        moves = [at for at in self._moves.get(owner, ()) if now - at < DAY]
        self._moves[owner] = moves = [*moves, now]
        if len(moves) > self._limits.moves * most:
            self._fault(
                f"pods of {owner} were moved {len(moves)} times within a day; it has had at most "
                f"{most}"
            )

    # -- the end

    def unfinished(self) -> dict[str, str]:
        """Return the replacements under way, with their states."""
        self.look()
        return {
            name: self.rows[name].state.value
            for name in self._stored
            if self.rows[name].state in UNDER_WAY
        }


def _name(group: str) -> str:
    """Return the name of a MachineDeployment by the id of its group."""
    return group.rpartition("/")[2]
