"""Why a node is not consolidated: one reason for each candidate that stays, from the
first stage that stopped it.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.packing.scheduler_orders import ORDERS
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.consolidation.move_search import ConsolidationSearch, Solution
from chalicelib.plan.removal.consolidation.purchases import NodeOffer
from chalicelib.plan.removal.consolidation.trial import Places, Shortage
from chalicelib.plan.tables import Ints
from chalicelib.reasons.text import text

MOST_ALONE = 64
"""Candidates that are tried alone; the reasons of others come from prices and sizes only."""
MOST_SPLITS = 8
"""Searches for a mix of new nodes for the pods of one candidate."""


class _Alone(msgspec.Struct, frozen=True):
    """The cheapest move of a single node: what it buys, or the shortage without any that fits."""

    bought: Ints
    shortage: Shortage | None = None


class Explanation:
    """The reasons after a search. solution: what the search chose, None for nothing."""

    def __init__(self, search: ConsolidationSearch, solution: Solution | None) -> None:
        self._search, self._solution = search, solution
        none: Ints = np.zeros(len(search.offers), dtype=np.int64)
        self._bought = np.array(solution.bought, dtype=np.int64) if solution is not None else none
        self._gone = solution.gone if solution is not None else ()
        self._used = search.limits.used(self._gone, self._bought)
        self._none, self._splits = none, MOST_SPLITS
        self._mixes: dict[tuple[tuple[tuple[int, int], ...], tuple[bool, ...]], Ints | None] = {}

    def reasons(self) -> dict[str, Reason]:
        """Return node -> reason for each candidate that stays."""
        search, gone = self._search, set(self._gone)
        order = [at for at in search.worth_trying() if at not in gone]
        alone = set(order[:MOST_ALONE]) if not search.over() else set()
        return {
            candidate.node.name: self._reason(at, tried=at in alone)
            for at, candidate in enumerate(search.candidates)
            if at not in gone
        }

    def _reason(self, at: int, *, tried: bool) -> Reason:
        search = self._search
        if search.saves[at] <= 0:
            return self._not_worth(at, self._none, stands=False)
        shortage = search.shortages.get(at)
        if shortage is not None and shortage.headroom:
            return Reason.of(ReasonCode.HEADROOM, headroom=shortage.headroom)
        if not tried:
            refusal = self._refusal(at, self._none)
            return refusal or shortage_reason(search, at, shortage) or self._no_cheaper_place(at)
        alone = self._alone(at)
        if alone.shortage is not None:
            return self._infeasible(at, alone.shortage)
        return self._reason_of_move(at, alone, shortage)

    def _reason_of_move(self, at: int, alone: _Alone, shortage: Shortage | None) -> Reason:
        """Return why a node stays that could go alone."""
        search = self._search
        gain = search.gain([at], alone.bought)
        if gain <= 0:
            return (
                self._unsettled(at, alone.bought)
                or self._not_bought(at)
                or self._not_worth(at, alone.bought)
            )
        if not search.saves_enough([at], alone.bought):
            return self._savings_too_small(at, alone.bought)
        reason = self._refusal(at, alone.bought) or shortage_reason(search, at, shortage)
        if reason is not None:
            return reason
        if self._solution is not None:
            first = search.candidates[self._gone[0]].node.name
            return Reason.of(
                ReasonCode.OTHER_MOVE_BETTER, move=first, gain=self._solution.gain / MICRO
            )
        if search.gap is None:
            return Reason.of(ReasonCode.SEARCH_LIMIT)
        return Reason.of(ReasonCode.SEARCH_LIMIT, gap=search.gap)

    # --- the best move of one node

    def _alone(self, at: int) -> _Alone:
        """Return the cheapest move that lets this node go while all others stay."""
        search = self._search
        result = search.trial.run([at], self._none)
        if isinstance(result, Places):
            return _Alone(self._none)
        if result.headroom or not search.offers:
            return _Alone(self._none, result)
        shortage = result if result.failing == 0 else Shortage(0, search.trial.moving[at])
        for bought in self._purchases(at, shortage):
            if isinstance(search.trial.run([at], bought), Places):
                return _Alone(bought)
        return _Alone(self._none, result)

    def _purchases(self, at: int, shortage: Shortage) -> list[Ints]:
        """Return what could hold the pods without a place, or all pods of
        the node, cheapest first."""
        search = self._search
        options: dict[tuple[int, ...], int] = {}
        for pods in (dict(shortage.pods), search.trial.moving[at]):
            need = search.need_of(pods)
            lowest_price = math.inf
            for row, offer in enumerate(search.offers):
                fits = all(bool(search.market.fits(cls)[row]) for cls in pods)
                if fits and self._has_room(row, at, need):
                    options[tuple(search.one(row).tolist())] = offer.price
                    lowest_price = min(lowest_price, offer.price)
            may_split = self._may_split(at, need)
            split = self._best_split(at, pods, lowest_price) if may_split else None
            if split is not None:
                options[tuple(split.tolist())] = int(split @ search.cost)
        ordered = sorted(options, key=lambda bought: (options[bought], bought))
        return [np.array(bought, dtype=np.int64) for bought in ordered]

    def _has_room(self, row: int, at: int, need: Ints) -> bool:
        """Return whether a node of an offer may be bought for a candidate, and has this room."""
        if self._search.barred[row, at]:
            return False
        has_room = need <= self._search.offers[row].shape.free
        return bool(has_room.all())

    def _may_split(self, at: int, need: Ints) -> bool:
        """Return whether a mix of several new nodes could bring a gain: the cheapest price of what
        the pods need most of is less than what the node saves."""
        search = self._search
        if not search.settings.split_nodes or not len(search.offers) or self._splits <= 0:
            return False
        rooms = [np.maximum(offer.shape.free, 0) for offer in search.offers]
        room = np.array(rooms, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(need > 0, need / room, 0.0)
        prices = np.where(np.isnan(shares), 0.0, shares) * search.cost[:, None]
        price_by_resource = prices.min(axis=0)
        lowest_price = float(price_by_resource.max(initial=0.0))
        if lowest_price >= search.saves[at]:
            return False
        self._splits -= 1
        return True

    def _best_split(self, at: int, pods: dict[int, int], single: float) -> Ints | None:
        """Return the cheapest mix of several new nodes for these pods; None where one
        new node is certainly cheaper, or a pod fits none. single: the lowest price of
        one that holds them all."""
        price_of_two = 2 * int(self._search.cost.min())
        if sum(pods.values()) < 2 or single < price_of_two:
            return None
        if not all(self._fits_any(at, cls) for cls, count in pods.items() if count):
            return None
        key = tuple(sorted(pods.items())), tuple(self._search.barred[:, at].tolist())
        if key not in self._mixes:  # nodes of a group often carry the same pods
            self._mixes[key] = self._split(at, pods)
        return self._mixes[key]

    def _fits_any(self, at: int, cls: int) -> bool:
        """Return whether a new node that may be bought for this candidate
        holds a pod of the class."""
        need = self._search.simulated.table.columns.need(cls)
        fitting = np.flatnonzero(self._search.market.fits(cls))
        return any(self._has_room(row, at, need) for row in fitting.tolist())

    def _split(self, at: int, pods: dict[int, int]) -> Ints | None:
        """Return the cheapest mix of several new nodes for these pods."""
        # Most passes split no node, and the import is a large part of a cold start.
        from chalicelib.plan.scale_up.least_cost.cheapest_mix import solve
        from chalicelib.plan.scale_up.least_cost.problem import Ask, Offer

        search = self._search
        offers = []
        for row, offer in enumerate(search.offers):
            most = 0 if search.barred[row, at] else offer.most
            offers.append(Offer(offer.group, offer.shape.free, offer.price / MICRO, most))
        asks = []
        for cls, count in sorted(pods.items()):
            need = search.simulated.table.columns.need(cls)
            fits = tuple(search.market.fits(cls).tolist())
            asks.append(Ask(need, count, fits))
        bought = solve(offers, asks, [], search.over)
        if not bought:
            return None
        placed_pods = sum(sum(node.pods.values()) * node.nodes for node in bought)
        if placed_pods < sum(pods.values()):
            return None
        counts = self._none.copy()
        for node in bought:
            counts[node.offer] += node.nodes
        return counts

    # --- reasons

    def _refusal(self, at: int, bought: Ints) -> Reason | None:
        """Return which limit keeps a node beside what goes. A metric rule
        says what its rate would be."""
        refusal = self._search.limits.refusal(self._used, at, bought)
        guard = self._search.removal_limits.guard
        if refusal is None or guard is None or refusal.code is not ReasonCode.RULE_NEEDS_NODE:
            return refusal
        gone = [self._search.candidates[other].node for other in self._gone]
        guard.take(gone)
        exact = guard.refuse([self._search.candidates[at].node])
        guard.take(gone, -1)
        return exact or refusal

    def _infeasible(self, at: int, shortage: Shortage) -> Reason:
        """Return why a node cannot go even alone."""
        search = self._search
        if shortage.headroom:
            return Reason.of(ReasonCode.HEADROOM, headroom=shortage.headroom)
        return (
            self._not_bought(at)
            or shortage_reason(search, at, shortage)
            or self._no_cheaper_place(at)
        )

    def _not_bought(self, at: int) -> Reason | None:
        """Return why a group that would be worth it is not bought."""
        search = self._search
        form = search.forms[at]
        for offer, why in search.market.blocked.values():
            if self._would_pay(at, offer):
                return why
        for row, offer in enumerate(search.offers):
            if search.barred[row, at] and self._would_pay(at, offer, same_form=True):
                both_are_spot = offer.form[-1] and form[-1]
                if both_are_spot and offer.form != form:
                    return self._too_few_spot_groups(at)
                return Reason.of(ReasonCode.SAME_SHAPE, group=offer.group)
        return None

    def _would_pay(self, at: int, offer: NodeOffer, *, same_form: bool = False) -> bool:
        """Return whether one node of a group that is not bought would hold the
        node's pods and bring a gain."""
        search = self._search
        if not same_form and search.is_barred(offer, at, search.forms[at]):
            return False
        need = search.need_of(search.trial.moving[at])
        has_room = need <= offer.shape.free
        return bool(has_room.all()) and search.saves[at] > offer.price

    def _too_few_spot_groups(self, at: int) -> Reason:
        search = self._search
        if not search.settings.spot_to_spot:
            return Reason.of(ReasonCode.SPOT_FLEXIBILITY)
        spot_offers = (offer for offer in search.offers if offer.form[-1])
        cheaper = sum(offer.price < search.price[at] for offer in spot_offers)
        return Reason.of(
            ReasonCode.SPOT_FLEXIBILITY, cheaper=cheaper, needs=search.settings.min_cheaper_groups
        )

    def _no_cheaper_place(self, at: int) -> Reason:
        search = self._search
        price = int(search.price[at]) / MICRO
        if not search.buys:
            return Reason.of(ReasonCode.NO_CHEAPER_PLACE, price=price, detail="buys nothing")
        holding = np.flatnonzero(search.holds([at])[0])
        if not len(holding):
            return Reason.of(ReasonCode.NO_CHEAPER_PLACE, price=price)
        lowest_price = int(search.cost[holding].min()) / MICRO
        return Reason.of(ReasonCode.NO_CHEAPER_PLACE, price=price, best=lowest_price)

    def _not_worth(self, at: int, bought: Ints, *, stands: bool = True) -> Reason:
        search = self._search
        price = int(search.price[at])
        name = search.candidates[at].node.name
        saves = price - int(bought @ search.cost) - search.costs.nodes[name].idle
        if saves <= 0:
            best = (price - saves) / MICRO
            return Reason.of(ReasonCode.NO_CHEAPER_PLACE, price=price / MICRO, best=best)
        return search.costs.not_worth(saves, [name], stands=stands)

    def _savings_too_small(self, at: int, bought: Ints) -> Reason:
        search = self._search
        price = int(search.price[at])
        share = round((price - search.paid(bought)) / price, 6)
        return Reason.of(
            ReasonCode.SAVINGS_TOO_SMALL, saves=share, needs=search.settings.min_savings
        )

    def _unsettled(self, at: int, bought: Ints) -> Reason | None:
        """Return the price that would have to settle for the move to bring a gain."""
        search = self._search
        counts = zip(search.offers, bought.tolist(), strict=True)
        bought_offers = [offer for offer, count in counts if count]
        unsettled = [offer for offer in bought_offers if offer.settled_at]
        if not unsettled:
            return None
        node = search.costs.nodes[search.candidates[at].node.name]
        rise_of_node = node.now - node.price
        fall_of_offers = sum(offer.cost - offer.now for offer in unsettled)
        present_gain = search.gain([at], bought) + fall_of_offers + rise_of_node
        if present_gain <= 0:
            return None
        last = max(unsettled, key=lambda offer: offer.settled_at)
        return Reason.of(ReasonCode.PRICE_UNSETTLED, group=last.group, until=last.settled_at)


def shortage_reason(
    search: ConsolidationSearch, at: int, shortage: Shortage | None
) -> Reason | None:
    """Return why pods of a node found no place: another order than the first,
    or rules beyond resources."""
    if shortage is None or not shortage.pods:
        return None
    candidate = search.candidates[at]
    pods = [pod for pod in candidate.pods if pod.cls in shortage.pods]
    if not pods:
        return None
    first = pods[0]
    if shortage.failing != 0:
        order = ORDERS[shortage.failing].text
        return Reason.of(ReasonCode.NOT_ROBUST, pod=first.key, order=order)
    if search.simulated.is_independent(first.cls):
        return None
    counts, nodes = search.trial.tally(at, first.cls)
    words = ", ".join(f"{count} {text(reason)}" for reason, count in counts)
    what = f"0/{nodes} nodes: {words}" if words else "the last room went to other pods"
    return Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod=first.key, what=what)


def reasons_to_stay(search: ConsolidationSearch, solution: Solution | None) -> dict[str, Reason]:
    """Return why each candidate stays that is not in this set."""
    gone = set(solution.gone) if solution is not None else set[int]()
    used = search.limits.used(sorted(gone), search.no_purchase())
    reasons: dict[str, Reason] = {}
    for at, candidate in enumerate(search.candidates):
        if at in gone:
            continue
        refusal = search.limits.refusal(used, at, search.no_purchase())
        pod = candidate.pods[0].key if candidate.pods else ""
        what = "no node that stays takes its pods"
        no_place = Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod=pod, what=what)
        reasons[candidate.node.name] = refusal or no_place
    return reasons
