"""The cheapest mix with the declarations of spec.managedPools: weights, the number of groups, and
the spread over types and zones. Their other limits are constraints of each search.

    weights, the highest first ► search ► at most maxPools groups ► minTypes and maxShare
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import ceil

import msgspec

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.declaration_limits import DeclarationLimits
from chalicelib.plan.scale_up.least_cost.problem import Ask, Bought, Offer, Shared, Stop
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.policy.settings.managed_pools import ManagedPool

Solve = Callable[[Sequence[Offer], Sequence[Ask], Sequence[Shared], Stop], list[Bought] | None]
_FEW_PODS = 500
"""Pods up to which mixes without each of several groups are compared. For more, the groups with the
most money stay: that costs well under 1 % there."""
_TRIES = 6  # mixes that are compared where one group too many is in the answer, or a cap is raised


class DeclaredMix:
    """A search over some candidates. notes: what could not be reached. closed: declarations that
    get no further nodes, because these would not be spread as it asks."""

    def __init__(
        self,
        candidates: Candidates,
        limiter: ResourceLimiter,
        declared: DeclarationLimits,
        solve: Solve,
        stop: Stop,
    ) -> None:
        self._groups: Sequence[NodeGroupState] = candidates.groups
        self._limiter, self._declared = limiter, declared
        self._solve, self._stop = solve, stop
        self.notes: list[Reason] = []
        self.closed: set[str] = set()

    def search(self, offers: Sequence[Offer], asks: Sequence[Ask]) -> list[Bought] | None:
        """Return what to buy, None if the search gave up. offers: one for each group."""
        bought: list[Bought] = []
        missing = list(asks)
        for weight in self._declared.weights(self._groups):
            of_weight = [
                msgspec.structs.replace(offer, most=0)
                if self._declared.weight(group.group) != weight
                else offer
                for offer, group in zip(offers, self._groups, strict=True)
            ]
            mix = self._of_weight(of_weight, missing)
            if mix is None:
                return bought or None
            bought += mix
            self._take(mix)
            missing = _without_placed(missing, mix)
            offers = _with_bought(offers, mix)
        return bought

    def _take(self, mix: Sequence[Bought]) -> None:
        """Use the room of a mix, on a copy of the limits."""
        self._limiter = self._limiter.copy()
        assert self._limiter.declared is not None
        self._declared = self._limiter.declared
        for load in mix:
            group = self._groups[load.offer]
            assert group.template is not None
            self._limiter.take(group.template.node, load.nodes, group.group)

    def _of_weight(self, offers: Sequence[Offer], asks: Sequence[Ask]) -> list[Bought] | None:
        mix = self._within_budgets(offers, asks, ())
        if mix is None:
            return None
        for declaration, pool in sorted(self._declared.pools.items()):
            mix = self._spread(declaration, pool, offers, asks, mix)
        return mix

    def _search(
        self, offers: Sequence[Offer], asks: Sequence[Ask], caps: Sequence[Shared]
    ) -> list[Bought] | None:
        shared = [Shared(amounts, most) for amounts, most in self._limiter.shared(self._groups)]
        return self._solve(offers, asks, [*shared, *caps], self._stop)

    # -- at most maxPools groups

    def _within_budgets(
        self, offers: Sequence[Offer], asks: Sequence[Ask], caps: Sequence[Shared]
    ) -> list[Bought] | None:
        """Return the cheapest mix that opens no more groups than may be opened."""
        offers = self._openable(offers)
        mix = self._search(offers, asks, caps)
        while mix is not None and not self._stop():
            excess = self._excess(mix)
            if not excess:
                return mix
            new, most = excess
            by_money = [offer for offer, _ in self._by_money(offers, mix, new)]
            spare = int(sum(ask.count for ask in asks) <= _FEW_PODS)
            if len(new) > most + spare:
                rest = self._all_new_of(new) - set(by_money[: most + spare])
                offers = _without(offers, rest)
                mix = self._search(offers, asks, caps)
                continue
            tried = by_money[::-1][:_TRIES]
            others = self._all_new_of(new) - new
            fewer = [_without(offers, {offer}) for offer in tried]
            fewer += [_without(offers, {offer} | others) for offer in tried]
            trials = [(self._search(smaller, asks, caps), smaller) for smaller in fewer]
            complete = [(trial, smaller) for trial, smaller in trials if trial is not None]
            if not complete:
                return None
            within = [pair for pair in complete if not self._excess(pair[0])]
            mix, offers = min(within or complete, key=lambda pair: _worth(pair[0], offers, asks))
        return mix

    def _openable(self, offers: Sequence[Offer]) -> list[Offer]:
        """Return the offers without those of declarations that may open no group."""
        closed = {name for name in self._declared.pools if not self._declared.may_open(name)}
        return [
            msgspec.structs.replace(offer, most=0)
            if self._declared.is_new(group.group) and declaration_of(group.group) in closed
            else offer
            for offer, group in zip(offers, self._groups, strict=True)
        ]

    def _excess(self, mix: Sequence[Bought]) -> tuple[frozenset[int], int] | None:
        """Return the new groups of a declaration that has too many, and how many it may open."""
        new: dict[str, set[int]] = {}
        for load in mix:
            group = self._groups[load.offer].group
            if self._declared.is_new(group):
                new.setdefault(declaration_of(group), set()).add(load.offer)
        for declaration, groups in sorted(new.items()):
            most = self._declared.may_open(declaration)
            if len(groups) > most:
                return frozenset(groups), most
        return None

    def _all_new_of(self, groups: frozenset[int]) -> set[int]:
        """Return all groups that would have to be opened, of the declaration of these."""
        declaration = declaration_of(self._groups[min(groups)].group)
        return {
            at
            for at, group in enumerate(self._groups)
            if declaration_of(group.group) == declaration and self._declared.is_new(group.group)
        }

    @staticmethod
    def _by_money(
        offers: Sequence[Offer], mix: Sequence[Bought], groups: frozenset[int]
    ) -> list[tuple[int, float]]:
        """Return groups with what is paid for their nodes, the most first."""
        money = dict.fromkeys(groups, 0.0)
        for load in mix:
            if load.offer in groups:
                money[load.offer] += load.nodes * offers[load.offer].price
        return sorted(money.items(), key=lambda item: (-item[1], offers[item[0]].group))

    # -- spread

    def _spread(
        self,
        declaration: str,
        pool: ManagedPool,
        offers: Sequence[Offer],
        asks: Sequence[Ask],
        mix: list[Bought],
    ) -> list[Bought]:
        """Return the cheapest mix of those tried whose nodes are spread as the declaration asks;
        the given one where there is none."""
        if pool.min_types <= 1 and pool.max_share.type >= 1 and pool.max_share.zone >= 1:
            return mix
        if not self._violations(declaration, pool, mix):
            return mix
        best: list[Bought] | None = None
        for cap in self._caps(declaration, mix):
            capped = self._within_budgets(offers, asks, self._shared_caps(declaration, pool, cap))
            if capped is None or self._violations(declaration, pool, capped):
                continue
            if best is None or _worth(capped, offers, asks) < _worth(best, offers, asks):
                best = capped
        is_complete = best is not None and _unplaced(best, asks) <= _unplaced(mix, asks)
        if best is not None and (is_complete or pool.strict):
            if not is_complete:
                self.closed.add(declaration)
            return best
        detail = self._violations(declaration, pool, mix)
        self.notes.append(Reason.of(ReasonCode.SPREAD_NOT_REACHED, pool=declaration, detail=detail))
        if not pool.strict:
            return mix
        self.closed.add(declaration)
        own = {at for at in range(len(offers)) if self._declaration(at) == declaration}
        return self._within_budgets(_without(offers, own), asks, ()) or []

    def _declaration(self, offer: int) -> str:
        return declaration_of(self._groups[offer].group)

    def _caps(self, declaration: str, mix: Sequence[Bought]) -> Iterator[int]:
        """Yield how many nodes of one type, or in one zone, are tried: more where fewer do."""
        nodes = sum(load.nodes for load in mix if self._declaration(load.offer) == declaration)
        existing = sum(self._existing(declaration, "type").values())
        most = nodes + existing
        step = max(1, most // _TRIES)
        yield from range(1, most + 1, step)

    def _existing(self, declaration: str, dimension: str) -> Counter[str]:
        """Return type, or zone, -> nodes of a declaration now."""
        counts: Counter[str] = Counter()
        for group in self._groups:
            managed = group.group.managed
            if managed is not None and managed.choice.declaration == declaration:
                key = managed.choice.instance_type if dimension == "type" else managed.choice.zone
                counts[key] += group.target
        return counts

    def _key(self, offer: int, dimension: str) -> str:
        managed = self._groups[offer].group.managed
        if managed is None:
            return ""
        return managed.choice.instance_type if dimension == "type" else managed.choice.zone

    def _shared_caps(self, declaration: str, pool: ManagedPool, cap: int) -> list[Shared]:
        """Return constraints by which no type and no zone has more nodes than the cap."""
        caps = []
        for dimension in _dimensions(pool):
            existing = self._existing(declaration, dimension)
            own = [
                self._key(at, dimension) if self._declaration(at) == declaration else ""
                for at in range(len(self._groups))
            ]
            for key in sorted(set(own) - {""}):
                amounts = tuple(int(name == key) for name in own)
                caps.append(Shared(amounts, max(0, cap - existing[key])))
        return caps

    def _violations(self, declaration: str, pool: ManagedPool, mix: Sequence[Bought]) -> str:
        """Return in what the nodes of a declaration are not spread as it asks, "" if they are."""
        for dimension in _dimensions(pool):
            counts = self._existing(declaration, dimension)
            for load in mix:
                if self._declaration(load.offer) == declaration:
                    counts[self._key(load.offer, dimension)] += load.nodes
            nodes = sum(counts.values())
            most = _most_of_one(pool, dimension, nodes)
            key, count = max(sorted(counts.items()), key=lambda item: item[1], default=("", 0))
            if count > most:
                return f"{count} of {nodes} nodes are of {dimension} {key}, at most {most}"
        return ""


def _dimensions(pool: ManagedPool) -> Iterator[str]:
    if pool.min_types > 1 or pool.max_share.type < 1:
        yield "type"
    if pool.max_share.zone < 1:
        yield "zone"


def _most_of_one(pool: ManagedPool, dimension: str, nodes: int) -> int:
    """Return how many of a declaration's nodes may be of one type, or in one zone."""
    if dimension == "zone":
        return ceil(pool.max_share.zone * nodes - 1e-9)
    return min(ceil(nodes / pool.min_types), ceil(pool.max_share.type * nodes - 1e-9))


def _unplaced(mix: Sequence[Bought], asks: Sequence[Ask]) -> int:
    placed = sum(pods * load.nodes for load in mix for pods in load.pods.values())
    return sum(ask.count for ask in asks) - placed


def _worth(
    mix: Sequence[Bought], offers: Sequence[Offer], asks: Sequence[Ask]
) -> tuple[int, float]:
    """Return the sort key of a mix, lower is better: unplaced pods, then cost."""
    cost = sum(offers[load.offer].price * load.nodes for load in mix)
    return _unplaced(mix, asks), cost


def _without(offers: Sequence[Offer], removed: set[int]) -> list[Offer]:
    return [
        msgspec.structs.replace(offer, most=0) if at in removed else offer
        for at, offer in enumerate(offers)
    ]


def _without_placed(asks: Sequence[Ask], mix: Sequence[Bought]) -> list[Ask]:
    """Return the asks without the pods of a mix."""
    placed: Counter[int] = Counter()
    for load in mix:
        for ask, pods in load.pods.items():
            placed[ask] += pods * load.nodes
    return [
        msgspec.structs.replace(ask, count=ask.count - placed[at]) for at, ask in enumerate(asks)
    ]


def _with_bought(offers: Sequence[Offer], mix: Sequence[Bought]) -> list[Offer]:
    """Return the offers after a mix was bought of them."""
    bought: Counter[int] = Counter()
    for load in mix:
        bought[load.offer] += load.nodes
    return [
        msgspec.structs.replace(
            offer, most=max(0, offer.most - bought[at]), have=offer.have + bought[at]
        )
        for at, offer in enumerate(offers)
    ]
