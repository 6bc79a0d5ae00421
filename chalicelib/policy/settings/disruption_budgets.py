"""spec.disruptionBudgets: how many nodes of a pool may be on their way out at once."""

from __future__ import annotations

import msgspec

from chalicelib.model.reason import DisruptionReason
from chalicelib.policy.settings.node_limit import NodeLimit


class DisruptionBudget(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of spec.disruptionBudgets: how many nodes of each pool may be on their way out at
    once. groups: the pools, without any all pools. reasons: what it limits, without any every
    reason but `unneeded`. cron, duration, time_zone: when it holds, as for a Window; always if cron
    is empty."""

    name: str
    nodes: NodeLimit
    groups: tuple[str, ...] = ()
    reasons: tuple[DisruptionReason, ...] = ()
    cron: str = ""
    duration: float = 0.0
    time_zone: str = "UTC"
