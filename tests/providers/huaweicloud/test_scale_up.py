"""Scale-up of a scale group by the pool's total."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.kit.errors import Conflict, Transient
from infra.emulators.huaweicloud import models
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import (
    AZ2,
    CLUSTER,
    FLAVOR,
    NO_QUOTA,
    NOT_SCALABLE,
    POOL,
    SOLD_OUT,
    A,
    B,
    EmulatedCce,
    entry,
    grow,
    refusal,
    true,
)
from tests.providers.huaweicloud.fixture import drive


def refused(
    cce: EmulatedCce, error_class: str, *entries: GroupPolicy, size: int = 5, group: str = A
) -> Failed:
    """A scale-up from 3, or from 2 of the second group, that is refused before anything is sent."""
    outcome = cce.step(grow(cce, 2 if group == B else 3, size, group), *entries)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == (error_class, [])
    return outcome


def test_CCE_18_request_is_recorded_before_it_is_sent() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.announced(grow(cce, 2, 4, B))
    assert (operation.status.data["base"], operation.status.data["total"]) == ("5", "7")


def test_CCE_18_request_is_not_repeated_while_the_groups_number_lags() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.lag = 60.0
    operation = cce.announced(grow(cce, 3, 5))
    cce.server.faults.next(VendorFault.LOST_ANSWER, on="scale-pool")
    with pytest.raises(Transient):
        cce.step(operation)
    assert cce.next(operation).status.step == "follow"
    assert isinstance(drive(cce, operation), Succeeded)
    assert cce.changes() == ["scale 7 default"]


def test_CCE_18_change_of_the_pool_by_another_writer_is_never_undone() -> None:
    cce = EmulatedCce(3, 2, most=20)
    operation = cce.announced(grow(cce, 3, 5))
    cce.resize(B, 6)
    operation = cce.announced(operation)
    assert operation.status.data["total"] == "11"
    assert isinstance(drive(cce, operation), Succeeded)
    assert (cce.changes(), cce.chosen) == (["scale 11 default"], set())


def test_CCE_18_contradictory_numbers_are_read_again_and_never_written() -> None:
    cce = EmulatedCce(3, 2, most=20)
    operation = cce.announced(grow(cce, 3, 5))
    cce.answers[POOL] = {"spec.initialNodeCount": 9}  # and no group accounts for it
    for _ in range(4):
        operation = cce.next(operation)
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == ("Conflict", [])


def test_CCE_18_total_is_never_computed_from_the_lower_of_two_numbers() -> None:
    cce = EmulatedCce(3, 2)
    # older than the numbers of the groups: 4 + 1 would remove one of five
    cce.answers[POOL] = {"spec.initialNodeCount": 4}
    operation = grow(cce, 3, 4)
    for _ in range(12):
        operation = cce.next(operation)
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == ("Unknown", [])
    cce.answers.clear()
    assert isinstance(drive(cce, operation), Succeeded)


def test_huawei_group_lagging_behind_its_pool_is_awaited() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.lag = 60.0
    operation = cce.announced(grow(cce, 3, 5))
    for _ in range(9):
        operation = cce.next(operation)
    assert isinstance(drive(cce, operation), Succeeded)
    assert cce.changes() == ["scale 7 default"]


def test_huawei_increase_reverted_by_others_is_not_bought_again() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.announced(grow(cce, 3, 5))
    cce.lack(2)
    operation = cce.next(operation)
    cce.resize(A, 3)
    for _ in range(4):
        operation = cce.next(operation)
    assert isinstance(cce.step(operation), Failed)
    assert cce.changes() == []


def test_huawei_lowered_pool_lowers_the_next_total() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.announced(grow(cce, 3, 5))
    cce.resize(B, 1)
    assert isinstance(drive(cce, operation), Succeeded)
    assert cce.changes() == ["scale 6 default"]


def test_huawei_size_already_reached_sends_no_request() -> None:
    cce = EmulatedCce(5, 2)
    assert isinstance(drive(cce, grow(cce, 3, 5)), Succeeded)
    assert not cce.changes()


@each_row(("start", "to"), [(3, 3), (3, 1)])
def test_huawei_scale_up_without_an_increase_is_refused(start: int, to: int) -> None:
    cce = EmulatedCce(3, 2)
    outcome = cce.step(grow(cce, start, to))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_CCE_A6_1_pool_maximum_applies_to_all_its_groups_together() -> None:
    cce = EmulatedCce(3, 2, most=6)
    assert "6 of its pool" in refused(cce, "InvalidRequest").message
    assert isinstance(drive(cce, grow(cce, 3, 4)), Succeeded)


def test_CCE_A6_3_flavour_maximum_applies_to_its_group() -> None:
    assert "maximum 6" in refused(EmulatedCce(3, 2), "InvalidRequest", size=7, group=B).message


@each_row(("name", "most"), [("pool-a", 6), (POOL, 6), ("pool-a/default", 4), (A, 4)])
def test_huawei_policy_maximum_replaces_that_of_the_pool(name: str, most: int) -> None:
    refused(EmulatedCce(3, 2), "InvalidRequest", entry(name, 0, most))


def test_CCE_A1_5_prepaid_and_default_pools_are_not_scaled_up() -> None:
    assert "prepaid" in refused(EmulatedCce(3, billing=1), "InvalidRequest").message
    cce = EmulatedCce(3)
    cce.answers[POOL] = {"metadata.name": "DefaultPool"}
    assert "default pool" in refused(cce, "InvalidRequest").message
    refused(EmulatedCce(3, phase="Deleting"), "InvalidRequest")


def test_huawei_flavour_disabled_meanwhile_is_not_scaled_up() -> None:
    cce = EmulatedCce(3, 2)
    cce.group(B).enabled = False
    assert "switched off" in refused(cce, "InvalidRequest", size=4, group=B).message


@each_row(
    ("beside", "error_class"),
    [
        (SOLD_OUT, "OutOfStock"),
        (NO_QUOTA, "QuotaExceeded"),
        (true("UnexpectedError"), "InstallFailed"),
        (true("LockedByOrder", "order-1"), "Unknown"),
        (true("TaintSynchronizing"), "Unknown"),
    ],
)
def test_CCE_A9_1_group_that_is_not_scalable_is_refused_with_its_reasons_class(
    beside: dict[str, str], error_class: str
) -> None:
    cce = EmulatedCce(3, 2)
    cce.status(A, conditions=[NOT_SCALABLE, beside])
    refused(cce, error_class)


def test_huawei_pool_that_is_not_scalable_refuses_for_all_its_groups() -> None:
    cce = EmulatedCce(3, 2)
    cce.answers[POOL] = {"status.conditions": [NOT_SCALABLE, NO_QUOTA]}
    refused(cce, "QuotaExceeded")


def test_huawei_flavour_that_ecs_reports_as_sold_out_is_not_requested() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.operations[FLAVOR] = {AZ2: "sellout"}
    refused(cce, "OutOfStock", size=4, group=B)
    assert isinstance(drive(cce, grow(cce, 3, 4)), Succeeded)


def test_huawei_sold_out_hint_is_not_decisive() -> None:
    cce = EmulatedCce(3, 2)
    cce.server.reply("flavors", refusal(403, "CCE.01403001"), *[refusal(429, "CCE.02429001")] * 3)
    assert isinstance(drive(cce, grow(cce, 3, 4)), Succeeded)
    assert [call.operation for call in cce.server.log].count("list-flavors") == 0


@each_row("phase", ["Upgrading", "Creating", "Unavailable", "Resizing"])
def test_huawei_busy_cluster_is_awaited(phase: str) -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.clusters[CLUSTER].phase = phase
    with pytest.raises(Conflict):
        cce.step(grow(cce, 3, 5))
    assert not cce.changes()


@each_row("phase", ["Hibernation", "Deleting", "Empty"])
def test_huawei_disabled_cluster_is_not_awaited(phase: str) -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.clusters[CLUSTER].phase = phase
    refused(cce, "InvalidRequest")


def test_huawei_key_forbidden_to_read_the_cluster_scales_up_nevertheless() -> None:
    cce = EmulatedCce(3, 2)
    cce.fail(f"GET .*/clusters/{CLUSTER}$", 403, "CCE.01403001", times=2)
    assert isinstance(drive(cce, grow(cce, 3, 5)), Succeeded)
    assert [call.operation for call in cce.server.log].count("show-cluster") == 0


def test_huawei_scale_up_of_a_deleted_or_undecodable_pool_or_group_fails() -> None:
    refused(EmulatedCce(), "NotFound")
    cce = EmulatedCce(3, 2)
    gone = refused(cce, "NotFound", group=f"{POOL}/other")
    assert gone.message == "node pool pool-a has no scale group other"
    cce.answers[POOL] = {"status.scaleGroupStatuses": None}
    refused(cce, "Unknown")
    cce.answers[POOL] = {"spec": "none"}
    refused(cce, "Unknown")


@each_row(
    ("why", "error_class"),
    [
        (SOLD_OUT, "OutOfStock"),
        (NO_QUOTA, "QuotaExceeded"),
        (true("UnexpectedError"), "InstallFailed"),
    ],
)
def test_CCE_A9_1_scale_up_without_nodes_fails_with_the_class_of_the_condition(
    why: dict[str, str], error_class: str
) -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.announced(grow(cce, 3, 6))
    cce.cloud.spoil(POOL, models.SOLD_OUT, 2)
    operation = cce.next(operation)
    cce.settle(90.0)
    cce.status(A, conditions=[why])
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["created"]) == (
        error_class,
        why["type"],
        1,
    )
    assert cce.changes() == ["scale 8 default"]


def test_CCE_A9_1_earlier_condition_must_persist_before_it_counts() -> None:
    cce = EmulatedCce(3, 2)
    cce.status(A, conditions=[SOLD_OUT])
    cce.cloud.sell_out(FLAVOR, "cn-north-4a")
    operation = cce.next(cce.next(cce.announced(grow(cce, 3, 4))))
    cce.cloud.add_nodes(POOL, 1)
    assert isinstance(drive(cce, operation), Succeeded)


@each_row("phase", ["Build", "Installing"])
def test_CCE_A9_3_operation_ends_once_a_node_is_listed_and_the_core_waits(phase: str) -> None:
    """A node that installs forever must not shorten the fifteen minutes of the scale-up request."""
    cce = EmulatedCce(3, 2)
    cce.cloud.sell_out(FLAVOR, "cn-north-4a")
    operation = cce.next(cce.announced(grow(cce, 3, 4)))
    assert isinstance(cce.step(operation), InProgress)
    cce.cloud.add_nodes(POOL, 1, phase=phase)
    outcome = cce.step(operation)
    assert isinstance(outcome, Succeeded)
    assert (outcome.facts["created"], cce.changes()) == (1, ["scale 6 default"])


def test_CCE_A9_1_permanent_condition_does_not_affect_nodes_in_creation() -> None:
    cce = EmulatedCce(3, 2)
    cce.status(A, conditions=[true("UnexpectedError")])
    operation = cce.next(cce.announced(grow(cce, 3, 4)))
    for _ in range(6):
        assert isinstance(cce.step(operation), Succeeded)


def test_CCE_A9_3_operation_ends_after_three_idle_minutes_and_the_core_waits() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.sell_out(FLAVOR, "cn-north-4a")
    operation, waited = cce.announced(grow(cce, 3, 4)), 0.0
    while isinstance(outcome := cce.step(operation), InProgress):
        waited += outcome.after
        operation = operation.with_status(data=outcome.data, step=outcome.step)
    assert isinstance(outcome, Succeeded)
    assert 180.0 <= waited < 240.0
    assert cce.changes() == ["scale 6 default"]


def test_huawei_request_accepted_without_effect_fails() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.next(cce.announced(grow(cce, 3, 4)))
    cce.group(A).desired = 3
    for _ in range(4):
        operation = cce.next(operation)
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unknown"
    assert cce.changes() == ["scale 6 default"]


@each_row(
    ("status", "code", "error_class"),
    [(400, "CCE.01400001", "InvalidRequest"), (418, "CCE.0", "Unknown")],
)
def test_huawei_conditions_take_precedence_over_the_code_of_a_refusal(
    status: int, code: str, error_class: str
) -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.announced(grow(cce, 3, 4))
    cce.fail("operation/scale", status, code, times=2)
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == error_class
    cce.status(A, conditions=[SOLD_OUT])
    outcome = cce.step(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"


def test_huawei_locked_pool_is_awaited() -> None:
    cce = EmulatedCce(3, 2)
    operation = cce.announced(grow(cce, 3, 4))
    cce.fail("operation/scale", 429, "CCE.01429002", times=1)
    with pytest.raises(Conflict):
        cce.step(operation)
    assert isinstance(drive(cce, operation), Succeeded)


@each_row("rubbish", ["", "-1", "x", "9" * 40, "²"])
def test_huawei_unreadable_operation_data_never_become_a_total(rubbish: str) -> None:
    cce = EmulatedCce(3, 2)
    operation = grow(cce, 3, 5).with_status(
        data={"base": rubbish, "total": rubbish, "looks": rubbish}
    )
    assert isinstance(drive(cce, operation), Succeeded)
    assert cce.changes() == ["scale 7 default"]
