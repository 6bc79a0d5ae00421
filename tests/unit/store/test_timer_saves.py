"""Node timers are saved by one conditional write where a transaction is not needed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, Memory, NodeMemory
from chalicelib.store.errors import LeaseLost, StaleWrite
from chalicelib.store.leases import Lease
from tests.unit.store.support import START, RequestCounter, StoreFixture

replace = msgspec.structs.replace


def timers(confirmed: float, count: int = 3) -> Memory:
    """A memory with that many unneeded nodes."""
    return Memory(nodes={f"n{number}": NodeMemory(START, confirmed) for number in range(count)})


def saved(bench: StoreFixture, before: Memory, after: Memory, lease: Lease) -> list[str]:
    """Saves; returns the names of the requests that wrote."""
    with RequestCounter(bench) as counter:
        bench.store.memory.save(bench.cluster, before, after, (), lease)
    return [name for name, _ in counter.requests if name in ("PutItem", "UpdateItem", "TransactWriteItems")]


def test_save_confirmed_timers_are_one_write_and_no_transaction(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    assert saved(bench, bench.load(), timers(START + 60), lease) == ["PutItem"]
    assert bench.load() == timers(START + 60)


@pytest.mark.parametrize(
    "after",
    [
        Memory(),
        replace(timers(START + 60), groups={"g": GroupMemory(target=2)}),
        replace(timers(START + 60), last_scale_up=START),
    ],
    ids=["no timer is left", "a group too", "an instant too"],
)
def test_save_any_other_change_uses_a_transaction(bench: StoreFixture, after: Memory) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    assert saved(bench, bench.load(), after, lease) == ["TransactWriteItems"]
    assert bench.load() == after


def test_save_checks_a_lease_that_ends_soon_in_the_transaction(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    bench.clock.advance(100.0)
    assert saved(bench, Memory(), timers(START), lease) == ["TransactWriteItems"]


@pytest.mark.parametrize(
    "overtake",
    [
        lambda bench, lease: bench.store.leases.acquire(bench.cluster, "newer", 150.0),
        lambda bench, lease: bench.store.leases.release(lease),
    ],
    ids=["overtaken", "given back"],
)
def test_save_without_the_lease_writes_no_timers(
    bench: StoreFixture, overtake: Callable[[StoreFixture, Lease], object]
) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    bench.clock.advance(151.0)
    overtake(bench, lease)
    longer = replace(lease, until=bench.clock() + 150.0)  # even if its clock is wrong
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, Memory(), timers(START), (), longer)
    assert bench.load() == Memory()


def test_save_of_timers_changed_by_others_is_stale(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    before = bench.load()
    saved(bench, before, timers(START + 60), lease)
    with pytest.raises(StaleWrite):
        bench.store.memory.save(bench.cluster, before, timers(START + 90), (), lease)
    assert bench.load() == timers(START + 60)


def test_save_with_a_lost_answer_is_not_stale(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    before = bench.load()
    saved(bench, before, timers(START + 60), lease)
    bench.store.memory.save(bench.cluster, before, timers(START + 60), (), lease)  # the same again
    assert bench.load() == timers(START + 60)
