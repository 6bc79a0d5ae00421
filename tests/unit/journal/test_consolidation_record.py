"""Replacements in events and metrics, and what makes a decision with consolidation a new one."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.journal.journal import decision, outcome_entry
from chalicelib.journal.metric_values import end_counts, pass_counts, pass_gauges
from chalicelib.model.memory import Memory, ReplacementState
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.outcome import Succeeded
from chalicelib.model.plan import (
    ConsolidationReport,
    EndedReplacement,
    Move,
    MovePurchase,
    NodeVerdict,
    Plan,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.replacement_rows import ended_rows
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.views.consolidation import replacement_action, replacement_views
from chalicelib.views.journal_lines import sentence
from tests.operations import new_operation
from tests.unit.journal.support import NOW, RecordFixture, ended, plan
from tests.unit.plan.consolidation_fixture import decide, fixture, one_beside_a_full_one
from tests.unit.plan.replacement_story import GROW, replacement

MOVE = Move(
    ("a",), (MovePurchase("s", 1, 0.1),), 0.2, 0.1, 3.0, 0.05, 1.0, "buying", "pool", "r1", "EUR"
)
BOUGHT = ended(OperationKind.SCALE_UP, id=GROW, group="s", from_size=0, to_size=1, replacement="r1")
GONE = Reason.of(ReasonCode.UNEXPECTED, detail="the new node s-0 is gone")


def with_moves(*moves: Move, **parts: Any) -> Plan:
    return plan(consolidation=ConsolidationReport("full", moves), **parts)


def test_event_on_the_old_node_says_what_replaces_it_once_the_purchase_is_saved() -> None:
    scene = RecordFixture()
    scene.passes(with_moves(MOVE))
    assert scene.reported("Node") == []
    scene.passes(with_moves(MOVE, operations=(BOUGHT,)))
    message = "Replace a by 1 of s: saves 0.10 EUR an hour (50%), score 1.00"
    assert scene.reported("Node") == [("a", "NodeReplacement", "Normal", message)]


def test_event_on_each_old_node_says_why_its_replacement_failed() -> None:
    scene = RecordFixture()
    scene.passes(
        plan(ended_replacements=(EndedReplacement("r1", ("a", "b"), why=GONE, until=NOW + 3600),))
    )
    reported = scene.reported("Node")
    assert [(name, reason, kind) for name, reason, kind, _ in reported] == [
        ("a", "NodeReplacementFailed", "Warning"),
        ("b", "NodeReplacementFailed", "Warning"),
    ]
    assert "the new node s-0 is gone" in reported[0][3]


def test_event_on_the_status_says_what_was_replaced() -> None:
    scene = RecordFixture()
    scene.passes(plan(ended_replacements=(EndedReplacement("r1", ("a",), ("s-0",)),)))
    assert scene.reported() == [
        ("cluster-autoscaler-status", "NodeReplacement", "Normal", "Replaced a by s-0"),
    ]


def test_metrics_count_replacements_begun_succeeded_and_failed() -> None:
    over = (EndedReplacement("r2", ("b",)), EndedReplacement("r3", ("c",), why=GONE))
    counts = pass_counts(with_moves(MOVE, operations=(BOUGHT,), ended_replacements=over))
    assert counts == {
        "replacements_total;result=begun": 1.0,
        "replacements_total;result=failed": 1.0,
        "replacements_total;result=succeeded": 1.0,
    }


def test_metrics_count_removed_nodes_by_reason_from_a_closed_list() -> None:
    reasons = []
    for reason in ("", "consolidation", "of a later release"):
        operation = ended(
            OperationKind.DELETE_NODES, targets=(RemovalTarget("n", "i"),), reason=reason
        )
        counts = end_counts(operation, Succeeded())
        reasons += [name for name in counts if name.startswith("disrupted_nodes_total")]
    assert reasons == [
        "disrupted_nodes_total;reason=unneeded",
        "disrupted_nodes_total;reason=consolidation",
        "disrupted_nodes_total;reason=Other",
    ]


def test_metrics_show_moves_by_state_only_while_consolidation_is_on() -> None:
    shown = pass_gauges(with_moves(MOVE), Options(), {})
    moves = {
        name: value for name, value in shown.items() if name.startswith("consolidation_moves_count")
    }
    assert len(moves) == 7
    assert {name for name, value in moves.items() if value} == {
        "consolidation_moves_count;state=buying"
    }
    assert not any("consolidation_moves" in name for name in pass_gauges(plan(), Options(), {}))


def test_decision_changes_with_moves_and_lasting_reasons_and_not_with_waiting_times() -> None:
    def decided(code: ReasonCode, *moves: Move) -> str:
        verdicts = (NodeVerdict("b", Reason.of(code)),)
        return decision(plan(consolidation=ConsolidationReport("shadow", moves, verdicts)))

    quiet = decided(ReasonCode.NOT_QUIET)
    assert quiet == decided(ReasonCode.NODE_TOO_YOUNG)
    assert quiet != decided(ReasonCode.NO_CHEAPER_PLACE)
    assert quiet != decided(ReasonCode.NOT_QUIET, MOVE)
    assert quiet != decision(plan())


def test_purchase_of_a_replacement_names_the_nodes_that_it_replaces_in_the_journal() -> None:
    plan_ = decide(fixture(one_beside_a_full_one())).plan
    [operation] = plan_.operations
    entry = outcome_entry(operation, Succeeded(), NOW)
    assert entry.facts["replaces"] == "a"
    assert "to replace a" in sentence(entry)


def test_removal_of_a_replaced_node_says_what_it_saves_in_the_journal() -> None:
    operation = new_operation(
        id="remove-a",
        cluster="c",
        provider="test",
        group="m",
        kind=OperationKind.DELETE_NODES,
        plan="p",
        created_at=NOW,
        targets=(RemovalTarget("a", "i", evict=("d/x",)),),
        replacement="r1",
        reason="consolidation",
        currency="EUR",
        data={"own.replacedBy": "s-0", "own.saves": "100000"},
    )
    facts = outcome_entry(operation, Succeeded(), NOW).facts
    assert (facts["replacedBy"], facts["saves"], facts["currency"]) == ("s-0", 0.1, "EUR")


def test_replacement_that_is_over_is_done_or_failed_and_one_not_begun_is_neither() -> None:
    row = replacement("a", state=ReplacementState.WAITING)
    failed = msgspec.structs.replace(row, state=ReplacementState.FAILED, why=GONE, until=NOW)
    assert ended_rows({"r1": row}, {"r1": row}) == ()
    [done] = ended_rows({"r1": row}, {})
    assert (done.nodes, done.saves, done.why) == (("a",), 0.1, None)
    [not_done] = ended_rows({"r1": row}, {"r1": failed})
    assert not_done.why == GONE
    assert ended_rows({"r1": failed}, {}) == ()
    idle = msgspec.structs.replace(row, state=ReplacementState.BUYING, ends={GROW: "not begun"})
    assert ended_rows({"r1": idle}, {}) == ()


def test_replacements_under_way_are_listed_before_failed_ones_with_their_progress() -> None:
    rows = {
        "r0": msgspec.structs.replace(
            replacement("z", state=ReplacementState.FAILED), id="r0", why=GONE
        ),
        "r1": replacement("a", "b", state=ReplacementState.DRAINING, gone=("c",)),
    }
    first, second = replacement_views(Memory(replacements=rows))
    assert (first.id, first.done, first.of) == ("r1", 3, 5)
    assert (second.id, second.is_over) == ("r0", True)
    assert replacement_action(first) == "a, b, c are replaced by 1 of s"
