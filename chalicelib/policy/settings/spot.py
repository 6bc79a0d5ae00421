"""spec.spot: nodes that their vendor may take back (docs/reference/spot.md)."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class InterruptionAction(StrEnum):
    """Whether nodes that their vendor takes back are evacuated, or only reported."""

    ACT = "act"
    REPORT = "report"


class RebalanceAction(StrEnum):
    """What a vendor's recommendation to leave a node is worth."""

    IGNORE = "ignore"
    PREFER = "prefer"


class Spot(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.spot (docs/reference/spot.md). groups: ids or names of groups or pools, those that their
    provider or a label calls spot without any. avoid_after_interruption, return_after: seconds.
    max_share: of the nodes of a pool that one spot group may hold. on_demand_base: nodes of a pool
    that stay on demand."""

    groups: tuple[str, ...] = ()
    interruptions: InterruptionAction = InterruptionAction.ACT
    avoid_after_interruption: float = 1800.0
    return_after: float = 3600.0
    max_share: float = 1.0
    on_demand_base: int = 0
    rebalance: RebalanceAction = RebalanceAction.IGNORE
