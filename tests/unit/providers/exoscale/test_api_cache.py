"""Cached reads: the quota and the instance types."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from chalicelib.providers.errors import (
    ProviderError,
    Transient,
    Unknown,
)
from chalicelib.providers.exoscale.decoding import Quota
from tests.cases import each_row
from tests.unit.providers.exoscale.scripted_api import (
    MEDIUM,
    TYPE,
    Board,
    HttpScript,
    Reply,
    ScriptedApiClock,
    api_for,
    said,
)

QUOTA = {"resource": "instance", "usage": 4, "limit": 20}


def test_exoscale_quota_is_cached_for_five_minutes_and_fresh_where_needed() -> None:
    clock, board = ScriptedApiClock(), Board()
    with HttpScript([said(200, {**QUOTA, "usage": number}) for number in range(4, 9)]) as server:

        def quota() -> Quota:
            return api_for(server.url, clock=clock, cache=board).quota()

        assert quota() == quota() == Quota("instance", 4, 20)
        clock.now += 299.0
        assert quota().usage == 4
        clock.now += 2.0
        assert quota().usage == 5
        assert api_for(server.url, clock=clock, cache=board).quota_now().usage == 6
        assert quota().usage == 6
        clock.now -= 3600.0
        assert quota().usage == 7
    assert len(server.requests) == 4


@each_row("reply", [said(500), said(403, {"message": "no"}), said(200, {"message": "x"}), said(404)])
def test_exoscale_unreadable_quota_uses_the_last_one_for_a_day(reply: Reply) -> None:
    clock, board = ScriptedApiClock(), Board()
    with HttpScript([said(200, QUOTA), *[reply] * 20]) as server:

        def quota() -> Quota:
            return api_for(server.url, clock=clock, cache=board).quota()

        assert quota().limit == 20
        clock.now += 23 * 3600.0
        assert quota() == Quota("instance", 4, 20)
        clock.now += 2 * 3600.0
        with pytest.raises(ProviderError):
            quota()


@each_row(
    "body",
    [
        {},
        {"limit": 20},
        {"usage": 4},
        {"usage": 4, "limit": None},
        {"usage": -1, "limit": 5},
        {"usage": 4, "limit": -2},
        {"usage": "4", "limit": 20},
        {"usage": 4.5, "limit": 20},
        {"usage": 4, "limit": 10**30},
        {"usage": 1e30, "limit": 9},
    ],
)
def test_exoscale_partial_quota_is_neither_zero_nor_unlimited(body: Mapping[str, object]) -> None:
    board = Board()
    with HttpScript([said(200, body)]) as server, pytest.raises(Unknown):
        api_for(server.url, cache=board).quota()
    assert board.rows == {}


def test_exoscale_unlimited_quota_is_reported_as_such() -> None:
    with HttpScript([said(200, {"resource": "instance", "usage": 400, "limit": -1})]) as server:
        assert api_for(server.url).quota() == Quota("instance", 400, -1)


def test_exoscale_types_are_cached_for_a_day_and_unknown_ones_for_an_hour() -> None:
    clock, board = ScriptedApiClock(), Board()
    other = TYPE.replace("b6", "c7")
    replies = {TYPE: said(200, MEDIUM), other: said(404, {"message": "no"})}
    with HttpScript(lambda seen: replies[seen.path.rpartition("/")[2]]) as server:

        def types() -> list[bool]:
            found = api_for(server.url, clock=clock, cache=board).instance_types([TYPE, other, TYPE])
            return [found[each] is not None for each in (TYPE, other)]

        assert types() == types() == [True, False]
        assert len(server.requests) == 2
        clock.now += 3601.0
        assert types() == [True, False]
        assert len(server.requests) == 3
        clock.now += 86400.0
        assert types() == [True, False]
    assert len(server.requests) == 5


def test_exoscale_types_read_before_an_error_are_cached_and_malformed_are_absent() -> None:
    board = Board()
    odd, dead = TYPE.replace("b6", "c7"), TYPE.replace("b6", "d8")
    replies = {TYPE: said(200, MEDIUM), odd: said(200, {"id": odd, "memory": "much"}), dead: said(503)}
    with HttpScript(lambda seen: replies[seen.path.rpartition("/")[2]]) as server:
        assert api_for(server.url, cache=board).instance_types([TYPE, odd]).keys() == {TYPE}
        with pytest.raises(Transient):
            api_for(server.url, cache=board).instance_types([TYPE, dead])
        replies[odd] = said(200, {**MEDIUM, "id": odd, "memory": 10**30})
        assert api_for(server.url, cache=board).instance_types([TYPE, odd]).keys() == {TYPE}
        before = len(server.requests)
        assert api_for(server.url, cache=board).instance_types([TYPE]).keys() == {TYPE}
        assert len(server.requests) == before
