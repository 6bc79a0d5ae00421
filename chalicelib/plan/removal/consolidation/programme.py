"""The integer programme of consolidation, over numbers only: which nodes go, and which
are bought for their pods.

A proposal places every pod of the nodes that go, whole pods on whole nodes, within all linear
limits. Rules about other pods, host ports and claims are not in the numbers: the caller tries a
proposal on the simulated cluster, and `cut` excludes what fails there. See
docs/reference/consolidation.md "The programme".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from chalicelib.plan.packing.linear_programme import (
    EPSILON,
    EXISTING,
    NOWHERE,
    LinearRule,
    Model,
    Place,
    Solution,
)
from chalicelib.plan.packing.linear_solver import Trouble
from chalicelib.plan.packing.problem import Numbers, PackingProblem
from chalicelib.plan.packing.scheduler_orders import ORDERS, SchedulerOrder, emptiest_first
from chalicelib.plan.removal.consolidation.relaxation import Leaf, relax_problem
from chalicelib.plan.tables import Bools, Floats, Ints, first_fit

# an exact programme has at most so many columns per square root of branches; with more than a few
# columns it gets fewer branches, because each takes longer
_COLUMNS, _FEW = 6, 25
_COPIES = 12  # new nodes of a group in an exact programme
# rounds in which nodes are put back: the first ones count on their room, the second half puts back
# ever more than seems necessary
_REPAIRS, _PATIENT = 24, 3
_WORK = 400_000  # pairs of a node and a class that a round may look at
_OVERHEAD = 300  # nodes: what it costs to look at a class at all
_BLOCK, _TRIES = 8, 30  # candidates that are added at a time, and how often
# a new node that lacks less than this part of its price may be worth it in whole numbers
_NEAR = 10
_TENTH = 10  # of a set that failed, the least valuable tenth is given up at once


class Proposal(msgspec.Struct, frozen=True):
    """gone: candidates that go, ascending. bought [G]: new nodes. gain: saves of those
    that go less the purchases."""

    gone: tuple[int, ...]
    bought: tuple[int, ...]
    gain: int


class Programme:
    """Proposes sets of nodes that go, with purchases.

    bound: no plan has a larger gain, cuts or not; infinite without a solver. proven: the last
    proposal is the best under the cuts. Of plans of equal gain, an exact programme takes the one
    with the fewest nodes that go, then the fewest purchases, then the lowest sum of indexes; the
    search of a large problem prefers the same among its plans. The same problem and cuts give the
    same proposals, on any machine, unless `stop` ends the search.
    """

    def __init__(
        self, problem: PackingProblem, *, rounds: int, branches: int, stop: Callable[[], bool]
    ) -> None:
        """rounds: mixes of purchases that a search tries, fewer after cuts; branches: nodes of
        HiGHS's tree; stop: called between steps, ends the search when it returns true."""
        self._numbers = Numbers(problem)
        self._rounds, self._branches, self._stop = rounds, branches, stop
        self._cuts: list[Proposal] = []
        self._packer = _Packer(self._numbers)
        self._leaves: list[Leaf] | None = None
        self.bound, self.proven = math.inf, False
        try:
            self._leaves = relax_problem(self._numbers, 2 * rounds, stop)
        except Trouble:
            return
        bound = max([0.0, *(leaf.bound for leaf in self._leaves)])
        self.bound = float(math.floor(bound * (1 + 1e-9) + 1e-3))  # not its last digits

    def cut(self, proposal: Proposal) -> None:
        """Exclude what failed: no set that contains these nodes is proposed with
        at most these purchases."""
        self._cuts.append(proposal)

    def propose(self, *, robust: bool = False) -> Proposal | None:
        """Return the best proposal, None if none has a gain.

        robust: only proposals whose pods find places in four orders of a scheduler, largest or
        smallest first, into the fullest or the emptiest node. The exact programme is then not
        asked, which knows no order.
        """
        self.proven = False
        if self._leaves is None or self._stop():
            return None
        orders = _HARDEST_FIRST if robust else _TIGHTEST
        rounds = max(1, self._rounds // (1 + len(self._cuts)))
        search = _Search(
            self._numbers, self._packer, self._leaves, orders, self._cuts, rounds, self._stop
        )
        best = min(search.plans(), key=_rank, default=None)
        self.proven = self.bound < 1 or (best is not None and best.gain + 1 > self.bound)
        return best if robust or self._stop() else self._improved(best)

    def _improved(self, proposal: Proposal | None) -> Proposal | None:
        """Return the optimum of a small problem, or the best plan within the limit of branches."""
        exact = _ExactProgramme(
            self._numbers, self._leaves or (), self._cuts, self._branches, proposal
        )
        if exact.small:
            try:
                proposal, self.proven = exact.solve()
            except Trouble:
                return proposal
            if self.proven and not self._cuts:
                self.bound = float(proposal.gain if proposal else 0)
        return proposal


def _rank(proposal: Proposal) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Return the sort key: gain, then few nodes."""
    gone = proposal.gone
    return -proposal.gain, len(gone), sum(proposal.bought), sum(gone), gone


_HARDEST_FIRST = (*ORDERS[1:], ORDERS[0])
"""The scheduler's orders: what fails in one, fails soon."""
_TIGHTEST: tuple[None, ...] = (None,)
"""In place of an order of the scheduler: pods that few nodes may take come before larger ones, and
go where the free room has the proportions of their requests. No scheduler packs so well."""


class _Packer:
    """Places the pods of nodes that go, class by class. work: how many pairs of a node
    and a class it looked at."""

    def __init__(self, numbers: Numbers) -> None:
        problem = self._problem = numbers.problem
        rooms = np.concatenate([np.maximum(problem.free, 0), problem.room])
        wanted = np.einsum("k,kr->r", numbers.demand.astype(np.float64), problem.need)
        self._weights: Floats = wanted / np.maximum(rooms.mean(axis=0), 1) ** 2
        self._weights /= max(float(self._weights.max(initial=0.0)), 1e-300)
        self._sizes = np.einsum("kr,r->k", problem.need, self._weights)
        fits = np.concatenate([problem.fits, problem.group_fits])
        self._by_size = np.argsort(-self._sizes, kind="stable")
        self._by_choice = np.lexsort((-self._sizes, fits.mean(axis=0).round(1)))
        self.work = 0

    def values(self, pod: Floats) -> Floats:
        """Return values of a pod by class, from its dual values; none is 0."""
        sizes = self._sizes / max(float(self._sizes.max(initial=0.0)), 1e-300)
        values: Floats = pod + 1e-3 * max(float(pod.max(initial=0.0)), 1.0) * np.maximum(
            sizes, 1e-3
        )
        return values

    def unplaced(self, gone: Bools, bought: Ints, orders: Sequence[SchedulerOrder | None]) -> Ints:
        """Return the pods of each class that find no place in the first
        order in which not all do."""
        left: Ints = np.zeros(len(self._sizes), dtype=np.int64)
        for order in orders:
            left = self._unplaced(gone, bought, order)
            if left.any():
                break
        return left

    def _unplaced(self, gone: Bools, bought: Ints, order: SchedulerOrder | None) -> Ints:
        problem = self._problem
        stays = np.concatenate([~gone, np.ones(len(problem.free) - len(gone), dtype=np.bool_)])
        new = np.repeat(np.arange(len(bought)), bought)
        free = np.concatenate([np.maximum(problem.free[stays], 0), problem.room[new]])
        fits = np.concatenate([problem.fits[stays], problem.group_fits[new]])
        empty = np.einsum("nr,r->n", free, self._weights)
        left: Ints = problem.pending + problem.pods[gone].sum(axis=0)
        self.work += (len(free) + _OVERHEAD) * int((left > 0).sum())
        classes = self._by_choice
        if order is not None:
            classes = self._by_size if order.largest_first else self._by_size[::-1]
        for cls in classes[left[classes] > 0].tolist():
            count = int(left[cls])
            size = self._sizes[cls]
            rows, cap = self._room(free, fits[:, cls], cls, count)
            if order is not None and not order.fullest_first:
                pods = emptiest_first(empty[rows], np.full(len(rows), size), cap, count)
            else:
                ranks = np.argsort(empty[rows], kind="stable")
                if order is None:
                    ranks = np.lexsort((empty[rows], self._mismatch(free[rows], cls)))
                rows = rows[ranks]
                taken, pods = first_fit(cap[ranks], count)
                rows = rows[taken]
            free[rows] -= pods[:, None] * problem.need[cls]
            empty[rows] -= pods * size
            left[cls] -= int(pods.sum())
        return left

    def _room(self, free: Ints, fits: Bools, cls: int, count: int) -> tuple[Ints, Ints]:
        """Return the rows that take pods of a class, and how many each takes."""
        rows = np.flatnonzero(fits)
        cap: Ints = np.full(len(rows), count, dtype=np.int64)
        for resource in np.flatnonzero(self._problem.need[cls]).tolist():
            np.minimum(cap, free[rows, resource] // self._problem.need[cls, resource], out=cap)
        return rows[cap > 0], cap[cap > 0]

    def _mismatch(self, free: Ints, cls: int) -> Floats:
        """Return how far the proportions of free room are from those of a
        pod's requests, in tenths."""
        room, pod = free * self._weights, self._problem.need[cls] * self._weights
        parts = room / np.maximum(room.sum(axis=1, keepdims=True), 1e-300) - pod / max(
            float(pod.sum()), 1e-300
        )
        distance: Floats = np.abs(parts).sum(axis=1).round(1)
        return distance


class _Search:
    """Rounds leaves of the relaxation: nodes are put back until all pods have
    places, then others are added."""

    def __init__(
        self,
        numbers: Numbers,
        packer: _Packer,
        leaves: Sequence[Leaf],
        orders: Sequence[SchedulerOrder | None],
        cuts: Sequence[Proposal],
        rounds: int,
        stop: Callable[[], bool],
    ) -> None:
        self._numbers, self._packer, self._leaves, self._orders = numbers, packer, leaves, orders
        self._cuts, self._rounds, self._stop = cuts, rounds, stop
        self._most_work = packer.work + rounds * _WORK

    def _over(self) -> bool:
        return self._packer.work >= self._most_work or self._stop()

    def plans(self) -> Iterator[Proposal]:
        """Yield plans with a gain, each better than the one before."""
        best = 0
        for leaf in self._leaves:
            if leaf.bound <= best or self._rounds <= 0 or self._over():
                continue
            for gone, bought in self._mixes(leaf):
                gain = self._numbers.gain(gone, bought)
                if gain > best:
                    best = gain
                    yield Proposal(
                        tuple(np.flatnonzero(gone).tolist()), tuple(bought.tolist()), gain
                    )

    def _mixes(self, leaf: Leaf) -> Iterator[tuple[Bools, Ints]]:
        """Yield the plans of a leaf: its purchases rounded up and down, then one
        more or fewer of a group."""
        solution = leaf.solution
        gone: Bools = leaf.may_go & (solution.gone > 1 - EPSILON)
        tried: set[bytes] = set()
        best: tuple[int, Bools, Ints] | None = None
        near = np.flatnonzero(leaf.may_buy & (leaf.profit * _NEAR > -self._numbers.problem.price))
        steps = [
            np.eye(len(leaf.may_buy), dtype=np.int64)[group] * sign
            for group in near.tolist()
            for sign in (1, -1)
        ]
        queue = [np.ceil(solution.bought - EPSILON), np.floor(solution.bought + EPSILON)]
        while queue and self._rounds > 0 and not self._over():
            bought = queue.pop(0).astype(np.int64)
            if (
                bought.tobytes() in tried
                or (bought < 0).any()
                or (bought > self._numbers.most).any()
            ):
                continue
            tried.add(bought.tobytes())
            self._rounds -= 1
            plan = self._plan(leaf, gone if best is None else best[1] | gone, bought)
            if plan is None:
                continue
            gain = self._numbers.gain(*plan)
            yield plan
            if best is None or gain > best[0]:
                best = (gain, *plan)
                queue += [plan[1] + step for step in steps]

    def _plan(self, leaf: Leaf, gone: Bools, bought: Ints) -> tuple[Bools, Ints] | None:
        """Return nodes that go with these purchases, None if the purchases obey no limit."""
        may_go = leaf.may_go & ~self._numbers.problem.same_shape[bought > 0].any(axis=0)
        for cut in self._cuts:
            if (bought <= np.array(cut.bought, dtype=np.int64)).all():
                worst = sorted(cut.gone, key=lambda node: leaf.worth[node])[
                    : math.ceil(len(cut.gone) / _TENTH)
                ]
                may_go[worst] = False
        repaired = self._repaired(leaf, gone & may_go, bought)
        return (
            None if repaired is None else (self._extended(leaf, repaired, may_go, bought), bought)
        )

    def _repaired(self, leaf: Leaf, gone: Bools, bought: Ints) -> Bools | None:
        """Put nodes back until limits hold and all pods have places."""
        for round_ in range(_REPAIRS):
            gone = gone.copy()
            if not self._obey_limits(leaf, gone, bought):
                return None
            left = self._packer.unplaced(gone, bought, self._orders)
            if not left.any():
                return gone
            if not gone.any() or self._stop():
                return None
            more = max(0, round_ - _REPAIRS // 2)
            self._put_back(leaf, gone, left << more, with_room=round_ < _PATIENT)
        return None

    def _obey_limits(self, leaf: Leaf, gone: Bools, bought: Ints) -> bool:
        """Put back nodes that exceed a limit, those that are worth least first."""
        problem = self._numbers.problem
        while not self._numbers.allowed(gone, bought):
            used = problem.going[:, gone].sum(axis=1) + (problem.buying * bought).sum(axis=1)
            over = np.flatnonzero(used > problem.limit)
            guilty = np.flatnonzero(gone & (problem.going[over] > 0).any(axis=0))
            if not len(guilty):
                return False
            gone[guilty[np.argmin(leaf.worth[guilty])]] = False
        return True

    def _put_back(self, leaf: Leaf, gone: Bools, left: Ints, *, with_room: bool) -> None:
        """Put back nodes that take these pods, those first that bring the least per pod."""
        problem = self._numbers.problem
        value = self._packer.values(leaf.solution.pod)
        relief = problem.pods + self._numbers.cap[: len(gone)] // 2 * with_room
        left = left.copy()
        while left.any() and gone.any():
            nodes = np.flatnonzero(gone)
            helps = np.einsum("nk,k->n", np.minimum(relief[nodes], left), value)
            node = nodes[np.argmax(helps / np.maximum(problem.saves[nodes], 1))]
            gone[node] = False
            left = np.maximum(left - relief[node], 0) if helps.any() else left * 0

    def _extended(self, leaf: Leaf, gone: Bools, may_go: Bools, bought: Ints) -> Bools:
        """Add nodes while all pods have places, those that are worth most first; a
        block that fails is halved."""
        rest = np.flatnonzero(may_go & ~gone)
        rest = rest[np.argsort(-leaf.worth[rest], kind="stable")]
        blocks = [rest[at : at + _BLOCK] for at in range(0, len(rest), _BLOCK)]
        for _ in range(_TRIES):
            if not blocks or self._over():
                break
            block = blocks.pop(0)
            more = gone.copy()
            more[block] = True
            if (
                self._numbers.allowed(more, bought)
                and not self._packer.unplaced(more, bought, self._orders).any()
            ):
                gone = more
            elif len(block) > 1:
                blocks[:0] = [block[: len(block) // 2], block[len(block) // 2 :]]
        return gone


def _violates(gone: Bools, bought: Ints, failed_proposal: Proposal) -> bool:
    within = bought <= np.array(failed_proposal.bought, dtype=np.int64)
    return bool(gone[list(failed_proposal.gone)].all() and within.all())


def _worth_trying(numbers: Numbers, leaves: Sequence[Leaf], gain: int) -> tuple[Bools, Ints]:
    """Return the candidates that may go and the most new nodes in plans of at least this gain: the
    bound of a leaf loses what a candidate or a new node lacks of being worth it."""
    may_go: Bools = np.zeros_like(numbers.may_go)
    most = np.zeros_like(numbers.most)
    for leaf in leaves:
        spare = leaf.bound * (1 + EPSILON) + EPSILON - gain
        if spare >= 0:
            may_go |= leaf.may_go & (leaf.worth > -spare - EPSILON)
            within = np.minimum(spare / np.maximum(-leaf.profit, EPSILON), numbers.most).astype(
                np.int64
            )
            most = np.maximum(most, np.where(leaf.profit < 0, within, numbers.most) * leaf.may_buy)
    return may_go, most


class _ExactProgramme:
    """Every node and every new node is a place of its own, and all columns are integers."""

    def __init__(
        self,
        numbers: Numbers,
        leaves: Sequence[Leaf],
        cuts: Sequence[Proposal],
        branches: int,
        proposal: Proposal | None,
    ) -> None:
        """proposal: the best that is known."""
        self._numbers, self._cuts, self._best = numbers, cuts, proposal
        self._may_go, most = _worth_trying(numbers, leaves, proposal.gain if proposal else 1)
        useful = np.flatnonzero(
            numbers.cap.any(axis=1)
            | np.isin(np.arange(len(numbers.cap)), np.flatnonzero(self._may_go))
        )
        copies = np.repeat(np.arange(len(most)), np.minimum(most, _COPIES + 1))
        self._places = [Place(useful[at : at + 1], EXISTING, 0) for at in range(len(useful))]
        self._places += [Place(NOWHERE, group, 1) for group in copies.tolist()]
        columns = int(
            (numbers.cap[useful] > 0).sum() + (numbers.group_cap[copies] > 0).sum()
        ) + len(copies)
        self.small = bool(columns <= _COLUMNS * math.isqrt(branches) and (most <= _COPIES).all())
        self._branches = max(1, branches * _FEW // max(columns, _FEW))
        self._copies = [
            [at for at, place in enumerate(self._places) if place.group == group]
            for group in range(len(most))
        ]

    def solve(self) -> tuple[Proposal | None, bool]:
        """Return the best plan with a gain, and whether that is certain. Raises Trouble."""
        best = self._best
        better, proven = self._optimum(best.gain + 1 if best else 1, ties=False)
        best = better or best
        if best and proven:
            simplest, _ = self._optimum(best.gain, ties=True)
            best = min([best, *([simplest] if simplest else [])], key=_rank)
        return best, proven

    def _rules(self) -> list[LinearRule]:
        """Return the rows beside those of every model: equal new nodes are
        bought in order, shapes, cuts."""
        problem = self._numbers.problem
        rules = []
        for group, places in enumerate(self._copies):
            rules += [LinearRule(0.0, {}, {after: 1.0, at: -1.0}) for at, after in pairwise(places)]
            if places:
                shape = np.flatnonzero(problem.same_shape[group] & self._numbers.may_go).tolist()
                rules += [LinearRule(1.0, {node: 1.0}, {places[0]: 1.0}) for node in shape]
        for cut in self._cuts:
            more = [
                places[most]
                for places, most in zip(self._copies, cut.bought, strict=True)
                if most < len(places)
            ]
            rules.append(
                LinearRule(
                    len(cut.gone) - 1.0, dict.fromkeys(cut.gone, 1.0), dict.fromkeys(more, -1.0)
                )
            )
        return rules

    def _gain_rule(self, least: int) -> LinearRule:
        problem = self._numbers.problem
        unit = float(max(1, problem.saves.max(initial=0)))
        saves = {
            node: -int(problem.saves[node]) / unit for node in np.flatnonzero(self._may_go).tolist()
        }
        prices = [
            (at, int(problem.price[group]) / unit)
            for group, places in enumerate(self._copies)
            for at in places
        ]
        return LinearRule((0.5 - least) / unit, saves, dict(prices))

    def _optimum(self, least: int, *, ties: bool) -> tuple[Proposal | None, bool]:
        """Return the best plan of at least this gain, and whether that is certain.
        ties: the simplest such plan."""
        model = Model(
            self._numbers,
            self._places,
            [*self._rules(), self._gain_rule(least)],
            mip_max_nodes=self._branches,
            mip_rel_gap=0.0,
            mip_abs_gap=0.5,
        )
        model.restrict(self._may_go, np.ones(len(self._copies), dtype=np.bool_))
        if ties:
            model.minimise_nodes()
        model.integers()
        solution = model.solve()
        if solution is None:
            return None, True
        plan = self._checked(solution)
        return plan, plan is not None and model.status == "Optimal"

    def _checked(self, solution: Solution) -> Proposal | None:
        """Return a solution as a plan, None if in whole numbers it breaks
        a rule: HiGHS has tolerances."""
        problem, numbers = self._numbers.problem, self._numbers
        gone, bought = solution.gone > 0.5, np.round(solution.bought).astype(np.int64)
        put = np.round(solution.put).astype(np.int64)
        for place, pods in zip(self._places, put, strict=True):
            room = (
                problem.room[place.group]
                if place.group != EXISTING
                else problem.free[place.nodes[0]]
            )
            for cls in np.flatnonzero(pods).tolist():
                room = room - pods[cls] * problem.need[cls]
                if (room[problem.need[cls] > 0] < 0).any():
                    return None
        placed = put.sum(axis=0) >= problem.pending + problem.pods[gone].sum(axis=0)
        if (
            not placed.all()
            or not numbers.allowed(gone, bought)
            or any(_violates(gone, bought, c) for c in self._cuts)
        ):
            return None
        return Proposal(
            tuple(np.flatnonzero(gone).tolist()), tuple(bought.tolist()), numbers.gain(gone, bought)
        )
