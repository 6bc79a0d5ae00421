"""Searches the scale-up: which groups to grow and by how much, for all pending pods in one pass.

Every group that may scale up is asked what it could do for all unplaced pods. The expander takes
one option, whose nodes and pods are added to the simulated cluster. This repeats with the rest
until nothing more fits or a limit is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.balancing import Likeness, balance, free_capacity
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.estimator import Estimate, PodRequest, estimate, remaining
from chalicelib.plan.scale_up.expanders import LEAST_COST, ExpanderContext, Option, choose_option
from chalicelib.plan.scale_up.scale_up_limits import Allowance, ResourceLimiter
from chalicelib.plan.scale_up.zone_variants import ZoneVariant, zone_variants
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, renamed
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.node_labels import own_keys
from chalicelib.plan.state.spot_market import SpotShares, avoided_until
from chalicelib.plan.state.time_budget import TimeBudget
from chalicelib.plan.tables import Bools


class ScaleUpSearch:
    """One search over all pending pods; it also records what explanations need.

    grown: group -> new nodes so far. first: each group's first option. stops: what kept a
    group from growing further.
    notes: messages of the expanders. group_of: name of a planned node -> its group. passed_over:
    spot groups that were not asked because others take the pods, with the reason. groups: those of
    the state, and the variants of those in several zones; `own` names the group of each.
    """

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        context: ExpanderContext,
        budget: TimeBudget,
    ) -> None:
        variants = zone_variants(state)
        variant_of = {name: variant.group for name, variant in variants.items()}
        self.state, self.simulated, self.budget = state, simulated, budget
        self.context = (
            msgspec.structs.replace(context, variant_of=variant_of) if variants else context
        )
        self.groups = {
            **state.groups,
            **{name: variant.state for name, variant in variants.items()},
        }
        self.limiter = ResourceLimiter(state)
        self.limiter.own = {name: state.groups[variant.group] for name, variant in variants.items()}
        self.candidates = Candidates(state, simulated, self.limiter, variants)
        self.grown: dict[str, int] = {}
        self.group_of: dict[str, str] = {}
        self.first: dict[str, Option] = {}
        self.stops: dict[str, Reason] = {}
        self.notes: dict[object, Reason] = {}
        self.passed_over: dict[str, Reason] = {}
        self._caps: dict[str, int] = {}  # group -> most new nodes of the next option
        self._likeness = Likeness(simulated.classes, state.options)
        self._row = {group.id: row for row, group in enumerate(self.candidates.groups)}
        self._groups_of_pool: dict[str, list[NodeGroupState]] = {}  # those that may scale up
        for group in self.candidates.groups:
            if group.group.pool is not None and group.id not in variants:
                self._groups_of_pool.setdefault(group.group.pool.id, []).append(group)
        self._groups_without_effect: set[str] = set()
        self._groups_at_a_limit: set[str] = set()  # a limit has cut their last option
        self._estimates: dict[tuple[object, ...], Estimate] = {}

    def own(self, group: str) -> str:
        """Return the id of a group, also for its variants."""
        return self.context.variant_of.get(group, group)

    def bought_for_zones(self) -> dict[str, dict[str, int]]:
        """Return group -> zone -> new nodes that were bought for it, of groups in several zones."""
        bought: dict[str, dict[str, int]] = {}
        for name, variant in self.candidates.variants.items():
            if (nodes := self.grown.get(name, 0)) and variant.zone:
                bought.setdefault(variant.group, {})[variant.zone] = nodes
        return bought

    def bought_for_storage(self) -> dict[str, tuple[str, ...]]:
        """Return group -> the storage classes for which a new node was bought to
        find out what it offers."""
        bought: dict[str, tuple[str, ...]] = {}
        for name, variant in self.candidates.variants.items():
            if self.grown.get(name, 0) and variant.storage:
                bought[variant.group] = (*bought.get(variant.group, ()), variant.storage)
        return bought

    def search(
        self, requests: Sequence[PodRequest], *, least_cost: bool = True
    ) -> list[PodRequest]:
        """Take the best option until there is none; returns the unplaced pods. least_cost: let it
        buy first, if the chain names it."""
        unplaced, mark = list(requests), self.simulated.checkpoint()
        if self.limiter.spot is not None:
            unplaced = self._fill_on_demand_base(self.limiter.spot, requests, unplaced, mark)
            self._bar(
                {
                    group.id: reason
                    for group in self.candidates.groups
                    if (reason := self._avoided(group))
                }
            )
        if least_cost and LEAST_COST in self.state.options.expander:
            unplaced = self._buy_with_least_cost(unplaced)
        unplaced = self._buy_options(requests, unplaced, mark)
        if self.candidates.barred:
            # What no other group takes goes where it has to.
            self._bar({})
            self._groups_without_effect.clear()
            unplaced = self._buy_options(requests, unplaced, mark)
        return unplaced

    def _buy_options(
        self, requests: Sequence[PodRequest], unplaced: list[PodRequest], mark: int
    ) -> list[PodRequest]:
        """Take options until there is none; returns the unplaced pods."""
        rest: list[PodRequest] | None = unplaced
        while rest and not self._out_of_time():
            unplaced, rest = rest, self._buy_option(requests, rest, mark)
        return unplaced if rest is None else rest

    def _buy_option(
        self, requests: Sequence[PodRequest], unplaced: list[PodRequest], mark: int
    ) -> list[PodRequest] | None:
        """Take the best option; returns the unplaced pods, None if there is no option."""
        options = self._options(unplaced)
        for option in options:
            self.first.setdefault(option.group, option)
        best, notes = choose_option(options, self.state.options.expander, self.context)
        self.notes.update((note.key, note) for note in notes)
        if best is None:
            return None
        at_a_limit = best.group in self._groups_at_a_limit
        unplaced = self._take(best, unplaced)
        if at_a_limit and unplaced:
            unplaced = self._placed_in_queue_order(requests, unplaced, mark)
        return unplaced

    def _fill_on_demand_base(
        self,
        shares: SpotShares,
        requests: Sequence[PodRequest],
        unplaced: list[PodRequest],
        mark: int,
    ) -> list[PodRequest]:
        """Buy while pools lack nodes on demand (spot.onDemandBase), without their spot groups
        where an on-demand group of the pool fits, and no more on demand than they lack;
        returns the unplaced pods."""
        rest: list[PodRequest] | None = unplaced
        while rest and (lacking := shares.lacking_base()) and not self._out_of_time():
            unplaced = rest
            pools = [shares.pool_of[self.own(group.id)] for group in self.candidates.groups]
            spot = [self.own(group.id) in shares.spot for group in self.candidates.groups]
            self._bar(
                {
                    group.id: shares.base_reason()
                    for group, own, is_spot in zip(self.candidates.groups, pools, spot, strict=True)
                    if is_spot and own in lacking
                },
                same_pool=pools,
            )
            self._caps = {
                group.id: lacking[own]
                for group, own, is_spot in zip(self.candidates.groups, pools, spot, strict=True)
                if own in lacking and not is_spot
            }
            rest = self._buy_option(requests, unplaced, mark)
        self._bar({})
        self._caps = {}
        self._groups_without_effect.clear()
        return unplaced if rest is None else rest

    def _bar(
        self, reasons: Mapping[str, Reason], *, same_pool: Sequence[str] | None = None
    ) -> None:
        """Pass groups over for pods that other groups take. same_pool: the pool of each candidate,
        if only groups of the same pool stand in."""
        groups = self.candidates.groups
        free: Bools = np.array([group.id not in reasons for group in groups], dtype=np.bool_)
        self.candidates.barred = {
            row: free & np.array([pool == same_pool[row] for pool in same_pool])
            if same_pool is not None
            else free
            for row, group in enumerate(groups)
            if group.id in reasons
        }
        self.passed_over |= {
            group: reason for group, reason in reasons.items() if group in self.state.groups
        }

    def _avoided(self, group: NodeGroupState) -> Reason | None:
        until = avoided_until(self.state.groups[self.own(group.id)], self.state)
        return Reason.of(ReasonCode.SPOT_AVOIDED, until=until) if until else None

    def _out_of_time(self) -> bool:
        """Return whether the search must stop; every group that might have
        grown then reports that."""
        late = self.budget.late()
        if late:
            stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=self.state.options.max_binpacking_time)
            self.stops.update((group.id, stop) for group in self.candidates.groups)
        return late

    def _placed_in_queue_order(
        self, requests: Sequence[PodRequest], unplaced: list[PodRequest], mark: int
    ) -> list[PodRequest]:
        """After a limit has cut an option and the largest pods took its nodes: place all pods again
        in queue order on the nodes of the simulated cluster, if more pods find a place that way.
        Cluster Autoscaler does so at the beginning of every loop. Returns the unplaced pods."""
        standing = self.simulated.standing()
        self.simulated.rollback(mark)
        rest = remaining(
            requests, {request.cls: self._fill(request.cls, request.count) for request in requests}
        )
        if sum(request.count for request in rest) < sum(request.count for request in unplaced):
            return rest
        self.simulated.rollback(mark)
        self.simulated.put_all(standing)
        return unplaced

    def _buy_with_least_cost(self, requests: list[PodRequest]) -> list[PodRequest]:
        """Buy what least-cost chooses; returns what is left for the rest of the chain."""
        from chalicelib.plan.scale_up.least_cost import purchases

        limit, prices = self.state.options.max_binpacking_time, self.state.policy.prices
        bought, own = None, self.context.group_prices
        if prices is not None or any(
            own.get(group.id, 0.0) > 0 for group in self.candidates.groups
        ):
            bought = purchases(
                {request.cls: request.count for request in requests},
                self.candidates,
                self.simulated,
                self.limiter,
                self.context.price_of,
                lambda: self.budget.over(limit),
                self.grown,
            )
        if bought is None:
            note = Reason.of(
                ReasonCode.EXPANDER_SKIPPED,
                expander=LEAST_COST,
                detail="no prices, no solver or no time",
            )
            self.notes[note.key] = note
            return requests
        placed: dict[int, int] = {}
        for purchase in bought:
            begin = len(self.simulated.table)
            self.add(purchase.group, purchase.nodes)
            rows = np.arange(begin, begin + purchase.nodes)
            for cls, pods in sorted(purchase.pods.items()):
                self.simulated.place(cls, rows, np.full(purchase.nodes, pods, dtype=np.int64))
                placed[cls] = placed.get(cls, 0) + pods * purchase.nodes
        return remaining(requests, placed)

    def cost(self) -> float:
        """Return the hourly cost of the new nodes, as the expanders weigh it; groups
        without a price count as 0."""
        return sum(
            nodes
            * (self.context.price_of(group, self.candidates.shapes[group].template.node) or 0.0)
            for group, nodes in sorted(self.grown.items())
        )

    def _options(self, requests: Sequence[PodRequest]) -> list[Option]:
        """Return what every group could do for these pods."""
        options: list[Option] = []
        limit = self.state.options.max_binpacking_time
        for row, group in enumerate(self.candidates.groups):
            if group.id in self._groups_without_effect:
                continue
            if row and (self.budget.over(limit) or limit == 0 or self.budget.packed()):
                self.stops[group.id] = Reason.of(ReasonCode.TIME_BUDGET, seconds=limit)
                continue
            fitting = [request for request in requests if self.candidates.fits(request.cls)[row]]
            variant = self.candidates.variants.get(group.id)
            if variant is not None:
                option = self._option_in_zone(variant, fitting)
            else:
                option = self._option(group, fitting) if fitting else None
            if option is not None:
                options.append(option)
        return options

    def _option_in_zone(
        self, variant: ZoneVariant, requests: Sequence[PodRequest]
    ) -> Option | None:
        """Return what a group in several zones could do for these pods if its nodes
        come in this one: first for those that are spread over zones, otherwise for
        those that need the zone."""
        zones, grown = self.simulated.zones, self.grown.get(variant.id, 0)
        if variant.storage:
            most = variant.room.for_zone - grown
            return self._option(variant.state, requests, most) if requests and most > 0 else None
        spread = [request for request in requests if zones.is_spread(request.cls, variant.group)]
        bound = [request for request in requests if not zones.is_spread(request.cls, variant.group)]
        for pods, most in ((spread, variant.room.for_spread), (bound, variant.room.for_zone)):
            option = (
                self._option(variant.state, pods, most - grown) if pods and most > grown else None
            )
            if option is not None:
                return option
        return None

    def _option(
        self, group: NodeGroupState, requests: Sequence[PodRequest], at_most: int | None = None
    ) -> Option | None:
        """Return what a group could do for these pods, which fit its empty nodes; None if it can do
        nothing. at_most: new nodes."""
        if group.template is None:
            return None
        similar = self._similar(group, [request.cls for request in requests])
        room = free_capacity(
            (other.target + self.grown.get(other.id, 0), other.group.max) for other in similar
        )
        allowance = self.limiter.allowance(group, self.grown.get(group.id, 0), room)
        if allowance.nodes <= 0:
            self.stops[group.id] = allowance.stop
            return None
        most = min(allowance.nodes, self._caps.get(group.id, allowance.nodes))
        most = most if at_most is None else min(most, at_most)
        packing = self._pack(group, requests, most)
        if packing.out_of_time:
            limit = self.state.options.max_nodegroup_binpacking_duration
            self.stops[group.id] = Reason.of(ReasonCode.TIME_BUDGET, seconds=limit)
        self._groups_at_a_limit.discard(group.id)
        if packing.refused and most == allowance.nodes:
            self.stops[group.id] = allowance.stop
            self._groups_at_a_limit.add(group.id)
        if not packing.placed:
            return None
        requested: dict[str, int] = {}
        for cls, count in packing.placed.items():
            for name, amount in self.simulated.classes[cls].requests.items():
                requested[name] = requested.get(name, 0) + amount * count
        return Option(
            group.id,
            allowance.nodes if group.group.options.zero_or_max else packing.nodes,
            packing.placed,
            group.template.node,
            requested,
            preference(packing.placed, group.template.node, self.simulated),
            packing.order,
        )

    def _pack(
        self, group: NodeGroupState, requests: Sequence[PodRequest], most_nodes: int
    ) -> Estimate:
        """Estimate, reusing the estimate of groups whose new nodes are equal for these pods."""
        shape = self.candidates.shapes[group.id]
        labels = shape.template.node.labels
        own = own_keys(labels) & labels.keys()
        constraints = [self.simulated.needs(request.cls) for request in requests]
        keys = sorted({key for needs in constraints if needs is not None for key in needs.keys})
        equal = (
            shape.free.tobytes(),
            shape.ports,
            tuple(shape.template.daemons) if keys else (),
            tuple(sorted(shape.template.volume_limits.items())),
            most_nodes,
            tuple((request.cls, request.count) for request in requests),
            # A new node has a value of its own for a label of one node: only that it
            # has such a label matters.
            tuple(True if name in own else labels.get(name) for name in keys),
            self.simulated.generation if keys else -1,
            # Which of the free volumes are left for a new node depends on its zone.
            group.id
            if any(self.simulated.volumes.concerns(request.cls) for request in requests)
            else "",
        )
        if equal not in self._estimates:
            # The time limit for one group starts now; 0: no limit.
            limit, started = (
                self.state.options.max_nodegroup_binpacking_duration,
                self.budget.spent(),
            )

            def out_of_time() -> bool:
                return (limit > 0 and self.budget.spent() - started > limit) or self.budget.packed()

            self._estimates[equal] = estimate(
                shape, requests, self.simulated, most_nodes, out_of_time
            )
        return self._estimates[equal]

    def _similar(self, group: NodeGroupState, classes: Sequence[int]) -> list[NodeGroupState]:
        """Return the groups over which an increase is spread: flavours of the same pool with the
        same rank in any case, other groups with balanceSimilarNodeGroups; never flavours of the
        same pool with another rank."""
        if group.id in self.candidates.variants:
            return []
        pool = group.group.pool
        flavours = self._groups_of_pool.get(pool.id, []) if pool is not None else []
        others = [
            other
            for other in flavours
            if other.group.rank == group.group.rank and other.id != group.id
        ]
        if self.state.options.balance_similar_node_groups:
            apart = {other.id for other in flavours}
            apart |= self.candidates.variants.keys()
            others += [other for other in self.candidates.groups if other.id not in apart]
        if not others:
            return []
        return self._likeness.similar(
            group,
            others,
            lambda other: all(
                bool(self.candidates.fits(cls)[self._row[other.id]]) for cls in classes
            ),
        )

    def _take(self, option: Option, requests: list[PodRequest]) -> list[PodRequest]:
        """Add an option's nodes and pods to the simulated cluster; returns the unplaced pods."""
        groups = self.groups
        shares = [(option.group, option.nodes)]
        similar = self._similar(groups[option.group], list(option.pods))
        is_variant = option.group in self.candidates.variants
        if similar or (self.state.options.balance_similar_node_groups and not is_variant):
            shares = balance(option.nodes, groups[option.group], similar, self.limiter, self.grown)
        if not any(self.allowance(groups[name]).nodes for name, _ in shares):
            # the other groups already have their share of this scale-up
            shares = [(option.group, option.nodes)]
        for name, nodes in shares:
            if nodes := min(nodes, self.allowance(groups[name]).nodes):
                self.add(name, nodes)
        count_of = {request.cls: request.count for request in requests}
        placed = {cls: self._fill(cls, count_of[cls]) for cls in option.order if cls in option.pods}
        if not any(placed.values()):
            self._groups_without_effect.add(option.group)
        for request in requests:
            cls, before = request.cls, placed.get(request.cls, 0)
            if before < request.count and self.simulated.needs(cls) is not None:
                placed[cls] = before + self._fill(cls, request.count - before)
        return remaining(requests, placed)

    def allowance(self, group: NodeGroupState) -> Allowance:
        """Return how many more nodes a group may get without balancing, and what prevents more."""
        return self.limiter.allowance(group, self.grown.get(group.id, 0))

    def _fill(self, cls: int, count: int) -> int:
        return sum(pods for _, pods in self.simulated.place_first_fit(cls, count))

    def add(self, group: str, nodes: int) -> None:
        """Add empty new nodes to a group."""
        self.limiter.take(
            self.candidates.shapes[group].template.node,
            nodes,
            self.state.groups[self.own(group)].group,
        )
        self.put_nodes(group, self.grown.get(group, 0), nodes)
        self.grown[group] = self.grown.get(group, 0) + nodes

    def put_nodes(self, group: str, have: int, nodes: int) -> None:
        """Add new nodes to the simulated cluster, numbered after those the group already has."""
        shape = self.candidates.shapes[group]
        names = [f"new-{number}-for-{group}" for number in range(have + 1, have + nodes + 1)]
        self.group_of.update(dict.fromkeys(names, group))
        free = np.repeat(shape.free[None, :], nodes, axis=0)
        self.simulated.extend(
            renamed(shape.template.node, names),
            free,
            shape.template.daemons,
            shape.template.volume_limits,
        )

    def undo_scale_up(self, group: str, nodes: int) -> None:
        """Remove planned nodes from a group (negative: add them again); the caller
        clears the simulated cluster."""
        self.limiter.take(
            self.candidates.shapes[group].template.node,
            -nodes,
            self.state.groups[self.own(group)].group,
        )
        self.grown[group] -= nodes


def preference(pods: Mapping[int, int], template_node: Node, simulated: SimulatedCluster) -> float:
    """Score the soft preferences of these pods (class -> count), which decide among
    otherwise equal options and never block. It is the mean over the pods, 0 if none has
    preferences; higher is better.

    The score per pod is between 0 and 1: the weight of the preferred node terms that the template
    meets, and how empty its domains are for ScheduleAnyway spreads.
    """
    total, count = 0.0, 0
    own = own_keys(template_node.labels)
    for cls, many in sorted(pods.items()):
        pod = simulated.classes[cls]
        count += many
        weights = sum(term.weight for term in pod.preferred_nodes)
        if weights:
            met = sum(
                preferred.weight
                for preferred in pod.preferred_nodes
                if preferred.term.matches(template_node.name, template_node.labels)
            )
            total += many * met / weights
        for counter, key in simulated.constraints.soft_spread(cls):
            if key not in own and key in template_node.labels:
                total += many / (1 + simulated.rows.here(counter, key, template_node.labels[key]))
    return round(total / count, 9) if count else 0.0
