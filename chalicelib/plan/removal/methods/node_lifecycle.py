"""Age, drift and repair: nodes that are due go, with another node in their place where
their pods have no room.

    due nodes ► held? ► candidates ► into room that exists, or a node of the same group is
    bought first (replacements.py)

A node is replaced by one of its own group, which is made as the group is defined now; by one of
another group only if that costs no more than the disruption is worth. Where pods need a zone of a
group in several, a successor is an attempt for the zone of the old node, with the limits of
plan/state/purchase_attempts.py. A sick node may be restarted first, and goes before its successor
comes where its group cannot grow. See docs/reference/node-lifecycle.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import GroupRenewal, NodeMemory, Replacement, ReplacementState
from chalicelib.model.node import Node
from chalicelib.model.plan import LifecycleVerdict, Removal, Restart
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import Price
from chalicelib.plan.removal.candidates import (
    Candidate,
    DrainabilityChecker,
    Usage,
    blocked,
    ineligibility_reason,
)
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.removal.consolidation.eligibility import protection
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext
from chalicelib.plan.removal.replacement_rows import UNDER_WAY, belongs_to, open_surge, surge_limit
from chalicelib.plan.removal.replacements import Advance, Reservation, advance
from chalicelib.plan.removal.simulate import RemovalSimulation, SimulatedRemoval, carry_out
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.scale_up.zone_variants import ZoneVariant, zone_variants
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.empty_groups import is_drained
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.state.purchase_attempts import room_in_zone
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.renewals import after_renewal, with_successors
from chalicelib.plan.state.sick_old_drifted_nodes import DueNode, lifecycle_state
from chalicelib.plan.state.zones import zone_label
from chalicelib.plan.tables import Ints
from chalicelib.policy.settings.node_lifecycle import RepairAction
from chalicelib.reasons.text import sentence

REASONS = frozenset({DisruptionReason.REPAIR, DisruptionReason.EXPIRED, DisruptionReason.DRIFTED})
MOST_TRIED = 100
"""Due nodes for which a pass looks for a place."""
MOST_NOTES = 10
"""Notes of each kind in a plan."""


class LifecycleResult(msgspec.Struct, frozen=True):
    """What is done with due nodes in this pass. commands: removals, and purchases of replacements.
    restarts: of sick nodes. verdicts: each due node, and what holds it. advanced: the replacements.
    notes: for the plan. memory: node -> what is remembered of it, of all nodes of which anything
    is. renewals: group -> reason -> the same of renewals.
    for_zones: group in several zones -> zone -> successors that are bought for it."""

    commands: tuple[DisruptionCommand, ...]
    restarts: tuple[Restart, ...]
    verdicts: tuple[LifecycleVerdict, ...]
    advanced: Advance
    notes: tuple[Reason, ...]
    memory: Mapping[str, NodeMemory]
    renewals: Mapping[str, Mapping[str, GroupRenewal]]
    for_zones: Mapping[str, Mapping[str, int]]


class _SuccessorSource(NamedTuple):
    """Of which group a successor is bought. attempt: its zone, where the pods need one of
    several; None: any will do."""

    group: str
    attempt: ZoneVariant | None = None

    @property
    def zone(self) -> str:
        return self.attempt.zone if self.attempt is not None else ""


class _Proposal(NamedTuple):
    """What a proposal buys: successors with one reason, of one group, for one zone ("": for
    any)."""

    why: DisruptionReason
    group: str
    zone: str


def renew_nodes(context: DisruptionContext, unneeded: Collection[str]) -> LifecycleResult:
    """Return what is done with nodes that are due. unneeded: nodes that go by themselves,
    because nothing needs them. context: its reservation is used, and its simulated cluster
    keeps the moves of pods."""
    return _Renewal(context, unneeded).result()


class _Renewal:
    def __init__(self, context: DisruptionContext, unneeded: Collection[str]) -> None:
        self.context = context
        self.state = context.state
        self.simulated = context.simulated
        self.removal_limits = context.removal_limits
        self.lifecycle = lifecycle_state(self.state)
        self.reservation = context.reservation or Reservation(self.state, self.simulated)
        dead = frozenset(item.node.name for item in self.lifecycle.due if _is_dead(item))
        self.checker = DrainabilityChecker(self.state, self.removal_limits.pdbs, dead)
        self.book = self.state.prices
        going = self.removal_limits.taken.union(unneeded)
        due_nodes = {item.node.name: item for item in self.lifecycle.due}
        self.due = {name: item for name, item in due_nodes.items() if name not in going}
        self.tried = 0  # due nodes for which a place was looked for
        self.verdicts: dict[str, Reason] = {}
        self.removals: dict[DisruptionReason, list[Removal]] = {}
        self.restarts: list[Restart] = []
        self.proposed: dict[_Proposal, list[Candidate]] = {}
        self._usage: Usage | None = None
        self._costs: Costs | None = None
        self._groups: Candidates | None = None
        self._limiter: ResourceLimiter | None = None

    def result(self) -> LifecycleResult:
        reasons_to_hold = {
            name: item.held for name, item in self.due.items() if item.held is not None
        }
        self.verdicts |= reasons_to_hold
        ready = [item for name, item in self.due.items() if name not in reasons_to_hold]
        free = [item for item in ready if self._is_free(item.node.name)]
        for item in free:
            reason = self.context.not_evaluated if self.context.over() else self._act(item)
            if reason is not None:
                self.verdicts[item.node.name] = reason
        advanced = advance(
            self.state,
            self.simulated,
            self.removal_limits,
            judge=self._judge,
            reservation=self.reservation,
            proposals=self._proposals(),
            reasons=REASONS,
        )
        self.verdicts |= {name: why for name, why in advanced.verdicts.items() if name in self.due}
        self.verdicts |= {
            name: reason
            for name, reason in reasons_to_hold.items()
            if reason.code is ReasonCode.RENEWAL_RESTS
        }
        commands = [
            DisruptionCommand(reason, tuple(removals)) for reason, removals in self.removals.items()
        ]
        return LifecycleResult(
            commands=(*commands, *advanced.commands),
            restarts=tuple(self.restarts),
            verdicts=self._report(advanced),
            advanced=advanced,
            notes=self._notes(),
            memory=self._memory(),
            renewals=self._renewals(advanced),
            for_zones=self._bought_for_zones(advanced),
        )

    def _is_free(self, name: str) -> bool:
        """Return whether a due node is part of no replacement, and say so if it is."""
        for row in self.reservation.rows.values():
            if name not in (*row.nodes, *row.new_nodes):
                continue
            if row.state is not ReplacementState.FAILED:
                self.verdicts[name] = belongs_to(row)
                return False
            if row.until > self.state.now:
                detail = sentence(row.why) if row.why is not None else ""
                self.verdicts[name] = Reason.of(
                    ReasonCode.REPLACEMENT_FAILED, until=row.until, detail=detail
                )
                return False
        return True

    # --- one node

    def _act(self, due_node: DueNode) -> Reason | None:
        """Remove, restart or replace a node; returns what holds it."""
        candidate = self._trial(due_node) or self._candidate(due_node)
        if isinstance(candidate, Reason):
            return candidate
        removal = _simulated(candidate)
        name = due_node.node.name
        too_many = self.context.not_evaluated if self.tried >= MOST_TRIED else None
        refusal = (
            self.removal_limits.standing_refusal(removal, due_node.why)
            or self.removal_limits.disruption_refusal(candidate.group, [name], due_node.why)
            or too_many
        )
        if refusal is not None:
            return refusal
        self.tried += 1
        result = self._places([candidate])
        place_reason = result if isinstance(result, Reason) else None
        places = [] if isinstance(result, Reason) else result
        if due_node.action is RepairAction.RESTART and due_node.why is DisruptionReason.REPAIR:
            group = self.state.groups[candidate.group].group
            if not group.restarts:
                return Reason.of(ReasonCode.CANNOT_RESTART, provider=group.provider)
            if places or self.state.buckets[name] is not Bucket.READY:
                return self._restart(due_node, candidate, places)
        if places:
            refusal = self._remove(due_node.why, places)
            if refusal is None or not refusal.code.row.replaceable:
                return refusal
        return self._replace(due_node, candidate, place_reason)

    def _trial(self, due_node: DueNode) -> Reason | None:
        """Return why a node waits for a single other one: after a rest, one successor
        shows whether it helps now."""
        why = due_node.why
        group = due_node.group
        renewal = self.lifecycle.renewals.get(group, {}).get(why.value)
        if renewal is None or not renewal.times or why is DisruptionReason.REPAIR:
            return None
        is_tried = any(removal.group == group for removal in self.removals.get(why, ()))
        if not (is_tried or self._is_bought(group, why) or self._is_proposed(group, why)):
            return None
        since = renewal.began or self.state.now
        needs = 2 * self.state.policy.consolidation.confirm_after
        return Reason.of(ReasonCode.NOT_CONFIRMED, since=since, needs=needs)

    def _is_bought(self, group: str, reason: DisruptionReason) -> bool:
        rows = [row for row in self.reservation.rows.values() if row.state in UNDER_WAY]
        own_rows = [row for row in rows if row.reason is reason]
        return any(purchase.group == group for row in own_rows for purchase in row.purchases)

    def _is_proposed(self, group: str, reason: DisruptionReason) -> bool:
        proposals = [key for key, candidates in self.proposed.items() if candidates]
        return any(key.why is reason and key.group == group for key in proposals)

    def _candidate(self, due_node: DueNode) -> Candidate | Reason:
        """Return a node as a candidate, or what keeps it whatever the budgets allow."""
        node = due_node.node
        is_repair = due_node.why is DisruptionReason.REPAIR
        usage = self._usage = self._usage or Usage(self.state)

        def filtered(
            node: Node, group: NodeGroupState, _state: object, _usage: object
        ) -> Reason | None:
            if group.group.options.zero_or_max:
                detail = "its group goes as a whole or not at all"
                return Reason.of(ReasonCode.UNEXPECTED, detail=detail)
            if not is_repair and self.state.buckets[node.name] is not Bucket.READY:
                return Reason.of(ReasonCode.UNEXPECTED, detail="it is not ready")
            return None if is_repair else protection(node, self.state)

        reason = ineligibility_reason(
            node, self.state, usage, filtered, may_buy=True, keeps_size=True, unready=is_repair
        )
        if reason is None and node.name in self.simulated.promised and not is_repair:
            reason = Reason.of(ReasonCode.PROMISED, pod=self.simulated.promised[node.name])
        if reason is None and node.name in self.simulated.held:
            reason = Reason.of(ReasonCode.UNEXPECTED, detail=self.simulated.held[node.name])
        if reason is not None:
            return reason
        candidate = self.checker.of(node, usage.share(node))
        if not isinstance(candidate, Candidate):
            return candidate.reason
        budgets = self.removal_limits.pdbs
        exhausted = budgets.exhausted(candidate.limited)
        if exhausted is not None:
            pod, budget = exhausted
            return blocked(node, pod, budgets.refusal(budget)).reason
        return candidate

    def _places(self, candidates: Sequence[Candidate]) -> list[SimulatedRemoval] | Reason:
        """Return these removals with the places of all their pods on nodes that exist, or why there
        are none. The simulated cluster and the budgets are left as they were. Nodes that are not
        due themselves take the pods first: a pod on a due node would have to move once more."""
        row_of = self.simulated.table.index
        names = {candidate.node.name for candidate in candidates}
        others = [name for name in self.due if name not in names and name in row_of]
        due_rows: Ints = np.array(sorted(row_of[name] for name in others), dtype=np.int64)
        open_rows = np.flatnonzero(self.simulated.open[: self.simulated.real])
        staying: Ints = np.setdiff1d(open_rows, due_rows)
        going = due_rows[self.simulated.open[due_rows]]
        drains = max(self.state.options.max_drain_parallelism, 1)
        trial = RemovalSimulation(
            self.simulated, self.removal_limits.pdbs.copy(), staying, going, drains
        )
        removals: list[SimulatedRemoval] = []
        reason: Reason | None = None
        for candidate in candidates:
            result = trial.attempt(candidate)
            if isinstance(result, SimulatedRemoval):
                removals.append(result)
                continue
            reason = trial.verdict(result).reason
            break
        trial.undo()
        return reason or removals

    def _remove(
        self, reason: DisruptionReason, places: Sequence[SimulatedRemoval]
    ) -> Reason | None:
        """Remove nodes whose pods have places, if the budgets have room; returns
        the refusal of the first."""
        allowed, refusals = self.removal_limits.draw(places, lambda _: None, reason)
        carry_out(allowed, self.checker, self.simulated, self.removal_limits.pdbs)
        removals = self.removals.setdefault(reason, [])
        removals += [removal.planned(reason) for removal in allowed]
        return next(iter(refusals.values()), None)

    def _restart(
        self, due_node: DueNode, candidate: Candidate, places: Sequence[SimulatedRemoval]
    ) -> Reason | None:
        """Restart a sick node after its pods have left. It takes the room of
        a removal in all budgets."""
        name = due_node.node.name
        removals = places or [_simulated(candidate)]
        allowed, refusals = self.removal_limits.draw(
            removals, lambda _: None, due_node.why, keeps_size=True
        )
        if not allowed:
            return refusals.get(name)
        carry_out(allowed, self.checker, self.simulated, self.removal_limits.pdbs)
        restart = Restart(name, due_node.group, due_node.condition, allowed[0].evict)
        self.restarts.append(restart)
        return None

    # --- purchases

    def _replace(
        self, due_node: DueNode, candidate: Candidate, place_reason: Reason | None
    ) -> Reason | None:
        """Propose that a node is bought for the pods of this one; returns why not."""
        source = self._source(candidate, due_node)
        if isinstance(source, Reason):
            if due_node.why is DisruptionReason.REPAIR and _is_full(source):
                return self._remove_first(due_node, candidate)
            if source.code is ReasonCode.NO_PLACE_TO_MOVE_PODS:
                return place_reason or source
            return source
        proposal = _Proposal(due_node.why, source.group, source.zone)
        candidates = self.proposed.setdefault(proposal, [])
        limit_reason = self._no_room_for(source, len(candidates))
        if limit_reason is not None:
            return limit_reason
        group = self.state.groups[source.group]
        assert group.template is not None, "a group that may grow"
        self._purchasable().take(group.template.node, 1, group.group)
        candidates.append(candidate)
        self.removal_limits.promise([candidate.node.name])
        return None

    def _no_room_for(self, source: _SuccessorSource, before: int) -> Reason | None:
        """Return which limit a further purchase of one proposal exceeds. before:
        nodes that the proposal buys."""
        group = self.state.groups[source.group]
        if source.attempt is not None and before >= source.attempt.room.for_zone:
            return source.attempt.room.why
        pool = pool_id(group.group)
        limit = surge_limit(pool, self.state)
        if before:
            rows = (row for row in self.reservation.rows.values() if row.state in UNDER_WAY)
            surge = open_surge(rows, self.state).get(pool, 0) + before
            if surge >= limit:
                return Reason.of(ReasonCode.SURGE_LIMIT, limit=limit)
        allowance = self._purchasable().allowance(group, before)
        return None if allowance.nodes > 0 else allowance.stop

    def _purchasable(self) -> ResourceLimiter:
        """Return what may still be bought beside what is proposed already."""
        self._limiter = self._limiter or self.removal_limits.purchasable()
        return self._limiter

    def _source(self, candidate: Candidate, due_node: DueNode) -> _SuccessorSource | Reason:
        """Return the group of which a node is bought: its own if the pods fit a new node of it,
        otherwise the cheapest one that costs at most what the disruption is worth more (any, if the
        own one is drained), otherwise its own as an attempt for its zone."""
        groups = self._groups = self._groups or self._candidate_groups()
        own = candidate.group
        classes = {pod.cls for pod in candidate.pods}
        columns = self.simulated.table.columns
        need: Ints = np.zeros(len(columns.names), dtype=np.int64)
        for pod in candidate.pods:
            need += columns.need(pod.cls)
        fitting = _fitting_groups(groups, classes, need)
        if own in fitting:
            return _SuccessorSource(own)
        highest_price: float | None = self._affordable(due_node.node)
        if is_drained(self.state.groups[own].group, self.state):
            highest_price = math.inf  # an operator has decided that its nodes go
        prices = {name: self._price_of(name) for name in fitting}
        by_price = sorted(
            (math.inf if price is None else price, name) for name, price in prices.items()
        )
        if by_price and highest_price is not None:
            lowest_price, cheapest = by_price[0]
            if lowest_price <= highest_price:
                return _SuccessorSource(cheapest)
        if own in groups.skipped:
            return groups.skipped[own]
        attempt = self._attempt(groups, candidate, classes, need)
        if attempt is not None:
            return attempt
        # An empty node has no successor only where DaemonSets ask for more than a new one has.
        first_pod = candidate.pods[0].key if candidate.pods else "those that each node has"
        return Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod=first_pod, what="no group fits")

    def _candidate_groups(self) -> Candidates:
        variants = zone_variants(self.state).items()
        zones = {name: variant for name, variant in variants if variant.zone}
        return Candidates(self.state, self.simulated, self._purchasable(), zones)

    def _attempt(
        self, candidates: Candidates, candidate: Candidate, classes: Collection[int], need: Ints
    ) -> _SuccessorSource | Reason | None:
        """Return an attempt for the zone of a node, whose pods fit a new one there, or why none is
        made now; None where that would not help."""
        own = candidate.group
        zone = zone_label(candidate.node)
        own_variants = (variant for variant in candidates.variants.values() if variant.group == own)
        attempt = next((variant for variant in own_variants if variant.zone == zone), None)
        if attempt is None:
            return None
        has_room = need <= candidates.shapes[own].free
        if not has_room.all():
            return None
        if not all(zone in self.simulated.zones.fitting_zones(cls, own) for cls in classes):
            return None
        if attempt.room.for_zone <= 0:
            return attempt.room.why
        rows = [row for row, group in enumerate(candidates.groups) if group.id in (own, attempt.id)]
        fits = all(bool(candidates.fits(cls)[rows].any()) for cls in classes)
        return _SuccessorSource(own, attempt) if fits else None

    def _affordable(self, node: Node) -> int | None:
        """Return the most that another group's node may cost: the price of this
        one, and of its disruption."""
        costs = self._costs = self._costs or Costs(self.state)
        cost = costs.nodes.get(node.name)
        return None if cost is None else cost.now + costs.disruption_price(node.name)

    def _price_of(self, group: str) -> int | None:
        own = self.state.groups[group]
        if own.template is None:
            return None
        price = self.book.of_node(own.template.node, own.group)
        return price.amount if isinstance(price, Price) else None

    def _remove_first(self, due_node: DueNode, candidate: Candidate) -> Reason | None:
        """Remove a sick node of a group that cannot grow before its successor comes, one node at a
        time. Until then its pods wait, so their disruption budgets must allow all of them to be
        away at once: otherwise the drain could not end."""
        leaving = self._leaving_of(candidate.group)
        others = [name for name in leaving if name != due_node.node.name]
        if others:
            return Reason.of(ReasonCode.REPAIRED_ONE_BY_ONE, node=others[0])
        if self.state.groups[candidate.group].upcoming:
            return Reason.of(ReasonCode.GROUP_GROWING)  # the successor of the last one comes first
        zone_reason = self._no_attempt_for(candidate)
        if zone_reason is not None:
            return zone_reason
        budgets = self.removal_limits.pdbs
        for pod, names in candidate.limited:
            for name in names:
                if budgets.left(name) < candidate.used.get(name, 0):
                    return blocked(candidate.node, pod, budgets.refusal(name)).reason
        return self._remove(due_node.why, [_simulated(candidate)])

    def _no_attempt_for(self, candidate: Candidate) -> Reason | None:
        """Return why nothing would be bought for the zone of a node once it has gone, if its pods
        need the zone of a group in several; None otherwise."""
        group = self.state.groups[candidate.group]
        zones = self.simulated.zones
        zone = zone_label(candidate.node)
        if zone not in group.zones:
            return None
        if all(zones.fits_anywhere(pod.cls, group.id) for pod in candidate.pods):
            return None
        room = room_in_zone(group, zone, self.state)
        return room.why if room.for_zone <= 0 else None

    def _leaving_of(self, group: str) -> list[str]:
        """Return the nodes of a group that leave, or that this pass removes for any reason: without
        them the group has room for a successor."""
        leaving = self.removal_limits.taken | self.state.leaving
        return [name for name in sorted(leaving) if self.state.group_of.get(name) == group]

    def _proposals(self) -> list[JudgedMove]:
        moves = []
        for key, candidates in self.proposed.items():
            if candidates:
                removals = [_simulated(candidate) for candidate in candidates]
                moves.append(self._move(removals, key.group, key.why))
        return moves

    def _bought_for_zones(self, advanced: Advance) -> dict[str, dict[str, int]]:
        """Return group -> zone -> successors that this pass buys as attempts."""
        zones: dict[tuple[str, str], str] = {}
        for key, candidates in self.proposed.items():
            if key.zone:
                zones |= {(candidate.node.name, key.group): key.zone for candidate in candidates}
        purchases = [up for command in advanced.commands for up in command.replacements]
        bought: dict[str, dict[str, int]] = {}
        for purchase in purchases:
            first_node = advanced.rows[purchase.replacement].nodes[0]
            zone = zones.get((first_node, purchase.group), "")
            if zone:
                of_group = bought.setdefault(purchase.group, {})
                nodes = purchase.to_size - purchase.from_size
                of_group[zone] = of_group.get(zone, 0) + nodes
        return bought

    def _move(
        self, removals: Sequence[SimulatedRemoval], group: str, reason: DisruptionReason
    ) -> JudgedMove:
        """Return a move. group: of which as many nodes are bought, "" if that has happened."""
        price = sum(self._paid(removal) for removal in removals)
        cost_of_node = (self._price_of(group) or 0) if group else 0
        disruption = float(sum(1 + len(removal.evict) for removal in removals))
        purchases = {group: len(removals)} if group else {}
        pools = {pool_id(self.state.groups[removal.group].group) for removal in removals}
        return JudgedMove(
            removals=tuple(removals),
            purchases=purchases,
            price=price,
            cost=cost_of_node * len(removals),
            disruption=disruption,
            disruption_price=0,
            score=0.0,
            pool=pools.pop() if len(pools) == 1 else "",
            prices={group: cost_of_node} if group else {},
            reason=reason,
        )

    def _paid(self, removal: SimulatedRemoval) -> int:
        price = self.book.of_node(removal.node, self.state.groups[removal.group].group)
        return price.amount if isinstance(price, Price) else 0

    # --- replacements under way

    def _judge(self, names: Sequence[str], cost: int) -> JudgedMove | Reason:
        """Judge nodes whose successors exist: they must still be due, and their pods have
        places."""
        del cost
        candidates = self._still_due(names)
        if isinstance(candidates, Reason):
            return candidates
        places = self._places(candidates)
        if isinstance(places, Reason):
            return places
        return self._move(places, "", self.due[names[0]].why)

    def _still_due(self, names: Sequence[str]) -> list[Candidate] | Reason:
        candidates: list[Candidate] = []
        for name in names:
            item = self.due.get(name)
            if item is None:
                until = self.lifecycle.pausing.get(name, 0.0)
                if until > self.state.now:
                    return Reason.of(ReasonCode.CONDITION_PAUSES, node=name, until=until)
                return Reason.of(ReasonCode.NOT_DUE, node=name)
            candidate = item.held or self._candidate(item)
            if isinstance(candidate, Reason):
                return candidate
            candidates.append(candidate)
        return candidates

    # --- report and memory

    def _report(self, advanced: Advance) -> tuple[LifecycleVerdict, ...]:
        """Return every due node with what holds it; None for a node that goes, as part of
        a replacement or without."""
        going = {removal.node for removals in self.removals.values() for removal in removals}
        going |= {removal.node for command in advanced.commands for removal in command.candidates}
        going |= {restart.node for restart in self.restarts}
        verdicts = []
        for name, item in sorted(self.due.items()):
            reason = None if name in going else self.verdicts.get(name)
            verdicts.append(LifecycleVerdict(name, item.why, item.since, reason))
        return tuple(verdicts)

    def _notes(self) -> tuple[Reason, ...]:
        overdue = [
            Reason.of(ReasonCode.NODE_OVERDUE, node=name, since=since)
            for name, since in sorted(self.lifecycle.overdue.items())
        ]
        drifted = [
            Reason.of(ReasonCode.NODE_DRIFTED, node=item.node.name, detail=item.detail)
            for item in self.lifecycle.due
            if item.why is DisruptionReason.DRIFTED
        ]
        sick = [reason for _, reason in sorted(self.lifecycle.unhealthy.items())]
        resting = self.lifecycle.resting[:MOST_NOTES]
        return (*overdue[:MOST_NOTES], *drifted[:MOST_NOTES], *sick[:MOST_NOTES], *resting)

    def _renewals(self, advanced: Advance) -> dict[str, dict[str, GroupRenewal]]:
        """Return what is remembered of renewals, with those of this pass."""
        renewals = {group: dict(by_reason) for group, by_reason in self.lifecycle.renewals.items()}
        for (group, why), nodes in sorted(self._renewed(advanced).items()):
            of_group = renewals.setdefault(group, {})
            before = of_group.get(why.value, GroupRenewal())
            due_nodes = [item for item in self.lifecycle.due if item.group == group]
            details = [item.detail for item in due_nodes if item.why is why]
            of_group[why.value] = after_renewal(before, why, sorted(nodes), details, self.state)
        for row in advanced.rows.values():
            if row.reason is DisruptionReason.REPAIR and row.state in UNDER_WAY:
                self._note_successors(row, renewals)
        return renewals

    def _renewed(self, advanced: Advance) -> dict[tuple[str, DisruptionReason], set[str]]:
        """Return (group, reason) -> old nodes that this pass removes or buys successors for. The
        group of a successor counts, too."""
        renewed: dict[tuple[str, DisruptionReason], set[str]] = {}

        def add(removals: Sequence[Removal], reason: DisruptionReason) -> None:
            for removal in removals:
                renewed.setdefault((removal.group, reason), set()).add(removal.node)

        for why, removals in self.removals.items():
            add(removals, why)
        for command in advanced.commands:
            add(command.candidates, command.reason)
            for purchase in command.replacements:
                nodes = advanced.rows[purchase.replacement].nodes
                groups = {purchase.group, *(self.state.group_of[name] for name in nodes)}
                for group in groups:
                    renewed.setdefault((group, command.reason), set()).update(nodes)
        return renewed

    def _note_successors(
        self, replacement: Replacement, renewals: dict[str, dict[str, GroupRenewal]]
    ) -> None:
        why = replacement.reason.value
        for name in replacement.new_nodes:
            group = self.state.group_of.get(name, "")
            of_group = renewals.setdefault(group, {})
            renewal = of_group.get(why, GroupRenewal())
            if renewal.until <= self.state.now:
                of_group[why] = with_successors(renewal, [name], self.state.now)

    def _memory(self) -> dict[str, NodeMemory]:
        memory = dict(self.lifecycle.memory)
        for restart in self.restarts:
            before = memory.get(restart.node, NodeMemory())
            memory[restart.node] = msgspec.structs.replace(before, restarted_at=self.state.now)
        return memory


def _is_dead(due_node: DueNode) -> bool:
    """Return whether a node is repaired whose kubelet does not answer."""
    ready = due_node.node.condition("Ready")
    answers = ready is not None and ready.status == "True"
    return due_node.why is DisruptionReason.REPAIR and not answers


def _is_full(reason: Reason) -> bool:
    """Return whether nothing more can be bought: in the group, its pool or the cluster."""
    return reason.code.row.at_maximum or reason.code is ReasonCode.MAX_NODES_TOTAL


def _fitting_groups(candidates: Candidates, classes: Collection[int], need: Ints) -> list[str]:
    """Return the groups of which an empty new node takes these pods in any zone."""
    fitting = []
    for row, group in enumerate(candidates.groups):
        if group.id in candidates.variants:
            continue
        has_room = need <= candidates.shapes[group.id].free
        if has_room.all() and all(candidates.fits(cls)[row] for cls in classes):
            fitting.append(group.id)
    return fitting


def _simulated(candidate: Candidate) -> SimulatedRemoval:
    """Return a removal whose pods get places that do not exist yet."""
    evict = tuple(pod.key for pod in candidate.pods)
    return SimulatedRemoval(candidate.node, candidate.group, evict, {}, candidate.waits_for)
