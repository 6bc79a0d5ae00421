"""Everything that limits which nodes may go together and how many may be
bought, as rows of one table.

    sum of `going` over the nodes that go + sum of `buying` over the nodes that are bought <= room

The search checks a move against the rows, and the programme has the same rows as constraints, so
both obey the same limits. Zero-or-max groups are not in it: they are never consolidated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.bought_back import owner_of
from chalicelib.plan.removal.candidates import Candidate, blocked
from chalicelib.plan.removal.consolidation.purchases import NodeOffer
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.replacement_rows import UNDER_WAY, open_surge, surge_limit
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import pool_id
from chalicelib.plan.state.spot_market import SpotShares
from chalicelib.plan.tables import Ints, integers

_DAY = 86_400.0


class Limit(msgspec.Struct, frozen=True):
    """One row. going [N], buying [G]; reason: of a candidate (its index) that the row keeps."""

    going: Ints
    buying: Ints
    room: int
    reason: Callable[[int], Reason]


class Limits:
    """All rows for these candidates and groups, as arrays: going [L,N], buying [L,G], room
    [L]. Where a limit is exceeded already, nothing may use more of it, but it does not
    stop what does not use it."""

    def __init__(self, rows: Sequence[Limit], candidates: int, groups: int) -> None:
        self.rows = tuple(rows)
        going = integers([row.going for row in rows])
        buying = integers([row.buying for row in rows])
        self.going: Ints = going.reshape(len(rows), candidates)
        self.buying: Ints = buying.reshape(len(rows), groups)
        self.room = integers([max(0, row.room) for row in rows])

    def used(self, gone: Sequence[int], bought: Ints) -> Ints:
        """Return what a move uses of every row."""
        used: Ints = self.going[:, list(gone)].sum(axis=1) + self.buying @ bought
        return used

    def allow(self, gone: Sequence[int], bought: Ints) -> bool:
        """Return whether a move keeps every row."""
        return bool((self.used(gone, bought) <= self.room).all())

    def refusal(self, used: Ints, candidate: int, bought: Ints) -> Reason | None:
        """Return why a candidate may not go together with these purchases, beside what uses the
        rows already; None if it may."""
        more = self.going[:, candidate] + self.buying @ bought
        exceeds_room = used + more > self.room
        broken = np.flatnonzero(exceeds_room & (more > 0))
        if not len(broken):
            return None
        first_broken = self.rows[int(broken[0])]
        return first_broken.reason(candidate)


def limits_of(
    state: ClusterState,
    removal_limits: RemovalLimits,
    candidates: Sequence[Candidate],
    offers: Sequence[NodeOffer],
) -> Limits:
    """Return the rows, in the order in which their reasons are given."""
    builder = _Builder(state, removal_limits, candidates, offers)
    rows = [
        *builder.group_minimums(),
        *builder.pool_minimums(),
        *builder.cluster_minimums(),
        *builder.disruption_budgets(),
        *builder.pod_budgets(),
        *builder.breaker(),
        *builder.metric_rules(),
        *builder.owners(),
        *builder.group_maximums(),
        *builder.surge(),
        *builder.splits(),
        *builder.spot_shares(),
        *builder.on_demand_bases(),
    ]
    return Limits(rows, len(candidates), len(offers))


def standing_limits_of(
    state: ClusterState, removal_limits: RemovalLimits, candidates: Sequence[Candidate]
) -> Limits:
    """Return the rows that hold for many passes, without purchases."""
    builder = _Builder(state, removal_limits, candidates, ())
    rows = [
        *builder.group_minimums(),
        *builder.pool_minimums(),
        *builder.cluster_minimums(),
        *builder.metric_rules(),
        *builder.spot_shares(),
        *builder.on_demand_bases(),
    ]
    return Limits(rows, len(candidates), 0)


class _Builder:
    def __init__(
        self,
        state: ClusterState,
        removal_limits: RemovalLimits,
        candidates: Sequence[Candidate],
        offers: Sequence[NodeOffer],
    ) -> None:
        self.state = state
        self.removal_limits = removal_limits
        self.candidates = candidates
        self.offers = offers
        self.groups_of = [candidate.group for candidate in candidates]
        self.offered_groups = [offer.group for offer in offers]
        self.pools_of = [pool_id(state.groups[group].group) for group in self.groups_of]
        self.pool_of_offer = [pool_id(state.groups[group].group) for group in self.offered_groups]
        self.pods = integers([len(candidate.pods) for candidate in candidates])
        self.ones: Ints = np.ones(len(candidates), dtype=np.int64)
        self.none: Ints = np.zeros(len(offers), dtype=np.int64)
        self.shares = SpotShares(state) if state.policy.spot is not None else None

    def _in(self, names: Sequence[str], name: str) -> Ints:
        return integers([own == name for own in names])

    def _going(self, amounts: Mapping[int, int]) -> Ints:
        """Return what the nodes that go use of a limit. amounts: by candidate."""
        going: Ints = np.zeros(len(self.candidates), dtype=np.int64)
        going[list(amounts)] = list(amounts.values())
        return going

    def group_minimums(self) -> Iterator[Limit]:
        """The minimum of a group: what goes less what is bought of it."""
        for name in sorted(set(self.groups_of)):
            group = self.state.groups[name].group
            size = self.removal_limits.size_of(name)
            reason = Reason.of(ReasonCode.GROUP_MIN_SIZE, min=group.min, target=size)
            going = self._in(self.groups_of, name)
            buying = self._in(self.offered_groups, name)
            yield Limit(going, -buying, size - group.min, _always(reason))

    def pool_minimums(self) -> Iterator[Limit]:
        """The shared minimum of the groups of a pool."""
        for name, spare in sorted(self.removal_limits.pool_spares.items()):
            going = self._in(self.pools_of, name)
            if not going.any():
                continue
            first_going = int(going.argmax())
            pool = self.state.groups[self.groups_of[first_going]].group.pool
            assert pool is not None
            reason = Reason.of(ReasonCode.POOL_MIN_SIZE, pool=pool.name or name, min=pool.min)
            buying = self._in(self.pool_of_offer, name)
            yield Limit(going, -buying, spare, _always(reason))

    def cluster_minimums(self) -> Iterator[Limit]:
        """The cluster's minimums of cores, memory and GPUs."""
        minimums = self.removal_limits.minimums
        for name, room in sorted(minimums.room.items()):
            going = [minimums.amounts(candidate.node)[name] for candidate in self.candidates]
            buying = integers([minimums.amounts(offer.node)[name] for offer in self.offers])
            reason = Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources=name)
            yield Limit(integers(going), -buying, max(0, room), _always(reason))

    def disruption_budgets(self) -> Iterator[Limit]:
        """disruptionBudgets, for each pool. The old nodes of a replacement have
        counted since its purchase."""
        counted = self.removal_limits.counted_out(
            candidate.node.name for candidate in self.candidates
        )
        counts = 1 - integers(counted)
        for pool in sorted(set(self.pools_of)):
            rooms = self.removal_limits.disruption_room(pool, DisruptionReason.CONSOLIDATION)
            for room, reason in rooms:
                going = self._in(self.pools_of, pool) * counts
                yield Limit(going, self.none, max(0, room), _always(reason))

    def pod_budgets(self) -> Iterator[Limit]:
        """PodDisruptionBudgets that not all candidates together can keep."""
        used: dict[str, dict[int, int]] = {}
        for at, candidate in enumerate(self.candidates):
            for name, count in candidate.used.items():
                used.setdefault(name, {})[at] = count
        for name, counts in sorted(used.items()):
            room = max(0, self.removal_limits.pdbs.left(name))
            if sum(counts.values()) > room:
                yield Limit(self._going(counts), self.none, room, self._pod_of_budget(name))

    def _pod_of_budget(self, name: str) -> Callable[[int], Reason]:
        def reason(at: int) -> Reason:
            candidate = self.candidates[at]
            limited_pods = (pod for pod, names in candidate.limited if name in names)
            pod = next(limited_pods, candidate.pods[0])
            refusal = self.removal_limits.pdbs.refusal(name)
            return blocked(candidate.node, pod, refusal).reason

        return reason

    def breaker(self) -> Iterator[Limit]:
        """The circuit breaker's hourly limits and its share. Consolidation stays within the
        share and never trips it."""
        for what, room, reason in self.removal_limits.breaker.rooms():
            going = self.pods if what == "pods" else self.ones
            yield Limit(going, self.none, max(0, room), _always(reason))

    def metric_rules(self) -> Iterator[Limit]:
        """Metric rules that would buy again what goes."""
        guard = self.removal_limits.guard
        if guard is None:
            return
        nodes = [candidate.node for candidate in self.candidates]
        for used, room, reason in guard.rooms(nodes):
            yield Limit(integers(used), self.none, room, _always(reason))

    def owners(self) -> Iterator[Limit]:
        """movesPerPodPerDay, for the owners whose moves it can limit."""
        moves = OwnerMoves(self.state)
        counts: dict[str, dict[int, int]] = {}
        for at, candidate in enumerate(self.candidates):
            for owner, pods in moves.of(candidate).items():
                counts.setdefault(owner, {})[at] = pods
        for owner, pods_on in sorted(counts.items()):
            left = moves.left(owner)
            if left is None or sum(pods_on.values()) <= left:
                continue
            reason = moves.reason(owner)
            yield Limit(self._going(pods_on), self.none, max(0, left), _always(reason))

    def group_maximums(self) -> Iterator[Limit]:
        """The limits that several groups share: the cluster's totals and the maximums of pools."""
        going: Ints = np.zeros(len(self.candidates), dtype=np.int64)
        for at, offer in enumerate(self.offers):
            buying = self.none.copy()
            buying[at] = 1
            yield Limit(going, buying, offer.most, _always(offer.stop))
        shared_limits = self.offers[0].shared if self.offers else ()
        for amounts, room, reason in shared_limits:
            yield Limit(going, integers(amounts), room, _always(reason))

    def surge(self) -> Iterator[Limit]:
        """maxSurge, for each pool in which nodes are bought."""
        rows = self.state.memory.replacements.values()
        under_way = (row for row in rows if row.state in UNDER_WAY)
        bought = open_surge(under_way, self.state)
        going: Ints = np.zeros(len(self.candidates), dtype=np.int64)
        for pool in sorted(set(self.pool_of_offer)):
            limit = surge_limit(pool, self.state)
            reason = Reason.of(ReasonCode.SURGE_LIMIT, limit=limit)
            buying = self._in(self.pool_of_offer, pool)
            room = limit - bought.get(pool, 0)
            yield Limit(going, buying, max(0, room), _always(reason))

    def splits(self) -> Iterator[Limit]:
        """Without splitNodes no more nodes are bought than go."""
        if self.state.policy.consolidation.split_nodes or not self.offers:
            return
        buying: Ints = np.ones(len(self.offers), dtype=np.int64)
        reason = Reason.of(ReasonCode.NO_CHEAPER_PLACE)
        yield Limit(-self.ones, buying, 0, _always(reason))

    def spot_shares(self) -> Iterator[Limit]:
        """spot.maxShare, for each spot group that has nodes or of which nodes may be bought.
        A row says that its nodes less the share of the pool's nodes, in units of
        1/denominator, stay at most 0."""
        shares = self.shares
        if shares is None or shares.share >= 1:
            return
        part = shares.share.numerator
        whole = shares.share.denominator

        def excess(groups: Sequence[str], name: str, pool: str) -> Ints:
            return whole * self._in(groups, name) - part * self._in_share_pool(groups, pool)

        for name in sorted(shares.spot):
            pool = shares.pool_of[name]
            nodes = shares.size[name]
            if not nodes and name not in self.offered_groups:
                continue
            pool_nodes = shares.of_pool(pool)
            going = -excess(self.groups_of, name, pool)
            buying = excess(self.offered_groups, name, pool)
            first_node = 0 if nodes else whole - part
            room = max(part * pool_nodes - whole * nodes, first_node)
            reason = Reason.of(
                ReasonCode.SPOT_SHARE, share=float(shares.share), nodes=nodes, of=pool_nodes
            )
            yield Limit(going, buying, room, _always(reason))

    def on_demand_bases(self) -> Iterator[Limit]:
        """spot.onDemandBase, for each pool with a spot group."""
        shares = self.shares
        if shares is None or shares.base <= 0:
            return
        pools = {shares.pool_of[name] for name in shares.spot}
        for pool in sorted(pools):
            going = self._in_share_pool(self.groups_of, pool, on_demand=True)
            buying = self._in_share_pool(self.offered_groups, pool, on_demand=True)
            room = shares.of_pool(pool, on_demand=True) - shares.base
            yield Limit(going, -buying, room, _always(shares.base_reason()))

    def _in_share_pool(self, groups: Sequence[str], pool: str, *, on_demand: bool = False) -> Ints:
        assert self.shares is not None
        pool_of = self.shares.pool_of
        excluded = self.shares.spot if on_demand else frozenset()
        return integers([pool_of[g] == pool and g not in excluded for g in groups])


def _always(reason: Reason) -> Callable[[int], Reason]:
    return lambda _: reason


class OwnerMoves:
    """The moves of a day by owner of the pods, and how many more movesPerPodPerDay allows."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._classes = state.snapshot.classes
        self._most = state.policy.consolidation.moves_per_pod_per_day
        self._owners = [owner_of(cls) for cls in self._classes]
        self._replicas: dict[str, int] | None = None

    def of(self, candidate: Candidate) -> dict[str, int]:
        """Return owner -> pods of it that must move."""
        counts: dict[str, int] = {}
        if not self._most:
            return counts
        for pod in candidate.pods:
            owner = self._owners[pod.cls]
            if owner:
                counts[owner] = counts.get(owner, 0) + 1
        return counts

    def left(self, owner: str) -> int | None:
        """Return how many more pods of an owner may move now; None: no limit. An owner without
        moves of today is only limited if more than all its pods would move."""
        if not self._most:
            return None
        allowed = self._most * self._count(owner)
        moved_today = sum(pods for _, pods in self._today(owner))
        return allowed - moved_today

    def reason(self, owner: str) -> Reason:
        """Return why pods of an owner stay, and until when."""
        today = self._today(owner)
        oldest_move = today[0][0] if today else self._state.now
        until = oldest_move + _DAY
        return Reason.of(ReasonCode.POD_MOVED_RECENTLY, owner=owner, until=until)

    def _today(self, owner: str) -> list[tuple[float, int]]:
        moves = self._state.memory.consolidation.moves.get(owner, ())
        return sorted(move for move in moves if 0 <= self._state.now - move[0] < _DAY)

    def _count(self, owner: str) -> int:
        if self._replicas is None:
            self._replicas = {}
            pods_of_class = np.bincount(self._state.occupancy.cls, minlength=len(self._classes))
            for cls, count in enumerate(pods_of_class.tolist()):
                own = self._owners[cls] if cls < len(self._owners) else ""
                if own:
                    self._replicas[own] = self._replicas.get(own, 0) + count
        return self._replicas.get(owner, 0)
