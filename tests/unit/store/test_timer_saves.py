"""Node timers that are only confirmed are not written; other timers take one
conditional write, no transaction.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, Memory, NodeMemory
from chalicelib.store.errors import LeaseLost, StaleWrite
from chalicelib.store.leases import Lease
from chalicelib.store.memory import LONGER_THAN_A_WRITE
from chalicelib.store.memory_rows import CONFIRMED_FOR, confirm
from infra.emulators.aws_faults import busy
from tests.unit.store.support import START, RequestCounter, StoreFixture

replace = msgspec.structs.replace


def timers(confirmed: float, count: int = 3, since: float = START) -> Memory:
    """A memory with that many unneeded nodes."""
    return Memory(nodes={f"n{number}": NodeMemory(since, confirmed) for number in range(count)})


def paused(confirmed: float) -> Memory:
    """The same nodes, whose timers have been paused for a second."""
    return timers(confirmed, since=START + 1)


def saved(bench: StoreFixture, before: Memory, after: Memory, lease: Lease) -> list[str]:
    """Saves; returns the names of the requests that wrote."""
    with RequestCounter(bench) as counter:
        bench.store.memory.save(bench.cluster, before, after, (), lease)
    return [
        name
        for name, _ in counter.requests
        if name in ("PutItem", "UpdateItem", "TransactWriteItems")
    ]


def test_save_confirmed_timers_are_not_written_and_follow_from_the_lease(
    bench: StoreFixture,
) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    assert saved(bench, bench.load(), timers(START + 60), lease) == []
    bench.store.leases.release(lease, passed_at=START + 60, succeeded=True)
    lease = bench.store.leases.acquire(bench.cluster, "y", 150.0)
    assert confirm(bench.load(), lease.last_success) == timers(START + 60)


def test_save_confirmations_of_a_pass_that_did_not_end_are_not_assumed(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    saved(bench, bench.load(), timers(START + 60), lease)
    bench.store.leases.release(lease, passed_at=START + 60)
    lease = bench.store.leases.acquire(bench.cluster, "y", 150.0)
    assert confirm(bench.load(), lease.last_success) == timers(START)


def test_save_confirmed_timers_are_written_every_ten_minutes(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    passes = [START + minute * 60 for minute in range(1, 31)]
    written = [at for at in passes if saved(bench, bench.load(), timers(at), lease) == ["PutItem"]]
    assert written == [START + CONFIRMED_FOR, START + 2 * CONFIRMED_FOR, START + 3 * CONFIRMED_FOR]
    assert bench.load() == timers(written[-1])


@pytest.mark.parametrize(
    "after",
    [
        paused(START + 60),
        timers(START + 60, 4),
        timers(START + 60, 2),
        timers(START - 60),
        timers(START + 600),
    ],
    ids=["paused", "one more", "one fewer", "a clock set back", "after a break"],
)
def test_save_any_other_change_of_timers_is_one_write(bench: StoreFixture, after: Memory) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    assert saved(bench, bench.load(), after, lease) == ["PutItem"]
    assert bench.load() == after


@pytest.mark.parametrize(
    ("success", "confirmed"),
    [(0.0, 0.0), (-1.0, 0.0), (1.0, 1.0), (599.0, 599.0), (600.0, 0.0)],
    ids=["the same", "an older pass", "a newer pass", "the longest", "timers of another time"],
)
def test_confirm_uses_the_instant_of_a_pass_that_did_not_write_the_timers(
    success: float, confirmed: float
) -> None:
    tried = NodeMemory(unremovable_until=START + 300)
    memory = replace(timers(START), nodes=timers(START).nodes | {"tried": tried})
    expected = replace(memory, nodes=timers(START + confirmed).nodes | {"tried": tried})
    assert confirm(memory, START + success) == expected


@pytest.mark.parametrize(
    "after",
    [
        Memory(),
        replace(paused(START + 60), groups={"g": GroupMemory(target=2)}),
        replace(paused(START + 60), last_scale_up=START),
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
    bench.clock.advance(150.0 - LONGER_THAN_A_WRITE + 0.5)
    assert saved(bench, Memory(), timers(START), lease) == ["TransactWriteItems"]


def test_save_of_timers_to_a_busy_table_falls_back_to_a_transaction(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 30.0)
    bench.faults.instead("put_item", busy("ThrottlingException"))
    assert saved(bench, Memory(), timers(START), lease)[-1] == "TransactWriteItems"
    assert bench.waits == [], "one attempt lasts no longer than the lease"
    assert bench.load() == timers(START)


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
    saved(bench, before, paused(START + 60), lease)
    with pytest.raises(StaleWrite):
        bench.store.memory.save(bench.cluster, before, timers(START + 90, 2), (), lease)
    assert bench.load() == paused(START + 60)


def test_save_with_a_lost_answer_is_not_stale(bench: StoreFixture) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "x", 150.0)
    saved(bench, Memory(), timers(START), lease)
    before = bench.load()
    saved(bench, before, paused(START + 60), lease)
    bench.store.memory.save(bench.cluster, before, paused(START + 60), (), lease)  # the same again
    assert bench.load() == paused(START + 60)
