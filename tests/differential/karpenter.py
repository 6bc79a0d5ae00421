"""Karpenter's rules of consolidation (kubernetes-sigs/karpenter,
pkg/controllers/disruption), to compare ours with.

`next_command` is the first command of one loop: Emptiness, then Multi-node, then Single-node. Its
scheduling simulation uses the project's simulated cluster, so that both planners are judged by the
same predicates. The 15 seconds of validation are left out: the cluster is assumed to be the same
afterwards. So are the time limits of the search (one and three minutes), which only helps
Karpenter. A spot group is a spot offering of its instance type; SpotToSpotConsolidation is off, as
by default.

Stand-ins where the model differs: a node group is an offering of its instance type, and all groups
are of one NodePool unless the rules say otherwise; `safe-to-evict: "false"` counts as
`do-not-disrupt: "true"`; a group's bounds limit what is launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.errors import BadInput
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.quantity import parse_duration
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.prices import Price, instance_type, price_book
from chalicelib.plan.removal.pod_destinations import PodDestinations
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.scale_up.estimator import shape_of
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter, may_grow
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.simulation.simulated_cluster import renamed
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.tables import Ints, ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy

MICRO = 1_000_000
MOST_MERGED = 100
"""Candidates of Multi-node; the longest prefix that is tried has one more."""
NOTHING: Ints = np.zeros(0, dtype=np.int64)
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


class KarpenterRules(msgspec.Struct, frozen=True):
    """Settings of the NodePools. consolidate_after: seconds, None for Never. budget: of every
    NodePool, "10%" or "5". when_empty: policy WhenEmpty. balanced: k of policy Balanced, 0 without
    it. pool_of: group -> NodePool."""

    consolidate_after: float | None = 0.0
    budget: str = "10%"
    when_empty: bool = False
    balanced: float = 0.0
    pool_of: Mapping[str, str] = {}


class KarpenterMemory(msgspec.Struct, frozen=True):
    """What Karpenter keeps in memory. queue: nodes in commands; nominated: nodes for pending pods;
    pod_events: node -> instant of the last pod that came or went."""

    queue: frozenset[str] = frozenset()
    nominated: frozenset[str] = frozenset()
    pod_events: Mapping[str, float] = {}


class KarpenterCommand(msgspec.Struct, frozen=True):
    """Nodes that go, and the group of the node that is launched first, "" for a deletion. price: of
    the nodes that go; cost: of the new node, in millionths an hour. pods: that must move."""

    method: str
    nodes: tuple[str, ...]
    group: str
    price: int
    cost: int
    pods: int


class Offering(msgspec.Struct, frozen=True):
    """An instance type in a group. price: in millionths an hour."""

    group: str
    type: str
    price: int
    spot: bool = False


class KarpenterCandidate(msgspec.Struct, frozen=True):
    """A node that passes the first filter. cost: disruption; price: None if
    the offering is unknown."""

    node: Node
    row: int
    pool: str
    type: str
    price: int | None
    cost: float
    pods: tuple[Pod, ...]
    spot: bool = False

    @property
    def is_empty(self) -> bool:
        """Pods whose eviction costs nothing count as nothing."""
        return self.cost <= 1

    @property
    def ratio(self) -> float:
        """SavingsRatio."""
        return (self.price or 0) / self.cost


# -- rules over numbers


def eviction_cost(priority: int = 0, deletion_cost: float = 0.0) -> float:
    """The cost of evicting one pod."""
    return max(-10.0, min(10.0, 1 + deletion_cost / 2**27 + priority / 2**25))


def class_eviction_cost(pod_class: PodClass) -> float:
    """The cost of evicting a pod of a class; a deletion cost that is no integer is ignored."""
    try:
        deletion_cost = int(pod_class.deletion_cost or 0)
    except ValueError:
        deletion_cost = 0
    return eviction_cost(pod_class.priority or 0, deletion_cost)


def must_not_be_disrupted(annotation: str, started: float, now: float) -> bool:
    """do-not-disrupt of a pod: "true", or a Go duration since its start; a pod that has not started
    is protected, and any other value is ignored."""
    if annotation in {"", "true"}:
        return bool(annotation)
    try:
        lasts = parse_duration(annotation)
    except BadInput:
        return False
    return not started or now < started + lasts


def disruption_cost(evictions: Iterable[float]) -> float:
    """The cost of a node: the leading 1 is the node itself."""
    return 1 + sum(max(0.0, cost) for cost in evictions)


def allowed_disruptions(budget: str, nodes: int, unavailable: int = 0) -> int:
    """How many nodes of a NodePool may begin to go. nodes: initialized and not terminating;
    unavailable: not ready or marked for deletion."""
    if budget.endswith("%"):
        limit = math.ceil(int(budget[:-1]) * nodes / 100)
    else:
        limit = int(budget)
    return max(0, limit - unavailable)


def cheaper(offerings: Iterable[Offering], price: int) -> list[Offering]:
    """The offerings whose worst launch price (the dearest one of the type) is strictly
    below a price. A type with a spot offering is launched as spot; if there is such a type,
    the others are left out."""
    offerings = list(offerings)
    as_spot = {offering.type for offering in offerings if offering.spot}
    offerings = [
        offering for offering in offerings if offering.spot or offering.type not in as_spot
    ]
    worst: dict[str, int] = {}
    for offering in offerings:
        worst[offering.type] = max(worst.get(offering.type, 0), offering.price)
    options = [offering for offering in offerings if worst[offering.type] < price]
    return [offering for offering in options if offering.spot] or options


def without_same_type(
    offerings: Sequence[Offering], removed: Iterable[tuple[str, int]]
) -> list[Offering]:
    """Of a merge, only options below the cheapest removed node whose type is among the options.
    removed: type and price of each node."""
    types = {offering.type for offering in offerings}
    least = min((price for kind, price in removed if kind in types), default=None)
    return list(offerings) if least is None else cheaper(offerings, least)


def balanced_score(
    savings: float, pool_price: float, disruption: float, pool_disruption: float
) -> float:
    """Savings as a share of the NodePool's cost, over disruption as a share of the NodePool's."""
    if savings <= 0:
        return 0.0
    return (savings / pool_price) / (disruption / pool_disruption)


# -- the scheduling simulation


class SchedulingSimulation:
    """Places the pods of nodes that would go: existing nodes first, first fit by
    name, largest pods first."""

    def __init__(self, state: ClusterState, prices: Mapping[str, int]) -> None:
        """prices: group -> price of a new node."""
        classes = state.snapshot.classes
        self._simulated = simulated = build(state, (), ResourceColumns(classes))
        self._size = [(-cls.requests.get(CPU, 0), -cls.requests.get(MEMORY, 0)) for cls in classes]
        existing = np.flatnonzero(simulated.open[: simulated.base])
        limiter = ResourceLimiter(state)
        self._offerings: dict[int, Offering] = {}  # by the row of a fresh node
        for name, group in sorted(state.groups.items()):
            if name not in prices or group.template is None or not may_grow(group):
                continue
            if limiter.allowance(group, 0).nodes < 1:
                continue
            shape, template = shape_of(group.template, simulated), group.template
            node = renamed(template.node, [f"fresh-for-{name}"])
            (row,) = simulated.extend(
                node, shape.free[None, :], template.daemons, template.volume_limits
            )
            simulated.close(row)
            simulated.remove_node(row)
            kind = instance_type(template.node) or name
            self._offerings[row] = Offering(name, kind, prices[name], group.group.spot)
        self._places = PodDestinations(simulated, existing, NOTHING)
        self._fresh: dict[int, PodDestinations] = {}
        for row in self._offerings:
            self._fresh[row] = PodDestinations(simulated, np.array([row]), NOTHING)
            self._fresh[row].neighbours = self._places.neighbours
        self._pending = [pod for pod in state.occupancy.waiting() if self._fits_anywhere(pod.cls)]

    def row_of(self, node: str) -> int | None:
        """The row of a node that takes pods."""
        row = self._simulated.table.index.get(node)
        return row if row is not None and self._simulated.open[row] else None

    def offerings_without(
        self, candidates: Sequence[KarpenterCandidate], price: int
    ) -> list[Offering] | None:
        """None if the nodes cannot go; [] if their pods fit on existing nodes; otherwise the
        offerings cheaper than the price of which one new node takes the rest."""
        places, neighbours = self._places, self._places.neighbours
        mark = places.checkpoint()
        for candidate in candidates:
            neighbours.leave(candidate.row)
            neighbours.gone(candidate.row)
        for candidate in candidates:
            for pod in candidate.pods:
                places.lift(pod.cls, candidate.row)
        moving = [pod for candidate in candidates for pod in candidate.pods]
        rest = self._rest([*self._pending, *moving])
        offerings = None if rest is None else self._holding(rest, price) if rest else []
        places.rollback(mark)
        for candidate in candidates:
            neighbours.stay(candidate.row, is_open=True)
        return offerings if offerings or not rest else None

    def _rest(self, pods: list[Pod]) -> list[int] | None:
        """The classes of the pods without an existing place; None if one would be on a node that is
        not initialized. A pod that depends on others is tried again after them."""
        pods.sort(key=lambda pod: (self._size[pod.cls], pod.created, pod.uid))
        waiting = [pod.cls for pod in pods]
        while True:
            left = []
            for cls in waiting:
                self._places.again()
                row = self._places.put(cls)
                if row is None:
                    left.append(cls)
                elif row >= self._simulated.real:
                    return None
            if len(left) == len(waiting) or all(self._simulated.needs(cls) is None for cls in left):
                return left
            waiting = left

    def _holding(self, rest: Sequence[int], price: int) -> list[Offering]:
        """The offerings of which one fresh node takes pods of these classes."""
        table = self._simulated.table
        need = np.sum([table.columns.need(cls) for cls in rest], axis=0)
        tried = {offering.type for offering in self._offerings.values() if offering.price < price}
        options = [
            offering
            for row, offering in self._offerings.items()
            if offering.type in tried
            and (table.free[row] >= need).all()
            and self._fit_together(row, rest)
        ]
        return cheaper(options, price)

    def _fit_together(self, row: int, rest: Sequence[int]) -> bool:
        fresh, neighbours = self._fresh[row], self._places.neighbours
        mark = fresh.checkpoint()
        neighbours.stay(row, is_open=True)
        fits = all(fresh.put(cls) is not None for cls in rest)
        fresh.rollback(mark)
        neighbours.leave(row)
        neighbours.gone(row)
        return fits

    def _fits_anywhere(self, cls: int) -> bool:
        """Whether a pending pod could run on a fresh node alone; another one stays
        pending and holds nothing up."""
        return any(self._fit_together(row, [cls]) for row in self._offerings)


# -- candidates and methods


class _Loop:
    """One loop over the cluster as it is now."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        now: float,
        rules: KarpenterRules,
        memory: KarpenterMemory,
    ) -> None:
        self._rules, self._memory, self._now = rules, memory, now
        self._state = state = build_cluster_state(snapshot, policy, Memory(), now)
        self._book = price_book(policy.prices, snapshot.groups)
        self._prices = {
            name: price
            for name, group in state.groups.items()
            if (price := self._group_price(group))
        }
        self._simulation = SchedulingSimulation(state, self._prices)
        self._pool_totals: dict[str, tuple[int, float]] = {}
        self._pdbs = PodDisruptionBudgets(snapshot.budgets, snapshot.classes)
        managed = [node for node in snapshot.nodes if node.name in state.group_of]
        self._nodes = [node for node in managed if state.buckets[node.name] is not Bucket.STARTING]
        self._candidates = sorted(
            (made for node in self._nodes if (made := self._candidate(node)) is not None),
            key=lambda candidate: (-candidate.ratio, candidate.node.name),
        )

    def _group_price(self, group: NodeGroupState) -> int:
        return 0 if group.template is None else self._node_price(group.template.node, group)

    def _node_price(self, node: Node, group: NodeGroupState) -> int:
        price = self._book.of_node(node, group.group)
        return price.amount if isinstance(price, Price) else 0

    def _pool(self, group: str) -> str:
        return self._rules.pool_of.get(group, "default")

    def _movable(self, node: str) -> tuple[Pod, ...]:
        classes = self._state.snapshot.classes
        return tuple(
            pod
            for pod in self._state.occupancy.on(node)
            if not (pod.deleted or pod.phase in {"Failed", "Succeeded"})
            and not classes[pod.cls].mirror
            and not classes[pod.cls].is_daemonset
        )

    def _candidate(self, node: Node) -> KarpenterCandidate | None:
        """The first filter."""
        state, name = self._state, node.name
        if name in self._memory.queue or name in self._memory.nominated or name in state.leaving:
            return None
        if (
            node.annotations.get(DO_NOT_DISRUPT) == "true"
            or state.buckets[name] is not Bucket.READY
        ):
            return None
        row = self._simulation.row_of(name)
        classes = state.snapshot.classes
        active = [
            pod for pod in state.occupancy.on(name) if pod.phase not in {"Failed", "Succeeded"}
        ]
        if row is None or any(self._is_protected(pod, classes[pod.cls]) for pod in active):
            return None
        group, pods = state.groups[state.group_of[name]], self._movable(name)
        cost = disruption_cost(class_eviction_cost(classes[pod.cls]) for pod in pods)
        price, kind = self._node_price(node, group) or None, instance_type(node) or group.id
        return KarpenterCandidate(
            node, row, self._pool(group.id), kind, price, cost, pods, group.group.spot
        )

    def _is_protected(self, pod: Pod, pod_class: PodClass) -> bool:
        if pod_class.safe_to_evict == "false" or must_not_be_disrupted(
            pod_class.do_not_disrupt, pod.started, self._now
        ):
            return True
        if pod_class.mirror or pod.deleted:
            return False
        if len(self._pdbs.of(pod.cls)) > 1:
            return True
        return any(self._pdbs.left(budget) < 1 for budget in self._pdbs.spent_by(pod))

    def _is_consolidatable(self, candidate: KarpenterCandidate) -> bool:
        if self._rules.consolidate_after is None:
            return False
        last = self._memory.pod_events.get(candidate.node.name, candidate.node.created)
        return self._now - last >= self._rules.consolidate_after

    def _budgets(self) -> dict[str, int]:
        """NodePool -> nodes that may begin to go now."""
        state, queue = self._state, self._memory.queue
        nodes: dict[str, int] = {}
        unavailable: dict[str, int] = {}
        for node in self._nodes:
            pool = self._pool(state.group_of[node.name])
            nodes[pool] = nodes.get(pool, 0) + (node.name not in state.leaving)
            out = (
                node.name in queue
                or node.name in state.leaving
                or state.buckets[node.name] is not Bucket.READY
            )
            unavailable[pool] = unavailable.get(pool, 0) + out
        return {
            pool: allowed_disruptions(self._rules.budget, nodes[pool], unavailable[pool])
            for pool in nodes
        }

    def _within_budgets(self, candidates: Iterable[KarpenterCandidate]) -> list[KarpenterCandidate]:
        left = self._budgets()
        chosen = []
        for candidate in candidates:
            if left[candidate.pool] > 0:
                left[candidate.pool] -= 1
                chosen.append(candidate)
        return chosen

    def emptiness(self) -> KarpenterCommand | None:
        """All empty nodes at once."""
        empty = [
            node for node in self._candidates if node.is_empty and self._is_consolidatable(node)
        ]
        chosen = self._within_budgets(empty)
        return _command("Emptiness", chosen, None) if chosen else None

    def _needed(self) -> list[KarpenterCandidate]:
        if self._rules.when_empty:
            return []
        return [
            node for node in self._candidates if not node.is_empty and self._is_consolidatable(node)
        ]

    def multi_node(self) -> KarpenterCommand | None:
        """Binary search for the longest prefix that becomes no node or one."""
        candidates = self._within_budgets(self._needed())
        low, high = 1, min(MOST_MERGED, len(candidates) - 1)
        saved = None
        while low <= high:
            middle = (low + high) // 2
            command = self._computed("MultiNode", candidates[: middle + 1])
            if command is not None:
                saved, low = command, middle + 1
            else:
                high = middle - 1
        return saved

    def single_node(self) -> KarpenterCommand | None:
        """The first node that may go alone, the NodePools in turn."""
        budgets = self._budgets()
        of_pool: dict[str, list[KarpenterCandidate]] = {}
        for candidate in self._needed():
            if budgets[candidate.pool] > 0:
                of_pool.setdefault(candidate.pool, []).append(candidate)
        for turn in range(max(map(len, of_pool.values()), default=0)):
            for _, candidates in sorted(of_pool.items()):
                if turn < len(candidates):
                    command = self._computed("SingleNode", [candidates[turn]])
                    if command is not None:
                        return command
        return None

    def _computed(
        self, method: str, candidates: Sequence[KarpenterCandidate]
    ) -> KarpenterCommand | None:
        """computeConsolidation with the price rules."""
        # An offering that is no longer known counts as 0, so nothing is cheaper than it.
        price = (
            0
            if any(node.price is None for node in candidates)
            else sum(node.price or 0 for node in candidates)
        )
        if self._rules.balanced and not self._is_balanced(candidates, price):
            return None  # even plain deletion scores too low
        options = self._simulation.offerings_without(candidates, price)
        if options is None:
            return None
        if not options:
            return _command(method, candidates, None)
        if all(node.spot for node in candidates):
            options = []  # SpotToSpotConsolidation
        elif method == "MultiNode":
            options = without_same_type(
                options, [(node.type, node.price or 0) for node in candidates]
            )
        if not options:
            return None
        launched = min(options, key=lambda offering: (offering.price, offering.group))
        if self._rules.balanced and not self._is_balanced(candidates, price - launched.price):
            return None
        return _command(method, candidates, launched)

    def _is_balanced(self, candidates: Sequence[KarpenterCandidate], savings: int) -> bool:
        """Whether every NodePool approves of its part of the savings, split
        by the price of its nodes."""
        price = sum(node.price or 0 for node in candidates)
        for pool in {node.pool for node in candidates}:
            own = [node for node in candidates if node.pool == pool]
            share = savings * sum(node.price or 0 for node in own) / price if price else 0.0
            pool_price, pool_disruption = self._totals(pool)
            score = balanced_score(
                share, pool_price, sum(node.cost for node in own), pool_disruption
            )
            if score < 1 / self._rules.balanced:
                return False
        return True

    def _totals(self, pool: str) -> tuple[int, float]:
        """Price and disruption over all nodes of a NodePool."""
        if pool in self._pool_totals:
            return self._pool_totals[pool]
        state = self._state
        price, disruption = 0, 0.0
        for node in self._nodes:
            group = state.groups[state.group_of[node.name]]
            if self._pool(group.id) == pool:
                price += self._node_price(node, group)
                classes = state.snapshot.classes
                pods = self._movable(node.name)
                disruption += disruption_cost(class_eviction_cost(classes[pod.cls]) for pod in pods)
        self._pool_totals[pool] = price, disruption
        return price, disruption


def _command(
    method: str, candidates: Sequence[KarpenterCandidate], offering: Offering | None
) -> KarpenterCommand:
    return KarpenterCommand(
        method,
        tuple(candidate.node.name for candidate in candidates),
        offering.group if offering is not None else "",
        sum(candidate.price or 0 for candidate in candidates),
        offering.price if offering is not None else 0,
        sum(len(candidate.pods) for candidate in candidates),
    )


def next_command(
    snapshot: Snapshot,
    policy: Policy,
    now: float,
    rules: KarpenterRules = KarpenterRules(),  # noqa: B008 - frozen
    memory: KarpenterMemory = KarpenterMemory(),  # noqa: B008 - frozen
) -> KarpenterCommand | None:
    """The command of the first method that acts, None if none does. policy: its prices and
    options."""
    loop = _Loop(snapshot, policy, now, rules, memory)
    return loop.emptiness() or loop.multi_node() or loop.single_node()
