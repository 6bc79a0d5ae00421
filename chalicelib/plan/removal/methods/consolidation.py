"""Consolidation of needed nodes: they go if their pods fit a cheaper place and the saving
is worth the disruption.

    candidates ► search ► moves ► confirmed by a later pass ► removals, or
    purchases first (replacements.py)

A move into room that exists is wanted node by node (NodeMemory.wanted_since); a move that buys is a
replacement. A pool with a pending pod that it could take, or that grows, keeps its nodes in this
pass. See docs/reference/consolidation.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import ConsolidationMemory, NodeMemory, Replacement, ReplacementState
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import ConsolidationReport, NodeVerdict, Removal
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.bought_back import owner_of
from chalicelib.plan.removal.candidates import Candidate, DrainabilityChecker, find_candidates
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.removal.consolidation.eligibility import Eligibility, QuietTimes, protection
from chalicelib.plan.removal.consolidation.move_limits import Limits, OwnerMoves, limits_of
from chalicelib.plan.removal.consolidation.move_search import ConsolidationSearch
from chalicelib.plan.removal.consolidation.moves import JudgedMove, reported
from chalicelib.plan.removal.consolidation.purchases import Market
from chalicelib.plan.removal.consolidation.splitting import (
    best_moves,
    destinations_of,
    judged_move,
    moves_of,
)
from chalicelib.plan.removal.consolidation.steering import HorizonPass, only_delays
from chalicelib.plan.removal.consolidation.verdicts import Explanation, reasons_to_stay
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext
from chalicelib.plan.removal.replacement_rows import belongs_to, softly_tainted
from chalicelib.plan.removal.replacements import Advance, Reservation, advance
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.pools import pool_id
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.reasons.text import sentence

REPEAT_AFTER = 300.0
"""Seconds for which a search that found nothing is not repeated while pods, nodes, prices
and policy stay the same."""
MOST_REASONS = 2_000
"""Reasons of nodes that such a search leaves for the passes that do not repeat it."""
MANY_MOVES = 10
"""Moves of a pass above which it does not search what waits as well: they change all of that."""
_DAY = 86_400.0


class ConsolidationResult(msgspec.Struct, frozen=True):
    """What consolidation does in this pass. nodes: the next memory of every node. tainted: nodes
    that get the soft taint. notes: for the plan."""

    commands: tuple[DisruptionCommand, ...]
    report: ConsolidationReport
    replacements: dict[str, Replacement]
    memory: ConsolidationMemory
    nodes: dict[str, NodeMemory]
    tainted: frozenset[str]
    notes: tuple[Reason, ...] = ()


def consolidate(
    context: DisruptionContext,
    commands: Sequence[DisruptionCommand],
    nodes: Mapping[str, NodeMemory],
) -> ConsolidationResult:
    """Return the moves of this pass. context: its budgets, and its simulated cluster
    without what other methods remove. commands: of these methods. nodes: the next memory
    of nodes as they leave it."""
    removed = [removal for command in commands for removal in command.candidates]
    return _Pass(context, removed, nodes).result()


class _Pass:
    def __init__(
        self,
        context: DisruptionContext,
        removed: Sequence[Removal],
        nodes: Mapping[str, NodeMemory],
    ) -> None:
        self.context = context
        self.state = context.state
        self.simulated = context.simulated
        self.removal_limits = context.removal_limits
        self.settings = context.state.policy.consolidation
        self.removed = removed
        self.nodes = nodes
        self.acts = self.state.policy.consolidation.mode is not ConsolidationMode.SHADOW
        self.costs = Costs(self.state)
        self.quiet = QuietTimes(self.state)
        self.moves_today = OwnerMoves(self.state)
        self.reservation = context.reservation or Reservation(self.state, self.simulated)
        self.eligibility = Eligibility(self.state, self.costs, self.quiet, self._reasons_of_rows())
        self.verdicts: dict[str, Reason] = {}
        self.moves: list[JudgedMove] = []
        self.gap: float | None = None
        self.delayed: list[Candidate] = []
        self.steered: Collection[str] = ()
        self.confirmed: Collection[str] = ()

    def result(self) -> ConsolidationResult:
        """Search, begin what is confirmed, and report."""
        candidates = self._candidates()
        leavable = [*candidates, *self.delayed]
        horizon_pass = HorizonPass(
            self.state,
            self.simulated,
            self.removal_limits,
            self.costs,
            leavable,
            self.context.over,
        )
        memory = self._searched(self._steered(horizon_pass, candidates))
        if horizon_pass.horizon is not None:
            # Room that exists on nodes that stay is for the pods of those that leave.
            self.moves = [
                move for move in self.moves if move.purchases or move.nodes[0] not in self.steered
            ]
        direct_moves = [move for move in self.moves if not move.purchases]
        buying_moves = [move for move in self.moves if move.purchases]
        direct_commands = self._removals(direct_moves) if self.acts else ()
        advanced = self._advance(buying_moves)
        self.verdicts |= advanced.verdicts
        commands = (*direct_commands, *advanced.commands)
        own_removals = [removal for command in commands for removal in command.candidates]
        moves_of_the_day = self._moves_of_the_day([*self.removed, *own_removals])
        leaving = horizon_pass.horizon.going if horizon_pass.horizon is not None else ()
        proposed_nodes = {move.nodes[0] for move in direct_moves} if self.acts else set()
        proposed_nodes.difference_update(leaving)
        return ConsolidationResult(
            commands=commands,
            report=msgspec.structs.replace(
                self._report(commands, advanced), horizon=horizon_pass.report()
            ),
            replacements=advanced.rows,
            memory=msgspec.structs.replace(
                memory,
                moves=moves_of_the_day,
                prices=self.costs.history,
                horizon=horizon_pass.horizon,
                searched=horizon_pass.searched,
                horizon_at=horizon_pass.searched_at,
            ),
            nodes={
                name: horizon_pass.node_memory(name, node_memory, self.verdicts)
                for name, node_memory in self._node_memory(proposed_nodes).items()
            },
            tainted=softly_tainted(advanced.rows.values()) | proposed_nodes,
            notes=horizon_pass.notes(),
        )

    def _steered(self, horizon_pass: HorizonPass, candidates: list[Candidate]) -> list[Candidate]:
        """Let nodes of the horizon go, or decide another one; returns the candidates that are
        searched without marks: all if none stands, none while nodes of the horizon go, because
        both searches would use the same room. While these can only wait, something may be bought
        for nodes that stay."""
        horizon_pass.decide(stuck=False)
        ready = horizon_pass.ready(candidates)
        self.verdicts |= horizon_pass.verdicts(candidates)
        if ready:
            # `ready` has waited for confirmAfter since the horizon was decided.
            self.confirmed = {candidate.node.name for candidate in ready}
            search = self._search(ready, frozenset(), buys=False)
            solution = search.leaving(horizon_pass.rows())
            if solution is not None:
                self.moves, solution = moves_of(search, solution)
            self.verdicts |= reasons_to_stay(search, solution)
        if ready and not self.moves and not horizon_pass.waits(ready):
            horizon_pass.decide(stuck=True)
        if horizon_pass.horizon is None:
            self.steered = horizon_pass.steered
            return candidates
        others = [candidate for candidate in candidates if horizon_pass.is_unsteered(candidate)]
        if not self.moves and horizon_pass.rests():
            self.steered = {candidate.node.name for candidate in candidates}
            self.steered -= {candidate.node.name for candidate in others}
            for row in horizon_pass.rows():
                self.simulated.close(row)
            going = horizon_pass.horizon.going
            return [candidate for candidate in candidates if candidate.node.name not in going]
        if not self.moves:
            return others
        gain = sum(move.gain for move in self.moves) / MICRO
        first = self.moves[0].nodes[0]
        behind = Reason.of(ReasonCode.OTHER_MOVE_BETTER, move=first, gain=gain)
        self.verdicts |= {candidate.node.name: behind for candidate in others}
        return []

    # --- candidates

    def _candidates(self) -> list[Candidate]:
        """Return the nodes among which is searched, by name; the others get their verdicts."""
        eligible, verdicts = find_candidates(
            self.state,
            self.simulated,
            self.removal_limits.pdbs,
            self.eligibility.ineligible,
            may_buy=True,
        )
        self.verdicts |= {name: verdict.reason for name, verdict in verdicts.items()}
        self.delayed = self._delayed_by(verdicts)
        removed_nodes = {removal.node for removal in self.removed}
        resting_pools = self._resting_pools()
        candidates = []
        for candidate in sorted(eligible, key=lambda candidate: candidate.node.name):
            node = candidate.node
            if node.name in removed_nodes:
                continue
            evict = tuple(pod.key for pod in candidate.pods)
            removal = SimulatedRemoval(node, candidate.group, evict, {}, candidate.waits_for)
            pool = pool_id(self.state.groups[candidate.group].group)
            reason = (
                self.removal_limits.standing_refusal(removal)
                or resting_pools.get(pool)
                or self.eligibility.blocked_candidate(candidate, self.moves_today)
            )
            if reason is None:
                candidates.append(candidate)
                continue
            self.verdicts[node.name] = reason
            if reason.code is not ReasonCode.BLOCKED_BY_POD:
                self.delayed.append(candidate)
        return candidates

    def _delayed_by(self, verdicts: Mapping[str, NodeVerdict]) -> list[Candidate]:
        """Return the nodes that may only go later than in this pass. verdicts: on the nodes that
        are not looked at."""
        checker = DrainabilityChecker(self.state, self.removal_limits.pdbs)
        delayed = []
        for node in self.state.snapshot.nodes:
            verdict = verdicts.get(node.name)
            if verdict is None or not only_delays(verdict.reason):
                continue
            shield = protection(node, self.state)
            candidate = checker.of(node)
            if isinstance(candidate, Candidate) and (shield is None or only_delays(shield)):
                delayed.append(candidate)
        return delayed

    def _reasons_of_rows(self) -> dict[str, Reason]:
        """Return why nodes of replacements are not looked at."""
        reasons: dict[str, Reason] = {}
        for row in self.reservation.rows.values():
            if row.state is not ReplacementState.FAILED:
                own_nodes = (*row.nodes, *row.new_nodes)
                reasons |= dict.fromkeys(own_nodes, belongs_to(row))
            elif row.until > self.state.now:
                detail = sentence(row.why) if row.why is not None else ""
                failed = Reason.of(ReasonCode.REPLACEMENT_FAILED, until=row.until, detail=detail)
                reasons |= dict.fromkeys(row.nodes, failed)
        return reasons

    def _resting_pools(self) -> dict[str, Reason]:
        """Return the pools that are left alone in this pass: one of their groups grows, or
        a pending pod fits there."""
        resting: dict[str, Reason] = {}
        pending: dict[int, str] = {}
        for pod in self.state.occupancy.waiting():
            if pod.scheduled_reason == "Unschedulable" and not pod.deleted:
                pending.setdefault(pod.cls, pod.key)
        growing = self._growing_groups()
        for name, group in sorted(self.state.groups.items()):
            pool = pool_id(group.group)
            if name in growing or name in self.removal_limits.grown:
                resting[pool] = Reason.of(ReasonCode.GROUP_GROWING)
                continue
            pod_key = "" if pool in resting else self._pod_for(group, pending)
            if pod_key:
                resting[pool] = Reason.of(ReasonCode.PROMISED, pod=pod_key)
        return resting

    def _growing_groups(self) -> set[str]:
        """Return the groups with an open scale-up that is not part of a replacement."""
        rows = self.reservation.rows.values()
        purchases = {purchase.operation for row in rows for purchase in row.purchases}
        open_specs = (
            operation.spec for operation in self.state.memory.operations if operation.is_open
        )
        scale_ups = (spec for spec in open_specs if spec.kind is OperationKind.SCALE_UP)
        return {spec.group for spec in scale_ups if spec.id not in purchases}

    def _pod_for(self, group: NodeGroupState, pending: Mapping[int, str]) -> str:
        """Return a pending pod that a node of the group could take if it
        were empty, "" without one."""
        table = self.simulated.table
        row = table.index.get(group.nodes[0].name) if group.nodes else None
        if row is None:
            return ""
        for cls, key in sorted(pending.items()):
            if not self.simulated.static(cls)[row]:
                continue
            has_amounts = table.allocatable[row] >= table.columns.need(cls)
            if has_amounts.all():
                return key
        return ""

    # --- the search

    def _searched(self, candidates: Sequence[Candidate]) -> ConsolidationMemory:
        """Search, unless the same search has just found nothing; returns the next memory."""
        before = self.state.memory.consolidation
        if not candidates:
            return _without_search(before)
        nodes = self.state.memory.nodes
        wanted = frozenset(name for name, node in nodes.items() if node.wanted_since)
        search = self._search(candidates, wanted, buys=True)
        digest = self._digest(candidates, search.limits)
        is_recent = 0 <= self.state.now - before.searched_at < REPEAT_AFTER
        is_waiting = all(
            float(reason.params.get("until", math.inf)) > self.state.now
            for reason in before.reasons.values()
        )
        if is_recent and is_waiting and before.digest == digest:
            names = before.reasons.keys() & {candidate.node.name for candidate in candidates}
            self.verdicts |= {name: before.reasons[name] for name in names}
            return before
        moves, solution = best_moves(search)
        # RemovalLimits that do not suffice for all moves go to those that save
        # most for their disruption.
        self.moves = sorted(moves, key=lambda move: (-move.saves / move.disruption, move.nodes))
        self.gap = search.gap
        reasons = Explanation(search, solution).reasons()
        waiting, memory = self._waiting(candidates)
        reasons |= waiting if not moves else {}
        self.verdicts |= reasons
        if self.moves or self.context.over():  # a search that was cut off has not found nothing
            return _without_search(memory)
        first_reasons = dict(sorted(reasons.items())[:MOST_REASONS])
        return msgspec.structs.replace(
            memory, digest=digest, searched_at=self.state.now, reasons=first_reasons
        )

    def _waiting(
        self, candidates: Sequence[Candidate]
    ) -> tuple[dict[str, Reason], ConsolidationMemory]:
        """Return node -> until when its move waits because nothing but time is missing, and the
        memory with the scores of such moves. candidates: among which `moves` were chosen."""
        before, costs = self.state.memory.consolidation, self.costs
        moves = self.moves
        going = {name for move in moves for name in move.nodes}
        others = [candidate for candidate in candidates if candidate.node.name not in going]
        is_recent = 0 <= self.state.now - before.scored_at < REPEAT_AFTER
        if is_recent or len(moves) > MANY_MOVES or not self.settings.patience:
            return {}, before
        waiting, _ = best_moves(self._search(others, frozenset(), buys=True, waits=True))
        if self.context.over():
            return {}, before
        reasons: dict[str, Reason] = {}
        # The saving of what is under way still stands, although it is no candidate any more.
        rows = self.reservation.rows.values()
        scores = {
            (*row.nodes, *row.new_nodes): row.score
            for row in rows
            if row.state is not ReplacementState.FAILED
        }
        for move in (*moves, *waiting):
            saved = move.saves - move.once
            scores[move.nodes] = costs.score(saved, move.nodes)
            reason = costs.not_worth(saved, move.nodes, stands=True)
            reasons |= dict.fromkeys(move.nodes, reason) if "until" in reason.params else {}
        looked_at = costs.pools_of(candidate.node.name for candidate in candidates)
        moving = costs.pools_of([*self.state.leaving, *chain.from_iterable(scores)])
        best = dict.fromkeys(looked_at - moving, 0.0)
        for names, score in scores.items():
            # A move that needs no patience says nothing about those that do.
            if score <= costs.patience.strict:
                best |= {pool: max(score, best.get(pool, 0.0)) for pool in costs.pools_of(names)}
        standing, scored_at = costs.patience.next_scores(best)
        return reasons, msgspec.structs.replace(before, scores=standing, scored_at=scored_at)

    def _search(
        self,
        candidates: Sequence[Candidate],
        wanted: frozenset[str],
        *,
        buys: bool,
        waits: bool = False,
    ) -> ConsolidationSearch:
        """Return a search among these candidates. buys: whether it may buy at all."""
        may_buy = buys and self.state.policy.consolidation.mode is not ConsolidationMode.REMOVE
        groups = self.eligibility.named if may_buy else frozenset()
        refusal = Reason.of(ReasonCode.GROUP_GROWING) if self.removal_limits.grown else None
        market = Market(self.state, self.simulated, self.costs, groups, refusal)
        limits = limits_of(self.state, self.removal_limits, candidates, market.offers)
        return ConsolidationSearch(
            self.state,
            self.simulated,
            self.removal_limits,
            self.costs,
            candidates,
            market,
            limits,
            wanted,
            self.context.over,
            waits=waits,
            steered=self.steered,
        )

    def _digest(self, candidates: Sequence[Candidate], limits: Limits) -> str:
        """Return a fingerprint of all that a search depends on."""
        groups = [
            (
                name,
                group.target,
                group.group.min,
                group.group.max,
                group.backed_off,
                self.costs.groups.get(name),
            )
            for name, group in sorted(self.state.groups.items())
        ]
        nodes = []
        for node in sorted(self.state.snapshot.nodes, key=lambda node: node.name):
            pods, _ = self.quiet.memory_of(node)
            cost = self.costs.nodes.get(node.name)
            nodes.append((node.name, pods, cost.price if cost is not None else 0))
        names = [candidate.node.name for candidate in candidates]
        content = [self.settings, groups, nodes, names, limits.room.tolist(), self.simulated.real]
        if self.costs.recommended:
            content.append(sorted(self.costs.recommended))
        encoded = msgspec.json.encode(content, order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:20]

    # --- moves into room that exists

    def _removals(self, moves: Sequence[JudgedMove]) -> tuple[DisruptionCommand, ...]:
        """Return the removals of nodes that were wanted long enough, as far
        as the budgets have room."""
        proposals = [move.removals[0] for move in moves]
        allowed, refusals = self.removal_limits.draw(
            proposals, self._unconfirmed, DisruptionReason.CONSOLIDATION
        )
        self.verdicts |= refusals
        if not allowed:
            return ()
        removals = tuple(removal.planned(DisruptionReason.CONSOLIDATION) for removal in allowed)
        return (DisruptionCommand(DisruptionReason.CONSOLIDATION, removals),)

    def _unconfirmed(self, removal: SimulatedRemoval) -> Reason | None:
        since = self._wanted_since(removal.node.name)
        needs = self.settings.confirm_after
        if removal.node.name in self.confirmed or self.state.now - since >= needs:
            return None
        return Reason.of(ReasonCode.NOT_CONFIRMED, since=since, needs=needs)

    def _wanted_since(self, name: str) -> float:
        before = self.state.memory.nodes.get(name)
        since = before.wanted_since if before else 0.0
        return min(since or self.state.now, self.state.now)

    # --- moves that buy

    def _advance(self, proposals: Sequence[JudgedMove]) -> Advance:
        may_buy = self.state.policy.consolidation.mode is ConsolidationMode.FULL
        return advance(
            self.state,
            self.simulated,
            self.removal_limits,
            judge=self._judge,
            confirm=self._confirm,
            reservation=self.reservation,
            proposals=proposals if may_buy else (),
        )

    def _judge(self, names: Sequence[str], cost: int) -> JudgedMove | Reason:
        """Judge a move whose purchases exist."""
        return self._judged(names, {}, cost)

    def _confirm(self, replacement: Replacement) -> JudgedMove | Reason:
        """Judge a move whose purchases do not exist yet."""
        purchases = {purchase.group: purchase.nodes for purchase in replacement.purchases}
        return self._judged(replacement.nodes, purchases, None)

    def _judged(
        self, names: Sequence[str], purchases: Mapping[str, int], cost: int | None
    ) -> JudgedMove | Reason:
        """Judge a move on the present snapshot, with the lower score of what was wanted before.
        cost: of purchases that exist."""
        checker = DrainabilityChecker(self.state, self.removal_limits.pdbs)
        candidates = []
        for name in names:
            candidate = self._row_candidate(name, checker)
            if isinstance(candidate, Reason):
                return candidate
            candidates.append(candidate)
        search = self._search(candidates, frozenset(names), buys=bool(purchases))
        solution = search.judged_set(purchases, cost)
        if isinstance(solution, Reason):
            return solution
        bought = np.array(solution.bought, dtype=np.int64)
        destinations = destinations_of(search, solution)
        return judged_move(search, solution.gone, bought, destinations, cost)

    def _row_candidate(self, name: str, checker: DrainabilityChecker) -> Candidate | Reason:
        """Return a node of a replacement as a candidate, or why it stays."""
        at = self.state.occupancy.index.get(name)
        if at is None or name not in self.simulated.table.index:
            return Reason.of(ReasonCode.UNEXPECTED, detail=f"node {name} is gone")
        if name not in self.costs.nodes:
            group = self.state.group_of.get(name, "")
            return Reason.of(ReasonCode.NO_PRICE, group=group, detail="")
        node = self.state.snapshot.nodes[at]
        candidate = checker.of(node)
        reason = protection(node, self.state)
        if reason is not None:
            return reason
        if not isinstance(candidate, Candidate):
            return candidate.reason
        return self.eligibility.blocked_candidate(candidate, self.moves_today) or candidate

    # --- the next memory, and the report

    def _node_memory(self, wanted: Collection[str]) -> dict[str, NodeMemory]:
        """Return the next memory of every node: what other methods leave, and
        what consolidation adds."""
        memory: dict[str, NodeMemory] = {}
        for node in self.state.snapshot.nodes:
            pods, since = self.quiet.memory_of(node)
            before = self.nodes.get(node.name, NodeMemory())
            wanted_since = self._wanted_since(node.name) if node.name in wanted else 0.0
            memory[node.name] = msgspec.structs.replace(
                before, pods=pods, pods_since=since, wanted_since=wanted_since
            )
        return memory

    def _moves_of_the_day(
        self, removals: Iterable[Removal]
    ) -> dict[str, tuple[tuple[float, int], ...]]:
        """Return the moves of each owner's pods within a day, with those of this pass."""
        now = self.state.now
        moved_pods: dict[str, int] = {}
        for removal in removals:
            evict = frozenset(removal.evict)
            for pod in self.state.occupancy.on(removal.node) if evict else ():
                owner = owner_of(self.state.snapshot.classes[pod.cls])
                if owner and pod.key in evict:
                    moved_pods[owner] = moved_pods.get(owner, 0) + 1
        moves_before = self.state.memory.consolidation.moves
        moves_of_owner: dict[str, tuple[tuple[float, int], ...]] = {}
        for owner in sorted(moves_before.keys() | moved_pods.keys()):
            earlier = moves_before.get(owner, ())
            moves = [move for move in earlier if 0 <= now - move[0] < _DAY]
            if owner in moved_pods:
                moves.append((now, moved_pods[owner]))
            if moves:
                moves_of_owner[owner] = tuple(moves)
        return moves_of_owner

    def _report(
        self, commands: Sequence[DisruptionCommand], advanced: Advance
    ) -> ConsolidationReport:
        begun = {removal.node for command in commands for removal in command.candidates}
        rows = {row.nodes: row for row in advanced.rows.values()}
        currency = self.costs.currency
        moves = []
        for move in self.moves:
            row = rows.get(move.nodes)
            state = "begins" if begun.issuperset(move.nodes) else "wanted"
            if row is not None:
                state = row.state.value
            if not self.acts:
                state = "shadow"
            row_id = row.id if row is not None else ""
            purchases = [(*item, move.prices[item[0]]) for item in sorted(move.purchases.items())]
            moves.append(reported(move, purchases, state, row_id, currency, move.once))
        proposed_sets = {move.nodes for move in self.moves}
        others = [row for row in advanced.rows.values() if row.nodes not in proposed_sets]
        for row in others:
            if row.state is not ReplacementState.FAILED:
                purchases = [(item.group, item.nodes, item.price) for item in row.purchases]
                moves.append(reported(row, purchases, row.state.value, row.id, currency))
        removed = begun | {removal.node for removal in self.removed}
        verdicts = []
        for name, reason in sorted(self.verdicts.items()):
            if name not in removed:
                pod = str(reason.params.get("pod", ""))
                verdicts.append(NodeVerdict(name, reason, pod))
        mode = self.state.policy.consolidation.mode.value
        return ConsolidationReport(
            mode, tuple(moves), tuple(verdicts), self.costs.report(), self.gap
        )


def _without_search(memory: ConsolidationMemory) -> ConsolidationMemory:
    return msgspec.structs.replace(memory, digest="", searched_at=0.0, reasons={})
