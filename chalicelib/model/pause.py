"""An operator's pause of a cluster: what `outscaler pause` stores beside the policy.

A pause ends by itself, and it is no part of the document, so that neither a deployment of the same
policy nor a function that is down changes how long it lasts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

LONGEST_REASON = 200
"""Characters of a pause's reason."""
MOST = 50
"""Pauses of one cluster at a time."""


class PausedPart(StrEnum):
    """What is paused. With `all` the cluster plans, and nothing acts."""

    ALL = "all"
    GROWTH = "growth"
    REMOVALS = "removals"


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pause. group: a node group's id, "" for the whole cluster. since, until: epoch
    seconds. by: the caller's ARN."""

    until: float
    since: float = 0.0
    part: PausedPart = PausedPart.ALL
    group: str = ""
    reason: str = ""
    by: str = ""

    @property
    def scope(self) -> tuple[PausedPart, str]:
        """Return what identifies the pause: another one of the same scope replaces it."""
        return self.part, self.group


def in_force(pauses: Iterable[Pause], now: float) -> tuple[Pause, ...]:
    """Return the pauses that have not ended at `now`, the one that ends last first."""
    return tuple(
        sorted(
            (pause for pause in pauses if pause.until > now),
            key=lambda pause: (-pause.until, pause.scope),
        )
    )


def whole(pauses: Iterable[Pause]) -> Pause | None:
    """Return the pause of the whole cluster that ends last; None where there is none."""
    return _last(pause for pause in pauses if pause.part is PausedPart.ALL and not pause.group)


def of_growth(pauses: Iterable[Pause], group: str = "") -> Pause | None:
    """Return the pause that keeps a group from being scaled up; None where there is none. A pause
    of the whole cluster is no such pause: the plan shows what would be done without it."""
    return _last(pause for pause in pauses if _concerns(pause, PausedPart.GROWTH, group))


def of_removals(pauses: Iterable[Pause], group: str = "") -> Pause | None:
    """Return the pause that keeps a group's nodes from being removed. group "": the one of
    all groups. See of_growth."""
    return _last(pause for pause in pauses if _concerns(pause, PausedPart.REMOVALS, group))


def _concerns(pause: Pause, part: PausedPart, group: str) -> bool:
    if pause.group:
        return pause.group == group and pause.part in (part, PausedPart.ALL)
    return pause.part is part


def _last(pauses: Iterable[Pause]) -> Pause | None:
    return max(pauses, key=lambda each: each.until, default=None)
