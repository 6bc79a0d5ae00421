"""Scale-ups and evictions to their end: what the suite of all vendors does not show."""

from __future__ import annotations

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.exoscale.models import (
    UNAVAILABLE,
    Ending,
    ExoscaleDurations,
)
from tests.operations import ask
from tests.providers.exoscale.fixture import ExoscaleFixture, drive, order, seen

SLOW = ExoscaleDurations(operation=300.0, create=280.0)
KINDS = pytest.mark.parametrize("standalone", [False, True], ids=["sks", "standalone"])


def _ask(bench: ExoscaleFixture, operation: Operation) -> Outcome | ProviderError:
    """Calls a newly built provider; an error that it raises is returned as the answer."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


@KINDS
def test_exoscale_scale_up_sends_the_absolute_size_to_the_kinds_endpoint(standalone: bool) -> None:
    with ExoscaleFixture(standalone=standalone) as bench:
        group = bench.add_group("g", size=2, least=1, most=5)
        for start, end in ((2, 6), (2, 2), (3, 2)):
            refused = _ask(bench, order(bench, OperationKind.SCALE_UP, group, start, end))
            assert isinstance(refused, Failed)
            assert refused.error_class == "InvalidRequest"
        assert not bench.changes()
        outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 5))
        assert isinstance(outcome, Succeeded)
        assert outcome.facts["created"] == 3
        kind = "scale-instance-pool" if standalone else "scale-sks-nodepool"
        assert bench.changes() == [f'{kind} {{"size":5}}']


@KINDS
def test_exoscale_eviction_sends_the_named_instances_to_the_kinds_endpoint(
    standalone: bool,
) -> None:
    with ExoscaleFixture(standalone=standalone) as bench:
        group = bench.add_group("g", size=3, least=1)
        first, second, third = bench.machines(group)
        outcome = drive(bench, order(bench, OperationKind.DELETE_NODES, group, 3, 1, third, first))
        assert isinstance(outcome, Succeeded)
        assert outcome.facts["removed"] == 2
        (write,) = bench.changes()
        assert write.startswith(
            "evict-instance-pool-members" if standalone else "evict-sks-nodepool-members"
        )
        assert (bench.machines(group), bench.target(group)) == ([second], 1)


def test_exoscale_partial_failure_keeps_created_instances(bench: ExoscaleFixture) -> None:
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
    bench: ExoscaleFixture, done: bool, size: int
) -> None:
    """The pool shows the result."""
    group = bench.add_group("g", size=1)
    bench.zone.end_next(group, Ending("timeout", done=done))
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3))
    assert isinstance(outcome, Succeeded if done else Failed)
    assert (bench.target(group), len(bench.machines(group))) == (size, size)


def test_exoscale_pool_deleted_midway_ends_its_operation(bench: ExoscaleFixture) -> None:
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


def test_exoscale_never_scales_down_by_the_vendors_choice(bench: ExoscaleFixture) -> None:
    """Whatever is done to a complete group, only evictions remove members."""
    group = bench.add_group("g", size=4)
    victim = bench.machines(group)[2]
    drive(bench, order(bench, OperationKind.DECREASE_TARGET, group, 4, 2))
    drive(bench, order(bench, OperationKind.DELETE_INSTANCES, group, 4, 3, victim, op="op-2"))
    drive(bench, order(bench, OperationKind.DELETE_NODES, group, 4, 3, victim, op="op-3"))
    assert [write.split()[0] for write in bench.changes()] == ["evict-sks-nodepool-members"]
    assert len(bench.machines(group)) == 3
