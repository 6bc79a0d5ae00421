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


def says(verdict: LifecycleVerdict) -> str:
    """Return one sentence on a node: why it should go, and what holds it."""
    start = f"It is {due_words(verdict.why)}"
    held = verdict.held
    if held is None:
        return f"{start}, and goes now."
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


def summary(plan: Plan) -> str:
    """Return how many nodes are due for what, "" for none."""
    counts = Counter(verdict.why for verdict in plan.lifecycle)
    going = sum(verdict.held is None for verdict in plan.lifecycle)
    parts = [f"{counts[why]} {due_words(why)}" for why in _IS if counts[why]]
    return f"Nodes that should go: {', '.join(parts)}; {going} now." if parts else ""
