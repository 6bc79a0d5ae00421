"""Problems of the consolidation programme: small ones, with their optimum by enumeration,
and half-empty clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from chalicelib.plan.packing.problem import PackingProblem
from chalicelib.plan.removal.consolidation.programme import Proposal
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
) -> PackingProblem:
    """A problem. groups: price, room and most of each; limits: going, buying and limit of each."""
    classes, width = len(need), len(need[0])
    everywhere = np.ones((len(free), classes), dtype=np.bool_)
    return PackingProblem(
        need=whole(need, classes, width),
        pending=whole(extra or [0] * classes, classes),
        saves=whole(saves, len(saves)),
        pods=whole(pods, len(saves), classes),
        free=whole(free, len(free), width),
        fits=everywhere if fits is None else fits,
        price=whole([price for price, _, _ in groups], len(groups)),
        room=whole([room for _, room, _ in groups], len(groups), width),
        group_fits=np.ones((len(groups), classes), dtype=np.bool_)
        if group_fits is None
        else group_fits,
        most=whole([most for _, _, most in groups], len(groups)),
        going=whole([going for going, _, _ in limits], len(limits), len(saves)),
        buying=whole([buying for _, buying, _ in limits], len(limits), len(groups)),
        limit=whole([limit for _, _, limit in limits], len(limits)),
        same_shape=np.zeros((len(groups), len(saves)), dtype=np.bool_)
        if same_shape is None
        else same_shape,
    )


def random_small(seed: int) -> PackingProblem:
    """Up to five candidates, two nodes that stay, three classes, two groups and two limits."""
    chance = np.random.default_rng(seed)
    nodes, stays, classes, groups, limits = (
        int(chance.integers(low, high)) for low, high in ((1, 6), (0, 3), (1, 4), (0, 3), (0, 3))
    )
    return problem(
        need=[[1, *chance.integers(0, 5, 2).tolist()] for _ in range(classes)],
        saves=chance.integers(-1, 8, nodes).tolist(),
        pods=chance.choice([0, 0, 1, 1, 2], (nodes, classes)).tolist(),
        free=[
            [int(chance.integers(0, 6)), *chance.integers(0, 9, 2).tolist()]
            for _ in range(nodes + stays)
        ],
        extra=chance.choice([0, 0, 0, 1], classes).tolist(),
        groups=[
            (
                int(chance.integers(0, 8)),
                [4, *chance.integers(2, 12, 2).tolist()],
                int(chance.integers(0, 3)),
            )
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


def placeable(given: PackingProblem, gone: Sequence[int], bought: Sequence[int]) -> bool:
    """Whether all pods of the nodes that go find whole places, by trying all of them."""
    staying = [at for at in range(len(given.free)) if at not in gone]
    new = [group for group, count in enumerate(bought) for _ in range(count)]
    rooms = [
        *(np.maximum(given.free[at], 0) for at in staying),
        *(given.room[group] for group in new),
    ]
    fits = [*(given.fits[at] for at in staying), *(given.group_fits[group] for group in new)]
    count = given.pending + given.pods[list(gone)].sum(axis=0)
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


def plans(given: PackingProblem) -> Iterator[Proposal]:
    """All plans that keep all limits and pay, the best and simplest first; whether the
    pods fit is not checked.

    No more nodes of a group are bought than there are pods, and none that takes no pod, unless a
    purchase frees room in a limit.
    """
    nodes, groups = len(given.saves), len(given.price)
    takes = (given.need[None, :, :] <= given.room[:, None, :]).all(axis=2) & given.group_fits
    frees = (given.buying < 0).any(axis=0)
    count = given.pending + given.pods[(given.saves > 0) | (given.going < 0).any(axis=0)].sum(
        axis=0
    )
    most = np.where(
        frees, given.most, np.minimum(given.most, count.sum()) * (takes & (count > 0)).any(axis=1)
    )
    found = []
    for size in range(nodes + 1):
        for gone in combinations(range(nodes), size):
            for bought in product(*(range(int(count) + 1) for count in most)):
                gain = int(given.saves[list(gone)].sum()) - sum(
                    int(p) * n for p, n in zip(given.price, bought, strict=True)
                )
                used = given.going[:, list(gone)].sum(axis=1) + (
                    given.buying * whole(bought, groups)
                ).sum(axis=1)
                clash = any(
                    given.same_shape[g, n] for g in range(groups) if bought[g] for n in gone
                )
                if gain > 0 and (used <= given.limit).all() and not clash:
                    found.append(Proposal(gone, bought, gain))
    yield from sorted(
        found, key=lambda p: (-p.gain, len(p.gone), sum(p.bought), sum(p.gone), p.gone, p.bought)
    )


def optimum(given: PackingProblem, cuts: Sequence[Proposal] = ()) -> Proposal | None:
    """The best and simplest plan, by enumeration."""
    for plan in plans(given):
        cut = any(
            set(cut.gone) <= set(plan.gone)
            and all(a <= b for a, b in zip(plan.bought, cut.bought, strict=True))
            for cut in cuts
        )
        if not cut and placeable(given, plan.gone, plan.bought):
            return plan
    return None


_SHAPES = whole(
    [[110, 4000, 16384], [110, 8000, 32768], [110, 8000, 65536], [110, 16000, 65536]], 4, 3
)
_PRICES = whole([200_000, 380_000, 460_000, 740_000], 4)
_ZONES = 3


def half_empty(
    seed: int,
    nodes: int,
    classes: int = 60,
    *,
    filled: float = 0.5,
    stays: float = 0.0,
    old: float = 1.0,
) -> PackingProblem:
    """Nodes of four shapes in three zones, each filled with random pods to about a share of its
    cpu; some classes are bound to a zone or a shape. stays: share of nodes that stay. old: times
    the price of today's nodes of two shapes."""
    chance = np.random.default_rng(seed)
    cpu = chance.choice(
        [100, 200, 250, 500, 750, 1000, 1500, 2000],
        classes,
        p=[0.2, 0.15, 0.15, 0.2, 0.1, 0.1, 0.05, 0.05],
    )
    memory = cpu * chance.choice([1, 2, 4, 8], classes, p=[0.2, 0.3, 0.35, 0.15])
    need: Ints = np.stack([np.ones_like(cpu), cpu, memory], axis=1).astype(np.int64)
    zone = np.where(chance.random(classes) < 0.2, chance.integers(0, _ZONES, classes), -1)
    shape = np.where(chance.random(classes) < 0.1, chance.integers(0, len(_SHAPES), classes), -1)
    shapes, zones = chance.integers(0, len(_SHAPES), nodes), chance.integers(0, _ZONES, nodes)
    group_shapes, group_zones = (
        np.repeat(np.arange(len(_SHAPES)), _ZONES),
        np.tile(np.arange(_ZONES), len(_SHAPES)),
    )

    def suits(some_shapes: Ints, some_zones: Ints) -> Bools:
        suited: Bools = (zone < 0) | (zone == some_zones[:, None])
        suited &= (shape < 0) | (shape == some_shapes[:, None])
        return suited

    fits, free = suits(shapes, zones), _SHAPES[shapes].copy()
    pods: Ints = np.zeros((nodes, classes), dtype=np.int64)
    for node in range(nodes):
        aim = (1 - filled - chance.uniform(-0.2, 0.2)) * _SHAPES[shapes[node], 1]
        for cls in chance.integers(0, classes, 60).tolist():
            if free[node, 1] > aim and fits[node, cls] and (free[node] >= need[cls]).all():
                pods[node, cls] += 1
                free[node] -= need[cls]
    price = np.where(shapes < 2, _PRICES[shapes] * old, _PRICES[shapes])
    disruption = 1 + pods.sum(axis=1)
    going = nodes - int(nodes * stays)
    saves = (price - price.sum() / (2 * disruption.sum()) * disruption).astype(np.int64)[:going]
    return problem(
        need.tolist(),
        saves.tolist(),
        pods[:going].tolist(),
        free.tolist(),
        groups=[(int(_PRICES[at]), _SHAPES[at].tolist(), 50) for at in group_shapes.tolist()],
        limits=[([1] * going, [0] * len(group_shapes), going)],
        fits=fits,
        group_fits=suits(group_shapes, group_zones),
        same_shape=(group_shapes[:, None] == shapes[None, :going])
        & ((old == 1) | (shapes[:going] >= 2)),
    )


def first_fit_removals(given: PackingProblem) -> int:
    """The gain of removing nodes one by one, those that bring most per pod first, into the first
    nodes with room. Limits are not looked at, and nothing is bought."""
    nodes, free = len(given.saves), np.maximum(given.free, 0)
    takers: Bools = np.zeros(len(free), dtype=np.bool_)
    open_: Bools = np.ones(len(free), dtype=np.bool_)
    gain, largest = 0, np.argsort(-given.need[:, 1], kind="stable")
    for node in np.argsort(-given.saves / (1 + given.pods.sum(axis=1)), kind="stable").tolist():
        if given.saves[node] <= 0 or takers[node]:
            continue
        after, used = free.copy(), takers.copy()
        open_[node] = False
        for cls in largest[given.pods[node, largest] > 0].tolist():
            rows = np.flatnonzero(given.fits[:, cls] & open_)
            asks = given.need[cls] > 0
            room = (after[np.ix_(rows, asks)] // given.need[cls, asks]).min(axis=1)
            put = np.clip(given.pods[node, cls] - (np.cumsum(room) - room), 0, room)
            after[rows] -= put[:, None] * given.need[cls]
            used[rows] |= (put > 0) & (rows < nodes)
            if put.sum() < given.pods[node, cls]:
                open_[node] = True
                break
        else:
            free, takers = after, used
            gain += int(given.saves[node])
    return gain
