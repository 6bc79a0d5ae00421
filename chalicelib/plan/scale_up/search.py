"""Searches the scale-up: which groups to grow and by how much, for all pending pods in one pass.

Every group that may scale up is asked what it could do for all unplaced pods. The expander takes one option, whose
nodes and pods are added to the simulated cluster. This repeats with the rest until nothing more fits or a limit is
reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import node_price
from chalicelib.plan.scale_up.balancing import Likeness, balance, free_capacity
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.estimator import Estimate, PodRequest, estimate
from chalicelib.plan.scale_up.expanders import LEAST_COST, ExpanderContext, Option, choose_option
from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, renamed
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.time_budget import TimeBudget


class ScaleUpSearch:
    """One search over all pending pods; it also records what explanations need.

    grown: group -> new nodes so far. first: each group's first option. stops: what kept a group from growing further.
    notes: messages of the expanders.
    """

    def __init__(
        self, state: ClusterState, simulated: SimulatedCluster, context: ExpanderContext, budget: TimeBudget
    ) -> None:
        self.state, self.simulated, self.situation, self.budget = state, simulated, context, budget
        self.ledger = ResourceLimiter(state)
        self.candidates = Candidates(state, simulated, self.ledger)
        self.grown: dict[str, int] = {}
        self.group_of: dict[str, str] = {}  # name of a planned node -> its group
        self.first: dict[str, Option] = {}
        self.stops: dict[str, Reason] = {}
        self.notes: dict[object, Reason] = {}
        self._likeness = Likeness(simulated.classes, state.options)
        self._row = {facts.id: row for row, facts in enumerate(self.candidates.able)}
        self._mates: dict[str, list[NodeGroupState]] = {}  # pool -> its groups that may scale up
        for facts in self.candidates.able:
            if facts.group.pool is not None:
                self._mates.setdefault(facts.group.pool.id, []).append(facts)
        self._barren: set[str] = set()
        self._cut: set[str] = set()  # groups whose last option was cut by a limit
        self._packed: dict[tuple[object, ...], Estimate] = {}

    def search(self, asks: Sequence[PodRequest], *, mixed: bool = True) -> list[PodRequest]:
        """Take the best option until there is none; returns the unplaced pods. mixed: let least-cost buy first, if the
        chain names it."""
        left, mark = list(asks), self.simulated.checkpoint()
        if mixed and LEAST_COST in self.state.options.expander:
            left = self._mix(left)
        while left and not self._late():
            options = self.options(left)
            for option in options:
                self.first.setdefault(option.group, option)
            best, notes = choose_option(options, self.state.options.expander, self.situation)
            self.notes.update((note.key, note) for note in notes)
            if best is None:
                break
            cut = best.group in self._cut
            left = self._take(best, left)
            if cut and left:
                left = self._refilled(asks, left, mark)
        return left

    def _late(self) -> bool:
        """Return whether the search must stop; every group that might have grown then reports that."""
        late = self.budget.late()
        if late:
            stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=self.state.options.max_binpacking_time)
            self.stops.update((facts.id, stop) for facts in self.candidates.able)
        return late

    def _refilled(self, asks: Sequence[PodRequest], left: list[PodRequest], mark: int) -> list[PodRequest]:
        """After a limit has cut an option and the largest pods took its nodes: place all pods again in queue order on
        the nodes of the simulated cluster, if more pods find a place that way. Cluster Autoscaler does so at the
        beginning of every loop."""
        standing, before = self.simulated.standing(), sum(ask.count for ask in left)
        self.simulated.rollback(mark)
        now = [PodRequest(ask.cls, rest, ask.first) for ask in asks if (rest := ask.count - self._fill(ask))]
        if sum(ask.count for ask in now) < before:
            return now
        self.simulated.rollback(mark)
        self.simulated.put_all(standing)
        return left

    def _mix(self, asks: list[PodRequest]) -> list[PodRequest]:
        """Buy what least-cost chooses; returns what is left for the rest of the chain."""
        from chalicelib.plan.scale_up.least_cost import purchases
        from chalicelib.plan.scale_up.least_cost.problem import Shared

        limit, prices = self.state.options.max_binpacking_time, self.state.policy.prices
        priced = prices is not None or any(facts.group.price > 0 for facts in self.candidates.able)
        bought = (
            None
            if not priced
            else purchases(
                {ask.cls: ask.count for ask in asks},
                self.candidates,
                self.simulated,
                self.ledger,
                prices,
                lambda: self.budget.over(limit),
                self.grown,
                [Shared(amounts, most) for amounts, most in self.ledger.shared(self.candidates.able)],
            )
        )
        if bought is None:
            note = Reason.of(ReasonCode.EXPANDER_SKIPPED, expander=LEAST_COST, detail="no prices, no solver or no time")
            self.notes[note.key] = note
            return asks
        done: dict[int, int] = {}
        for one in bought:
            begin = len(self.simulated.table)
            self.add(one.group, one.nodes)
            rows = np.arange(begin, begin + one.nodes)
            for cls, each in sorted(one.pods.items()):
                self.simulated.place(cls, rows, np.full(one.nodes, each, dtype=np.int64))
                done[cls] = done.get(cls, 0) + each * one.nodes
        return [
            PodRequest(ask.cls, ask.count - done.get(ask.cls, 0), ask.first)
            for ask in asks
            if done.get(ask.cls, 0) < ask.count
        ]

    def cost(self) -> float:
        """Return the hourly cost of the new nodes; groups without a price count as 0."""
        prices, groups = self.state.policy.prices, self.state.groups
        return sum(
            nodes * (node_price(self.candidates.shapes[group].template.node, prices, groups[group].group.price) or 0.0)
            for group, nodes in sorted(self.grown.items())
        )

    def options(self, asks: Sequence[PodRequest]) -> list[Option]:
        """Return what every group could do for these pods."""
        found: list[Option] = []
        limit = self.state.options.max_binpacking_time
        for row, facts in enumerate(self.candidates.able):
            if facts.id in self._barren:
                continue
            if row and (self.budget.over(limit) or limit == 0 or self.budget.packed()):
                self.stops[facts.id] = Reason.of(ReasonCode.TIME_BUDGET, seconds=limit)
                continue
            option = self._option(row, facts, asks)
            if option is not None:
                found.append(option)
        return found

    def _option(self, row: int, group: NodeGroupState, asks: Sequence[PodRequest]) -> Option | None:
        fitting = [ask for ask in asks if self.candidates.fits(ask.cls)[row]]
        if not fitting or group.template is None:
            return None
        allowance = self.ledger.allowance(group, self.grown.get(group.id, 0), self._beside(group, fitting))
        if allowance.nodes <= 0:
            self.stops[group.id] = allowance.stop
            return None
        packing = self._pack(group, fitting, allowance.nodes)
        if packing.out_of_time:
            limit = self.state.options.max_nodegroup_binpacking_duration
            self.stops[group.id] = Reason.of(ReasonCode.TIME_BUDGET, seconds=limit)
        self._cut.discard(group.id)
        if packing.refused:
            self.stops[group.id] = allowance.stop
            self._cut.add(group.id)
        if not packing.placed:
            return None
        atomic = group.group.options.zero_or_max
        requested: dict[str, int] = {}
        for cls, count in packing.placed.items():
            for name, amount in self.simulated.classes[cls].requests.items():
                requested[name] = requested.get(name, 0) + amount * count
        return Option(
            group.id,
            allowance.nodes if atomic else packing.nodes,
            packing.placed,
            group.template.node,
            requested,
            preference(packing.placed, group.template.node, self.simulated),
            packing.order,
        )

    def _pack(self, group: NodeGroupState, asks: Sequence[PodRequest], limit: int) -> Estimate:
        """Estimate, reusing the estimate of groups whose new nodes are equal for these pods."""
        shape = self.candidates.shapes[group.id]
        labels = shape.template.node.labels
        keys = sorted(
            {key for ask in asks if (needs := self.simulated.needs(ask.cls)) is not None for key in needs.keys}
        )
        key = (
            shape.free.tobytes(),
            shape.ports,
            tuple(shape.template.daemons) if keys else (),
            tuple(sorted(shape.template.volume_limits.items())),
            limit,
            tuple((ask.cls, ask.count) for ask in asks),
            # A new node has a host name of its own: only whether the template has the label matters.
            tuple(name in labels if name == HOSTNAME_LABEL else labels.get(name) for name in keys),
            self.simulated.generation if keys else -1,
        )
        found = self._packed.get(key)
        if found is None:
            found = self._packed[key] = estimate(shape, asks, self.simulated, limit, self._alarm())
        return found

    def _alarm(self) -> Callable[[], bool]:
        """Return a function that reports when the time limit for one group, started now, is over; 0: no limit."""
        limit, started = self.state.options.max_nodegroup_binpacking_duration, self.budget.spent()
        return lambda: (limit > 0 and self.budget.spent() - started > limit) or self.budget.packed()

    def _beside(self, group: NodeGroupState, asks: Sequence[PodRequest]) -> int:
        """Return how much of an increase similar groups could take."""
        return free_capacity(
            (other.target + self.grown.get(other.id, 0), other.group.max)
            for other in self._similar(group, [ask.cls for ask in asks])
        )

    def _similar(self, group: NodeGroupState, classes: Sequence[int]) -> list[NodeGroupState]:
        """Return the groups over which an increase is spread: flavours of the same pool with the same rank in any case,
        other groups with balanceSimilarNodeGroups; never flavours of the same pool with another rank."""
        pool = group.group.pool
        mates = self._mates.get(pool.id, []) if pool is not None else []
        others = [other for other in mates if other.group.rank == group.group.rank and other.id != group.id]
        if self.state.options.balance_similar_node_groups:
            apart = {other.id for other in mates}
            others += [other for other in self.candidates.able if other.id not in apart]
        if not others:
            return []
        return self._likeness.similar(
            group, others, lambda other: all(bool(self.candidates.fits(cls)[self._row[other.id]]) for cls in classes)
        )

    def _take(self, option: Option, asks: list[PodRequest]) -> list[PodRequest]:
        """Add an option's nodes and pods to the simulated cluster; returns the unplaced pods."""
        facts = self.state.groups[option.group]
        shares = [(option.group, option.nodes)]
        similar = self._similar(facts, list(option.pods))
        if similar or self.state.options.balance_similar_node_groups:
            shares = balance(option.nodes, facts, similar, self.ledger, self.grown)
        if not any(self._most(group) for group, _ in shares):
            shares = [(option.group, option.nodes)]  # the other groups already have their share of this scale-up
        for group, nodes in shares:
            if nodes := min(nodes, self._most(group)):
                self.add(group, nodes)
        by_class = {ask.cls: ask for ask in asks}
        done = {cls: self._fill(by_class[cls]) for cls in option.order if cls in option.pods}
        if not any(done.values()):
            self._barren.add(option.group)
        for ask in asks:
            if self.simulated.needs(ask.cls) is not None and done.get(ask.cls, 0) < ask.count:
                done[ask.cls] = done.get(ask.cls, 0) + self._fill(PodRequest(ask.cls, ask.count - done.get(ask.cls, 0)))
        return [
            PodRequest(ask.cls, ask.count - done.get(ask.cls, 0), ask.first)
            for ask in asks
            if done.get(ask.cls, 0) < ask.count
        ]

    def _most(self, group: str) -> int:
        """Return how many more nodes a group may get without balancing."""
        return self.ledger.allowance(self.state.groups[group], self.grown.get(group, 0)).nodes

    def _fill(self, request: PodRequest) -> int:
        return sum(count for _, count in self.simulated.place_first_fit(request.cls, request.count))

    def add(self, group: str, nodes: int) -> None:
        """Add `count` empty new nodes to a group."""
        self.ledger.take(self.candidates.shapes[group].template.node, nodes, self.state.groups[group].group)
        self.put_nodes(group, self.grown.get(group, 0), nodes)
        self.grown[group] = self.grown.get(group, 0) + nodes

    def put_nodes(self, group: str, have: int, nodes: int) -> None:
        """Add new nodes to the simulated cluster, numbered after those the group already has."""
        shape = self.candidates.shapes[group]
        names = [new_name(group, number) for number in range(have + 1, have + nodes + 1)]
        self.group_of.update(dict.fromkeys(names, group))
        free = np.repeat(shape.free[None, :], nodes, axis=0)
        self.simulated.extend(
            renamed(shape.template.node, names), free, shape.template.daemons, shape.template.volume_limits
        )

    def undo_scale_up(self, group: str, nodes: int) -> None:
        """Remove `count` planned nodes from a group; the caller clears the simulated cluster."""
        self.ledger.take(self.candidates.shapes[group].template.node, -nodes, self.state.groups[group].group)
        self.grown[group] -= nodes

    def redo_scale_up(self, group: str, nodes: int) -> None:
        """Undo `undo_scale_up`."""
        self.undo_scale_up(group, -nodes)


def new_name(group: str, number: int) -> str:
    """Return the name of a planned node within a pass."""
    return f"new-{number}-for-{group}"


# DOC chalicelib/plan/scale_up/preferences.py: Scores soft preferences: they decide among otherwise equal options and never block.
# DOC
# DOC The score per pod is between 0 and 1: the weight of the preferred node terms that the template meets, and how empty its
# DOC domains are for ScheduleAnyway spreads.
# DOC
def preference(pods: Mapping[int, int], template_node: Node, simulated: SimulatedCluster) -> float:
    """Return the mean over these pods (class -> count), 0 if none has preferences; higher is better."""
    total, count = 0.0, 0
    for cls, many in sorted(pods.items()):
        pod = simulated.classes[cls]
        count += many
        weights = sum(each.weight for each in pod.preferred_nodes)
        if weights:
            met = sum(
                each.weight
                for each in pod.preferred_nodes
                if each.term.matches(template_node.name, template_node.labels)
            )
            total += many * met / weights
        for counter, key in simulated.constraints.soft_spread(cls):
            if key != HOSTNAME_LABEL and key in template_node.labels:
                here = simulated.rows.here(counter, key, template_node.labels[key])
                total += many / (1 + here)
    return round(total / count, 9) if count else 0.0
