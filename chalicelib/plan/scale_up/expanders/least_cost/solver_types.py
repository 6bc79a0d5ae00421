"""Solver types of least-cost: what may be bought, what requests room, the limits over all of them, and what was bought.

The scale-up search works with groups and classes; the solver works with numbers only. These structs carry data between
them, so that the solver can be tested without a cluster. `Load` is the solver's own type for equal nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from chalicelib.model.errors import OutscalerError
from chalicelib.plan.tables.array_types import Floats, Ints

Stop = Callable[[], bool]


def dot(rows: Ints, weights: Floats) -> Floats:
    """Return rows [..., K] weighted by weights [K], summed in the same order on every processor. BLAS, which `@` uses
    for floats, sums as the processor likes, and the last digit decides between loads of equal value."""
    total: Floats = np.einsum("...k,k->...", rows, weights)
    return total


class Trouble(OutscalerError):
    """The solver is missing or gave up. The chain of expanders continues without least-cost."""


class Offer(msgspec.Struct, frozen=True):
    """A group that may scale up.

    free:  room for pods on an empty new node, R amounts; column 0 is the number of pods
    price: of one node, in any unit; not finite: the group cannot be bought
    most:  how many nodes may still be bought
    """

    group: str
    free: Ints
    price: float
    most: int


class Ask(msgspec.Struct, frozen=True):
    """Equal pods.

    need:     what one pod requests, R amounts; column 0 is 1
    count:    number of pods
    fits:     per offer, whether its nodes may run such a pod at all
    per_node: maximum of these pods on one node, regardless of room; a large number if there is no such rule
    """

    need: Ints
    count: int
    fits: tuple[bool, ...]
    per_node: int


class Shared(msgspec.Struct, frozen=True):
    """A limit over the whole cluster: the sum over all offers of nodes times `amounts` is at most `most`."""

    amounts: tuple[int, ...]
    most: int


class Bought(msgspec.Struct, frozen=True):
    """`nodes` equal new nodes. offer: its index; pods: index of an ask -> pods of it on each of the nodes."""

    offer: int
    nodes: int
    pods: dict[int, int]


class Load(msgspec.Struct, frozen=True):
    """`nodes` nodes of an offer of a Problem, each with pods[a] pods of its ask a."""

    offer: int
    pods: Ints
    nodes: int


Loads = Sequence[Load]
