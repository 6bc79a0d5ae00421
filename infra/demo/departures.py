"""Prints why nodes go that pods still need: their vendor takes them back, they
are sick, or they are old.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import Operation
from chalicelib.model.plan import LifecycleVerdict, Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.reasons import text
from chalicelib.reasons.words import counted
from chalicelib.views.lifecycle import says
from infra.demo.console import Ledger, Say
from infra.demo.fixture import LEAN, SEARCH, STREAM, STREAM_SPOT

WHY: dict[str, str] = {
    DisruptionReason.EXPIRED: "it is old",
    DisruptionReason.DRIFTED: "the definition of its group has changed",
    DisruptionReason.REPAIR: "it is sick",
    DisruptionReason.INTERRUPTED: "its vendor takes it back",
}
"""Why a node goes, by the reason of an operation, if not for being unneeded or for
consolidation."""
RENEWALS: dict[str, str] = {
    DisruptionReason.EXPIRED: "an old node",
    DisruptionReason.DRIFTED: "a node that its group would now make differently",
    DisruptionReason.REPAIR: "a sick node",
}
"""What a purchase replaces, by its reason, if not a node that costs too much."""
_NOTES = frozenset(
    {
        ReasonCode.INTERRUPTION_REPORTED,
        ReasonCode.NO_REPLACEMENT_IN_TIME,
        ReasonCode.NODE_OVERDUE,
        ReasonCode.NODE_DRIFTED,
        ReasonCode.GROUP_BUSY,
        ReasonCode.RENEWAL_RESTS,
        ReasonCode.TOO_MANY_UNHEALTHY,
        ReasonCode.REPAIRED_ONE_BY_ONE,
        ReasonCode.CANNOT_RESTART,
    }
)


def successor_of(reason: str) -> str:
    """Return what a purchase replaces, by its reason."""
    return RENEWALS.get(reason, "a node")


def removal_words(operation: Operation) -> str:
    """Return why an operation removes its nodes, "" for unneeded ones."""
    why = WHY.get(operation.spec.reason, operation.spec.reason)
    until = f" at {format_time(operation.spec.leaves_at)}" if operation.spec.leaves_at else ""
    return f" ({why}{until})" if why else ""


def restart_words(evicted: int) -> str:
    """Return what a restart of a sick node consists of."""
    drained = f"drain {counted(evicted, 'pod')}, then " if evicted else ""
    return f"it is sick: {drained}restart its machine, and use it again when it is ready"


class DepartureNarrator:
    """tell() reports due nodes with what holds them, and notes about them, each once. named:
    replaces ids in a text by names."""

    def __init__(self, ledger: Ledger, say: Say, named: Callable[[str], str]) -> None:
        self._ledger, self._say, self._named = ledger, say, named
        self._said: set[tuple[str, str]] = set()

    def tell(self, plan: Plan) -> None:
        for verdict in plan.lifecycle:
            self._tell_verdict(verdict)
        for note in plan.notes:
            if note.code in _NOTES and self._is_new(str(note.params.get("node", "")), note.code):
                self._say("outscaler", f"plan: {self._named(text.sentence(note))}")

    def _tell_verdict(self, verdict: LifecycleVerdict) -> None:
        held = verdict.held
        own = self._ledger.departed
        if held is not None and verdict.node == own.node and not own.held:
            own.held = held.code.value
        if self._is_new(verdict.node, held.code if held else verdict.why):
            self._say("outscaler", f"plan: {verdict.node}: {self._named(says(verdict))}")

    def _is_new(self, node: str, what: str) -> bool:
        new = (node, what) not in self._said
        self._said.add((node, what))
        return new


Check = Callable[[Ledger], tuple[bool, str]]


def departure_expectations() -> tuple[tuple[str, Check], ...]:
    """Return what the chapters must have shown."""
    return (
        ("the pods of the spot node ran elsewhere before its vendor took it back", _evacuated),
        ("a sick node's successor was ready before it was drained, and bought once", _repaired),
        ("an old node waited for its window, and its successor came first", _renewed),
    )


def _evacuated(ledger: Ledger) -> tuple[bool, str]:
    own = ledger.departed
    steps = [step for step in own.steps if step.split()[1] in (STREAM, STREAM_SPOT)]
    whole = sorted(steps) == sorted(
        [f"asked {STREAM}", f"ready {STREAM}", f"drained {STREAM_SPOT}"]
    )
    early = 0.0 < own.moved_at < own.leaves_at and 0.0 < own.gone_at < own.leaves_at
    return (
        whole and early,
        f"{early_words(own.leaves_at, own.moved_at)}; {', '.join(steps) or 'nothing'}",
    )


def early_words(leaves_at: float, moved_at: float) -> str:
    """Return how long before the deadline the pods ran elsewhere."""
    return f"{leaves_at - moved_at:.0f} s before" if moved_at else "never"


def _repaired(ledger: Ledger) -> tuple[bool, str]:
    return _replaced(ledger, SEARCH)


def _renewed(ledger: Ledger) -> tuple[bool, str]:
    own = ledger.departed
    right, steps = _replaced(ledger, LEAN)
    held = own.held == ReasonCode.OUTSIDE_WINDOW.value
    late = (
        f"asked {own.asked_at - own.opens_at:.0f} s after it opened"
        if own.asked_at
        else "never asked"
    )
    return (
        right and held and own.asked_at >= own.opens_at > 0.0,
        f"{own.held or 'not held'}, {late}; {steps}",
    )


def _replaced(ledger: Ledger, group: str) -> tuple[bool, str]:
    steps = [step for step in ledger.departed.steps if step.split()[1] == group]
    return steps == [f"asked {group}", f"ready {group}", f"drained {group}"], ", ".join(
        steps
    ) or "nothing"
