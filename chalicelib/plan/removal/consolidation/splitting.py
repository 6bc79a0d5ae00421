"""Splits a verified set into moves that are carried out independently, and drops those
that are not worth it alone.

A node whose pods all go to room that exists is a move of its own. Nodes whose pods share a new
node, and all the new nodes that they share, are one replacement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chalicelib.plan.removal.consolidation.move_search import ConsolidationSearch, Solution
from chalicelib.plan.removal.consolidation.moves import JudgedMove
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.tables import Ints

MOST_JOINED = 8
"""Most nodes of a replacement that is made of several which depend on each
other only in some orders."""


def moves_of(
    search: ConsolidationSearch, solution: Solution
) -> tuple[list[JudgedMove], Solution | None]:
    """Return the moves, in the order of their first nodes' names, and the set that they make up.
    Left out is what does not bring a gain or save enough by itself, and what has a place only while
    there are purchases of other moves."""
    current: Solution | None = solution
    for _ in range(len(solution.gone) + sum(solution.bought) + 1):
        if current is None:
            break
        parts = [part for part in _independent(search, current) if _is_worth(search, *part)]
        gone = tuple(sorted(at for members, _ in parts for at in members))
        bought = sum(
            (extra for _, extra in parts), start=np.zeros(len(search.offers), dtype=np.int64)
        )
        if (gone, tuple(bought.tolist())) == (current.gone, current.bought):
            destinations = destinations_of(search, current)
            return [
                judged_move(search, members, extra, destinations) for members, extra in parts
            ], current
        current = search.verified(gone, bought)
    return [], None


Part = tuple[tuple[int, ...], Ints]
"""The nodes of a move, and what it buys of each offer."""


def _independent(search: ConsolidationSearch, solution: Solution) -> list[Part]:
    """Return the parts of a set. Nodes that need no purchase in the first order but do in another
    one would begin before it is there: they are one replacement with what the first order does not
    buy for others, or with a few others."""
    parts, total = _parts(search, solution), np.array(solution.bought, dtype=np.int64)
    if not total.any():
        return parts
    direct = [at for gone, bought in parts if not bought.any() for at in gone]
    alone = search.verified(direct, np.zeros(len(search.offers), dtype=np.int64))
    lost = set(direct) - set(alone.gone if alone is not None else ())
    if not lost:
        return parts
    bought: Ints = total - sum((bought for _, bought in parts), start=np.zeros_like(total))
    members, parts = sorted(lost), [part for part in parts if not lost.intersection(part[0])]
    if not bought.any():
        buying = [part for part in parts if part[1].any()]
        members = sorted([*members, *(at for gone, _ in buying for at in gone)])
        if not buying or len(members) > MOST_JOINED:
            return parts
        bought = sum((extra for _, extra in buying), start=bought)
        parts = [part for part in parts if not part[1].any()]
    return sorted([*parts, (tuple(members), bought)], key=lambda part: part[0])


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
    purchases = {
        offer.group: int(count)
        for offer, count in zip(search.offers, bought.tolist(), strict=True)
        if count
    }
    prices = {offer.group: offer.cost for offer in search.offers if offer.group in purchases}
    paid = (
        sum(prices[group] * count for group, count in purchases.items()) if cost is None else cost
    )
    overlap = sum(
        (offer.price - offer.cost) * int(count)
        for offer, count in zip(search.offers, bought, strict=True)
    )
    idle = sum(search.costs.nodes[name].idle for name in names)
    pools = {search.costs.nodes[name].pool for name in names}
    return JudgedMove(
        removals=tuple(_removal(search, at, destinations.get(at, {})) for at in gone),
        purchases=purchases,
        prices=prices,
        price=price,
        cost=paid,
        disruption=int(search.disruption[list(gone)].sum()) / 1_000_000,
        disruption_price=sum(search.costs.disruption_price(name) for name in names),
        score=search.costs.score(price - paid, names),
        pool=pools.pop() if len(pools) == 1 else "",
        once=idle + (overlap if cost is None else 0),
    )


def _removal(
    search: ConsolidationSearch, at: int, destinations: dict[str, str]
) -> SimulatedRemoval:
    candidate = search.candidates[at]
    risky = any(
        search.removal_limits.pdbs.left(name) < count for name, count in candidate.used.items()
    )
    evict = tuple(pod.key for pod in candidate.pods)
    return SimulatedRemoval(
        candidate.node, candidate.group, evict, destinations, candidate.waits_for, risky
    )


def _is_worth(search: ConsolidationSearch, gone: Sequence[int], bought: Ints) -> bool:
    splits = int(bought.sum()) > len(gone) and not search.settings.split_nodes
    return search.gain(gone, bought) > 0 and search.saves_enough(gone, bought) and not splits


def destinations_of(search: ConsolidationSearch, solution: Solution) -> dict[int, dict[str, str]]:
    """Return candidate -> pod -> the name of its new node, in the first order."""
    rows = _rows(search, solution)
    nodes = search.simulated.table.nodes
    counters: dict[str, int] = {}
    names: dict[int, str] = {}
    for row, group in sorted(solution.places.new_rows.items()):
        counters[group] = counters.get(group, 0) + 1
        names[row] = f"{group}/{counters[group]}"
    return {
        at: {pod: names[row] if row in names else nodes[row].name for pod, row in pods.items()}
        for at, pods in rows.items()
    }


def _rows(search: ConsolidationSearch, solution: Solution) -> dict[int, dict[str, int]]:
    """Return candidate -> pod -> row. Pods of a class are alike: those of the first
    candidate get the first places."""
    waiting: dict[int, list[tuple[int, str]]] = {}
    for at in solution.gone:
        for pod in search.candidates[at].pods:
            if not pod.deleted:
                waiting.setdefault(pod.cls, []).append((at, pod.key))
    rows: dict[int, dict[str, int]] = {at: {} for at in solution.gone}
    taken: dict[int, int] = {}
    for cls, row, count in solution.places.placed:
        start = taken.get(cls, 0)
        taken[cls] = start + count
        for at, key in waiting.get(cls, [])[start : start + count]:
            rows[at][key] = row
    return rows


def _parts(search: ConsolidationSearch, solution: Solution) -> list[Part]:
    """Return the nodes and the purchases of each move."""
    new_rows, rows = solution.places.new_rows, _rows(search, solution)
    leader: dict[int, int] = {}  # new row -> the first candidate that uses it, by union
    parent = {at: at for at in solution.gone}

    def find(at: int) -> int:
        while parent[at] != at:
            at = parent[at]
        return at

    for at in solution.gone:
        for row in sorted({row for row in rows[at].values() if row in new_rows}):
            if row in leader:
                first, second = sorted((find(leader[row]), find(at)))
                parent[second] = first
            else:
                leader[row] = at
    offer_of = {offer.group: index for index, offer in enumerate(search.offers)}
    bought: dict[int, Ints] = {}
    for row, group in new_rows.items():
        if row in leader:
            own = bought.setdefault(find(leader[row]), np.zeros(len(search.offers), dtype=np.int64))
            own[offer_of[group]] += 1
    none: Ints = np.zeros(len(search.offers), dtype=np.int64)
    members: dict[int, list[int]] = {}
    for at in solution.gone:
        members.setdefault(find(at), []).append(at)
    return [(tuple(gone), bought.get(first, none)) for first, gone in sorted(members.items())]
