"""Which groups that could be opened are weighed one by one, where a search over all of them at once
is not possible: for pods whose rules concern other pods, and in consolidation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

import numpy as np

from chalicelib.model.node import Node
from chalicelib.plan.packing.problem import capacity
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.declaration_limits import DeclarationLimits
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.tables import Floats, Ints

MOST = 24
"""Groups to open that are weighed."""
_CHEAPEST = 3
"""Of each declaration, zone and market, for each class of pods."""

PriceOf = Callable[[str, Node], float | None]


def finalists(
    candidates: Candidates,
    simulated: SimulatedCluster,
    declared: DeclarationLimits,
    price_of: PriceOf,
    classes: Sequence[int],
) -> frozenset[str]:
    """Return the groups to open that are cheapest for a pod of some class, and all groups that
    need not be opened."""
    groups = candidates.groups
    new = [row for row, group in enumerate(groups) if declared.is_new(group.group)]
    rest = frozenset(group.id for group in groups if not declared.is_new(group.group))
    if len(new) <= MOST:
        return rest | {groups[row].id for row in new}
    prices = _prices(candidates, new, price_of)
    room: Ints = np.maximum(candidates.table.free[new], 0)
    kinds = [_kind(groups[row]) for row in new]
    ranked: list[tuple[int, float, str]] = []
    for cls in classes:
        need = simulated.table.columns.need(cls)[None, :]
        fits = candidates.fits(cls)[new][:, None]
        pods = capacity(room, need, fits)[:, 0]
        per_pod = np.where(pods > 0, prices / np.maximum(pods, 1), np.inf)
        rank_of: dict[object, int] = {}
        for at in np.argsort(per_pod, kind="stable").tolist():
            rank = rank_of.get(kinds[at], 0)
            if rank < _CHEAPEST and isfinite(per_pod[at]):
                rank_of[kinds[at]] = rank + 1
                ranked.append((rank, float(per_pod[at]), groups[new[at]].id))
    chosen = dict.fromkeys(name for _, _, name in sorted(ranked))
    return rest | frozenset(list(chosen)[:MOST])


def not_dominated(
    candidates: Candidates, declared: DeclarationLimits, prices: Mapping[str, int]
) -> frozenset[str]:
    """Return the groups to open for which no other one of the declaration, zone and market has at
    least the room at no higher price: at most MOST, the cheapest first. prices: of one node."""
    groups = candidates.groups
    new = [
        row
        for row, group in enumerate(groups)
        if declared.is_new(group.group) and group.id in prices
    ]
    new.sort(key=lambda row: (prices[groups[row].id], groups[row].id))
    chosen: list[int] = []
    for row in new:
        room, kind = candidates.table.free[row], _kind(groups[row])
        is_dominated = any(
            (candidates.table.free[other] >= room).all() and _kind(groups[other]) == kind
            for other in chosen
        )
        if not is_dominated:
            chosen.append(row)
    return frozenset(groups[row].id for row in chosen[:MOST])


def _prices(candidates: Candidates, rows: Sequence[int], price_of: PriceOf) -> Floats:
    prices = []
    for row in rows:
        group = candidates.groups[row].id
        price = price_of(group, candidates.shapes[group].template.node)
        prices.append(np.inf if price is None else price)
    return np.array(prices, dtype=np.float64)


def _kind(group: NodeGroupState) -> tuple[str, str, str]:
    """Return the declaration, zone and market of a managed group."""
    assert group.group.managed is not None
    return group.group.managed.choice.kind
