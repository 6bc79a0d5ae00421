"""The API calls: pages, rate limit, retries, and parallel orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.decoding import CherryServer
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from infra.emulators.cherryservers.attached_account import SECRET_NAME
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    PLAN,
    ROW,
    SERVERS,
    TAGS,
    EmulatedCloud,
    order,
    refusal,
)
from tests.providers.emulated import RecordedLimits, RotatedSecrets

TOKEN = "CHERRY-EXAMPLE-SUITE-TOKEN-0001"


def script(answers: Sequence[Answer] | Callable[[Incoming], Answer]) -> EmulatedCloud:
    """Returns a project that gives these answers first."""
    cloud = EmulatedCloud()
    if callable(answers):
        cloud.server.reply(".", answers, always=True)
    else:
        cloud.server.reply(".", *answers)
    return cloud


def listed(*numbers: int, total: int | str | None = "all") -> Answer:
    """A page of the list; total: how many there are, None where it is not stated."""
    headers = (
        {} if total is None else {"X-Total-Count": str(len(numbers) if total == "all" else total)}
    )
    return scripted(200, [ROW | {"id": number} for number in numbers], headers)


def ids(api: CherryApi) -> list[int]:
    return [server.id for server in api.servers()]


def test_cherry_api_requests_carry_the_token_and_the_vendor_clients_headers() -> None:
    cloud = script([listed(1), scripted(204), scripted(201, ROW)])
    api = cloud.api()
    assert ids(api) == [1]
    api.delete(1)
    api.tag(1000, TAGS)
    assert [(request.method, request.path) for request in cloud.server.requests] == [
        ("GET", SERVERS),
        ("DELETE", "/v1/servers/1"),
        ("PUT", "/v1/servers/1000"),
    ]
    assert json.loads(cloud.server.requests[2].body) == {"tags": TAGS}
    assert len({request.headers["authorization"] for request in cloud.server.requests} - {""}) == 1
    for request in cloud.server.requests:
        assert request.headers["content-type"] == "application/json"
        assert request.headers["user-agent"].startswith("kubernetes/cluster-autoscaler/")


@each_row(
    "replies",
    [
        [listed(1, 2, 3, total=None), listed(total=None)],
        [listed(1, 2, 3, total=None)] * 2,
        [listed(1, 2, total=None), listed(3, total=None), listed(total=None)],
        [listed(1, 2, 3, total=3)],
        [listed(1, 2, total=3), listed(3, total=3)],
        [listed(1, total=3), listed(2, total=3), listed(3, total=3)],
        [listed(1, 2, total=4), listed(2, total=4), listed(total=4), listed(1, 2, 3, total=3)],
        [listed(1, 2, total=3), listed(3, 4, total=4), listed(1, 2, 3, total=3)],
    ],
    ids=[
        "no-header",
        "no-header-and-no-offset",
        "no-header-and-pages",
        "one-page",
        "two-pages",
        "three-pages",
        "moved-and-read-again",
        "grew-and-read-again",
    ],
)
def test_cherry_api_list_is_read_to_its_total_count(replies: list[Answer]) -> None:
    cloud = script(replies)
    assert ids(cloud.api()) == [1, 2, 3]
    assert len(cloud.server.requests) == len(replies)


def test_cherry_api_next_page_begins_where_the_last_one_ended() -> None:
    cloud = script([listed(1, 2, total=3), listed(3, total=3)])
    cloud.api().servers()
    assert [dict(request.query()) for request in cloud.server.requests] == [{}, {"offset": "2"}]


@each_row(
    "reply",
    [
        listed(1, 2, total=3),
        listed(total=2),
        listed(1, total="many"),
        listed(1, total=" "),
        listed(1, total="-1"),
        listed(1, 1, total=2),
    ],
    ids=["ignores-offsets", "empty", "no-number", "no-digit", "negative", "twice-the-same"],
)
def test_cherry_api_short_list_is_an_error_and_never_a_size(reply: Answer) -> None:
    cloud = script(lambda _: reply)
    with pytest.raises(Transient):
        cloud.api().servers()


def test_cherry_api_empty_project_has_no_servers() -> None:
    cloud = script([scripted(200, [], {"X-Total-Count": "0"})])
    assert cloud.api().servers() == ()


def test_cherry_api_throttled_list_is_retried_once_after_two_seconds() -> None:

    cloud = script([refusal(429, "Too many requests", Retry_After="2"), listed(1)])
    assert ids(cloud.api()) == [1]
    assert cloud.slept() == 2.0
    assert len(cloud.server.requests) == 2


@each_row(
    "reply",
    [refusal(500), refusal(503), scripted(200, b'[{"id"', cut=3), NO_ANSWER],
    ids=["500", "503", "cut", "hang-up"],
)
def test_cherry_api_temporary_failure_is_retried_for_reads_and_not_for_writes(
    reply: Answer,
) -> None:
    cloud = script([reply, reply, listed(1)])
    assert ids(cloud.api()) == [1]
    for change in CHANGES:
        cloud = script(lambda _: reply)
        assert change(cloud.api()) is Transient
        assert len(cloud.server.requests) == 1


def raised(call: Callable[[], object]) -> type[Exception]:
    with pytest.raises(ProviderError) as error:
        call()
    return error.type


CHANGES: list[Callable[[CherryApi], type[Exception]]] = [
    lambda api: type(api.create([order()])[0]),  # type: ignore[list-item,return-value]
    lambda api: raised(lambda: api.delete(1000)),
    lambda api: raised(lambda: api.tag(1000, TAGS)),
]


def test_cherry_api_throttled_order_is_reported_and_all_callers_pause() -> None:
    limits = RecordedLimits()
    cloud = script([refusal(429, "Too many requests", Retry_After="2")])
    cloud._pacer = limits  # type: ignore[assignment]
    [error] = cloud.api().create([order()])
    assert isinstance(error, Throttled)
    assert error.retry_after == 2.0
    assert len(cloud.server.requests) == 1
    assert cloud.slept() == 0.0
    assert [seconds for _, seconds in limits.pauses] == [2.0]


def test_cherry_api_deletion_needs_no_content_type() -> None:
    for headers in ({}, {"Content-Type": ""}, {"Content-Type": "text/plain"}):
        cloud = script([scripted(204, b"", headers)])
        cloud.api().delete(1000)


@each_row(
    ("body", "error"),
    [
        ({"code": 400, "message": f"the server is locked {TOKEN}"}, InvalidRequest),
        ({"error": "locked"}, Unknown),
        ({"errors": ["locked"]}, Unknown),
        ({"code": 404}, NotFound),
        ({"code": 200, "error": "locked"}, Unknown),
        ({"code": 500}, Transient),
    ],
    ids=str,
)
def test_cherry_api_change_with_a_refusal_text_is_refused_whatever_its_status(
    body: dict[str, object], error: type[Exception]
) -> None:
    """A server that was recorded as deleted would not count for an hour."""
    cloud = script([scripted(200, body), scripted(201, body)])
    api = cloud.api()
    with pytest.raises(error, match="body is an error") as reported:
        api.delete(1000)
    [answer] = api.create([order()])
    assert type(answer) is error
    assert TOKEN not in f"{reported.value} {answer}"


def test_cherry_api_stock_refusal_with_a_success_status_is_out_of_stock() -> None:
    body = {"code": 400, "message": "Not enough stock for the requested plan"}
    cloud = script([scripted(200, body), scripted(201, {**ROW, **body})])
    answers = [cloud.api().create([order()])[0] for _ in range(2)]
    assert [type(each) for each in answers] == [OutOfStock, CherryServer]


def test_cherry_api_deletion_answered_with_the_server_counts_as_deleted() -> None:
    for reply in (scripted(200, ROW), scripted(202, b"accepted"), scripted(200, [])):
        cloud = script([reply])
        cloud.api().delete(1000)


def test_cherry_api_missing_server_is_not_found_and_foreign_one_is_refused() -> None:
    replies = [
        refusal(404, "Server not found"),
        refusal(404, "region limit"),
        refusal(403, "Not yours"),
    ]
    cloud = script(replies)
    api = cloud.api()
    with pytest.raises(NotFound):
        api.server(1000)
    with pytest.raises(NotFound):
        api.delete(1000)
    with pytest.raises(Unauthorized):
        api.server(1000)


@each_row("status", [301, 302, 307, 308])
def test_cherry_api_token_does_not_follow_a_redirect(status: int) -> None:
    reply = scripted(status, b"", {"Location": "http://127.0.0.1:9/"})
    cloud = script([reply])
    with pytest.raises(Unknown) as reported:
        cloud.api().servers()
    assert "another host" in str(reported.value)
    assert len(cloud.server.requests) == 1


def test_cherry_api_token_is_in_no_error_whatever_the_vendor_echoes() -> None:
    texts = []
    for reply in (
        refusal(401, f"bad key {TOKEN}"),
        refusal(400, f"Authorization: Bearer {TOKEN}"),
        scripted(400, f"plain {TOKEN}"),
        scripted(500, {"errors": [TOKEN]}),
        scripted(404, {"error": TOKEN}),
    ):
        cloud = script([reply] * 9)
        api = cloud.api()
        calls: list[Callable[[], object]] = [api.servers, partial(api.delete, 1)]
        for call in calls:
            with pytest.raises(ProviderError) as reported:
                call()
            texts += [
                str(reported.value),
                repr(reported.value),
                repr(reported.value.__dict__),
                repr(api.__dict__),
            ]
        texts.append(repr(api.create([order()])))
    assert texts
    assert not [text for text in texts if TOKEN in text]


def test_cherry_api_replaced_token_is_read_once_more() -> None:
    secrets = RotatedSecrets(**{SECRET_NAME: "OLD-EXAMPLE"})
    secrets.now[SECRET_NAME] = json.dumps({"authtoken": TOKEN})
    cloud = script([refusal(401), listed(1), refusal(401)])
    api = cloud.api(secrets)
    assert ids(api) == [1]
    with pytest.raises(Unauthorized):
        api.servers()
    assert secrets.fresh_reads == 1
    assert len(cloud.server.requests) == 3
    assert len({request.headers["authorization"] for request in cloud.server.requests}) == 2


def test_cherry_api_calls_keep_even_intervals() -> None:
    limits = RecordedLimits()
    cloud = script([listed(1), scripted(204)])
    cloud._pacer = limits  # type: ignore[assignment]
    api = cloud.api()
    api._rest.announce_calls(30)
    api.servers()
    api.delete(1)
    [limit] = limits.limits
    assert (limit.rate, limit.burst) == (4.0, 1)
    assert [calls for _, calls in limits.granted] == [1, 1]
    assert limit.key.startswith("cherryservers/")
    assert TOKEN not in limit.key


def test_cherry_api_second_template_within_an_hour_makes_no_call() -> None:
    cloud = script(lambda _: scripted(200, PLAN))
    for _ in range(3):
        plan = cloud.api().plan("amd-ryzen-9950x")
        assert plan is not None
        assert plan.specs.memory.total == 192
        cloud.settle(1100.0)
    assert len(cloud.server.requests) == 1
    cloud.settle(400.0)
    cloud.api().plan("amd-ryzen-9950x")
    assert [request.path for request in cloud.server.requests] == ["/v1/plans/amd-ryzen-9950x"] * 2


def test_cherry_api_stock_is_read_now_and_cached_for_the_next_template() -> None:
    stock = [4, 1]

    def answer(_: Incoming) -> Answer:
        return scripted(
            200, PLAN | {"available_regions": [{"slug": "LT-Siauliai", "stock_qty": stock.pop(0)}]}
        )

    cloud = script(answer)
    api = cloud.api()
    found = [api.plan("amd-ryzen-9950x", fresh=fresh) for fresh in (False, False, True, False)]
    assert [plan.available_regions[0].stock_qty for plan in found if plan is not None] == [
        4,
        4,
        1,
        1,
    ]


def test_cherry_api_unknown_plan_is_none_and_not_requested_again_at_once() -> None:
    cloud = script([refusal(404, "Plan not found")])
    api = cloud.api()
    assert api.plan("wibble/../x y") is None
    assert api.plan("wibble/../x y") is None
    assert api.plan("..") is None
    assert api.plan("") is None
    assert [request.path for request in cloud.server.requests] == ["/v1/plans/wibble%2F..%2Fx%20y"]


@each_row(
    "reply",
    [refusal(403), scripted(200, {}), scripted(200, [PLAN]), scripted(200, b"<html>")],
    ids=str,
)
def test_cherry_api_unreadable_plan_is_not_an_unknown_plan(reply: Answer) -> None:
    cloud = script(lambda _: reply)
    with pytest.raises(ProviderError):
        cloud.api().plan("amd-ryzen-9950x")
