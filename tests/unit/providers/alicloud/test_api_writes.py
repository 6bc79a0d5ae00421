"""Tests of the API requests that change a scaling group."""

from __future__ import annotations

import pytest

from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.errors import (
    InvalidRequest,
)
from tests.cases import each_row
from tests.unit.providers.alicloud.scripted_api import (
    GROUP,
    HttpScript,
    Reply,
    api_for,
)

# -- writes


def grow(api: AlicloudApi) -> str:
    return api.scale(
        GROUP, "TotalCapacity", 5, token="ca-1", at_once=True, metadata={"b": "1", "a": "2"}
    ).scaling_activity_id


def test_alicloud_api_resize_sends_a_token_and_metadata() -> None:
    with HttpScript([Reply(200, {"ScalingActivityId": "asa-1"})]) as server:
        assert grow(api_for(server.url)) == "asa-1"
    query = server.requests[0].query
    assert query == {
        "RegionId": "cn-hangzhou",
        "ScalingGroupId": GROUP,
        "AdjustmentType": "TotalCapacity",
        "AdjustmentValue": "5",
        "SyncActivity": "true",
        "ClientToken": "ca-1",
        "ActivityMetadata": '{"a":"2","b":"1"}',
    }


def test_alicloud_api_removes_instances_by_id_and_reports_ignored_ones() -> None:
    body = {
        "RequestId": "r",
        "ScalingActivityId": "asa-1",
        "IgnoredInstances": [{"InstanceId": "i-2", "Code": "InvalidInstanceId.NotFound", "Message": "gone"}],
    }
    with HttpScript([Reply(200, body)]) as server:
        accepted = api_for(server.url).remove(GROUP, ["i-1", "i-2"], token="ca-1")
    query = server.requests[0].query
    assert (query["InstanceIds.1"], query["InstanceIds.2"], query["IgnoreInvalidInstance"]) == ("i-1", "i-2", "true")
    assert query["DecreaseDesiredCapacity"] == "true"
    assert [each.instance_id for each in accepted.ignored_instances or ()] == ["i-2"]


@each_row("lost", [Reply(hang_up=True), Reply(200, {"ScalingActivityId": "asa-1"}, cut=4), Reply(500)])
def test_alicloud_api_lost_answer_is_retried_with_the_same_token(lost: Reply) -> None:
    with HttpScript([lost, Reply(200, {"ScalingActivityId": "asa-1"})]) as server:
        assert grow(api_for(server.url)) == "asa-1"
    first, second = server.requests
    assert first.query == second.query
    assert first.headers["x-acs-signature-nonce"] != second.headers["x-acs-signature-nonce"]
    assert first.credential != second.credential


@each_row("token", ["", "x" * 65, "é", "a\n"])
def test_alicloud_api_token_that_the_vendor_would_truncate_is_never_sent(token: str) -> None:
    with HttpScript() as server, pytest.raises(InvalidRequest):
        api_for(server.url).remove(GROUP, ["i-1"], token=token)
    assert server.requests == []


@each_row("count", [0, 21])
def test_alicloud_api_more_instances_than_one_call_allows_are_not_sent(count: int) -> None:
    with HttpScript() as server, pytest.raises(InvalidRequest):
        api_for(server.url).remove(GROUP, [f"i-{number}" for number in range(count)], token="t")
    assert server.requests == []
