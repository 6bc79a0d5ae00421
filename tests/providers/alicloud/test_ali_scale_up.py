"""Tests of scale-up through ESS over HTTP: clamped sizes, client tokens,
busy groups, late failures.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import Conflict, Throttled
from infra.emulators.alicloud.models import (
    NO_STOCK,
    QUOTA,
    AlicloudDurations,
    AlicloudProvisioningFate,
)
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask
from tests.providers.alicloud.fixture import AlicloudBench, drive, order, seen


@pytest.fixture(params=[True, False], ids=["desired", "no-desired"])
def bench(request: pytest.FixtureRequest) -> Iterator[AlicloudBench]:
    with AlicloudBench(desired=request.param) as made:
        yield made


@pytest.fixture
def desired() -> Iterator[AlicloudBench]:
    with AlicloudBench() as made:
        yield made


def activities(bench: AlicloudBench, group: str) -> list[str]:
    return [each.status for each in bench.cloud.groups[group].activities]


def test_alicloud_group_grows_by_exactly_the_requested_number(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=2)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 5))
    assert isinstance(outcome, Succeeded)
    assert len(bench.machines(group)) == bench.target(group) == 5
    assert activities(bench, group) == ["Successful"]
    assert seen(bench, group).target == 5


def test_alicloud_no_scale_in_while_instances_wait_for_a_lifecycle_hook(
    bench: AlicloudBench,
) -> None:
    """Upstream's absolute number omitted waiting instances and therefore
    requested fewer than exist."""
    group = bench.add_group("g", size=1, most=20)
    held = bench.cloud.groups[group]
    held.hook_in = 300.0
    assert isinstance(
        ask(bench.provider(), order(bench, OperationKind.SCALE_UP, group, 1, 4)), InProgress
    )
    bench.settle(60.0)
    assert held.count("Pending:Wait") == 3
    assert seen(bench, group).target == 4
    assert [each.state for each in seen(bench, group).instances].count(InstanceState.CREATING) == 3
    bench.cloud.finish_hooks(group)
    outcome = drive(
        bench, order(bench, OperationKind.SCALE_UP, group, 4, 5, op="second-0123456789")
    )
    assert isinstance(outcome, Succeeded)
    assert len(bench.machines(group)) == 5
    assert not bench.cloud.released


def test_alicloud_size_includes_protected_and_waiting_instances(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=3)
    first, second, _ = bench.machines(group)
    bench.cloud.set_state(first, "Protected")
    bench.cloud.set_state(second, "Standby")
    assert seen(bench, group).target == 3
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4)), Succeeded)
    assert len(bench.machines(group)) == 4


def test_alicloud_scale_up_never_exceeds_the_groups_own_lower_maximum(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=2, most=10)
    bench.cloud.groups[group].max = 3
    assert seen(bench, group).max == 3
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 6))
    assert isinstance(outcome, Failed)
    assert "MaxSize" in outcome.message
    assert not bench.writes()
    assert len(bench.machines(group)) == 2


def test_alicloud_lost_answer_is_retried_with_same_token_as_one_activity(
    bench: AlicloudBench,
) -> None:
    group = bench.add_group("g", size=0)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on="write")
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 2))
    assert isinstance(outcome, Succeeded)
    tokens = [call.parameters["ClientToken"] for call in bench.look() if call.writes]
    assert len(tokens) >= 2
    assert len(set(tokens)) == 1
    assert len(activities(bench, group)) == 1
    assert len(bench.machines(group)) == 2


def test_alicloud_busy_group_is_retried_and_not_failed(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=0)
    drive_other = order(bench, OperationKind.SCALE_UP, group, 0, 1, op="other-0123456789abcdef")
    assert isinstance(ask(bench.provider(), drive_other), InProgress)
    with pytest.raises(Conflict):
        ask(bench.provider(), order(bench, OperationKind.SCALE_UP, group, bench.target(group), 2))
    bench.settle(60.0)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 2)), Succeeded)
    assert len(bench.machines(group)) == 2


def test_alicloud_throttled_call_waits_as_long_as_the_vendor_states(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=0)
    bench.server.faults.next(VendorFault.THROTTLED_FOR, on="write")
    # too long for a sleep; the operation is delayed instead
    with pytest.raises(Throttled) as caught:
        ask(bench.provider(), order(bench, OperationKind.SCALE_UP, group, 0, 1))
    assert caught.value.retry_after == 7.0
    assert bench.slept() < 1.0
    bench.settle(7.0)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 1)), Succeeded)
    assert len(bench.machines(group)) == 1


def test_alicloud_account_rate_limit_delays_scale_up_without_losing_it(
    bench: AlicloudBench,
) -> None:
    group = bench.add_group("g", size=0)
    bench.server.throttle.limits[""] = (1, 3.0)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 2)), Succeeded)
    bench.server.throttle.limits.clear()
    assert len(bench.machines(group)) == 2


@pytest.mark.parametrize(("fate", "cls"), [(NO_STOCK, "OutOfStock"), (QUOTA, "QuotaExceeded")])
def test_alicloud_late_failure_gets_its_error_class_within_one_pass(
    desired: AlicloudBench, fate: AlicloudProvisioningFate, cls: str
) -> None:
    bench = desired
    group = bench.add_group("g", size=1)
    bench.cloud.spoil(group, fate, 2)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == (cls, fate.code)
    broken = [each for each in seen(bench, group).instances if each.error]
    assert [(each.state, each.error.cls if each.error else "") for each in broken] == [
        (InstanceState.CREATING, cls)
    ] * 2


def test_alicloud_removed_placeholders_restore_the_previous_group(desired: AlicloudBench) -> None:
    bench = desired
    group = bench.add_group("g", size=1)
    bench.cloud.spoil(group, NO_STOCK, 2)
    drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3))
    broken = [each.handle for each in seen(bench, group).instances if each.error]
    outcome = drive(
        bench,
        order(bench, OperationKind.DELETE_INSTANCES, group, 3, 1, *broken, op="discard-0123456789"),
    )
    assert isinstance(outcome, Succeeded)
    assert (seen(bench, group).target, len(seen(bench, group).instances)) == (1, 1)
    bench.settle(100_000.0)
    assert len(bench.machines(group)) == 1  # and ESS does not retry it


def test_alicloud_failure_without_desired_capacity_is_reported_by_operation(
    bench: AlicloudBench,
) -> None:
    group = bench.add_group("g", size=0)
    bench.cloud.spoil(group, NO_STOCK, 2)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 4))
    assert isinstance(outcome, Failed)
    # the activity ends with a Warning: 2 of 4 instances were created
    assert (outcome.error_class, outcome.facts.get("created")) == ("OutOfStock", 2)
    assert len(bench.machines(group)) == 2


def test_alicloud_stockout_of_a_zone_or_type_uses_another_one(bench: AlicloudBench) -> None:
    made = bench.cloud.add_group(
        "multi",
        desired=False,
        types=("ecs.g7.xlarge", "ecs.g6.xlarge"),
        zones=("cn-hangzhou-i", "cn-hangzhou-j"),
    )
    bench.bind(made.id, 0, 10)
    bench.cloud.stock |= {
        ("ecs.g7.xlarge", "cn-hangzhou-i"): 1,
        ("ecs.g7.xlarge", "cn-hangzhou-j"): 0,
    }
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, made.id, 0, 2)), Succeeded)
    assert [(each.type, each.zone) for each in made.machines.values()] == [
        ("ecs.g7.xlarge", "cn-hangzhou-i"),
        ("ecs.g6.xlarge", "cn-hangzhou-i"),
    ]


def test_alicloud_account_quota_is_not_exceeded(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=2)
    bench.cloud.quota = 3
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "QuotaExceeded"
    assert len(bench.machines(group)) == 3


def test_alicloud_cold_starts_during_an_activity_never_buy_twice(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=0)
    operation = order(bench, OperationKind.SCALE_UP, group, 0, 2)
    outcome = ask(bench.provider(), operation)
    assert isinstance(outcome, InProgress)
    stored = msgspec.json.decode(msgspec.json.encode(outcome.data), type=dict[str, str])
    bench.settle(5.0)
    # the message is delivered twice, and the data of the first delivery are lost
    ask(bench.provider(), operation)
    bench.settle(5.0)
    resumed = operation.with_status(step=outcome.step, data=stored)
    assert isinstance(drive(bench, resumed), Succeeded)
    assert isinstance(drive(bench, operation), Succeeded)  # and once more after the end
    assert len(bench.machines(group)) == 2
    assert len(activities(bench, group)) == 1


@pytest.mark.parametrize("check", [1.0, 5.0, 30.0])
def test_alicloud_retries_by_ess_hide_no_failure_and_keep_nothing_alive(check: float) -> None:
    with AlicloudBench(times=AlicloudDurations(check=check)) as bench:
        group = bench.add_group("g", size=1)
        bench.cloud.spoil(group, NO_STOCK, 1000)
        outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "OutOfStock"
        broken = [each.handle for each in seen(bench, group).instances if each.error]
        assert len(broken) == 2
        assert isinstance(
            drive(
                bench,
                order(
                    bench,
                    OperationKind.DELETE_INSTANCES,
                    group,
                    3,
                    1,
                    *broken,
                    op="gone-0123456789",
                ),
            ),
            Succeeded,
        )
        bench.calm()
        bench.settle(3600.0)
        assert (bench.target(group), len(bench.machines(group))) == (1, 1)


def test_alicloud_size_is_the_requested_number_while_machines_are_late(
    desired: AlicloudBench,
) -> None:
    bench = desired
    group = bench.add_group("g", size=1)
    ask(bench.provider(), order(bench, OperationKind.SCALE_UP, group, 1, 4))
    assert seen(bench, group).target == 4
    bench.cloud.spoil(group, NO_STOCK, 1)
    bench.settle(100.0)
    assert seen(bench, group).target == 4
