"""The search for the set of moves with the greatest gain.

    greedy removals ► greedy replacements ► the programme's proposals, each verified ►
    the best of all, or nothing

Every set is verified in the same way: all limits, and the trial in four orders. A set whose pods
lack a place gives up its least valuable nodes until the rest passes. The result is therefore never
worse than greedy choice or than doing nothing, whatever the programme proposes. Limits of the
search are counts, so the same input gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.packing.problem import PackingProblem
from chalicelib.plan.packing.scheduler_orders import EMPTIEST, ORDERS
from chalicelib.plan.removal.candidates import Candidate
from chalicelib.plan.removal.consolidation.costs import CONTINUE, Costs
from chalicelib.plan.removal.consolidation.emptiest_first import EmptiestFirst
from chalicelib.plan.removal.consolidation.move_limits import Limits
from chalicelib.plan.removal.consolidation.programme import Programme
from chalicelib.plan.removal.consolidation.purchases import Market, NodeOffer, form_of
from chalicelib.plan.removal.consolidation.trial import Places, Shortage, Trial
from chalicelib.plan.removal.pod_destinations import PodDestinations
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.simulate import RemovalSimulation, SimulatedRemoval
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.tables import Bools, Ints, integers
from chalicelib.policy.settings.consolidation import Consolidation

ROUNDS, BRANCHES = 10, 2_000
"""Rounds of the programme, and branch nodes in each."""
MOST_CANDIDATES = 30
"""Candidates up to which the programme is asked; among more the greedy choice stands."""
_REPAIRS = 40  # trials of one set that lose nodes until the rest passes


class Solution(msgspec.Struct, frozen=True):
    """A verified set: indexes of candidates that go, sorted; nodes bought of
    each offer; what it brings."""

    gone: tuple[int, ...]
    bought: tuple[int, ...]
    gain: int
    disruption: int
    places: Places

    def better_than(self, other_solution: Solution) -> bool:
        """Return whether it is preferred: greater gain, less disruption, fewer
        nodes, fewer purchases, names."""
        return self._key() < other_solution._key()

    def _key(self) -> tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]:
        return -self.gain, self.disruption, len(self.gone), sum(self.bought), self.gone, self.bought


class ConsolidationSearch:
    """The search among these candidates, sorted by name. wanted: names of nodes that earlier passes
    wanted; they need less of a score. waits: the search is for moves that time will make worth
    it. steered: names of nodes that leave by a horizon only, unless something is bought for
    them."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        removal_limits: RemovalLimits,
        costs: Costs,
        candidates: Sequence[Candidate],
        market: Market,
        limits: Limits,
        wanted: frozenset[str],
        over: Callable[[], bool],
        *,
        waits: bool = False,
        steered: Collection[str] = (),
    ) -> None:
        self.state = state
        self.simulated = simulated
        self.removal_limits = removal_limits
        self.costs = costs
        self.candidates = candidates
        self.market = market
        self.limits = limits
        self.over = over
        self.settings: Consolidation = state.policy.consolidation
        names = [candidate.node.name for candidate in candidates]
        self.steered = {at for at, name in enumerate(names) if name in steered}
        node_costs = [costs.nodes[name] for name in names]
        disruption_prices = [
            costs.disruption_price(name, wanted=name in wanted, waits=waits) for name in names
        ]
        self.price = integers([cost.price for cost in node_costs])
        self.disruption = integers([cost.disruption for cost in node_costs])
        self.disruption_price = integers(disruption_prices)
        idle = integers([cost.idle for cost in node_costs])
        self.saves = self.price - self.disruption_price - idle
        self.offers = market.offers
        self.buys = bool(market.offers or market.blocked)
        self.cost = integers([offer.price for offer in self.offers])
        forms = [form_of(candidate.node, state.groups[candidate.group]) for candidate in candidates]
        barred = [
            [self.is_barred(offer, at, form) for at, form in enumerate(forms)]
            for offer in self.offers
        ]
        self.barred: Bools = np.array(barred, dtype=np.bool_).reshape(len(self.offers), len(forms))
        self.forms = forms
        self.trial = Trial(simulated, candidates, self.offers)
        self._verified: dict[tuple[tuple[int, ...], tuple[int, ...]], Solution | None] = {}
        self.shortages: dict[int, Shortage] = {}  # candidate -> why the last trial gave it up
        self.bound = np.inf
        self.best_gain = 0
        self.rounds, self.branches = ROUNDS, BRANCHES

    def is_barred(self, offer: NodeOffer, candidate: int, form: tuple[object, ...]) -> bool:
        """Return whether an offer may not be bought if the candidate goes: it has the same form, or
        both are spot and too few spot groups are cheaper."""
        if offer.form == form:
            return True
        both_are_spot = offer.form[-1] and form[-1]
        if not both_are_spot:
            return False
        if not self.settings.spot_to_spot:
            return True
        price = self.costs.nodes[self.candidates[candidate].node.name].price
        spot_offers = (other for other in self.offers if other.form[-1])
        cheaper = sum(other.price < price for other in spot_offers)
        return cheaper < self.settings.min_cheaper_groups

    # --- the search

    def best(self, settle: Callable[[Solution], Solution | None]) -> Solution | None:
        """Return the best verified set; None if nothing brings a gain. settle: leaves out of a set
        what may not be done; sets are compared as it returns them."""
        best = self._improved(None, self.greedy(), settle)
        if not self.over():
            best = self._improved(best, self._programme(), settle)
        self.best_gain = best.gain if best is not None else 0
        return best

    @property
    def gap(self) -> float | None:
        """Return by how much the best plan of the programme's candidates may exceed the result, as
        a share of the bound; None if there is no bound."""
        if self.bound == np.inf:
            return None
        possible_gain = self.bound - self.best_gain
        share = possible_gain / max(self.bound, 1.0)
        return round(max(0.0, share), 6)

    def _improved(
        self,
        best_solution: Solution | None,
        solutions: Iterable[Solution],
        settle: Callable[[Solution], Solution | None],
    ) -> Solution | None:
        for solution in map(settle, solutions):
            if solution is None:
                continue
            if best_solution is None or solution.better_than(best_solution):
                best_solution = solution
        return best_solution

    def worth_trying(self) -> list[int]:
        """Return the candidates whose removal alone would bring a gain, by price per disruption."""
        gainful: list[int] = np.flatnonzero(self.saves > 0).tolist()
        return sorted(gainful, key=lambda at: (-self.price[at] / self.disruption[at], at))

    def greedy(self) -> Iterator[Solution]:
        """Yield what greedy choice finds: removals, then replacements beside them."""
        unsteered = [at for at in self.worth_trying() if at not in self.steered]
        removed = self._removals(unsteered)
        none = self.no_purchase()
        removals = self.verified(removed, none)
        starts = [removals]
        is_complete = removals is not None and len(removals.gone) == len(removed)
        if not is_complete and len(self.candidates) <= MOST_CANDIDATES:
            starts.append(self.verified(self._careful_removals(unsteered), none))
        sets = [start.gone if start is not None else () for start in starts]
        for gone in dict.fromkeys(sets):
            yield from self._with_replacements(gone)

    def _with_replacements(self, start: tuple[int, ...]) -> Iterator[Solution]:
        """Yield these removals, and what greedy choice replaces beside them."""
        gone = list(start)
        bought = self.no_purchase()
        bundles: list[tuple[tuple[int, ...], int]] = []
        removals = self.verified(gone, bought) if start else None
        if removals is not None:
            yield removals
        for most in (len(self.candidates), 1):
            for members, offer in self._bundles(set(gone), bought, most):
                # Rules between pods and the orders of the scheduler may leave less
                # of a bundle, or nothing.
                alone = self.verified(members, self.one(offer))
                if alone is not None and self.saves_enough(alone.gone, self.one(offer)):
                    bundles.append((alone.gone, offer))
                    gone += alone.gone
                    bought[offer] += 1
        if not bundles:
            return
        replaced = self.verified(gone, bought) or self._as_many_as_pass(start, bundles)
        if replaced is not None:
            yield replaced

    def _as_many_as_pass(
        self, start: Sequence[int], bundles: Sequence[tuple[tuple[int, ...], int]]
    ) -> Solution | None:
        """Return these removals with the bundles of which each passes the whole trial beside those
        before it. Bundles that pass alone may fail together, because the scheduler may put pods of
        one on the new node of another."""
        gone = tuple(start)
        bought = self.no_purchase()
        best: Solution | None = None
        for members, offer in bundles[:MOST_CANDIDATES]:
            next_bought = bought + self.one(offer)
            solution = self.verified([*gone, *members], next_bought)
            if solution is not None and len(solution.gone) == len(gone) + len(members):
                gone = solution.gone
                bought = next_bought
                best = solution
        return best

    def _careful_removals(self, order: Sequence[int]) -> list[int]:
        """Return candidates that go one after the other, each only if all that go
        then pass the whole trial."""
        none = self.no_purchase()
        gone: list[int] = []
        for at in order:
            more = [*gone, at]
            if not self.limits.allow(more, none):
                continue
            result = self.trial.run(sorted(more), none)
            if isinstance(result, Places):
                gone = more
        return gone

    def leaving(self, rows: Collection[int]) -> Solution | None:
        """Return the candidates that go into room on nodes that stay, in the emptiest of them
        first; None if none can. rows: of all nodes that leave. That the pods find room in
        other orders, too, is checked on all nodes."""
        simulated = self.simulated
        open_rows = np.flatnonzero(simulated.open[: simulated.real])
        staying = np.setdiff1d(open_rows, integers(list(rows)))
        gone = self._removals(self.worth_trying(), EmptiestFirst(simulated, staying))
        self.trial.orders = EMPTIEST
        return self.verified(gone, self.no_purchase())

    def _removals(
        self, order: Sequence[int], destinations: PodDestinations | None = None
    ) -> list[int]:
        """Return the candidates that go one after the other into room that exists, within all
        limits. destinations: None: the fullest nodes that stay first."""
        simulated = self.simulated
        candidates = [self.candidates[at] for at in order]
        rows = [simulated.table.index[candidate.node.name] for candidate in candidates]
        shares = [(-candidate.share, row) for candidate, row in zip(candidates, rows, strict=True)]
        going = integers([row for _, row in sorted(shares)])
        open_rows = np.flatnonzero(simulated.open[: simulated.real])
        staying: Ints = np.setdiff1d(open_rows, going)
        pdbs = self.removal_limits.pdbs
        trial = RemovalSimulation(simulated, pdbs, staying, going, 1, destinations)
        none = self.no_purchase()
        gone: list[int] = []
        used: Ints = np.zeros(len(self.limits.room), dtype=np.int64)
        for at, candidate in zip(order, candidates, strict=True):
            if self.over():
                break
            if self.limits.refusal(used, at, none) is not None:
                continue
            result = trial.attempt(candidate)
            if isinstance(result, SimulatedRemoval):
                gone.append(at)
                used = used + self.limits.going[:, at]
            elif result.headroom:
                self.shortages[at] = Shortage(0, {}, result.headroom)
        trial.undo()
        return gone

    def _bundles(self, without: set[int], bought: Ints, most: int) -> list[tuple[list[int], int]]:
        """Return (candidates, offer) of new nodes that each take all pods of some candidates and
        bring a gain, within all limits beside what goes already, the greatest gain first. without:
        candidates that go already. most: candidates for each new node."""
        bundles: list[tuple[list[int], int]] = []
        order = integers([at for at in self.worth_trying() if at not in without])
        if not len(self.offers) or not len(order):
            return bundles
        _, pods, need = self._classes(order.tolist())
        load = pods @ need
        suited = self._suited(order.tolist())
        gone = sorted(without)
        used = self.limits.used(gone, bought)
        bought = bought.copy()
        is_free: Bools = np.ones(len(order), dtype=np.bool_)
        while True:
            options: list[list[int]] = []
            gains: list[int] = []
            for offer, cost in enumerate(self.cost.tolist()):
                usable = suited[:, offer] & is_free
                members = self._bundle(order, load, usable, offer, used, most)
                options.append(members)
                gains.append(int(self.saves[order[members]].sum()) - cost)
            best = gains.index(max(gains))
            members = options[best]
            names = order[members].tolist()
            next_gone = [*gone, *names]
            next_bought = bought + self.one(best)
            if gains[best] <= 0 or not self.is_permitted(next_gone, next_bought):
                return bundles
            if not self.saves_enough(names, self.one(best)):
                return bundles
            bundles.append((names, best))
            used = used + self.limits.used(names, self.one(best))
            is_free[members] = False
            gone = next_gone
            bought = next_bought

    def _bundle(
        self, order: Ints, load: Ints, usable: Bools, offer: int, used: Ints, most: int
    ) -> list[int]:
        """Return the positions in `order` of at most so many candidates whose pods fill one
        new node best: those that save most for the room that their pods take; a single one
        is that which saves most."""
        room = np.maximum(self.market.room(load.shape[1])[offer], 0)
        used = used + self.limits.buying[:, offer]
        is_exceeded = used > self.limits.room
        gives_nothing_back = (self.limits.going >= 0).all(axis=1)
        if (is_exceeded & gives_nothing_back).any():
            return []
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(load > 0, load / room, 0.0)
        share = np.nan_to_num(shares, nan=0.0, posinf=np.inf).max(axis=1)
        rows = np.flatnonzero(usable & (share <= 1))
        room_share = np.maximum(share[rows], 1e-9) if most > 1 else 1.0
        value = self.saves[order[rows]] / room_share
        best_first = rows[np.argsort(-value, kind="stable")]
        members: list[int] = []
        for row in best_first.tolist():
            if len(members) == most:
                break
            if not (load[row] <= room).all():
                continue
            used_with_row = used + self.limits.going[:, order[row]]
            if (used_with_row <= self.limits.room).all():
                members.append(row)
                room = room - load[row]
                used = used_with_row
        return members

    def one(self, offer: int) -> Ints:
        """Return the purchase of one node of an offer."""
        bought = self.no_purchase()
        bought[offer] = 1
        return bought

    def no_purchase(self) -> Ints:
        """Return the purchase of no node."""
        bought: Ints = np.zeros(len(self.offers), dtype=np.int64)
        return bought

    def holds(self, order: Sequence[int]) -> Bools:
        """Return which offers' nodes hold all pods of a candidate, by resources and
        constant predicates, [N,G]."""
        _, pods, need = self._classes(order)
        load = pods @ need
        room = self.market.room(need.shape[1])
        has_room = (load[:, None, :] <= room[None, :, :]).all(axis=2)
        holds: Bools = has_room & self._suited(order)
        return holds

    def _suited(self, order: Sequence[int]) -> Bools:
        """Return which offers take every pod of a candidate by constant predicates and may
        be bought for it, [N,G]."""
        classes, pods, _ = self._classes(order)
        fits: Bools = np.array([self.market.fits(cls) for cls in classes], dtype=np.bool_)
        fits = fits.reshape(len(classes), len(self.offers))
        has_pods = (pods > 0).astype(np.int64)
        unfit_classes = has_pods @ (~fits).astype(np.int64)
        barred = self.barred[:, list(order)].T
        suited: Bools = (unfit_classes == 0) & ~barred
        return suited

    def _classes(self, order: Sequence[int]) -> tuple[list[int], Ints, Ints]:
        """Return the classes of the pods that move, pods [N,K] and need [K,R]."""
        moving = [self.trial.moving[at] for at in order]
        classes = sorted({cls for counts in moving for cls in counts})
        at_class = {cls: at for at, cls in enumerate(classes)}
        pods: Ints = np.zeros((len(order), len(classes)), dtype=np.int64)
        for row, counts in enumerate(moving):
            for cls, count in counts.items():
                pods[row, at_class[cls]] = count
        columns = self.simulated.table.columns
        need = integers([columns.need(cls) for cls in classes])
        return classes, pods, need.reshape(-1, len(columns.names))

    def _programme(self) -> Iterator[Solution]:
        searched = np.flatnonzero(self.saves > 0).tolist()
        if self.steered or not 0 < len(searched) <= MOST_CANDIDATES:
            return
        problem = self._problem(searched)
        programme = Programme(problem, rounds=self.rounds, branches=self.branches, stop=self.over)
        best_gain = 0
        for number in range(self.rounds):
            # The first proposal keeps room for other orders of the scheduler, the next ones
            # are as tight as possible.
            is_first = number == 0
            proposal = programme.propose(robust=is_first)
            if proposal is None or proposal.gain <= best_gain or self.over():
                if is_first:
                    continue
                break
            gone = [searched[at] for at in proposal.gone]
            solution = self.verified(gone, integers(proposal.bought))
            if solution is not None:
                best_gain = max(best_gain, solution.gain)
                yield solution
            if solution is None or len(solution.gone) < len(gone):
                programme.cut(proposal)
            elif not is_first or best_gain + 1 > programme.bound:
                break
        if programme.bound < np.inf:
            self.bound = programme.bound

    def _problem(self, order: Sequence[int]) -> PackingProblem:
        simulated = self.simulated
        classes, pods, need = self._classes(order)
        spare = {item.cls: item.pods for item in simulated.spare}
        columns = simulated.table.columns
        for cls in sorted(spare.keys() - set(classes)):
            classes.append(cls)
            pods = np.concatenate([pods, np.zeros((len(order), 1), dtype=np.int64)], axis=1)
            need = np.concatenate([need, columns.need(cls)[None, :]])
        rows = [simulated.table.index[self.candidates[at].node.name] for at in order]
        is_open = simulated.open[: simulated.real]
        staying = np.setdiff1d(np.flatnonzero(is_open), rows)
        places = [*rows, *staying.tolist()]
        fits = [simulated.static(cls)[places] & is_open[places] for cls in classes]
        group_fits = [self.market.fits(cls) for cls in classes]
        return PackingProblem(
            need=need,
            pending=integers([spare.get(cls, 0) for cls in classes]),
            saves=self.saves[order],
            pods=pods,
            free=np.maximum(simulated.table.free[places], 0),
            fits=np.array(fits, dtype=np.bool_).T.reshape(len(places), len(classes)),
            price=self.cost,
            room=self.market.room(len(columns.names)),
            group_fits=np.array(group_fits, dtype=np.bool_).T.reshape(
                len(self.offers), len(classes)
            ),
            most=integers([offer.most for offer in self.offers]),
            going=self.limits.going[:, order],
            buying=self.limits.buying,
            limit=self.limits.room,
            same_shape=self.barred[:, order],
        )

    # --- the value of a set, and its verification

    def need_of(self, pods: Mapping[int, int]) -> Ints:
        """Return what these pods request together. pods: class -> number."""
        columns = self.simulated.table.columns
        need: Ints = np.zeros(len(columns.names), dtype=np.int64)
        for cls, count in pods.items():
            need = need + columns.need(cls) * count
        return need

    def gain(self, gone: Sequence[int], bought: Ints) -> int:
        """Return what a set brings per hour."""
        return int(self.saves[list(gone)].sum()) - int(bought @ self.cost)

    def is_permitted(self, gone: Sequence[int], bought: Ints) -> bool:
        """Return whether nothing is bought that a node that goes bars."""
        is_barred = self.barred[:, list(gone)].any(axis=1)
        return not bool((is_barred & (bought > 0)).any())

    def saves_enough(self, gone: Sequence[int], bought: Ints) -> bool:
        """Return whether a replacement saves the share minSavings of what goes."""
        price = int(self.price[list(gone)].sum())
        cost = self.paid(bought)
        return not cost or not self._is_too_small(price, cost)

    def paid(self, bought: Ints) -> int:
        """Return the price of what is bought, without what is paid once."""
        return sum(
            offer.cost * count for offer, count in zip(self.offers, bought.tolist(), strict=True)
        )

    def _is_too_small(self, price: int, cost: int) -> bool:
        needed_savings = self.settings.min_savings * price
        return price - cost < needed_savings - 1e-6

    def verified(self, gone: Sequence[int], bought: Ints) -> Solution | None:
        """Return the set, without the nodes whose pods lack a place, if it brings
        a gain within all limits."""
        gone = sorted(gone)
        key = tuple(gone), tuple(bought.tolist())
        if key not in self._verified:
            self._verified[key] = self._repaired(gone, bought)
        return self._verified[key]

    def _repaired(self, gone: list[int], bought: Ints) -> Solution | None:
        first = 0
        for _ in range(_REPAIRS):
            if not gone:
                return None
            if not self.limits.allow(gone, bought) or not self.is_permitted(gone, bought):
                return None
            result = self.trial.run(gone, bought, first)
            if isinstance(result, Places):
                gain = self.gain(gone, bought)
                if gain <= 0:
                    return None
                disruption = int(self.disruption[gone].sum())
                return Solution(tuple(gone), tuple(bought.tolist()), gain, disruption, result)
            first = result.failing
            gone = self._without_shortage(gone, result)
        return None

    def _without_shortage(self, gone: list[int], shortage: Shortage) -> list[int]:
        """Return the nodes that still go: the least valuable ones with pods of the failing classes
        stay, as many as hold what found no place."""
        lacking = self.need_of(shortage.pods)
        order = sorted(gone, key=lambda at: (int(self.saves[at]), -at))
        moving = self.trial.moving
        holding = [at for at in order if any(cls in moving[at] for cls in shortage.pods)]
        table = self.simulated.table
        staying: set[int] = set()
        for at in holding or order:
            staying.add(at)
            self.shortages[at] = shortage
            row = table.index[self.candidates[at].node.name]
            free = np.maximum(table.free[row], 0)
            lacking = lacking - self.need_of(moving[at]) - free
            if (lacking <= 0).all():
                break
        return [at for at in gone if at not in staying]

    def judged_set(self, purchases: Mapping[str, int], cost: int | None) -> Solution | Reason:
        """Return all candidates together as a set, as the present snapshot allows it,
        or why it is not done. purchases: group -> nodes that are bought; cost: of
        purchases that exist already."""
        gone = list(range(len(self.candidates)))
        bought = integers([purchases.get(offer.group, 0) for offer in self.offers])
        unoffered = purchases.keys() - {offer.group for offer in self.offers}
        if unoffered:
            return self._why_unoffered(min(unoffered))
        used: Ints = np.zeros(len(self.limits.room), dtype=np.int64)
        for at in gone:
            bought_with_node = bought if at == gone[-1] else self.no_purchase()
            refusal = self.limits.refusal(used, at, bought_with_node)
            if refusal is not None:
                return refusal
            used = used + self.limits.going[:, at]
        result = self.trial.run(gone, bought)
        if isinstance(result, Shortage):
            return self.shortage_of(gone, result)
        paid = int(bought @ self.cost) if cost is None else cost
        price = int(self.price[gone].sum())
        saves = price - paid
        gain = int(self.saves[gone].sum()) - paid
        disruption = int(self.disruption[gone].sum())
        names = [candidate.node.name for candidate in self.candidates]
        if paid and self._is_too_small(price, paid):
            share = round(saves / price, 6)
            return Reason.of(
                ReasonCode.SAVINGS_TOO_SMALL, saves=share, needs=self.settings.min_savings
            )
        if gain < 0:
            return self.costs.not_worth(saves, names, CONTINUE)
        return Solution(tuple(gone), tuple(bought.tolist()), gain, disruption, result)

    def _why_unoffered(self, group: str) -> Reason:
        blocked = self.market.blocked.get(group)
        if blocked is None:
            return Reason.of(ReasonCode.NO_PRICE, group=group, detail="")
        _, reason = blocked
        return reason

    def shortage_of(self, gone: Sequence[int], shortage: Shortage) -> Reason:
        """Return why a set finds no places, with the first pod."""
        if shortage.headroom:
            return Reason.of(ReasonCode.HEADROOM, headroom=shortage.headroom)
        pods = (pod for at in gone for pod in self.candidates[at].pods if pod.cls in shortage.pods)
        pod = next(pods).key
        if shortage.failing:
            return Reason.of(ReasonCode.NOT_ROBUST, pod=pod, order=ORDERS[shortage.failing].text)
        what = "no node that stays or is bought takes it"
        return Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod=pod, what=what)
