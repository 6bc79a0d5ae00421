"""What managed pools could buy when a decision was made, for people who have the decision without
the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.managed_group import MachineChoice, PoolSelection
from chalicelib.model.reason import Reason

MOST_CHEAPEST = 5
"""Machines that fit a pod and are named, the cheapest."""


class OfferedMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine of which a managed pool has a group, or could open one. group: its id. price: of a
    node an hour, 0.0: unknown. most: nodes of the group. room: what an empty node has for pods, {}:
    unknown. stop: why no node could be bought."""

    group: str
    choice: MachineChoice
    price: float = 0.0
    currency: str = ""
    most: int = 0
    is_open: bool = False
    room: dict[str, int] = {}
    stop: Reason | None = None


class MachineOffers(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a decision was chosen from. selections: of the declarations. machines: by price,
    then by group."""

    selections: tuple[PoolSelection, ...] = ()
    machines: tuple[OfferedMachine, ...] = ()

    def better(self, machine: OfferedMachine) -> OfferedMachine | None:
        """Return the cheapest other machine of the declaration, zone and market that could be
        bought and has at least the room at no higher price, None if there is none. Of equal ones
        the first by group is better."""
        for other in self.machines:
            if other.group == machine.group:
                return None
            is_alike = other.choice.kind == machine.choice.kind and bool(other.price)
            if is_alike and other.stop is None and _has_room_of(machine, other.room):
                return other
        return None


class PoolFit(msgspec.Struct, frozen=True):
    """How many machines of a declaration a pod fits, and the groups of the cheapest of these."""

    count: int = 0
    cheapest: tuple[str, ...] = ()


class ClassFit(msgspec.Struct, frozen=True):
    """What managed pools have for equal pods, each as namespace/name. pools: by declaration."""

    pods: tuple[str, ...] = ()
    pools: dict[str, PoolFit] = {}


class PodFits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What managed pools had for the pods of a decision. offers: by which the store knows the
    MachineOffers."""

    offers: str = ""
    classes: tuple[ClassFit, ...] = ()


def _has_room_of(machine: OfferedMachine, offered: Mapping[str, int]) -> bool:
    if not machine.room or not offered:
        return False
    return all(offered.get(name, 0) >= amount for name, amount in machine.room.items())
