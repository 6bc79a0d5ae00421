"""spec.nodeLifecycle: nodes that are old, drifted or sick (docs/reference/node-lifecycle.md)."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class DriftAction(StrEnum):
    """What happens to a node that its group would create otherwise now."""

    OFF = "off"
    REPORT = "report"
    REPLACE = "replace"


class RepairAction(StrEnum):
    """What happens to a sick node. A node that is sick again after its restart is replaced."""

    RESTART = "restart"
    REPLACE = "replace"


class RepairRule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of spec.nodeLifecycle.repair: nodes with the condition in one of these statuses for
    `after` seconds are sick. flap_time: an interruption of the condition that is shorter does not
    reset this time. groups: ids or names of groups or pools, all groups without any."""

    condition: str
    after: float
    status: tuple[str, ...] = ("True",)
    flap_time: float = 60.0
    action: RepairAction = RepairAction.REPLACE
    groups: tuple[str, ...] = ()


class NodeLifecycle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.nodeLifecycle (docs/reference/node-lifecycle.md). max_node_age: None: nodes may grow
    old. groups: ids or names of groups or pools to which age and drift apply, all groups without
    any. jitter: the largest share of max_node_age by which a node goes earlier. expiry_grace:
    seconds after max_node_age until a node is reported as overdue. max_unhealthy: a group with a
    larger share of sick nodes is not repaired. annotations: whether karpenter.sh/do-not-disrupt
    holds expired and drifted nodes; it never holds a repair."""

    max_node_age: float | None = None
    groups: tuple[str, ...] = ()
    jitter: float = 0.1
    expiry_grace: float = 72 * 3600.0
    drift: DriftAction = DriftAction.REPORT
    repair: tuple[RepairRule, ...] = ()
    max_unhealthy: float = 0.2
    annotations: bool = True
