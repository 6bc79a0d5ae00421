"""Scale-up, eviction and target decrease over HTTP: operations that are slow, fail,
conflict, or lose their answers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled
from infra.emulators.exoscale.models import (
    NOT_STARTING,
    UNAVAILABLE,
    Ending,
    ExoscaleDurations,
    ExoscaleProvisioningFate,
)
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask
from tests.providers.exoscale.fixtures import drive, order, seen
from tests.providers.provider_fixtures.exoscale import ExoscaleBench

SLOW = ExoscaleDurations(operation=300.0, create=280.0)
KINDS = pytest.mark.parametrize("standalone", [False, True], ids=["sks", "standalone"])


def _writes(bench: ExoscaleBench) -> list[str]:
    return [f"{call.operation} {call.body}" for call in bench.look() if call.writes]


def _ask(bench: ExoscaleBench, operation: Operation) -> Outcome | ProviderError:
    """Calls a newly built provider; an error that it raises is returned as the answer."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


@KINDS
def test_exoscale_scale_up_sends_the_absolute_size_to_the_kinds_endpoint(standalone: bool) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group = bench.add_group("g", size=2, least=1, most=5)
        for start, end in ((2, 6), (2, 2), (3, 2)):
            refused = _ask(bench, order(bench, OperationKind.SCALE_UP, group, start, end))
            assert isinstance(refused, Failed)
            assert refused.error_class == "InvalidRequest"
        assert not _writes(bench)
        outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 5))
        assert isinstance(outcome, Succeeded)
        assert outcome.facts["created"] == 3
        kind = "scale-instance-pool" if standalone else "scale-sks-nodepool"
        assert _writes(bench) == [f'{kind} {{"size":5}}']


@KINDS
def test_exoscale_eviction_sends_the_named_instances_to_the_kinds_endpoint(
    standalone: bool,
) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group = bench.add_group("g", size=3, least=1)
        first, second, third = bench.machines(group)
        outcome = drive(bench, order(bench, OperationKind.DELETE_NODES, group, 3, 1, third, first))
        assert isinstance(outcome, Succeeded)
        assert outcome.facts["removed"] == 2
        (write,) = _writes(bench)
        assert write.startswith(
            "evict-instance-pool-members" if standalone else "evict-sks-nodepool-members"
        )
        assert (bench.machines(group), bench.target(group)) == ([second], 1)


@KINDS
def test_exoscale_slow_operation_is_polled_without_waiting(standalone: bool) -> None:
    with ExoscaleBench(standalone=standalone, times=SLOW) as bench:
        group = bench.add_group("g", size=1, least=1, most=9)
        operation = order(bench, OperationKind.SCALE_UP, group, 1, 3)
        begun = _ask(bench, operation)
        assert isinstance(begun, InProgress)
        assert bench.slept() == 0.0
        bench.settle(120.0)
        found = seen(bench, group)
        assert found.target == 3
        assert not [each for each in found.instances if each.error], (
            "what is on its way is not missing"
        )
        held = _ask(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4, op="op-2"))
        assert isinstance(held, Conflict)
        followed = operation.with_status(step=begun.step, data=begun.data)
        assert isinstance(_ask(bench, followed), InProgress)
        bench.settle(180.0)
        assert isinstance(_ask(bench, followed), Succeeded)
        assert len(_writes(bench)) == 1
        assert isinstance(
            drive(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4, op="op-3")), Succeeded
        )


@KINDS
def test_exoscale_missing_capacity_is_reported_at_once_and_size_restored(
    standalone: bool,
) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group = bench.add_group("g", size=2, least=1)
        before = bench.machines(group)
        bench.zone.spoil(group, UNAVAILABLE, 9)
        failed = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 4))
        assert isinstance(failed, Failed)
        assert (failed.error_class, failed.code) == ("OutOfStock", "unavailable")
        assert "No capacity is left" in failed.message
        lost = [each for each in seen(bench, group).instances if each.error]
        assert [(each.state, each.error.cls if each.error else "") for each in lost] == [
            (InstanceState.CREATING, "OutOfStock")
        ] * 2
        assert all(each.id.startswith("exoscale://placeholder-") for each in lost)
        bench.look()
        assert isinstance(
            drive(
                bench,
                order(
                    bench,
                    OperationKind.DELETE_INSTANCES,
                    group,
                    4,
                    2,
                    *(each.handle for each in lost),
                ),
            ),
            Succeeded,
        )
        (write,) = _writes(bench)
        assert write.endswith('{"size":2}')
        assert (bench.machines(group), bench.target(group)) == (before, 2)
        assert len(seen(bench, group).instances) == 2


def test_exoscale_partial_failure_keeps_created_instances(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=1)
    bench.zone.spoil(group, UNAVAILABLE, 2)
    failed = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 5))
    assert isinstance(failed, Failed)
    assert (failed.error_class, failed.code, failed.facts["created"]) == (
        "OutOfStock",
        "partial",
        2,
    )
    found = seen(bench, group).instances
    assert (
        sorted(str(each.state) for each in found if not each.error)
        == [str(InstanceState.RUNNING)] * 3
    )
    assert len([each for each in found if each.error]) == 2


@pytest.mark.parametrize(("done", "size"), [(True, 3), (False, 1)])
def test_exoscale_vendor_timeout_is_not_taken_as_failure(
    bench: ExoscaleBench, done: bool, size: int
) -> None:
    """The pool shows the result."""
    group = bench.add_group("g", size=1)
    bench.zone.end_next(group, Ending("timeout", done=done))
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3))
    assert isinstance(outcome, Succeeded if done else Failed)
    assert (bench.target(group), len(bench.machines(group))) == (size, size)


def test_exoscale_busy_throttled_or_unavailable_calls_are_retried(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=1)
    operation = order(bench, OperationKind.SCALE_UP, group, 1, 2)
    bench.server.faults.next(VendorFault.CONFLICT, on="write")
    assert isinstance(_ask(bench, operation), Conflict)
    bench.server.faults.next(VendorFault.THROTTLED_FOR, on="read", times=-1)
    throttled = _ask(bench, operation)
    assert isinstance(throttled, Throttled)
    assert throttled.retry_after >= 7 or bench.slept() >= 7
    bench.server.faults.clear()
    bench.settle(30.0)
    bench.server.faults.next(VendorFault.SERVER_ERROR, on="read", times=2)
    assert isinstance(drive(bench, operation), Succeeded)
    assert bench.target(group) == 2


@KINDS
def test_exoscale_membership_and_minimum_are_checked_before_any_request(standalone: bool) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group, other = bench.add_group("g", size=3, least=2), bench.add_group("h", size=2, least=1)
        first, second, _ = bench.machines(group)
        bench.look()
        below = _ask(bench, order(bench, OperationKind.DELETE_NODES, group, 3, 1, first, second))
        assert isinstance(below, Failed)
        assert below.error_class == "InvalidRequest"
        foreign = _ask(
            bench,
            order(bench, OperationKind.DELETE_NODES, group, 3, 1, first, bench.machines(other)[0]),
        )
        assert isinstance(foreign, Failed)
        assert bench.machines(other)[0] in foreign.message
        assert other in foreign.message
        assert not _writes(bench)
        assert isinstance(
            drive(bench, order(bench, OperationKind.DELETE_NODES, group, 3, 2, first, op="op-2")),
            Succeeded,
        )
        again = drive(
            bench, order(bench, OperationKind.DELETE_NODES, group, 3, 2, first, op="op-3")
        )
        assert isinstance(again, Succeeded), "gone already is as good as removed"
        assert len(_writes(bench)) == 1


@KINDS
@pytest.mark.parametrize(
    "fault",
    [
        VendorFault.LOST_ANSWER,
        VendorFault.CUT_OFF,
        VendorFault.HANGS_UP,
        VendorFault.WEB_PAGE,
        VendorFault.SERVER_ERROR,
    ],
    ids=lambda fault: fault.name,
)
def test_exoscale_eviction_with_a_lost_answer_is_looked_up_and_not_resent(
    standalone: bool, fault: VendorFault
) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group = bench.add_group("g", size=4, least=1)
        first, *_, last = before = bench.machines(group)
        operation = order(bench, OperationKind.DELETE_NODES, group, 4, 2, first, last)
        bench.server.faults.next(fault, on="write")
        assert getattr(_ask(bench, operation), "error_class", "") == "Transient"
        took_effect = fault in (VendorFault.LOST_ANSWER, VendorFault.CUT_OFF)
        assert len(_writes(bench)) == 1, "an eviction is not repeated blindly"
        assert isinstance(drive(bench, operation), Succeeded)
        assert len(_writes(bench)) == (0 if took_effect else 1)
        assert (bench.machines(group), bench.target(group)) == (before[1:3], 2)


@KINDS
def test_exoscale_decrease_target_removes_only_missing_instances(standalone: bool) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group = bench.add_group("g", size=3, least=1)
        before = bench.machines(group)
        refused = _ask(bench, order(bench, OperationKind.DECREASE_TARGET, group, 3, 2))
        assert isinstance(refused, Failed), "no fake success"
        bench.pool(group).size = 6
        assert isinstance(
            drive(bench, order(bench, OperationKind.DECREASE_TARGET, group, 6, 3, op="op-2")),
            Succeeded,
        )
        assert (bench.machines(group), bench.target(group)) == (before, 3)
        assert len(_writes(bench)) == 1


def test_exoscale_pool_deleted_midway_ends_its_operation(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=2)
    operation = order(bench, OperationKind.SCALE_UP, group, 2, 3)
    begun = _ask(bench, operation)
    assert isinstance(begun, InProgress)
    bench.zone.delete_pool(group)
    bench.settle(120.0)
    outcome = _ask(bench, operation.with_status(step=begun.step, data=begun.data))
    assert isinstance(outcome, Failed | Succeeded)
    gone = _ask(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3, op="op-2"))
    assert isinstance(gone, Failed)
    assert gone.error_class == "NotFound"


def test_exoscale_instance_that_does_not_start_is_deleted(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=1)
    before = bench.machines(group)
    bench.zone.spoil(group, NOT_STARTING)
    drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 2))
    (broken,) = [each for each in seen(bench, group).instances if each.error]
    assert isinstance(
        drive(
            bench,
            order(bench, OperationKind.DELETE_INSTANCES, group, 2, 1, broken.handle, op="op-2"),
        ),
        Succeeded,
    )
    assert (bench.machines(group), bench.target(group)) == (before, 1)


@KINDS
def test_exoscale_two_concurrent_functions_scale_once_and_evict_once(standalone: bool) -> None:
    with ExoscaleBench(standalone=standalone) as bench:
        group = bench.add_group("g", size=3, least=1)
        growth = order(bench, OperationKind.SCALE_UP, group, 3, 5)
        assert set(_both(bench, growth)) <= {InProgress, Conflict, Succeeded}
        assert isinstance(drive(bench, growth), Succeeded)
        bench.settle()
        victims = bench.machines(group)[1:3]
        removal = order(bench, OperationKind.DELETE_NODES, group, 5, 3, *victims, op="op-2")
        assert set(_both(bench, removal)) <= {InProgress, Conflict, Succeeded}
        assert isinstance(drive(bench, removal), Succeeded)
        bench.settle()
        assert (len(bench.machines(group)), bench.target(group)) == (3, 3)
        assert not set(victims) & set(bench.machines(group))


def _both(bench: ExoscaleBench, operation: Operation) -> list[type]:
    barrier = Barrier(2)

    def one() -> Outcome | ProviderError:
        barrier.wait(timeout=600)
        return _ask(bench, operation)

    with ThreadPoolExecutor(2) as pool:
        return [type(future.result(timeout=600)) for future in [pool.submit(one) for _ in range(2)]]


def test_exoscale_exhausted_quota_has_its_class_in_every_error_form(bench: ExoscaleBench) -> None:
    group = bench.add_group("g", size=2)
    bench.zone.limit = 3
    refused = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 4))
    assert isinstance(refused, Failed)
    assert (refused.error_class, bench.target(group)) == ("QuotaExceeded", 2)
    bench.zone.limit, bench.zone.refuses_quota = -1, False
    bench.zone.spoil(
        group, ExoscaleProvisioningFate("fault", "The quota of resource instance is exceeded."), 2
    )
    failed = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 4, op="op-2"))
    assert isinstance(failed, Failed)
    assert failed.error_class == "QuotaExceeded"


def test_exoscale_never_scales_down_by_the_vendors_choice(bench: ExoscaleBench) -> None:
    """Whatever is done to a complete group, only evictions remove members."""
    group = bench.add_group("g", size=4)
    victim = bench.machines(group)[2]
    drive(bench, order(bench, OperationKind.DECREASE_TARGET, group, 4, 2))
    drive(bench, order(bench, OperationKind.DELETE_INSTANCES, group, 4, 3, victim, op="op-2"))
    drive(bench, order(bench, OperationKind.DELETE_NODES, group, 4, 3, victim, op="op-3"))
    assert [write.split()[0] for write in _writes(bench)] == ["evict-sks-nodepool-members"]
    assert len(bench.machines(group)) == 3
