"""The words of least-cost: what may be bought, what asks for room, the limits over all of them, and what was bought.

`grow` speaks in groups and classes; the search below speaks in numbers only. These are the structs in which the one
tells the other, so that the search can be tried without a cluster. `Load` is the search's own word for alike nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.plan.tables.array_types import Ints

Stop = Callable[[], bool]


class Trouble(OutscalerError):
    """The search cannot go on: no solver, or the solver gave up. The chain of expanders goes on without it."""


class Offer(msgspec.Struct, frozen=True):
    """A group that may grow.

    free:  what an empty new node has left for pods, R amounts; column 0 is the number of pods
    price: of one node, in any unit; not finite: the group is not for sale
    most:  how many nodes may still be bought
    """

    group: str
    free: Ints
    price: float
    most: int


class Ask(msgspec.Struct, frozen=True):
    """Pods that are alike.

    need:     what one pod takes, R amounts; column 0 is 1
    count:    how many pods
    fits:     per offer, whether its nodes may hold such a pod at all
    per_node: how many of them one node may hold, whatever its room; a large number where there is no such rule
    """

    need: Ints
    count: int
    fits: tuple[bool, ...]
    per_node: int


class Shared(msgspec.Struct, frozen=True):
    """A limit over the whole cluster: nodes of each offer times `amounts`, summed, is at most `most`."""

    amounts: tuple[int, ...]
    most: int


class Bought(msgspec.Struct, frozen=True):
    """`nodes` new nodes alike. offer: its index; pods: index of an ask -> pods of it on each of the nodes."""

    offer: int
    nodes: int
    pods: dict[int, int]


class Load(msgspec.Struct, frozen=True):
    """`nodes` nodes of an offer of a Problem, each with pods[a] pods of its ask a."""

    offer: int
    pods: Ints
    nodes: int


Loads = Sequence[Load]
