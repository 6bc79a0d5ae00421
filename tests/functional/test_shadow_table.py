"""The disagreements of `outscaler shadow` as people read them: how wide they are, and
what may be typed again.
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest

from chalicelib.cli.main import main
from chalicelib.cli.output import columns
from chalicelib.shadow.records import (
    GROWTH,
    REMOVAL,
    Ledger,
    Match,
    Observation,
    ShadowVerdict,
    add,
    match_id,
)
from chalicelib.shadow.verdicts import UNKNOWN
from chalicelib.store import Store
from tests.cases import each_row
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.terminal import Terminal
from tests.unit.policy.policy_documents import GOOD

NAME = "prod-geneva"
PIPED = 140
LONG = "gke-prod-eu-central-1-workers-with-a-name-of-63-letters"
NODES = tuple(f"{LONG}-{suffix}" for suffix in ("x7k2m4q", "x7k2m4r", "b81ws0z"))
# The names differ in the middle only.
SIMILAR_NODES = tuple(
    f"ip-10-0-0-17.a-long-name-{number}-of-a-zone.compute.a-vendor.internal" for number in (12, 13)
)
GROUPS = tuple(
    f"MachineDeployment/a-namespace-with-a-name/{LONG}-{zone}" for zone in ("zone-1a", "zone-1b")
)
POD = f"a-namespace-with-a-name/{LONG}-5c9f7d-abcde"
NEW_TAINT = (
    "known difference: Cluster Autoscaler bought again while nodes were starting: "
    "node.cluster.x-k8s.io/uninitialized "
    "is no startup taint to it without --startup-taint=node.cluster.x-k8s.io/uninitialized"
)
WAITS = "Outscaler removes it 6m later: it was unneeded for 4m of 10m"


@pytest.fixture
def store(account: Store) -> Store:
    account.policies.put(NAME, GOOD, "d", None)
    return account


def removed(verdict: ShadowVerdict, node: str, **more: Any) -> Match:
    at = NOW - 43200.0
    return Match(match_id(REMOVAL, at, node), REMOVAL, at, verdict, node, **more)


def grew(
    verdict: ShadowVerdict, theirs: dict[str, int], ours: dict[str, int], **more: Any
) -> Match:
    at = NOW - 43200.0
    name = match_id(GROWTH, at, f"{verdict}{theirs}{ours}")
    return Match(name, GROWTH, at, verdict, theirs=theirs, ours=ours, **more)


DISAGREEMENTS = (
    removed(ShadowVerdict.ONLY_OURS, NODES[0], cause=UNKNOWN, detail=f"pods: {POD}; no soft taint"),
    removed(
        ShadowVerdict.LATER,
        NODES[1],
        cause="Cluster Autoscaler restarted at 2026-11-23T08:00:00Z",
        detail=WAITS,
    ),
    removed(ShadowVerdict.REFUSED, NODES[2], cause=UNKNOWN, detail="no place to move its pods"),
    removed(
        ShadowVerdict.REFUSED, SIMILAR_NODES[0], cause=UNKNOWN, detail="no place to move its pods"
    ),
    removed(
        ShadowVerdict.REFUSED, SIMILAR_NODES[1], cause=UNKNOWN, detail="no place to move its pods"
    ),
    grew(ShadowVerdict.MISSED, {GROUPS[0]: 12}, {}, cause=UNKNOWN, detail=f"{POD}: no group fits"),
    grew(ShadowVerdict.FEWER, {GROUPS[0]: 4}, {GROUPS[0]: 2}, cause=NEW_TAINT),
    grew(
        ShadowVerdict.CHOICE,
        {GROUPS[0]: 2},
        {GROUPS[1]: 2},
        cause="an exact tie, which Cluster Autoscaler draws",
    ),
    grew(
        ShadowVerdict.MORE,
        dict.fromkeys("abcdefghijkl", 1),
        dict.fromkeys("abcdefghijkl", 2),
        cause=UNKNOWN,
    ),
    grew(ShadowVerdict.EXTRA, {}, {GROUPS[1]: 1}, cause=UNKNOWN, detail=f"for {POD}, {POD}"),
)


def compared(store: Store, *matches: Match) -> None:
    ledger = add(Ledger(NOW - 9 * 86400.0, Observation(NOW - 30)), *matches)
    store.shadow().save(NAME, ledger, 7)


def printed(*arguments: str, out: io.StringIO | None = None) -> str:
    """What the command prints, to a pipe unless `out` is a terminal."""
    out = out or io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(list(arguments)) == 0
    return out.getvalue()


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> str:
    for name, value in {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    return printed("shadow", NAME, out=Terminal())


def disagreements(text: str) -> list[str]:
    """The lines from the head of the table to the next empty line."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("VERDICT"))
    return lines[start : lines.index("", start)]


def test_piped_output_has_one_line_of_140_columns_per_verdict(store: Store) -> None:
    compared(store, *DISAGREEMENTS)
    printed("shadow", "accept", NAME, DISAGREEMENTS[0].id)
    text = printed("shadow", NAME)
    assert max(map(columns, text.splitlines())) <= PIPED
    head, *rows = disagreements(text)
    assert head.split() == ["VERDICT", "WHEN", "(UTC)", "WHAT", "CAUSE;", "DETAIL", "ID"]
    assert {row.split()[-1] for row in rows} == {match.id for match in DISAGREEMENTS}
    assert len(rows) == len(DISAGREEMENTS)
    assert "unknown; no place to move its pods" in text
    words = " ".join(text.split())
    for match in DISAGREEMENTS:
        assert match.detail in words
        assert match.cause in words


@each_row("width", [80, 100, 120])
def test_each_verdict_is_a_few_whole_lines_on_a_terminal(
    store: Store, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    compared(store, *DISAGREEMENTS)
    text = on_terminal(monkeypatch, width)
    for line in text.splitlines():
        assert columns(line) <= width or len(line.split()) == 1, "only a word may be wider"
    lines = disagreements(text)
    for match in DISAGREEMENTS:
        assert sum(match.id in line for line in lines) == 1
    assert len(lines) <= 1 + 5 * len(DISAGREEMENTS)
    words = " ".join(" ".join(lines).split())
    assert f"cause: {NEW_TAINT}" in words
    assert "it was unneeded for 4m of 10m" in words
    assert f"{POD}: no group fits" in words
    assert "--startup-taint=node.cluster.x-k8s.io/uninitialized" in words


def test_verdicts_with_short_texts_are_one_line_on_a_terminal(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(
        store,
        removed(ShadowVerdict.REFUSED, "w-17", cause=UNKNOWN, detail="no place to move its pods"),
    )
    head, row = disagreements(on_terminal(monkeypatch, 100))
    assert head.split() == ["VERDICT", "WHEN", "WHAT", "CAUSE", "DETAIL", "ID"]
    assert "w-17   unknown   no place to move its pods" in row


def test_whatever_names_a_verdict_in_the_table_is_accepted(store: Store) -> None:
    compared(store, *DISAGREEMENTS)
    for row in disagreements(printed("shadow", NAME))[1:]:
        printed("shadow", "accept", NAME, row.split()[-1])
    assert all(
        match["accepted"] for match in json.loads(printed("shadow", NAME, "-o", "json"))["matches"]
    )


def test_folded_node_is_accepted_as_the_node_itself(store: Store) -> None:
    compared(store, *DISAGREEMENTS)
    rows = disagreements(printed("shadow", NAME))[1:]
    nodes = {match.id: match.node for match in DISAGREEMENTS if match.node}
    shown = {
        row.split()[-1]: next(word for word in row.split() if "…" in word)
        for row in rows
        if row[-8:] in nodes
    }
    assert shown.keys() == nodes.keys()
    for result, text in shown.items():
        answer = json.loads(printed("shadow", "accept", f"{NAME}/{text}", "-o", "json"))
        assert answer["accepted"] == nodes[result]


def test_folded_node_is_not_taken_for_one_with_the_same_ends(store: Store) -> None:
    short_node = "gke-prod-eu-cen_-letters-x7k2m4q"
    compared(store, *DISAGREEMENTS, removed(ShadowVerdict.REFUSED, short_node))
    text = short_node.replace("_", "…")
    assert text in printed("shadow", NAME)
    assert (
        json.loads(printed("shadow", "accept", f"{NAME}/{text}", "-o", "json"))["accepted"]
        == NODES[0]
    )
    assert (
        json.loads(printed("shadow", "accept", f"{NAME}/{short_node}", "-o", "json"))["accepted"]
        == short_node
    )


def test_folded_name_of_several_nodes_is_refused_with_their_names(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(store, *DISAGREEMENTS)
    assert main(["shadow", "accept", f"{NAME}/ip-10…al"]) == 2
    error = capsys.readouterr().err
    assert "is the short form of 2 nodes" in error
    assert SIMILAR_NODES[0] in error


def test_columns_that_say_nothing_are_left_out(store: Store) -> None:
    compared(store, removed(ShadowVerdict.ONLY_OURS, "w-17"))
    assert disagreements(printed("shadow", NAME))[0].split() == [
        "VERDICT",
        "WHEN",
        "(UTC)",
        "WHAT",
        "ID",
    ]


def test_growth_names_both_autoscalers_in_few_words(store: Store) -> None:
    compared(
        store, *DISAGREEMENTS, grew(ShadowVerdict.CHOICE, {"web": 3}, {"jobs": 3}, cause=UNKNOWN)
    )
    text = printed("shadow", NAME)
    assert "web +3, Outscaler jobs +3" in text
    assert "12 nodes, Outscaler 24" in text
    assert "a +1, b +1" in text
    assert "zone-1a +12, Outscaler nothing" in text
    assert "zone-1a +4, Outscaler +2" in text


def test_headline_has_units_in_words_and_the_next_commands_a_line_each(store: Store) -> None:
    slow = Match(
        "1f0c9a2e",
        GROWTH,
        NOW - 43200.0,
        ShadowVerdict.SAME,
        "",
        {"web": 1},
        {"web": 1},
        lead=-65.0,
    )
    compared(store, slow, removed(ShadowVerdict.ONLY_OURS, NODES[0]))
    text = printed("shadow", NAME)
    assert text.startswith(f"{NAME}, 9 days: 1 growth, 0 removals by Cluster Autoscaler\n")
    assert "Outscaler 65 seconds later" in text
    assert f"\nNext: outscaler explain node {NODES[0]} --cluster {NAME}\n" in text
    assert f"\nthen: outscaler shadow accept {NAME}/{NODES[0]}\n" in text
