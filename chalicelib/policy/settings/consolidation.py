"""spec.consolidation: whether needed nodes go, too (docs/reference/consolidation.md)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.policy.settings.node_limit import NodeLimit


class ConsolidationMode(StrEnum):
    """`off` looks at nothing, `shadow` plans and explains moves, `remove` drains nodes into room
    that exists, `full` buys cheaper nodes, too."""

    OFF = "off"
    SHADOW = "shadow"
    REMOVE = "remove"
    FULL = "full"


class Effort(StrEnum):
    """How long the programme of a consolidation searches: its rounds and branch nodes."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Consolidation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.consolidation (docs/reference/consolidation.md). groups: ids or names of groups or
    pools, every group with a price. aggressiveness: a move must bring more than 1/aggressiveness of
    its pool's price per share of its disruption. min_savings: a share of the price of the nodes
    that go. replace_timeout: None as the group's maxNodeProvisionTime. Durations are seconds."""

    mode: ConsolidationMode = ConsolidationMode.OFF
    groups: tuple[str, ...] = ()
    aggressiveness: float = 2.0
    min_savings: float = 0.1
    quiet_time: float = 600.0
    min_node_age: float = 1800.0
    confirm_after: float = 60.0
    price_settle_time: float = 1800.0
    max_surge: NodeLimit = NodeLimit(share=0.1)
    max_replacements: int = 3
    moves_per_pod_per_day: int = 4
    split_nodes: bool = True
    spot_to_spot: bool = False
    min_cheaper_groups: int = 3
    replace_timeout: float | None = None
    effort: Effort = Effort.NORMAL
