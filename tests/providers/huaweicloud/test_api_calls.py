"""Rules common to all calls, and the three dangerous calls."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import chalicelib.providers.huaweicloud as package
from chalicelib.providers.huaweicloud.api import CceApi, delete_call, scale_call
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Transient,
)
from infra.emulators.huaweicloud.account import PROJECT
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, scripted
from tests.cases import each_row
from tests.providers.emulated import RecordedLimits
from tests.providers.huaweicloud.emulated import AZ1 as AZ
from tests.providers.huaweicloud.emulated import CLUSTER, EmulatedCce, refusal, script
from tests.providers.huaweicloud.test_decoding import (
    C7,
    CCE_NODE,
    JOB,
    NODE,
    NODE_POOL,
    POOL,
    many,
)

PACKAGE = Path(package.__file__).parent
BASE = f"/api/v3/projects/{PROJECT}/clusters/{CLUSTER}"
PAGE = scripted(502, b"<html><title>502 Bad Gateway</title></html>", {"Content-Type": "text/html"})
ECS_JOB, SERVER = "ff80808288d41e1b018990260955686a", "e5000000-0000-11ee-8b5e-000000000001"
LOCKED = refusal(429, "CCE.01429002", "locked by another request")

# Each call: its request line, the call itself, and an answer.
CALLS: dict[str, tuple[str, Callable[[CceApi], object], object]] = {
    "pools": (f"GET {BASE}/nodepools", lambda api: api.pools(), many(NODE_POOL)),
    "pool": (f"GET {BASE}/nodepools/{POOL}", lambda api: api.pool(POOL), NODE_POOL),
    "nodes": (f"GET {BASE}/nodes", lambda api: api.nodes(), many(CCE_NODE)),
    "node": (f"GET {BASE}/nodes/{NODE}", lambda api: api.node(NODE), CCE_NODE),
    "job": (
        f"GET /api/v3/projects/{PROJECT}/jobs/{JOB}",
        lambda api: api.job(JOB),
        {
            "kind": "Job",
            "metadata": {"uid": JOB},
            "spec": {"type": "DeleteNode"},
            "status": {"phase": "Running"},
        },
    ),
    "phase": (
        f"GET {BASE}",
        lambda api: api.cluster_phase(),
        {"kind": "Cluster", "status": {"phase": "Available"}},
    ),
    "addons": (
        "GET /api/v3/addons",
        lambda api: api.addons(),
        many(
            {
                "spec": {
                    "addonTemplateName": "autoscaler",
                    "values": {"custom": {"scaleDownEnabled": True}},
                },
                "status": {"status": "running"},
            }
        ),
    ),
    "flavors": (
        f"GET /v1/{PROJECT}/cloudservers/flavors",
        lambda api: api.flavors(AZ),
        {"flavors": [C7]},
    ),
    "scale": (
        f"POST {BASE}/nodepools/{POOL}/operation/scale",
        lambda api: api.scale(POOL, 3, "default"),
        b"",
    ),
    "server job": (
        f"GET /v1/{PROJECT}/jobs/{ECS_JOB}",
        lambda api: api.server_job(ECS_JOB),
        {"job_id": ECS_JOB, "job_type": "rebootServer", "status": "RUNNING"},
    ),
    "restart": (
        f"POST /v1/{PROJECT}/cloudservers/action",
        lambda api: api.restart_server(SERVER, "op"),
        {"job_id": ECS_JOB},
    ),
    "delete": (f"DELETE {BASE}/nodes/{NODE}", lambda api: api.delete_node(NODE), CCE_NODE),
}
READS = [name for name, (line, _, _) in CALLS.items() if line.startswith("GET")]
CHANGES = [name for name in CALLS if name not in READS]


@each_row("name", list(CALLS))
def test_huawei_api_each_call_equals_the_documented_request(name: str) -> None:
    line, ask, reply = CALLS[name]
    cce = script(scripted(200, reply))
    ask(cce.api())
    (request,) = cce.server.requests
    assert f"{request.method} {request.path}" == line
    assert request.headers["x-project-id"] == PROJECT
    assert request.headers["content-type"] == "application/json"


# -- attempts


@each_row("name", READS)
def test_CCE_20_reads_are_tried_three_times(name: str) -> None:
    _, ask, reply = CALLS[name]
    cce = script(PAGE, scripted(500), scripted(200, reply))
    assert ask(cce.api())
    assert len(cce.server.requests) == 3
    assert all(request.headers["authorization"] for request in cce.server.requests)


@each_row("name", CHANGES)
@each_row(
    "answer",
    [
        PAGE,
        scripted(503, "busy"),
        NO_ANSWER,
        scripted(500),
        scripted(200, b"<html>", {"Content-Type": "text/html"}),
    ],
)
def test_CCE_18_change_is_sent_once_and_its_result_is_unknown_on_error(
    name: str, answer: Answer
) -> None:
    cce = script(*[answer] * 3)
    with pytest.raises(Transient):
        CALLS[name][1](cce.api())
    assert len(cce.server.requests) == 1


@each_row("name", CHANGES)
@each_row(
    ("answer", "expected"),
    [
        (LOCKED, Conflict),
        (refusal(409, "CCE.01409002", "stale"), Conflict),
        (refusal(429, "CCE.02429001", "slow", Retry_After="1"), Throttled),
        (refusal(400, "CCE.01400009", "cpu"), QuotaExceeded),
        (refusal(400, "CCE.01400021", "none"), OutOfStock),
        (scripted(302, b"", {"Location": "https://example.com"}), ProviderError),
    ],
)
def test_CCE_20_refused_change_is_reported_at_once(
    name: str, answer: Answer, expected: type[ProviderError]
) -> None:
    cce = script(answer, answer)
    with pytest.raises(expected) as raised:
        CALLS[name][1](cce.api())
    assert len(cce.server.requests) == 1
    assert cce.key.id not in str(raised.value)


def test_CCE_20_read_of_a_locked_pool_is_retried() -> None:
    assert script(LOCKED, scripted(200, NODE_POOL)).api().pool(POOL).id == POOL


def test_CCE_20_throttling_pauses_all_callers_for_the_vendors_time() -> None:
    cce, limits = EmulatedCce(), RecordedLimits()
    cce.rate_limiter = limits
    cce.server.reply("nodepools", refusal(429, "CCE.02429001", "slow", Retry_After="2"))
    assert cce.api().pools() == ()
    assert cce.slept() == 2.0
    cce.server.reply("nodepools", refusal(429, "CCE.02429001", "slow", Retry_After="40"))
    with pytest.raises(Throttled) as reported:
        cce.api().pools()
    assert reported.value.retry_after == 40.0
    assert limits.pauses[-1][1] == 40.0


def test_huawei_api_unreachable_host_is_temporary_and_names_the_call() -> None:
    with pytest.raises(Transient, match="/nodepools"):
        EmulatedCce().api(cceEndpoint="http://127.0.0.1:9").pools()


def test_huawei_rate_limit_key_is_per_key_region_and_service_and_shows_no_key() -> None:
    cce, limits = EmulatedCce(), RecordedLimits()
    cce.rate_limiter = limits
    api = cce.api(callsPerSecond="4")
    api.expect(30)
    api.pools()
    api.flavors(AZ)
    (cce_key, calls), (ecs_key, _) = limits.granted
    assert re.fullmatch(r"huaweicloud/[0-9a-f]{12}/cn-north-4/cce", cce_key)
    assert ecs_key == cce_key.replace("/cce", "/ecs")
    assert calls == 30
    assert {limit.rate for limit in limits.limits} == {4.0}


def test_huawei_agency_rate_limit_belongs_to_each_key_that_assumes_it() -> None:
    cce, limits = EmulatedCce(), RecordedLimits()
    cce.rate_limiter = limits
    for _ in range(2):
        cce.provider(credential="rotated")
        cce.server.ring.add_agency("b", "a", cce.key.id)
        cce.api(agencyName="a", agencyDomain="b").pools()
    assert [call.operation for call in cce.server.log].count("assume-agency") == 2
    assert len({key for key, _ in limits.granted if key.endswith("/cce")}) == 2


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
def test_CCE_19_deletion_answered_with_200_is_a_success_whatever_the_body(
    body: object, job: str
) -> None:
    cce = script(scripted(200, body))
    assert cce.api().delete_node(NODE) == job
    assert not cce.server.requests[0].query()


@each_row(
    ("answer", "expected"),
    [
        (refusal(404, "CCE.01404001", "none"), NotFound),
        (scripted(404, b"<html>", {"Content-Type": "text/html"}), Transient),
        (scripted(404, {"error_code": "APIGW.0101", "error_msg": "no API"}), InvalidRequest),
    ],
)
def test_CCE_19_vanished_node_is_not_found_and_a_gateways_404_is_not(
    answer: Answer, expected: type[ProviderError]
) -> None:
    with pytest.raises(expected):
        script(answer).api().delete_node(NODE)


# -- the three dangerous calls


def test_CCE_DANGER_1_scale_request_has_its_total_and_one_group() -> None:
    cce = script(scripted(200), scripted(201), scripted(202, {"orderID": "x"}), scripted(200))
    api = cce.api()
    api.scale(POOL, 7, "c7-az2")
    api.scale(POOL, 1, "default")
    api.scale(POOL, 1, "default")
    api.scale(POOL, 0, "default", zero=True)
    assert [json.loads(request.body) for request in cce.server.requests] == [
        {
            "kind": "NodePool",
            "apiVersion": "v3",
            "spec": {"desiredNodeCount": total, "scaleGroups": [group]},
        }
        for total, group in ((7, "c7-az2"), (1, "default"), (1, "default"), (0, "default"))
    ]


@each_row("total", [0, -1, 10**6, None, True, False, "3", 2.0])
def test_CCE_DANGER_1_invalid_total_sends_nothing(total: object) -> None:
    cce = EmulatedCce()
    api = cce.api()
    with pytest.raises(InvalidRequest):
        api.scale(POOL, total, "default")  # type: ignore[arg-type]
    for group in ("", "a\nb", "x" * 200):
        with pytest.raises(InvalidRequest):
            api.scale(POOL, 3, group)
    assert cce.server.requests == []
    with pytest.raises(InvalidRequest):
        scale_call("https://x", {}, POOL, -1, "default", zero=True)


def test_CCE_DANGER_1_neither_total_nor_group_has_a_default() -> None:
    for function in (CceApi.scale, scale_call):
        parameters = inspect.signature(function).parameters
        assert all(
            parameters[name].default is inspect.Parameter.empty
            for name in ("pool", "total", "group")
        )


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


@each_row("malformed", ["", f"{NODE}/..", "../clusters", NODE[:-1]])
def test_CCE_DANGER_3_malformed_id_is_refused_with_its_own_code_before_a_call(
    malformed: str,
) -> None:
    cce = EmulatedCce()
    api = cce.api()
    for call in (api.pool, api.node, api.job, api.delete_node):
        with pytest.raises(InvalidRequest) as refused:
            call(malformed)
        assert refused.value.code == "Id"
    assert cce.server.requests == []


def _calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Returns every VendorRequest(method, …) in the package: module and definition, method as
    written, the expression."""
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
        (
            "a missing total",
            "'POST'",
            ["api.scale_call", "api.restart_call", "api.price_call", "credentials.granted"],
        ),
        ("an update", "'PUT'", []),
        ("a deletion", "'DELETE'", ["api.delete_call"]),
    ],
)
def test_CCE_DANGER_1_to_3_each_change_is_sent_from_one_place(
    danger: str, method: str, wanted: list[str]
) -> None:
    assert [place for place, said_method, _ in _calls() if said_method == method] == wanted, danger


def test_CCE_DANGER_1_to_3_package_has_no_other_way_to_send_requests() -> None:
    assert {(place, method) for place, method, _ in _calls()} == {
        ("api.CceApi", "'GET'"),
        ("api.scale_call", "'POST'"),
        ("api.delete_call", "'DELETE'"),
        ("api.restart_call", "'POST'"),
        ("api.price_call", "'POST'"),
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
            r"operation/scale|ignoreInitialNodeCount|desiredNodeCount\"\s*:|\"PUT\"|\"DELETE\"",
            text,
        ), name
    assert "nodepoolScaleDown" not in re.sub(
        r'""".*?"""', "", "".join(sources.values()), flags=re.DOTALL
    )
    (post,) = [
        found
        for place, method, found in _calls()
        if (place, method) == ("credentials.granted", "'POST'")
    ]
    assert "securitytokens" in ast.unparse(post)
