"""The verdicts of drain rules, and the context that rules may use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from chalicelib.model.pod import Pod
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import Controller

# Controllers that recreate a pod on another node.
KNOWN_CONTROLLERS = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")


class Action(StrEnum):
    """What happens to the pod when its node is removed."""

    SKIP = "skip"  # it is ignored
    MOVE = "move"  # evicted; must find a place on another node
    EVICT = "evict"  # evicted on a best-effort basis; needs no place
    WAIT = "wait"  # the node waits for it to complete
    BLOCK = "block"  # it blocks the removal of the node


class Verdict(msgspec.Struct, frozen=True):
    """An action; for BLOCK also the rule's reason."""

    action: Action
    reason: Reason | None = None


MOVABLE = Verdict(Action.MOVE)
SKIP = Verdict(Action.SKIP)
EVICT = Verdict(Action.EVICT)
WAIT = Verdict(Action.WAIT)


def block(reason: Reason) -> Verdict:
    """Return a verdict that blocks the removal of the pod's node."""
    return Verdict(Action.BLOCK, reason)


class Allowances(Protocol):
    """The disruptions that PodDisruptionBudgets still allow in this pass (plan/scale_down/pdb_tracker.py)."""

    def of(self, cls: int) -> tuple[str, ...]:
        """Return the budgets that select a class."""

    def spent_by(self, pod: Pod) -> tuple[str, ...]:
        """Return which of these budgets lose a disruption when the pod is evicted."""

    def left(self, name: str) -> int:
        """Return the disruptions left."""


class DrainContext(msgspec.Struct, frozen=True):
    """Inputs of a drain rule. controllers: by (kind, namespace, name); controller_kinds: the kinds that could be
    read."""

    now: float
    options: Options
    controllers: Mapping[tuple[str, str, str], Controller]
    controller_kinds: frozenset[str]
    budgets: Allowances
