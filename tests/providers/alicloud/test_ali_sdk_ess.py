"""The vendor's own ESS client drives the emulator, so that our client is tested with answers the
vendor's client accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.emulators.alicloud.account import REGION, AlicloudCloud
from infra.emulators.alicloud.models import NO_STOCK
from infra.emulators.alicloud.server import AlicloudServer
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.alicloud.sdk import load, wall

KEY, SECRET = "LTAI-EXAMPLE-KEY-ID", "example-key-secret-0123456789"


@pytest.fixture(scope="module")
def sdk() -> Any:
    return load("ess20220222")


class AliSdkEssFixture:
    """An account, its server, and the vendor's client for it."""

    def __init__(self, server: AlicloudServer, sdk: Any) -> None:
        self.server, self.cloud, self.sdk, self.models = server, server.cloud, sdk, sdk.models
        self.clock: Any = server.cloud.clock
        self.ess = self.client()

    def client(self, **changed: Any) -> Any:
        values = {
            "access_key_id": KEY,
            "access_key_secret": SECRET,
            "endpoint": self.server.host,
            "protocol": "http",
            "region_id": REGION,
            **changed,
        }
        return self.sdk.Client(self.sdk.Config(**values))

    def groups(self, client: Any = None, **asked: Any) -> Any:
        request = self.models.DescribeScalingGroupsRequest(region_id=REGION, **asked)
        return (client or self.ess).describe_scaling_groups(request).body

    def machines(self, group: str, **asked: Any) -> Any:
        request = self.models.DescribeScalingInstancesRequest(
            region_id=REGION, scaling_group_id=group, **asked
        )
        return self.ess.describe_scaling_instances(request).body

    def activity(self, id_: str) -> Any:
        request = self.models.DescribeScalingActivitiesRequest(
            region_id=REGION, scaling_activity_ids=[id_]
        )
        return self.ess.describe_scaling_activities(request).body.scaling_activities[0]

    def scale(self, group: str, total: int, **asked: Any) -> Any:
        request = self.models.ScaleWithAdjustmentRequest(
            scaling_group_id=group,
            adjustment_type="TotalCapacity",
            adjustment_value=total,
            **{"sync_activity": True, **asked},
        )
        return self.ess.scale_with_adjustment(request).body

    def remove(self, group: str, *ids: str, **asked: Any) -> Any:
        request = self.models.RemoveInstancesRequest(
            region_id=REGION, scaling_group_id=group, instance_ids=list(ids), **asked
        )
        return self.ess.remove_instances(request).body

    def pass_(self, seconds: float) -> None:
        self.clock.advance(seconds)


@pytest.fixture(scope="module")
def server() -> Iterator[AlicloudServer]:
    with AlicloudServer(AlicloudCloud(ManualClock(wall()))) as made:
        made.ring.add(KEY, SECRET)
        yield made


@pytest.fixture
def bed(server: AlicloudServer, sdk: Any) -> Iterator[AliSdkEssFixture]:
    server.cloud.groups.clear()
    yield AliSdkEssFixture(server, sdk)
    server.faults.clear()
    server.throttle.limits.clear()


def test_alicloud_sdk_reads_groups_by_id_with_their_capacities(bed: AliSdkEssFixture) -> None:
    wanted = bed.cloud.add_group("workers", size=3, most=20, tags={"env": "prod"})
    bed.cloud.add_group("others")
    bed.cloud.set_state(next(iter(wanted.machines)), "Protected")
    body = bed.groups(scaling_group_ids=[wanted.id, "asg-unknown"], page_size=50)
    assert body.total_count == 1
    group = body.scaling_groups[0]
    assert (group.scaling_group_id, group.min_size, group.max_size) == (wanted.id, 0, 20)
    assert (group.desired_capacity, group.total_capacity) == (3, 3)
    assert (group.active_capacity, group.protected_capacity) == (2, 1)
    assert group.enable_desired_capacity is True
    assert group.system_suspended is False
    assert [(tag.tag_key, tag.tag_value) for tag in group.tags] == [("env", "prod")]


def test_alicloud_sdk_pages_through_137_instances(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("many", size=137, most=200)
    pages = [bed.machines(group.id, page_number=number, page_size=50) for number in (1, 2, 3)]
    assert [len(page.scaling_instances) for page in pages] == [50, 50, 37]
    assert {each.instance_id for page in pages for each in page.scaling_instances} == set(
        group.machines
    )
    assert pages[0].total_count == 137
    first = pages[0].scaling_instances[0]
    assert (first.lifecycle_state, first.health_status, first.creation_type) == (
        "InService",
        "Healthy",
        "AutoCreated",
    )


def test_alicloud_sdk_scales_and_polls_the_activity_to_its_end(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("growing", size=1)
    answer = bed.scale(group.id, 3, client_token="once", activity_metadata='{"a":"b"}')
    assert (
        bed.scale(
            group.id, 3, client_token="once", activity_metadata='{"a":"b"}'
        ).scaling_activity_id
        == answer.scaling_activity_id
    )
    assert bed.activity(answer.scaling_activity_id).status_code == "InProgress"
    assert bed.groups(scaling_group_ids=[group.id]).scaling_groups[0].pending_capacity == 2
    bed.pass_(40.0)
    activity = bed.activity(answer.scaling_activity_id)
    assert (activity.status_code, activity.created_capacity) == ("Successful", 2)
    assert activity.activity_metadata == '{"a":"b"}'
    assert len(activity.created_instances) == 2
    assert bed.groups(scaling_group_ids=[group.id]).scaling_groups[0].active_capacity == 3


def test_alicloud_sdk_modifies_the_desired_number_without_a_token(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("modified", size=1)
    request = bed.models.ModifyScalingGroupRequest(scaling_group_id=group.id, desired_capacity=2)
    assert not {"ClientToken", "ActivityMetadata"} & set(request.to_map())
    assert not hasattr(request, "client_token")
    bed.ess.modify_scaling_group(request)
    bed.pass_(40.0)
    bed.groups(scaling_group_ids=[group.id])
    bed.pass_(40.0)
    assert bed.groups(scaling_group_ids=[group.id]).scaling_groups[0].active_capacity == 2


def test_alicloud_sdk_reads_a_stockout_and_a_partial_success_as_warning(
    bed: AliSdkEssFixture,
) -> None:
    group = bed.cloud.add_group("dry", size=0)
    bed.cloud.spoil(group.id, NO_STOCK, 2)
    answer = bed.scale(group.id, 4)
    bed.pass_(40.0)
    activity = bed.activity(answer.scaling_activity_id)
    assert (activity.status_code, activity.created_capacity) == ("Warning", 2)
    assert activity.error_code == "OperationDenied.NoStock"
    assert [each.code for each in activity.error_messages] == ["OperationDenied.NoStock"]
    assert bed.groups(scaling_group_ids=[group.id]).scaling_groups[0].desired_capacity == 4


def test_alicloud_sdk_removes_instances_and_reads_ignored_ones(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("shrinking", size=4, least=1)
    first, second, third, _ = group.machines
    answer = bed.remove(group.id, first, "i-unknown", ignore_invalid_instance=True)
    assert [(each.instance_id, each.code) for each in answer.ignored_instances] == [
        ("i-unknown", "InvalidInstanceId.NotFound")
    ]
    assert (
        bed.machines(group.id, lifecycle_states=["Removing"]).scaling_instances[0].instance_id
        == first
    )
    bed.pass_(20.0)
    assert bed.activity(answer.scaling_activity_id).destroyed_instances == [first]
    assert bed.groups(scaling_group_ids=[group.id]).scaling_groups[0].desired_capacity == 3
    with pytest.raises(bed.sdk.errors.ClientException) as caught:
        bed.remove(group.id, second, third, next(reversed(group.machines)))
    assert caught.value.code == "IncorrectCapacity.MinSize"


def test_alicloud_sdk_reads_a_running_activity_and_throttling_errors(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("busy", size=0)
    bed.scale(group.id, 1)
    with pytest.raises(bed.sdk.errors.ClientException) as caught:
        bed.scale(group.id, 2)
    assert caught.value.code == "ScalingActivityInProgress"
    bed.server.throttle.limits["DescribeScalingGroups"] = (1, 60.0)
    bed.groups()
    with pytest.raises(bed.sdk.errors.ThrottlingException) as throttled:
        bed.groups()
    assert throttled.value.code == "Throttling.User"
    assert 0 < throttled.value.retry_after <= 60_000


def test_alicloud_sdk_raises_its_own_errors_for_server_faults_and_wrong_secret(
    bed: AliSdkEssFixture,
) -> None:
    bed.server.faults.next(VendorFault.SERVER_ERROR)
    with pytest.raises(bed.sdk.errors.ServerException) as caught:
        bed.groups()
    assert caught.value.code == "InternalError"
    with pytest.raises(bed.sdk.errors.ClientException) as refused:
        bed.groups(bed.client(access_key_secret="another"))
    assert refused.value.code == "SignatureDoesNotMatch"


def test_alicloud_sdk_older_signature_is_accepted(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("older", size=2)
    body = bed.groups(bed.client(signature_algorithm="v2"), scaling_group_ids=[group.id])
    assert body.scaling_groups[0].total_capacity == 2
    assert "Signature" in bed.server.log[-1].parameters


def test_alicloud_sdk_reads_scaling_configurations_and_launch_templates(
    bed: AliSdkEssFixture,
) -> None:
    group = bed.cloud.add_group(
        "typed",
        types=("ecs.g7.xlarge", "ecs.g6.xlarge"),
        machine_tags={"workload": "web"},
        disk=120,
    )
    request = bed.models.DescribeScalingConfigurationsRequest(
        region_id=REGION, scaling_configuration_ids=[group.configuration]
    )
    made = bed.ess.describe_scaling_configurations(request).body.scaling_configurations[0]
    assert (made.instance_types, made.system_disk_size) == (["ecs.g7.xlarge", "ecs.g6.xlarge"], 120)
    assert [(tag.key, tag.value) for tag in made.tags] == [("workload", "web")]


def test_alicloud_sdk_reads_numbers_and_booleans_given_as_text(bed: AliSdkEssFixture) -> None:
    group = bed.cloud.add_group("textual", size=2)
    bed.server.front.text_values = True
    try:
        body = bed.groups(scaling_group_ids=[group.id])
    finally:
        bed.server.front.text_values = False
    assert int(body.scaling_groups[0].total_capacity) == 2


def test_alicloud_older_api_version_wraps_every_list(bed: AliSdkEssFixture, sdk: Any) -> None:
    group = bed.cloud.add_group("wrapped", size=1, tags={"a": "b"})
    params = sdk.utils.Params(
        action="DescribeScalingGroups",
        version="2014-08-28",
        protocol="HTTP",
        pathname="/",
        method="POST",
        auth_type="AK",
        style="RPC",
        req_body_type="formData",
        body_type="json",
    )
    request = sdk.utils.OpenApiRequest(query={"RegionId": REGION, "ScalingGroupId.1": group.id})
    body = bed.ess.call_api(params, request, sdk.runtime.RuntimeOptions())["body"]
    wrapped = body["ScalingGroups"]["ScalingGroup"]
    assert [each["ScalingGroupId"] for each in wrapped] == [group.id]
    assert wrapped[0]["Tags"] == {"Tag": [{"TagKey": "a", "TagValue": "b"}]}
    assert wrapped[0]["VSwitchIds"] == {"VSwitchId": ["vsw-cn-hangzhou-i"]}
