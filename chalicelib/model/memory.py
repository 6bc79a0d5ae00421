"""What must outlive a process (state.md §9). The planner takes it and returns the next; the store keeps the difference.

Nothing in here is kept anywhere else: a cold start is the normal case.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.reason import Reason
from chalicelib.model.scaling_rules import RuleObject


class ScaleUpRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes asked for and not here yet (state.md §5)."""

    increase: int
    since: float
    expected_at: float


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """state.md §7: in back-off while until >= now; forgotten when last_failed is over the reset time ago."""

    duration: float
    until: float
    last_failed: float
    cls: str = ""
    code: str = ""
    message: str = ""
    attempt: int = 1


class FailedRemoval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node whose removal failed. until: it is not tried before; times: how often in a row; why: the last failure."""

    until: float
    times: int = 1
    why: str = ""


class GroupMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"failed_instances": "erred"}):
    """Per node group."""

    target: int = 0
    request: ScaleUpRequest | None = None
    backoff: Backoff | None = None
    last_add: float = 0.0
    last_delete: float = 0.0
    last_failure: float = 0.0
    size_wrong_since: float = 0.0
    size_wrong: tuple[int, int] = (0, 0)  # (registered, target) as first seen
    failed_instances: tuple[str, ...] = ()  # instances whose creation error was already counted
    repair_failures: int = 0  # repairs (discard, shrink) that failed since one came through
    repair_after: float = 0.0  # none is tried before
    failed_removals: dict[str, FailedRemoval] = {}  # by node
    first_seen: float = 0.0  # the first pass that took the group for this cluster's; 0.0: none yet


class NodeMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Per node. confirmed_at: the last pass that knew it to be unneeded; one that could not judge it moves both
    instants on, so that the time already counted stays."""

    unneeded_since: float = 0.0
    confirmed_at: float = 0.0
    unremovable_until: float = 0.0
    why: Reason | None = None  # why it was unremovable when it was last tried


class LearntTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A template copied from a real, ready node of the group (scale-up.md §4)."""

    node: Node
    learnt_at: float


class BreakerState(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"tripped_at": "pulled", "removals": "taken"}
):
    """What removals have taken lately. taken: (instant, nodes, pods) of the plans of the last hour. pulled: since when
    nothing is removed because a plan wanted more than policy allows at once; 0.0: it is not. wanted: how many nodes."""

    removals: tuple[tuple[float, int, int], ...] = ()
    tripped_at: float = 0.0
    wanted: int = 0


class RuleMemory(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "pending_occurrence": "kept",
        "target_size": "goal",
        "last_scaled_at": "acted",
        "last_occurrence": "handled",
    },
):
    """A rule on one pool. handled: the last occurrence that was dealt with, or the instant from which they count. cron:
    what it was then; another one begins anew. kept: an occurrence that waits, 0.0: none, and why. goal: the size of the
    pool that the last occurrence wants and has not reached, 0: none. acted: the last time that the rule added nodes.
    """

    last_occurrence: float = 0.0
    cron: str = ""
    pending_occurrence: float = 0.0
    why: str = ""
    target_size: int = 0
    last_scaled_at: float = 0.0


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"breaker": "brake"}):
    """One cluster's memory. operations: those still open, and none else."""

    groups: dict[str, GroupMemory] = {}
    nodes: dict[str, NodeMemory] = {}
    unregistered: dict[str, float] = {}  # instance id -> first seen without a Node
    templates: dict[str, LearntTemplate] = {}
    operations: tuple[Operation, ...] = ()
    last_scale_up: float = 0.0
    last_scale_down: float = 0.0
    last_scale_down_failure: float = 0.0
    first_seen: float = 0.0
    breaker: BreakerState = BreakerState()
    rules: dict[str, RuleMemory] = {}  # `<rule key>@<pool>`
    rule_objects: dict[str, RuleObject] = {}  # the last good version of each HorizontalNodeAutoscaler, by its key
    released_until: float = 0.0  # a person's word (`outscaler release`); no pass writes it
