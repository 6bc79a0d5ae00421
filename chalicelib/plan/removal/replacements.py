"""Replacements: moves that buy nodes first, carried out over many passes.

    proposed ──► buying ──► waiting ──► draining ──► done: the row goes
        │           │          │            │
        ▼           └──────────┴────────────┴──► failed, with back-off
    forgotten

A row of memory says how far a replacement has come; a pass advances it, and operations do the work.
An operation that ends writes what became of it into the row, together with its own end
(operations/memory_updates.py), so a pass knows about each operation of a row whether it is open,
and how it ended. Before the first node is drained, the move is judged again on the present
snapshot, as what was bought exists by then. Until a node is removed it only has the soft taint:
pods may still come to it. See docs/reference/consolidation.md "Replacements".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import NOT_BEGUN, Replacement, ReplacementState
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import NodeVerdict, ScaleUp
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import Price
from chalicelib.plan.removal.candidates import DrainabilityChecker
from chalicelib.plan.removal.consolidation.moves import Judge, JudgedMove
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.replacement_rows import (
    UNDER_WAY,
    belongs_to,
    by_age,
    current_rows,
    failed,
    kept_failures,
    open_surge,
    propose_row,
    proposed_again,
    replacement_timeout,
    reserved_nodes,
    surge_limit,
    without_failures_of,
)
from chalicelib.plan.removal.simulate import SimulatedRemoval, carry_out
from chalicelib.plan.scale_up.scale_up_limits import may_grow
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.backoff import reason_of
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.empty_groups import drained_pools
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.sick_old_drifted_nodes import NO_LIFECYCLE, lifecycle_of
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.node_lifecycle import DriftAction
from chalicelib.policy.timeouts import operation_timeout
from chalicelib.reasons.text import sentence
from chalicelib.schedules.maintenance_windows import allowed_for, called

MOST_LEFT_OUT = 10
"""Most nodes of a row for which a move without one of them is tried."""

CONSOLIDATES = frozenset({DisruptionReason.CONSOLIDATION})

Confirm = Callable[[Replacement], JudgedMove | Reason]
"""Judges a proposed replacement, whose purchases do not exist yet, on the present snapshot (score
at least 0.8/k, minSavings, every order, all limits). Returns the move with its present figures, or
why it is not wanted any more. The simulated cluster is left unchanged."""


class Advance(msgspec.Struct, frozen=True):
    """What a pass does with replacements. rows: the next ones, by id. commands: purchases and
    removals of this pass. verdicts: node -> why consolidation does not choose it."""

    rows: dict[str, Replacement]
    commands: tuple[DisruptionCommand, ...] = ()
    verdicts: dict[str, Reason] = {}

    @property
    def reserved(self) -> frozenset[str]:
        """The old and new nodes of all replacements that are under way."""
        return reserved_nodes(self.rows.values())


class Reservation:
    """Closes the nodes of replacements in the simulated cluster, so that nothing else is planned
    onto them. rows: as current_rows returns them."""

    def __init__(self, state: ClusterState, simulated: SimulatedCluster) -> None:
        self._simulated = simulated
        self.rows: Mapping[str, Replacement] = current_rows(state)
        self._closed = [
            row
            for name in sorted(reserved_nodes(self.rows.values()))
            if (row := simulated.table.index.get(name)) is not None and simulated.open[row]
        ]
        for row in self._closed:
            simulated.close(row)

    def verdicts(self, state: ClusterState) -> dict[str, NodeVerdict]:
        """Return the verdict on each node that belongs to a replacement and is not being
        removed."""
        return {
            name: NodeVerdict(name, belongs_to(row))
            for row in self.rows.values()
            if row.state in UNDER_WAY
            for name in (*row.nodes, *row.new_nodes)
            if name in state.buckets and name not in state.leaving
        }

    def judged(
        self, replacement: Replacement, judge: Callable[[], JudgedMove | Reason]
    ) -> JudgedMove | Reason:
        """Return what the judge says while the nodes of this replacement are open."""
        index = self._simulated.table.index
        own = {index.get(name) for name in (*replacement.nodes, *replacement.new_nodes)}
        opened = [row for row in self._closed if row in own]
        for row in opened:
            self._simulated.close(row, is_open=True)
        try:
            return judge()
        finally:
            for row in opened:
                self._simulated.close(row)


def advance(
    state: ClusterState,
    simulated: SimulatedCluster,
    removal_limits: RemovalLimits,
    judge: Judge | None = None,
    confirm: Confirm | None = None,
    *,
    reservation: Reservation | None = None,
    proposals: Sequence[JudgedMove] = (),
    reasons: Collection[DisruptionReason] = CONSOLIDATES,
) -> Advance:
    """Advance the replacements with these reasons by one pass; the others stay as they are. judge,
    confirm: None where nothing can be judged in this pass; then no purchase and no drain begins.
    reservation: where the nodes of replacements are closed already. proposals: moves that buy and
    are wanted now; each becomes a row, and begins at once unless a later pass must confirm it."""
    reservation = reservation or Reservation(state, simulated)
    return _Pass(
        state, simulated, removal_limits, judge, confirm, reservation, frozenset(reasons)
    ).advance(proposals)


class _Pass:
    """The replacements of one pass."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        removal_limits: RemovalLimits,
        judge: Judge | None,
        confirm: Confirm | None,
        reservation: Reservation,
        reasons: frozenset[DisruptionReason],
    ) -> None:
        self.state, self.simulated, self.removal_limits = state, simulated, removal_limits
        self.judge, self.confirm, self.reservation, self.reasons = (
            judge,
            confirm,
            reservation,
            reasons,
        )
        self.now, self.consolidation = state.now, state.policy.consolidation
        self.present = frozenset(node.name for node in state.snapshot.nodes)
        self.unreadable = frozenset(gap.node for gap in state.snapshot.gaps if gap.node)
        self.open_ids = frozenset(
            operation.spec.id for operation in state.memory.operations if operation.is_open
        )
        self.rows: dict[str, Replacement] = {}
        self.commands: list[DisruptionCommand] = []
        self.verdicts: dict[str, Reason] = {}

    def advance(self, proposals: Sequence[JudgedMove]) -> Advance:
        """Advance all rows: those under way first, the oldest first, so
        that each keeps its budgets."""
        rows = sorted(self.reservation.rows.values(), key=by_age)
        self.rows = {replacement.id: replacement for replacement in rows}
        steps: dict[ReplacementState, Callable[[Replacement], Replacement | None]] = {
            ReplacementState.BUYING: self._buying,
            ReplacementState.WAITING: self._waiting,
            ReplacementState.DRAINING: self._draining,
            ReplacementState.PROPOSED: self._proposed,
        }
        for replacement in rows:
            if replacement.reason not in self.reasons or replacement.id not in self.rows:
                # another method's, or a failure of the same nodes that has been superseded
                continue
            current = (
                self._without_gone(replacement) if replacement.state in UNDER_WAY else replacement
            )
            step = steps.get(replacement.state)
            self._keep(replacement.id, current if step is None else step(current))
        for move in proposals:
            replacement = propose_row(move, self.state)
            self._keep(replacement.id, self._proposed(replacement, move))
        kept = dict(sorted(kept_failures(self.rows, self.now).items()))
        self.reservation.rows = kept
        return Advance(kept, tuple(self.commands), self.verdicts)

    def _keep(self, name: str, replacement: Replacement | None) -> None:
        """Keep the row's next state; None: no old node is left, or it is not wanted any more.
        What it has bought stays."""
        if replacement is None:
            before = self.rows.pop(name, None)
            if before is not None and before.state in UNDER_WAY:
                self.rows = without_failures_of(before, self.rows)
            return
        self.rows[name] = replacement
        if replacement.state in UNDER_WAY:
            own_nodes = (*replacement.nodes, *replacement.new_nodes)
            self.verdicts |= dict.fromkeys(own_nodes, belongs_to(replacement))
        elif replacement.state is ReplacementState.FAILED and replacement.until > self.now:
            self.verdicts |= dict.fromkeys(
                replacement.nodes,
                Reason.of(
                    ReasonCode.REPLACEMENT_FAILED,
                    until=replacement.until,
                    detail=_detail(replacement.why),
                ),
            )

    # --- what holds for several states

    def _without_gone(self, replacement: Replacement) -> Replacement:
        """Return the row without the nodes that have gone: by its own removals, or otherwise."""
        gone = [
            node
            for node in replacement.nodes
            if replacement.ends.get(replacement.removals.get(node, "")) == ""
            or not (
                node in self.present or node in self.unreadable or self._is_going(node, replacement)
            )
        ]
        left = tuple(node for node in replacement.nodes if node not in gone)
        return (
            msgspec.structs.replace(replacement, nodes=left, gone=(*replacement.gone, *gone))
            if gone
            else replacement
        )

    def _is_going(self, node: str, replacement: Replacement) -> bool:
        """Return whether the row's removal of a node is under way."""
        operation = replacement.removals.get(node, "")
        return operation in self.open_ids and operation not in replacement.ends

    def _timeout(self, replacement: Replacement) -> float:
        return replacement_timeout(replacement, self.state)

    def _called_off(self, replacement: Replacement) -> Reason | None:
        """Return why a replacement under way goes no further, whatever its
        operations do; None if it does."""
        if (detail := _switched_off(replacement.reason, self.state)) is not None:
            return Reason.of(ReasonCode.CONSOLIDATION_OFF, detail=detail)
        if self.state.unread_provider is not None:
            return None  # the group may be one of those that could not be read
        lost = next(
            (
                bought.group
                for bought in replacement.purchases
                if bought.group not in self.state.groups
            ),
            None,
        )
        if lost is None:
            return None
        return Reason.of(
            ReasonCode.CONSOLIDATION_OFF, detail=f"node group {lost} is not autoscaled any more"
        )

    def _dead_node(self, replacement: Replacement) -> Reason | None:
        """Return which new node is gone or on its way out. One that is not
        ready may become so again."""
        for name in replacement.new_nodes:
            gone = name not in self.present and name not in self.unreadable
            if gone or name in self.state.leaving or self.state.buckets.get(name) is Bucket.DELETED:
                return Reason.of(ReasonCode.UNEXPECTED, detail=f"the new node {name} is gone")
        return None

    def _fail(self, replacement: Replacement, reason: Reason) -> Replacement:
        self.rows = without_failures_of(replacement, self.rows)
        row = failed(replacement, reason, self.now)
        if reason.code is not ReasonCode.RENEWAL_RESTS:
            return row
        # the group's own rest counts
        return msgspec.structs.replace(row, until=self.now, times=replacement.times)

    # --- the states

    def _proposed(
        self, replacement: Replacement, move: JudgedMove | None = None
    ) -> Replacement | None:
        """Begin a row that is wanted for long enough. move: as judged in this pass already."""
        off = _switched_off(replacement.reason, self.state) is not None
        # what is wanted is proposed anew
        is_old = move is None and replacement.reason not in CONSOLIDATES
        if off or is_old or not all(self._is_free(node, replacement) for node in replacement.nodes):
            return None
        if move is None and self.confirm is None:
            return replacement
        verdict = self.confirm(replacement) if move is None and self.confirm is not None else move
        assert verdict is not None
        if isinstance(verdict, Reason):
            self.verdicts |= dict.fromkeys(replacement.nodes, verdict)
            return replacement if verdict.code is ReasonCode.NOT_EVALUATED else None
        replacement = msgspec.structs.replace(
            replacement,
            price=verdict.price,
            disruption=verdict.disruption,
            disruption_price=verdict.disruption_price,
            score=verdict.score,
        )
        needs = self.consolidation.confirm_after if replacement.reason in CONSOLIDATES else 0.0
        why = (
            Reason.of(ReasonCode.NOT_CONFIRMED, since=replacement.proposed_at, needs=needs)
            if self.now - replacement.proposed_at < needs
            else self._why_not_begun(replacement)
        )
        if why is not None:
            self.verdicts |= dict.fromkeys(replacement.nodes, why)
            # What goes for another reason is proposed anew in each pass, for as many
            # nodes as there is room then.
            return replacement if replacement.reason in CONSOLIDATES else None
        self.removal_limits.promise(replacement.nodes)
        self.commands.append(
            DisruptionCommand(replacement.reason, (), self._purchases(replacement))
        )
        return msgspec.structs.replace(
            replacement, state=ReplacementState.BUYING, since=self.now, bought_at=self.now
        )

    def _is_free(self, node: str, replacement: Replacement) -> bool:
        """Return whether a node is there and no other replacement has it, or has failed
        with it a short time ago."""
        others = (
            other
            for other in self.rows.values()
            if other.id != replacement.id
            and node in (*other.nodes, *other.new_nodes)
            and self._holds(other)
        )
        here = (
            node in self.present
            and node not in self.state.leaving
            and node not in self.removal_limits.taken
        )
        return here and next(others, None) is None

    def _holds(self, replacement: Replacement) -> bool:
        return replacement.state is not ReplacementState.FAILED or replacement.until > self.now

    def _why_not_begun(self, replacement: Replacement) -> Reason | None:
        """Return why a confirmed replacement buys nothing yet."""
        under_way = [other for other in self.rows.values() if other.state in UNDER_WAY]
        # A sick node does not wait for sound ones, but repairs are limited, too: a faulty
        # detector is no rare thing.
        is_repair = replacement.reason is DisruptionReason.REPAIR
        alike = [
            other
            for other in under_way
            if (other.reason is DisruptionReason.REPAIR) or not is_repair
        ]
        if len(alike) >= self.consolidation.max_replacements:
            return Reason.of(ReasonCode.SURGE_LIMIT, limit=self.consolidation.max_replacements)
        if (paused := self.removal_limits.pause_of(replacement.reason)) is not None:
            return paused
        if (closing := self._window_ends_within(self._timeout(replacement))) is not None:
            return closing
        surge = open_surge((*under_way, replacement), self.state)
        groups = [self.state.groups.get(purchase.group) for purchase in replacement.purchases]
        reasons = (self._why_not_grown(group, surge) for group in groups)
        return next((why for why in reasons if why is not None), None) or self._limited(replacement)

    def _why_not_grown(
        self, group: NodeGroupState | None, surge: Mapping[str, int]
    ) -> Reason | None:
        if group is None:
            return Reason.of(ReasonCode.GROUP_UNREADABLE, detail="it is not known")
        if group.growing or group.id in self.removal_limits.grown:
            return Reason.of(ReasonCode.GROUP_GROWING)
        if group.backed_off and group.memory.backoff is not None:
            return group.growth_paused or reason_of(group.memory.backoff)
        if not may_grow(group):
            detail = f"node group {group.id} cannot grow now"
            return group.growth_paused or Reason.of(ReasonCode.GROUP_UNHEALTHY, detail=detail)
        pool = pool_id(group.group)
        limit = surge_limit(pool, self.state)
        return Reason.of(ReasonCode.SURGE_LIMIT, limit=limit) if surge[pool] > limit else None

    def _limited(self, replacement: Replacement) -> Reason | None:
        """Return which maximum of a group, a pool or the cluster the purchases exceed;
        otherwise use their room."""
        limiter = self.removal_limits.purchasable()
        for purchase in replacement.purchases:
            group = self.state.groups[purchase.group]
            assert group.template is not None
            allowance = limiter.allowance(group, 0)
            if allowance.nodes < purchase.nodes:
                return allowance.stop
            limiter.take(group.template.node, purchase.nodes, group.group)
        self.removal_limits.buy(limiter)
        return None

    def _window_ends_within(self, seconds: float) -> Reason | None:
        """Return why there is too little time until removals are not allowed any
        more (maintenanceWindows)."""
        windows = self.state.policy.maintenance_windows
        if not windows or allowed_for(windows, self.now, seconds):
            return None
        names = ", ".join(called(window) for window in windows)
        return Reason.of(ReasonCode.OUTSIDE_WINDOW, window=names, needs=seconds)

    def _purchases(self, replacement: Replacement) -> tuple[ScaleUp, ...]:
        ups = []
        for purchase in replacement.purchases:
            growth = self.state.scale_up(purchase.group, purchase.nodes)
            ups.append(msgspec.structs.replace(growth, replacement=replacement.id))
            self.removal_limits.grown |= {purchase.group}
        return tuple(ups)

    def _buying(self, replacement: Replacement) -> Replacement | None:
        """Wait for the scale-ups, and fail with the first of them that fails."""
        if not replacement.nodes:
            return None
        if (why := self._called_off(replacement)) is not None:
            return self._fail(replacement, why)
        if all(
            replacement.ends.get(purchase.operation) == NOT_BEGUN
            for purchase in replacement.purchases
        ):
            return self._not_begun(replacement)
        for purchase in replacement.purchases:
            if (
                why := self._problem_of(
                    purchase.operation or f"the scale-up of {purchase.group}", replacement
                )
            ) is not None:
                return self._fail(replacement, why)
        if all(purchase.operation in replacement.ends for purchase in replacement.purchases):
            return self._waiting(
                msgspec.structs.replace(replacement, state=ReplacementState.WAITING, since=self.now)
            )
        return (
            self._fail(replacement, self._late(replacement))
            if self._is_late(replacement)
            else replacement
        )

    def _not_begun(self, replacement: Replacement) -> Replacement | None:
        """Propose a replacement again of which nothing was bought, if it is as it was; otherwise
        what is still wanted is proposed anew."""
        if replacement.reason not in CONSOLIDATES or replacement.gone:
            return None
        self.rows[replacement.id] = proposed_again(replacement, self.now)
        return self._proposed(self.rows[replacement.id])

    def _problem_of(self, operation: str, replacement: Replacement) -> Reason | None:
        """Return why an operation of the row has failed. One that is neither open nor
        over has, too: a row and its operations are saved together, and each end is written into the
        row, so there should be none."""
        end = replacement.ends.get(operation)
        if end or (end is None and operation not in self.open_ids):
            return Reason.of(ReasonCode.UNEXPECTED, detail=end or f"{operation} is not known")
        return None

    def _is_late(self, replacement: Replacement) -> bool:
        return self.now - replacement.bought_at > self._timeout(replacement)

    def _late(self, replacement: Replacement) -> Reason:
        seconds = int(self._timeout(replacement))
        return Reason.of(
            ReasonCode.UNEXPECTED,
            detail=f"the new nodes are not ready {seconds}s after the purchase",
        )

    def _waiting(self, replacement: Replacement) -> Replacement | None:
        """Wait until the new nodes are ready, judge the move again, and begin the drain."""
        if not replacement.nodes:
            return None
        late = (
            None
            if self._is_ready(replacement) or not self._is_late(replacement)
            else self._late(replacement)
        )
        why = (
            self._called_off(replacement)
            or self._dead_node(replacement)
            or late
            or self._short(replacement)
        )
        if why is not None:
            return self._fail(replacement, why)
        return self._drain(replacement) if self._is_ready(replacement) else replacement

    def _short(self, replacement: Replacement) -> Reason | None:
        """Return why nodes that were requested will not come: their group has been
        backed off since the purchase."""
        for purchase in replacement.purchases:
            group = self.state.groups.get(purchase.group)
            failed = group.memory.backoff if group is not None else None
            if (
                failed is not None
                and failed.last_failed >= replacement.bought_at
                and len(purchase.names) < purchase.nodes
            ):
                return reason_of(failed)
        return None

    def _is_ready(self, replacement: Replacement) -> bool:
        return all(
            len(purchase.names) >= purchase.nodes
            and all(self.state.buckets.get(name) is Bucket.READY for name in purchase.names)
            for purchase in replacement.purchases
        )

    def _draining(self, replacement: Replacement) -> Replacement | None:
        """Continue a drain. A removal that has failed ends it; otherwise those under
        way go on whatever happens."""
        if not replacement.nodes:
            return None
        begun = {
            node: name
            for node, name in replacement.removals.items()
            if replacement.ends.get(name) != NOT_BEGUN
        }
        replacement = (
            replacement
            if begun == replacement.removals
            else msgspec.structs.replace(replacement, removals=begun)
        )
        removals = [
            operation for node in replacement.nodes if (operation := replacement.removals.get(node))
        ]
        failure = next(
            (why for name in removals if (why := self._problem_of(name, replacement)) is not None),
            None,
        )
        if failure is not None:
            return self._fail(replacement, failure)
        going = [node for node in replacement.nodes if self._is_going(node, replacement)]
        if (why := self._called_off(replacement) or self._dead_node(replacement)) is not None:
            return replacement if going else self._fail(replacement, why)
        return replacement if len(going) == len(replacement.nodes) else self._drain(replacement)

    def _drain(self, replacement: Replacement) -> Replacement:
        """Judge the move again and remove the nodes for which the budgets have room, in order. A
        move that is refused as a whole may go on without one of its nodes."""
        waits = [node for node in replacement.nodes if not self._is_going(node, replacement)]
        if not self._is_ready(replacement):
            return self._held(
                replacement,
                Reason.of(ReasonCode.UNEXPECTED, detail="a new node is not ready any more"),
            )
        paused = self.removal_limits.pause_of(replacement.reason)
        if (why := paused or self._window_ends_within(self._drain_time())) is not None:
            return self._held(replacement, why)
        if self.judge is None:
            return replacement
        replacement, verdict = self._judged(replacement, waits)
        if isinstance(verdict, Reason):
            return self._held(replacement, verdict)
        chosen, refused = self._draw(replacement, verdict)
        if not chosen:
            return self._held(replacement, refused)
        self.commands.append(
            DisruptionCommand(
                replacement.reason,
                tuple(removal.planned(replacement.reason, replacement.id) for removal in chosen),
            )
        )
        checker = DrainabilityChecker(self.state, self.removal_limits.pdbs)
        carry_out(chosen, checker, self.simulated, self.removal_limits.pdbs)
        return msgspec.structs.replace(
            replacement, state=ReplacementState.DRAINING, since=self.now, score=verdict.score
        )

    def _judged(
        self, replacement: Replacement, waits: Sequence[str]
    ) -> tuple[Replacement, JudgedMove | Reason]:
        """Return the row with the nodes that go, and the judgement on those that are not removed
        yet. What was bought counts as paid for by the nodes that have gone."""
        verdict = self._judgement(replacement, waits)
        if (
            not isinstance(verdict, Reason)
            or _passes_by_itself(verdict)
            or not 1 < len(waits) <= MOST_LEFT_OUT
        ):
            return replacement, verdict
        parts = [self._judgement(replacement, part) for part in combinations(waits, len(waits) - 1)]
        pays = replacement.reason in CONSOLIDATES  # the others need not pay
        moves = [
            part for part in parts if isinstance(part, JudgedMove) and (part.gain > 0 or not pays)
        ]
        if not moves:
            return replacement, verdict
        best = max(moves, key=lambda move: move.gain)
        stays = frozenset(waits) - frozenset(best.nodes)
        left = tuple(node for node in replacement.nodes if node not in stays)
        return msgspec.structs.replace(
            replacement, nodes=left, price=max(0, replacement.price - self._price(stays))
        ), best

    def _judgement(self, replacement: Replacement, nodes: Sequence[str]) -> JudgedMove | Reason:
        judge = self.judge
        assert judge is not None
        cost = max(0, replacement.cost - self._paid_back(replacement))
        return self.reservation.judged(replacement, lambda: judge(nodes, cost))

    def _paid_back(self, replacement: Replacement) -> int:
        """Return the price of the old nodes that have gone or are going."""
        waits = [node for node in replacement.nodes if not self._is_going(node, replacement)]
        away = len(replacement.nodes) + len(replacement.gone) - len(waits)
        return max(0, replacement.price - self._price(waits)) if away else 0

    def _price(self, names: Collection[str]) -> int:
        """Return the present price of nodes; one without a price counts nothing."""
        book = self.state.prices
        prices = []
        for node in self.state.snapshot.nodes:
            if node.name in names:
                group = self.state.groups.get(self.state.group_of.get(node.name, ""))
                prices.append(book.of_node(node, None if group is None else group.group))
        return sum(price.amount for price in prices if isinstance(price, Price))

    def _drain_time(self) -> float:
        return operation_timeout(OperationKind.DELETE_NODES, self.state.options)

    def _draw(
        self, replacement: Replacement, move: JudgedMove
    ) -> tuple[list[SimulatedRemoval], Reason]:
        """Return the removals for which the budgets have room now. Each is drawn by itself: a
        replacement stays within the breaker's share and never trips it."""
        chosen: list[SimulatedRemoval] = []
        why = Reason.of(ReasonCode.PARALLELISM, limit=0)
        for removal in move.removals:
            drawn, refused = self.removal_limits.draw([removal], lambda _: None, replacement.reason)
            if not drawn:
                return chosen, refused.get(removal.node.name, why)
            chosen += drawn
        return chosen, why

    def _held(self, replacement: Replacement, reason: Reason) -> Replacement:
        """Keep a row that could be drained, as long as what holds it passes by itself or its nodes
        are not finished, and for so long again as its nodes may take; then it is given up, so that
        nothing is paid twice for ever."""
        going = any(self._is_going(node, replacement) for node in replacement.nodes)
        waited = self.now - replacement.since > 2 * self._timeout(replacement)
        passes = _passes_by_itself(reason) or not self.state.unfinished.keys().isdisjoint(
            replacement.new_nodes
        )
        return replacement if going or (passes and not waited) else self._fail(replacement, reason)


def _switched_off(reason: DisruptionReason, state: ClusterState) -> str | None:
    """Return which setting does not ask for replacements with this reason
    any more, None if all do."""
    lifecycle = lifecycle_of(state) or NO_LIFECYCLE
    mode = state.policy.consolidation.mode
    asks = {
        DisruptionReason.CONSOLIDATION: (
            mode is ConsolidationMode.FULL,
            f"consolidation.mode is {mode.value}",
        ),
        DisruptionReason.EXPIRED: (
            lifecycle.max_node_age is not None,
            "nodeLifecycle.maxNodeAge is not set",
        ),
        DisruptionReason.DRIFTED: (
            lifecycle.drift is DriftAction.REPLACE or bool(drained_pools(state)),
            "nodeLifecycle.drift is not replace",
        ),
        DisruptionReason.REPAIR: (bool(lifecycle.repair), "nodeLifecycle.repair is not set"),
    }
    is_asked, detail = asks.get(reason, (False, f"nothing is replaced as {reason.value}"))
    return None if is_asked else detail


def _passes_by_itself(reason: Reason) -> bool:
    code = ReasonCode(reason.drain_rule or reason.code)
    return code.row.awaited


def _detail(reason: Reason | None) -> str:
    if reason is None:
        return ""
    return (
        str(reason.params["detail"]) if reason.code is ReasonCode.UNEXPECTED else sentence(reason)
    )
