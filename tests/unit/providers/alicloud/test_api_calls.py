"""Rules common to all calls: error handling, attempts, and rate limits."""

from __future__ import annotations

import json
import re

import pytest

from chalicelib.model.node import Node
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.node_groups import observe
from chalicelib.providers.alicloud.settings import read_settings
from chalicelib.providers.errors import Conflict, NotFound, Throttled, Transient, Unauthorized
from tests.cases import each_row
from tests.unit.providers.alicloud.scripted_api import (
    GROUP,
    KEY_ID,
    KEY_SECRET,
    Books,
    HttpScript,
    Reply,
    ScriptedApiClock,
    Seen,
    action,
    api_for,
    groups_page,
    instances_page,
    refusal,
)


def grow(api: AlicloudApi) -> str:
    return api.scale(
        GROUP, "TotalCapacity", 5, token="ca-1", at_once=True, metadata={"b": "1", "a": "2"}
    ).scaling_activity_id


def test_alicloud_rpc_busy_group_is_reported_at_once_and_not_retried() -> None:
    with HttpScript([refusal("ScalingActivityInProgress")]) as server, pytest.raises(Conflict) as raised:
        grow(api_for(server.url))
    assert raised.value.code == "ScalingActivityInProgress"
    assert raised.value.request_id == "r-1"
    assert len(server.requests) == 1


def test_alicloud_rpc_throttling_pauses_all_callers_for_the_vendors_time() -> None:
    clock, books = ScriptedApiClock(), Books()
    with HttpScript([refusal("Throttling.User", headers={"x-acs-retry-after": "1500"}), groups_page(GROUP)]) as server:
        assert api_for(server.url, clock=clock, pacer=books).groups([GROUP])
    assert clock.slept == 1.5
    [(key, seconds)] = books.held
    assert seconds == 1.5
    assert key.endswith("/cn-hangzhou/ess")


def test_alicloud_rpc_long_pause_is_raised_to_the_caller() -> None:
    clock, books = ScriptedApiClock(), Books()
    with (
        HttpScript([refusal("Throttling.User", headers={"x-acs-retry-after": "7000"})]) as server,
        pytest.raises(Throttled) as raised,
    ):
        api_for(server.url, clock=clock, pacer=books).groups([GROUP])
    assert raised.value.retry_after == 7.0
    assert clock.slept == 0.0
    assert books.held[0][1] == 7.0


@each_row("code", ["Throttling", "InternalError", "ServiceUnavailable"])
def test_alicloud_rpc_temporary_error_is_tried_three_times(code: str) -> None:
    with HttpScript(lambda _: refusal(code)) as server, pytest.raises((Throttled, Transient)):
        api_for(server.url).groups([GROUP])
    assert len(server.requests) == 3


@each_row("code", ["InvalidTimeStamp.Expired", "SignatureNonceUsed"])
def test_alicloud_rpc_refused_time_or_nonce_is_signed_again_once(code: str) -> None:
    with HttpScript([refusal(code), groups_page(GROUP)]) as server:
        assert api_for(server.url).groups([GROUP])
    first, second = server.requests
    assert first.headers["x-acs-signature-nonce"] != second.headers["x-acs-signature-nonce"]
    with HttpScript(lambda _: refusal(code)) as server, pytest.raises(Unauthorized):
        api_for(server.url).groups([GROUP])
    assert len(server.requests) == 2


def test_alicloud_rpc_error_body_with_a_success_status_is_an_error() -> None:
    with HttpScript([refusal("InvalidScalingGroupId.NotFound", 200)]) as server, pytest.raises(NotFound):
        grow(api_for(server.url))


def test_alicloud_rpc_error_hides_the_key_even_if_the_vendor_shows_it() -> None:
    echo = f"key {KEY_ID} with {KEY_SECRET} is wrong"
    with HttpScript([refusal("Forbidden.RAM", 403, echo)]) as server, pytest.raises(Unauthorized) as raised:
        api_for(server.url).groups([GROUP])
    shown = json.dumps([str(raised.value), repr(raised.value), raised.value.message])
    assert KEY_ID not in shown
    assert KEY_SECRET not in shown
    assert "DescribeScalingGroups" in shown
    assert "***" in shown


def test_alicloud_rpc_unreachable_host_is_temporary_and_names_the_call() -> None:
    with pytest.raises(Transient, match="DescribeScalingGroups"):
        api_for("http://127.0.0.1:9").groups([GROUP])


# -- our own rate limit


def test_alicloud_rpc_quiet_pass_books_its_calls_once() -> None:
    ids = [f"asg-{number}" for number in range(14)]

    def answer(seen: Seen) -> Reply:
        if action(seen) == "DescribeScalingInstances":
            return instances_page(range(1), 1)
        return groups_page(*(value for name, value in seen.query.items() if name.startswith("ScalingGroupIds.")))

    books = Books()
    with HttpScript(answer) as server:
        api = api_for(server.url, pacer=books)
        observe(
            api,
            read_settings(
                {"region": "cn-hangzhou", "credentialsSecret": "key", "nodes": "\n".join(f"0:5:{each}" for each in ids)}
            ),
            (),
        )
    assert len(server.requests) == 15
    assert [calls for _, calls in books.taken] == [15]
    [pace] = books.paces
    assert (pace.rate, pace.burst) == (10.0, 200)
    assert KEY_ID not in pace.key
    assert re.fullmatch(r"alicloud/[0-9a-f]{12}/cn-hangzhou/ess", pace.key)


def test_alicloud_rpc_short_wait_is_slept_and_long_wait_is_raised() -> None:
    clock = ScriptedApiClock()
    with HttpScript(lambda _: groups_page(GROUP)) as server:
        api = api_for(server.url, clock=clock, pacer=Books([3.0, 0.5]))
        assert api.groups([GROUP])
        assert clock.slept == 0.5
    with HttpScript() as server, pytest.raises(Throttled) as raised:
        api_for(server.url, pacer=Books([3.0, 2.5])).groups([GROUP])
    assert raised.value.retry_after == 2.5
    assert server.requests == []


def test_alicloud_rpc_waiting_is_bounded_over_the_whole_pass() -> None:
    clock = ScriptedApiClock()
    with HttpScript() as server, pytest.raises(Throttled):
        api_for(server.url, clock=clock, pacer=Books([1.5] * 5)).groups([GROUP])
    assert server.requests == []
    assert clock.slept == 1.5


def test_alicloud_rpc_booking_is_void_after_throttling() -> None:
    books = Books()
    named = refusal("Throttling", headers={"x-acs-retry-after": "500"})
    with HttpScript([named, groups_page(GROUP), groups_page(GROUP)]) as server:
        api = api_for(server.url, pacer=books)
        api.groups([GROUP])
        api.groups([GROUP])
    assert [calls for _, calls in books.taken] == [10, 10]


def test_alicloud_rpc_throttling_without_a_time_pauses_all_callers() -> None:
    books = Books()
    with HttpScript([refusal("Throttling"), groups_page(GROUP)]) as server:
        api_for(server.url, pacer=books).groups([GROUP])
    assert books.held == []
    for reply in (refusal("Throttling"), Reply(429, "slow down", {"Content-Type": "text/plain"})):
        books = Books()
        with HttpScript([reply] * 3) as server, pytest.raises(Throttled):
            api_for(server.url, pacer=books).groups([GROUP])
        assert [seconds for _, seconds in books.held] == [5.0]


def test_alicloud_rpc_standard_retry_after_is_honoured() -> None:
    books = Books()
    with (
        HttpScript([Reply(429, "slow down", {"Content-Type": "text/plain", "Retry-After": "7"})]) as server,
        pytest.raises(Throttled) as raised,
    ):
        api_for(server.url, pacer=books).groups([GROUP])
    assert raised.value.retry_after == 7.0
    assert [seconds for _, seconds in books.held] == [7.0]


def test_alicloud_rpc_calls_of_a_large_group_are_booked_at_once() -> None:
    """The number of the cluster's nodes gives the number of pages in advance."""

    def answer(seen: Seen) -> Reply:
        if action(seen) == "DescribeScalingInstances":
            first = 50 * (int(seen.query["PageNumber"]) - 1)
            return instances_page(range(first, first + 50), 1000)
        return Reply(200, {"TotalCount": 1, "ScalingGroups": [{"ScalingGroupId": GROUP, "TotalCapacity": 1000}]})

    books = Books()
    nodes = [Node(f"n-{number}", {}, {}, provider_id=f"cn-hangzhou.i-{number:04d}") for number in range(1000)]
    with HttpScript(answer) as server:
        settings = read_settings({"region": "cn-hangzhou", "credentialsSecret": "key", "nodes": f"0:5:{GROUP}"})
        observe(api_for(server.url, pacer=books), settings, nodes)
    assert len(server.requests) == 1 + 20
    assert [calls for _, calls in books.taken] == [1 + 1 + 20]
