"""The consolidation programme: cases with a known optimum, comparison with enumeration,
bounds, cuts and limits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np
import pytest

from chalicelib.plan.packing.problem import PackingProblem
from chalicelib.plan.removal.consolidation.programme import Programme, Proposal
from chalicelib.plan.tables import Bools
from tests.amounts import examples
from tests.unit.plan.programme_instances import (
    first_fit_removals,
    half_empty,
    never,
    optimum,
    placeable,
    problem,
    random_small,
)

POD = [1, 5, 2]  # of the fixture: a pod, tenths of a cpu, GiB
S, M, L = [110, 20, 8], [110, 40, 16], [110, 80, 32]
GROUPS = [(100_000, S, 10), (200_000, M, 10), (400_000, L, 10)]


def programme(given: PackingProblem, *, rounds: int = 10, branches: int = 2000) -> Programme:
    """The programme of normal effort, without a time limit."""
    return Programme(given, rounds=rounds, branches=branches, stop=never)


def free(node: Sequence[int], pods: int) -> list[int]:
    """The room of a node beside pods of the fixture."""
    return [room - pods * amount for room, amount in zip(node, POD, strict=True)]


def same_shape(nodes: int) -> Bools:
    """All candidates are of the second group's shape."""
    return np.repeat(np.array([[False], [True], [False]]), nodes, axis=1)


def order(plan: Proposal | None) -> tuple[int, int, int, int] | None:
    """What a proposal is compared by."""
    return None if plan is None else (-plan.gain, len(plan.gone), sum(plan.bought), sum(plan.gone))


# -- cases of the reference


def test_cons_1_two_of_three_half_empty_nodes_go() -> None:
    given = problem(
        [POD], [100_000] * 3, [[2]] * 3, [free(M, 2)] * 3, groups=GROUPS, same_shape=same_shape(3)
    )
    assert programme(given).propose() == Proposal((0, 1), (0, 0, 0), 200_000)


def test_cons_2_limit_of_one_node_lets_the_first_one_go() -> None:
    limits = [([1, 1, 1], [0, 0, 0], 1)]
    given = problem(
        [POD],
        [100_000] * 3,
        [[2]] * 3,
        [free(M, 2)] * 3,
        groups=GROUPS,
        same_shape=same_shape(3),
        limits=limits,
    )
    assert programme(given).propose() == Proposal((0,), (0, 0, 0), 100_000)


def test_cons_3_cheaper_node_is_bought_beside_a_full_node() -> None:
    given = problem(
        [POD],
        [150_000, 50_000],
        [[2], [8]],
        [free(M, 2), free(M, 8)],
        groups=GROUPS,
        same_shape=same_shape(2),
    )
    assert programme(given).propose() == Proposal((0,), (1, 0, 0), 50_000)


def test_cons_4_gain_of_exactly_zero_moves_nobody() -> None:
    given = problem(
        [[1, 25, 100]],
        [100_000] * 10,
        [[8]] * 10,
        [[0, 0, 0]] * 10,
        groups=[(100_000, [110, 200, 800], 10)],
    )
    tried = programme(given)
    assert tried.propose() is None
    assert tried.proven
    assert tried.bound < 1


def test_cons_7_node_that_brings_more_goes_and_not_the_one_that_brings_more_per_pod() -> None:
    given = problem(
        [[1, 10, 4], [1, 20, 4]],
        [131_667, 185_000, 143_333],
        [[6, 0], [2, 0], [0, 1]],
        [[100, 20, 8], [100, 0, 0], [100, 0, 0]],
    )
    assert programme(given).propose() == Proposal((1,), (), 185_000)


def test_cons_8_one_node_becomes_two_of_other_proportions() -> None:
    given = problem(
        [[1, 35, 20], [1, 5, 140]],
        [400_000],
        [[1, 1]],
        [[100, 0, 0]],
        groups=[(150_000, [110, 40, 40], 10), (150_000, [110, 10, 160], 10)],
    )
    assert programme(given).propose() == Proposal((0,), (1, 1), 100_000)


def test_cons_11_fewer_nodes_go_where_the_gain_is_equal() -> None:
    given = problem(
        [POD], [100_000] * 3, [[1]] * 3, [free(M, 1)] * 3, groups=GROUPS, same_shape=same_shape(3)
    )
    assert programme(given).propose() == Proposal((0, 1), (0, 0, 0), 200_000)


def test_cons_33_headroom_needs_a_node() -> None:
    given = problem(
        [POD, [1, 10, 2]],
        [100_000] * 3,
        [[2, 0]] * 3,
        [free(M, 2)] * 3,
        extra=[0, 2],
        groups=GROUPS,
        same_shape=same_shape(3),
    )
    assert programme(given).propose() == Proposal((0,), (0, 0, 0), 100_000)
    given = msgspec.structs.replace(given, pending=np.array([0, 1]))
    assert programme(given).propose() == Proposal((0, 1), (0, 0, 0), 200_000)


def test_cons_46_one_branch_still_gives_the_incumbent_and_its_bound() -> None:
    given = half_empty(1, 20, 20)
    tried, exact = programme(given, branches=1), programme(given, branches=20_000)
    plan, best = tried.propose(), exact.propose()
    assert plan is not None
    assert best is not None
    assert not tried.proven
    assert exact.proven
    assert 0 < plan.gain <= best.gain <= tried.bound
    assert best.gain == exact.bound


# -- enumeration


@pytest.mark.more
@pytest.mark.parametrize("part", range(3))
def test_small_problems_are_solved_as_by_enumeration(part: int) -> None:
    share, plans = examples(120, 1000), 0
    for seed in range(part * share, (part + 1) * share):
        given, cuts = random_small(seed), list[Proposal]()
        tried = programme(given)
        bound = tried.bound
        for _ in range(3):
            plan, best = tried.propose(), optimum(given, cuts)
            assert order(plan) == order(best), f"seed {seed}, cuts {cuts}"
            assert tried.proven, seed
            if plan is None:
                break
            plans += 1
            assert placeable(given, plan.gone, plan.bought), seed
            assert bound >= tried.bound >= plan.gain, seed
            tried.cut(plan)
            cuts.append(plan)
    assert plans > share


@pytest.mark.more
def test_search_alone_never_exceeds_the_optimum_and_places_all_pods() -> None:
    plans, optimal = 0, 0
    for seed in range(examples(200, 2000)):
        given = random_small(seed)
        best = optimum(given)
        for robust in (False, True):
            plan = programme(given, branches=0).propose(robust=robust)
            if plan is not None:
                plans += 1
                assert best is not None, seed
                assert 0 < plan.gain <= best.gain, seed
                assert placeable(given, plan.gone, plan.bought), seed
                optimal += plan.gain == best.gain
    assert plans > 100
    assert optimal > plans / 2


# -- properties


@pytest.mark.parametrize("seed", range(4))
def test_large_problem_beats_first_fit_and_is_near_its_bound(seed: int) -> None:
    given = half_empty(seed, 120, 40)
    tried = programme(given)
    plan = tried.propose()
    assert plan is not None
    assert tried.bound >= plan.gain >= max(0.95 * tried.bound, first_fit_removals(given))


def test_robust_proposal_survives_orders_that_a_tight_one_does_not() -> None:
    """The pods of 1 and 2 would fill the room of 1 and 2 exactly, but the smaller one
    takes the larger room first."""
    given = problem([[1, 2], [1, 1]], [10], [[1, 1]], [[9, 0], [9, 2], [9, 1]])
    assert programme(given).propose() == Proposal((0,), (), 10)
    assert programme(given).propose(robust=True) is None
    two_small = problem([[1, 2], [1, 1]], [10], [[1, 2]], [[9, 0], [9, 3], [9, 1]])
    assert programme(two_small).propose() == Proposal((0,), (), 10)
    assert programme(two_small).propose(robust=True) is None
    wider = msgspec.structs.replace(given, free=np.array([[9, 0], [9, 3], [9, 1]]))
    assert programme(wider).propose(robust=True) == Proposal((0,), (), 10)


def test_same_problem_gives_the_same_bytes() -> None:
    for given in (half_empty(3, 80, 30, old=2.0), half_empty(4, 10, 6), random_small(7)):
        one, other = programme(given), programme(given)
        assert msgspec.json.encode(
            [one.propose(), one.propose(robust=True)]
        ) == msgspec.json.encode([other.propose(), other.propose(robust=True)])
        assert one.bound == other.bound


def test_cut_set_may_go_with_more_purchases_only() -> None:
    given = problem([[1, 2]], [10, 9], [[1], [1]], [[9, 2], [9, 2]], groups=[(1, [9, 2], 2)])
    tried = programme(given)
    first = tried.propose()
    assert first == Proposal((0, 1), (2,), 17)
    tried.cut(first)
    assert tried.propose() == Proposal((0,), (0,), 10)
    tried.cut(Proposal((0,), (0,), 10))
    assert tried.propose() == Proposal((1,), (0,), 9)
    tried.cut(Proposal((1,), (0,), 9))
    assert tried.propose() == Proposal((0,), (1,), 9)
    assert tried.bound == 17


def test_large_cut_set_gives_up_its_least_valuable_nodes() -> None:
    given = half_empty(2, 150, 40)
    tried = programme(given, branches=0)
    first = tried.propose()
    assert first is not None
    tried.cut(first)
    second = tried.propose()
    assert second is not None
    assert len(set(first.gone) - set(second.gone)) >= len(first.gone) // 10
    assert second.gain > 0.7 * first.gain


def test_search_puts_back_what_a_limit_does_not_allow() -> None:
    """Each new node lets two more go, and takes no pod: one and a half would be best."""
    limits = [([1, 1, 1], [-2], 0)]
    given = problem(
        [[1, 1]], [10, 10, 1], [[0]] * 3, [[9, 9]] * 4, groups=[(4, [9, 9], 3)], limits=limits
    )
    assert (
        programme(given, branches=0).propose()
        == programme(given).propose()
        == Proposal((0, 1), (1,), 16)
    )


def test_limit_with_negative_amounts_asks_for_a_purchase() -> None:
    """A group at its minimum loses a node only if one is bought for it."""
    given = problem(
        [[1, 1]], [10], [[1]], [[9, 0], [9, 5]], groups=[(4, [9, 1], 3)], limits=[([1], [-1], 0)]
    )
    assert programme(given).propose() == Proposal((0,), (1,), 6)


def test_group_is_not_bought_where_a_node_of_its_shape_goes() -> None:
    given = problem(
        [[1, 2]], [10, 8], [[1], [1]], [[9, 0], [9, 0]], groups=[(3, [9, 2], 2), (5, [9, 2], 2)]
    )
    assert programme(given).propose() == Proposal((0, 1), (2, 0), 12)
    given = msgspec.structs.replace(given, same_shape=np.array([[True, False], [False, False]]))
    assert programme(given).propose() == Proposal((0, 1), (0, 2), 8)


def test_bytes_are_counted_exactly() -> None:
    for amount, goes in ((2**39, True), (2**39 + 1, False)):
        given = problem([[1, amount], [1, 2**39]], [5], [[1, 1]], [[9, 0], [9, 2**40]])
        assert (programme(given).propose() is not None) is goes


def test_nothing_goes_while_headroom_has_no_place() -> None:
    taken = programme(problem([[1, 5]], [5], [[1]], [[9, 0], [9, 5]], extra=[1]))
    assert taken.bound == 0
    assert taken.propose() is None
    given = problem([[1, 1], [1, 9]], [5], [[1, 0]], [[9, 1], [9, 5]], extra=[0, 1])
    assert programme(given).propose() is None
    assert programme(
        msgspec.structs.replace(given, pending=np.array([0, 0]))
    ).propose() == Proposal((0,), (), 5)


def test_largest_amounts_are_counted_without_overflow() -> None:
    most = 2**56
    need = [[1, most], [1, most - 1], [1, 1]]
    pods = [[1, 0, 1], [0, 1, 1], [1, 1, 0]]
    given = problem(need, [5, 3, 7], pods, [[9, most]] * 6, groups=[(1, [9, most], 2)])
    assert programme(given).propose() == optimum(given) == Proposal((0, 1, 2), (1,), 14)


def test_problem_without_candidates_or_pods_is_answered() -> None:
    assert programme(problem([[1, 1]], [], [], [[9, 9]])).propose() is None
    assert programme(problem([[1, 1]], [-5, 0], [[1], [0]], [[9, 9]] * 2)).propose() is None
    assert programme(problem([[1, 1]], [5], [[0]], [[9, 9]])).propose() == Proposal((0,), (), 5)
    empty = problem([[1, 1]], [5, 3], [[0], [0]], [[9, 9]] * 3, groups=[(1, [9, 9], 2)])
    none = msgspec.structs.replace(
        empty,
        need=empty.need[:0],
        pending=empty.pending[:0],
        pods=empty.pods[:, :0],
        fits=empty.fits[:, :0],
        group_fits=empty.group_fits[:, :0],
    )
    assert programme(none).propose() == programme(empty).propose() == Proposal((0, 1), (0,), 8)


# -- limits


def test_time_limit_returns_the_best_proposal_so_far() -> None:
    given = half_empty(3, 80, 30, old=2.0)
    assert Programme(given, rounds=10, branches=2000, stop=lambda: True).propose() is None
    gains = []
    for calls in (30, 60, 200):
        plan = Programme(
            given, rounds=10, branches=0, stop=partial(next, iter([False] * calls), True)
        ).propose()
        gains.append(plan.gain if plan else 0)
    whole = programme(given, branches=0).propose()
    assert whole is not None
    assert gains == sorted(gains)
    assert 0 < gains[-1] <= whole.gain


def test_without_the_solver_there_is_neither_proposal_nor_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # importing it fails
    tried = programme(random_small(2))
    assert tried.propose() is None
    assert tried.bound == math.inf
    assert not tried.proven
