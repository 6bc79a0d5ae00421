"""Access keys from a secret and temporary keys of an agency: read, renewed, never shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import Secret, SecretUnavailable
from chalicelib.model.timestamps import format_time
from chalicelib.policy.vendors.huaweicloud import Agency
from chalicelib.providers.credential_source import SecretSource
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.huaweicloud.credentials import Assumed, CceCredential, Sessions, parse_secret
from tests.cases import each_row
from tests.unit.providers.huaweicloud.scripted_api import (
    ACCESS_KEY,
    KEY,
    PROJECT,
    SECRET_KEY,
    Board,
    HttpScript,
    Reply,
    ScriptedApiClock,
    ScriptedApiSecrets,
    api_for,
    many,
    said,
)

AGENCY = "scaler"
TOKENS = "/v3.0/OS-CREDENTIAL/securitytokens"
NONE = said(200, many())


def granted(number: int, expires: float) -> Reply:
    return said(
        201,
        {
            "credential": {
                "access": f"HSTEXAMPLE{number}",
                "secret": f"example-session-secret-{number}",
                "securitytoken": f"example-token-{number}",
                "expires_at": format_time(expires),
            }
        },
    )


def refused(code: str = "APIGW.0301") -> Reply:
    return said(401, {"error_code": code, "error_msg": f"AK {ACCESS_KEY} with {SECRET_KEY} is refused"})


# -- the secret


@each_row(
    "text",
    [
        KEY,
        f'\ufeff{{"access-key": "{ACCESS_KEY}", "secret-key": "{SECRET_KEY}\\n"}}',
        f'{{"ACCESS_KEY": " {ACCESS_KEY} ", "SECRET_KEY": "{SECRET_KEY}", "securityToken": null}}',
        f"[Global]\naccess-key={ACCESS_KEY}\nsecret-key={SECRET_KEY}\n",
        f'; of upstream\n[global]\necs-endpoint = "x"\naccess-key="{ACCESS_KEY}"\r\nsecret-key = {SECRET_KEY} \n#\n',
        f"accessKey={ACCESS_KEY}\nsecretKey={SECRET_KEY}",
    ],
)
def test_huawei_access_key_is_read_in_all_its_spellings(text: str) -> None:
    assert parse_secret(text, "here") == CceCredential(Secret(ACCESS_KEY), Secret(SECRET_KEY))


def test_huawei_session_token_belongs_to_a_temporary_key() -> None:
    found = parse_secret(json.dumps(json.loads(KEY) | {"securityToken": "t=="}), "here")
    assert found.token.reveal() == "t=="


@each_row(
    ("text", "problem"),
    [
        ("", "neither JSON nor lines"),
        ("hello", "neither JSON nor lines"),
        ("{", "not complete JSON"),
        ('{"accessKey": "a"}', "secretKey is missing"),
        ('{"secretKey": "hush"}', "accessKey is missing"),
        ('{"accessKey": "a", "secretKey": " "}', "secretKey is missing"),
        ('{"accessKey": 1, "secretKey": "hush"}', "not text"),
        ('{"accessKey": "a b", "secretKey": "hush"}', "special characters"),
        ('{"accessKey": "a", "access-key": "b", "secretKey": "hush"}', "given twice"),
        ('{"accessKey": "a", "secretKey": "hush", "apiKey": "hush"}', "apiKey is not known"),
        ('{"hush-hush-hush-hush": "a"}', "a field is not known"),
        ("[Other]\naccess-key=a\nsecret-key=hush", "section"),
        ("[Global]", "neither JSON nor lines"),
        ("{" * 5000, "not complete JSON"),
        ('{"accessKey": "ü"}', "special characters"),
    ],
)
def test_huawei_unusable_secret_is_refused_without_showing_it(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_secret(text, "secret key")
    assert raised.value.place == "secret key"
    assert problem in raised.value.problem
    assert "hush" not in str(raised.value)


@settings(max_examples=80, deadline=None)
@given(st.one_of(st.text(max_size=60), st.dictionaries(st.text(max_size=12), st.text(max_size=12)).map(json.dumps)))
def test_huawei_arbitrary_secret_is_refused_and_never_crashes(text: str) -> None:
    with pytest.raises(BadInput):
        parse_secret(text, "secret key")


def test_huawei_unreadable_secret_is_an_error_of_the_call() -> None:
    def gone(name: str) -> str:
        raise SecretUnavailable(f"secret {name} cannot be read")

    with HttpScript([]) as server:
        with pytest.raises(Unauthorized, match="secret key: secretKey is missing"):
            api_for(server.url, read_secret=lambda _: '{"accessKey": "a"}').pools()
        with pytest.raises(Transient, match="cannot be read"):
            api_for(server.url, read_secret=gone).pools()
        assert server.requests == []


def test_huawei_replaced_access_key_is_read_once_more() -> None:
    secrets = ScriptedApiSecrets(key=KEY)
    secrets.now["key"] = json.dumps({"accessKey": "AKIDEXAMPLE00000NEXT", "secretKey": "example-next"})
    with HttpScript([refused(), NONE, refused()]) as server:
        api = api_for(server.url, read_secret=secrets)
        assert api.pools() == ()
        with pytest.raises(Unauthorized):
            api.pools()
    assert len({seen.credential for seen in server.requests[:2]}) == 2
    assert (len(server.requests), secrets.looks) == (3, 1)


@each_row("code", ["APIGW.0301", "APIGW.0303", "CCE.01401001"])
def test_huawei_refused_access_key_is_reported_once_and_never_shown(code: str) -> None:
    with HttpScript([refused(code)] * 2) as server, pytest.raises(Unauthorized) as raised:
        api_for(server.url).pools()
    assert len(server.requests) == 1
    shown = f"{raised.value!r} {raised.value} {raised.value.code}"
    assert ACCESS_KEY not in shown
    assert SECRET_KEY not in shown
    assert raised.value.code == code


# -- an agency's keys


def test_CCE_17_token_expiring_in_five_minutes_is_renewed_before_signing() -> None:
    clock, sessions = ScriptedApiClock(), Sessions()
    with HttpScript([granted(1, clock.now + 3600), NONE, NONE, granted(2, clock.now + 7200), NONE]) as server:

        def ask() -> None:
            api = api_for(server.url, clock=clock, sessions=sessions, agencyName=AGENCY, agencyDomain="Ops")
            assert api.pools() == ()

        ask()
        clock.now += 3600 - 660  # eleven minutes are left
        ask()
        clock.now += 360  # five minutes are left
        ask()
    assert [seen.path == TOKENS for seen in server.requests] == [True, False, False, True, False]
    assert [
        seen.headers.get("X-Security-Token", seen.headers.get("x-security-token", "")) for seen in server.requests
    ] == ["", "example-token-1", "example-token-1", "", "example-token-2"]


def test_CCE_17_token_is_also_renewed_between_two_attempts_of_one_call() -> None:
    class Dozing(ScriptedApiClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 3100)

    clock = Dozing()
    with HttpScript([granted(1, clock.now + 3600), said(503), granted(2, clock.now + 9000), NONE]) as server:
        assert api_for(server.url, clock=clock, agencyName=AGENCY, agencyDomain="Ops").pools() == ()
    assert [seen.path == TOKENS for seen in server.requests] == [True, False, True, False]


def test_huawei_iam_request_for_temporary_keys() -> None:
    clock = ScriptedApiClock()
    with HttpScript([granted(1, clock.now + 900), NONE]) as server:
        api_for(server.url, clock=clock, agencyDuration="900", agencyName=AGENCY, agencyDomain="Ops").pools()
    asked = server.requests[0]
    assert (asked.method, asked.path, asked.query) == ("POST", TOKENS, {})
    assert asked.json() == {
        "auth": {
            "identity": {
                "methods": ["assume_role"],
                "assume_role": {"domain_name": "Ops", "agency_name": "scaler", "duration_seconds": 900},
            }
        }
    }
    assert "x-project-id" not in {name.lower() for name in asked.headers}


@each_row(
    ("answer", "cls", "match"),
    [
        (
            said(403, {"error": {"code": 403, "message": "no", "title": "Forbidden"}}),
            Unauthorized,
            "agency scaler of Ops",
        ),
        (said(404, {"error": {"code": 404, "message": "no agency", "title": "Not Found"}}), Unauthorized, "no agency"),
        (said(400, {"error_code": "IAM.0011", "error_msg": "bad"}), Unauthorized, "IAM.0011"),
        (said(200, {"credential": {"access": "a"}}), Unauthorized, "holds no credentials"),
        (said(200, {}), Unauthorized, "holds no credentials"),
        (said(200, []), Unauthorized, "not an object"),
        (said(200, {"credential": {"access": "a", "secret": "b", "securitytoken": "c\nd"}}), Unauthorized, "holds no"),
    ],
)
def test_huawei_iam_refusal_needs_an_operator(answer: Reply, cls: type[ProviderError], match: str) -> None:
    with HttpScript([answer] * 4) as server, pytest.raises(cls, match=match):
        api_for(server.url, agencyName=AGENCY, agencyDomain="Ops").pool("7d48eca7-3419-11ea-bc29-0255ac1001a8")
    assert {seen.path for seen in server.requests} == {TOKENS}


@each_row("answer", [said(503), said(200, b"<html>", {"Content-Type": "text/html"}), said(200, b'{"c')])
def test_huawei_iam_without_an_answer_is_temporary(answer: Reply) -> None:
    with HttpScript([answer] * 3) as server, pytest.raises(Transient):
        api_for(server.url, agencyName=AGENCY, agencyDomain="Ops").pools()


def test_huawei_refused_agency_keys_are_requested_once_more() -> None:
    clock, sessions = ScriptedApiClock(), Sessions()
    with HttpScript([granted(1, clock.now + 3600), refused(), granted(2, clock.now + 3600), NONE, refused()]) as server:
        api = api_for(server.url, clock=clock, sessions=sessions, agencyName=AGENCY, agencyDomain="Ops")
        assert api.pools() == ()
        with pytest.raises(Unauthorized) as raised:
            api.pools()
    assert len(server.requests) == 5
    assert "example" not in str(raised.value)


def test_huawei_replaced_permanent_key_is_read_again_for_iam() -> None:
    clock, secrets = ScriptedApiClock(), ScriptedApiSecrets(key=KEY)
    secrets.now["key"] = json.dumps({"accessKey": "AKIDEXAMPLE00000NEXT", "secretKey": "example-next"})
    with HttpScript([refused(), granted(1, clock.now + 3600), NONE, NONE]) as server:
        api = api_for(server.url, clock=clock, read_secret=secrets, agencyName=AGENCY, agencyDomain="Ops")
        assert (api.pools(), api.pools()) == ((), ())
    assert (len(server.requests), secrets.looks) == (4, 1)


# -- sessions of a process


def made(number: int, obtained: float, expires: float) -> CceCredential:
    return CceCredential(Secret(f"k{number}"), Secret(f"s{number}"), Secret(f"t{number}"), obtained, expires)


def failing(error: Exception) -> Callable[[], CceCredential]:
    def make() -> CceCredential:
        raise error

    return make


@each_row("error", [Transient("no answer"), Throttled("later"), Unauthorized("no")])
def test_huawei_old_temporary_keys_are_used_while_iam_gives_none(error: ProviderError) -> None:
    sessions, first = Sessions(), made(1, 0.0, 3600.0)
    assert sessions.get("a", 0.0, lambda: first) is first
    assert sessions.get("a", 3300.0, failing(error)) is first
    assert sessions.get("a", 3320.0, failing(AssertionError("asked too soon"))) is first
    assert sessions.get("a", 3530.0, failing(error)) is first
    with pytest.raises(type(error)):
        sessions.get("a", 3560.0, failing(error))


def test_huawei_short_lived_keys_do_not_cause_an_iam_call_for_each_call() -> None:
    sessions, first = Sessions(), made(1, 1000.0, 1001.0)
    sessions.get("a", 1000.0, lambda: first)
    assert sessions.get("a", 1059.0, failing(AssertionError("asked again"))) is first
    second = made(2, 1060.0, 1061.0)
    assert sessions.get("a", 1060.0, lambda: second) is second


def test_huawei_clock_that_goes_back_keeps_no_session_alive() -> None:
    sessions, first, second = Sessions(), made(1, 10_000.0, 13_600.0), made(2, 5_000.0, 8_600.0)
    sessions.get("a", 10_000.0, lambda: first)
    assert sessions.get("a", 9_950.0, failing(AssertionError("asked again"))) is first
    assert sessions.get("a", 5_000.0, lambda: second) is second


def test_huawei_refused_keys_are_dropped_unless_already_replaced() -> None:
    sessions, first, second = Sessions(), made(1, 0.0, 3600.0), made(2, 0.0, 3600.0)
    sessions.get("a", 0.0, lambda: first)
    sessions.drop("a", second)
    assert sessions.get("a", 1.0, lambda: second) is first
    sessions.drop("a", first)
    assert sessions.get("a", 1.0, lambda: second) is second


def test_huawei_sessions_are_separate_by_agency_and_key_and_bounded() -> None:
    sessions, asked = Sessions(), list[int]()

    def source(number: int, text: str = KEY, agency: str = "scaler") -> Assumed:
        def grant() -> CceCredential:
            asked.append(number)
            return made(number, 0.0, 3600.0)

        keys = SecretSource(lambda _: text, "key", parse_secret)
        return Assumed(keys, Agency(agency, "Ops"), "https://iam.example.com", grant, sessions, lambda: 0.0)

    other = json.dumps({"accessKey": "AKIDEXAMPLE00000NEXT", "secretKey": "example-next"})
    for number, each in enumerate((source(0), source(1), source(2, other), source(3, agency="x"), source(4)), 1):
        each.current()
        assert len(asked) == {1: 1, 2: 1, 3: 2, 4: 3, 5: 3}[number]
    for number in range(600):
        source(number, agency=f"a{number}").current()
    assert len(sessions._sessions) <= 256


def test_huawei_concurrent_threads_replace_refused_keys_once() -> None:
    sessions, counted = Sessions(), list[int]()

    def grant() -> CceCredential:
        counted.append(1)
        return made(len(counted), 0.0, 3600.0)

    keys = SecretSource(lambda _: KEY, "key", parse_secret)
    source = Assumed(keys, Agency("a", "b"), "https://iam.example.com", grant, sessions, lambda: 0.0)
    old, said_by = source.current(), list[bool]()
    threads = [threading.Thread(target=lambda: said_by.append(source.renewed(old))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said_by == [True] * 8
    assert len(counted) == 2
    assert not source.renewed(source.current())


# -- the project


def projects(*named: dict[str, Any]) -> Reply:
    return said(200, {"projects": list(named), "links": {}})


def test_huawei_project_is_looked_up_once_a_day_by_the_regions_name() -> None:
    clock, cache = ScriptedApiClock(), Board()
    answer = projects(
        {"id": PROJECT, "name": "cn-north-4", "enabled": True},
        {"id": "f" * 32, "name": "cn-north-4_team", "enabled": True},
    )
    with HttpScript([answer, NONE, NONE, NONE]) as server:
        api = api_for(server.url, clock=clock, cache=cache, projectId="")
        api.pools()
        api.pools()
        api_for(server.url, clock=clock, cache=cache, projectId="").pools()
    first, *others = server.requests
    assert (first.path, first.query) == ("/v3/projects", {"name": "cn-north-4"})
    assert all(PROJECT in seen.path for seen in others)


@each_row(
    ("answer", "match"),
    [
        (projects(), "has no project; write its id there"),
        (projects({"id": "a" * 32, "name": "cn-north-4"}, {"id": "b" * 32, "name": "cn-north-4"}), "a{32}, b{32}"),
        (projects({"id": "../../x", "name": "cn-north-4"}), "has no project"),
        (projects({"id": PROJECT, "name": "cn-north-4", "enabled": False}), "has no project"),
        (said(200, {"projects": "none"}), "has no project"),
        (said(200, {"projects": [1, None]}), "has no project"),
    ],
)
def test_huawei_ambiguous_project_needs_an_operator(answer: Reply, match: str) -> None:
    with HttpScript([answer]) as server, pytest.raises(ProviderError, match=match) as raised:
        api_for(server.url, projectId="").pools()
    assert "providers.huaweicloud.projectId" in raised.value.message
    assert isinstance(raised.value, OutscalerError)


def test_huawei_key_without_permission_to_read_the_project_is_named() -> None:
    for status in (403, 404):
        answers = [said(status, {"error": {"code": status, "message": "no"}})] * 2
        with HttpScript(answers) as server, pytest.raises(Unauthorized, match="the project of cn-north-4"):
            api_for(server.url, projectId="").pool("7d48eca7-3419-11ea-bc29-0255ac1001a8")
