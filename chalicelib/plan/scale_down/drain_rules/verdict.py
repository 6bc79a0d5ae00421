"""What a drain rule may answer, and what it may ask."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from chalicelib.model.pod import Pod
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import Controller

# Controllers that make a pod again somewhere else.
KNOWN_CONTROLLERS = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")


class Action(StrEnum):
    """What becomes of the pod when its node goes."""

    SKIP = "skip"  # it does not matter
    MOVE = "move"  # evicted, and must find a place elsewhere
    EVICT = "evict"  # evicted as far as possible, needs no place
    WAIT = "wait"  # the node waits for it to complete
    BLOCK = "block"  # it holds the node


class Verdict(msgspec.Struct, frozen=True):
    """An action; for BLOCK the rule's reason."""

    action: Action
    reason: Reason | None = None


MOVABLE = Verdict(Action.MOVE)
SKIP = Verdict(Action.SKIP)
EVICT = Verdict(Action.EVICT)
WAIT = Verdict(Action.WAIT)


def block(reason: Reason) -> Verdict:
    """The pod holds its node."""
    return Verdict(Action.BLOCK, reason)


class Allowances(Protocol):
    """What the PodDisruptionBudgets still allow in this pass (plan/budgets.py)."""

    def of(self, cls: int) -> tuple[str, ...]:
        """The budgets that select a class."""

    def spent_by(self, pod: Pod) -> tuple[str, ...]:
        """Of these, the ones that evicting the pod takes a disruption of."""

    def left(self, name: str) -> int:
        """Disruptions left."""


class DrainContext(msgspec.Struct, frozen=True):
    """What a rule may ask. controllers: by (kind, namespace, name); controller_kinds: those that could be read."""

    now: float
    options: Options
    controllers: Mapping[tuple[str, str, str], Controller]
    controller_kinds: frozenset[str]
    budgets: Allowances
