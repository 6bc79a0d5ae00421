"""`outscaler history` tells what happened in sentences, and folds away what changed nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec
import pytest

from chalicelib.cli.commands import history
from chalicelib.cli.commands.history import JournalFilter
from chalicelib.cli.main import main
from chalicelib.journal.journal import plan_entry
from chalicelib.page.timeline import FILTERS, event_of, selected
from chalicelib.store import JournalEntry, Store
from tests.builders import cluster
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.functional.test_cli_get import BURST, SHOP, answer, empty, printed, screen, store

__all__ = ["empty", "screen", "store"]  # fixtures

Facts = Mapping[str, str | int | float | bool]
Said = pytest.CaptureFixture[str]


def operation(
    store: Store, at: float, state: str, facts: Facts, group: str = "web", plan: str = ""
) -> None:
    whole = {"kind": "grow", "provider": "clusterapi", "state": state, **facts}
    store.journal.append(
        SHOP, JournalEntry(at=at, kind="operation", group=group, plan=plan, facts=whole)
    )


def quiet(store: Store, count: int, at: float = NOW - 5000) -> None:
    """Decisions that change nothing, each different from the one before."""
    plan = cluster().node("n", "4").group("web").plan()
    for number in range(count):
        entry = plan_entry(msgspec.structs.replace(plan, at=at + number, id=f"q{number}"))
        store.journal.append(SHOP, msgspec.structs.replace(entry, body=""))


@pytest.fixture
def day(store: Store) -> Store:
    """A day with growths, a failure, a removal and a person's act. An operation stands
    for the fixture's decision."""
    decided = store.journal.recent(SHOP, 1)[0]
    growth: Facts = {"from": 1, "to": 3, "pods": 2, "seconds": 63.2}
    failure: Facts = {
        "from": 0,
        "to": 2,
        "class": "OutOfStock",
        "message": "no capacity",
        "seconds": 12.0,
    }
    removal: Facts = {"kind": "remove", "targets": "w-1,w-2", "pods": 3, "seconds": 69.0}
    refusal: Facts = {
        "from": 1,
        "to": 2,
        "class": "Abandoned",
        "message": "the mode is off",
        "seconds": 5.0,
    }
    operation(store, NOW - 30, "succeeded", growth, plan=decided.plan)
    operation(store, NOW - 90, "failed", failure, BURST)
    operation(store, NOW - 7200, "succeeded", removal)
    operation(store, NOW - 7300, "abandoned", refusal)
    facts: Facts = {
        "until": "2026-11-18T12:06:40Z",
        "part": "removals",
        "reason": "sale",
        "by": "me",
    }
    store.journal.append(
        SHOP, JournalEntry(at=NOW - 86_400, kind="pause", group="web", facts=dict(facts))
    )
    quiet(store, 3)
    return store


def test_history_is_sentences_with_what_is_under_way_first(day: Store, capsys: Said) -> None:
    del day
    lines = printed(capsys, "history", SHOP)
    assert main(["history", SHOP]) == 0
    notes = capsys.readouterr().err
    assert [tuple(re.split(" {3,}", line)) for line in lines] == [
        ("WHEN", "WHAT HAPPENED", "RESULT"),
        ("2026-11-18T11:05:59Z", "web grows from 2 to 4", "under way, 41s"),
        ("2026-11-18T11:06:40Z", "stored version 1 of the policy"),
        ("2026-11-18T11:06:10Z", "web grew from 1 to 3 for 2 pods", "done in 1m3s"),
        (
            "2026-11-18T11:05:10Z",
            "burst could not grow from 0 to 2: sold out: no capacity",
            "failed",
        ),
        ("2026-11-18T09:06:40Z", "w-1, w-2 were removed from web, 3 pods moved", "done in 1m9s"),
        ("2026-11-18T09:05:00Z", "web did not grow from 1 to 2: the mode is off", "given up"),
        (
            "2026-11-17T11:06:40Z",
            "paused removals of group web until 2026-11-18T12:06:40Z: sale, by me",
        ),
    ]
    assert notes == "(3 decisions without a change are not shown; --all)\n"


def test_history_on_a_terminal_has_local_times_with_their_zone(
    day: Store, screen: Callable[..., list[str]]
) -> None:
    del day
    lines = screen("history", SHOP, "--since", "1h")
    assert [re.split(" {3,}", line)[0] for line in lines] == [
        "WHEN (CET)",
        "12:05",
        "12:06",
        "12:06",
        "12:05",
    ]
    assert max(map(len, lines)) <= 100
    assert screen("history", SHOP)[-1].split("  ")[0] == "Nov 17 12:06"


def test_history_with_all_shows_every_decision(day: Store, capsys: Said) -> None:
    del day
    lines = printed(capsys, "history", SHOP, "--all")
    assert sum("decided on no change in a cluster of 1 node" in line for line in lines) == 3
    assert (
        sum(
            "decided on 1 scale-up in a cluster of 2 nodes; 1 pod without a place" in line
            for line in lines
        )
        == 1
    )
    assert "not shown" not in lines[-1]
    assert (
        sum("decided" in line for line in printed(capsys, "history", SHOP, "--kind", "plan")) == 4
    )


def test_lines_are_found_behind_many_decisions_without_a_change(store: Store, capsys: Said) -> None:
    operation(store, NOW - 9000, "succeeded", {"from": 1, "to": 3})
    quiet(store, 300)
    lines = printed(capsys, "history", SHOP, "--limit", "4")
    assert sum("web grew from 1 to 3" in line for line in lines) == 1
    assert main(["history", SHOP, "--limit", "4"]) == 0
    notes = capsys.readouterr().err
    assert notes == "(300 decisions without a change are not shown; --all)\n"


def test_history_json_keeps_the_newest_entries_as_they_are_stored(day: Store, capsys: Said) -> None:
    del day
    data = answer(capsys, "history", SHOP, "--limit", "3")
    assert [entry["kind"] for entry in data["journal"]] == ["operation", "operation", "plan"]
    assert data["journal"][0]["facts"]["seconds"] == 63.2
    assert [version["version"] for version in data["versions"]] == [1]


def test_cluster_of_history_may_be_omitted_where_there_is_only_one(
    store: Store, capsys: Said
) -> None:
    assert printed(capsys, "history") == printed(capsys, "history", SHOP)
    store.policies.put("lab", "x", "d", None)
    assert main(["history"]) == 2
    assert "needs a cluster's name; write one of lab, shop" in capsys.readouterr().err


def test_filters_select_what_is_under_way_too(day: Store, capsys: Said) -> None:
    del day
    assert [
        line.split("   ")[1] for line in printed(capsys, "history", SHOP, "--group", BURST)[1:2]
    ] == ["burst could not grow from 0 to 2: sold out: no capacity"]
    assert not any(
        "under way" in line for line in printed(capsys, "history", SHOP, "--group", BURST)
    )
    assert not any(
        "under way" in line for line in printed(capsys, "history", SHOP, "--kind", "pause")
    )
    assert (
        sum(
            "under way" in line
            for line in printed(capsys, "history", SHOP, "--operation", "grow-1")
        )
        == 1
    )


def test_history_without_a_line_says_so(empty: Store, capsys: Said) -> None:
    empty.policies.put(SHOP, "x", "d", None)
    assert "stored version 1 of the policy" in printed(capsys, "history", SHOP)[1]
    assert printed(capsys, "history", SHOP, "--kind", "pause") == []
    assert main(["history", SHOP, "--kind", "pause"]) == 0
    assert capsys.readouterr().err == "nothing of it has happened\n"


def test_followed_lines_are_sentences_without_quiet_decisions(store: Store, capsys: Said) -> None:
    def later(seconds: float) -> None:
        assert seconds == history.EVERY
        operation(store, NOW + 1, "succeeded", {"from": 1, "to": 3, "seconds": 63.2}, BURST)
        quiet(store, 1, NOW + 2)

    history.follow(store, SHOP, JournalFilter(), 5, "table", later, rounds=2, everything=False)
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "2026-11-18T11:06:41Z   burst grew from 1 to 3   done in 1m3s"
    )


KINDS_SHOWN = {
    "growth": {"web grew from 1 to 3", "burst could not grow", "web did not grow"},
    "scale-up": {"web grew from 1 to 3", "burst could not grow", "web did not grow"},
    "removal": {"w-1, w-2 were removed"},
    "failed": {"burst could not grow", "web did not grow"},
    "people": {"paused removals"},
    "pause": {"paused removals"},
    "repair": set(),
}


@pytest.mark.parametrize("word", KINDS_SHOWN)
def test_words_of_the_page_select_the_same_lines_of_history(
    word: str, day: Store, capsys: Said
) -> None:
    shown = {line for lines in KINDS_SHOWN.values() for line in lines}
    text = "\n".join(printed(capsys, "history", SHOP, "--kind", word))
    assert {line for line in shown if line in text} == KINDS_SHOWN[word]
    assert ("web grows from 2 to 4" in text) is (word in ("growth", "scale-up"))
    canonical = {"scale-up": "growth"}.get(word, word)
    if canonical in FILTERS:
        events = [event_of(entry, {}) for entry in day.journal.recent(SHOP, 50)]
        on_page = {event.text for event in selected(events, canonical, "")}
        assert {line for line in shown if any(line in one for one in on_page)} == KINDS_SHOWN[word]


def test_every_word_of_the_page_is_a_kind_of_history(day: Store, capsys: Said) -> None:
    del day
    for word in FILTERS:
        printed(capsys, "history", SHOP, "--kind", word)
    assert printed(capsys, "history", SHOP, "--kind", "all") == printed(capsys, "history", SHOP)


@pytest.mark.parametrize(
    ("word", "nearest"), [("foo", ""), ("growht", "growth"), ("operatoin", "operation")]
)
def test_unknown_kinds_are_refused_with_the_right_words(
    word: str, nearest: str, day: Store, capsys: Said
) -> None:
    del day
    assert main(["history", SHOP, "--kind", word]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{word!r} is not one of growth, removal, repair, failed, people, operation" in said.err
    assert ("did you mean" in said.err) is bool(nearest)
    assert nearest in said.err


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("arguments", [(), ("--all",), ("--kind", "operation")])
def test_limit_of_history_counts_lines_that_are_shown(
    limit: int, arguments: tuple[str, ...], store: Store, capsys: Said
) -> None:
    plan = cluster().node("n", "4").group("web").plan()
    for number in range(20):
        at = NOW - 9000 + number * 10
        decided = plan_entry(msgspec.structs.replace(plan, at=at, id=f"p{number}"))
        facts = dict(decided.facts, scaleUps=1)
        store.journal.append(SHOP, msgspec.structs.replace(decided, body="", facts=facts))
        operation(store, at + 5, "succeeded", {"from": 1, "to": 3}, plan=f"p{number}")
    quiet(store, 4, NOW - 9000 + 55)
    lines = printed(capsys, "history", SHOP, "--limit", str(limit), *arguments)
    assert sum(bool(re.match(r"20\d\d-", line)) for line in lines) == limit


def test_followed_history_begins_with_as_many_lines_as_the_limit(
    store: Store, capsys: Said
) -> None:
    for number in range(6):
        operation(store, NOW - 9000 + number, "succeeded", {"from": number, "to": 9})
    quiet(store, 20)
    history.follow(
        store, SHOP, JournalFilter(), 3, "table", lambda _: None, rounds=3, everything=False
    )
    assert len(capsys.readouterr().out.splitlines()) == 3
