"""Tests of removals through ESS over HTTP: exactly the named instances, with a result for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.alicloud.fixture import AlicloudBench, drive, order, seen


@pytest.fixture(params=[True, False], ids=["desired", "no-desired"])
def bench(request: pytest.FixtureRequest) -> Iterator[AlicloudBench]:
    with AlicloudBench(desired=request.param) as made:
        yield made


def test_alicloud_removal_deletes_exactly_the_named_and_lowers_the_size(
    bench: AlicloudBench,
) -> None:
    group = bench.add_group("g", size=5)
    first, second, third, *rest = bench.machines(group)
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_NODES, group, 5, 3, first, third)), Succeeded
    )
    assert bench.machines(group) == [second, *rest]
    assert bench.target(group) == seen(bench, group).target == 3


def test_alicloud_removal_of_45_instances_runs_in_sequential_batches(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=50, most=60)
    leaving = bench.machines(group)[:45]
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_NODES, group, 50, 5, *leaving)), Succeeded
    )
    assert len(bench.machines(group)) == bench.target(group) == 5
    removals = [call for call in bench.look() if call.action == "RemoveInstances" and not call.code]
    counts = [sum(name.startswith("InstanceIds.") for name in call.parameters) for call in removals]
    assert counts == [20, 20, 5]


def test_alicloud_removal_below_the_minimum_is_refused_as_a_whole(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=5, least=3)
    outcome = drive(
        bench, order(bench, OperationKind.DELETE_NODES, group, 5, 1, *bench.machines(group)[:4])
    )
    assert isinstance(outcome, Failed)
    assert not bench.writes()
    assert len(bench.machines(group)) == 5


def test_alicloud_removal_reports_the_scaling_groups_own_minimum(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=3, least=0)
    bench.cloud.groups[group].min = 3
    outcome = drive(
        bench, order(bench, OperationKind.DELETE_NODES, group, 3, 2, bench.machines(group)[0])
    )
    assert isinstance(outcome, Failed)
    assert len(bench.machines(group)) == 3


def test_alicloud_removal_of_another_groups_node_is_refused_before_any_write(
    bench: AlicloudBench,
) -> None:
    group, other = bench.add_group("g", size=3), bench.add_group("other", size=2)
    foreign = bench.machines(other)[0]
    outcome = drive(
        bench,
        order(bench, OperationKind.DELETE_NODES, group, 3, 1, bench.machines(group)[0], foreign),
    )
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert not bench.writes()


def test_alicloud_instance_already_gone_does_not_block_other_removals(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=4)
    first, second, *rest = bench.machines(group)
    operation = order(bench, OperationKind.DELETE_NODES, group, 4, 2, first, second)
    bench.cloud.vanish(first)
    assert isinstance(drive(bench, operation), Succeeded)
    assert bench.machines(group) == rest


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("empty", [False, True], ids=["refused", "accepted"])
def test_alicloud_instance_vanishing_before_the_call_is_ignored_by_ess(
    bench: AlicloudBench, empty: bool, others: int
) -> None:
    bench.cloud.takes_empty_removals = empty
    group = bench.add_group("g", size=4)
    first, *rest = bench.machines(group)
    named = [first, *rest[:others]]
    original = bench.server.front.handle

    def vanish_first(incoming: object) -> object:
        if "RemoveInstances" in incoming.headers.values() and first in bench.machines(group):  # type: ignore[attr-defined]
            bench.cloud.vanish(first)
        return original(incoming)  # type: ignore[arg-type]

    bench.server.front.handle = vanish_first  # type: ignore[method-assign, assignment]
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_NODES, group, 4, 4 - len(named), *named)),
        Succeeded,
    )
    assert bench.machines(group) == rest[others:]
    assert bench.cloud.released[0].machine.id == first
    assert bench.writes()


def test_alicloud_protected_instance_is_named_and_other_removals_proceed(
    bench: AlicloudBench,
) -> None:
    group = bench.add_group("g", size=4)
    first, second, *_ = bench.machines(group)
    bench.cloud.set_state(first, "Protected")
    outcome = drive(bench, order(bench, OperationKind.DELETE_NODES, group, 4, 2, first, second))
    assert isinstance(outcome, Failed)
    assert first in outcome.message
    assert second not in bench.machines(group)
    assert first in bench.machines(group)


def test_alicloud_lost_answer_to_a_removal_removes_no_other_instance(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=4)
    first, *rest = bench.machines(group)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on="write")
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_NODES, group, 4, 3, first)), Succeeded
    )
    assert bench.machines(group) == rest
    assert bench.target(group) == 3


def test_alicloud_instances_in_a_scale_in_hook_are_reported_as_leaving(
    bench: AlicloudBench,
) -> None:
    group = bench.add_group("g", size=3)
    bench.cloud.groups[group].hook_out = 120.0
    first, *rest = bench.machines(group)
    outcome = drive(bench, order(bench, OperationKind.DELETE_NODES, group, 3, 2, first))
    assert isinstance(outcome, Succeeded)
    bench.settle()
    assert bench.machines(group) == rest


def test_alicloud_decrease_target_never_removes_an_instance() -> None:
    with AlicloudBench() as bench:
        group = bench.add_group("g", size=3)
        bench.cloud.groups[group].desired = 5
        refused = drive(
            bench, order(bench, OperationKind.DECREASE_TARGET, group, 5, 2, op="too-low-0123456789")
        )
        assert isinstance(refused, Failed)
        assert not bench.writes()
        assert isinstance(
            drive(bench, order(bench, OperationKind.DECREASE_TARGET, group, 5, 3)), Succeeded
        )
        bench.settle(100_000.0)
        assert (bench.target(group), len(bench.machines(group))) == (3, 3)
