"""The rows of pauses and the waits that an operator ends."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.memory import (
    Backoff,
    FailedRemoval,
    GroupMemory,
    GroupRenewal,
    Memory,
    Undelivered,
)
from chalicelib.model.operation import OperationKind
from chalicelib.model.pause import MOST, Pause, PausedPart
from chalicelib.store.errors import OperationClaimed, OperationFinished, StoreError
from chalicelib.store.tables import PAUSES, PauseRow
from tests.operations import new_operation
from tests.unit.store.support import START, RequestCounter, StoreFixture

HOUR = 3600.0


def pause(lasts: float = HOUR, **fields: object) -> Pause:
    return Pause(until=START + lasts, since=START, **fields)  # type: ignore[arg-type]


def add(bench: StoreFixture, *more: Pause) -> None:
    bench.store.pauses.change(bench.cluster, lambda before: (*before, *more))


def test_pause_ends_by_itself_without_any_function(bench: StoreFixture) -> None:
    add(bench, pause(), pause(2 * HOUR, part=PausedPart.REMOVALS, group="web"))
    assert [each.part for each in bench.store.pauses.current(bench.cluster)] == [
        PausedPart.REMOVALS,
        PausedPart.ALL,
    ]
    bench.clock.advance(HOUR)
    assert [each.group for each in bench.store.pauses.current(bench.cluster)] == ["web"]
    bench.clock.advance(HOUR)
    assert bench.store.pauses.current(bench.cluster) == ()
    assert bench.cluster not in bench.store.pauses.all_current()


def test_pauses_are_one_read(bench: StoreFixture) -> None:
    add(bench, pause(reason="release", by="arn:aws:iam::123456789012:role/ops"))
    with RequestCounter(bench) as counter:
        assert bench.store.pauses.current(bench.cluster)[0].reason == "release"
    assert len(counter.requests) == 1


def test_pauses_of_two_operators_are_both_kept(bench: StoreFixture) -> None:
    calls: list[int] = []

    def both(before: tuple[Pause, ...]) -> tuple[Pause, ...]:
        if not calls:
            calls.append(1)
            add(bench, pause(group="web"))  # another operator, in the meantime
        return (*before, pause(group="gpu"))

    bench.store.pauses.change(bench.cluster, both)
    assert {each.group for each in bench.store.pauses.current(bench.cluster)} == {"web", "gpu"}


def test_row_of_pauses_that_cannot_be_read_stops_the_cluster(bench: StoreFixture) -> None:
    table = bench.store.policy_table
    table.write(table.put(PauseRow(PAUSES, bench.cluster, text="{", version="1")))
    with pytest.raises(StoreError, match="pauses cannot be read"):
        bench.store.pauses.current(bench.cluster)


def test_number_of_pauses_is_bounded(bench: StoreFixture) -> None:
    with pytest.raises(StoreError, match=f"more than {MOST} pauses"):
        add(bench, *(pause(group=f"g{at}") for at in range(MOST + 1)))


def remember(bench: StoreFixture, group: GroupMemory) -> None:
    lease = bench.store.leases.acquire(bench.cluster, "pass", 60)
    bench.store.memory.save(
        bench.cluster,
        bench.store.memory.load(bench.cluster),
        Memory(groups={"g": group}),
        (),
        lease,
    )
    bench.store.leases.release(lease)


def test_retry_of_a_group_ends_its_backoff_and_keeps_the_counters(bench: StoreFixture) -> None:
    backoff = Backoff(600.0, START + 600, START, cls="OutOfStock", attempt=2)
    remember(
        bench, GroupMemory(target=3, backoff=backoff, repair_after=START + 900, repair_failures=2)
    )
    bench.store.retries().end_backoff(bench.cluster, "g")
    after = bench.store.memory.load(bench.cluster).groups["g"]
    assert after.backoff is not None
    assert (after.backoff.until < START, after.backoff.duration, after.backoff.attempt) == (
        True,
        600.0,
        2,
    )
    assert (after.target, after.repair_after <= START, after.repair_failures) == (3, True, 2)


def test_retry_of_a_group_lets_its_new_nodes_have_what_they_lacked(bench: StoreFixture) -> None:
    part = Undelivered(until=START + 600, times=2, created=START - 1000)
    remember(bench, GroupMemory(undelivered={"resource rdma/hca": part}))
    bench.store.retries().end_backoff(bench.cluster, "g")
    after = bench.store.memory.load(bench.cluster).groups["g"].undelivered["resource rdma/hca"]
    assert (after.until, after.times, after.created) == (START, 2, START - 1000)


def test_retry_of_a_group_ends_its_rests_and_keeps_their_number(bench: StoreFixture) -> None:
    resting = GroupRenewal(
        until=START + 900, times=2, node="n-2", answers=("flavour a, new nodes have b",)
    )
    remember(
        bench, GroupMemory(renewals={"drifted": resting, "repair": GroupRenewal(until=START - 60)})
    )
    bench.store.retries().end_backoff(bench.cluster, "g")
    after = bench.store.memory.load(bench.cluster).groups["g"].renewals
    assert after["drifted"] == msgspec.structs.replace(resting, until=START)
    assert after["repair"].until == START - 60


def test_retry_of_a_node_ends_the_wait_after_its_failed_removal(bench: StoreFixture) -> None:
    failed = {"n1": FailedRemoval(START + 600, 3, "stuck"), "n2": FailedRemoval(START + 600)}
    remember(bench, GroupMemory(failed_removals=failed))
    bench.store.retries().end_failed_removal(bench.cluster, "g", "n1")
    after = bench.store.memory.load(bench.cluster).groups["g"].failed_removals
    assert (after["n1"].until, after["n1"].times, after["n2"].until) == (START, 3, START + 600)


def test_retry_of_what_does_not_wait_writes_nothing(bench: StoreFixture) -> None:
    with RequestCounter(bench) as counter:
        bench.store.retries().end_backoff(bench.cluster, "unknown")
    assert counter.items_written == 0


def test_waiting_operation_is_hastened_and_a_running_one_is_not(bench: StoreFixture) -> None:
    operation = new_operation(
        "grow-1",
        bench.cluster,
        "clusterapi",
        "g",
        OperationKind.SCALE_UP,
        "plan-1",
        START,
        due_at=START + 300,
    )
    lease = bench.store.leases.acquire(bench.cluster, "pass", 60)
    bench.store.memory.save(bench.cluster, Memory(), Memory(), (operation,), lease)
    assert bench.store.operations.hasten(bench.cluster, "grow-1").status.due_at == START
    bench.store.operations.claim(bench.cluster, "grow-1", "worker", 60)
    with pytest.raises(OperationClaimed):
        bench.store.operations.hasten(bench.cluster, "grow-1")
    with pytest.raises(OperationFinished):
        bench.store.operations.hasten(bench.cluster, "unknown")
