"""Readers that only show memory write nothing, and see a large save completely or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, Memory, NodeMemory
from chalicelib.model.operation import OperationState
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.tables import MEMORY, OPEN
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.unit.store.support import (
    READS,
    START,
    RequestCounter,
    StoreFixture,
    full_memory,
    new_table,
)

GROUPS = 60
replace = msgspec.structs.replace


@pytest.fixture
def table(connected: Any) -> str:
    """One table per test: moto copies the table for every item of a
    transaction, so it must be small."""
    return new_table(connected)


def _large(bench: StoreFixture, *cut: Exception | None) -> None:
    """Makes a large save that changes, adds and deletes rows; cut: what
    happens to its transactions."""
    before = bench.load()
    groups = {f"g{n:02d}": GroupMemory(target=n + 2) for n in range(GROUPS)}
    after = replace(
        before,
        groups=groups,
        nodes={"n9": NodeMemory(START)},
        unregistered={},
        last_scale_up=START + 1,
    )
    operations = [bench.operation(f"{n:02d}", group=f"g{n:02d}") for n in range(GROUPS)]
    faults = AwsFaults()
    faults.instead("transact_write_items", *cut)
    lease = bench.lease("cut")
    store = bench.fresh(faults=faults)
    if any(cut):
        with pytest.raises(StoreUnavailable):
            store.memory.save(bench.cluster, before, after, operations, lease)
    else:
        store.memory.save(bench.cluster, before, after, operations, lease)
    bench.store.leases.release(lease)


def _begun(bench: StoreFixture) -> None:
    old = replace(
        full_memory(), groups={f"g{n:02d}": GroupMemory(target=n) for n in range(0, GROUPS + 5, 3)}
    )
    bench.save(Memory(), old, bench.operation("old", group="g00"))


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5])
def test_memory_view_of_an_interrupted_save_equals_its_completion(
    bench: StoreFixture, after: int
) -> None:
    _begun(bench)
    untouched = bench.load()
    _large(bench, *[None] * after, *([lost_answer()] if after < 4 else []))
    with RequestCounter(bench) as counter:
        seen, opened = (
            bench.fresh().memory.look(bench.cluster),
            bench.fresh().operations.look(bench.cluster),
        )
    assert {name for name, _ in counter.requests} <= READS
    finished = bench.load()
    assert (seen, opened) == (finished, bench.store.operations.list_open(bench.cluster))
    assert (finished == untouched) is (after == 0)


def test_memory_view_omits_an_operation_that_ended_during_the_save(bench: StoreFixture) -> None:
    _begun(bench)
    _large(bench, None, None, lost_answer())
    mine = bench.store.operations.claim(bench.cluster, "grow-00", "act", 30)
    bench.store.operations.advance(mine, mine.with_status(state=OperationState.SUCCEEDED), "act")
    assert "grow-00" not in {
        operation.spec.id for operation in bench.fresh().operations.look(bench.cluster)
    }


def test_memory_view_during_the_completion_of_a_save_is_consistent(bench: StoreFixture) -> None:
    _begun(bench)
    _large(bench, None, lost_answer())
    faults = AwsFaults()
    faults.before("query", lambda: bench.fresh(faults=AwsFaults()).memory.load(bench.cluster))
    assert bench.fresh(faults=faults).memory.look(bench.cluster) == bench.load()


@pytest.mark.parametrize("prefix", [MEMORY, OPEN])
def test_memory_view_rows_are_in_key_order(bench: StoreFixture, prefix: str) -> None:
    _begun(bench)
    _large(bench, None, lost_answer())
    store = bench.fresh()
    looked = store.memory._staging.look(bench.cluster, prefix)
    items = [raw["item"]["S"] for raw in looked]
    assert items == sorted(items)
    assert items == [raw["item"]["S"] for raw in store.memory._staging.view(bench.cluster, prefix)]


def test_memory_view_shows_rows_of_another_release_without_adopting_them(
    bench: StoreFixture,
) -> None:
    bench.save(Memory(), Memory(groups={"g": GroupMemory(target=3)}))
    [row] = list(bench.store.table.query(bench.cluster, "memory#group#"))
    text = row["text"]["S"].replace("{", '{"fieldOfTomorrow":1,', 1)
    bench.client.put_item(
        TableName=bench.table, Item={**row, "text": {"S": text}, "version": {"S": "of-tomorrow"}}
    )
    with RequestCounter(bench) as counter:
        assert bench.store.memory.look(bench.cluster).groups["g"].target == 3
    assert {name for name, _ in counter.requests} <= READS
