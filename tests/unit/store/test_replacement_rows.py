"""Rows of replacements: saved with the operations that belong to them, and updated with
the end of each of these.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.memory import (
    ConsolidationMemory,
    GroupMemory,
    Memory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
)
from chalicelib.model.operation import Operation, OperationState
from chalicelib.store.errors import StaleWrite
from chalicelib.store.memory import ReplacementPatch
from chalicelib.store.tables import CONSOLIDATION, HEAD, MEMORY, REPLACEMENTS, HeadRow
from infra.emulators.aws_faults import AwsFaults
from tests.unit.store.support import START, StoreFixture

replace = msgspec.structs.replace
ROW = Replacement(
    id="r1",
    state=ReplacementState.BUYING,
    nodes=("a", "b"),
    purchases=(PurchasedNodes("workers", 1, 100_000, "grow-1"),),
    price=200_000,
    disruption=3.5,
    score=0.75,
    proposed_at=START - 60.0,
    since=START,
    bought_at=START,
)
REMEMBERED = ConsolidationMemory(
    digest="d",
    searched_at=START,
    moves={"default/ReplicaSet/web": ((START, 2),)},
    prices={"s": ((START, 5),)},
)


def items(bench: StoreFixture) -> list[str]:
    return [raw["item"]["S"] for raw in bench.store.table.query(bench.cluster, MEMORY)]


def begun(bench: StoreFixture) -> Operation:
    """A replacement whose purchase is claimed."""
    operation = bench.operation("1", replacement="r1")
    before = bench.load()
    bench.save(before, replace(before, replacements={"r1": ROW}), operation)
    return bench.store.operations.claim(bench.cluster, operation.spec.id, "act-1", 30)


def ended(why: str) -> Replacement:
    return replace(ROW, ends={"grow-1": why})


def note(why: str = "") -> ReplacementPatch:
    return lambda row: replace(row, ends={**row.ends, "grow-1": why})


def test_each_replacement_is_one_row_and_the_memory_of_consolidation_another(
    bench: StoreFixture,
) -> None:
    memory = Memory(replacements={"r1": ROW, "r2": replace(ROW, id="r2")}, consolidation=REMEMBERED)
    bench.save(Memory(), memory)
    assert bench.load() == memory
    assert [item for item in items(bench) if item != HEAD] == [
        f"{CONSOLIDATION}000",
        f"{REPLACEMENTS}r1",
        f"{REPLACEMENTS}r2",
    ]
    loaded = bench.load()
    bench.save(loaded, Memory())
    assert bench.load() == Memory()
    assert [item for item in items(bench) if item != HEAD] == []


def test_memory_without_replacements_has_no_row_for_them(bench: StoreFixture) -> None:
    bench.save(Memory(), Memory(groups={"workers": GroupMemory(target=1)}))
    assert items(bench) == ["memory#group#workers"]


def test_end_of_an_operation_and_its_note_in_the_row_are_one_write(bench: StoreFixture) -> None:
    operation = begun(bench)
    succeeded = operation.with_status(state=OperationState.SUCCEEDED)
    bench.store.operations.advance(operation, succeeded, "act-1", replacement_patch=note())
    memory = bench.load()
    assert memory.operations == ()
    assert memory.replacements == {"r1": ended("")}


def test_end_is_not_noted_if_the_step_is_refused(bench: StoreFixture) -> None:
    operation = begun(bench)
    bench.store.operations.take_over(operation, "act-2", 30)
    failed = operation.with_status(state=OperationState.FAILED)
    with pytest.raises(Exception, match="act-2"):
        bench.store.operations.advance(operation, failed, "act-1", replacement_patch=note("late"))
    assert bench.load().replacements == {"r1": ROW}


def test_end_of_an_operation_whose_row_is_gone_writes_no_row(bench: StoreFixture) -> None:
    operation = begun(bench)
    loaded = bench.load()
    bench.save(loaded, replace(loaded, replacements={}), owner="reconcile-2")
    succeeded = operation.with_status(state=OperationState.SUCCEEDED)
    assert not bench.store.operations.advance(
        operation, succeeded, "act-1", replacement_patch=note()
    ).is_open
    assert bench.load().replacements == {}


def test_pass_that_did_not_see_the_end_of_an_operation_is_stale(bench: StoreFixture) -> None:
    operation = begun(bench)
    seen, lease = bench.load(), bench.lease("reconcile-2")
    failed = operation.with_status(state=OperationState.FAILED)
    bench.store.operations.advance(operation, failed, "act-1", replacement_patch=note("OutOfStock"))
    given_up = replace(ROW, state=ReplacementState.FAILED, until=START + 3600.0)
    with pytest.raises(StaleWrite):
        bench.store.memory.save(
            bench.cluster, seen, replace(seen, replacements={"r1": given_up}), (), lease
        )
    with pytest.raises(StaleWrite):
        bench.store.memory.save(bench.cluster, seen, replace(seen, replacements={}), (), lease)
    assert bench.load().replacements == {"r1": ended("OutOfStock")}


def test_save_between_the_two_reads_of_an_executor_is_not_overwritten(bench: StoreFixture) -> None:
    operation = begun(bench)

    def plan() -> None:
        other = bench.fresh()
        seen = other.memory.load(bench.cluster)
        lease = other.leases.acquire(bench.cluster, "reconcile-2", 60)
        waits = replace(ROW, state=ReplacementState.FAILED, until=START + 1.0)
        other.memory.save(bench.cluster, seen, replace(seen, replacements={"r1": waits}), (), lease)

    faults = AwsFaults()
    faults.before("transact_write_items", plan)
    executor = bench.fresh(faults=faults)
    succeeded = operation.with_status(state=OperationState.SUCCEEDED)
    executor.operations.advance(operation, succeeded, "act-1", replacement_patch=note())
    (row,) = bench.load().replacements.values()
    assert (row.state, row.ends) == (ReplacementState.FAILED, {"grow-1": ""})


def test_note_counts_as_a_write_of_an_executor(bench: StoreFixture) -> None:
    operation = begun(bench)
    head = bench.store.table.get(HeadRow, bench.cluster, HEAD)
    before = head.patches if head is not None and head.patches else 0
    succeeded = operation.with_status(state=OperationState.SUCCEEDED)
    bench.store.operations.advance(operation, succeeded, "act-1", replacement_patch=note())
    head = bench.store.table.get(HeadRow, bench.cluster, HEAD)
    assert head is not None
    assert head.patches == before + 1


def test_end_finds_the_row_of_a_large_save_that_is_decided_and_not_applied(
    bench: StoreFixture,
) -> None:
    groups = {f"g{number}": GroupMemory(target=number) for number in range(60)}
    operations = [bench.operation(f"g{number}", group=f"g{number}") for number in range(60)]
    mine = bench.operation("1", replacement="r1")
    memory = Memory(groups=groups, replacements={"r1": ROW})
    bench.save(Memory(), memory, *operations, mine)
    assert bench.load().replacements == {"r1": ROW}
    claimed = bench.store.operations.claim(bench.cluster, "grow-1", "act-1", 30)
    succeeded = claimed.with_status(state=OperationState.SUCCEEDED)
    bench.store.operations.advance(claimed, succeeded, "act-1", replacement_patch=note())
    assert bench.load().replacements == {"r1": ended("")}
