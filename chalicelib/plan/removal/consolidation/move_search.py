"""The search for the set of moves with the greatest gain.

    greedy removals ► greedy replacements ► the programme's proposals, each verified ►
    the best of all, or nothing

Every set is verified in the same way: all limits, and the trial in four orders. A set whose pods
lack a place gives up its least valuable nodes until the rest passes. The result is therefore never
worse than greedy choice or than doing nothing, whatever the programme proposes. Limits of the
search are counts, so the same input gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.policy import Consolidation, Effort
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.candidates import Candidate
from chalicelib.plan.removal.consolidation.costs import CONTINUE, Costs
from chalicelib.plan.removal.consolidation.move_limits import Limits
from chalicelib.plan.removal.consolidation.programme import Programme
from chalicelib.plan.removal.consolidation.purchases import Market, NodeOffer, form_of
from chalicelib.plan.removal.consolidation.relaxation import ConsolidationProblem
from chalicelib.plan.removal.consolidation.trial import ORDERS, Places, Shortage, Trial
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.simulate import RemovalSimulation, SimulatedRemoval
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.tables import Bools, Ints

EFFORTS: Mapping[Effort, tuple[int, int]] = {
    Effort.LOW: (3, 500),
    Effort.NORMAL: (10, 2_000),
    Effort.HIGH: (30, 20_000),
}
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
    wanted; they need less of a score."""

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
    ) -> None:
        self.state, self.simulated, self.removal_limits, self.costs = (
            state,
            simulated,
            removal_limits,
            costs,
        )
        self.candidates, self.market, self.limits, self.over = candidates, market, limits, over
        self.settings: Consolidation = state.policy.consolidation
        names = [candidate.node.name for candidate in candidates]
        self.price: Ints = np.array([costs.nodes[name].price for name in names], dtype=np.int64)
        self.disruption: Ints = np.array(
            [costs.nodes[name].disruption for name in names], dtype=np.int64
        )
        self.disruption_price: Ints = np.array(
            [costs.disruption_price(name, wanted=name in wanted) for name in names], dtype=np.int64
        )
        idle: Ints = np.array([costs.nodes[name].idle for name in names], dtype=np.int64)
        self.saves = self.price - self.disruption_price - idle
        self.offers = market.offers
        self.buys = bool(market.offers or market.blocked)
        self.cost: Ints = np.array([offer.price for offer in self.offers], dtype=np.int64)
        forms = [form_of(candidate.node, state.groups[candidate.group]) for candidate in candidates]
        self.barred: Bools = np.array(
            [
                [self.is_barred(offer, at, form) for at, form in enumerate(forms)]
                for offer in self.offers
            ],
            dtype=np.bool_,
        ).reshape(len(self.offers), len(candidates))
        self.forms = forms
        self.trial = Trial(simulated, candidates, self.offers)
        self._verified: dict[tuple[tuple[int, ...], tuple[int, ...]], Solution | None] = {}
        self.shortages: dict[int, Shortage] = {}  # candidate -> why the last trial gave it up
        self.bound, self.best_gain = np.inf, 0
        self.effort = EFFORTS[self.settings.effort]
        self.proven = True

    def is_barred(self, offer: NodeOffer, candidate: int, form: tuple[object, ...]) -> bool:
        """Return whether an offer may not be bought if the candidate goes: it has the same form, or
        both are spot and too few spot groups are cheaper."""
        cost = self.costs.nodes[self.candidates[candidate].node.name]
        if offer.form == form:
            return True
        if not (offer.form[-1] and form[-1]):
            return False
        cheaper = sum(other.form[-1] and other.price < cost.price for other in self.offers)
        return not self.settings.spot_to_spot or cheaper < self.settings.min_cheaper_groups

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
        return round(max(0.0, (self.bound - self.best_gain) / max(self.bound, 1.0)), 6)

    def _improved(
        self,
        best_solution: Solution | None,
        solutions: Iterable[Solution],
        settle: Callable[[Solution], Solution | None],
    ) -> Solution | None:
        for solution in map(settle, solutions):
            if solution is not None and (
                best_solution is None or solution.better_than(best_solution)
            ):
                best_solution = solution
        return best_solution

    def worth_trying(self) -> list[int]:
        """Return the candidates whose removal alone would bring a gain, by price per disruption."""
        return sorted(
            np.flatnonzero(self.saves > 0).tolist(),
            key=lambda at: (-self.price[at] / self.disruption[at], at),
        )

    def greedy(self) -> Iterator[Solution]:
        """Yield what greedy choice finds: removals, then replacements beside them."""
        removed = self._removals(self.worth_trying())
        none: Ints = np.zeros(len(self.offers), dtype=np.int64)
        starts = [self.verified(removed, none)]
        if len(self.candidates) <= MOST_CANDIDATES and (
            starts[0] is None or len(starts[0].gone) < len(removed)
        ):
            starts.append(self.verified(self._careful_removals(), none))
        for start in dict.fromkeys(() if start is None else start.gone for start in starts):
            yield from self._with_replacements(start)

    def _with_replacements(self, start: tuple[int, ...]) -> Iterator[Solution]:
        """Yield these removals, and what greedy choice replaces beside them."""
        gone, bought = list(start), np.zeros(len(self.offers), dtype=np.int64)
        bundles: list[tuple[tuple[int, ...], int]] = []
        if start and (removals := self.verified(gone, bought)) is not None:
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
        if (
            bundles
            and (replaced := self.verified(gone, bought) or self._as_many_as_pass(start, bundles))
            is not None
        ):
            yield replaced

    def _as_many_as_pass(
        self, start: Sequence[int], bundles: Sequence[tuple[tuple[int, ...], int]]
    ) -> Solution | None:
        """Return these removals with the bundles of which each passes the whole trial beside those
        before it. Bundles that pass alone may fail together, because the scheduler may put pods of
        one on the new node of another."""
        gone = list(start)
        bought: Ints = np.zeros(len(self.offers), dtype=np.int64)
        passed: Solution | None = None
        for members, offer in bundles[:MOST_CANDIDATES]:
            more = self.verified([*gone, *members], bought + self.one(offer))
            if more is not None and len(more.gone) == len(gone) + len(members):
                gone, bought, passed = list(more.gone), bought + self.one(offer), more
        return passed

    def _careful_removals(self) -> list[int]:
        """Return candidates that go one after the other, each only if all that go
        then pass the whole trial."""
        none: Ints = np.zeros(len(self.offers), dtype=np.int64)
        gone: list[int] = []
        for at in self.worth_trying():
            more = [*gone, at]
            if self.limits.allow(more, none) and isinstance(
                self.trial.run(sorted(more), none), Places
            ):
                gone = more
        return gone

    def _removals(self, order: Sequence[int]) -> list[int]:
        """Return the candidates that go one after the other into room that
        exists, within all limits."""
        simulated, candidates = self.simulated, [self.candidates[at] for at in order]
        rows = [simulated.table.index[candidate.node.name] for candidate in candidates]
        shares = [(-candidate.share, row) for candidate, row in zip(candidates, rows, strict=True)]
        going: Ints = np.array([row for _, row in sorted(shares)], dtype=np.int64)
        staying: Ints = np.setdiff1d(np.flatnonzero(simulated.open[: simulated.real]), going)
        trial = RemovalSimulation(simulated, self.removal_limits.pdbs, staying, going, 1)
        none: Ints = np.zeros(len(self.offers), dtype=np.int64)
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
        order = np.array([at for at in self.worth_trying() if at not in without], dtype=np.int64)
        if not len(self.offers) or not len(order):
            return bundles
        _, pods, need = self._classes(order.tolist())
        load, suited = pods @ need, self._suited(order.tolist())
        used = self.limits.used(sorted(without), bought)
        bought, gone = bought.copy(), sorted(without)
        is_free: Bools = np.ones(len(order), dtype=np.bool_)
        while True:
            options = [
                self._bundle(order, load, suited[:, offer] & is_free, offer, used, most)
                for offer in range(len(self.offers))
            ]
            gains = [
                int(self.saves[order[members]].sum()) - int(self.cost[at])
                for at, members in enumerate(options)
            ]
            best = max(range(len(options)), key=lambda at: (gains[at], -at))
            members = options[best]
            more = bought + self.one(best)
            names = order[members].tolist()
            if gains[best] <= 0 or not self.is_permitted([*gone, *names], more):
                return bundles
            if not self.saves_enough(names, self.one(best)):
                return bundles
            bundles.append((names, best))
            used = used + self.limits.going[:, names].sum(axis=1) + self.limits.buying[:, best]
            is_free[members] = False
            gone, bought = [*gone, *names], more

    def _bundle(
        self, order: Ints, load: Ints, usable: Bools, offer: int, used: Ints, most: int
    ) -> list[int]:
        """Return the positions in `order` of at most so many candidates whose pods fill one
        new node best: those that save most for the room that their pods take; a single one
        is that which saves most."""
        room = np.maximum(self.market.room(load.shape[1])[offer], 0)
        used = used + self.limits.buying[:, offer]
        if ((used > self.limits.room) & (self.limits.going >= 0).all(axis=1)).any():
            return []
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.nan_to_num(np.where(load > 0, load / room, 0.0), nan=0.0, posinf=np.inf).max(
                axis=1
            )
        rows = np.flatnonzero(usable & (share <= 1))
        value = self.saves[order[rows]] / (np.maximum(share[rows], 1e-9) if most > 1 else 1.0)
        members: list[int] = []
        for row in rows[np.argsort(-value, kind="stable")].tolist():
            going = self.limits.going[:, order[row]]
            if (load[row] <= room).all() and (used + going <= self.limits.room).all():
                members.append(row)
                room = room - load[row]
                used = used + going
            if len(members) == most:
                break
        return members

    def one(self, offer: int) -> Ints:
        """Return the purchase of one node of an offer."""
        bought: Ints = np.zeros(len(self.offers), dtype=np.int64)
        bought[offer] = 1
        return bought

    def holds(self, order: Sequence[int]) -> Bools:
        """Return which offers' nodes hold all pods of a candidate, by resources and
        constant predicates, [N,G]."""
        _, pods, need = self._classes(order)
        enough = ((pods @ need)[:, None, :] <= self.market.room(need.shape[1])[None, :, :]).all(
            axis=2
        )
        holds: Bools = enough & self._suited(order)
        return holds

    def _suited(self, order: Sequence[int]) -> Bools:
        """Return which offers take every pod of a candidate by constant predicates and may
        be bought for it, [N,G]."""
        classes, pods, _ = self._classes(order)
        fits: Bools = np.array([self.market.fits(cls) for cls in classes], dtype=np.bool_)
        fits = fits.reshape(len(classes), len(self.offers))
        unsuited = ((pods > 0).astype(np.int64) @ (~fits).astype(np.int64)).astype(np.bool_)
        suited: Bools = ~unsuited & ~self.barred[:, list(order)].T
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
        need: Ints = np.array([columns.need(cls) for cls in classes], dtype=np.int64).reshape(
            -1, len(columns.names)
        )
        return classes, pods, need

    def _programme(self) -> Iterator[Solution]:
        rounds, branches = self.effort
        searched = np.flatnonzero(self.saves > 0).tolist()
        if not 0 < len(searched) <= MOST_CANDIDATES:
            return
        programme = Programme(
            self._problem(searched), rounds=rounds, branches=branches, stop=self.over
        )
        best = 0
        for number in range(rounds):
            # The first proposal keeps room for other orders of the scheduler, the next ones
            # are as tight as possible.
            proposal = programme.propose(robust=number == 0)
            self.proven = programme.proven
            if proposal is not None and proposal.gain > best and not self.over():
                gone = [searched[at] for at in proposal.gone]
                solution = self.verified(gone, np.array(proposal.bought, dtype=np.int64))
                if solution is not None:
                    best = max(best, solution.gain)
                    yield solution
                if solution is None or len(solution.gone) < len(gone):
                    programme.cut(proposal)
                elif number or best + 1 > programme.bound:
                    break
            elif number:
                break
        if programme.bound < np.inf:
            self.bound = programme.bound

    def _problem(self, order: Sequence[int]) -> ConsolidationProblem:
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
        fits = np.array(
            [simulated.static(cls)[places] & is_open[places] for cls in classes], dtype=np.bool_
        ).T
        return ConsolidationProblem(
            need=need,
            extra=np.array([spare.get(cls, 0) for cls in classes], dtype=np.int64),
            saves=self.saves[order],
            pods=pods,
            free=np.maximum(simulated.table.free[places], 0),
            fits=fits.reshape(len(places), len(classes)),
            price=self.cost,
            room=self.market.room(len(columns.names)),
            group_fits=np.array(
                [self.market.fits(cls) for cls in classes], dtype=np.bool_
            ).T.reshape(len(self.offers), len(classes)),
            most=np.array([offer.most for offer in self.offers], dtype=np.int64),
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
        return not bool((self.barred[:, list(gone)].any(axis=1) & (bought > 0)).any())

    def saves_enough(self, gone: Sequence[int], bought: Ints) -> bool:
        """Return whether a replacement saves the share minSavings of what goes."""
        price = int(self.price[list(gone)].sum())
        cost = int(
            sum(
                offer.cost * count
                for offer, count in zip(self.offers, bought.tolist(), strict=True)
            )
        )
        return not cost or (price - cost) >= self.settings.min_savings * price - 1e-6

    def verified(self, gone: Sequence[int], bought: Ints) -> Solution | None:
        """Return the set, without the nodes whose pods lack a place, if it brings
        a gain within all limits."""
        gone = sorted(gone)
        key = tuple(gone), tuple(bought.tolist())
        if key in self._verified:
            return self._verified[key]
        solution = self._verified[key] = self._repaired(gone, bought)
        return solution

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
        holding = [
            at
            for at in order
            if not shortage.pods or any(c in self.trial.moving[at] for c in shortage.pods)
        ]
        staying: set[int] = set()
        for at in holding or order:
            staying.add(at)
            self.shortages[at] = shortage
            row = self.simulated.table.index[self.candidates[at].node.name]
            own = self.need_of(self.trial.moving[at])
            lacking = lacking - own - np.maximum(self.simulated.table.free[row], 0)
            if (lacking <= 0).all():
                break
        return [at for at in gone if at not in staying]

    def judged_set(self, purchases: Mapping[str, int], cost: int | None) -> Solution | Reason:
        """Return all candidates together as a set, as the present snapshot allows it,
        or why it is not done. purchases: group -> nodes that are bought; cost: of
        purchases that exist already."""
        gone = list(range(len(self.candidates)))
        bought: Ints = np.array(
            [purchases.get(offer.group, 0) for offer in self.offers], dtype=np.int64
        )
        for group in sorted(purchases.keys() - {offer.group for offer in self.offers}):
            blocked = self.market.blocked.get(group)
            return (
                blocked[1]
                if blocked is not None
                else Reason.of(ReasonCode.NO_PRICE, group=group, detail="")
            )
        used: Ints = np.zeros(len(self.limits.room), dtype=np.int64)
        for at in gone:
            refusal = self.limits.refusal(
                used, at, bought if at == gone[-1] else np.zeros_like(bought)
            )
            if refusal is not None:
                return refusal
            used = used + self.limits.going[:, at]
        result = self.trial.run(gone, bought)
        if isinstance(result, Shortage):
            return self.shortage_of(gone, result)
        paid = int(bought @ self.cost) if cost is None else cost
        price = int(self.price[gone].sum())
        gain = int(self.saves[gone].sum()) - paid
        names = [candidate.node.name for candidate in self.candidates]
        score, disruption = self.costs.score(price - paid, names), int(self.disruption[gone].sum())
        if paid and price - paid < self.settings.min_savings * price - 1e-6:
            saves = round((price - paid) / price, 6)
            return Reason.of(
                ReasonCode.SAVINGS_TOO_SMALL, saves=saves, needs=self.settings.min_savings
            )
        if gain < 0:
            return Reason.of(
                ReasonCode.NOT_WORTH_DISRUPTION,
                saves=(price - paid) / MICRO,
                disruption=disruption / MICRO,
                score=round(score, 4),
                needs=round(float(CONTINUE) * self.costs.needed_score, 4),
            )
        return Solution(tuple(gone), tuple(bought.tolist()), gain, disruption, result)

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
