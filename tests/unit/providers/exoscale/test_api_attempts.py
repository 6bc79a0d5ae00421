"""Rules common to all calls: attempts, rate limits, the key."""

from __future__ import annotations

import json

import pytest

from chalicelib.model.secret import SecretUnavailable
from chalicelib.providers.errors import (
    Conflict,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from tests.cases import each_row
from tests.unit.providers.exoscale.scripted_api import (
    API_KEY,
    API_SECRET,
    CALLS,
    CHANGES,
    KEY,
    READS,
    Books,
    HttpScript,
    Reply,
    ScriptedApiClock,
    ScriptedApiSecrets,
    api_for,
    call,
    said,
)


@each_row("name", [*READS, "scale_pool", "scale_nodepool"])
def test_exoscale_api_reads_and_absolute_sizes_are_tried_three_times(name: str) -> None:
    with HttpScript([said(503, "busy"), said(500), said(200, CALLS[name][2])]) as server:
        assert call(name, server.url)
    assert len(server.requests) == 3


@each_row("name", ["evict_pool", "evict_nodepool"])
@each_row("reply", [said(503, "busy"), Reply(hang_up=True), Reply(200, b'{"id": "x"}', cut=3)])
def test_exoscale_api_eviction_is_sent_once(name: str, reply: Reply) -> None:
    with HttpScript([reply] * 3) as server, pytest.raises(Transient):
        call(name, server.url)
    assert len(server.requests) == 1


@each_row("name", CHANGES)
def test_exoscale_api_busy_pool_is_reported_at_once(name: str) -> None:
    with HttpScript([said(409, {"message": "Operation in progress"})]) as server, pytest.raises(Conflict) as raised:
        call(name, server.url)
    assert raised.value.message.endswith("HTTP 409: Operation in progress")
    assert len(server.requests) == 1


def test_exoscale_api_throttling_pauses_all_callers_for_the_vendors_time() -> None:
    clock, books = ScriptedApiClock(), Books()
    with HttpScript([said(429, {"message": "slow"}, {"Retry-After": "2"}), said(200, {})]) as server:
        assert api_for(server.url, clock=clock, pacer=books).pools() == ()
    assert clock.slept == 2.0
    with (
        HttpScript([said(429, {"message": "slow"}, {"Retry-After": "7"})]) as server,
        pytest.raises(Throttled) as reported,
    ):
        api_for(server.url, clock=clock, pacer=books).pools()
    assert reported.value.retry_after == 7.0
    assert books.held[-1][1] == 7.0


def test_exoscale_api_unreachable_host_is_temporary_and_names_the_call() -> None:
    with pytest.raises(Transient, match="/v2/instance-pool"):
        api_for("http://127.0.0.1:9").pools()


# -- the key


@each_row("status", [401, 403])
def test_exoscale_api_refused_key_is_reported_once_without_the_key(status: int) -> None:
    echo = f"key {API_KEY} with {API_SECRET} is refused"
    secrets = ScriptedApiSecrets(key=KEY)
    with HttpScript([said(status, {"message": echo})] * 2) as server, pytest.raises(Unauthorized) as raised:
        api_for(server.url, read_secret=secrets).pools()
    assert len(server.requests) == 1
    assert secrets.looks == 1
    shown = json.dumps([str(raised.value), repr(raised.value), raised.value.code])
    assert API_KEY not in shown
    assert API_SECRET not in shown
    assert "***" in shown
    assert is_forbidden(raised.value) is (status == 403)


def test_exoscale_api_replaced_key_is_read_once_more() -> None:
    secrets = ScriptedApiSecrets(key=KEY)
    secrets.now["key"] = json.dumps({"apiKey": "EXO-EXAMPLE-NEW", "apiSecret": "example-new"})
    with HttpScript([said(401, {"message": "expired"}), said(200, {}), said(401)]) as server:
        api = api_for(server.url, read_secret=secrets)
        assert api.pools() == ()
        with pytest.raises(Unauthorized):
            api.pools()
    first, second, third = (seen.credential for seen in server.requests)
    assert first != second
    assert second != ""
    assert third != first
    assert secrets.looks == 1


def test_exoscale_api_unusable_secret_is_an_error_of_the_call() -> None:
    with HttpScript([]) as server:
        with pytest.raises(Unauthorized, match="secret key: apiSecret is missing"):
            api_for(server.url, read_secret=lambda _: '{"apiKey": "EXO-EXAMPLE"}').pools()

        def gone(name: str) -> str:
            raise SecretUnavailable(f"secret {name} cannot be read")

        with pytest.raises(Transient, match="cannot be read"):
            api_for(server.url, read_secret=gone).pools()
    assert server.requests == []


def test_exoscale_api_rate_limit_key_is_per_key_and_zone_and_shows_no_secret() -> None:
    books = Books()
    with HttpScript([said(200, {})] * 6) as server:
        api = api_for(server.url, pacer=books, callsPerSecond="2.5")
        api.expect(40)
        for _ in range(6):
            api.pools()
    assert [calls for _, calls in books.taken] == [40]
    [pace] = books.paces
    assert pace.rate == 2.5
    assert pace.key.startswith("exoscale/")
    assert pace.key.endswith("/ch-gva-2/api")
    assert API_KEY not in pace.key
