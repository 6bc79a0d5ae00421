"""A save larger than one transaction is visible completely or not at all,
whatever process dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation, OperationState
from chalicelib.store import Store
from chalicelib.store.errors import (
    LeaseLost,
    RowUnreadable,
    StaleWrite,
    StoreError,
    StoreUnavailable,
)
from chalicelib.store.table_client import ATTEMPTS
from chalicelib.store.tables import STAGED, BlobRow
from infra.emulators.aws_faults import AwsFaults, busy, cancelled, lost_answer
from tests.unit.store.support import START, StoreFixture, all_at_once, new_table


@pytest.fixture
def table(connected: Any) -> str:
    """One table per test: moto copies the table for every item of a
    transaction, so it must be small."""
    return new_table(connected)


replace = msgspec.structs.replace
GROUPS = 52


def large(bench: StoreFixture, before: Memory) -> tuple[Memory, tuple[Operation, ...]]:
    """52 groups and 52 operations: 105 rows with the head, where a transaction takes 100."""
    groups = {f"g{n}": GroupMemory(target=n + 1, last_add=START) for n in range(GROUPS)}
    operations = tuple(bench.operation(f"{n:02d}", group=f"g{n}") for n in range(GROUPS))
    return replace(before, groups=before.groups | groups, last_scale_up=START), operations


def save(bench: StoreFixture, store: Store, owner: str = "reconcile-1") -> tuple[Memory, Memory]:
    """Makes a large save with that store; returns the previous and the expected memory."""
    lease = store.leases.acquire(bench.cluster, owner, 60)
    before = store.memory.load(bench.cluster)
    after, operations = large(bench, before)
    store.memory.save(bench.cluster, before, after, operations, lease)
    store.leases.release(lease)
    return before, replace(after, operations=operations)


def small(bench: StoreFixture) -> Memory:
    """A small initial memory."""
    bench.save(
        Memory(),
        Memory(
            groups={"g0": GroupMemory(target=99), "kept": GroupMemory(target=1)}, first_seen=START
        ),
    )
    return bench.load()


def test_staged_save_round_trips(bench: StoreFixture) -> None:
    small(bench)
    _, expected = save(bench, bench.store)
    assert bench.load() == expected
    assert bench.store.operations.list_open(bench.cluster) == expected.operations
    assert list(bench.store.table.query(bench.cluster, STAGED)) == []


@pytest.mark.parametrize("call", ["put_item", "transact_write_items"])
def test_staged_save_crash_before_the_decision_leaves_the_old_view(
    bench: StoreFixture, call: str
) -> None:
    before = small(bench)
    faults = AwsFaults()
    faults.instead(call, lost_answer())
    with pytest.raises(StoreUnavailable):
        save(bench, bench.fresh(faults=faults))
    assert bench.load() == before
    assert all("expires_at" in raw for raw in bench.store.table.query(bench.cluster, STAGED))
    assert bench.store.operations.list_open(bench.cluster) == ()
    assert bench.store.operations.get(bench.cluster, "grow-07") is None
    bench.clock.advance(61)
    _, expected = save(bench, bench.store, "reconcile-2")
    assert bench.load() == expected


READERS: dict[str, Callable[[StoreFixture], object]] = {
    "load": lambda bench: len(bench.load().operations) == GROUPS,
    "list_open": lambda bench: len(bench.fresh().operations.list_open(bench.cluster)) == GROUPS,
    "get": lambda bench: bench.fresh().operations.get(bench.cluster, "grow-51"),
    "claim": lambda bench: bench.fresh().operations.claim(bench.cluster, "grow-51", "act", 30),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("carried_out", [0, 1])
def test_staged_save_crash_after_the_decision_is_completed_by_the_next_reader(
    bench: StoreFixture, reader: str, carried_out: int
) -> None:
    small(bench)
    faults = AwsFaults()
    faults.instead("transact_write_items", *[None] * (1 + carried_out), lost_answer())
    with pytest.raises(StoreUnavailable):
        save(bench, bench.fresh(faults=faults))
    parts = list(bench.store.table.query(bench.cluster, STAGED))
    assert parts
    assert not any("expires_at" in raw for raw in parts), "what is decided must not be tidied away"
    assert READERS[reader](bench)
    memory = bench.load()
    assert (len(memory.groups), len(memory.operations), memory.last_scale_up) == (
        GROUPS + 1,
        GROUPS,
        START,
    )
    assert memory.groups["g0"] == GroupMemory(target=1, last_add=START)


@pytest.mark.parametrize("applied", [0, 1])
def test_staged_save_that_stays_in_conflict_is_saved_all_the_same(
    bench: StoreFixture, applied: int
) -> None:
    """It is decided: reported as failed, its pass would be repeated."""
    small(bench)
    faults = AwsFaults()
    conflicts = [cancelled("None", "TransactionConflict")] * ATTEMPTS
    faults.instead("transact_write_items", *[None] * (1 + applied), *conflicts)

    _, expected = save(bench, bench.fresh(faults=faults))

    assert len(bench.waits) == ATTEMPTS - 1
    assert bench.load() == expected


@pytest.mark.parametrize(
    "conflict",
    [cancelled("TransactionConflict", "None"), busy("TransactionInProgressException")],
    ids=["conflict", "in progress"],
)
def test_conflict_with_the_process_that_applies_the_save_is_no_failure(
    bench: StoreFixture, conflict: Exception
) -> None:
    small(bench)
    faults = AwsFaults()
    faults.instead("transact_write_items", None, conflict)
    faults.before(
        "transact_write_items", lambda: None, lambda: bench.fresh().memory.load(bench.cluster)
    )

    _, expected = save(bench, bench.fresh(faults=faults))

    assert len(bench.waits) == 1, "read again after one wait, it is found to be applied"
    assert faults.calls.count("transact_write_items") == 2
    assert bench.load() == expected
    assert list(bench.store.table.query(bench.cluster, STAGED)) == []


def test_conflict_before_the_decision_is_repeated(bench: StoreFixture) -> None:
    small(bench)
    faults = AwsFaults()
    faults.instead("transact_write_items", cancelled("TransactionConflict"))
    _, expected = save(bench, bench.fresh(faults=faults))
    assert bench.load() == expected


def test_decided_save_that_cannot_be_read_names_its_row(bench: StoreFixture) -> None:
    small(bench)
    faults, table = AwsFaults(), bench.store.table
    faults.instead("transact_write_items", None, lost_answer())
    with pytest.raises(StoreUnavailable):
        save(bench, bench.fresh(faults=faults))
    [item] = [raw["item"]["S"] for raw in table.query(bench.cluster, STAGED)]
    table.write(table.put(BlobRow(bench.cluster, item, blob=b"spoilt", version="", parts=1)))
    with pytest.raises(RowUnreadable, match=f"the row {item} cannot be read"):
        bench.load()


def test_staged_save_of_an_overtaken_pass_is_fenced_and_stays_invisible(
    bench: StoreFixture,
) -> None:
    before = small(bench)
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    bench.lease("newer")
    after, operations = large(bench, before)
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, before, after, operations, zombie)
    assert bench.load() == before


@pytest.mark.parametrize("moment", ["before", "between comparing and deciding"])
def test_staged_save_is_stale_after_a_concurrent_patch(bench: StoreFixture, moment: str) -> None:
    before = small(bench)
    bench.save(before, before, bench.operation("old", group="g0"))
    mine = bench.store.operations.claim(bench.cluster, "grow-old", "act", 30)

    def patch() -> None:
        bench.fresh(faults=AwsFaults()).operations.advance(
            mine,
            mine.with_status(state=OperationState.FAILED),
            "act",
            lambda group: replace(group, last_failure=START),
        )

    lease = bench.lease()
    seen = bench.load()
    after, operations = large(bench, seen)
    faults = AwsFaults()
    faults.before("batch_get_item" if moment == "before" else "put_item", patch)
    with pytest.raises(StaleWrite):
        bench.fresh(faults=faults).memory.save(bench.cluster, seen, after, operations, lease)
    memory = bench.load()
    assert memory.groups["g0"] == GroupMemory(target=99, last_failure=START)
    assert memory.operations == ()


def test_staged_save_that_is_decided_delays_a_patch(bench: StoreFixture) -> None:
    before = small(bench)
    bench.save(before, before, bench.operation("old", group="g0"))
    mine = bench.store.operations.claim(bench.cluster, "grow-old", "act", 30)
    faults = AwsFaults()
    faults.instead("transact_write_items", None, lost_answer())
    with pytest.raises(StoreUnavailable):
        save(bench, bench.fresh(faults=faults))
    bench.store.operations.advance(
        mine,
        mine.with_status(state=OperationState.FAILED),
        "act",
        lambda group: replace(group, last_failure=START),
    )
    memory = bench.load()
    assert memory.groups["g0"] == GroupMemory(target=1, last_add=START, last_failure=START)
    assert len(memory.operations) == GROUPS


def test_staged_save_completed_by_four_processes_at_once_is_correct(bench: StoreFixture) -> None:
    small(bench)
    faults = AwsFaults()
    faults.instead("transact_write_items", None, lost_answer())
    with pytest.raises(StoreUnavailable):
        save(bench, bench.fresh(faults=faults))
    results = all_at_once([bench.load] * 4)
    assert [result for result in results if isinstance(result, StoreError)] == []
    assert all(
        isinstance(result, Memory) and len(result.operations) == GROUPS for result in results
    )


def test_staged_save_late_finisher_does_not_restore_ended_operations(bench: StoreFixture) -> None:
    """A process reads the remaining work and stalls; meanwhile the save is completed and
    one of its operations ends."""
    small(bench)
    faults = AwsFaults()
    faults.instead("transact_write_items", None, lost_answer())
    with pytest.raises(StoreUnavailable):
        save(bench, bench.fresh(faults=faults))

    def meanwhile() -> None:
        bench.load()
        mine = bench.store.operations.claim(bench.cluster, "grow-07", "act", 30)
        bench.store.operations.advance(
            mine,
            mine.with_status(state=OperationState.SUCCEEDED),
            "act",
            lambda group: replace(group, last_failure=START),
        )

    sleeper = AwsFaults()
    sleeper.before("transact_write_items", meanwhile)
    memory = bench.fresh(faults=sleeper).memory.load(bench.cluster)
    assert memory.groups["g7"].last_failure == START
    assert "grow-07" not in {operation.spec.id for operation in memory.operations}
    assert len(memory.operations) == GROUPS - 1


def test_staged_save_late_finisher_does_not_restore_deleted_rows(bench: StoreFixture) -> None:
    """As before, but meanwhile everything returned to its previous value: only the save
    marker reveals the change."""
    groups = Memory(groups={f"g{n:03d}": GroupMemory(target=n + 1) for n in range(105)})
    faults = AwsFaults()
    faults.instead("transact_write_items", None, lost_answer())
    lease = bench.lease()
    with pytest.raises(StoreUnavailable):
        bench.fresh(faults=faults).memory.save(bench.cluster, Memory(), groups, (), lease)

    def meanwhile() -> None:
        seen = bench.load()
        assert seen == groups
        bench.store.memory.save(bench.cluster, seen, Memory(), (), lease)

    sleeper = AwsFaults()
    sleeper.before("transact_write_items", meanwhile)
    assert bench.fresh(faults=sleeper).memory.load(bench.cluster) == Memory()


def test_staged_save_decided_during_an_executors_write_is_not_lost(bench: StoreFixture) -> None:
    before = small(bench)
    bench.save(before, before, bench.operation("old", group="g0"))
    mine = bench.store.operations.claim(bench.cluster, "grow-old", "act", 30)

    def decide() -> None:
        faults = AwsFaults()
        faults.instead("transact_write_items", None, lost_answer())
        with pytest.raises(StoreUnavailable):
            save(bench, bench.fresh(faults=faults))

    executor = AwsFaults()
    executor.before("transact_write_items", decide)
    bench.fresh(faults=executor).operations.advance(
        mine,
        mine.with_status(state=OperationState.FAILED),
        "act",
        lambda group: replace(group, last_failure=START),
    )
    assert bench.load().groups["g0"] == GroupMemory(target=1, last_add=START, last_failure=START)


def test_staged_save_decided_between_pages_makes_a_list_start_again(bench: StoreFixture) -> None:
    # 1.5 MB, a page is 1 MB
    many = tuple(bench.operation(f"{n:02d}-old", step="x" * 25_000) for n in range(60))
    bench.save(Memory(), Memory(), *many)
    faults = AwsFaults()
    faults.before("query", lambda: None, lambda: save(bench, bench.store))
    listed = bench.fresh(faults=faults).operations.list_open(bench.cluster)
    assert faults.calls.count("query") > 2
    assert len(listed) == len(many) + GROUPS


def test_staged_save_is_never_read_in_part(bench: StoreFixture) -> None:
    small(bench)
    done = Event()

    def read() -> set[tuple[int, int]]:
        seen: set[tuple[int, int]] = set()
        store = bench.fresh()
        while not done.is_set():
            memory = store.memory.load(bench.cluster)
            seen.add((len(memory.groups), len(memory.operations)))
            seen.add((len(memory.groups), len(store.operations.list_open(bench.cluster))))
        return seen

    def write() -> None:
        try:
            save(bench, bench.store)
        finally:
            done.set()

    first, second, _ = all_at_once([read, read, write])
    assert isinstance(first, set)
    assert isinstance(second, set)
    whole = {(2, 0), (GROUPS + 1, GROUPS)}
    between_two_reads = {(2, GROUPS)}  # the save was decided after load and before list_open
    assert first | second <= whole | between_two_reads
