"""Tests of the emulated ESS: timing, limits and unusual requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.emulators.alicloud.account import REGION, AlicloudCloud
from infra.emulators.alicloud.dispatcher import AlicloudDispatcher
from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.handlers import NEW, OLD, AlicloudHandlers, Sent
from infra.emulators.alicloud.iam import Role
from infra.emulators.alicloud.models import AlicloudDurations, AlicloudGroup
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.vendor_common.fault_injection import VendorRefusedError
from infra.emulators.vendor_common.http_messages import Incoming

START = 1_800_000_000.0


class AliEmulatorFixture:
    """An account and its actions, without signatures and HTTP."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.cloud = AlicloudCloud(
            self.clock, times=AlicloudDurations(create=40.0, remove=20.0, fail=10.0, check=300.0)
        )
        self.actions = AlicloudHandlers(self.cloud)

    def call(self, action: str, version: str = NEW, /, **values: object) -> Any:
        sent = {
            name.replace("_", "."): str(value)
            for name, value in {"RegionId": REGION, **values}.items()
        }
        self.cloud.step()
        return self.actions.find(version, action)(Sent(version, sent))

    def refusal(self, action: str, version: str = NEW, /, **values: object) -> str:
        with pytest.raises(AlicloudRefusedError) as caught:
            self.call(action, version, **values)
        return caught.value.code

    def scale(
        self, group: AlicloudGroup, value: int, kind: str = "TotalCapacity", **more: object
    ) -> Any:
        return self.call(
            "ScaleWithAdjustment",
            ScalingGroupId=group.id,
            AdjustmentType=kind,
            AdjustmentValue=value,
            **{"SyncActivity": True, **more},
        )

    def scale_refusal(
        self, group: AlicloudGroup, value: object, kind: str = "TotalCapacity", **more: object
    ) -> str:
        return self.refusal(
            "ScaleWithAdjustment",
            ScalingGroupId=group.id,
            AdjustmentType=kind,
            AdjustmentValue=value,
            **{"SyncActivity": True, **more},
        )

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cloud.step()


@pytest.fixture
def bed() -> AliEmulatorFixture:
    return AliEmulatorFixture()


def test_ess_emulator_clamps_values_beyond_the_bounds_silently(bed: AliEmulatorFixture) -> None:
    group = bed.cloud.add_group("g", size=2, least=1, most=4, desired=False)
    assert "ScalingActivityId" in bed.scale(group, 100, "QuantityChangeInCapacity")
    bed.after(40.0)
    assert group.total == 4
    assert bed.scale_refusal(group, 1, "QuantityChangeInCapacity") == "IncorrectCapacity.MaxSize"
    assert bed.scale_refusal(group, 4) == "IncorrectCapacity.NoChange"
    bed.scale(group, 0)
    bed.after(20.0)
    assert group.total == 1
    assert bed.scale_refusal(group, 0) == "IncorrectCapacity.MinSize"


def test_ess_emulator_lower_absolute_number_removes_only_unprotected_machines(
    bed: AliEmulatorFixture,
) -> None:
    """An absolute size below the current number removes machines; this is why
    upstream's count is dangerous."""
    group = bed.cloud.add_group("g", size=3, desired=False)
    first, second, third = group.machines
    bed.cloud.set_state(first, "Protected")
    bed.scale(group, 1)
    bed.after(20.0)
    assert list(group.machines) == [first]
    assert {each.machine.id for each in bed.cloud.released} == {second, third}


def test_ess_emulator_client_token_identifies_one_order(bed: AliEmulatorFixture) -> None:
    group = bed.cloud.add_group("g")
    first = bed.scale(group, 2, ClientToken="t")
    bed.after(40.0)
    assert bed.scale(group, 2, ClientToken="t") == first
    assert len(group.activities) == 1
    assert bed.scale_refusal(group, 3, ClientToken="t") == "IdempotentParameterMismatch"
    assert bed.scale_refusal(group, 3, ClientToken="t" * 65) == "InvalidParameter"
    assert bed.scale_refusal(group, 3, ClientToken="t\u00e9") == "InvalidParameter"


def test_ess_emulator_accepts_a_refused_token_again(bed: AliEmulatorFixture) -> None:
    group = bed.cloud.add_group("g")
    bed.scale(group, 1)
    assert bed.scale_refusal(group, 2, ClientToken="t") == "ScalingActivityInProgress"
    bed.after(40.0)
    assert "ScalingActivityId" in bed.scale(group, 2, ClientToken="t")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TotalCapacity", -1),
        ("TotalCapacity", 2001),
        ("QuantityChangeInCapacity", 1001),
        ("Nonsense", 1),
        ("TotalCapacity", "many"),
    ],
)
def test_ess_emulator_refuses_numbers_out_of_range(
    bed: AliEmulatorFixture, kind: str, value: object
) -> None:
    assert bed.scale_refusal(bed.cloud.add_group("g", most=2000), value, kind) == "InvalidParameter"


def test_ess_emulator_plan_only_request_changes_nothing(bed: AliEmulatorFixture) -> None:
    group = bed.cloud.add_group("g")
    assert "PlanResult" in bed.scale(group, 3, ExecutionMode="PlanOnly")
    assert (group.desired, group.activities) == (0, [])


@pytest.mark.parametrize("state", ["Inactive", "Deleting", "suspended"])
def test_ess_emulator_disabled_group_refuses_orders(bed: AliEmulatorFixture, state: str) -> None:
    group = bed.cloud.add_group("g", size=1)
    if state == "suspended":
        group.system_suspended = True
    else:
        group.state = state
    assert bed.scale_refusal(group, 2) == "IncorrectScalingGroupStatus"
    assert (
        bed.refusal(
            "RemoveInstances", ScalingGroupId=group.id, InstanceIds_1=next(iter(group.machines))
        )
        == "IncorrectScalingGroupStatus"
    )


def test_ess_emulator_suspended_process_rejects_the_activity_not_the_call(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=1)
    group.suspended.add("ScaleOut")
    made = bed.scale(group, 2)
    found = bed.call("DescribeScalingActivities", ScalingActivityIds_1=made["ScalingActivityId"])[
        "ScalingActivities"
    ]
    assert [each["StatusCode"] for each in found] == ["Rejected"]
    assert group.total == 1


def test_ess_emulator_manually_attached_instances_are_only_detached(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=0, desired=False)
    (attached,) = bed.cloud.add_machines(group.id, 1, creation="Attached")
    bed.call("RemoveInstances", ScalingGroupId=group.id, InstanceIds_1=attached)
    bed.after(20.0)
    assert [(each.machine.id, each.kept) for each in bed.cloud.released] == [(attached, True)]


def test_ess_emulator_economical_mode_keeps_stopped_machines_uncounted(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=2, desired=False)
    first = next(iter(group.machines))
    bed.call(
        "RemoveInstances", ScalingGroupId=group.id, InstanceIds_1=first, RemovePolicy="recycle"
    )
    bed.after(20.0)
    assert group.machines[first].state == "Stopped"
    reported = bed.call("DescribeScalingGroups", ScalingGroupIds_1=group.id)["ScalingGroups"][0]
    assert (
        reported["TotalCapacity"],
        reported["TotalInstanceCount"],
        reported["StoppedCapacity"],
    ) == (1, 2, 1)


def test_ess_emulator_one_invalid_instance_rejects_all_unless_ignored(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=3)
    first, second, _ = group.machines
    bed.cloud.set_state(second, "Protected")
    ids = {"InstanceIds_1": first, "InstanceIds_2": second, "InstanceIds_3": "i-unknown"}
    assert (
        bed.refusal("RemoveInstances", ScalingGroupId=group.id, **ids) == "IncorrectInstanceStatus"
    )
    made = bed.call("RemoveInstances", ScalingGroupId=group.id, IgnoreInvalidInstance="true", **ids)
    assert [each["Code"] for each in made["IgnoredInstances"]] == [
        "IncorrectInstanceStatus",
        "InvalidInstanceId.NotFound",
    ]
    bed.after(20.0)
    assert (group.activities[-1].status, group.desired) == ("Warning", 2)


def test_ess_emulator_replaces_removals_that_keep_the_desired_number(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=2)
    bed.call(
        "RemoveInstances",
        ScalingGroupId=group.id,
        InstanceIds_1=next(iter(group.machines)),
        DecreaseDesiredCapacity="false",
    )
    bed.after(20.0)
    assert (group.desired, group.total) == (2, 1)
    bed.after(300.0 + 40.0)
    assert group.total == 2


@pytest.mark.parametrize(
    ("action", "most"),
    [
        ("DescribeScalingGroups", 50),
        ("DescribeScalingConfigurations", 50),
        ("DescribeScalingInstances", 100),
    ],
)
def test_ess_emulator_limits_page_sizes(bed: AliEmulatorFixture, action: str, most: int) -> None:
    assert bed.call(action, PageSize=most)["PageSize"] == most
    assert bed.call(action)["PageSize"] == 10
    for size in (0, most + 1):
        assert bed.refusal(action, PageSize=size) == "InvalidParameter"
    assert bed.refusal(action, PageNumber=0) == "InvalidParameter"


def test_ess_emulator_limits_id_counts_and_names_them_per_api_version(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=3)
    many = {f"ScalingGroupIds_{number}": "asg-x" for number in range(1, 22)}
    assert bed.refusal("DescribeScalingGroups", **many) == "InvalidParameter"
    bed.cloud.add_group("other")
    assert bed.call("DescribeScalingGroups", OLD, ScalingGroupId_1=group.id)["TotalCount"] == 1
    assert bed.call("DescribeScalingInstances", OLD, ScalingGroupId=group.id)["TotalCount"] == 3
    assert bed.refusal("DescribeScalingInstances", OLD, PageSize=51) == "InvalidParameter"


def test_ess_emulator_knows_no_other_region_or_api(bed: AliEmulatorFixture) -> None:
    bed.cloud.add_group("g", size=1)
    assert bed.call("DescribeScalingGroups", RegionId="cn-beijing")["TotalCount"] == 0
    assert bed.refusal("DescribeScalingGroups", "2014-05-26") == "InvalidAction.NotFound"
    assert bed.refusal("DescribeScalingGroups", RegionId="") == "MissingRegionId"


def test_ess_emulator_instance_lists_lag_but_activities_do_not(bed: AliEmulatorFixture) -> None:
    group = bed.cloud.add_group("g", desired=False)
    bed.cloud.lag = 10.0
    bed.cloud.step()
    made = bed.scale(group, 2, "QuantityChangeInCapacity")
    seen = []
    for _ in range(4):
        seen.append(bed.call("DescribeScalingInstances", ScalingGroupId=group.id)["TotalCount"])
        assert (
            bed.call("DescribeScalingActivities", ScalingActivityIds_1=made["ScalingActivityId"])[
                "TotalCount"
            ]
            == 1
        )
        bed.after(5.0)
    assert seen == [0, 0, 2, 2]


def test_ess_emulator_removal_of_absent_instances_is_refused_or_ignored(
    bed: AliEmulatorFixture,
) -> None:
    group = bed.cloud.add_group("g", size=1)
    nothing = {
        "ScalingGroupId": group.id,
        "InstanceIds_1": "i-unknown",
        "IgnoreInvalidInstance": "true",
    }
    assert bed.refusal("RemoveInstances", **nothing) == "InvalidInstanceId.NotFound"
    bed.cloud.takes_empty_removals = True
    made = bed.call("RemoveInstances", **nothing)
    assert [each["InstanceId"] for each in made["IgnoredInstances"]] == ["i-unknown"]
    bed.after(20.0)
    assert (group.total, group.desired, group.activities[-1].status) == (1, 1, "Warning")


def test_ess_emulator_throttled_calls_state_when_to_retry() -> None:
    clock = ManualClock(START)
    throttle = AlicloudDispatcher(AlicloudCloud(clock)).throttle
    throttle.limits["A"] = (2, 10.0)
    throttle.count("A")
    clock.advance(4.0)
    throttle.count("A")
    throttle.count("B")
    with pytest.raises(VendorRefusedError) as caught:
        throttle.count("A")
    assert (caught.value.code, caught.value.status, caught.value.retry_after) == (
        "Throttling.User",
        400,
        6000,
    )
    clock.advance(6.0)
    throttle.count("A")


def test_ess_emulator_bounds_session_lengths_and_serves_metadata_both_ways() -> None:
    front = AlicloudDispatcher(AlicloudCloud(ManualClock(START)))
    front.ring.roles["acs:ram::1:role/r"] = Role("acs:ram::1:role/r", frozenset({"provider"}))
    front.ring.identities["provider"] = {"token"}
    front.metadata.role = "acs:ram::1:role/r"

    def sts(seconds: str, token: str = "token") -> dict[str, Any]:
        query = (
            "/?Action=AssumeRoleWithOIDC&Version=2015-04-01&RoleSessionName=s&RoleArn=acs:ram::1:"
            "role/r"
            f"&OIDCProviderArn=provider&OIDCToken={token}&DurationSeconds={seconds}"
        )
        made: dict[str, Any] = json.loads(front.handle(Incoming("POST", query, {})).body)
        return made

    assert sts("900")["Credentials"]["Expiration"] == "2027-01-15T08:15:00Z"
    assert sts("899")["Code"] == sts("3601")["Code"] == "InvalidParameter.DurationSeconds"
    assert sts("900", "abc")["Code"] == "InvalidParameter.OIDCToken"
    for spelling in ("ram", "Ram"):
        path = f"/latest/meta-data/{spelling}/security-credentials/"
        assert front.handle(Incoming("GET", path, {})).body == b"r\n"
        assert json.loads(front.handle(Incoming("GET", f"{path}r", {})).body)["Code"] == "Success"
    assert front.handle(Incoming("GET", "/latest/meta-data/region-id", {})).body == REGION.encode()
    front.metadata.hardened = True
    assert front.handle(Incoming("GET", "/latest/meta-data/region-id", {})).status == 403


def test_ess_emulator_refuses_unsigned_calls_in_the_vendor_format() -> None:
    answer = AlicloudDispatcher(AlicloudCloud(ManualClock(START))).handle(
        Incoming("POST", "/?Action=DescribeScalingGroups&Version=2022-02-22", {"host": "ess.local"})
    )
    body = json.loads(answer.body)
    assert (answer.status, body["Code"], body["HostId"]) == (
        400,
        "IncompleteSignature",
        "ess.local",
    )
    assert {"RequestId", "Message", "Recommend"} <= body.keys()


@pytest.mark.parametrize(
    ("size", "code"),
    [(6, "InvalidParameter"), ("x", "InvalidParameter"), ("", "MissingDesiredCapacity")],
)
def test_ess_emulator_refuses_a_desired_number_outside_the_bounds(size: object, code: str) -> None:
    bed = AliEmulatorFixture()
    group = bed.cloud.add_group("g", size=1, most=5)
    assert bed.refusal("ModifyScalingGroup", ScalingGroupId=group.id, DesiredCapacity=size) == code
    without = bed.cloud.add_group("without", size=1, most=5, desired=False)
    assert (
        bed.refusal("ModifyScalingGroup", ScalingGroupId=without.id, DesiredCapacity=2)
        == "InvalidParameter"
    )
    assert (group.desired, without.desired) == (1, None)
