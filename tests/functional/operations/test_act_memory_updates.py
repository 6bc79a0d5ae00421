from __future__ import annotations

import pytest

from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.memory import (
    NOT_BEGUN,
    Backoff,
    GroupMemory,
    Memory,
    PurchaseRow,
    Replacement,
    ReplacementState,
    ScaleUpRequest,
)
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.operations.memory_updates import memory_updates, replacement_update
from chalicelib.operations.step_context import NOT_STARTED
from chalicelib.policy.settings.cluster_options import Options
from tests.operations import new_operation

NOW = 1_795_245_654.0
KNOWN = GroupMemory(target=4, request=ScaleUpRequest(1, NOW - 60, NOW + 840))
BOTH = ScaleUpRequest(
    3,
    NOW,
    NOW + 900,
    (PurchaseRow(1, NOW - 60, NOW + 840), PurchaseRow(2, NOW, NOW + 900, planned_at=NOW - 30)),
)


def operation(kind: OperationKind) -> Operation:
    return new_operation(
        id="o",
        cluster="c",
        provider="clusterapi",
        group="g",
        kind=kind,
        plan="p",
        created_at=NOW - 30,
        from_size=4,
        to_size=6,
        targets=(RemovalTarget("n1", "i-1"),),
    )


def group_after(
    kind: OperationKind, outcome: Succeeded | Failed, known: GroupMemory = KNOWN
) -> GroupMemory:
    patch, _ = memory_updates(operation(kind), outcome, Options(), NOW)
    return patch(known) if patch else known


def memory_after(kind: OperationKind, outcome: Succeeded | Failed) -> Memory:
    _, patch = memory_updates(operation(kind), outcome, Options(), NOW)
    return patch(Memory()) if patch else Memory()


def test_scale_up_adds_a_purchase_to_the_request_and_moves_no_date() -> None:
    after = group_after(OperationKind.SCALE_UP, Succeeded())
    assert after == GroupMemory(target=6, request=BOTH, last_add=NOW)
    assert memory_after(OperationKind.SCALE_UP, Succeeded()).last_scale_up == NOW


def test_cons_36_scale_up_of_a_replacement_starts_no_cooldown() -> None:
    purchase = operation(OperationKind.SCALE_UP).with_spec(replacement="r1")
    group, cluster = memory_updates(purchase, Succeeded(), Options(), NOW)
    assert group is not None
    assert group(KNOWN) == GroupMemory(target=6, request=BOTH)
    assert cluster is None


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Succeeded({"removed": 1}), ""),
        (Failed("OutOfStock", "none is left"), "none is left"),
        (Failed("Unknown", ""), "it failed"),
        (Failed(NOT_STARTED, "too late"), NOT_BEGUN),
        (Failed("Unknown", "x" * 5000), "x" * 300),
    ],
)
def test_end_of_an_operation_is_noted_in_the_replacement_that_it_is_part_of(
    outcome: Succeeded | Failed, end: str
) -> None:
    part = operation(OperationKind.DELETE_NODES).with_spec(replacement="r1")
    patch = replacement_update(part, outcome)
    assert patch is not None
    row = Replacement(
        "r1", ReplacementState.DRAINING, ("n1",), (), 1, 1.0, 1.0, NOW, NOW, ends={"grow": ""}
    )
    assert patch(row).ends == patch(patch(row)).ends == {"grow": "", "o": end}
    assert replacement_update(operation(OperationKind.DELETE_NODES), outcome) is None


def test_successful_scale_up_does_not_shorten_a_backoff() -> None:
    failed = Backoff(300, NOW + 100, NOW - 200)
    assert (
        group_after(OperationKind.SCALE_UP, Succeeded(), GroupMemory(backoff=failed)).backoff
        == failed
    )


@pytest.mark.parametrize(
    ("size", "cls", "code", "hours"),
    [
        (0, "InvalidRequest", "400", 24.0),
        (4, "InvalidRequest", "400", 1 / 12),
        (0, "InvalidRequest", "NotInPolicy", 1 / 12),
        (0, "InvalidRequest", "", 1 / 12),
        (0, "OutOfStock", "400", 1 / 12),
    ],
)
def test_opening_that_the_vendor_calls_invalid_is_not_tried_for_a_day(
    size: int, cls: str, code: str, hours: float
) -> None:
    choice = MachineChoice("general", "s4", "z1")
    opening = operation(OperationKind.SCALE_UP).with_spec(from_size=size, choice=choice)
    patch, _ = memory_updates(opening, Failed(cls, "no", code=code), Options(), NOW)
    assert patch is not None
    after = patch(GroupMemory()).backoff
    assert after is not None
    assert after.until == NOW + hours * 3600.0


@pytest.mark.parametrize(
    "cls", ["OutOfStock", "QuotaExceeded", "Throttled", "Unauthorized", "DeadlineExceeded"]
)
def test_failed_scale_up_starts_a_backoff(cls: str) -> None:
    after = group_after(OperationKind.SCALE_UP, Failed(cls, "no", code="C"))
    assert after.backoff == Backoff(300, NOW + 300, NOW, cls, "C", "no")
    assert after.request == KNOWN.request


def test_retry_after_of_the_vendor_extends_the_backoff() -> None:
    after = group_after(OperationKind.SCALE_UP, Failed("Throttled", "no", retry_after=4000.0))
    assert after.backoff is not None
    assert after.backoff.until == NOW + 4000.0


@pytest.mark.parametrize("cls", ["Conflict", "Abandoned"])
def test_errors_not_caused_by_the_group_start_no_backoff(cls: str) -> None:
    assert memory_updates(operation(OperationKind.SCALE_UP), Failed(cls, "no"), Options(), NOW) == (
        None,
        None,
    )


def test_removal_starts_the_cooldown_after_delete() -> None:
    after = group_after(OperationKind.DELETE_NODES, Succeeded({"removed": 1}))
    assert (after.last_delete, after.target, after.request) == (NOW, 3, KNOWN.request)
    assert (
        memory_after(OperationKind.DELETE_NODES, Succeeded({"removed": 1})).last_scale_down == NOW
    )


# Upstream starts no cooldown here and retries the same node in the next loop.
def test_failed_drain_starts_the_cooldown_after_failure() -> None:
    failed = Failed("EvictionBlocked", "no")
    assert group_after(OperationKind.DELETE_NODES, failed).last_failure == NOW
    assert memory_after(OperationKind.DELETE_NODES, failed).last_scale_down_failure == NOW


def test_abandoned_removal_starts_no_cooldown() -> None:
    assert memory_updates(
        operation(OperationKind.DELETE_NODES), Failed("Abandoned", "off"), Options(), NOW
    ) == (
        None,
        None,
    )


def test_target_decrease_ends_the_purchases_of_its_nodes_and_no_other() -> None:
    lower = operation(OperationKind.DECREASE_TARGET).with_spec(from_size=6, to_size=5)
    patch, _ = memory_updates(lower, Succeeded(), Options(), NOW)
    assert patch is not None
    assert (patch(KNOWN).request, patch(KNOWN).target) == (None, 5)
    both = GroupMemory(target=6, request=BOTH)
    assert patch(both).request == ScaleUpRequest(2, NOW, NOW + 900, BOTH.rows[1:]), (
        "the second is not late"
    )
    given_up = ScaleUpRequest(3, NOW, NOW + 900, BOTH.rows, given_up=1)
    assert patch(GroupMemory(target=6, request=given_up)).request == BOTH


def test_deleted_unregistered_instance_lowers_the_target() -> None:
    assert group_after(OperationKind.DELETE_INSTANCES, Succeeded()).target == 3


@pytest.mark.parametrize("kind", [OperationKind.DELETE_INSTANCES, OperationKind.DECREASE_TARGET])
def test_failed_repair_waits_longer_each_time_and_blocks_nothing_else(kind: OperationKind) -> None:
    known, waits = KNOWN, []
    for _ in range(4):
        known = group_after(kind, Failed("Conflict", "a rollout"), known)
        waits.append(known.repair_after - NOW)
    assert waits == [300, 600, 1200, 1800]
    assert (known.repair_failures, known.last_failure, known.backoff) == (4, 0.0, None)
    assert memory_after(kind, Failed("Unknown", "no")) == Memory()
    assert (
        group_after(kind, Failed("Throttled", "no", retry_after=4000.0), known).repair_after
        == NOW + 4000
    )
    assert group_after(kind, Failed("Abandoned", "off"), known) == known
    done = group_after(kind, Succeeded(), known)
    assert (done.repair_failures, done.repair_after) == (0, 0.0)


def test_memory_patches_may_be_applied_twice_to_newer_memory() -> None:
    _, patch = memory_updates(operation(OperationKind.SCALE_UP), Succeeded(), Options(), NOW)
    assert patch is not None
    assert patch(Memory(last_scale_up=NOW + 5)).last_scale_up == NOW + 5
