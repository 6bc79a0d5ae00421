"""Sources of credentials, their replacement, and their secrecy."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from chalicelib.model.secret import Secret
from chalicelib.providers.alicloud.credentials import AlicloudCredential, Sessions, due, of_this_process, parse_secret
from chalicelib.providers.errors import Throttled, Transient, Unauthorized
from infra.emulators.cloud_account import FILES
from tests.cases import each_row
from tests.unit.providers.alicloud.scripted_api import (
    GROUP,
    KEY,
    KEY_ID,
    KEY_SECRET,
    NOW,
    Books,
    HttpScript,
    Reply,
    ScriptedApiClock,
    ScriptedApiSecrets,
    Seen,
    action,
    api_for,
    groups_page,
    refusal,
)

ROLE = "acs:ram::1234567890123456:role/outscaler"
PROVIDER = "acs:ram::1234567890123456:oidc-provider/ack"
TOKEN = "eyJhbGciOi.example.token"


def granted(number: int = 1, ends: str = "2026-01-15T09:30:00Z") -> Reply:
    return Reply(
        200,
        {
            "RequestId": "r",
            "Credentials": {
                "AccessKeyId": f"STS.{number}",
                "AccessKeySecret": f"sts-secret-{number}",
                "SecurityToken": f"CAIS+{number}/==",
                "Expiration": ends,
            },
        },
    )


class Vendor:
    """ESS and STS in one script: the answer to each STS call, and the tokens that ESS accepts."""

    def __init__(self, *grants: Reply, refused: tuple[str, ...] = ()) -> None:
        self.grants, self.refused = list(grants), refused
        self.log: list[str] = []
        self.forms: list[dict[str, list[str]]] = []

    def __call__(self, seen: Seen) -> Reply:
        self.log.append(action(seen))
        if action(seen).startswith("AssumeRole"):
            self.forms.append(parse_qs(seen.body.decode()))
            return self.grants.pop(0) if self.grants else refusal("ServiceUnavailable", 503)
        token = seen.headers.get("x-acs-security-token", "")
        return refusal("InvalidSecurityToken.Expired", 403) if token in self.refused else groups_page(GROUP)


# -- access keys


def test_alicloud_static_session_is_signed_with_its_token() -> None:
    secret = json.dumps({"accessKeyId": "STS.x", "accessKeySecret": "s", "securityToken": "CAIS+x=="})
    with HttpScript([groups_page(GROUP)]) as server:
        api_for(server.url, read_secret=ScriptedApiSecrets(key=secret)).groups([GROUP])
    assert server.requests[0].headers["x-acs-security-token"] == "CAIS+x=="
    assert server.requests[0].headers["x-acs-accesskey-id"] == "STS.x"


@each_row(
    "code",
    [
        "InvalidAccessKeyId.NotFound",
        "InvalidAccessKeyId.Inactive",
        "SignatureDoesNotMatch",
        "InvalidSecurityToken.Expired",
    ],
)
def test_alicloud_key_rotated_during_a_pass_is_read_again_once(code: str) -> None:
    secrets = ScriptedApiSecrets(key=KEY)
    with HttpScript([groups_page(GROUP), refusal(code, 403), groups_page(GROUP), groups_page(GROUP)]) as server:
        api = api_for(server.url, read_secret=secrets)
        api.groups([GROUP])
        secrets.now["key"] = json.dumps({"accessKeyId": "LTAI5tNew", "accessKeySecret": "new"})
        assert api.groups([GROUP])
        assert api.groups([GROUP])
    assert secrets.looks == 1
    assert len({seen.credential for seen in server.requests}) == 4


def test_alicloud_wrong_key_is_not_retried() -> None:
    with HttpScript([refusal("SignatureDoesNotMatch", 400)]) as server, pytest.raises(Unauthorized):
        api_for(server.url).groups([GROUP])
    assert len(server.requests) == 1


def test_alicloud_secret_reader_without_an_uncached_read_suffices() -> None:
    with HttpScript([refusal("InvalidAccessKeyId.NotFound", 404)]) as server, pytest.raises(Unauthorized):
        api_for(server.url, read_secret=lambda _: KEY).groups([GROUP])
    assert len(server.requests) == 1


# -- role assumed with an access key


def by_role(
    url: str, clock: ScriptedApiClock, sessions: Sessions, secrets: ScriptedApiSecrets | None = None
) -> Callable[[], object]:
    api = api_for(
        url,
        clock=clock,
        read_secret=secrets or ScriptedApiSecrets(key=KEY),
        sessions=sessions,
        credentialsSecret="key",
        roleArn=ROLE,
    )
    return lambda: api.groups([GROUP])


def test_alicloud_role_is_assumed_once_per_process_until_shortly_before_expiry() -> None:
    vendor, clock, sessions = Vendor(granted(1), granted(2, "2026-01-15T10:30:00Z")), ScriptedApiClock(), Sessions()
    with HttpScript(vendor) as server:
        by_role(server.url, clock, sessions)()
        by_role(server.url, clock, sessions)()
        assert vendor.log == ["AssumeRole", "DescribeScalingGroups", "DescribeScalingGroups"]
        clock.now += 2881  # four fifths of an hour
        by_role(server.url, clock, sessions)()
        assert vendor.log[3:] == ["AssumeRole", "DescribeScalingGroups"]
    query = server.requests[0].query
    assert (query["RoleArn"], query["RoleSessionName"], query["DurationSeconds"]) == (ROLE, "outscaler-prod", "3600")
    assert [seen.headers.get("x-acs-security-token") for seen in server.requests] == [
        None,
        "CAIS+1/==",
        "CAIS+1/==",
        None,
        "CAIS+2/==",
    ]


def test_alicloud_role_rate_limit_belongs_to_its_account_for_every_session() -> None:
    books, vendor, clock = Books(), Vendor(granted(1), granted(2), granted(3)), ScriptedApiClock()
    with HttpScript(vendor) as server:
        for role in (ROLE, ROLE + "2", "acs:ram::9999:role/outscaler"):
            api_for(server.url, clock=clock, pacer=books, credentialsSecret="key", roleArn=role).groups([GROUP])
    first, second, third = (key for key, _ in books.taken)
    assert first == second != third
    assert "1234567890123456" not in first


def test_alicloud_refused_session_is_replaced_once() -> None:
    vendor = Vendor(granted(1), granted(2), refused=("CAIS+1/==",))
    with HttpScript(vendor) as server:
        by_role(server.url, ScriptedApiClock(), Sessions())()
    assert vendor.log == ["AssumeRole", "DescribeScalingGroups", "AssumeRole", "DescribeScalingGroups"]


def test_alicloud_sessions_that_are_always_refused_are_not_created_forever() -> None:
    vendor = Vendor(*(granted(number) for number in range(9)), refused=tuple(f"CAIS+{n}/==" for n in range(9)))
    with HttpScript(vendor) as server, pytest.raises(Unauthorized, match="InvalidSecurityToken"):
        by_role(server.url, ScriptedApiClock(), Sessions())()
    assert len(vendor.log) == 4


def test_alicloud_key_refused_by_sts_is_read_again() -> None:
    secrets = ScriptedApiSecrets(key=KEY)
    secrets.now["key"] = json.dumps({"accessKeyId": "LTAI5tNew", "accessKeySecret": "new"})
    vendor = Vendor(refusal("InvalidAccessKeyId.NotFound", 404), granted(1))
    with HttpScript(vendor) as server:
        by_role(server.url, ScriptedApiClock(), Sessions(), secrets)()
    assert vendor.log == ["AssumeRole", "AssumeRole", "DescribeScalingGroups"]


def test_alicloud_session_is_never_shared_with_another_key_or_role() -> None:
    vendor, sessions, clock = Vendor(granted(1), granted(2), granted(3)), Sessions(), ScriptedApiClock()
    other = ScriptedApiSecrets(key=json.dumps({"accessKeyId": KEY_ID, "accessKeySecret": "another"}))
    with HttpScript(vendor) as server:
        by_role(server.url, clock, sessions)()
        by_role(server.url, clock, sessions, other)()
        api_for(server.url, clock=clock, sessions=sessions, credentialsSecret="key", roleArn=ROLE + "2").groups([GROUP])
    assert vendor.log.count("AssumeRole") == 3


def test_alicloud_valid_session_is_used_while_sts_does_not_answer() -> None:
    vendor, sessions, clock = Vendor(granted(1)), Sessions(), ScriptedApiClock()
    with HttpScript(vendor) as server:
        by_role(server.url, clock, sessions)()
        clock.now = NOW + 3000
        by_role(server.url, clock, sessions)()
        asked = vendor.log.count("AssumeRole")
        by_role(server.url, clock, sessions)()
        assert vendor.log.count("AssumeRole") == asked  # not with every call
        clock.now = NOW + 3590
        with pytest.raises(Transient):
            by_role(server.url, clock, sessions)()


def test_alicloud_sts_answer_without_credentials_is_an_error() -> None:
    for body in ({"RequestId": "r"}, {"Credentials": None}, {"Credentials": {"AccessKeyId": "STS.1"}}):
        with HttpScript([Reply(200, body)]) as server, pytest.raises(Unauthorized, match="no credentials"):
            by_role(server.url, ScriptedApiClock(), Sessions())()


@each_row("ends", ["", "tomorrow", "2020-01-01T00:00:00Z"])
def test_alicloud_invalid_session_expiry_does_not_call_sts_every_time(ends: str) -> None:
    vendor, sessions, clock = Vendor(granted(1, ends)), Sessions(), ScriptedApiClock()
    with HttpScript(vendor) as server:
        by_role(server.url, clock, sessions)()
        by_role(server.url, clock, sessions)()
    assert vendor.log.count("AssumeRole") == 1


def test_alicloud_clock_set_back_far_requests_a_new_session() -> None:
    vendor, sessions, clock = Vendor(granted(1), granted(2)), Sessions(), ScriptedApiClock()
    with HttpScript(vendor) as server:
        by_role(server.url, clock, sessions)()
        clock.now -= 30
        by_role(server.url, clock, sessions)()
        clock.now -= 3600
        by_role(server.url, clock, sessions)()
    assert vendor.log.count("AssumeRole") == 2


@each_row(("life", "after"), [(3600, 2700), (7200, 6300), (1800, 900), (900, 720), (30, 60), (0, 60), (-100, 60)])
def test_alicloud_session_is_renewed_before_its_expiry(life: float, after: float) -> None:
    assert due(AlicloudCredential(Secret("a"), Secret("b"), Secret("c"), obtained=0.0, expires=life)) == after


def test_alicloud_process_has_one_session_cache() -> None:
    assert of_this_process() is of_this_process()


def test_alicloud_session_cache_is_bounded() -> None:
    sessions = Sessions()
    for number in range(1000):
        key = AlicloudCredential(Secret("a"), Secret("b"), Secret(str(number)), obtained=number, expires=number + 3600)
        assert sessions.get(str(number), number, lambda key=key: key) is key  # type: ignore[misc]
    assert len(sessions._sessions) <= 256


# -- role assumed with an OIDC token (RRSA)


def by_token(
    url: str, clock: ScriptedApiClock, sessions: Sessions, secrets: ScriptedApiSecrets
) -> Callable[[], object]:
    api = api_for(
        url,
        clock=clock,
        read_secret=secrets,
        sessions=sessions,
        oidcProviderArn=PROVIDER,
        roleArn=ROLE,
        oidcTokenSecret="token",
    )
    return lambda: api.groups([GROUP])


def test_alicloud_oidc_token_is_sent_unsigned_and_read_at_every_renewal() -> None:
    vendor, clock, sessions = Vendor(granted(1), granted(2, "2026-01-15T10:30:00Z")), ScriptedApiClock(), Sessions()
    secrets = ScriptedApiSecrets(token=TOKEN + "\n")
    with HttpScript(vendor) as server:
        by_token(server.url, clock, sessions, secrets)()
        secrets.now["token"] = "eyJ.rotated"
        clock.now += 2881
        by_token(server.url, clock, sessions, secrets)()
    first = server.requests[0]
    assert first.credential == ""
    assert first.query["Action"] == "AssumeRoleWithOIDC"
    assert first.query["Version"] == "2015-04-01"
    assert first.query["RoleSessionName"] == "outscaler-prod"
    assert [form["OIDCToken"] for form in vendor.forms] == [[TOKEN], ["eyJ.rotated"]]
    assert vendor.forms[0]["OIDCProviderArn"] == [PROVIDER]
    assert server.requests[1].headers["x-acs-accesskey-id"] == "STS.1"


def test_alicloud_oidc_token_file_is_read_at_every_renewal(tmp_path: Path) -> None:
    file, vendor, clock, sessions = tmp_path / "token", Vendor(granted(1), granted(2)), ScriptedApiClock(), Sessions()
    file.write_text(TOKEN)
    with HttpScript(vendor) as server:

        def ask() -> None:
            api_for(
                server.url,
                clock=clock,
                sessions=sessions,
                deployment=FILES,
                oidcProviderArn=PROVIDER,
                roleArn=ROLE,
                oidcTokenFile=str(file),
            ).groups([GROUP])

        ask()
        file.write_text("eyJ.rotated")
        clock.now += 2881
        ask()
    assert [form["OIDCToken"] for form in vendor.forms] == [[TOKEN], ["eyJ.rotated"]]


@pytest.mark.parametrize("content", [None, "", "\n", "abc", "x" * 20001, "two words", "AWS_X=1\0AWS_Y=2", "{}", "a=b"])
def test_alicloud_missing_or_empty_oidc_token_file_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with HttpScript() as server, pytest.raises(Unauthorized, match=str(file)):
        api_for(server.url, deployment=FILES, oidcProviderArn=PROVIDER, roleArn=ROLE, oidcTokenFile=str(file)).groups(
            [GROUP]
        )
    assert server.requests == []


@pytest.mark.parametrize(
    "settings",
    [
        {"oidcTokenFile": "{}", "oidcProviderArn": PROVIDER, "roleArn": ROLE},
        {"credentialsSecret": "key"},
    ],
)
def test_alicloud_function_reads_no_oidc_token_file(tmp_path: Path, settings: dict[str, str]) -> None:
    """This applies to a file named in the settings and to one named in the secret."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    secret = json.dumps({"roleArn": ROLE, "oidcProviderArn": PROVIDER, "oidcTokenFile": str(file)})
    given: dict[str, Any] = {key: value.format(file) for key, value in settings.items()}
    with HttpScript() as server, pytest.raises(Unauthorized, match="only commands on a workstation"):
        api_for(server.url, read_secret=ScriptedApiSecrets(key=secret), **given).groups([GROUP])
    assert server.requests == []


@each_row(
    "code",
    ["AuthenticationFail.OIDCToken.Expired", "EntityNotExist.Role", "NoPermission", "InvalidParameter.OIDCToken"],
)
def test_alicloud_sts_refusal_is_unauthorized_and_shows_no_token(code: str) -> None:
    with (
        HttpScript([refusal(code, 400, f"the token {TOKEN} is wrong")]) as server,
        pytest.raises(Unauthorized, match=code) as raised,
    ):
        by_token(server.url, ScriptedApiClock(), Sessions(), ScriptedApiSecrets(token=TOKEN))()
    assert TOKEN not in "".join(traceback.format_exception(raised.value))
    assert len(server.requests) == 1


def test_alicloud_sts_throttling_is_throttling() -> None:
    with HttpScript(lambda _: refusal("Throttling.User")) as server, pytest.raises(Throttled):
        by_token(server.url, ScriptedApiClock(), Sessions(), ScriptedApiSecrets(token=TOKEN))()
    assert len(server.requests) == 3


def test_alicloud_upstream_rrsa_secret_gives_names_and_settings_give_the_token() -> None:
    text = json.dumps(
        {
            "oidc-provider-arn": PROVIDER,
            "role-arn": ROLE,
            "session-name": "mine",
            "oidc-token-file-path": "/var/run/secrets/tokens/oidc",
            "region-id": "cn-hangzhou",
        }
    )
    vendor = Vendor(granted(1))
    with HttpScript(vendor) as server:
        api_for(
            server.url,
            read_secret=ScriptedApiSecrets(key=text, token=TOKEN),
            credentialsSecret="key",
            oidcTokenSecret="token",
        ).groups([GROUP])
    assert server.requests[0].query["RoleSessionName"] == "mine"
    assert vendor.forms[0]["RoleArn"] == [ROLE]


# -- secrecy


def test_alicloud_credentials_show_in_no_repr_and_cannot_be_serialized() -> None:
    credential = AlicloudCredential(Secret(KEY_ID), Secret(KEY_SECRET), Secret("CAIS+/=="))
    for shown in (repr(credential), str(credential), repr(parse_secret(KEY, "s"))):
        assert KEY_ID not in shown
        assert KEY_SECRET not in shown
    assert credential.hidden_in(f"{KEY_ID} {KEY_SECRET} CAIS+/== CAIS%2B%2F%3D%3D") == "*** *** *** ***"
