"""Nodes that leave although pods need them: what the demonstration prints of them,
and when its night comes.
"""

from __future__ import annotations

import datetime as dt

import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import Operation, OperationKind, OperationSpec, RemovalTarget
from chalicelib.model.plan import LifecycleVerdict, Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.load import load
from chalicelib.reasons.text import sentence
from infra.demo import fixture
from infra.demo.console import Ledger
from infra.demo.decision_narrator import Narrator
from infra.demo.departures import RENEWALS, DepartureNarrator, removal_words
from infra.emulators.memory_table import MemoryAccount

NOW = 1_795_294_020.0  # 2026-11-21T20:47:00Z
WINDOW = Reason.of(ReasonCode.OUTSIDE_WINDOW, window="night", until=NOW + 60.0)


def _operation(kind: OperationKind, reason: str, **fields: object) -> Operation:
    known = {
        "targets": (RemovalTarget("n1", "i-1", evict=("d/p", "d/q")),),
        "reason": reason,
        **fields,
    }
    return Operation(
        OperationSpec("op-1", "shop", "clusterapi", "g/lean", kind, "plan", NOW, **known)  # type: ignore[arg-type]
    )


def _said(*plans: Plan, node: str = "") -> tuple[list[str], Ledger]:
    lines: list[str] = []
    ledger = Ledger()
    ledger.departed.node = node
    narrator = DepartureNarrator(
        ledger, lambda who, words: lines.append(f"{who}: {words}"), lambda text: text
    )
    for plan in plans:
        narrator.tell(plan)
    return lines, ledger


def _plan(*verdicts: LifecycleVerdict, notes: tuple[Reason, ...] = ()) -> Plan:
    return Plan("plan", "shop", NOW, lifecycle=verdicts, notes=notes)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("", ""),
        ("consolidation", " (consolidation)"),
        ("expired", " (it is old)"),
        ("drifted", " (the definition of its group has changed)"),
        ("repair", " (it is sick)"),
    ],
)
def test_demo_says_why_a_node_is_removed(reason: str, words: str) -> None:
    assert removal_words(_operation(OperationKind.DELETE_NODES, reason)) == words


def test_demo_says_when_the_vendor_takes_a_node_back() -> None:
    taken = _operation(OperationKind.DELETE_NODES, "interrupted", leaves_at=NOW + 300.0)
    assert removal_words(taken) == " (its vendor takes it back at 2026-11-21T20:52:00Z)"


def test_demo_says_of_a_due_node_once_what_holds_it() -> None:
    held = LifecycleVerdict("n1", DisruptionReason.EXPIRED, NOW - 60.0, WINDOW)
    lines, ledger = _said(
        _plan(held),
        _plan(held),
        _plan(LifecycleVerdict("n1", DisruptionReason.EXPIRED, NOW - 60.0)),
        node="n1",
    )
    assert lines == [
        (
            "outscaler: plan: n1: It is too old since 2026-11-21T20:46:00Z, and waits: "
            f"{sentence(WINDOW)}."
        ),
        "outscaler: plan: n1: It is too old, and goes now.",
    ]
    assert ledger.departed.held == "MaintenanceWindow"


def test_demo_keeps_what_held_the_old_node_first() -> None:
    held = LifecycleVerdict("n1", DisruptionReason.EXPIRED, NOW, WINDOW)
    later = LifecycleVerdict(
        "n1", DisruptionReason.EXPIRED, NOW, Reason.of(ReasonCode.IN_REPLACEMENT, id="r")
    )
    other = LifecycleVerdict(
        "n2", DisruptionReason.REPAIR, NOW, Reason.of(ReasonCode.GROUP_BUSY, who="x")
    )
    assert (
        _said(_plan(other), _plan(held), _plan(later), node="n1")[1].departed.held
        == "MaintenanceWindow"
    )


def test_demo_prints_notes_on_nodes_once_and_no_others() -> None:
    overdue = Reason.of(ReasonCode.NODE_OVERDUE, node="n1", since=NOW)
    lines, _ = _said(*[_plan(notes=(overdue, WINDOW))] * 2)
    assert lines == [
        (
            "outscaler: plan: node n1 is older than maxNodeAge and expiryGrace allow (expired "
            "2026-11-21T20:47:00Z)"
        )
    ]


def _met(operation: Operation) -> tuple[list[str], Ledger]:
    store, ledger, lines = MemoryAccount().store("demo", clock=lambda: NOW), Ledger(), []
    narrator = Narrator(
        "shop", store, lambda: NOW, ledger, lambda who, words: lines.append(words), {}
    )
    narrator._meet(operation)
    return lines, ledger


def test_demo_says_what_a_restart_consists_of() -> None:
    lines, _ = _met(_operation(OperationKind.RESTART_NODE, "repair"))
    assert lines == [
        (
            "plan: restart n1: it is sick: drain 2 pods, then restart its machine, and use it "
            "again when it is ready"
        )
    ]


@pytest.mark.parametrize(
    ("reason", "words", "renewed"),
    [
        ("", "a node", 0),
        ("consolidation", "a node", 0),
        ("expired", "an old node", 1),
        ("repair", "a sick node", 1),
    ],
)
def test_demo_says_what_a_purchase_replaces(reason: str, words: str, renewed: int) -> None:
    assert (reason in RENEWALS) == bool(renewed)
    bought = _operation(
        OperationKind.SCALE_UP, reason, targets=(), from_size=1, to_size=2, replacement="r"
    )
    lines, ledger = _met(bought)
    assert lines == [f"plan: grow lean from 1 to 2 to replace {words}"]
    assert ledger.renewed["lean"] == renewed


def _instant(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize("hour", range(24))
def test_demo_begins_on_an_evening_whose_night_is_past(hour: int) -> None:
    present = _instant("2026-11-21T00:30:00+00:00") + hour * 3600.0
    start = fixture.evening(present)
    opens = fixture.night(start + 2700.0)
    assert dt.datetime.fromtimestamp(start, dt.UTC).strftime("%H:%M") == "20:00"
    assert opens - start == 6 * 3600.0
    assert opens + 3600.0 < start + fixture.LONGEST <= present < start + fixture.LONGEST + 86400.0


def test_demo_night_is_the_next_one_also_when_it_begins_now() -> None:
    two = _instant("2026-11-21T02:00:00+00:00")
    assert (fixture.night(two), fixture.night(two + 1.0)) == (two, two + 86400.0)


@pytest.mark.parametrize("at_night", [False, True])
def test_demo_policies_of_departures_are_valid(at_night: bool) -> None:
    base = fixture.policy(
        '{"clusterapi": {"namespace": "default", "clusterName": "local"}}',
        "[]",
        "arn:aws:sns:eu-central-1:123456789012:outscaler-events",
    )
    made, _ = load(fixture.with_departures(base, at_night=at_night), place="policy")
    assert made.spot is not None
    lifecycle = made.node_lifecycle
    assert lifecycle is not None
    assert [rule.condition for rule in lifecycle.repair] == [fixture.SICK]
    assert (lifecycle.max_node_age, lifecycle.groups) == (
        (14400.0, ("lean",)) if at_night else (None, ())
    )
    assert [window.name for window in made.maintenance_windows] == (["night"] if at_night else [])
