"""The journal can be read for a limited time, and no entry can fail a pass."""

from __future__ import annotations

import random

import msgspec

from chalicelib.store import JournalEntry
from chalicelib.store.journal import KEPT
from chalicelib.store.tables import JOURNAL
from tests.unit.store.support import START, RequestCounter, StoreFixture


def test_journal_lists_the_newest_first(bench: StoreFixture) -> None:
    entries = [
        JournalEntry(
            START + n,
            "plan",
            plan=f"plan-{n}",
            group="g",
            facts={"pods": n, "ok": True},
            body='{"a":1}',
        )
        for n in range(5)
    ]
    for entry in entries:
        bench.store.journal.append(bench.cluster, entry)
    assert bench.store.journal.recent(bench.cluster, 3) == (entries[4], entries[3], entries[2])
    assert bench.store.journal.recent(bench.cluster + "-other", 3) == ()


def test_journal_repeated_entry_is_one_and_two_at_one_time_are_two(bench: StoreFixture) -> None:
    once, other = (
        JournalEntry(START, "wake", facts={"n": 1}),
        JournalEntry(START, "wake", facts={"n": 2}),
    )
    for entry in (once, once, other):
        bench.store.journal.append(bench.cluster, entry)
    assert {msgspec.json.encode(entry) for entry in bench.store.journal.recent(bench.cluster)} == {
        msgspec.json.encode(once),
        msgspec.json.encode(other),
    }


def test_journal_entries_expire_by_the_clock_and_are_deleted_later(bench: StoreFixture) -> None:
    bench.store.journal.append(bench.cluster, JournalEntry(START, "wake"))
    (row,) = bench.store.table.query(bench.cluster, JOURNAL)
    assert row["expires_at"] == {"N": str(int(START + KEPT))}
    bench.clock.advance(KEPT - 1)
    assert len(bench.store.journal.recent(bench.cluster)) == 1
    bench.clock.advance(1)
    assert bench.store.journal.recent(bench.cluster) == ()


def test_journal_body_too_large_for_a_row_is_omitted_and_its_facts_stay(
    bench: StoreFixture,
) -> None:
    noise = random.Random(7).randbytes(700_000).hex()
    bench.store.journal.append(
        bench.cluster, JournalEntry(START, "plan", plan="p", facts={"pods": 3}, body=noise)
    )
    (entry,) = bench.store.journal.recent(bench.cluster)
    assert (entry.plan, entry.facts["pods"], entry.body) == ("p", 3, "")
    assert "1400000 characters" in str(entry.facts["body_left_out"])


def test_journal_can_be_read_backwards_from_a_time(bench: StoreFixture) -> None:
    entries = [JournalEntry(START + n / 8, "plan", plan=f"plan-{n}") for n in range(30)]
    for entry in entries:
        bench.store.journal.append(bench.cluster, entry)
    # at the same time as entries[16]
    bench.store.journal.append(bench.cluster, JournalEntry(START + 2, "wake"))
    recent = bench.store.journal.recent
    with RequestCounter(bench) as counter:
        assert recent(bench.cluster, 3, before=START + 2) == (entries[15], entries[14], entries[13])
    assert counter.items_read == 3, "newer ones are not paid for"
    assert recent(bench.cluster, 50, before=START + 2 + 1e-6)[2:] == tuple(reversed(entries[:16]))
    for nothing in (START, 0.0, -1e9):
        assert recent(bench.cluster, before=nothing) == ()
    assert recent(bench.cluster, before=250_000_000_000.0)[0] == entries[-1]
