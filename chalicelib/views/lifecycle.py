"""The words for nodes that should go although they are needed: sick, too old, or outdated. The
command, the page and the journal share them.

See docs/reference/node-lifecycle.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.plan import LifecycleVerdict, Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence

_SICK = DisruptionReason.REPAIR.row.due


def _sick_first(words_of: Mapping[str, str]) -> dict[str, str]:
    others_last = sorted(words_of.items(), key=lambda item: not item[1].startswith(_SICK))
    return dict(others_last)


_DUE = _sick_first({why.value: why.row.due for why in DisruptionReason if why.row.due})
_NOT_DUE_YET = _sick_first({code.value: code.row.due for code in ReasonCode if code.row.due})


def due_words(reason: DisruptionReason) -> str:
    """Return what such a node is: sick, too old, or not as its group is defined."""
    return reason.row.due or reason.value


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
    if held.code.row.due:
        return f"{start}: {sentence(held)}."
    if held.code is ReasonCode.IN_REPLACEMENT:
        return (
            f"{start} since {format_time(verdict.since)}; another node comes first: "
            f"{sentence(held)}."
        )
    return f"{start} since {format_time(verdict.since)}, and waits: {sentence(held)}."


def verdict_data(verdict: LifecycleVerdict) -> dict[str, Any]:
    """Return a verdict as JSON."""
    held = verdict.held
    return {"why": verdict.why.value, "since": format_time(verdict.since)} | (
        {"held": {"code": held.code.value, "message": sentence(held)}} if held is not None else {}
    )


def due_counts(verdicts: Iterable[LifecycleVerdict]) -> dict[str, int]:
    """Return the number of nodes that should go, by the value of their reason; of those that need
    not go (yet), by the code of what holds them: NotSickLongEnough, NotConfirmed, NodeDrifted."""
    return dict(Counter(_counted_as(verdict) for verdict in verdicts))


def _counted_as(verdict: LifecycleVerdict) -> str:
    held = verdict.held
    return held.code.value if held is not None and held.code.row.due else verdict.why.value


def count_words(counts: Mapping[str, int]) -> str:
    """Return `1 sick, 2 too old, 1 sick not for long enough yet`, "" for none. counts:
    what `due_counts` returns."""
    words_of = _DUE | _NOT_DUE_YET
    return ", ".join(f"{counts[key]} {words}" for key, words in words_of.items() if counts.get(key))


def summary(plan: Plan) -> str:
    """Return how many nodes are due for what, and how many are not due yet; "" for none."""
    counts = due_counts(plan.lifecycle)
    due = count_words({key: number for key, number in counts.items() if key not in _NOT_DUE_YET})
    not_due = count_words({key: number for key, number in counts.items() if key in _NOT_DUE_YET})
    going = sum(verdict.held is None for verdict in plan.lifecycle)
    parts = [f"{due}; {going} now" if due else "none", not_due]
    return f"Nodes that should go: {'; '.join(filter(None, parts))}." if counts else ""
