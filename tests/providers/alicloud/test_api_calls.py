"""Rules common to all calls: error handling, attempts, and rate limits."""

from __future__ import annotations

import json
import re

import pytest

from chalicelib.model.node import Node
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.node_groups import observe
from chalicelib.providers.alicloud.settings import read_settings
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    Throttled,
    Transient,
    Unauthorized,
)
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import (
    GROUP,
    KEY_ID,
    KEY_SECRET,
    EmulatedEss,
    action,
    answering,
    groups_page,
    ids_in,
    instances_page,
    refusal,
)
from tests.providers.emulated import RecordedLimits


def grow(api: AlicloudApi) -> str:
    return api.scale(
        GROUP, "TotalCapacity", 5, token="ca-1", at_once=True, metadata={"b": "1", "a": "2"}
    ).scaling_activity_id


def test_alicloud_rpc_busy_group_is_reported_at_once_and_not_retried() -> None:
    ess = answering(refusal("ScalingActivityInProgress"))
    with pytest.raises(Conflict) as raised:
        grow(ess.api())
    assert raised.value.code == "ScalingActivityInProgress"
    assert raised.value.request_id == "r-1"
    assert len(ess.server.requests) == 1


def test_alicloud_rpc_throttling_pauses_all_callers_for_the_vendors_time() -> None:
    limits = RecordedLimits()
    ess = answering(
        refusal("Throttling.User", headers={"x-acs-retry-after": "1500"}), groups_page(GROUP)
    )
    assert ess.api(limits=limits).groups([GROUP])
    assert ess.slept() == 1.5
    [(key, seconds)] = limits.pauses
    assert seconds == 1.5
    assert key.endswith("/cn-hangzhou/ess")


def test_alicloud_rpc_long_pause_is_raised_to_the_caller() -> None:
    limits = RecordedLimits()
    ess = answering(refusal("Throttling.User", headers={"x-acs-retry-after": "7000"}))
    with pytest.raises(Throttled) as raised:
        ess.api(limits=limits).groups([GROUP])
    assert raised.value.retry_after == 7.0
    assert ess.slept() == 0.0
    assert limits.pauses[0][1] == 7.0


@each_row("code", ["Throttling", "InternalError", "ServiceUnavailable"])
def test_alicloud_rpc_temporary_error_is_tried_three_times(code: str) -> None:
    ess = answering(lambda _: refusal(code))
    with pytest.raises((Throttled, Transient)):
        ess.api().groups([GROUP])
    assert len(ess.server.requests) == 3


@each_row("code", ["InvalidTimeStamp.Expired", "SignatureNonceUsed"])
def test_alicloud_rpc_refused_time_or_nonce_is_signed_again_once(code: str) -> None:
    ess = answering(refusal(code), groups_page(GROUP))
    assert ess.api().groups([GROUP])
    first, second = ess.server.requests
    assert first.headers["x-acs-signature-nonce"] != second.headers["x-acs-signature-nonce"]
    ess = answering(lambda _: refusal(code))
    with pytest.raises(Unauthorized):
        ess.api().groups([GROUP])
    assert len(ess.server.requests) == 2


def test_alicloud_rpc_error_body_with_a_success_status_is_an_error() -> None:
    ess = answering(refusal("InvalidScalingGroupId.NotFound", 200))
    with pytest.raises(NotFound):
        grow(ess.api())


def test_alicloud_rpc_error_hides_the_key_even_if_the_vendor_shows_it() -> None:
    echo = f"key {KEY_ID} with {KEY_SECRET} is wrong"
    ess = answering(refusal("Forbidden.RAM", 403, echo))
    with pytest.raises(Unauthorized) as raised:
        ess.api().groups([GROUP])
    shown = json.dumps([str(raised.value), repr(raised.value), raised.value.message])
    assert KEY_ID not in shown
    assert KEY_SECRET not in shown
    assert "DescribeScalingGroups" in shown
    assert "***" in shown


def test_alicloud_rpc_unreachable_host_is_temporary_and_names_the_call() -> None:
    with pytest.raises(Transient, match="DescribeScalingGroups"):
        EmulatedEss(0).api(credentialsSecret="key", essEndpoint="http://127.0.0.1:9").groups(
            [GROUP]
        )


# -- our own rate limit


def test_alicloud_rpc_quiet_pass_books_its_calls_once() -> None:
    ids = [f"asg-{number}" for number in range(14)]

    def answer(request: Incoming) -> Answer:
        if action(request) == "DescribeScalingInstances":
            return instances_page(range(1), 1)
        return groups_page(*ids_in(request, "ScalingGroupIds"))

    limits = RecordedLimits()
    ess = answering(answer)
    api = ess.api(limits=limits)
    observe(
        api,
        read_settings(
            {
                "region": "cn-hangzhou",
                "credentialsSecret": "key",
                "nodes": "\n".join(f"0:5:{each}" for each in ids),
            }
        ),
        (),
    )
    assert len(ess.server.requests) == 15
    assert [calls for _, calls in limits.granted] == [15]
    [pace] = limits.limits
    assert (pace.rate, pace.burst) == (10.0, 200)
    assert KEY_ID not in pace.key
    assert re.fullmatch(r"alicloud/[0-9a-f]{12}/cn-hangzhou/ess", pace.key)


def test_alicloud_rpc_short_wait_is_slept_and_long_wait_is_raised() -> None:
    ess = answering(lambda _: groups_page(GROUP))
    api = ess.api(limits=RecordedLimits([3.0, 0.5]))
    assert api.groups([GROUP])
    assert ess.slept() == 0.5
    ess = EmulatedEss(0)
    with pytest.raises(Throttled) as raised:
        ess.api(limits=RecordedLimits([3.0, 2.5])).groups([GROUP])
    assert raised.value.retry_after == 2.5
    assert ess.server.requests == []


def test_alicloud_rpc_waiting_is_bounded_over_the_whole_pass() -> None:
    ess = EmulatedEss(0)
    with pytest.raises(Throttled):
        ess.api(limits=RecordedLimits([1.5] * 5)).groups([GROUP])
    assert ess.server.requests == []
    assert ess.slept() == 1.5


def test_alicloud_rpc_booking_is_void_after_throttling() -> None:
    limits = RecordedLimits()
    named = refusal("Throttling", headers={"x-acs-retry-after": "500"})
    ess = answering(named, groups_page(GROUP), groups_page(GROUP))
    api = ess.api(limits=limits)
    api.groups([GROUP])
    api.groups([GROUP])
    assert [calls for _, calls in limits.granted] == [10, 10]


def test_alicloud_rpc_throttling_without_a_time_pauses_all_callers() -> None:
    limits = RecordedLimits()
    ess = answering(refusal("Throttling"), groups_page(GROUP))
    ess.api(limits=limits).groups([GROUP])
    assert limits.pauses == []
    for reply in (
        refusal("Throttling"),
        scripted(429, "slow down", {"Content-Type": "text/plain"}),
    ):
        limits = RecordedLimits()
        ess = answering(*[reply] * 3)
        with pytest.raises(Throttled):
            ess.api(limits=limits).groups([GROUP])
        assert [seconds for _, seconds in limits.pauses] == [5.0]


def test_alicloud_rpc_standard_retry_after_is_honoured() -> None:
    limits = RecordedLimits()
    ess = answering(scripted(429, "slow down", {"Content-Type": "text/plain", "Retry-After": "7"}))
    with pytest.raises(Throttled) as raised:
        ess.api(limits=limits).groups([GROUP])
    assert raised.value.retry_after == 7.0
    assert [seconds for _, seconds in limits.pauses] == [7.0]


def test_alicloud_rpc_calls_of_a_large_group_are_booked_at_once() -> None:
    """The number of the cluster's nodes gives the number of pages in advance."""

    def answer(request: Incoming) -> Answer:
        if action(request) == "DescribeScalingInstances":
            first = 50 * (int(request.parameters()["PageNumber"]) - 1)
            return instances_page(range(first, first + 50), 1000)
        return scripted(
            200,
            {"TotalCount": 1, "ScalingGroups": [{"ScalingGroupId": GROUP, "TotalCapacity": 1000}]},
        )

    limits = RecordedLimits()
    nodes = [
        Node(f"n-{number}", {}, {}, provider_id=f"cn-hangzhou.i-{number:04d}")
        for number in range(1000)
    ]
    ess = answering(answer)
    settings = read_settings(
        {"region": "cn-hangzhou", "credentialsSecret": "key", "nodes": f"0:5:{GROUP}"}
    )
    observe(ess.api(limits=limits), settings, nodes)
    assert len(ess.server.requests) == 1 + 20
    assert [calls for _, calls in limits.granted] == [1 + 1 + 20]


# -- writes


def test_alicloud_api_resize_sends_a_token_and_metadata() -> None:
    ess = answering(scripted(200, {"ScalingActivityId": "asa-1"}))
    assert grow(ess.api()) == "asa-1"
    query = ess.server.requests[0].parameters()
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
        "IgnoredInstances": [
            {"InstanceId": "i-2", "Code": "InvalidInstanceId.NotFound", "Message": "gone"}
        ],
    }
    ess = answering(scripted(200, body))
    accepted = ess.api().remove(GROUP, ["i-1", "i-2"], token="ca-1")
    query = ess.server.requests[0].parameters()
    assert (query["InstanceIds.1"], query["InstanceIds.2"], query["IgnoreInvalidInstance"]) == (
        "i-1",
        "i-2",
        "true",
    )
    assert query["DecreaseDesiredCapacity"] == "true"
    assert [each.instance_id for each in accepted.ignored_instances or ()] == ["i-2"]


@each_row("lost", [NO_ANSWER, scripted(200, {"ScalingActivityId": "asa-1"}, cut=4), scripted(500)])
def test_alicloud_api_lost_answer_is_retried_with_the_same_token(lost: Answer) -> None:
    ess = answering(lost, scripted(200, {"ScalingActivityId": "asa-1"}))
    assert grow(ess.api()) == "asa-1"
    first, second = ess.server.requests
    assert first.parameters() == second.parameters()
    assert first.headers["x-acs-signature-nonce"] != second.headers["x-acs-signature-nonce"]
    assert first.headers["authorization"] != second.headers["authorization"]


@each_row("token", ["", "x" * 65, "é", "a\n"])
def test_alicloud_api_token_that_the_vendor_would_truncate_is_never_sent(token: str) -> None:
    ess = EmulatedEss(0)
    with pytest.raises(InvalidRequest):
        ess.api().remove(GROUP, ["i-1"], token=token)
    assert ess.server.requests == []


@each_row("count", [0, 21])
def test_alicloud_api_more_instances_than_one_call_allows_are_not_sent(count: int) -> None:
    ess = EmulatedEss(0)
    with pytest.raises(InvalidRequest):
        ess.api().remove(GROUP, [f"i-{number}" for number in range(count)], token="t")
    assert ess.server.requests == []
