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
from chalicelib.providers.huaweicloud.credentials import (
    Assumed,
    CceCredential,
    Sessions,
    parse_secret,
)
from chalicelib.providers.kit.credential_source import SecretSource
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient, Unauthorized
from infra.emulators.huaweicloud.account import PROJECT
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.emulated import KeptCache, RotatedSecrets
from tests.providers.huaweicloud.emulated import POOL, EmulatedCce, script
from tests.providers.huaweicloud.fixture import SECRET

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE00000TEST", "SKEXAMPLEsecretkey0123456789abcdefghijkl"
KEY = json.dumps({"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY})
NEXT = json.dumps({"accessKey": "AKIDEXAMPLE00000NEXT", "secretKey": "example-next"})
AGENCY: dict[str, Any] = {"agencyName": "scaler", "agencyDomain": "Ops"}
TOKENS = "/v3.0/OS-CREDENTIAL/securitytokens"
NONE = scripted(200, {"kind": "List", "items": []})


def granted(number: int, expires: float) -> Answer:
    return scripted(
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


def refused(code: str = "APIGW.0301") -> Answer:
    return scripted(
        401, {"error_code": code, "error_msg": f"AK {ACCESS_KEY} with {SECRET_KEY} is refused"}
    )


def replaced() -> RotatedSecrets:
    """A secret with another key by now."""
    secrets = RotatedSecrets(**{SECRET: KEY})
    secrets.now[SECRET] = NEXT
    return secrets


def asked(cce: EmulatedCce) -> list[bool]:
    """Returns for each request whether it asks IAM for temporary keys."""
    return [request.path == TOKENS for request in cce.server.requests]


# -- the secret


@each_row(
    "text",
    [
        KEY,
        f'\ufeff{{"access-key": "{ACCESS_KEY}", "secret-key": "{SECRET_KEY}\\n"}}',
        f'{{"ACCESS_KEY": " {ACCESS_KEY} ", "SECRET_KEY": "{SECRET_KEY}", "securityToken": null}}',
        f"[Global]\naccess-key={ACCESS_KEY}\nsecret-key={SECRET_KEY}\n",
        (
            f'; of upstream\n[global]\necs-endpoint = "x"\naccess-key="{ACCESS_KEY}"\r\nsecret-key '
            f"= {SECRET_KEY} \n#\n"
        ),
        f"accessKey={ACCESS_KEY}\nsecretKey={SECRET_KEY}",
    ],
)
def test_huawei_access_key_is_read_in_all_its_spellings(text: str) -> None:
    assert parse_secret(text, "here") == CceCredential(Secret(ACCESS_KEY), Secret(SECRET_KEY))


def test_huawei_quotes_around_a_value_and_nothing_else_are_left_out() -> None:
    found = parse_secret("access-key='xAKx'\nsecret-key=\"xSKx\"\nsecurity-token=x=x", "here")
    assert [each.reveal() for each in (found.key, found.secret, found.token)] == [
        "xAKx",
        "xSKx",
        "x=x",
    ]


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
@given(
    st.one_of(
        st.text(max_size=60),
        st.dictionaries(st.text(max_size=12), st.text(max_size=12)).map(json.dumps),
    )
)
def test_huawei_arbitrary_secret_is_refused_and_never_crashes(text: str) -> None:
    with pytest.raises(BadInput):
        parse_secret(text, "secret key")


def test_huawei_unreadable_secret_is_an_error_of_the_call() -> None:
    def gone(name: str) -> str:
        raise SecretUnavailable(f"secret {name} cannot be read")

    cce = EmulatedCce()
    with pytest.raises(Unauthorized, match=f"secret {SECRET}: secretKey is missing"):
        cce.api(lambda _: '{"accessKey": "a"}').pools()
    with pytest.raises(Transient, match="cannot be read"):
        cce.api(gone).pools()
    assert cce.server.requests == []


def test_huawei_replaced_access_key_is_read_once_more() -> None:
    cce, secrets = script(refused(), NONE, refused()), replaced()
    api = cce.api(secrets)
    assert api.pools() == ()
    with pytest.raises(Unauthorized):
        api.pools()
    assert (
        len(
            {
                request.headers["authorization"].partition(",")[0]
                for request in cce.server.requests[:2]
            }
        )
        == 2
    )
    assert (len(cce.server.requests), secrets.fresh_reads) == (3, 1)


@each_row("code", ["APIGW.0301", "APIGW.0303", "CCE.01401001"])
def test_huawei_refused_access_key_is_reported_once_and_never_shown(code: str) -> None:
    cce = script(*[refused(code)] * 2)
    with pytest.raises(Unauthorized) as raised:
        cce.api(RotatedSecrets(**{SECRET: KEY})).pools()
    assert len(cce.server.requests) == 1
    shown = f"{raised.value!r} {raised.value} {raised.value.code}"
    assert ACCESS_KEY not in shown
    assert SECRET_KEY not in shown
    assert raised.value.code == code


# -- an agency's keys


def test_CCE_17_token_expiring_in_five_minutes_is_renewed_before_signing() -> None:
    cce = EmulatedCce()
    now = cce.now()
    cce.server.reply(".", granted(1, now + 3600), NONE, NONE, granted(2, now + 7200), NONE)
    assert cce.api(**AGENCY).pools() == ()
    cce.clock.advance(3600 - 660)  # eleven minutes are left
    assert cce.api(**AGENCY).pools() == ()
    cce.clock.advance(360)  # five minutes are left
    assert cce.api(**AGENCY).pools() == ()
    assert asked(cce) == [True, False, False, True, False]
    assert [request.headers.get("x-security-token", "") for request in cce.server.requests] == [
        "",
        "example-token-1",
        "example-token-1",
        "",
        "example-token-2",
    ]


def test_CCE_17_token_is_also_renewed_between_two_attempts_of_one_call() -> None:
    cce = EmulatedCce()
    now = cce.now()

    def late(_: Incoming) -> Answer:
        cce.clock.advance(3100)
        return scripted(503)

    cce.server.reply(".", granted(1, now + 3600), late, granted(2, now + 9000), NONE)
    assert cce.api(**AGENCY).pools() == ()
    assert asked(cce) == [True, False, True, False]


def test_huawei_iam_request_for_temporary_keys() -> None:
    cce = EmulatedCce()
    cce.server.reply(".", granted(1, cce.now() + 900), NONE)
    cce.api(agencyDuration="900", **AGENCY).pools()
    request = cce.server.requests[0]
    assert (request.method, request.target) == ("POST", TOKENS)
    assert json.loads(request.body) == {
        "auth": {
            "identity": {
                "methods": ["assume_role"],
                "assume_role": {
                    "domain_name": "Ops",
                    "agency_name": "scaler",
                    "duration_seconds": 900,
                },
            }
        }
    }
    assert "x-project-id" not in request.headers


@each_row(
    ("answer", "expected", "match"),
    [
        (
            scripted(403, {"error": {"code": 403, "message": "no", "title": "Forbidden"}}),
            Unauthorized,
            "agency scaler of Ops",
        ),
        (
            scripted(404, {"error": {"code": 404, "message": "no agency", "title": "Not Found"}}),
            Unauthorized,
            "no agency",
        ),
        (scripted(400, {"error_code": "IAM.0011", "error_msg": "bad"}), Unauthorized, "IAM.0011"),
        (scripted(200, {"credential": {"access": "a"}}), Unauthorized, "holds no credentials"),
        (scripted(200, {}), Unauthorized, "holds no credentials"),
        (scripted(200, []), Unauthorized, "not an object"),
        (
            scripted(200, {"credential": {"access": "a", "secret": "b", "securitytoken": "c\nd"}}),
            Unauthorized,
            "holds no",
        ),
    ],
)
def test_huawei_iam_refusal_needs_an_operator(
    answer: Answer, expected: type[ProviderError], match: str
) -> None:
    cce = script(*[answer] * 4)
    with pytest.raises(expected, match=match):
        cce.api(**AGENCY).pool(POOL)
    assert set(asked(cce)) == {True}


@each_row(
    "answer",
    [scripted(503), scripted(200, b"<html>", {"Content-Type": "text/html"}), scripted(200, b'{"c')],
)
def test_huawei_iam_without_an_answer_is_temporary(answer: Answer) -> None:
    with pytest.raises(Transient):
        script(*[answer] * 3).api(**AGENCY).pools()


def test_huawei_refused_agency_keys_are_requested_once_more() -> None:
    cce = EmulatedCce()
    end = cce.now() + 3600
    cce.server.reply(".", granted(1, end), refused(), granted(2, end), NONE, refused())
    api = cce.api(**AGENCY)
    assert api.pools() == ()
    with pytest.raises(Unauthorized) as raised:
        api.pools()
    assert len(cce.server.requests) == 5
    assert "example" not in str(raised.value)


def test_huawei_replaced_permanent_key_is_read_again_for_iam() -> None:
    cce, secrets = EmulatedCce(), replaced()
    cce.server.reply(".", refused(), granted(1, cce.now() + 3600), NONE, NONE)
    api = cce.api(secrets, **AGENCY)
    assert (api.pools(), api.pools()) == ((), ())
    assert (len(cce.server.requests), secrets.fresh_reads) == (4, 1)


# -- sessions of a process


def made(number: int, obtained: float, expires: float) -> CceCredential:
    return CceCredential(
        Secret(f"k{number}"), Secret(f"s{number}"), Secret(f"t{number}"), obtained, expires
    )


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
        return Assumed(
            keys, Agency(agency, "Ops"), "https://iam.example.com", grant, sessions, lambda: 0.0
        )

    other = json.dumps({"accessKey": "AKIDEXAMPLE00000NEXT", "secretKey": "example-next"})
    for number, each in enumerate(
        (source(0), source(1), source(2, other), source(3, agency="x"), source(4)), 1
    ):
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
    source = Assumed(
        keys, Agency("a", "b"), "https://iam.example.com", grant, sessions, lambda: 0.0
    )
    old, said_by = source.current(), list[bool]()
    threads = [
        threading.Thread(target=lambda: said_by.append(source.renewed(old))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said_by == [True] * 8
    assert len(counted) == 2
    assert not source.renewed(source.current())


# -- the project


def projects(*named: dict[str, Any]) -> Answer:
    return scripted(200, {"projects": list(named), "links": {}})


def test_huawei_project_is_looked_up_once_a_day_by_the_regions_name() -> None:
    answer = projects(
        {"id": PROJECT, "name": "cn-north-4", "enabled": True},
        {"id": "f" * 32, "name": "cn-north-4_team", "enabled": True},
    )
    cce = script(answer, NONE, NONE, NONE)
    cce.shared_cache = KeptCache()
    api = cce.api(projectId="")
    api.pools()
    api.pools()
    cce.api(projectId="").pools()
    first, *others = cce.server.requests
    assert (first.path, dict(first.query())) == ("/v3/projects", {"name": "cn-north-4"})
    assert [PROJECT in request.path for request in others] == [True] * 3


@each_row(
    ("answer", "match"),
    [
        (projects(), "has no project; write its id there"),
        (
            projects(
                {"id": "a" * 32, "name": "cn-north-4"}, {"id": "b" * 32, "name": "cn-north-4"}
            ),
            "a{32}, b{32}",
        ),
        (projects({"id": "../../x", "name": "cn-north-4"}), "has no project"),
        (projects({"id": PROJECT, "name": "cn-north-4", "enabled": False}), "has no project"),
        (scripted(200, {"projects": "none"}), "has no project"),
        (scripted(200, {"projects": [1, None]}), "has no project"),
    ],
)
def test_huawei_ambiguous_project_needs_an_operator(answer: Answer, match: str) -> None:
    with pytest.raises(ProviderError, match=match) as raised:
        script(answer).api(projectId="").pools()
    assert "providers.huaweicloud.projectId" in raised.value.message
    assert isinstance(raised.value, OutscalerError)


@each_row("status", [403, 404])
def test_huawei_key_without_permission_to_read_the_project_is_named(status: int) -> None:
    answer = scripted(status, {"error": {"code": status, "message": "no"}})
    with pytest.raises(Unauthorized, match="the project of cn-north-4"):
        script(answer, answer).api(projectId="").pool(POOL)
