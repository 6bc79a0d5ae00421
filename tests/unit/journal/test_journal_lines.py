"""Lines of the journal: a sentence per kind of entry, and stored facts for what has no type."""

from __future__ import annotations

import typing

import msgspec
import pytest

from chalicelib.journal.journal import failing_entry, outcome_entry, plan_entry, recovered_entry
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import PassFailure
from chalicelib.views import journal_lines
from chalicelib.views.journal_lines import (
    JournalLine,
    OtherLine,
    PlanLine,
    line_of,
    operation_of,
    sentence,
    spoken,
)
from infra.emulators.memory_table import MemoryAccount
from tests.unit.journal.support import NOW, ended, plan, refused

Facts = dict[str, str | int | float | bool]
KEPT: Facts = {"kept n-2": "busy"}
BY = "arn:aws:iam::1:user/kim"


def entry(kind: str, group: str = "", /, **facts: str | float | bool) -> JournalEntry:
    return JournalEntry(at=NOW, kind=kind, group=group, facts=facts)


GREW: Facts = {
    "kind": "grow",
    "provider": "exoscale",
    "state": "succeeded",
    "seconds": 265.2,
    "from": 1,
    "to": 5,
}
SENTENCES: dict[str, tuple[JournalEntry, str]] = {
    "grew": (entry("operation", "workers", **GREW), "workers grew from 1 to 5, in 4 min 25 s"),
    "grew for pods": (
        entry("operation", "workers", **GREW, pods=15),
        "workers grew from 1 to 5 for 15 pods, in 4 min 25 s",
    ),
    "grew for a pod": (
        entry("operation", "w", kind="grow", state="succeeded", pods=1),
        "w grew for 1 pod",
    ),
    "grew for more pods than it names": (
        entry("operation", "w", kind="grow", state="succeeded", pods=50),
        "w grew for 50 or more pods",
    ),
    "opened": (
        entry("operation", "osc-1", **GREW, opens="s4 z1 on-demand", pods=1),
        "osc-1 was opened with s4 z1 on-demand and grew from 1 to 5 for 1 pod, in 4 min 25 s",
    ),
    "could not be opened": (
        entry(
            "operation",
            "osc-1",
            kind="grow",
            state="failed",
            opens="s4 z1 on-demand",
            **{"class": "OutOfStock"},
        ),
        "osc-1 could not be opened with s4 z1 on-demand: sold out",
    ),
    "grew for a rule": (
        entry("operation", "workers", **GREW, rules="busy,night"),
        "workers grew from 1 to 5 for rules busy, night, in 4 min 25 s",
    ),
    "grew to replace a node": (
        entry(
            "operation", "workers", **(GREW | {"from": 3, "to": 4}), replacement="r1", replaces="a"
        ),
        "workers grew from 3 to 4 to replace a, in 4 min 25 s",
    ),
    "not grown to replace nodes": (
        entry(
            "operation",
            "w",
            **(GREW | {"state": "failed"}),
            replaces="a,b",
            **{"class": "OutOfStock"},
        ),
        "w could not grow from 1 to 5 to replace a, b: sold out, after 4 min 25 s",
    ),
    "replaced": (
        entry(
            "operation",
            "m",
            kind="remove",
            state="succeeded",
            targets="a",
            reason="consolidation",
            replacement="r1",
            replacedBy="s-1",
            saves=0.1,
            currency="EUR",
            pods=2,
        ),
        "a was removed from m, 2 pods moved, replaced by s-1, saves 0.10 EUR an hour",
    ),
    "consolidated": (
        entry(
            "operation",
            "m",
            kind="remove",
            state="succeeded",
            targets="a",
            reason="consolidation",
            saves=0.2,
        ),
        "a was removed from m for consolidation, saves 0.20 an hour",
    ),
    "noted": (
        entry("operation", "workers", **GREW, note="still running"),
        "workers grew from 1 to 5, in 4 min 25 s; still running",
    ),
    "not grown": (
        entry(
            "operation",
            "w",
            **(GREW | {"state": "failed"}),
            **{"class": "OutOfStock", "code": "E1", "message": "none"},
        ),
        "w could not grow from 1 to 5: sold out (E1): none, after 4 min 25 s",
    ),
    "given up": (
        entry(
            "operation",
            "w",
            kind="grow",
            state="abandoned",
            **{"class": "Abandoned", "message": "no longer needed"},
        ),
        "w did not grow: no longer needed",
    ),
    "removal given up": (
        entry(
            "operation",
            "w",
            kind="remove",
            state="abandoned",
            targets="n-1",
            message="its pods came back",
        ),
        "n-1 was not removed from w: its pods came back",
    ),
    "not removed": (
        entry(
            "operation",
            "w",
            kind="remove",
            state="failed",
            targets="n-1,n-2",
            **{"class": "Peculiar"},
        ),
        "n-1, n-2 could not be removed from w: Peculiar",
    ),
    "removed with pods": (
        entry("operation", "w", kind="remove", state="succeeded", targets="n-1", pods=3),
        "n-1 was removed from w, 3 pods moved",
    ),
    "removed": (
        entry(
            "operation",
            "w",
            kind="remove",
            state="succeeded",
            seconds=61.0,
            targets="n-1,n-2,n-3",
            **{"kept n-2": "busy"},
        ),
        "n-1, n-3 were removed from w, in 1 min 1 s; n-2 stays: busy",
    ),
    "removed many": (
        entry(
            "operation",
            "w",
            kind="remove",
            state="succeeded",
            targets=",".join(f"n-{at}" for at in range(7)),
        ),
        "n-0, n-1, n-2, n-3, n-4 and 2 more were removed from w",
    ),
    "lowered": (
        entry("operation", "w", kind="shrink", state="succeeded", **{"from": 5, "to": 3}),
        "the target of w was lowered from 5 to 3",
    ),
    "discarded": (
        entry("operation", "w", kind="discard", state="succeeded", targets="i-1"),
        "i-1 was discarded from w",
    ),
    "of an earlier release": (
        entry("operation", "w", kind="remove", state="succeeded"),
        "nodes were removed from w",
    ),
    "decided nothing": (
        entry("plan", nodes=5, healthy=True, scaleUps=0),
        "decided on no change in a cluster of 5 nodes",
    ),
    "decided": (
        entry(
            "plan",
            nodes=1,
            healthy=False,
            scaleUps=1,
            removals=2,
            repairs=1,
            unschedulable=3,
            unneeded=4,
            gaps=1,
            rules="a,b",
        ),
        (
            "decided on 1 scale-up and 2 removals and 1 repair (rules a, b) in a cluster of "
            "1 node; the cluster is unhealthy; "
            "3 pods without a place; 4 nodes not needed; 1 thing not read"
        ),
    ),
    "failing": (
        entry("pass", state="failing", **{"class": "Unauthorized", "message": "refused"}),
        "passes fail: the credentials are refused: refused",
    ),
    "recovered": (
        entry(
            "pass",
            state="recovered",
            failures=1,
            seconds=7500.0,
            since="x",
            **{"class": "Unavailable"},
        ),
        "passes succeed again, after 1 failure (Unavailable) in 2 h 5 min",
    ),
    "policy": (
        entry("policy", version=2, digest="ab", by=BY),
        "stored version 2 of the policy, by kim",
    ),
    "policy accepted": (
        entry("policy", version=2, digest="ab", accepted="rights.nodes", reason="later", by=BY),
        "stored version 2 of the policy, in spite of rights.nodes: later, by kim",
    ),
    "pause": (
        entry("pause", "web", until="T", part="removals", reason="test", by=BY),
        "paused removals of group web until T: test, by kim",
    ),
    "pause of all": (
        entry("pause", until="T", part="all", reason="test", by=BY),
        "paused everything until T: test, by kim",
    ),
    "resume": (
        entry("resume", part="all", reason="test", by=BY, **{"was until": "T"}),
        "resumed everything, paused until T: test, by kim",
    ),
    "retry": (
        entry("retry", kind="group", name="web", was="until T", by=BY),
        "tried group web again, which waited until T, by kim",
    ),
    "release": (
        entry("release", until="T", was_on=True, by=BY),
        "released the circuit breaker until T, which was tripped, by kim",
    ),
    "claim": (
        entry("claim-released", claim="k", provider="p", since="T", by=BY),
        "gave back the claim on k, by kim",
    ),
    "uninstalled": (
        entry("uninstalled", objects=2, by=BY),
        "uninstalled, with 2 objects of the cluster cleaned, by kim",
    ),
    "accept": (entry("accept", accepted="prod/n-1", by=BY), "accepted prod/n-1, by kim"),
    "by no one's ARN": (entry("accept", accepted="n-1", by="kim/"), "accepted n-1, by kim/"),
    "unknown kind": (
        entry("blessing", "w", by="webhook", n=1),
        "an entry of the kind blessing, which this release does not know (w), by webhook",
    ),
    "missing fact": (entry("operation", "w", n=59), "an operation ended (w)"),
    "fact of another type": (entry("plan", nodes="many", by=7), "a decision of a pass, by 7"),
    "fact that is called facts": (entry("wake", facts="x", kept=2), "an event woke the passes"),
    "unreadable": (entry("unreadable", problem="cut off"), "this entry cannot be read"),
}

UNTYPED = (
    "unknown kind",
    "missing fact",
    "fact of another type",
    "fact that is called facts",
    "unreadable",
)


@pytest.mark.parametrize("case", SENTENCES)
def test_entry_is_a_sentence(case: str) -> None:
    stored, expected = SENTENCES[case]
    assert sentence(stored) == expected
    assert "{" not in expected


def test_sentence_has_the_name_that_people_call_a_group() -> None:
    stored = entry("operation", "7f-uid/default", **GREW)
    assert sentence(stored, "workers") == "workers grew from 1 to 5, in 4 min 25 s"


def test_no_fact_of_an_unknown_entry_is_shown_as_it_is_stored() -> None:
    for kind in ("plan", "operation", "pass", "release", "of a later release"):
        text = sentence(
            entry(kind, gaps="0", healthy="True", was_on="False", nodes="x", failures="y")
        )
        assert not {"gaps", "healthy", "True", "was_on", "False"} & set(text.split()), text


@pytest.mark.parametrize(
    ("facts", "nothing"),
    [
        ({}, True),
        ({"unneeded": 2, "gaps": 1}, True),
        ({"scaleUps": 1}, False),
        ({"removals": 1}, False),
    ],
)
def test_decision_says_whether_it_changes_anything(facts: Facts, nothing: bool) -> None:
    line = line_of(entry("plan", nodes=5, **facts))
    assert isinstance(line, PlanLine)
    assert line.changes_nothing is nothing
    assert not isinstance(line_of(entry("plan", nodes=5, repairs=1)), OtherLine)


def test_entries_come_back_from_the_store_with_their_types() -> None:
    """Every kind, as a table of DynamoDB returns it."""
    store = MemoryAccount().store("test", clock=lambda: NOW)
    written = [stored for name, (stored, _) in SENTENCES.items() if name not in UNTYPED]
    for at, stored in enumerate(written):
        store.journal.append("shop", msgspec.structs.replace(stored, at=NOW - at))
    read = store.journal.recent("shop", len(written))
    assert [sentence(stored) for stored in read] == [sentence(stored) for stored in written]
    assert len(read) == len(written) == len(SENTENCES) - len(UNTYPED)
    assert not [stored for stored in read if isinstance(line_of(stored), OtherLine)]


def test_every_type_of_line_is_among_the_sentences() -> None:
    types = {type(line_of(stored)) for stored, _ in SENTENCES.values()}
    assert types == set(typing.get_args(JournalLine))


def test_entries_that_are_written_now_have_types() -> None:
    failure = PassFailure("Unavailable", "no route", NOW - 60, NOW - 5, 2)
    written = [
        plan_entry(plan(unschedulable=(refused("shop/web-1"),))),
        plan_entry(plan()),
        failing_entry(failure, NOW),
        recovered_entry(failure, NOW, NOW),
    ]
    for kind in OperationKind:
        over = ended(kind)
        written += [
            outcome_entry(over, Succeeded({"from": 1}), NOW),
            outcome_entry(over, Failed("Unknown", "x"), NOW),
        ]
    assert len(written) == 4 + 2 * len(OperationKind)
    assert not [stored for stored in written if isinstance(line_of(stored), OtherLine)]


@pytest.mark.parametrize("state", OperationState)
def test_only_a_succeeded_operation_did_what_was_planned(state: OperationState) -> None:
    operation_line = operation_of(entry("operation", "w", kind="grow", state=state.value))
    assert operation_line is not None
    assert operation_line.succeeded is (state is OperationState.SUCCEEDED)
    assert operation_of(entry("plan", kind="grow", state=state.value)) is None


def test_stored_names_of_facts_are_the_names_of_fields() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(journal_lines.OperationLine)}
    assert {"from", "to", "class", "code", "message", "targets", "rules", "seconds"} <= names


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (59.6, "1 min"),
        (265.0, "4 min 25 s"),
        (3600.0, "1 h"),
        (7515.0, "2 h 5 min"),
        (86_460.0, "24 h 1 min"),
    ],
)
def test_duration_is_spoken(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
