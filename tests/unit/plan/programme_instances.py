"""Problems of the consolidation programme: small ones, with their optimum by enumeration, and half-empty clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from chalicelib.plan.disruption.consolidation.programme import ConsolidationProblem, Proposal
from chalicelib.plan.tables import Bools, Ints


def whole(rows: Sequence[object], *shape: int) -> Ints:
    """An array of integers; -1 in a shape is the number of rows."""
    return np.array(rows, dtype=np.int64).reshape(shape)


def never() -> bool:
    """No time limit."""
    return False


def problem(
    need: Sequence[Sequence[int]],
    saves: Sequence[int],
    pods: Sequence[Sequence[int]],
    free: Sequence[Sequence[int]],
    *,
    extra: Sequence[int] = (),
    groups: Sequence[tuple[int, Sequence[int], int]] = (),
    limits: Sequence[tuple[Sequence[int], Sequence[int], int]] = (),
    fits: Bools | None = None,
    group_fits: Bools | None = None,
    same_shape: Bools | None = None,
) -> ConsolidationProblem:
    """A problem. groups: price, room and most of each; limits: going, buying and limit of each."""
    classes, width = len(need), len(need[0])
    everywhere = np.ones((len(free), classes), dtype=np.bool_)
    return ConsolidationProblem(
        need=whole(need, classes, width),
        extra=whole(extra or [0] * classes, classes),
        saves=whole(saves, len(saves)),
        pods=whole(pods, len(saves), classes),
        free=whole(free, len(free), width),
        fits=everywhere if fits is None else fits,
        price=whole([price for price, _, _ in groups], len(groups)),
        room=whole([room for _, room, _ in groups], len(groups), width),
        group_fits=np.ones((len(groups), classes), dtype=np.bool_) if group_fits is None else group_fits,
        most=whole([most for _, _, most in groups], len(groups)),
        going=whole([going for going, _, _ in limits], len(limits), len(saves)),
        buying=whole([buying for _, buying, _ in limits], len(limits), len(groups)),
        limit=whole([limit for _, _, limit in limits], len(limits)),
        same_shape=np.zeros((len(groups), len(saves)), dtype=np.bool_) if same_shape is None else same_shape,
    )


def random_small(seed: int) -> ConsolidationProblem:
    """Up to five candidates, two nodes that stay, three classes, two groups and two limits."""
    chance = np.random.default_rng(seed)
    nodes, stays, classes, groups, limits = (
        int(chance.integers(low, high)) for low, high in ((1, 6), (0, 3), (1, 4), (0, 3), (0, 3))
    )
    return problem(
        need=[[1, *chance.integers(0, 5, 2).tolist()] for _ in range(classes)],
        saves=chance.integers(-1, 8, nodes).tolist(),
        pods=chance.choice([0, 0, 1, 1, 2], (nodes, classes)).tolist(),
        free=[[int(chance.integers(0, 6)), *chance.integers(0, 9, 2).tolist()] for _ in range(nodes + stays)],
        extra=chance.choice([0, 0, 0, 1], classes).tolist(),
        groups=[
            (int(chance.integers(0, 8)), [4, *chance.integers(2, 12, 2).tolist()], int(chance.integers(0, 3)))
            for _ in range(groups)
        ],
        limits=[
            (
                chance.integers(-1, 3, nodes).tolist(),
                chance.integers(-1, 3, groups).tolist(),
                int(chance.integers(-1, 5)),
            )
            for _ in range(limits)
        ],
        fits=chance.random((nodes + stays, classes)) < 0.8,
        group_fits=chance.random((groups, classes)) < 0.8,
        same_shape=chance.random((groups, nodes)) < 0.2,
    )


def placeable(given: ConsolidationProblem, gone: Sequence[int], bought: Sequence[int]) -> bool:
    """Whether all pods of the nodes that go find whole places, by trying all of them."""
    staying = [at for at in range(len(given.free)) if at not in gone]
    new = [group for group, count in enumerate(bought) for _ in range(count)]
    rooms = [*(np.maximum(given.free[at], 0) for at in staying), *(given.room[group] for group in new)]
    fits = [*(given.fits[at] for at in staying), *(given.group_fits[group] for group in new)]
    count = given.extra + given.pods[list(gone)].sum(axis=0)
    pods = [cls for cls in range(len(count)) for _ in range(int(count[cls]))]

    def place(at: int, free: list[Ints]) -> bool:
        if at == len(pods):
            return True
        seen = set()
        for node in range(len(free)):
            after = free[node] - given.need[pods[at]]
            key = (free[node].tobytes(), fits[node].tobytes())
            if fits[node][pods[at]] and (after >= 0).all() and key not in seen:
                seen.add(key)
                if place(at + 1, [*free[:node], after, *free[node + 1 :]]):
                    return True
        return False

    return place(0, rooms)


def plans(given: ConsolidationProblem) -> Iterator[Proposal]:
    """All plans that keep all limits and pay, the best and simplest first; whether the pods fit is not checked.

    No more nodes of a group are bought than there are pods, and none that takes no pod, unless a purchase frees room in
    a limit.
    """
    nodes, groups = len(given.saves), len(given.price)
    takes = (given.need[None, :, :] <= given.room[:, None, :]).all(axis=2) & given.group_fits
    frees = (given.buying < 0).any(axis=0)
    count = given.extra + given.pods[(given.saves > 0) | (given.going < 0).any(axis=0)].sum(axis=0)
    most = np.where(frees, given.most, np.minimum(given.most, count.sum()) * (takes & (count > 0)).any(axis=1))
    found = []
    for size in range(nodes + 1):
        for gone in combinations(range(nodes), size):
            for bought in product(*(range(int(count) + 1) for count in most)):
                gain = int(given.saves[list(gone)].sum()) - sum(
                    int(p) * n for p, n in zip(given.price, bought, strict=True)
                )
                used = given.going[:, list(gone)].sum(axis=1) + (given.buying * whole(bought, groups)).sum(axis=1)
                clash = any(given.same_shape[g, n] for g in range(groups) if bought[g] for n in gone)
                if gain > 0 and (used <= given.limit).all() and not clash:
                    found.append(Proposal(gone, bought, gain))
    yield from sorted(found, key=lambda p: (-p.gain, len(p.gone), sum(p.bought), sum(p.gone), p.gone, p.bought))


def optimum(given: ConsolidationProblem, cuts: Sequence[Proposal] = ()) -> Proposal | None:
    """The best and simplest plan, by enumeration."""
    for plan in plans(given):
        cut = any(
            set(cut.gone) <= set(plan.gone) and all(a <= b for a, b in zip(plan.bought, cut.bought, strict=True))
            for cut in cuts
        )
        if not cut and placeable(given, plan.gone, plan.bought):
            return plan
    return None
