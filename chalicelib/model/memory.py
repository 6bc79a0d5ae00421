"""State that must outlive a process. The planner receives it and returns the next state; the store saves the
difference.

It has no other copy: a cold start is the normal case. See docs/reference/store.md "Memory".
"""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.reason import Reason
from chalicelib.model.scaling_rules import RuleObject

HOUR = 3600.0


class ScaleUpRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes that were requested and have not arrived yet."""

    increase: int
    since: float
    expected_at: float


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """A back-off: active while until >= now; forgotten when last_failed is longer ago than the reset time."""

    duration: float
    until: float
    last_failed: float
    cls: str = ""
    code: str = ""
    message: str = ""
    attempt: int = 1


class FailedRemoval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node whose removal failed. until: it is not tried again before; times: consecutive failures; why: the last
    failure."""

    until: float
    times: int = 1
    why: str = ""


class GroupMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"failed_instances": "erred"}):
    """Memory per node group."""

    target: int = 0
    request: ScaleUpRequest | None = None
    backoff: Backoff | None = None
    last_add: float = 0.0
    last_delete: float = 0.0
    last_failure: float = 0.0
    size_wrong_since: float = 0.0
    size_wrong: tuple[int, int] = (0, 0)  # (registered, target) as first seen
    failed_instances: tuple[str, ...] = ()  # instances whose creation error was already counted
    repair_failures: int = 0  # consecutive failed repairs (discard, shrink)
    repair_after: float = 0.0  # no repair is tried before
    failed_removals: dict[str, FailedRemoval] = {}  # by node
    first_seen: float = 0.0  # the first pass that accepted the group as this cluster's; 0.0: none yet


class NodeMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Memory per node. confirmed_at: the last pass that found it unneeded. A pass that could not judge it moves both
    instants forward, so that the time already counted is kept."""

    unneeded_since: float = 0.0
    confirmed_at: float = 0.0
    unremovable_until: float = 0.0
    why: Reason | None = None  # why it was unremovable when it was last tried


class LearntTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A template copied from a real, ready node of the group."""

    node: Node
    learnt_at: float


class BreakerState(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"tripped_at": "pulled", "removals": "taken"}
):
    """The circuit breaker's state. removals: (instant, nodes, pods) of the plans of the last hour. tripped_at: since
    when removals are blocked because a plan exceeded the share that the policy allows, 0.0 if not tripped. wanted: how
    many nodes that plan would have removed."""

    removals: tuple[tuple[float, int, int], ...] = ()
    tripped_at: float = 0.0
    wanted: int = 0

    def last_hour(self, now: float) -> tuple[tuple[float, int, int], ...]:
        """Return the removals that count now. An instant an hour or more away is ignored, in the future too: after a
        clock error, removals must not stay blocked for as long as the clock was wrong."""
        return tuple(removal for removal in self.removals if abs(now - removal[0]) < HOUR)


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
    """A rule on one pool. last_occurrence: the last handled one, or the instant from which occurrences count. cron: its
    expression at that time; a changed one starts anew. pending_occurrence: 0.0 without one. why: the reason for its
    wait. target_size: the pool size that the last occurrence requires and has not reached, 0 if it has.
    last_scaled_at: when the rule last added nodes.
    """

    last_occurrence: float = 0.0
    cron: str = ""
    pending_occurrence: float = 0.0
    why: str = ""
    target_size: int = 0
    last_scaled_at: float = 0.0


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"breaker": "brake"}):
    """One cluster's memory. operations: only the open ones."""

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
    released_until: float = 0.0  # set by an operator (`outscaler release`); no pass writes it
