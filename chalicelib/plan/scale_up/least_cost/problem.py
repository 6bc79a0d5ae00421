"""Offers and asks as arrays, in an order that does not depend on the input
order, with equal ones merged.

Groups of several zones and pods of several owners are often equal in everything that counts
here. Searching over the distinct ones only is the cheapest speed-up; `answer` distributes the
result to the originals again.

The scale-up search works with groups and classes; the solver works with numbers only, so that it
can be tested without a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from chalicelib.plan.packing.linear_solver import Trouble
from chalicelib.plan.packing.problem import PackingProblem, capacity, no_candidates
from chalicelib.plan.tables import LARGEST, Bools, Floats, Ints, integers

# of the most expensive node: decides by number of nodes among mixes of equal price
_PER_NODE = 1e-6


class Problem(PackingProblem, frozen=True):
    """A problem without nodes: pending pods, G offers and S limits; all distinct, A asks instead of
    classes. The highest price is 1.

    cap [G,A]: how many pods of an ask an empty node takes
    offers, asks: the indexes of the merged originals
    """

    cap: Ints
    offers: tuple[tuple[int, ...], ...]
    asks: tuple[tuple[int, ...], ...]


def pose(offers: Sequence[Offer], asks: Sequence[Ask], limits: Sequence[Shared]) -> Problem:
    """Return the problem without offers that cannot be bought and asks that fit nowhere."""
    requested = [at for at, ask in enumerate(asks) if ask.count > 0]
    for_sale = _in_any_order(offers, [asks[a] for a in requested], limits)
    width = len(offers[0].free) if offers else 1
    free = integers([np.maximum(offers[g].free, 0) for g in for_sale]).reshape(-1, width)
    need = integers([asks[a].need for a in requested]).reshape(-1, width)
    fits = np.array([[asks[a].fits[g] for a in requested] for g in for_sale], dtype=np.bool_)
    cap = capacity(free, need, fits.reshape(len(for_sale), len(requested)))
    ask_keys = [(tuple(need[i].tolist()), tuple(cap[:, i].tolist())) for i in range(len(requested))]
    fits_somewhere: Bools = np.any(cap, axis=0)
    asks_of = _together(ask_keys, fits_somewhere)
    first_asks = [members[0] for members in asks_of]
    offer_keys: list[tuple[object, ...]] = []
    for i, g in enumerate(for_sale):
        resources, pods = tuple(free[i].tolist()), tuple(cap[i, first_asks].tolist())
        amounts_of_node = tuple(limit.amounts[g] for limit in limits)
        offer_keys.append((offers[g].price, resources, pods, amounts_of_node))
    takes_pods: Bools = np.any(cap, axis=1)
    offers_of = _together(offer_keys, takes_pods)
    first_offers = [members[0] for members in offers_of]
    counts = [sum(asks[requested[i]].count for i in members) for members in asks_of]
    pending = integers(counts)
    all_pods = sum(counts)
    most = [sum(offers[for_sale[i]].most for i in members) for members in offers_of]
    amounts = [[limit.amounts[for_sale[i]] for i in first_offers] for limit in limits]
    cap_of_firsts = cap[np.ix_(first_offers, first_asks)]
    return Problem(
        need=need[first_asks],
        pending=pending,
        price=_prices([offers[for_sale[i]].price for i in first_offers]),
        room=free[first_offers],
        group_fits=cap_of_firsts > 0,
        most=integers([min(nodes, all_pods) for nodes in most]),
        buying=integers(amounts).reshape(len(limits), len(first_offers)),
        limit=integers([min(max(0, limit.most), LARGEST) for limit in limits]),
        free=np.zeros((0, width), dtype=np.int64),
        fits=np.zeros((0, len(first_asks)), dtype=np.bool_),
        cap=np.minimum(cap_of_firsts, pending),
        offers=tuple(tuple(for_sale[i] for i in members) for members in offers_of),
        asks=tuple(tuple(requested[i] for i in members) for members in asks_of),
        **no_candidates(len(first_asks), len(first_offers), len(limits)),
    )


def _in_any_order(
    offers: Sequence[Offer], asks: Sequence[Ask], limits: Sequence[Shared]
) -> list[int]:
    """Return the offers that can be bought, sorted by what they are: the order in which they and
    the asks are given has no effect."""

    ask_keys = [(tuple(ask.need.tolist()), ask.count) for ask in asks]
    rank_of = {key: rank for rank, key in enumerate(sorted(set(ask_keys)))}
    ranks = integers([rank_of[key] for key in ask_keys])
    fits: Bools = np.zeros((len(asks), len(offers)), dtype=np.bool_)
    for row, ask in enumerate(asks):
        fits[row] = ask.fits[: len(offers)]

    def key(at: int) -> tuple[object, ...]:
        suited = np.sort(ranks[fits[:, at]]).tolist()
        amounts = tuple(limit.amounts[at] for limit in limits)
        return offers[at].price, tuple(offers[at].free.tolist()), amounts, suited

    for_sale = [
        at for at, offer in enumerate(offers) if offer.most > 0 and math.isfinite(offer.price)
    ]
    return sorted(for_sale, key=key)


def _together(keys: Sequence[tuple[object, ...]], useful: Bools) -> tuple[tuple[int, ...], ...]:
    """Return the members grouped by equal keys, in the order of the keys,
    without those of no use."""
    members: dict[tuple[object, ...], list[int]] = {}
    for at, key in enumerate(keys):
        if useful[at]:
            members.setdefault(key, []).append(at)
    return tuple(tuple(members[key]) for key in sorted(members))


def _prices(prices: Sequence[float]) -> Floats:
    cost = np.maximum(np.array(prices, dtype=np.float64), 0.0)
    dearest = float(cost.max(initial=0.0))
    return cost / dearest + _PER_NODE if dearest > 0 else np.ones(len(prices))


class Rooms:
    """Nodes that may still be bought, reduced as nodes are bought."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.most = problem.most.copy()
        self.limit = problem.limit.copy()

    def allowed(self, offer: int) -> int:
        """Return how many more nodes of an offer may be bought."""
        return self._most(offer, self._problem.buying[:, offer])

    def exchangeable(self, old: int, new: int) -> int:
        """Return how many nodes of one offer could be replaced by nodes of another."""
        amounts = self._problem.buying
        return self._most(new, amounts[:, new] - amounts[:, old])

    def _most(self, offer: int, amounts: Ints) -> int:
        """Return how many nodes of an offer may be bought where one takes these amounts of the
        limits."""
        most = int(self.most[offer])
        limited = amounts > 0
        if limited.any():
            within_limits = self.limit[limited] // amounts[limited]
            most = min(most, int(within_limits.min()))
        return max(0, most)

    def take(self, offer: int, nodes: int) -> None:
        """Buy nodes, or return them with a negative number."""
        self.most[offer] -= nodes
        self.limit -= self._problem.buying[:, offer] * nodes


def left_over(problem: Problem, loads: Loads) -> Ints:
    """Return the pods of each ask that are in no load, [A]."""
    unplaced = problem.pending.copy()
    for load in loads:
        unplaced -= load.pods * load.nodes
    return unplaced


def worth(problem: Problem, loads: Loads) -> tuple[int, float]:
    """Return the sort key of a mix, lower is better: unplaced pods, then cost."""
    unplaced = int(left_over(problem, loads).sum())
    cost = sum(problem.price[load.offer] * load.nodes for load in loads)
    return unplaced, float(cost)


def check(problem: Problem, loads: Loads) -> None:
    """Raise Trouble unless the loads obey every rule."""
    rooms = Rooms(problem)
    for load in loads:
        rooms.take(load.offer, load.nodes)
        requests = load.pods @ problem.need
        is_overfull = (requests > problem.room[load.offer]).any()
        is_over_cap = (load.pods > problem.cap[load.offer]).any()
        is_empty = load.nodes <= 0 or not load.pods.any()
        if is_overfull or is_over_cap or is_empty or (load.pods < 0).any():
            raise Trouble("a node would not hold its pods")
    unplaced = left_over(problem, loads)
    if (rooms.most < 0).any() or (rooms.limit < 0).any() or (unplaced < 0).any():
        raise Trouble("more was bought than is allowed, or for more pods than there are")


def answer(
    problem: Problem, offers: Sequence[Offer], asks: Sequence[Ask], loads: Loads
) -> list[Bought]:
    """Return the loads in terms of the original offers and asks; the first originals are
    used up before the next. Of equal offers in several zones each next node is in the zone with
    fewest nodes of its declaration."""
    nodes_left = {g: offers[g].most for members in problem.offers for g in members}
    pods_left = {a: asks[a].count for members in problem.asks for a in members}
    nodes_in = {offer.zone: offer.have for offer in offers if offer.zone}
    bought: list[Bought] = []
    for load in loads:
        rest = load.nodes
        while rest > 0:
            free = [g for g in problem.offers[load.offer] if nodes_left[g] > 0]
            offer = min(free, key=lambda g: nodes_in.get(offers[g].zone, -1))
            pods = _deal(problem, load, pods_left)
            repeats = [pods_left[a] // count for a, count in pods.items()]
            alike = min([rest, nodes_left[offer], *repeats])
            zone = offers[offer].zone
            if zone:
                alike = 1 if len(free) > 1 else alike
                nodes_in[zone] += alike
            for a, count in pods.items():
                pods_left[a] -= count * alike
            nodes_left[offer] -= alike
            rest -= alike
            bought.append(Bought(offer, alike, pods))
    return bought


def _deal(problem: Problem, load: Load, pods_left: dict[int, int]) -> dict[int, int]:
    """Return which original pods are placed on the next node of a load."""

    def pieces() -> Iterator[tuple[int, int]]:
        for at in np.flatnonzero(load.pods):
            missing = int(load.pods[at])
            for a in problem.asks[at]:
                if missing and pods_left[a]:
                    dealt = min(missing, pods_left[a])
                    missing -= dealt
                    yield a, dealt

    return dict(pieces())


Stop = Callable[[], bool]


def dot(rows: Ints, weights: Floats) -> Floats:
    """Return rows [..., K] weighted by weights [K], summed in the same order on every processor.
    BLAS, which `@` uses for floats, sums as the processor likes, and the last digit decides
    between loads of equal value."""
    total: Floats = np.einsum("...k,k->...", rows, weights)
    return total


class Offer(msgspec.Struct, frozen=True):
    """A group that may scale up.

    free:  room for pods on an empty new node, R amounts; column 0 is the number of pods
    price: of one node, in any unit; not finite: the group cannot be bought
    most:  how many nodes may still be bought
    zone:  zone and declaration of a managed pool, whose equal offers are bought in turn, "" else
    have:  nodes there already
    """

    group: str
    free: Ints
    price: float
    most: int
    zone: str = ""
    have: int = 0


class Ask(msgspec.Struct, frozen=True):
    """Equal pods.

    need:  what one pod requests, R amounts; column 0 is 1
    count: number of pods
    fits:  per offer, whether its nodes may run such a pod at all
    """

    need: Ints
    count: int
    fits: tuple[bool, ...]


class Shared(msgspec.Struct, frozen=True):
    """A limit over the whole cluster: the sum over all offers of nodes times
    `amounts` is at most `most`."""

    amounts: tuple[int, ...]
    most: int


class Bought(msgspec.Struct, frozen=True):
    """`nodes` equal new nodes. offer: its index; pods: index of an ask -> pods of
    it on each of the nodes."""

    offer: int
    nodes: int
    pods: dict[int, int]


class Load(msgspec.Struct, frozen=True):
    """`nodes` nodes of an offer of a Problem, each with pods[a] pods of its ask a."""

    offer: int
    pods: Ints
    nodes: int


Loads = Sequence[Load]
