"""Rules common to all calls, and the three dangerous calls."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import chalicelib.providers.huaweicloud as package
from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Transient,
)
from chalicelib.providers.huaweicloud.api import CceApi, delete_call, scale_call
from tests.cases import each_row
from tests.unit.providers.huaweicloud.scripted_api import (
    ACCESS_KEY,
    AZ,
    CALLS,
    CCE_NODE,
    CHANGES,
    JOB,
    KEY,
    NODE,
    NODE_POOL,
    POOL,
    READS,
    Books,
    HttpScript,
    Reply,
    ScriptedApiClock,
    ScriptedApiSecrets,
    api_for,
    call,
    many,
    said,
)

PACKAGE = Path(package.__file__).parent
PAGE = said(502, b"<html><title>502 Bad Gateway</title></html>", {"Content-Type": "text/html"})
LOCKED = said(429, {"errorCode": "CCE.01429002", "errorMessage": "locked by another request"})


# -- attempts


@each_row("name", READS)
def test_CCE_20_reads_are_tried_three_times(name: str) -> None:
    with HttpScript([PAGE, said(500), said(200, CALLS[name][2])]) as server:
        assert call(name, server.url)
    assert len(server.requests) == 3
    assert len({seen.credential for seen in server.requests}) >= 1


@each_row("name", CHANGES)
@each_row(
    "reply",
    [
        PAGE,
        said(503, "busy"),
        Reply(hang_up=True),
        said(500, b""),
        Reply(200, b"<html>", {"Content-Type": "text/html"}),
    ],
)
def test_CCE_18_change_is_sent_once_and_its_result_is_unknown_on_error(name: str, reply: Reply) -> None:
    with HttpScript([reply] * 3) as server, pytest.raises(Transient):
        call(name, server.url)
    assert len(server.requests) == 1


@each_row("name", CHANGES)
@each_row(
    ("reply", "cls"),
    [
        (LOCKED, Conflict),
        (said(409, {"errorCode": "CCE.01409002", "errorMessage": "stale"}), Conflict),
        (said(429, {"errorCode": "CCE.02429001", "errorMessage": "slow"}, {"Retry-After": "1"}), Throttled),
        (said(400, {"errorCode": "CCE.01400009", "errorMessage": "cpu"}), QuotaExceeded),
        (said(400, {"errorCode": "CCE.01400021", "errorMessage": "none"}), OutOfStock),
        (said(302, b"", {"Location": "https://example.com"}), ProviderError),
    ],
)
def test_CCE_20_refused_change_is_reported_at_once(name: str, reply: Reply, cls: type[ProviderError]) -> None:
    with HttpScript([reply] * 2) as server, pytest.raises(cls) as raised:
        call(name, server.url)
    assert len(server.requests) == 1
    assert ACCESS_KEY not in str(raised.value)


def test_CCE_20_read_of_a_locked_pool_is_retried() -> None:
    with HttpScript([LOCKED, said(200, NODE_POOL)]) as server:
        assert api_for(server.url).pool(POOL).id == POOL


def test_CCE_20_throttling_pauses_all_callers_for_the_vendors_time() -> None:
    clock, books = ScriptedApiClock(), Books()
    slow = {"errorCode": "CCE.02429001", "errorMessage": "slow"}
    with HttpScript([said(429, slow, {"Retry-After": "2"}), said(200, many())]) as server:
        assert api_for(server.url, clock=clock, pacer=books).pools() == ()
    assert clock.slept == 2.0
    with HttpScript([said(429, slow, {"Retry-After": "40"})]) as server, pytest.raises(Throttled) as reported:
        api_for(server.url, clock=clock, pacer=books).pools()
    assert reported.value.retry_after == 40.0
    assert books.held[-1][1] == 40.0


def test_huawei_api_unreachable_host_is_temporary_and_names_the_call() -> None:
    with pytest.raises(Transient, match="/nodepools"):
        api_for("http://127.0.0.1:9").pools()


def test_huawei_rate_limit_key_is_per_key_region_and_service_and_shows_no_key() -> None:
    books = Books()
    with HttpScript([said(200, many()), said(200, {"flavors": []})]) as server:
        api = api_for(server.url, pacer=books, callsPerSecond="4")
        api.expect(30)
        api.pools()
        api.flavors(AZ)
    (cce, lot), (ecs, _) = books.taken
    assert re.fullmatch(r"huaweicloud/[0-9a-f]{12}/cn-north-4/cce", cce)
    assert ecs == cce.replace("/cce", "/ecs")
    assert lot == 30
    assert {pace.rate for pace in books.paces} == {4.0}


def test_huawei_agency_rate_limit_belongs_to_its_account_for_every_key() -> None:
    keys, other = Books(), json.dumps({"accessKey": "AKIDEXAMPLE00000NEXT", "secretKey": "example-next"})
    granted = said(201, {"credential": {"access": "HSTEXAMPLE1", "secret": "s", "securitytoken": "t"}})
    for text in (KEY, other):
        with HttpScript([granted, said(200, many())]) as server:
            api_for(
                server.url, pacer=keys, read_secret=ScriptedApiSecrets(key=text), agencyName="a", agencyDomain="b"
            ).pools()
    assert len({key for key, _ in keys.taken if key.endswith("/cce")}) == 1


# -- deletion


@each_row(
    ("body", "job"),
    [
        (CCE_NODE, JOB),
        (b"", ""),
        ({"errorCode": "Com.200", "errorMessage": ""}, ""),
        (b"not json", ""),
        ({"status": {"jobID": "../x"}}, ""),
        ({"status": {"jobID": 7}}, ""),
        ({"status": []}, ""),
        ([], ""),
    ],
)
def test_CCE_19_deletion_answered_with_200_is_a_success_whatever_the_body(body: object, job: str) -> None:
    with HttpScript([said(200, body)]) as server:
        assert api_for(server.url).delete_node(NODE) == job
    assert server.requests[0].query == {}


def test_CCE_19_vanished_node_is_not_found_and_a_gateways_404_is_not() -> None:
    gone = said(404, {"errorCode": "CCE.01404001", "errorMessage": "none"})
    with HttpScript([gone]) as server, pytest.raises(NotFound):
        api_for(server.url).delete_node(NODE)
    for reply, cls in (
        (said(404, b"<html>", {"Content-Type": "text/html"}), Transient),
        (said(404, {"error_code": "APIGW.0101", "error_msg": "no API"}), InvalidRequest),
    ):
        with HttpScript([reply]) as server, pytest.raises(cls):
            api_for(server.url).delete_node(NODE)


# -- the three dangerous calls


def test_CCE_DANGER_1_scale_request_has_its_total_and_one_group() -> None:
    with HttpScript([said(200), said(201), said(202, {"orderID": "x"}), said(200)]) as server:
        api = api_for(server.url)
        api.scale(POOL, 7, "c7-az2")
        api.scale(POOL, 1, "default")
        api.scale(POOL, 1, "default")
        api.scale(POOL, 0, "default", zero=True)
    assert [seen.json() for seen in server.requests] == [
        {"kind": "NodePool", "apiVersion": "v3", "spec": {"desiredNodeCount": total, "scaleGroups": [group]}}
        for total, group in ((7, "c7-az2"), (1, "default"), (1, "default"), (0, "default"))
    ]


@each_row("total", [0, -1, 10**6, None, True, False, "3", 2.0])
def test_CCE_DANGER_1_invalid_total_sends_nothing(total: object) -> None:
    with HttpScript([]) as server:
        api = api_for(server.url)
        with pytest.raises(InvalidRequest):
            api.scale(POOL, total, "default")  # type: ignore[arg-type]
        for group in ("", "a\nb", "x" * 200):
            with pytest.raises(InvalidRequest):
                api.scale(POOL, 3, group)
        assert server.requests == []
    with pytest.raises(InvalidRequest):
        scale_call("https://x", {}, POOL, -1, "default", zero=True)


def test_CCE_DANGER_1_neither_total_nor_group_has_a_default() -> None:
    for function in (CceApi.scale, scale_call):
        parameters = inspect.signature(function).parameters
        assert all(parameters[name].default is inspect.Parameter.empty for name in ("pool", "total", "group"))


def test_CCE_DANGER_3_deletion_is_by_id_and_without_a_query() -> None:
    made = delete_call("https://x/clusters/c", {}, NODE.upper())
    assert (made.method, made.url, made.params, made.body, made.safe) == (
        "DELETE",
        f"https://x/clusters/c/nodes/{NODE}",
        {},
        None,
        False,
    )
    assert list(inspect.signature(delete_call).parameters) == ["root", "headers", "node"]


def _calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Returns every VendorRequest(method, …) in the package: module and definition, method as written, the
    expression."""
    for file in sorted(PACKAGE.glob("*.py")):
        for definition in ast.parse(file.read_text()).body:
            place = f"{file.stem}.{getattr(definition, 'name', '')}"
            for found in ast.walk(definition):
                if (
                    isinstance(found, ast.Call)
                    and isinstance(found.func, ast.Name)
                    and found.func.id == "VendorRequest"
                ):
                    yield place, ast.unparse(found.args[0]), found


@each_row(
    ("danger", "method", "wanted"),
    [
        ("a missing total", "'POST'", ["api.scale_call", "credentials.granted"]),
        ("an update", "'PUT'", []),
        ("a deletion", "'DELETE'", ["api.delete_call"]),
    ],
)
def test_CCE_DANGER_1_to_3_each_change_is_sent_from_one_place(danger: str, method: str, wanted: list[str]) -> None:
    assert [place for place, said_method, _ in _calls() if said_method == method] == wanted, danger


def test_CCE_DANGER_1_to_3_package_has_no_other_way_to_send_requests() -> None:
    assert {(place, method) for place, method, _ in _calls()} == {
        ("api.CceApi", "'GET'"),
        ("api.scale_call", "'POST'"),
        ("api.delete_call", "'DELETE'"),
        ("credentials.Projects", "'GET'"),
        ("credentials.granted", "'POST'"),
        ("credentials.signed", "call.method"),
    }
    sources = {file.name: file.read_text() for file in PACKAGE.glob("*.py")}
    for word in (r"requests\b(?!_)", "urllib3", r"http\.client", r"\bHttp\("):
        assert [
            name
            for name, text in sources.items()
            if re.search(rf"^\s*(import|from)\s+{word}|{word}\(", text, re.MULTILINE)
        ] == [], word
    elsewhere = dict(sources)
    for function in (scale_call, delete_call):
        assert inspect.getsource(function) in sources["api.py"]
        elsewhere["api.py"] = elsewhere["api.py"].replace(inspect.getsource(function), "")
    for name, text in elsewhere.items():
        assert not re.search(
            r"operation/scale|ignoreInitialNodeCount|desiredNodeCount\"\s*:|\"PUT\"|\"DELETE\"", text
        ), name
    assert "nodepoolScaleDown" not in re.sub(r'""".*?"""', "", "".join(sources.values()), flags=re.DOTALL)
    (post,) = [found for place, method, found in _calls() if (place, method) == ("credentials.granted", "'POST'")]
    assert "securitytokens" in ast.unparse(post)
