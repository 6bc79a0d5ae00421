"""The words for nodes that should go although they are needed: sick, too old, or outdated. The command, the page and
the journal share them.

See docs/reference/node-lifecycle.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from chalicelib.model.plan import LifecycleVerdict, Plan
from chalicelib.model.reason import DisruptionReason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence

_IS: Mapping[DisruptionReason, str] = MappingProxyType(
    {
        DisruptionReason.REPAIR: "sick",
        DisruptionReason.EXPIRED: "too old",
        DisruptionReason.DRIFTED: "not as its group is defined",
    }
)
_NOT_DUE_YET = frozenset({ReasonCode.NOT_SICK_LONG_ENOUGH, ReasonCode.NOT_CONFIRMED, ReasonCode.NODE_DRIFTED})
"""What holds a node that is not to go (yet)."""


def due_words(reason: DisruptionReason) -> str:
    """Return what such a node is: sick, too old, or not as its group is defined."""
    return _IS.get(reason, reason.value)


def verdict_of(plan: Plan, node: str) -> LifecycleVerdict | None:
    """Return the verdict on a node, None where it is not due."""
    return next((verdict for verdict in plan.lifecycle if verdict.node == node), None)


def restarts(plan: Plan | None, node: str) -> bool:
    """Return whether a plan restarts a node."""
    return plan is not None and any(restart.node == node for restart in plan.restarts)


def says(verdict: LifecycleVerdict, *, is_restarted: bool = False) -> str:
    """Return one sentence on a node: why it should go, and what holds it."""
    start = f"It is {due_words(verdict.why)}"
    held = verdict.held
    if held is None:
        return f"{start}, and {'is restarted' if is_restarted else 'goes'} now."
    if held.code in _NOT_DUE_YET:
        return f"{start}: {sentence(held)}."
    if held.code is ReasonCode.IN_REPLACEMENT:
        return f"{start} since {format_time(verdict.since)}; another node comes first: {sentence(held)}."
    return f"{start} since {format_time(verdict.since)}, and waits: {sentence(held)}."


def verdict_data(verdict: LifecycleVerdict) -> dict[str, Any]:
    """Return a verdict as JSON."""
    held = verdict.held
    return {"why": verdict.why.value, "since": format_time(verdict.since)} | (
        {"held": {"code": held.code.value, "message": sentence(held)}} if held is not None else {}
    )


def count_words(counts: Mapping[str, int]) -> str:
    """Return `1 sick, 2 too old`, "" for none. counts: nodes by the value of their reason."""
    return ", ".join(f"{counts[why]} {words}" for why, words in _IS.items() if counts.get(why))


def summary(plan: Plan) -> str:
    """Return how many nodes are due for what, "" for none."""
    counts = count_words(Counter(verdict.why.value for verdict in plan.lifecycle))
    going = sum(verdict.held is None for verdict in plan.lifecycle)
    return f"Nodes that should go: {counts}; {going} now." if counts else ""
