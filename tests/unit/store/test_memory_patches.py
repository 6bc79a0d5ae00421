"""An executor's memory updates are written together with the operation; neither they nor a
plan overwrite each other."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import Operation, OperationState
from chalicelib.store.errors import OperationClaimed, StaleWrite
from chalicelib.store.tables import GROUPS, HEAD, HeadRow, MemoryRow
from infra.emulators.aws_faults import AwsFaults
from tests.unit.store.support import START, StoreFixture, all_at_once

replace = msgspec.structs.replace
BACKOFF = Backoff(300, START + 300, START, cls="OutOfStock")


def back_off(group: GroupMemory) -> GroupMemory:
    return replace(group, backoff=BACKOFF, request=None, last_failure=START)


def scaled_up(memory: Memory) -> Memory:
    return replace(memory, last_scale_up=START)


def growing(bench: StoreFixture, name: str = "a", **values: object) -> Operation:
    """A claimed scale-up of a group with a live request."""
    before = bench.load()
    group = GroupMemory(target=2, request=ScaleUpRequest(1, START, START + 900))
    operation = bench.operation(name, **values)
    after = replace(
        before, groups=before.groups | {operation.spec.group: group}, first_seen=START - 9
    )
    bench.save(before, after, operation)
    return bench.store.operations.claim(bench.cluster, operation.spec.id, f"act-{name}", 30)


def test_memory_patch_and_the_operations_end_are_one_write(bench: StoreFixture) -> None:
    operation = growing(bench)
    failed = operation.with_status(state=OperationState.FAILED, error_class="OutOfStock")
    bench.store.operations.advance(operation, failed, "act-a", back_off, scaled_up)
    memory = bench.load()
    assert memory.groups["workers"] == GroupMemory(target=2, backoff=BACKOFF, last_failure=START)
    assert (memory.last_scale_up, memory.first_seen) == (START, START - 9)
    assert memory.operations == ()


def test_memory_patch_of_a_refused_step_is_not_applied(bench: StoreFixture) -> None:
    operation = growing(bench)
    bench.store.operations.take_over(operation, "act-2", 30)
    before = bench.load()
    with pytest.raises(OperationClaimed):
        bench.store.operations.advance(
            operation,
            operation.with_status(state=OperationState.FAILED),
            "act-a",
            back_off,
            scaled_up,
        )
    assert bench.load() == before


def test_memory_patch_can_add_an_unknown_group(bench: StoreFixture) -> None:
    bench.planned(bench.operation("a", group="new"))
    operation = bench.store.operations.claim(bench.cluster, "grow-a", "act-a", 30)
    bench.store.operations.advance(
        operation, operation.with_status(state=OperationState.FAILED), "act-a", back_off
    )
    assert bench.load().groups == {"new": GroupMemory(backoff=BACKOFF, last_failure=START)}


def test_memory_patch_without_changes_writes_nothing(bench: StoreFixture) -> None:
    operation = growing(bench)
    before = bench.load()
    bench.store.operations.advance(
        operation,
        operation.with_status(state=OperationState.WAITING),
        "act-a",
        lambda group: group,
        lambda memory: memory,
    )
    after = bench.load()
    assert replace(after, operations=()) == replace(before, operations=())


def test_memory_patch_during_a_pass_makes_its_plan_stale_and_survives(bench: StoreFixture) -> None:
    operation = growing(bench)
    lease = bench.lease("reconcile-2")
    seen = bench.load()
    bench.store.operations.advance(
        operation, operation.with_status(state=OperationState.FAILED), "act-a", back_off, scaled_up
    )

    planned = replace(
        seen, groups={"workers": replace(seen.groups["workers"], target=7)}, last_scale_down=START
    )
    with pytest.raises(StaleWrite):
        bench.store.memory.save(bench.cluster, seen, planned, (), lease)
    seen = bench.load()
    planned = replace(
        seen, groups={"workers": replace(seen.groups["workers"], target=7)}, last_scale_down=START
    )
    bench.store.memory.save(bench.cluster, seen, planned, (), lease)

    memory = bench.load()
    assert memory.groups["workers"] == GroupMemory(target=7, backoff=BACKOFF, last_failure=START)
    assert (memory.last_scale_up, memory.last_scale_down) == (START, START)


def test_memory_patch_applies_to_a_plan_saved_meanwhile(bench: StoreFixture) -> None:
    operation = growing(bench)

    def plan() -> None:
        other = bench.fresh()
        seen = other.memory.load(bench.cluster)
        lease = other.leases.acquire(bench.cluster, "reconcile-2", 60)
        after = replace(
            seen,
            groups={"workers": replace(seen.groups["workers"], target=7)},
            last_scale_down=START,
        )
        other.memory.save(bench.cluster, seen, after, (), lease)

    faults = AwsFaults()
    faults.before("transact_write_items", plan)
    executor = bench.fresh(faults=faults)
    executor.operations.advance(
        operation, operation.with_status(state=OperationState.FAILED), "act-a", back_off, scaled_up
    )
    memory = bench.load()
    assert memory.groups["workers"] == GroupMemory(target=7, backoff=BACKOFF, last_failure=START)
    assert (memory.last_scale_up, memory.last_scale_down) == (START, START)


def test_memory_save_does_not_touch_operations_advanced_meanwhile(bench: StoreFixture) -> None:
    operation = growing(bench)
    seen = bench.load()
    waiting = operation.with_status(state=OperationState.WAITING, step="confirm", due_at=START + 5)
    stored = bench.store.operations.advance(operation, waiting, "act-a")
    bench.save(
        seen, replace(seen, last_scale_down=START), bench.operation("b"), owner="reconcile-2"
    )
    assert bench.load().operations == (stored, bench.operation("b"))


def test_memory_patch_applies_to_rows_of_another_release(bench: StoreFixture) -> None:
    operation = growing(bench)
    table = bench.store.table
    table.write(
        table.put(
            MemoryRow(
                bench.cluster, f"{GROUPS}workers", text='{"target":3,"hue":1}', version="other"
            )
        )
    )
    table.write(
        table.put(HeadRow(bench.cluster, HEAD, text='{"first_seen":5,"mood":1}', version="other"))
    )
    bench.store.operations.advance(
        operation, operation.with_status(state=OperationState.FAILED), "act-a", back_off, scaled_up
    )
    memory = bench.load()
    assert memory.groups["workers"] == GroupMemory(target=3, backoff=BACKOFF, last_failure=START)
    assert (memory.last_scale_up, memory.first_seen) == (START, 5.0)


def test_memory_patches_of_six_concurrent_executors_are_all_kept(bench: StoreFixture) -> None:
    operations = [growing(bench, name) for name in "abcdef"]

    def end(operation: Operation) -> Operation:
        instance = f"i-{operation.spec.id}"

        def patch(group: GroupMemory) -> GroupMemory:
            return replace(
                group, failed_instances=tuple(sorted({*group.failed_instances, instance}))
            )

        return bench.store.operations.advance(
            operation,
            operation.with_status(state=OperationState.SUCCEEDED),
            operation.status.claimed_by,
            patch,
            scaled_up,
        )

    results = all_at_once([partial(end, operation) for operation in operations])
    assert [result for result in results if isinstance(result, Exception)] == []
    assert bench.load().groups["workers"].failed_instances == tuple(
        f"i-grow-{name}" for name in "abcdef"
    )
