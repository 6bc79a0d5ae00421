"""The horizon in one pass: which nodes leave, whether they have their marks, which may go now, and
when the horizon ends or another takes its place.

    standing horizon, less the nodes that must stay ► nodes of pools whose marks are all there go
    ► nothing can go, or the cluster has changed ► another horizon

See docs/reference/consolidation.md "Horizon" and "Marks".
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import HOUR, Horizon, NodeMemory
from chalicelib.model.node import LEAVING_MARKS, OWN_TAINTS, Node, mark_level
from chalicelib.model.plan import HorizonReport
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.candidates import Candidate
from chalicelib.plan.removal.consolidation.costs import CONTINUE, Costs
from chalicelib.plan.removal.consolidation.horizon_search import Ending, HorizonSearch, zone_of
from chalicelib.plan.removal.consolidation.move_limits import standing_limits_of
from chalicelib.plan.removal.consolidation.move_search import MOST_CANDIDATES
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import pool_id
from chalicelib.policy.settings.consolidation import ConsolidationMode, Steering

SEARCH_AFTER = 600.0
"""Least seconds between two searches for a horizon."""
MOVED = 0.02
"""Change of requests, nodes or prices, as a share, after which one is searched while one stands."""
CHEAPER = 0.005
"""Part of the price at the end that another horizon must save to take the place of one."""
HELD, HELD_BY_BUDGET, STAYS_FOR = 6 * HOUR, HOUR, 24 * HOUR
"""Seconds for which something may hold a node that leaves, by a PodDisruptionBudget, and for which
it then counts as one that stays."""
RESTS_AFTER = HOUR / 2
"""Seconds for which all nodes that leave must have been held, before nodes that stay are replaced:
until then their room is for the pods of those that leave."""
TRIES = 3
"""Writes after which a mark that is not there is not expected any more."""
_ONE_SECOND = 20  # marks of a batch that were tried for certain
_LEAVES, _KEEPS_ROOM, _LEAVES_SCARCE = 1, 2, 3
"""Marks of a node that leaves; where a zone of its pool is scarce, of a node that stays there, so
that other pods keep its room free, and of all that leave."""
_HOLDS = frozenset({
    ReasonCode.NOT_QUIET, ReasonCode.DO_NOT_DISRUPT, ReasonCode.BLOCKED_BY_POD,
    ReasonCode.NO_PLACE_TO_MOVE_PODS, ReasonCode.NOT_ROBUST, ReasonCode.HEADROOM,
    ReasonCode.POD_MOVED_RECENTLY, ReasonCode.REMOVAL_FAILED, ReasonCode.BOUGHT_BACK,
    ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, ReasonCode.UNEXPECTED,
})  # fmt: skip
"""Reasons that concern one node; other nodes may go meanwhile."""
_LATER = frozenset({ReasonCode.NODE_TOO_YOUNG, ReasonCode.NOT_QUIET, ReasonCode.PROMISED})


def only_delays(reason: Reason) -> bool:
    """Return whether a node that does not go for this reason may leave later."""
    ends_by_itself = reason.code is ReasonCode.DO_NOT_DISRUPT and "until" in reason.params
    return reason.code in _LATER or ends_by_itself


class HorizonPass:
    """The horizon of one pass. leavable: the nodes that no standing limit keeps. horizon: as it
    stands; searched, searched_at: of the last search."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        removal_limits: RemovalLimits,
        costs: Costs,
        leavable: Sequence[Candidate],
        over: Callable[[], bool],
    ) -> None:
        self._state = state
        self._simulated = simulated
        self._removal_limits = removal_limits
        self._costs = costs
        self._over = over
        self._settings = state.policy.consolidation
        self._nodes = {node.name: node for node in state.snapshot.nodes}
        self._pool_of = {
            node: pool_id(state.groups[group].group) for node, group in state.group_of.items()
        }
        self._stays_until: dict[str, float] = {}
        self.unsteered = self._unsteered_pools()
        self._candidates = [candidate.node.name for candidate in leavable]
        pools = {self._pool_of[name] for name in self._candidates}
        closed = {pool for pool in pools if self._is_closed(pool)}
        self._leavable = {
            candidate.node.name: candidate
            for candidate in leavable
            if self._pool_of[candidate.node.name] not in closed | self.unsteered.keys()
            and not self._stays(candidate.node.name)
        }
        pdbs = removal_limits.pdbs
        self._searchable = [
            candidate
            for _, candidate in sorted(self._leavable.items())
            if pdbs.exhausted(candidate.limited) is None
        ]
        self._free_of_budgets = {candidate.node.name for candidate in self._searchable}
        before = state.memory.consolidation
        self.searched, self.searched_at = before.searched, before.horizon_at
        self.horizon = self._standing(before.horizon) if self.is_on and before.horizon else None

    @property
    def is_on(self) -> bool:
        """Whether nodes are steered at all."""
        marks_nodes = self._state.options.max_bulk_soft_taint_count > 0
        return marks_nodes and self._settings.steering is not Steering.OFF

    @property
    def steered(self) -> Collection[str]:
        """The nodes that leave by a horizon only: few ones are searched as without marks."""
        steered = [name for name in self._candidates if self._pool_of[name] not in self.unsteered]
        return steered if self.is_on and len(self._searchable) > MOST_CANDIDATES else ()

    # --- who may leave

    def _unsteered_pools(self) -> dict[str, Reason]:
        """Return the pools with soft taints of others, which marks would weaken."""
        if self._settings.steering is Steering.ALWAYS:
            return {}
        reasons: dict[str, Reason] = {}
        for name, pool in self._pool_of.items():
            node = self._nodes.get(name)
            taints = _foreign_soft_taints(node) if node is not None else []
            if taints:
                reasons[pool] = Reason.of(ReasonCode.STEERING_OFF, pool=pool, taint=taints[0])
        return reasons

    def _is_closed(self, pool: str) -> bool:
        """Return whether a disruption budget of 0 keeps all nodes of a pool for more than an
        hour."""
        rooms = self._removal_limits.disruption_room(pool, DisruptionReason.CONSOLIDATION)
        soon = self._state.now + HELD_BY_BUDGET
        return any(
            reason.params["limit"] == 0 and float(reason.params.get("until", math.inf)) > soon
            for _, reason in rooms
        )

    def _stays(self, name: str) -> bool:
        until = self._state.memory.nodes.get(name, NodeMemory()).stays_until
        return self._state.now < until <= self._state.now + STAYS_FOR

    # --- the horizon that stands

    def _standing(self, horizon: Horizon) -> Horizon | None:
        """Return the last horizon without nodes that are gone, must stay or have refused their
        marks, and with what is to be written now; None if no node leaves any more."""
        refused, missing = self._review(horizon)
        dropped = {name for name, times in refused.items() if times >= TRIES}
        self._stays_until = dict.fromkeys(dropped, self._state.now + STAYS_FOR)
        may_leave = self._leavable.keys() - dropped
        going = tuple(
            name for name in horizon.going if name in may_leave or self._keeps_mark(name, horizon)
        )
        vanished = [name for name in horizon.going if name not in self._nodes]
        if not going:
            return None
        dropped |= set(horizon.going) - set(going)
        levels = {
            name: level
            for name, level in horizon.levels.items()
            if name in self._pool_of and name not in dropped
        }
        return self._with_batch(
            msgspec.structs.replace(
                horizon,
                going=going,
                levels=levels if missing < TRIES else {},
                refused={name: times for name, times in refused.items() if name in levels},
                missing=missing,
                gone=horizon.gone + len(vanished),
            )
        )

    def _review(self, horizon: Horizon) -> tuple[dict[str, int], int]:
        """Return how often nodes have refused or lost their marks, and after how many passes no
        mark was there. The last pass has written its batch in order, until its time was over."""
        names = sorted(name for name in horizon.levels if name not in self._state.leaving)
        unmarked = [name for name in names if not self._has_mark(name, horizon)]
        if not unmarked or self._state.memory.watching_since:
            return horizon.refused, horizon.missing
        if unmarked == names:
            return horizon.refused, horizon.missing + 1
        came = [at for at, name in enumerate(horizon.batch) if name not in unmarked]
        tried = horizon.batch[: came[-1] + 1 if came else _ONE_SECOND]
        refused = dict(horizon.refused)
        for name in unmarked:
            # One that was not in the batch had its mark, and somebody has taken it away.
            if name in tried or name not in horizon.batch:
                refused[name] = refused.get(name, 0) + 1
        return refused, horizon.missing

    def _keeps_mark(self, name: str, horizon: Horizon) -> bool:
        """Return whether a node that may not be drained now leaves all the same: it is in a drain,
        or its group could not be read since it was marked."""
        if name not in self._costs.nodes or self._stays(name):
            return False
        group = self._state.groups[self._state.group_of[name]].group
        return name in self._state.leaving or (bool(group.error) and self._has_mark(name, horizon))

    def _has_mark(self, name: str, horizon: Horizon) -> bool:
        node = self._nodes.get(name)
        return node is not None and mark_level(node) == horizon.levels.get(name, 0)

    def _with_batch(self, horizon: Horizon) -> Horizon:
        """Return the horizon with the marks that this pass is about to write."""
        batch = [
            name
            for name in sorted(horizon.levels)
            if name not in self._state.leaving and not self._has_mark(name, horizon)
        ]
        return msgspec.structs.replace(horizon, batch=tuple(batch))

    # --- what it means for nodes in this pass

    def ready(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that leave and may go now: all marks of their pool are there."""
        horizon = self.horizon
        if horizon is None:
            return []
        if 0 <= self._state.now - horizon.since < self._settings.confirm_after:
            return []
        unmarked_pools = {self._pool_of[name] for name in horizon.batch}
        going = set(horizon.going)
        return [
            candidate
            for candidate in candidates
            if candidate.node.name in going
            and self._pool_of[candidate.node.name] not in unmarked_pools
        ]

    def is_unsteered(self, candidate: Candidate) -> bool:
        """Return whether a candidate's pool is consolidated without marks."""
        return self._pool_of[candidate.node.name] in self.unsteered

    def verdicts(self, candidates: Sequence[Candidate]) -> dict[str, Reason]:
        """Return why candidates do not go in this pass: they stay, or wait for marks."""
        horizon = self.horizon
        if horizon is None:
            return {}
        going = set(horizon.going)
        awaited = Reason.of(ReasonCode.MARKS_AWAITED, marked=horizon.marked, of=len(horizon.levels))
        stays = Reason.of(ReasonCode.STAYS_AT_THE_END, going=len(going), end=horizon.end / MICRO)
        return {
            candidate.node.name: awaited if candidate.node.name in going else stays
            for candidate in candidates
            if not self.is_unsteered(candidate)
        }

    def rows(self) -> Collection[int]:
        """Return the rows of the nodes that leave."""
        index = self._simulated.table.index
        going = self.horizon.going if self.horizon is not None else ()
        return [index[name] for name in going if name in index]

    def waits(self, ready: Collection[Candidate]) -> bool:
        """Return whether a node that leaves is in a drain, or may go later than now."""
        horizon = self.horizon
        assert horizon is not None
        now = {candidate.node.name for candidate in ready} & self._free_of_budgets
        return bool(horizon.batch) or not now.issuperset(horizon.going)

    def rests(self) -> bool:
        """Return whether something has held all nodes that leave for RESTS_AFTER."""
        horizon = self.horizon
        assert horizon is not None
        memory = self._state.memory.nodes
        held_since = [memory.get(name, NodeMemory()).held_since for name in horizon.going]
        return all(since and self._state.now - since >= RESTS_AFTER for since in held_since)

    # --- another horizon

    def decide(self, *, stuck: bool) -> None:
        """Search another horizon where that is due. stuck: none of the nodes that leave can go."""
        now = self._state.now
        if not self.is_on or 0 <= now - self.searched_at < SEARCH_AFTER:
            return
        if self.horizon is not None and not stuck and not _moved(self.searched, self._measures()):
            return
        self.horizon = self._next(stuck=stuck)
        self.searched, self.searched_at = self._measures(), now

    def _next(self, *, stuck: bool) -> Horizon | None:
        """Return the horizon after a search: the one that stands, if no other is better."""
        candidates, standing = self._searchable, self.horizon
        ending = Ending((), frozenset())
        if candidates and (standing is not None or len(candidates) > MOST_CANDIDATES):
            limits = standing_limits_of(self._state, self._removal_limits, candidates)
            ending = HorizonSearch(
                self._state, self._simulated, self._costs, candidates, limits, self._over
            ).ending()
        going = self._worth(ending)
        if standing is not None:
            is_same = set(going) == set(standing.going) - self._state.leaving
            is_dearer = self._end(going) >= self._end(standing.going) * (1 - CHEAPER)
            if is_same or (is_dearer and not stuck):
                return standing
        return self._begun(going, ending) if going else None

    def _measures(self) -> tuple[int, ...]:
        """Return what drains do not change: cpu and memory that pods request, those of DaemonSets
        left out, the number of nodes with those that have gone, and the prices of groups."""
        occupancy = self._state.occupancy
        classes = self._state.snapshot.classes
        pods = np.bincount(occupancy.cls[~occupancy.dying], minlength=len(classes))
        requests = [
            sum(
                count * cls.requests.get(name, 0)
                for count, cls in zip(pods.tolist(), classes, strict=True)
                if not (cls.is_daemonset or cls.mirror)
            )
            for name in (CPU, MEMORY)
        ]
        gone = self.horizon.gone if self.horizon is not None else 0
        prices = sum(price.now for price in self._costs.groups.values())
        return (*requests, len(self._nodes) + gone, prices)

    def _price(self) -> int:
        return sum(cost.now for cost in self._costs.nodes.values())

    def _end(self, going: Collection[str]) -> int:
        """Return the price when these nodes have gone, and those that are on their way."""
        gone = {*going, *self._state.leaving} & self._costs.nodes.keys()
        return self._price() - sum(self._costs.nodes[name].now for name in gone)

    def _worth(self, ending: Ending) -> tuple[str, ...]:
        """Return the nodes of the pools in which leaving is worth the disruption."""
        members: dict[str, list[str]] = {}
        for name in ending.going:
            members.setdefault(self._pool_of[name], []).append(name)
        begun = {self._pool_of[name] for name in (self.horizon.going if self.horizon else ())}
        worth: set[str] = set()
        for pool, names in members.items():
            saves = sum(self._costs.nodes[name].price for name in names)
            needed = self._costs.patience.needed(pool) * float(CONTINUE if pool in begun else 1)
            if self._costs.score(saves, names) > needed:
                worth.update(names)
        return tuple(name for name in ending.going if name in worth)

    def _begun(self, going: Sequence[str], ending: Ending) -> Horizon:
        levels = self._levels(going, ending)
        shows_only = self._state.policy.consolidation.mode is ConsolidationMode.SHADOW
        text = "\n".join([str(self._state.now), *going])
        horizon = Horizon(
            id=hashlib.sha256(text.encode()).hexdigest()[:8],
            since=self._state.now,
            levels={} if shows_only else levels,
            going=tuple(going),
            end=self._end(going),
        )
        return self._with_batch(horizon)

    def _levels(self, going: Sequence[str], ending: Ending) -> dict[str, int]:
        """Return the marks of the nodes that leave, and of those that stay in scarce zones."""
        leaving = set(going)
        scarce_pools = {pool for pool, _ in ending.scarce}
        pools = {self._pool_of[name] for name in going}
        levels: dict[str, int] = {}
        others: Counter[str] = Counter()
        for name, node in self._nodes.items():
            pool = self._pool_of.get(name, "")
            if pool not in pools or name in self._state.leaving:
                continue
            if name in leaving:
                levels[name] = _LEAVES_SCARCE if pool in scarce_pools else _LEAVES
                continue
            others[pool] = max(others[pool], len(_foreign_soft_taints(node)))
            if (pool, zone_of(node)) in ending.scarce:
                levels[name] = _KEEPS_ROOM
        most = len(LEAVING_MARKS)
        return {
            name: min(most, level + others[self._pool_of[name]]) if name in leaving else level
            for name, level in levels.items()
        }

    # --- what is remembered and reported

    def node_memory(
        self, name: str, memory: NodeMemory, verdicts: Mapping[str, Reason]
    ) -> NodeMemory:
        """Return a node's memory with since when something holds it, and until when it stays."""
        now = self._state.now
        before = self._state.memory.nodes.get(name, NodeMemory())
        stays_until = before.stays_until if self._stays(name) else 0.0
        held_since = 0.0
        reason = verdicts.get(name)
        leaves = self.horizon is not None and name in self.horizon.going
        is_budget = (
            reason is not None and reason.params.get("rule") == ReasonCode.NOT_ENOUGH_PDB.value
        )
        is_behind_others = is_budget and name in self._free_of_budgets
        if leaves and reason is not None and reason.code is ReasonCode.MARKS_AWAITED:
            held_since = before.held_since
        elif leaves and reason is not None and reason.code in _HOLDS and not is_behind_others:
            held_since = min(before.held_since or now, now)
            if now - held_since >= (HELD_BY_BUDGET if is_budget else HELD):
                stays_until, held_since = now + STAYS_FOR, 0.0
        stays_until = self._stays_until.get(name, stays_until)
        return msgspec.structs.replace(memory, held_since=held_since, stays_until=stays_until)

    def notes(self) -> tuple[Reason, ...]:
        """Return what keeps marks from being written."""
        is_large = len(self._candidates) > MOST_CANDIDATES
        notes = [*self.unsteered.values()] if self.is_on and is_large else []
        if self.horizon is not None and self.horizon.missing >= TRIES:
            nodes = len(self.horizon.going)
            notes.append(Reason.of(ReasonCode.MARKS_MISSING, nodes=nodes))
        return tuple(notes)

    def report(self) -> HorizonReport | None:
        """Return the horizon for people."""
        horizon = self.horizon
        if horizon is None:
            return None
        return HorizonReport(
            id=horizon.id,
            since=horizon.since,
            price=self._price() / MICRO,
            end=self._end(horizon.going) / MICRO,
            levels=horizon.levels,
            going=horizon.going,
            marked=horizon.marked,
            gone=horizon.gone,
            currency=self._costs.currency,
        )


def _foreign_soft_taints(node: Node) -> list[str]:
    return [
        taint.key
        for taint in node.taints
        if taint.effect == "PreferNoSchedule" and taint.key not in OWN_TAINTS
    ]


def _moved(before: Sequence[int], measures: Sequence[int]) -> bool:
    """Return whether any measure has changed by more than the share MOVED."""
    return len(before) != len(measures) or any(
        abs(new - old) > MOVED * max(old, 1) for old, new in zip(before, measures, strict=True)
    )
