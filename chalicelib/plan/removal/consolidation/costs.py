"""What nodes cost and what their disruption costs.

The disruption D of a node is 1 plus the eviction cost of each of its pods, between 0 and 10: 1 +
deletion cost / 2^27, as a multiple of the mean of its namespace, + priority / 2^25. A pool's rate
is what one unit of disruption must bring per hour: the price of all its priced nodes, divided by
the aggressiveness and by the disruption of all these nodes. See docs/reference/consolidation.md
"Score".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import msgspec
import numpy as np

from chalicelib.model.join_summary import join_summary
from chalicelib.model.node import Node
from chalicelib.model.plan import PoolCost
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.pending_pods import is_expendable
from chalicelib.plan.prices import MICRO, NoPrice
from chalicelib.plan.removal.consolidation.patience import LEAST, Patience
from chalicelib.plan.removal.replacement_rows import UNDER_WAY, current_rows
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.state.spot_market import recommended, risk_premium
from chalicelib.plan.tables import Ints
from chalicelib.policy.timeouts import provision_time

HORIZON = 24.0
"""Hours over which a cost that is paid once is spread."""
SETTLE_TIME = 1800.0
"""Seconds after a change of a price in which what is bought counts at the highest and what goes at
the lowest price of that time, so that no plan follows a price that swings."""
CONTINUE = Fraction(4, 5)
"""Part of the score that a move needs which has been wanted before."""
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_LOWEST, _HIGHEST = 0, 10 * MICRO
PriceHistory = tuple[tuple[float, int], ...]


class PoolTotals(msgspec.Struct, frozen=True):
    """One pool: the price and the disruption (in millionths) of its priced nodes, the number of the
    others. standard: the disruption if each pod cost 1, by which the price is shared: no tenant
    changes by the costs of its pods what other nodes are worth. What a replacement under way has
    bought does not count: beside the old nodes it would make the same move worth less."""

    price: int
    disruption: int
    unpriced: int
    standard: int


class NodeCost(msgspec.Struct, frozen=True):
    """A priced node. price: at which its saving counts, the lowest within SETTLE_TIME; now: the
    present one. disruption: D in millionths. idle: unused paid time, per hour of the horizon.
    standard: D if each pod cost 1."""

    price: int
    now: int
    disruption: int
    idle: int
    pool: str
    standard: int


class PurchasePrice(msgspec.Struct, frozen=True):
    """What a new node of a group costs. price: the highest within SETTLE_TIME; now: the present
    one; settled_at: when they agree, if the price stays. Both include `risk`, what the
    interruptions of a spot group cost. overlap: of the time until it is ready, per hour of the
    horizon."""

    price: int
    now: int
    settled_at: float
    overlap: int
    risk: int = 0


def _deletion_cost(pod_class: PodClass) -> int:
    """Return 1 + deletion cost / 2^27, between 0 and 10, in millionths. A deletion cost that is no
    32-bit integer counts as none."""
    text = pod_class.deletion_cost
    deletion = int(text) if _INTEGER.fullmatch(text) else 0
    deletion = deletion if -(2**31) <= deletion < 2**31 else 0
    return max(_LOWEST, min(MICRO + deletion * MICRO // 2**27, _HIGHEST))


def eviction_cost(pod_class: PodClass, mean: int = MICRO) -> int:
    """Return the eviction cost of one pod of a class in millionths. mean: of the deletion costs of
    the pods in its namespace. They count beside each other only, so a tenant's pods cost as much
    together as pods without any."""
    own = _deletion_cost(pod_class) * MICRO // mean if mean else MICRO
    cost = own + (pod_class.priority or 0) * MICRO // 2**25
    return max(_LOWEST, min(cost, _HIGHEST))


class Costs:
    """The costs of one pass. nodes: the priced nodes of groups; unpriced: the others, with what is
    missing; groups: what purchases cost; history: the next memory of prices; currency: of all of
    them, "" if it is not known. recommended: the nodes that their vendor recommends to leave."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._book = state.prices
        self.currency = self._book.currency
        self._aggressiveness = Fraction(str(state.policy.consolidation.aggressiveness))
        self.recommended = recommended(state)
        self.history: dict[str, PriceHistory] = {}
        self.groups: dict[str, PurchasePrice] = {}
        self.unpriced: dict[str, str] = {}
        for name, group in sorted(state.groups.items()):
            self._price_group(name, group)
        disruption, standard = self._disruption()
        self.nodes = {
            node.name: cost
            for row, node in enumerate(state.snapshot.nodes)
            if (cost := self._price_node(node, int(disruption[row]), int(standard[row])))
            is not None
        }
        self.pools = self._totals()
        self.patience = Patience(state.memory.consolidation, state.now, state.policy.consolidation)
        # Exactly 1 where nothing has stood for long enough.
        self._needed_parts = {
            pool: Fraction(self.patience.needed(pool) / self.patience.strict) for pool in self.pools
        }

    def disruption_price(self, name: str, *, wanted: bool = False, waits: bool = False) -> int:
        """Return what the disruption of a priced node costs per hour, rounded up. wanted: of a
        node that an earlier pass wanted already. waits: what it will cost when patience asks for no
        less any more. A node that its vendor recommends to leave costs half (spot.rebalance)."""
        exact = self._share(name) / self._aggressiveness
        exact *= Fraction(LEAST) if waits else self._needed_parts[self.nodes[name].pool]
        exact *= CONTINUE if wanted else 1
        exact /= 2 if name in self.recommended else 1
        return -(-exact.numerator // exact.denominator)

    def score(self, saves: int, names: Sequence[str]) -> float:
        """Return the score of a move: its share of the pools' price per
        share of their disruption."""
        share = sum(map(self._share, names))
        return float(saves / share) if share else 0.0

    def _share(self, name: str) -> Fraction:
        """Return the part of its pool's price that belongs to the disruption of a node."""
        node = self.nodes[name]
        pool = self.pools[node.pool]
        return Fraction(pool.price * node.disruption, max(1, pool.standard))

    def rate(self, pool: str) -> float:
        """Return what one unit of disruption in a pool must bring per hour."""
        total = self.pools[pool]
        return float(Fraction(total.price, max(1, total.standard)) / self._aggressiveness)

    def pools_of(self, names: Iterable[str]) -> set[str]:
        """Return the pools of the priced ones of these nodes."""
        return {self.nodes[name].pool for name in names if name in self.nodes}

    def report(self) -> tuple[PoolCost, ...]:
        """Return what the pools cost, for the plan."""
        return tuple(
            PoolCost(
                pool=name,
                price=total.price / MICRO,
                disruption=total.disruption / MICRO,
                rate=round(self.rate(name), 9),
                unpriced=total.unpriced,
                currency=self.currency,
            )
            for name, total in self.pools.items()
        )

    def not_worth(
        self, saves: int, names: Sequence[str], part: Fraction | int = 1, *, stands: bool = False
    ) -> Reason:
        """Return that a move saves too little for its disruption. part: of the score that a new
        move needs. stands: it is possible, so the reason says when its score is enough."""
        pools = self.pools_of(names)
        score = self.score(saves, names)
        needs = part * max(map(self.patience.needed, pools))
        params = {
            "saves": saves / MICRO,
            "disruption": round(sum(self.nodes[name].disruption for name in names) / MICRO, 6),
            "score": round(score, 4),
            "needs": round(float(needs), 4),
        }
        until = max(self.patience.enough_at(pool, score) or math.inf for pool in pools)
        if stands and self._state.now < until < math.inf:
            params["until"] = until
        return Reason.of(ReasonCode.NOT_WORTH_DISRUPTION, **params)

    def _price_group(self, name: str, group: NodeGroupState) -> None:
        if group.template is None:
            return
        price = self._book.of_node(group.template.node, group.group)
        if isinstance(price, NoPrice):
            return
        now = price.amount
        history = self._settled(self._state.memory.consolidation.prices.get(name, ()), now)
        if not is_candidate(group.group):
            self.history[name] = history
        highest = max(value for _, value in history)
        settled_at = max(
            (after + SETTLE_TIME for (_, value), (after, _) in pairwise(history) if value > now),
            default=0,
        )
        overlap = round(highest * self._time_until_ready(group) / 3600 / HORIZON)
        risk = risk_premium(group, self._state)
        self.groups[name] = PurchasePrice(highest + risk, now + risk, settled_at, overlap, risk)

    def _time_until_ready(self, group: NodeGroupState) -> float:
        """Return the seconds for which a new node is paid beside the old ones: the median
        that its group has taught where the policy weighs that, otherwise replaceTimeout,
        otherwise the provision time."""
        state, own = self._state, self._state.policy.consolidation.replace_timeout
        known = (
            join_summary(group.memory.joins, state.now).median
            if state.policy.scale_up.expected_cost
            else None
        )
        if known is not None:
            return float(known)
        return provision_time(group.group, state.options) if own is None else own

    def _price_node(self, node: Node, disruption: int, standard: int) -> NodeCost | None:
        name = self._state.group_of.get(node.name)
        if name is None:
            return None
        group = self._state.groups[name].group
        price = self._book.of_node(node, group)
        if isinstance(price, NoPrice):
            self.unpriced[node.name] = price.detail
            return None
        now = price.amount
        lowest = min([now, *(value for _, value in self.history.get(name, ()))])
        idle = 0
        if group.billed_per > 1 and node.created:
            unused = group.billed_per - (self._state.now - node.created) % group.billed_per
            idle = round(unused / 3600 * now / HORIZON)
        return NodeCost(lowest, now, disruption, idle, pool_id(group), standard)

    def _settled(self, history: PriceHistory, price: int) -> PriceHistory:
        """Return the prices in force within SETTLE_TIME, oldest first, with
        the present one at the end."""
        now, window = self._state.now, self._state.now - SETTLE_TIME
        known = [entry for entry in history if entry[0] <= now]
        if not known or known[-1][1] != price:
            known.append((now, price))
        first = max((at for at, (instant, _) in enumerate(known) if instant <= window), default=0)
        return tuple(known[first:])

    def _disruption(self) -> tuple[Ints, Ints]:
        """Return D of every node, in millionths, by its place in the snapshot; and the
        same if each pod cost 1."""
        state, occupancy = self._state, self._state.occupancy
        classes = state.snapshot.classes
        standard = [
            0 if cls.is_daemonset or cls.mirror or is_expendable(cls, state.options) else MICRO
            for cls in classes
        ]
        counted = (occupancy.where >= 0) & ~occupancy.dying
        pods = np.bincount(occupancy.cls[counted], minlength=len(classes)).tolist()
        numbers, sums = Counter[str](), Counter[str]()  # by namespace
        for cls, count, unit in zip(classes, pods, standard, strict=False):
            numbers[cls.namespace] += count * unit
            sums[cls.namespace] += count * unit * _deletion_cost(cls)
        costs = [
            unit and eviction_cost(cls, sums[cls.namespace] // max(1, numbers[cls.namespace]))
            for cls, unit in zip(classes, standard, strict=True)
        ]

        def summed(cost_of: list[int]) -> Ints:
            weights = np.array([*cost_of, 0], dtype=np.float64)[occupancy.cls[counted]]
            sums = np.bincount(
                occupancy.where[counted], weights=weights, minlength=len(state.snapshot.nodes)
            )
            disruption: Ints = MICRO + np.round(sums).astype(np.int64)
            return disruption

        return summed(costs), summed(standard)

    def _totals(self) -> dict[str, PoolTotals]:
        amounts: dict[str, list[tuple[int, ...]]] = {}
        for name in self.unpriced:
            pool = pool_id(self._state.groups[self._state.group_of[name]].group)
            amounts.setdefault(pool, []).append((0, 0, 1, 0))
        replacements = current_rows(self._state).values()
        new = {name for row in replacements if row.state in UNDER_WAY for name in row.new_nodes}
        for name, node in self.nodes.items():
            own = (node.price, node.disruption, 0, node.standard)
            amounts.setdefault(node.pool, []).append((0,) * 4 if name in new else own)
        return {
            pool: PoolTotals(*map(sum, zip(*rows, strict=True)))
            for pool, rows in sorted(amounts.items())
        }
