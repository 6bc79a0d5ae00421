"""Moves: nodes that go, nodes that are bought for their pods, and what that is worth.

All prices are integers in millionths per hour, so that equal prices are equal. The value of a move
is what it saves less the price of its disruption. It is worth it if that is above zero. See
docs/reference/consolidation.md "Score".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Replacement
from chalicelib.model.plan import Move, MovePurchase
from chalicelib.model.reason import Reason
from chalicelib.plan.prices import MICRO
from chalicelib.plan.removal.simulate import SimulatedRemoval


class JudgedMove(msgspec.Struct, frozen=True):
    """A move whose pods all find a place in every tried order, within all limits.

    removals: the nodes that go, in the order of removal, with the places of their pods. purchases:
    group id -> nodes that are bought first. price: of the nodes that go; cost: of the purchases.
    disruption: sum of D over the nodes that go; disruption_price: what it costs by the rates of
    their pools. score: see docs/reference/consolidation.md "Score". pool: of the nodes that go; ""
    if they are of several. prices: group id -> price of one node that is bought. once: costs that
    are paid once, per hour of the horizon: the overlap, and paid time of the old nodes that is not
    used. reason: why the nodes go.
    """

    removals: tuple[SimulatedRemoval, ...]
    purchases: Mapping[str, int]
    price: int
    cost: int
    disruption: float
    disruption_price: int
    score: float
    pool: str = ""
    prices: Mapping[str, int] = {}
    once: int = 0
    reason: DisruptionReason = DisruptionReason.CONSOLIDATION

    @property
    def saves(self) -> int:
        """Return what the move saves per hour."""
        return self.price - self.cost

    @property
    def gain(self) -> int:
        """Return what the move saves less the price of its disruption and what is paid once."""
        return self.saves - self.disruption_price - self.once

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that go, in the order of removal."""
        return tuple(removal.node.name for removal in self.removals)


Judge = Callable[[Sequence[str], int], JudgedMove | Reason]
"""Judges a move whose purchases exist already: names of the nodes that go, and the price of what
was bought for them. Returns the move as the present snapshot allows it (score at least 0.8/k,
minSavings, every order), or why it is not done any more. The simulated cluster is left
unchanged."""


def reported(
    move: JudgedMove | Replacement,
    purchases: Iterable[tuple[str, int, int]],
    state: str,
    replacement: str,
    currency: str,
    once: int = 0,
) -> Move:
    """Return a move as the plan states it. purchases: (group, nodes, price of one); once: what is
    paid once, per hour."""
    saves = move.price - move.cost
    return Move(
        nodes=move.nodes,
        purchases=tuple(
            MovePurchase(group, nodes, price / MICRO) for group, nodes, price in purchases
        ),
        price=move.price / MICRO,
        saves=saves / MICRO,
        disruption=move.disruption,
        gain=(saves - move.disruption_price - once) / MICRO,
        score=round(move.score, 4),
        state=state,
        pool=move.pool,
        replacement=replacement,
        currency=currency,
    )
