"""Lines of the journal: a sentence per kind of entry, and stored facts for what has no type."""

from __future__ import annotations

import typing

import msgspec
import pytest

from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.record import journal_lines
from chalicelib.record.journal import failing_entry, outcome_entry, plan_entry, recovered_entry
from chalicelib.record.journal_lines import JournalLine, OtherLine, line_of, operation_of, sentence, spoken
from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import PassFailure
from tests.unit.record.support import NOW, ended, plan, refused

Facts = dict[str, str | int | float | bool]
KEPT: Facts = {"kept n-2": "busy"}
BY = "arn:aws:iam::1:user/kim"


def entry(kind: str, group: str = "", /, **facts: str | float | bool) -> JournalEntry:
    return JournalEntry(at=NOW, kind=kind, group=group, facts=facts)


GREW: Facts = {"kind": "grow", "provider": "exoscale", "state": "succeeded", "seconds": 265.2, "from": 1, "to": 5}
SENTENCES: dict[str, tuple[JournalEntry, str]] = {
    "grew": (entry("operation", "workers", **GREW), "grew workers from 1 to 5, in 4 min 25 s"),
    "grew for a rule": (
        entry("operation", "workers", **GREW, rules="busy,night"),
        "grew workers from 1 to 5 for rules busy, night, in 4 min 25 s",
    ),
    "noted": (
        entry("operation", "workers", **GREW, note="still running"),
        "grew workers from 1 to 5, in 4 min 25 s; still running",
    ),
    "not grown": (
        entry(
            "operation", "w", **(GREW | {"state": "failed"}), **{"class": "OutOfStock", "code": "E1", "message": "none"}
        ),
        "could not grow w from 1 to 5: OutOfStock.E1: none, after 4 min 25 s",
    ),
    "given up": (
        entry(
            "operation", "w", kind="grow", state="abandoned", **{"class": "Abandoned", "message": "no longer needed"}
        ),
        "did not grow w: Abandoned: no longer needed",
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
        "removed n-1, n-3 from w, in 1 min 1 s; kept n-2: busy",
    ),
    "removed many": (
        entry("operation", "w", kind="remove", state="succeeded", targets=",".join(f"n-{at}" for at in range(7))),
        "removed n-0, n-1, n-2, n-3, n-4 and 2 more from w",
    ),
    "lowered": (
        entry("operation", "w", kind="shrink", state="succeeded", **{"from": 5, "to": 3}),
        "lowered the target of w from 5 to 3",
    ),
    "discarded": (
        entry("operation", "w", kind="discard", state="succeeded", targets="i-1"),
        "discarded i-1 of w",
    ),
    "of an earlier release": (entry("operation", "w", kind="remove", state="succeeded"), "removed nodes from w"),
    "decided nothing": (entry("plan", nodes=5, healthy=True, scaleUps=0), "decided on no change for 5 nodes"),
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
            "decided on 1 scale-up and 2 removals and 1 repair (rules a, b) for 1 node; the cluster is unhealthy; "
            "3 pods without a place; 4 nodes not needed; 1 thing not read"
        ),
    ),
    "failing": (
        entry("pass", state="failing", **{"class": "Unauthorized", "message": "refused"}),
        "passes fail: Unauthorized: refused",
    ),
    "recovered": (
        entry("pass", state="recovered", failures=1, seconds=7500.0, since="x", **{"class": "Unavailable"}),
        "passes succeed again, after 1 failure (Unavailable) in 2 h 5 min",
    ),
    "policy": (entry("policy", version=2, digest="ab", by=BY), f"stored version 2 of the policy, by {BY}"),
    "policy accepted": (
        entry("policy", version=2, digest="ab", accepted="rights.nodes", reason="later", by=BY),
        f"stored version 2 of the policy, in spite of rights.nodes: later, by {BY}",
    ),
    "pause": (
        entry("pause", "web", until="T", part="removals", reason="test", by=BY),
        f"paused removals of group web until T: test, by {BY}",
    ),
    "pause of all": (
        entry("pause", until="T", part="all", reason="test", by=BY),
        f"paused everything until T: test, by {BY}",
    ),
    "resume": (
        entry("resume", part="all", reason="test", by=BY, **{"was until": "T"}),
        f"resumed everything, paused until T: test, by {BY}",
    ),
    "retry": (
        entry("retry", kind="group", name="web", was="until T", by=BY),
        f"tried group web again, which waited until T, by {BY}",
    ),
    "release": (
        entry("release", until="T", was_on=True, by=BY),
        f"released the circuit breaker until T, which was tripped, by {BY}",
    ),
    "claim": (entry("claim-released", claim="k", provider="p", since="T", by=BY), f"gave back the claim on k, by {BY}"),
    "uninstalled": (
        entry("uninstalled", objects=2, by=BY),
        f"uninstalled, with 2 objects of the cluster cleaned, by {BY}",
    ),
    "accept": (entry("accept", accepted="prod/n-1", by=BY), f"accepted prod/n-1, by {BY}"),
    "unknown kind": (entry("wake", by="webhook", n=1), "by webhook, n 1"),
    "missing fact": (entry("operation", n=59), "n 59"),
    "fact of another type": (entry("plan", nodes="many"), "nodes many"),
    "fact that is called facts": (entry("wake", facts="x", kept=2), "facts x, kept 2"),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_entry_is_a_sentence(case: str) -> None:
    stored, expected = SENTENCES[case]
    assert sentence(stored) == expected
    assert "{" not in expected


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
