"""A table that the commit before has written is read, written and carried on to the same items.

`python -m tests.recorded.state` says how the recording is made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.journal import carry_over
from chalicelib.model.machine_offers import MachineOffers
from chalicelib.model.memory import Memory
from chalicelib.model.operation_document import OperationDocument, to_document
from chalicelib.store.journal import JournalEntry
from tests.recorded import state
from tests.recorded.filling import converted, words_in, words_of

RECORDED = state.recorded()
GIVEN, ITEMS = RECORDED["given"], RECORDED["items"]
KINDS: tuple[tuple[str, Any], ...] = (
    ("memory", Memory),
    ("operations", OperationDocument),
    ("journal", JournalEntry),
    ("left", carry_over.CarryOver),
)
#: Stored in the flat form, which is OperationDocument.
FLATTENED = frozenset({"Operation", "OperationSpec", "OperationStatus"})


def loaded() -> tuple[Any, Any, Any]:
    client, store, clock = state.bed()
    state.load(client, ITEMS)
    return client, store, clock


def same(one: Any, other: Any) -> None:
    """The first differing rows, if any."""
    assert next(state.differences(state.unpacked(one), state.unpacked(other)), "") == ""


def recorded_words(names: tuple[str, ...]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    words: set[tuple[str, str]] = set()
    fields: set[tuple[str, str]] = set()
    for name, kind in KINDS:
        for value in GIVEN[name] if isinstance(GIVEN[name], list) else [GIVEN[name]]:
            found = words_in(value, kind)
            words, fields = words | found[0], fields | found[1]
    return words, fields


def test_the_store_writes_the_recorded_items() -> None:
    client, store, clock = state.bed()
    state.write(store, clock, GIVEN)
    same(ITEMS, state.items(client))


def test_recorded_items_are_carried_on_to_the_recorded_items() -> None:
    client, store, clock = loaded()
    clock.advance(4.0)  # as far as writing took
    state.carry_on(store, clock)
    same(RECORDED["carried"], state.items(client))


def test_recorded_memory_is_read_as_it_was_given() -> None:
    _, store, _ = loaded()
    read = msgspec.structs.replace(store.memory.load(state.CLUSTER), operations=())
    assert read == converted(GIVEN["memory"], Memory)


def test_recorded_operations_of_every_kind_in_every_state_are_read_as_given() -> None:
    _, store, _ = loaded()
    assert GIVEN["operations"]
    for each in GIVEN["operations"]:
        assert to_document(store.operations.get(state.CLUSTER, each["id"])) == converted(
            each, OperationDocument
        )


def test_recorded_journal_counters_and_policies_are_read_as_given() -> None:
    _, store, _ = loaded()
    entries = store.journal.recent(state.CLUSTER)
    assert [each.body for each in reversed(entries)] == [each["body"] for each in GIVEN["journal"]]
    ledger = store.journal.ledger(state.CLUSTER)
    assert (ledger.counts, ledger.state) == (
        {"events": 1.0, "passes": 3.0, "scaled_up.nodes": 2.0},
        b'{"told": 1}',
    )
    assert [(each.version, each.digest) for each in store.policies.history(state.CLUSTER)] == [
        (2, "digest-2"),
        (1, "digest-1"),
    ]
    assert store.policies.webhooks()[state.CLUSTER].secret == "outscaler/prod-geneva/webhook"


def test_recorded_machines_of_managed_pools_are_read_as_given() -> None:
    _, store, _ = loaded()
    offers = store.journal.offers(state.CLUSTER, state.OFFERS)
    assert offers == converted(GIVEN["offers"], MachineOffers)
    entries = store.journal.recent(state.CLUSTER)
    given = [converted(each, JournalEntry) for each in GIVEN["journal"]]
    assert [each.fits for each in reversed(entries)] == [each.fits for each in given]
    assert all(each.fits is not None for each in given)


def test_what_a_recorded_pass_left_is_read_as_given() -> None:
    _, store, _ = loaded()
    lease = store.leases.acquire(state.CLUSTER, "pass-4", 60.0)
    assert carry_over.read(lease.carry_over) == converted(GIVEN["left"], carry_over.CarryOver)
    assert lease.decision == "0123456789abcdef"
    assert msgspec.to_builtins(lease.failure) == {
        "cls": "Throttled",
        "message": "the vendor is busy",
        "since": state.NOW - 60.0,
        "at": state.NOW,
        "count": 3,
    }


def test_recorded_claims_shelf_and_webhook_marks_are_read_as_given() -> None:
    _, store, _ = loaded()
    assert set(store.group_ownership.owners().values()) == {state.CLUSTER}
    assert store.cache.get("prices#ch-gva-2") == b'{"standard": 1}'
    assert store.debounce.used(state.CLUSTER, "signature")
    assert store.rate_limits.take(state.Rate("held"), 1) > 0.0


def test_every_field_and_word_of_what_is_stored_is_in_the_recording() -> None:
    words, fields = recorded_words(tuple(name for name, _ in KINDS))
    for _, kind in KINDS:
        expected_words, expected_fields = words_of(kind)
        stored = {(struct, field) for struct, field in expected_fields if struct not in FLATTENED}
        assert sorted(stored - fields) == []
        assert sorted(expected_words - words) == []
