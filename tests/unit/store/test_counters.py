"""Counters are never lost, whoever counts; the list of posted events is replaced only by a
writer that has read it.
"""

from __future__ import annotations

import pytest

from chalicelib.store import JournalEntry
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.journal import CounterTotals
from infra.emulators.aws_faults import lost_answer
from tests.unit.store.support import START, RequestCounter, StoreFixture, all_at_once

SERIES = "failed_scale_ups_total;reason=Out.Of/Stock"


def test_counter_totals_are_empty_for_an_uncounted_cluster(bench: StoreFixture) -> None:
    assert bench.store.journal.ledger(bench.cluster) == CounterTotals()
    assert bench.store.journal.ledgers([bench.cluster, "other"]) == {}


def test_counter_totals_concurrent_counts_are_all_added(bench: StoreFixture) -> None:
    def count() -> None:
        for _ in range(10):
            bench.fresh().journal.count(bench.cluster, {SERIES: 1.0, "scaled_up_nodes_total": 2.5})

    all_at_once([count] * 4)
    assert bench.store.journal.ledger(bench.cluster).counts == {
        SERIES: 40.0,
        "scaled_up_nodes_total": 100.0,
    }


def test_counter_totals_posted_events_are_replaced_together_with_the_counts(
    bench: StoreFixture,
) -> None:
    journal = bench.store.journal
    assert journal.tell(bench.cluster, {"n": 1.0}, b"first", expected="")
    assert not journal.tell(bench.cluster, {"n": 1.0}, b"late", expected="")
    ledger = journal.ledger(bench.cluster)
    assert (ledger.counts, ledger.state) == ({"n": 1.0}, b"first")
    assert journal.tell(bench.cluster, {"n": 1.0}, b"second", expected=ledger.version)
    assert not journal.tell(bench.cluster, {}, b"third", expected=ledger.version)
    assert journal.ledger(bench.cluster).state == b"second"


def test_counter_totals_counting_does_not_block_a_replacement_of_events(
    bench: StoreFixture,
) -> None:
    journal = bench.store.journal
    journal.count(bench.cluster, {"n": 1.0})
    assert journal.tell(bench.cluster, {"n": 1.0}, b"told", expected="")
    version = journal.ledger(bench.cluster).version
    journal.count(bench.cluster, {"n": 1.0})
    assert journal.tell(bench.cluster, {"n": 1.0}, b"more", expected=version)
    assert journal.ledger(bench.cluster).counts == {"n": 4.0}


def test_counter_totals_one_of_several_concurrent_replacements_succeeds(
    bench: StoreFixture,
) -> None:
    def tell(word: bytes) -> bool:
        return bench.fresh().journal.tell(bench.cluster, {"n": 1.0}, word, expected="")

    said = all_at_once([lambda word=word: tell(word) for word in (b"a", b"b", b"c", b"d")])  # type: ignore[misc]
    assert sorted(said, key=str) == [False, False, False, True]
    assert bench.store.journal.ledger(bench.cluster).counts == {"n": 1.0}


def test_counter_totals_first_write_with_a_lost_answer_is_recognized(bench: StoreFixture) -> None:
    bench.faults.after("update_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        bench.store.journal.tell(bench.cluster, {"n": 1.0}, b"told", expected="")
    assert bench.store.journal.tell(bench.cluster, {"n": 1.0}, b"told", expected="")
    assert bench.store.journal.ledger(bench.cluster).counts == {"n": 1.0}


def test_counter_totals_cost_one_write_and_no_journal_entry(bench: StoreFixture) -> None:
    with RequestCounter(bench) as counter:
        bench.store.journal.tell(bench.cluster, {"a": 1.0, "b": 2.0}, b"told", expected="")
    assert counter.items_written == 1
    bench.store.journal.append(bench.cluster, JournalEntry(START, "wake"))
    assert len(bench.store.journal.recent(bench.cluster)) == 1
    assert bench.load().operations == ()
