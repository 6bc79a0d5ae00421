"""The calls: pages, pace, repetition, and orders in parallel (cherryservers.md §3, §12; D7, D9, D10, D19)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.cherryservers.api import THREADS, Api
from chalicelib.providers.cherryservers.wire import Server
from chalicelib.providers.errors import (
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.means import Pace
from tests.unit.providers.cherryservers.wire_script import (
    PLAN,
    PROJECT,
    ROW,
    SERVERS,
    TAGS,
    TOKEN,
    Board,
    Books,
    Clock,
    HttpScript,
    Reply,
    Secrets,
    Seen,
    open_to,
    order,
)


def listed(*numbers: int, total: int | str | None = None) -> Reply:
    """A page of the list."""
    headers = {} if total is None else {"X-Total-Count": str(total)}
    return Reply(200, [ROW | {"id": number} for number in numbers], headers)


def ids(api: Api) -> list[int]:
    return [server.id for server in api.servers()]


def refusal(status: int, message: str = "", **headers: str) -> Reply:
    return Reply(status, {"code": status, "message": message}, {key.replace("_", "-"): headers[key] for key in headers})


def test_every_request_carries_the_token_and_what_the_vendors_clients_send() -> None:
    with HttpScript([listed(1), Reply(204), Reply(201, ROW)]) as server:
        api = open_to(server.url)
        assert ids(api) == [1]
        api.delete(1)
        api.tag(1000, TAGS)
    assert [(seen.method, seen.path) for seen in server.requests] == [
        ("GET", SERVERS), ("DELETE", "/v1/servers/1"), ("PUT", "/v1/servers/1000")]
    assert server.requests[2].json() == {"tags": TAGS}
    assert len({seen.credential for seen in server.requests} - {""}) == 1
    for seen in server.requests:
        assert seen.headers["content-type"] == "application/json"
        assert seen.headers["user-agent"].startswith("kubernetes/cluster-autoscaler/")


@pytest.mark.parametrize("replies", [
    [listed(1, 2, 3)], [listed(1, 2, 3, total=3)], [listed(1, 2, total=3), listed(3, total=3)],
    [listed(1, total=3), listed(2, total=3), listed(3, total=3)],
    [listed(1, 2, total=4), listed(2, total=4), listed(total=4), listed(1, 2, 3, total=3)],
    [listed(1, 2, total=3), listed(3, 4, total=4), listed(1, 2, 3, total=3)],
], ids=["no-header", "one-page", "two-pages", "three-pages", "moved-and-read-again", "grew-and-read-again"])
def test_CHERRY_D7_a_list_is_read_whole_by_its_total_count(replies: list[Reply]) -> None:
    with HttpScript(replies) as server:
        assert ids(open_to(server.url)) == [1, 2, 3]
    assert len(server.requests) == len(replies)


def test_the_next_page_begins_where_the_last_one_ended() -> None:
    with HttpScript([listed(1, 2, total=3), listed(3, total=3)]) as server:
        open_to(server.url).servers()
    assert [dict(seen.query) for seen in server.requests] == [{}, {"offset": "2"}]


@pytest.mark.parametrize("reply", [
    listed(1, 2, total=3), listed(total=2), listed(1, total="many"), listed(1, total=""), listed(1, total="-1"),
    listed(1, 1, total=2),
], ids=["ignores-offsets", "empty", "no-number", "no-digit", "negative", "twice-the-same"])
def test_a_short_list_is_an_error_and_never_a_size(reply: Reply) -> None:
    with HttpScript(lambda _: reply) as server, pytest.raises(Transient):
        open_to(server.url).servers()


def test_an_empty_project_has_no_servers() -> None:
    with HttpScript([Reply(200, [], {"X-Total-Count": "0"})]) as server:
        assert open_to(server.url).servers() == ()


def test_CHERRY_10_a_list_that_is_throttled_is_asked_again_once_after_the_two_seconds() -> None:
    clock = Clock()
    with HttpScript([refusal(429, "Too many requests", Retry_After="2"), listed(1)]) as server:
        assert ids(open_to(server.url, clock=clock)) == [1]
    assert clock.slept == 2.0
    assert len(server.requests) == 2


@pytest.mark.parametrize("reply", [refusal(500), refusal(503), Reply(200, b'[{"id"', cut=3), Reply(hang_up=True)],
                         ids=["500", "503", "cut", "hang-up"])
def test_CHERRY_D7_what_fails_for_a_moment_is_read_again_and_bought_or_deleted_once(reply: Reply) -> None:
    with HttpScript([reply, reply, listed(1)]) as server:
        assert ids(open_to(server.url)) == [1]
    for change in CHANGES:
        with HttpScript(lambda _: reply) as server:
            assert change(open_to(server.url)) is Transient
        assert len(server.requests) == 1


def raised(call: Callable[[], object]) -> type[Exception]:
    with pytest.raises(ProviderError) as error:
        call()
    return error.type


CHANGES: list[Callable[[Api], type[Exception]]] = [
    lambda api: type(api.create([order()])[0]),  # type: ignore[list-item,return-value]
    lambda api: raised(lambda: api.delete(1000)),
    lambda api: raised(lambda: api.tag(1000, TAGS)),
]


def test_CHERRY_10_an_order_that_is_throttled_is_reported_and_everybody_pauses() -> None:
    books, clock = Books(), Clock()
    with HttpScript([refusal(429, "Too many requests", Retry_After="2")]) as server:
        [error] = open_to(server.url, pacer=books, clock=clock).create([order()])
    assert isinstance(error, Throttled)
    assert error.retry_after == 2.0
    assert len(server.requests) == 1
    assert clock.slept == 0.0
    assert [seconds for _, seconds in books.held] == [2.0]


def test_CHERRY_D9_a_deletion_needs_no_content_type() -> None:
    for headers in ({}, {"Content-Type": ""}, {"Content-Type": "text/plain"}):
        with HttpScript([Reply(204, b"", headers)]) as server:
            open_to(server.url).delete(1000)


@pytest.mark.parametrize("body", [{"code": 400, "message": "the server is locked"}, {"error": "locked"},
                                  {"errors": ["locked"]}], ids=str)
def test_a_deletion_that_is_refused_in_so_many_words_is_none_whatever_its_status(body: dict[str, object]) -> None:
    """A server that was noted as deleted does not count for an hour."""
    with HttpScript([Reply(200, body)]) as server, pytest.raises(Unknown, match="body is an error"):
        open_to(server.url).delete(1000)


def test_a_deletion_that_is_answered_with_the_server_is_one() -> None:
    for reply in (Reply(200, ROW), Reply(202, b"accepted"), Reply(200, [])):
        with HttpScript([reply]) as server:
            open_to(server.url).delete(1000)


def test_a_server_that_is_gone_is_not_found_and_a_foreign_one_is_refused() -> None:
    replies = [refusal(404, "Server not found"), refusal(404, "region limit"), refusal(403, "Not yours")]
    with HttpScript(replies) as server:
        api = open_to(server.url)
        with pytest.raises(NotFound):
            api.server(1000)
        with pytest.raises(NotFound):
            api.delete(1000)
        with pytest.raises(Unauthorized):
            api.server(1000)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_token_does_not_follow_a_redirect(status: int) -> None:
    reply = Reply(status, b"", {"Location": "http://127.0.0.1:9/"})
    with HttpScript([reply]) as server, pytest.raises(Unknown) as told:
        open_to(server.url).servers()
    assert "elsewhere" in str(told.value)
    assert len(server.requests) == 1


def test_CHERRY_D10_the_token_is_in_no_error_whatever_the_vendor_echoes() -> None:
    texts = []
    for reply in (refusal(401, f"bad key {TOKEN}"), refusal(400, f"Authorization: Bearer {TOKEN}"),
                  Reply(400, f"plain {TOKEN}"), Reply(500, {"errors": [TOKEN]}), Reply(404, {"error": TOKEN})):
        with HttpScript([reply] * 9) as server:
            api = open_to(server.url)
            calls: list[Callable[[], object]] = [api.servers, partial(api.delete, 1)]
            for call in calls:
                with pytest.raises(ProviderError) as told:
                    call()
                texts += [str(told.value), repr(told.value), repr(told.value.__dict__), repr(api.__dict__)]
            texts.append(repr(api.create([order()])))
    assert texts
    assert not [text for text in texts if TOKEN in text]


def test_a_token_that_was_replaced_is_looked_up_once_more() -> None:
    secrets = Secrets(token="OLD-EXAMPLE")
    secrets.now["token"] = json.dumps({"authtoken": TOKEN})
    with HttpScript([refusal(401), listed(1), refusal(401)]) as server:
        api = open_to(server.url, read_secret=secrets)
        assert ids(api) == [1]
        with pytest.raises(Unauthorized):
            api.servers()
    assert secrets.looks == 1
    assert len(server.requests) == 3
    assert len({seen.credential for seen in server.requests}) == 2


def test_CHERRY_D7_calls_keep_even_distances_whatever_is_to_come() -> None:
    books = Books()
    with HttpScript([listed(1), Reply(204)]) as server:
        api = open_to(server.url, pacer=books)
        api.expect(30)
        api.servers()
        api.delete(1)
    [pace] = books.paces
    assert (pace.rate, pace.burst) == (4.0, 1)
    assert [calls for _, calls in books.taken] == [1, 1]
    assert pace.key.startswith("cherryservers/")
    assert TOKEN not in pace.key


def test_CHERRY_D19_a_second_template_within_the_hour_makes_no_call() -> None:
    shelf, clock = Board(), Clock()
    with HttpScript(lambda _: Reply(200, PLAN)) as server:
        for _ in range(3):
            plan = open_to(server.url, shelf=shelf, clock=clock).plan("amd-ryzen-9950x")
            assert plan is not None
            assert plan.specs.memory.total == 192
            clock.now += 1100
        assert len(server.requests) == 1
        clock.now += 400
        open_to(server.url, shelf=shelf, clock=clock).plan("amd-ryzen-9950x")
        assert [seen.path for seen in server.requests] == ["/v1/plans/amd-ryzen-9950x"] * 2


def test_CHERRY_11_stock_is_asked_now_and_kept_for_the_next_template() -> None:
    stock = [4, 1]

    def answer(_: Seen) -> Reply:
        return Reply(200, PLAN | {"available_regions": [{"slug": "LT-Siauliai", "stock_qty": stock.pop(0)}]})

    with HttpScript(answer) as server:
        api = open_to(server.url)
        found = [api.plan("amd-ryzen-9950x", fresh=fresh) for fresh in (False, False, True, False)]
    assert [plan.available_regions[0].stock_qty for plan in found if plan is not None] == [4, 4, 1, 1]


def test_CHERRY_15_an_unknown_plan_is_none_and_not_asked_for_again_at_once() -> None:
    with HttpScript([refusal(404, "Plan not found")]) as server:
        api = open_to(server.url)
        assert api.plan("wibble/../x y") is None
        assert api.plan("wibble/../x y") is None
        assert api.plan("..") is None
        assert api.plan("") is None
    assert [seen.path for seen in server.requests] == ["/v1/plans/wibble%2F..%2Fx%20y"]


@pytest.mark.parametrize("reply", [refusal(403), Reply(200, {}), Reply(200, [PLAN]), Reply(200, b"<html>")], ids=str)
def test_a_plan_that_cannot_be_read_is_no_unknown_plan(reply: Reply) -> None:
    with HttpScript(lambda _: reply) as server, pytest.raises(ProviderError):
        open_to(server.url).plan("amd-ryzen-9950x")


def names(answers: tuple[object, ...]) -> list[str]:
    return [each.hostname if isinstance(each, Server) else type(each).__name__ for each in answers]


def made(seen: Seen) -> Reply:
    return Reply(201, {**json.loads(seen.body), "id": 1000, "status": "deploying", "plan": {}, "region": {}})


def test_orders_are_sent_in_parallel_and_answered_in_their_order() -> None:
    """The vendor answers the first order only when another has come."""
    free = threading.Event()

    def answer(seen: Seen) -> Reply:
        first = json.loads(seen.body)["hostname"].endswith("0")
        if not first:
            free.set()
        return Reply(**{**made(seen).__dict__, "held": free if first else None})

    bodies = [order(number) for number in range(6)]
    with HttpScript(answer) as server:
        answers = open_to(server.url).create(bodies)
    assert names(answers) == [body.hostname for body in bodies]
    assert {seen.path for seen in server.requests} == {SERVERS}
    assert sorted(seen.body for seen in server.requests) == sorted(body.body() for body in bodies)


def test_a_turn_is_taken_only_when_there_is_a_line_to_use_it() -> None:
    """Turns that were saved up while all lines were busy would let orders out faster than four a second. Here no order
    is answered before as many as there are lines have come."""
    full, arrived = threading.Event(), list[str]()

    class Watch(Books):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def take(self, pace: Pace, calls: int) -> float:
            self.seen.append(len(arrived))
            return super().take(pace, calls)

    def answer(seen: Seen) -> Reply:
        arrived.append(seen.path)
        if len(arrived) == THREADS:
            full.set()
        return Reply(**{**made(seen).__dict__, "held": full})

    watch = Watch()
    with HttpScript(answer) as server:
        open_to(server.url, pacer=watch).create([order(number) for number in range(THREADS + 2)])
    assert watch.seen[THREADS] == THREADS


def test_an_order_that_fails_stops_no_other() -> None:
    def answer(seen: Seen) -> Reply:
        return {"1": refusal(400, "Plan is out of stock"), "2": Reply(hang_up=True),
                "3": Reply(201, b'{"id"', cut=2), "4": Reply(201, {}), "5": refusal(400, "Bad hostname")}.get(
            json.loads(seen.body)["hostname"][-1], made(seen))

    with HttpScript(answer) as server:
        answers = open_to(server.url).create([order(number) for number in range(7)])
    assert [type(each) for each in answers] == [
        Server, OutOfStock, Transient, Transient, Transient, InvalidRequest, Server]
    assert len(server.requests) == 7


@pytest.mark.parametrize(("status", "error"), [(401, Unauthorized), (403, Unauthorized), (429, Throttled)])
def test_nothing_more_is_ordered_once_the_vendor_refuses_us(status: int, error: type[Exception]) -> None:
    with HttpScript(lambda _: refusal(status)) as server:
        answers = open_to(server.url).create([order(number) for number in range(12)])
    assert len(answers) == 12
    assert 1 <= len(server.requests) <= THREADS
    assert sum(isinstance(each, error) for each in answers) == len(server.requests)
    assert answers[THREADS:] == (None,) * 8


def test_orders_wait_for_their_turn_and_say_where_it_is_too_far_off() -> None:
    books, clock = Books([0.0, 0.25, 0.0, 99.0, 99.0]), Clock()
    with HttpScript(made) as server:
        first, second, refused, last = open_to(server.url, pacer=books, clock=clock).create(
            [order(number) for number in range(4)])
    assert names((first, second)) == [order(0).hostname, order(1).hostname]
    assert isinstance(refused, Throttled)
    assert (refused.code, last, clock.slept) == ("OwnPace", None, 0.25)
    assert books.held == [], "our own pace is no pause that the vendor asked for"
    assert len(server.requests) == 2


def test_without_a_token_nothing_is_sent() -> None:
    def unreadable(_: str) -> str:
        raise OutscalerError("the secret cannot be read now")

    with HttpScript() as server:
        for secrets, error in ((unreadable, Transient), (Secrets(token=" "), Unauthorized)):
            api = open_to(server.url, read_secret=secrets)
            answers = api.create([order(0), order(1)])
            assert (type(answers[0]), answers[1]) == (error, None)
            with pytest.raises(error):
                api.servers()
    assert server.requests == []


def test_no_order_is_no_call() -> None:
    with HttpScript() as server:
        assert open_to(server.url).create([]) == ()
    assert open_to(server.url).project == PROJECT
