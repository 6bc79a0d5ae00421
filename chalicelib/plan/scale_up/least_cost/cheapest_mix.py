"""Searches the cheapest mix of groups for all pending pods.

It places as many pods as possible at the lowest price that it finds: a relaxation and its bound,
column generation, rounding, an exact program for few nodes and a local search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason
from chalicelib.plan.packing.linear_solver import LEFT, Trouble
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.declaration_limits import DeclarationLimits
from chalicelib.plan.scale_up.least_cost.improvement import dive, polish
from chalicelib.plan.scale_up.least_cost.master_problem import (
    FEW,
    Effort,
    Master,
    best_integer_mix,
    generate,
)
from chalicelib.plan.scale_up.least_cost.node_filling import Pricer, cover, first_fit, spread
from chalicelib.plan.scale_up.least_cost.problem import (
    Ask,
    Bought,
    Load,
    Offer,
    Problem,
    Rooms,
    Shared,
    Stop,
    answer,
    check,
    left_over,
    pose,
    worth,
)
from chalicelib.plan.scale_up.least_cost.reduction import without_dear, without_dominated
from chalicelib.plan.scale_up.least_cost.relaxation import Relaxed, relax
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster

_CLOSE = 1.004  # of the bound: a smaller gap is not worth another round
# maximum number of further rounding attempts, and the total nodes up to which they are made
_DIVES, _NODES = 6, 500
_AGAIN = Effort(rounds=4, keep=4, tries=2)
_MORE = 50  # loads per offer that are tried for few nodes, although the relaxation did not use them
_NEAR = 1.005  # of the loads' best possible cost: a smaller gap is not worth trying all mixes


def solve(
    offers: Sequence[Offer], asks: Sequence[Ask], limits: Sequence[Shared], stop: Stop
) -> list[Bought] | None:
    """Return what to buy: as many pods as possible are placed, at the lowest price found.

    stop: called between steps; once it returns true, the best mix so far is the answer. Returns
    None if there is no solver, it gave up, or there was no time to begin. The same input gives the
    same answer, in any order.
    """
    if stop():
        return None
    if not offers or not asks:
        return []
    problem = without_dominated(pose(offers, asks, limits))
    if not len(problem.pending):
        return []
    try:
        problem, relaxed = without_dear(problem, relax(problem))
        loads = _best_mix(problem, relaxed, stop)
        check(problem, loads)
    except Trouble:
        return None
    return answer(problem, offers, asks, loads)


def _best_mix(problem: Problem, relaxed: Relaxed, stop: Stop) -> list[Load]:
    mixes = [_initial_mix(problem, relaxed)]
    unplaced, cost = worth(problem, mixes[0])
    if not stop() and cost + unplaced * LEFT > relaxed.bound * (1 + 1e-9):
        mixes += _generated_mixes(problem, relaxed, mixes[0], stop)
    best = min(
        (polish(problem, loads, relaxed) for loads in mixes),
        key=lambda loads: worth(problem, loads),
    )
    unplaced, cost = worth(problem, best)
    alone = first_fit(problem, None if unplaced else cost)
    return best if alone is None else polish(problem, alone, relaxed)


def _initial_mix(problem: Problem, relaxed: Relaxed) -> list[Load]:
    rooms = Rooms(problem)
    loads = spread(problem, relaxed, rooms)
    unplaced = left_over(problem, loads)
    return loads + cover(problem, unplaced, relaxed.value, relaxed.scarce, rooms)


def _generated_mixes(
    problem: Problem, relaxed: Relaxed, first: list[Load], stop: Stop
) -> list[list[Load]]:
    """Return mixes of generated loads."""
    master, pricer = Master(problem), Pricer(problem, relaxed.scarce)
    master.add([*first, *_single_ask_loads(problem)])
    offers = len(problem.price)
    effort = Effort(
        rounds=max(30, min(120, 7200 // offers)),
        keep=max(2, min(8, 240 // offers)),
        tries=2,
        # the bound without what pods cost that have no place in any mix
        enough=relaxed.bound + (_CLOSE - 1) * (relaxed.bound % LEFT),
    )
    prices = generate(master, pricer, problem.cap, effort, stop, relaxed.value)
    mixes = [dive(master, pricer, prices, relaxed.scarce, stop)]
    total = sum(load.nodes for load in mixes[0])
    for _ in range(min(_DIVES, _NODES // max(1, total))):
        if stop() or _is_near(problem, mixes, prices.total):
            return mixes
        prices = generate(master, pricer, problem.cap, _AGAIN, stop)
        mixes.append(dive(master, pricer, prices, relaxed.scarce, stop))
    if total > FEW or _is_near(problem, mixes, prices.total) or stop():
        return mixes
    cost = _best_cost(problem, mixes)
    prices = master.solve()
    master.add(
        pricer.loads(
            prices.value,
            prices.cost,
            problem.cap,
            keep=_MORE,
            tries=2,
            loss=cost - prices.total,
        )
    )
    return [*mixes, best_integer_mix(master, prices, cost)]


def _is_near(problem: Problem, mixes: Sequence[Sequence[Load]], bound: float) -> bool:
    """Return whether the best mix costs hardly more than the bound. An unplaced pod costs as much
    as very many nodes, so the difference is compared with the price of the nodes alone."""
    unplaced, price = min(worth(problem, loads) for loads in mixes)
    return price + unplaced * LEFT - bound <= (_NEAR - 1) * price


def _best_cost(problem: Problem, mixes: Sequence[Sequence[Load]]) -> float:
    """Return the cost of the best mix, unplaced pods included."""
    unplaced, cost = min(worth(problem, loads) for loads in mixes)
    return cost + unplaced * LEFT


def _single_ask_loads(problem: Problem) -> list[Load]:
    """Return for each ask a node full of it, on the offer with the lowest price per pod."""
    per_pod = np.where(problem.cap > 0, problem.price[:, None] / np.maximum(problem.cap, 1), np.inf)
    loads = []
    for ask, offer in enumerate(per_pod.argmin(axis=0).tolist()):
        pods = np.zeros(len(problem.pending), dtype=np.int64)
        pods[ask] = problem.cap[offer, ask]
        loads.append(Load(offer, pods, 1))
    return loads


class Purchase(msgspec.Struct, frozen=True):
    """`nodes` new nodes of a group, each with pods[class] pods of a class."""

    group: str
    nodes: int
    pods: dict[int, int]


def _of_declarations(
    offers: Sequence[Offer],
    candidates: Candidates,
    declared: DeclarationLimits,
    grown: Mapping[str, int],
) -> list[Offer]:
    """Return the offers as spec.managedPools has them: dearer where a group would have to be
    opened, and with the zones over which their nodes are spread."""
    groups = candidates.groups
    places = [declared.place_of(group.group) for group in groups]
    nodes: Counter[str] = Counter()
    for place, group in zip(places, groups, strict=True):
        nodes[place] += group.target + grown.get(group.id, 0)
    return [
        msgspec.structs.replace(
            offer,
            price=offer.price * declared.opening_factor(group.group),
            zone=place,
            have=nodes[place] if place else 0,
        )
        for offer, place, group in zip(offers, places, groups, strict=True)
    ]


def purchases(
    counts: Mapping[int, int],
    candidates: Candidates,
    simulated: SimulatedCluster,
    limiter: ResourceLimiter,
    price_of: Callable[[str, Node], float | None],
    stop: Stop,
    grown: Mapping[str, int],
    notes: dict[object, Reason],
) -> list[Purchase] | None:
    """Return the cheapest mix of new nodes for pending pods, or None if there is no answer and the
    next expander decides. counts: class -> unplaced pods; price_of: the hourly price of a new node
    by its group and template, None
    if unknown; grown: group -> nodes already bought; notes: receives what could not be reached.

    Only what the search can optimise is converted to solver input. Pods with rules about other
    pods, host ports or claims, pods that need one zone of a group in several, and groups that scale
    from zero to their maximum at once, are left to the rest of the chain, which sees the nodes
    bought here in the simulated cluster.
    """
    offers = []
    for group in candidates.groups:
        shape = candidates.shapes[group.id]
        price = price_of(group.id, shape.template.node)
        atomic = group.group.options.zero_or_max
        most = (
            0
            if atomic or group.id in candidates.variants
            else limiter.allowance(group, grown.get(group.id, 0)).nodes
        )
        offers.append(Offer(group.id, shape.free, math.inf if price is None else price, most))
    if limiter.declared is not None:
        offers = _of_declarations(offers, candidates, limiter.declared, grown)
    classes = [cls for cls in counts if simulated.is_independent(cls)]
    asks = [
        Ask(
            simulated.table.columns.need(cls),
            counts[cls],
            tuple(candidates.fits(cls).tolist()),
        )
        for cls in classes
    ]
    if limiter.declared is None:
        limits = [Shared(amounts, most) for amounts, most in limiter.shared(candidates.groups)]
        bought = solve(offers, asks, limits, stop)
    else:
        # Imported here, because few clusters have managed pools.
        from chalicelib.plan.scale_up.least_cost.declared_mix import DeclaredMix

        search = DeclaredMix(candidates, limiter, limiter.declared, solve, stop)
        bought = search.search(offers, asks)
        notes.update((note.key, note) for note in search.notes)
        limiter.declared.closed.update(search.closed)
    if bought is None:
        return None
    return [
        Purchase(
            offers[node.offer].group,
            node.nodes,
            {classes[ask]: pods for ask, pods in node.pods.items()},
        )
        for node in bought
    ]
