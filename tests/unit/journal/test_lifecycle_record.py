"""Interruptions, restarts, and replacements that are not for their saving: in events,
metrics and the journal.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.journal.journal import decision, outcome_entry, plan_entry
from chalicelib.journal.metric_values import end_counts, lifecycle_gauges
from chalicelib.journal.metrics import METRICS, parts
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import InterruptionNotice, Memory, Replacement, ReplacementState
from chalicelib.model.operation import (
    REPLACES,
    Operation,
    OperationKind,
    OperationState,
    RemovalTarget,
)
from chalicelib.model.outcome import ABANDONED, NOTICE_TAKEN_BACK, Failed, InProgress, Succeeded
from chalicelib.model.plan import LifecycleVerdict, Removal, Restart
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle
from chalicelib.policy.settings.spot import Spot
from chalicelib.reasons.text import disruption_words
from chalicelib.views.consolidation import replacement_action, replacement_views
from chalicelib.views.journal_lines import sentence
from tests.builders import NOW as PLANNED
from tests.builders import cluster
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, ended, plan

TARGET = RemovalTarget("a", "i-a", evict=("d/p", "d/q"))
REMOVAL = Removal(
    "a", "g", "drain", ("d/p",), reason=DisruptionReason.INTERRUPTED, leaves_at=NOW + 90
)
RESTART = Restart("a", "g", "KernelDeadlock=True", ("d/p",))


def interrupted(state: OperationState = OperationState.SUCCEEDED, **fields: Any) -> Operation:
    known = {"targets": (TARGET,), "reason": "interrupted", "leaves_at": NOW + 90.0}
    return ended(OperationKind.DELETE_NODES, state, **{**known, **fields})


def restarted(state: OperationState = OperationState.SUCCEEDED, **fields: Any) -> Operation:
    return ended(
        OperationKind.RESTART_NODE, state, **{"targets": (TARGET,), "reason": "repair", **fields}
    )


# -- events


def test_announced_end_is_reported_on_the_node_once_its_evacuation_is_saved() -> None:
    scene = RecordFixture()
    scene.passes(plan(removals=(REMOVAL,)))
    assert scene.reported() == []
    scene.passes(plan(removals=(REMOVAL,), operations=(interrupted(OperationState.PLANNED),)))
    message = "the vendor takes the node back at 2026-11-21T07:22:24Z; its pods are evicted"
    assert scene.reported() == [("a", "NodeInterruption", "Warning", message)]


def test_restart_is_reported_on_the_node_with_its_condition_once_it_is_saved() -> None:
    scene = RecordFixture()
    scene.passes(plan(restarts=(RESTART,)))
    assert scene.reported() == []
    scene.passes(plan(restarts=(RESTART,), operations=(restarted(OperationState.PLANNED),)))
    message = "restarting the node, because it is sick: KernelDeadlock=True"
    assert scene.reported() == [("a", "NodeRestart", "Normal", message)]


def test_replacement_for_age_is_reported_on_the_old_nodes() -> None:
    scene = RecordFixture()
    bought = ended(
        OperationKind.SCALE_UP,
        OperationState.PLANNED,
        group="s",
        reason="expired",
        data={REPLACES: "a,b"},
    )
    scene.passes(plan(operations=(bought,)))
    message = "Replace {} by a node of s because of age"
    assert scene.reported("Node") == [
        ("a", "NodeReplacement", "Normal", message.format("a")),
        ("b", "NodeReplacement", "Normal", message.format("b")),
    ]


def test_steps_of_an_evacuation_have_a_reason_of_their_own() -> None:
    scene = RecordFixture()
    waiting = interrupted(OperationState.RUNNING)
    scene.steps(waiting.with_status(step="taint"), InProgress(0.0, "evict"))
    scene.steps(
        waiting.with_status(step="evict"),
        InProgress(5.0, "evict", evicted=("d/p",), refused=("d/q",)),
    )
    assert scene.reported() == [
        ("a", "NodeInterruption", "Normal", "marked the node as toBeDeleted/unschedulable"),
        ("p", "NodeInterruption", "Normal", "evicting pod, because the vendor takes its node back"),
    ]


def test_steps_of_a_restart_have_a_reason_of_their_own() -> None:
    scene = RecordFixture()
    running = restarted(OperationState.RUNNING)
    scene.steps(running.with_status(step="taint"), InProgress(5.0, "recheck"))
    scene.steps(running.with_status(step="evict"), InProgress(5.0, "gone", evicted=("d/p",)))
    assert scene.reported() == [
        ("a", "NodeRestart", "Normal", "marked the node as toBeDeleted/unschedulable"),
        ("p", "NodeRestart", "Normal", "evicting pod, because its node will be restarted"),
    ]


def test_end_of_an_evacuation_is_no_scale_down() -> None:
    scene = RecordFixture()
    scene.ends(interrupted(), Succeeded({"removed": 1, "nodes": "a", "gone": "a"}))
    assert scene.reported() == [
        (
            "cluster-autoscaler-status",
            "NodeInterruption",
            "Normal",
            "Node a is gone: its vendor has taken it back",
        ),
        ("a", "NodeInterruption", "Normal", "the vendor has taken the node back"),
    ]
    assert scene.journal.book.counts == {"disrupted_nodes_total;reason=interrupted": 1.0}


def test_notice_that_is_taken_back_counts_nowhere_as_failure() -> None:
    scene = RecordFixture()
    scene.ends(interrupted(OperationState.ABANDONED), Failed(NOTICE_TAKEN_BACK, "it is Ready"))
    assert scene.reported() == [("a", "NodeInterruption", "Normal", "the node stays: it is Ready")]
    assert scene.journal.book.counts == {}


def test_end_of_a_restart_is_reported_on_its_node_and_counted() -> None:
    scene = RecordFixture()
    scene.ends(restarted(), Succeeded({"restarted": 1}))
    scene.ends(
        restarted(OperationState.FAILED, id="r2", targets=(RemovalTarget("b", "i"),)),
        Failed("NotFound", "no"),
    )
    assert scene.reported() == [
        ("a", "NodeRestart", "Normal", "the node was restarted"),
        ("b", "NodeRestartFailed", "Warning", "failed to restart the node: NotFound: no"),
    ]
    assert scene.journal.book.counts == {
        "node_restarts_total;result=succeeded": 1.0,
        "node_restarts_total;result=failed": 1.0,
        "failed_operations_total;kind=restart": 1.0,
        "errors_total;type=cloudProviderError": 1.0,
    }


def test_cancelled_restart_is_not_counted() -> None:
    assert end_counts(restarted(OperationState.ABANDONED), Failed(ABANDONED, "paused")) == {}


# -- metrics


def test_gauges_of_node_life_exist_only_where_the_policy_asks_for_it() -> None:
    build = cluster().node("a", group="g").node("b", group="g").group("g")
    due = plan(
        lifecycle=(
            LifecycleVerdict("a", DisruptionReason.REPAIR, PLANNED),
            LifecycleVerdict("b", DisruptionReason.DRIFTED, PLANNED),
            LifecycleVerdict("c", DisruptionReason.DRIFTED, PLANNED),
        )
    )
    names = {metric.name for metric in METRICS}
    for policy, exists in (
        ({}, False),
        ({"spot": Spot()}, True),
        ({"node_lifecycle": NodeLifecycle()}, True),
    ):
        state = build_cluster_state(
            build.snapshot(), Policy(name="test", mode=Mode.ACTIVE, **policy), Memory(), PLANNED
        )
        state = msgspec.structs.replace(
            state, at_risk={"b": InterruptionNotice(PLANNED, PLANNED + 60)}
        )
        gauges = lifecycle_gauges(due, state)
        assert {parts(name)[0] for name in gauges} <= names
        assert {parts(name)[1]["state"]: value for name, value in gauges.items()} == (
            {"atRisk": 1.0, "expired": 0.0, "drifted": 2.0, "sick": 1.0, "restarting": 0.0}
            if exists
            else {}
        )


# -- journal


@each_row(
    ("reason", "words"),
    [
        ("", ""),
        ("unneeded", ""),
        ("consolidation", "for consolidation"),
        ("expired", "because of age"),
        ("drifted", "because of drift"),
        ("repair", "because of a fault"),
        ("interrupted", "because of an interruption"),
        ("later", "for later"),
    ],
)
def test_words_say_why_nodes_go(reason: str, words: str) -> None:
    assert disruption_words(reason) == words


def test_every_reason_of_a_disruption_has_words() -> None:
    assert all(
        disruption_words(reason.value)
        for reason in DisruptionReason
        if reason is not DisruptionReason.UNNEEDED
    )


@each_row(
    ("operation", "outcome", "says"),
    [
        (
            interrupted(),
            Succeeded({"removed": 1, "nodes": "a", "gone": "a"}),
            "a was removed from g because of an interruption, in 30 s",
        ),
        (
            interrupted(),
            Succeeded({"removed": 1, "nodes": "a"}),
            "a was removed from g because of an interruption, 2 pods moved, in 30 s",
        ),
        (
            interrupted(OperationState.ABANDONED),
            Failed(NOTICE_TAKEN_BACK, "it is Ready"),
            "a was not removed from g because of an interruption: it is Ready, after 30 s",
        ),
        (
            ended(
                OperationKind.DELETE_NODES,
                targets=(TARGET,),
                reason="expired",
                replacement="r1",
                data={"own.replacedBy": "s-1", "own.saves": "100000"},
            ),
            Succeeded({"removed": 1, "nodes": "a"}),
            "a was removed from g because of age, 2 pods moved, replaced by s-1, in 30 s",
        ),
        (
            ended(OperationKind.SCALE_UP, reason="drifted", replacement="r1", data={REPLACES: "a"}),
            Succeeded({"from": 1, "to": 2}),
            "g grew from 1 to 2 to replace a because of drift, in 30 s",
        ),
        (
            restarted(),
            Succeeded({"restarted": 1, "nodes": "a"}),
            "a was restarted in g because of a fault, 2 pods moved, in 30 s",
        ),
        (
            restarted(OperationState.FAILED),
            Failed("NodeNotReady", "a is not Ready 900 s after its restart"),
            (
                "a could not be restarted in g because of a fault: the node did not come back: "
                "a is not Ready 900 s after its restart, after 30 s"
            ),
        ),
    ],
    ids=lambda row: str(row)[:20],
)
def test_journal_says_why_and_no_saving(
    operation: Operation, outcome: Succeeded | Failed, says: str
) -> None:
    assert sentence(outcome_entry(operation, outcome, NOW)) == says


def test_decision_with_a_restart_is_another_one_and_says_so() -> None:
    assert decision(plan(restarts=(RESTART,))) != decision(plan())
    entry = plan_entry(plan(restarts=(RESTART,)))
    assert entry.facts["restarts"] == 1
    assert sentence(entry) == "decided on 1 restart in a cluster of 0 nodes"


def test_view_of_a_replacement_says_why_its_nodes_go() -> None:
    row = Replacement(
        "r1",
        ReplacementState.BUYING,
        ("a",),
        (),
        5,
        1.0,
        1.0,
        NOW,
        NOW,
        reason=DisruptionReason.EXPIRED,
    )
    (view,) = replacement_views(Memory(replacements={"r1": row}))
    assert replacement_action(view).endswith(" because of age")
    (cheaper,) = replacement_views(
        Memory(
            replacements={"r1": msgspec.structs.replace(row, reason=DisruptionReason.CONSOLIDATION)}
        )
    )
    assert cheaper.purpose == ""
