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
from chalicelib.plan.state.pass_time import PassTime
from chalicelib.plan.state.spot_market import SpotShares, avoided_until
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
        pass_time: PassTime,
    ) -> None:
        variants = zone_variants(state)
        variant_of = {name: variant.group for name, variant in variants.items()}
        self.state = state
        self.simulated = simulated
        self.pass_time = pass_time
        self.context = context
        if variants:
            self.context = msgspec.structs.replace(context, variant_of=variant_of)
        self.groups = dict(state.groups)
        self.groups.update((name, variant.state) for name, variant in variants.items())
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
            nodes = self.grown.get(name, 0)
            if nodes and variant.zone:
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
        unplaced = list(requests)
        mark = self.simulated.checkpoint()
        if self.limiter.spot is not None:
            unplaced = self._fill_on_demand_base(self.limiter.spot, requests, unplaced, mark)
            self._bar(self._avoided_groups())
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
        groups = [group.id for group in self.candidates.groups]
        usual = self.context
        self.context = msgspec.structs.replace(usual, for_base=True)
        while rest:
            lacking = shares.lacking_base()
            if not lacking or self._out_of_time():
                break
            unplaced = rest
            pools = [shares.pool_of[self.own(group)] for group in groups]
            reasons: dict[str, Reason] = {}
            self._caps = {}
            for group, pool in zip(groups, pools, strict=True):
                if pool not in lacking:
                    continue
                if self.own(group) in shares.spot:
                    reasons[group] = shares.base_reason()
                else:
                    self._caps[group] = lacking[pool]
            self._bar(reasons, same_pool=pools)
            rest = self._buy_option(requests, unplaced, mark)
        self.context = usual
        self._bar({})
        self._caps = {}
        self._groups_without_effect.clear()
        return unplaced if rest is None else rest

    def _bar(
        self, reasons: Mapping[str, Reason], *, same_pool: Sequence[str] | None = None
    ) -> None:
        """Pass groups over for pods that other groups take. same_pool: the pool of each candidate,
        if only groups of the same pool stand in."""
        is_barred = [group.id in reasons for group in self.candidates.groups]
        others: Bools = ~np.array(is_barred, dtype=np.bool_)
        self.candidates.barred = {row: others for row, barred in enumerate(is_barred) if barred}
        if same_pool is not None:
            for row in self.candidates.barred:
                in_pool = np.array([pool == same_pool[row] for pool in same_pool])
                self.candidates.barred[row] = others & in_pool
        self.passed_over |= {
            group: reason for group, reason in reasons.items() if group in self.state.groups
        }

    def _avoided_groups(self) -> dict[str, Reason]:
        """Return the candidates that are bought only if nothing else fits, with the reason."""
        reasons: dict[str, Reason] = {}
        for group in self.candidates.groups:
            until = avoided_until(self.state.groups[self.own(group.id)], self.state)
            if until:
                reasons[group.id] = Reason.of(ReasonCode.SPOT_AVOIDED, until=until)
        return reasons

    def _out_of_time(self) -> bool:
        """Return whether the search must stop; every group that might have
        grown then reports that."""
        late = self.pass_time.late()
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
        placed = {request.cls: self._fill(request.cls, request.count) for request in requests}
        rest = remaining(requests, placed)
        pods_before = sum(request.count for request in unplaced)
        if sum(request.count for request in rest) < pods_before:
            return rest
        self.simulated.rollback(mark)
        self.simulated.put_all(standing)
        return unplaced

    def _buy_with_least_cost(self, requests: list[PodRequest]) -> list[PodRequest]:
        """Buy what least-cost chooses; returns what is left for the rest of the chain."""
        from chalicelib.plan.scale_up.least_cost.cheapest_mix import purchases

        limit = self.state.options.max_binpacking_time
        own = self.context.group_prices
        bought = None
        has_price = any(own.get(group.id, 0.0) > 0 for group in self.candidates.groups)
        if has_price or self.state.policy.prices is not None:
            bought = purchases(
                {request.cls: request.count for request in requests},
                self.candidates,
                self.simulated,
                self.limiter,
                self.context.price_of,
                lambda: self.pass_time.over(limit),
                self.grown,
                self.notes,
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
            nodes, begin = purchase.nodes, len(self.simulated.table)
            self.add(purchase.group, nodes)
            rows = np.arange(begin, begin + nodes)
            for cls, pods in sorted(purchase.pods.items()):
                self.simulated.place(cls, rows, np.full(nodes, pods, dtype=np.int64))
                placed[cls] = placed.get(cls, 0) + pods * nodes
        return remaining(requests, placed)

    def cost(self) -> float:
        """Return the hourly cost of the new nodes, as the expanders weigh it; groups
        without a price count as 0."""
        shapes = self.candidates.shapes
        prices = {
            group: self.context.price_of(group, shapes[group].template.node) or 0.0
            for group in self.grown
        }
        return sum(nodes * prices[group] for group, nodes in sorted(self.grown.items()))

    def _options(self, requests: Sequence[PodRequest]) -> list[Option]:
        """Return what every group could do for these pods."""
        options: list[Option] = []
        limit = self.state.options.max_binpacking_time
        weighed = self._finalists(requests)
        for row, group in enumerate(self.candidates.groups):
            if group.id in self._groups_without_effect:
                continue
            if weighed is not None and group.id not in weighed:
                continue
            if row and (self.pass_time.over(limit) or limit == 0 or self.pass_time.packed()):
                self.stops[group.id] = Reason.of(ReasonCode.TIME_BUDGET, seconds=limit)
                continue
            fitting = [request for request in requests if self.candidates.fits(request.cls)[row]]
            if not fitting:
                continue
            variant = self.candidates.variants.get(group.id)
            if variant is not None:
                option = self._option_in_zone(variant, fitting)
            else:
                option = self._option(group, fitting)
            if option is not None:
                options.append(option)
        return options

    def _finalists(self, requests: Sequence[PodRequest]) -> frozenset[str] | None:
        """Return the groups that are weighed one by one, None for all."""
        if self.limiter.declared is None:
            return None
        # Imported here, because few clusters have managed pools.
        from chalicelib.plan.scale_up.finalists import finalists

        classes = [request.cls for request in requests]
        price_of = self.context.price_of
        return finalists(self.candidates, self.simulated, self.limiter.declared, price_of, classes)

    def _option_in_zone(
        self, variant: ZoneVariant, requests: Sequence[PodRequest]
    ) -> Option | None:
        """Return what a group in several zones could do for these pods if its nodes
        come in this one: first for those that are spread over zones, otherwise for
        those that need the zone."""
        zones, grown = self.simulated.zones, self.grown.get(variant.id, 0)
        for_zone = variant.room.for_zone - grown
        for_spread = variant.room.for_spread - grown
        if variant.storage:
            return self._option(variant.state, requests, for_zone) if for_zone > 0 else None
        spread: list[PodRequest] = []
        bound: list[PodRequest] = []
        for request in requests:
            is_spread = zones.is_spread(request.cls, variant.group)
            (spread if is_spread else bound).append(request)
        option = None
        if spread and for_spread > 0:
            option = self._option(variant.state, spread, for_spread)
        if option is None and bound and for_zone > 0:
            option = self._option(variant.state, bound, for_zone)
        return option

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
        if at_most is not None:
            most = min(most, at_most)
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
        node, placed = group.template.node, packing.placed
        nodes = allowance.nodes if group.group.options.zero_or_max else packing.nodes
        preferred = preference(placed, node, self.simulated)
        return Option(group.id, nodes, placed, node, requested, preferred, packing.order)

    def _pack(
        self, group: NodeGroupState, requests: Sequence[PodRequest], most_nodes: int
    ) -> Estimate:
        """Estimate, reusing the estimate of groups whose new nodes are equal for these pods."""
        shape = self.candidates.shapes[group.id]
        labels = shape.template.node.labels
        own = own_keys(labels) & labels.keys()
        constraints = [self.simulated.needs(request.cls) for request in requests]
        keys = sorted({key for needs in constraints if needs is not None for key in needs.keys})
        concerns = self.simulated.volumes.concerns
        has_volumes = any(concerns(request.cls) for request in requests)
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
            group.id if has_volumes else "",
        )
        packing = self._estimates.get(equal)
        if packing is None:
            # The time limit for one group starts now; 0: no limit.
            limit = self.state.options.max_nodegroup_binpacking_duration
            started = self.pass_time.spent()

            def out_of_time() -> bool:
                is_over = limit > 0 and self.pass_time.spent() - started > limit
                return is_over or self.pass_time.packed()

            packing = estimate(shape, requests, self.simulated, most_nodes, out_of_time)
            self._estimates[equal] = packing
        return packing

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

        def takes_pods(group: NodeGroupState) -> bool:
            row = self._row[group.id]
            return all(bool(self.candidates.fits(cls)[row]) for cls in classes)

        return self._likeness.similar(group, others, takes_pods)

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
        for name, share in shares:
            nodes = min(share, self.allowance(groups[name]).nodes)
            if nodes:
                self.add(name, nodes)
        count_of = {request.cls: request.count for request in requests}
        placed = {cls: self._fill(cls, count_of[cls]) for cls in option.order if cls in option.pods}
        if not any(placed.values()):
            self._groups_without_effect.add(option.group)
        for request in requests:
            cls = request.cls
            missing = request.count - placed.get(cls, 0)
            if missing > 0 and self.simulated.needs(cls) is not None:
                placed[cls] = placed.get(cls, 0) + self._fill(cls, missing)
        return remaining(requests, placed)

    def allowance(self, group: NodeGroupState) -> Allowance:
        """Return how many more nodes a group may get without balancing, and what prevents more."""
        return self.limiter.allowance(group, self.grown.get(group.id, 0))

    def _fill(self, cls: int, count: int) -> int:
        return sum(pods for _, pods in self.simulated.place_first_fit(cls, count))

    def add(self, group: str, nodes: int) -> None:
        """Add empty new nodes to a group."""
        before = self.grown.get(group, 0)
        self._use_room(group, nodes)
        self.put_nodes(group, before, nodes)
        self.grown[group] = before + nodes

    def _use_room(self, group: str, nodes: int) -> None:
        """Count new nodes in the limits."""
        template_node = self.candidates.shapes[group].template.node
        own_group = self.state.groups[self.own(group)].group
        self.limiter.take(template_node, nodes, own_group)

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
        self._use_room(group, -nodes)
        self.grown[group] -= nodes


def preference(pods: Mapping[int, int], template_node: Node, simulated: SimulatedCluster) -> float:
    """Score the soft preferences of these pods (class -> count), which decide among
    otherwise equal options and never block. It is the mean over the pods, 0 if none has
    preferences; higher is better.

    The score per pod is between 0 and 1: the weight of the preferred node terms that the template
    meets, and how empty its domains are for ScheduleAnyway spreads.
    """
    total = 0.0
    name, labels = template_node.name, template_node.labels
    shared_keys = labels.keys() - own_keys(labels)
    for cls, count in sorted(pods.items()):
        preferences = simulated.classes[cls].preferred_nodes
        weights = sum(preferred.weight for preferred in preferences)
        if weights:
            met = [item.weight for item in preferences if item.term.matches(name, labels)]
            total += count * sum(met) / weights
        for counter, key in simulated.constraints.soft_spread(cls):
            if key in shared_keys:
                pods_there = simulated.rows.here(counter, key, labels[key])
                total += count / (1 + pods_there)
    all_pods = sum(pods.values())
    return round(total / all_pods, 9) if all_pods else 0.0
