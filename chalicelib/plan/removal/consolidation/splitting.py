"""Splits a verified set into moves that are carried out independently, and drops those
that are not worth it alone.

A node whose pods all go to room that exists is a move of its own. Nodes whose pods share a new
node, and all the new nodes that they share, are one replacement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from chalicelib.plan.removal.consolidation.move_search import ConsolidationSearch, Solution
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.tables import Ints

MOST_JOINED = 8
"""Most nodes of a replacement that is made of several which depend on each
other only in some orders."""


def best_moves(search: ConsolidationSearch) -> tuple[list[JudgedMove], Solution | None]:
    """Return the moves with the greatest gain, and the set that they make up, None without any."""
    solution = search.best(lambda proposed: moves_of(search, proposed)[1])
    return ([], None) if solution is None else moves_of(search, solution)


def moves_of(
    search: ConsolidationSearch, solution: Solution
) -> tuple[list[JudgedMove], Solution | None]:
    """Return the moves, in the order of their first nodes' names, and the set that they make up.
    Left out is what does not bring a gain or save enough by itself, and what has a place only while
    there are purchases of other moves."""
    current: Solution | None = solution
    most_rounds = len(solution.gone) + sum(solution.bought) + 1
    for _ in range(most_rounds):
        if current is None:
            break
        parts = [part for part in _independent(search, current) if _is_worth(search, part)]
        gone = tuple(sorted(at for part in parts for at in part.gone))
        bought = _all_bought(search, parts)
        if gone == current.gone and tuple(bought.tolist()) == current.bought:
            destinations = destinations_of(search, current)
            moves = [judged_move(search, part.gone, part.bought, destinations) for part in parts]
            return moves, current
        current = search.verified(gone, bought)
    return [], None


class Part(NamedTuple):
    """The nodes of a move, and what it buys of each offer."""

    gone: tuple[int, ...]
    bought: Ints

    @property
    def buys(self) -> bool:
        """Return whether it buys any node."""
        return bool(self.bought.any())


def _all_bought(search: ConsolidationSearch, parts: Iterable[Part]) -> Ints:
    return sum((part.bought for part in parts), start=search.no_purchase())


def _independent(search: ConsolidationSearch, solution: Solution) -> list[Part]:
    """Return the parts of a set. Nodes that need no purchase in the first order but do in another
    one would begin before it is there: they are one replacement with what the first order does not
    buy for others, or with a few others."""
    parts = _parts(search, solution)
    total: Ints = np.array(solution.bought, dtype=np.int64)
    if not total.any():
        return parts
    direct = [at for part in parts if not part.buys for at in part.gone]
    alone = search.verified(direct, search.no_purchase())
    gone_alone = alone.gone if alone is not None else ()
    dependent = set(direct).difference(gone_alone)
    if not dependent:
        return parts
    spare: Ints = total - _all_bought(search, parts)
    parts = [part for part in parts if dependent.isdisjoint(part.gone)]
    members = sorted(dependent)
    bought = spare
    if not spare.any():
        buying = [part for part in parts if part.buys]
        members = sorted([*members, *(at for part in buying for at in part.gone)])
        if not buying or len(members) > MOST_JOINED:
            return parts
        bought = _all_bought(search, buying)
        parts = [part for part in parts if not part.buys]
    joined = Part(tuple(members), bought)
    return sorted([*parts, joined], key=lambda part: part.gone)


def judged_move(
    search: ConsolidationSearch,
    gone: Sequence[int],
    bought: Ints,
    destinations: dict[int, dict[str, str]],
    cost: int | None = None,
) -> JudgedMove:
    """Return a move with its figures. destinations: candidate -> pod -> node. cost: of
    purchases that exist already."""
    names = [search.candidates[at].node.name for at in gone]
    price = int(search.price[list(gone)].sum())
    disruption = int(search.disruption[list(gone)].sum())
    purchases: dict[str, int] = {}
    prices: dict[str, int] = {}
    once = sum(search.costs.nodes[name].idle for name in names)
    price_of_purchases = 0
    for offer, count in zip(search.offers, bought.tolist(), strict=True):
        if not count:
            continue
        purchases[offer.group] = count
        prices[offer.group] = offer.cost
        price_of_purchases += offer.cost * count
        if cost is None:
            once += (offer.price - offer.cost) * count
    paid = price_of_purchases if cost is None else cost
    pools = {search.costs.nodes[name].pool for name in names}
    return JudgedMove(
        removals=tuple(_removal(search, at, destinations.get(at, {})) for at in gone),
        purchases=purchases,
        prices=prices,
        price=price,
        cost=paid,
        disruption=disruption / 1_000_000,
        disruption_price=sum(search.costs.disruption_price(name) for name in names),
        score=search.costs.score(price - paid, names),
        pool=pools.pop() if len(pools) == 1 else "",
        once=once,
    )


def _removal(
    search: ConsolidationSearch, at: int, destinations: dict[str, str]
) -> SimulatedRemoval:
    candidate = search.candidates[at]
    left = search.removal_limits.pdbs.left
    risky = any(left(budget) < count for budget, count in candidate.used.items())
    evict = tuple(pod.key for pod in candidate.pods)
    return SimulatedRemoval(
        candidate.node, candidate.group, evict, destinations, candidate.waits_for, risky
    )


def _is_worth(search: ConsolidationSearch, part: Part) -> bool:
    if search.gain(part.gone, part.bought) <= 0:
        return False
    if not search.saves_enough(part.gone, part.bought):
        return False
    splits_nodes = int(part.bought.sum()) > len(part.gone)
    return search.settings.split_nodes or not splits_nodes


def destinations_of(search: ConsolidationSearch, solution: Solution) -> dict[int, dict[str, str]]:
    """Return candidate -> pod -> the name of its new node, in the first order."""
    nodes = search.simulated.table.nodes
    new_nodes: dict[str, int] = {}
    new_names: dict[int, str] = {}
    for row, group in sorted(solution.places.new_rows.items()):
        number = new_nodes.get(group, 0) + 1
        new_nodes[group] = number
        new_names[row] = f"{group}/{number}"

    def name(row: int) -> str:
        return new_names[row] if row in new_names else nodes[row].name

    rows = _rows(search, solution)
    return {at: {pod: name(row) for pod, row in pods.items()} for at, pods in rows.items()}


def _rows(search: ConsolidationSearch, solution: Solution) -> dict[int, dict[str, int]]:
    """Return candidate -> pod -> row. Pods of a class are alike: those of the first
    candidate get the first places."""
    waiting: dict[int, list[tuple[int, str]]] = {}
    for at in solution.gone:
        for pod in search.candidates[at].pods:
            if not pod.deleted:
                waiting.setdefault(pod.cls, []).append((at, pod.key))
    rows: dict[int, dict[str, int]] = {at: {} for at in solution.gone}
    placed: dict[int, int] = {}
    for cls, row, count in solution.places.placed:
        start = placed.get(cls, 0)
        end = start + count
        placed[cls] = end
        for at, key in waiting.get(cls, [])[start:end]:
            rows[at][key] = row
    return rows


def _parts(search: ConsolidationSearch, solution: Solution) -> list[Part]:
    """Return the nodes and the purchases of each move."""
    new_rows = solution.places.new_rows
    rows = _rows(search, solution)
    first_user: dict[int, int] = {}  # new row -> the first candidate that uses it
    parent = {at: at for at in solution.gone}

    def root(at: int) -> int:
        while parent[at] != at:
            at = parent[at]
        return at

    for at in solution.gone:
        for row in sorted(new_rows.keys() & rows[at].values()):
            other = first_user.setdefault(row, at)
            first, second = sorted((root(other), root(at)))
            parent[second] = first
    offer_of = {offer.group: index for index, offer in enumerate(search.offers)}
    members: dict[int, list[int]] = {}
    bought: dict[int, Ints] = {}
    for at in solution.gone:
        first = root(at)
        members.setdefault(first, []).append(at)
        bought.setdefault(first, search.no_purchase())
    for row, group in new_rows.items():
        if row in first_user:
            bought[root(first_user[row])][offer_of[group]] += 1
    return [Part(tuple(gone), bought[first]) for first, gone in sorted(members.items())]
