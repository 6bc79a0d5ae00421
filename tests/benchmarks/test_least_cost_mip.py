"""least-cost against a plain mixed-integer program, and without each of its parts, as
ratios measured in one run.

The plain program has whole numbers of nodes per group and of pods per group and class, and the room
of a group's nodes as one sum; HiGHS stops at a gap or at a time limit. The answer gives the pods of
each group, and not the node of each pod. So nodes are filled from it with the same two steps with
which the search begins. docs/reference/expanders.md has figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pytest

from chalicelib.plan.packing.linear_programme import NOWHERE, Model, Place
from chalicelib.plan.packing.linear_solver import LEFT
from chalicelib.plan.packing.problem import Numbers
from chalicelib.plan.scale_up.least_cost.cheapest_mix import (
    _generated_mixes,
    _initial_mix,
    _single_ask_loads,
)
from chalicelib.plan.scale_up.least_cost.improvement import dive, polish
from chalicelib.plan.scale_up.least_cost.master_problem import (
    Effort,
    Master,
    best_integer_mix,
    generate,
)
from chalicelib.plan.scale_up.least_cost.node_filling import Pricer, cover, first_fit, spread
from chalicelib.plan.scale_up.least_cost.problem import (
    Ask,
    Load,
    Offer,
    Problem,
    Rooms,
    check,
    left_over,
    pose,
    worth,
)
from chalicelib.plan.scale_up.least_cost.relaxation import Relaxed, _whole_shares, relax
from tests.benchmarks.openb import INPUTS, convert, load, question
from tests.reference_data import SHARED

GAP, SECONDS, RANDOM = 0.002, 10.0, 30
Method = Callable[[Problem], list[Load]]


class Tried(msgspec.Struct, frozen=True):
    """One method on one problem. cost: a pod without a place included, as the search
    counts it; 1 is the bound."""

    cost: float
    seconds: float
    left: int


def _never() -> bool:
    return False


# -- the methods


def today(problem: Problem, *, without: str = "") -> list[Load]:
    """The search of least-cost, or the search without one of its parts."""
    relaxed = relax(problem)
    first = [] if without == "greedy" else _initial_mix(problem, relaxed)
    found = [first]
    left, cost = worth(problem, first)
    if cost + left * LEFT > relaxed.bound * (1 + 1e-9):
        if without == "dive":
            found += _mixed(problem, relaxed, first)
        elif without == "columns":
            pass
        elif without == "mix":
            found += _dived(problem, relaxed, first)
        else:
            found += _generated_mixes(problem, relaxed, first, _never)
    last = _cover_only if without == "polish" else polish
    best = min(
        (last(problem, loads, relaxed) for loads in found), key=lambda loads: worth(problem, loads)
    )
    if without == "first fit":
        return best
    left, cost = worth(problem, best)
    alone = first_fit(problem, None if left else cost)
    return best if alone is None else last(problem, alone, relaxed)


def _started(problem: Problem, relaxed: Relaxed, first: Sequence[Load]) -> tuple[Master, Pricer]:
    master, pricer = Master(problem), Pricer(problem, relaxed.scarce)
    master.add([*first, *_single_ask_loads(problem)])
    return master, pricer


def _effort(problem: Problem, relaxed: Relaxed) -> Effort:
    offers = len(problem.price)
    return Effort(
        max(30, min(120, 7200 // offers)), max(2, min(8, 240 // offers)), 2, relaxed.bound * 1.004
    )


def _mixed(problem: Problem, relaxed: Relaxed, first: list[Load]) -> list[list[Load]]:
    """Columns, and the best whole mix of them in place of rounding."""
    master, pricer = _started(problem, relaxed, first)
    prices = generate(master, pricer, problem.cap, _effort(problem, relaxed), _never, relaxed.value)
    left, cost = worth(problem, first)
    return [best_integer_mix(master, prices, cost + left * LEFT)]


def _dived(problem: Problem, relaxed: Relaxed, first: list[Load]) -> list[list[Load]]:
    """Columns and rounding, without the last program over all columns."""
    master, pricer = _started(problem, relaxed, first)
    prices = generate(master, pricer, problem.cap, _effort(problem, relaxed), _never, relaxed.value)
    mixes = [dive(master, pricer, prices, relaxed.scarce, _never)]
    for _ in range(min(6, 500 // max(1, sum(each.nodes for each in mixes[0])))):
        left, cost = min(worth(problem, loads) for loads in mixes)
        if cost + left * LEFT <= prices.total * 1.005:
            break
        prices = generate(master, pricer, problem.cap, Effort(4, 4, 2), _never)
        mixes.append(dive(master, pricer, prices, relaxed.scarce, _never))
    return mixes


def _cover_only(problem: Problem, loads: Sequence[Load], relaxed: Relaxed) -> list[Load]:
    rooms = Rooms(problem)
    for each in loads:
        rooms.take(each.offer, each.nodes)
    return [
        *loads,
        *cover(problem, left_over(problem, loads), relaxed.value, relaxed.scarce, rooms),
    ]


def plain(problem: Problem) -> list[Load]:
    """The plain program, nodes filled from its answer, and the look at every node that
    today's search ends with."""
    relaxed = relax(problem)
    places = [Place(NOWHERE, offer, most) for offer, most in enumerate(problem.most.tolist())]
    model = Model(Numbers(problem), places, may_wait=True, mip_rel_gap=GAP, time_limit=SECONDS)
    model.integers()
    solution = model.solve()
    assert solution is not None
    shares = _whole_shares(problem, np.maximum(solution.put, 0.0))
    before = np.cumsum(shares, axis=0) - shares
    # it may cover more
    answer = msgspec.structs.replace(relaxed, shares=np.clip(problem.pending - before, 0, shares))
    rooms = Rooms(problem)
    loads = spread(problem, answer, rooms)
    loads += cover(problem, left_over(problem, loads), relaxed.value, relaxed.scarce, rooms)
    return polish(problem, loads, relaxed)


METHODS: dict[str, Method] = {
    "today": today,
    "plain MIP": plain,
    **{
        f"without {part}": partial(today, without=part)
        for part in ("greedy", "columns", "dive", "mix", "polish", "first fit")
    },
}


# -- the problems


def random_problem(seed: int) -> Problem:
    """A small backlog: 2 to 8 groups in proportion to their size, more or less, and
    2 to 12 classes of pods."""
    chance = np.random.default_rng(seed)
    width = int(chance.integers(2, 9))
    offers = []
    for at in range(width):
        cpu = int(chance.choice([2, 4, 8, 16, 32, 64])) * 1000
        memory = cpu * int(chance.choice([1, 2, 4, 8]))
        price = (cpu + memory / 6) * float(chance.uniform(0.8, 1.2))
        offers.append(
            Offer(
                f"g{at}",
                np.array([110, cpu - 200, memory - 400], dtype=np.int64),
                price,
                int(chance.choice([3, 10, 1000])),
            )
        )
    asks = [
        Ask(
            np.array([1, chance.integers(100, 6000), chance.integers(100, 20000)], dtype=np.int64),
            int(chance.integers(1, 60)),
            tuple((chance.random(width) < 0.8).tolist()),
        )
        for _ in range(int(chance.integers(2, 13)))
    ]
    return pose(offers, asks, [])


def problems(kind: str) -> Iterator[Problem]:
    """All problems of a kind."""
    with TemporaryDirectory() as folder:
        if kind == "random":
            yield from (posed for posed in map(random_problem, range(RANDOM)) if len(posed.pending))
        else:
            yield pose(*question(load(convert(kind, Path(folder)))), [])


def tried(method: Method, problem: Problem, bound: float) -> Tried:
    """One run, whose answer keeps every rule."""
    started = time.process_time()
    loads = method(problem)
    seconds = time.process_time() - started
    check(problem, loads)
    left, cost = worth(problem, loads)
    return Tried((cost + left * LEFT) / bound, seconds, left)


@pytest.mark.parametrize("kind", ["random", *INPUTS])
def test_least_cost_search_costs_no_more_than_a_plain_mip(kind: str) -> None:
    if kind != "random" and not SHARED.is_dir():
        pytest.skip("the reference data is missing")
    results: dict[str, list[Tried]] = {name: [] for name in METHODS}
    for problem in problems(kind):
        bound = relax(problem).bound
        for name, method in METHODS.items():
            results[name].append(tried(method, problem, bound))
    reference = results["today"]
    seconds = sum(each.seconds for each in reference)
    print(
        f"\n{kind}: {len(reference)} problems; today: {_mean(reference):.4f} x LP bound, "
        f"{seconds:.2f} CPU s"
        f", {sum(each.left > 0 for each in reference)} leave pods, for want of room"
    )
    for name, several in results.items():
        pairs = list(zip(several, reference, strict=True))
        ratios = [each.cost / ours.cost for each, ours in pairs if each.left == ours.left]
        dearer, cheaper = (
            sum(ratio > 1 + 1e-6 for ratio in ratios),
            sum(ratio < 1 - 1e-6 for ratio in ratios),
        )
        more = sum(each.left > ours.left for each, ours in pairs)
        print(
            f"  {name:18} cost {np.mean(ratios):.4f} x today's (median {np.median(ratios):.4f}, "
            f"{min(ratios):.3f} to "
            f"{max(ratios):.3f}, dearer in {dearer}, cheaper in {cheaper}), "
            f"time {sum(each.seconds for each in several) / seconds:.2f} x, {more} leave more pods"
        )
    assert _mean(reference) <= _mean(results["plain MIP"]) * 1.001


def _mean(several: Sequence[Tried]) -> float:
    return float(np.mean([each.cost for each in several]))
