"""Sources of credentials, their replacement, and their secrecy."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.model.secret import Secret
from chalicelib.providers.alicloud.credentials import (
    AlicloudCredential,
    Sessions,
    due,
    of_this_process,
    parse_secret,
)
from chalicelib.providers.kit.errors import Throttled, Transient, Unauthorized
from infra.emulators.cloud_account import FILES
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import (
    GROUP,
    KEY,
    KEY_ID,
    KEY_SECRET,
    EmulatedEss,
    action,
    answering,
    groups_page,
    refusal,
)
from tests.providers.emulated import RecordedLimits, RotatedSecrets

ROLE = "acs:ram::1234567890123456:role/outscaler"
PROVIDER = "acs:ram::1234567890123456:oidc-provider/ack"
TOKEN = "eyJhbGciOi.example.token"


def granted(number: int = 1, ends: str = "2027-01-15T09:00:00Z") -> Answer:
    return scripted(
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

    def __init__(self, *grants: Answer, refused: tuple[str, ...] = ()) -> None:
        self.grants, self.refused = list(grants), refused
        self.log: list[str] = []
        self.forms: list[dict[str, list[str]]] = []

    def __call__(self, request: Incoming) -> Answer:
        self.log.append(action(request))
        if action(request).startswith("AssumeRole"):
            self.forms.append(parse_qs(request.body.decode()))
            return self.grants.pop(0) if self.grants else refusal("ServiceUnavailable", 503)
        token = request.headers.get("x-acs-security-token", "")
        return (
            refusal("InvalidSecurityToken.Expired", 403)
            if token in self.refused
            else groups_page(GROUP)
        )


# -- access keys


def test_alicloud_static_session_is_signed_with_its_token() -> None:
    secret = json.dumps(
        {"accessKeyId": "STS.x", "accessKeySecret": "s", "securityToken": "CAIS+x=="}
    )
    ess = answering(groups_page(GROUP))
    ess.api(read_secret=RotatedSecrets(key=secret)).groups([GROUP])
    assert ess.server.requests[0].headers["x-acs-security-token"] == "CAIS+x=="
    assert ess.server.requests[0].headers["x-acs-accesskey-id"] == "STS.x"


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
    secrets = RotatedSecrets(key=KEY)
    ess = answering(groups_page(GROUP), refusal(code, 403), groups_page(GROUP), groups_page(GROUP))
    api = ess.api(read_secret=secrets)
    api.groups([GROUP])
    secrets.now["key"] = json.dumps({"accessKeyId": "LTAI5tNew", "accessKeySecret": "new"})
    assert api.groups([GROUP])
    assert api.groups([GROUP])
    assert secrets.fresh_reads == 1
    assert len({request.headers["authorization"] for request in ess.server.requests}) == 4


def test_alicloud_wrong_key_is_not_retried() -> None:
    ess = answering(refusal("SignatureDoesNotMatch", 400))
    with pytest.raises(Unauthorized):
        ess.api().groups([GROUP])
    assert len(ess.server.requests) == 1


def test_alicloud_secret_reader_without_an_uncached_read_suffices() -> None:
    ess = answering(refusal("InvalidAccessKeyId.NotFound", 404))
    with pytest.raises(Unauthorized):
        ess.api(read_secret=lambda _: KEY).groups([GROUP])
    assert len(ess.server.requests) == 1


# -- role assumed with an access key


def by_role(ess: EmulatedEss, sessions: Sessions, secrets: RotatedSecrets | None = None) -> None:
    """Makes a call by an assumed role, in a new pass."""
    secrets = secrets or RotatedSecrets(key=KEY)
    ess.api(read_secret=secrets, sessions=sessions, credentialsSecret="key", roleArn=ROLE).groups(
        [GROUP]
    )


def test_alicloud_role_is_assumed_once_per_process_until_shortly_before_expiry() -> None:
    vendor, sessions = Vendor(granted(1), granted(2, "2027-01-15T10:00:00Z")), Sessions()
    ess = answering(vendor)
    by_role(ess, sessions)
    by_role(ess, sessions)
    assert vendor.log == ["AssumeRole", "DescribeScalingGroups", "DescribeScalingGroups"]
    ess.clock.advance(2881)  # four fifths of an hour
    by_role(ess, sessions)
    assert vendor.log[3:] == ["AssumeRole", "DescribeScalingGroups"]
    query = ess.server.requests[0].parameters()
    assert (query["RoleArn"], query["RoleSessionName"], query["DurationSeconds"]) == (
        ROLE,
        "outscaler-ours",
        "3600",
    )
    assert [request.headers.get("x-acs-security-token") for request in ess.server.requests] == [
        None,
        "CAIS+1/==",
        "CAIS+1/==",
        None,
        "CAIS+2/==",
    ]


def test_alicloud_role_rate_limit_belongs_to_its_key_and_the_role_for_every_session() -> None:
    limits, vendor = RecordedLimits(), Vendor(*(granted(number) for number in range(1, 5)))
    ess = answering(vendor)
    for role in (ROLE, ROLE, ROLE + "2", "acs:ram::9999:role/outscaler"):
        ess.api(limits=limits, credentialsSecret="key", roleArn=role).groups([GROUP])
    first, again, second, third = (key for key, _ in limits.granted)
    assert first == again
    assert len({first, second, third}) == 3
    assert "1234567890123456" not in first


def test_alicloud_refused_session_is_replaced_once() -> None:
    vendor = Vendor(granted(1), granted(2), refused=("CAIS+1/==",))
    ess = answering(vendor)
    by_role(ess, Sessions())
    assert vendor.log == [
        "AssumeRole",
        "DescribeScalingGroups",
        "AssumeRole",
        "DescribeScalingGroups",
    ]


def test_alicloud_sessions_that_are_always_refused_are_not_created_forever() -> None:
    vendor = Vendor(
        *(granted(number) for number in range(9)), refused=tuple(f"CAIS+{n}/==" for n in range(9))
    )
    ess = answering(vendor)
    with pytest.raises(Unauthorized, match="InvalidSecurityToken"):
        by_role(ess, Sessions())
    assert len(vendor.log) == 4


def test_alicloud_key_refused_by_sts_is_read_again() -> None:
    secrets = RotatedSecrets(key=KEY)
    secrets.now["key"] = json.dumps({"accessKeyId": "LTAI5tNew", "accessKeySecret": "new"})
    vendor = Vendor(refusal("InvalidAccessKeyId.NotFound", 404), granted(1))
    ess = answering(vendor)
    by_role(ess, Sessions(), secrets)
    assert vendor.log == ["AssumeRole", "AssumeRole", "DescribeScalingGroups"]


def test_alicloud_session_is_never_shared_with_another_key_or_role() -> None:
    vendor, sessions = Vendor(granted(1), granted(2), granted(3)), Sessions()
    other = RotatedSecrets(key=json.dumps({"accessKeyId": KEY_ID, "accessKeySecret": "another"}))
    ess = answering(vendor)
    by_role(ess, sessions)
    by_role(ess, sessions, other)
    ess.api(sessions=sessions, credentialsSecret="key", roleArn=ROLE + "2").groups([GROUP])
    assert vendor.log.count("AssumeRole") == 3


def test_alicloud_valid_session_is_used_while_sts_does_not_answer() -> None:
    vendor, sessions = Vendor(granted(1)), Sessions()
    ess = answering(vendor)
    by_role(ess, sessions)
    ess.clock.advance(3000)
    by_role(ess, sessions)
    asked = vendor.log.count("AssumeRole")
    by_role(ess, sessions)
    assert vendor.log.count("AssumeRole") == asked  # not with every call
    ess.clock.advance(590)
    with pytest.raises(Transient):
        by_role(ess, sessions)


def test_alicloud_sts_answer_without_credentials_is_an_error() -> None:
    for body in (
        {"RequestId": "r"},
        {"Credentials": None},
        {"Credentials": {"AccessKeyId": "STS.1"}},
    ):
        ess = answering(scripted(200, body))
        with pytest.raises(Unauthorized, match="no credentials"):
            by_role(ess, Sessions())


@each_row("ends", ["", "tomorrow", "2020-01-01T00:00:00Z"])
def test_alicloud_invalid_session_expiry_does_not_call_sts_every_time(ends: str) -> None:
    vendor, sessions = Vendor(granted(1, ends)), Sessions()
    ess = answering(vendor)
    by_role(ess, sessions)
    by_role(ess, sessions)
    assert vendor.log.count("AssumeRole") == 1


def test_alicloud_clock_set_back_far_requests_a_new_session() -> None:
    vendor, sessions = Vendor(granted(1), granted(2)), Sessions()
    ess = answering(vendor)
    by_role(ess, sessions)
    ess.skew = -30.0
    by_role(ess, sessions)
    ess.skew = -3630.0
    by_role(ess, sessions)
    assert vendor.log.count("AssumeRole") == 2


@each_row(
    ("life", "after"),
    [(3600, 2700), (7200, 6300), (1800, 900), (900, 720), (30, 60), (0, 60), (-100, 60)],
)
def test_alicloud_session_is_renewed_before_its_expiry(life: float, after: float) -> None:
    assert (
        due(AlicloudCredential(Secret("a"), Secret("b"), Secret("c"), obtained=0.0, expires=life))
        == after
    )


def test_alicloud_process_has_one_session_cache() -> None:
    assert of_this_process() is of_this_process()


def test_alicloud_session_cache_is_bounded() -> None:
    sessions = Sessions()
    for number in range(1000):
        key = AlicloudCredential(
            Secret("a"), Secret("b"), Secret(str(number)), obtained=number, expires=number + 3600
        )
        assert sessions.get(str(number), number, lambda key=key: key) is key  # type: ignore[misc]
    assert len(sessions._sessions) <= 256


# -- role assumed with an OIDC token (RRSA)


def by_token(ess: EmulatedEss, sessions: Sessions, secrets: RotatedSecrets) -> None:
    """Makes a call by a role that an identity token assumes, in a new pass."""
    settings: dict[str, Any] = {
        "oidcProviderArn": PROVIDER,
        "roleArn": ROLE,
        "oidcTokenSecret": "token",
    }
    ess.api(read_secret=secrets, sessions=sessions, **settings).groups([GROUP])


def test_alicloud_oidc_token_is_sent_unsigned_and_read_at_every_renewal() -> None:
    vendor, sessions = Vendor(granted(1), granted(2, "2027-01-15T10:00:00Z")), Sessions()
    secrets = RotatedSecrets(token=TOKEN + "\n")
    ess = answering(vendor)
    by_token(ess, sessions, secrets)
    secrets.now["token"] = "eyJ.rotated"
    ess.clock.advance(2881)
    by_token(ess, sessions, secrets)
    first = ess.server.requests[0]
    assert "authorization" not in first.headers
    assert first.parameters()["Action"] == "AssumeRoleWithOIDC"
    assert first.parameters()["Version"] == "2015-04-01"
    assert first.parameters()["RoleSessionName"] == "outscaler-ours"
    assert [form["OIDCToken"] for form in vendor.forms] == [[TOKEN], ["eyJ.rotated"]]
    assert vendor.forms[0]["OIDCProviderArn"] == [PROVIDER]
    assert ess.server.requests[1].headers["x-acs-accesskey-id"] == "STS.1"


def test_alicloud_sessions_of_different_identity_tokens_are_not_shared() -> None:
    vendor, sessions = Vendor(granted(1), granted(2)), Sessions()
    ess, secrets = answering(vendor), RotatedSecrets(one=TOKEN, other="eyJ.other")
    settings: dict[str, Any] = {"oidcProviderArn": PROVIDER, "roleArn": ROLE}
    for name in ("one", "other", "one"):
        ess.api(read_secret=secrets, sessions=sessions, oidcTokenSecret=name, **settings).groups(
            [GROUP]
        )
    assert [form["OIDCToken"] for form in vendor.forms] == [[TOKEN], ["eyJ.other"]]


def test_alicloud_oidc_token_file_is_read_at_every_renewal(tmp_path: Path) -> None:
    file, vendor, sessions = tmp_path / "token", Vendor(granted(1), granted(2)), Sessions()
    file.write_text(TOKEN)
    ess = answering(vendor)

    def ask() -> None:
        ess.api(
            sessions=sessions,
            deployment=FILES,
            oidcProviderArn=PROVIDER,
            roleArn=ROLE,
            oidcTokenFile=str(file),
        ).groups([GROUP])

    ask()
    file.write_text("eyJ.rotated")
    ess.clock.advance(2881)
    ask()
    assert [form["OIDCToken"] for form in vendor.forms] == [[TOKEN], ["eyJ.rotated"]]


@pytest.mark.parametrize(
    "content", [None, "", "\n", "abc", "x" * 20001, "two words", "AWS_X=1\0AWS_Y=2", "{}", "a=b"]
)
def test_alicloud_missing_or_empty_oidc_token_file_is_named(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    ess = EmulatedEss(0)
    with pytest.raises(Unauthorized, match=str(file)):
        ess.api(
            deployment=FILES, oidcProviderArn=PROVIDER, roleArn=ROLE, oidcTokenFile=str(file)
        ).groups([GROUP])
    assert ess.server.requests == []


@pytest.mark.parametrize(
    "settings",
    [
        {"oidcTokenFile": "{}", "oidcProviderArn": PROVIDER, "roleArn": ROLE},
        {"credentialsSecret": "key"},
    ],
)
def test_alicloud_function_reads_no_oidc_token_file(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """This applies to a file named in the settings and to one named in the secret."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    secret = json.dumps({"roleArn": ROLE, "oidcProviderArn": PROVIDER, "oidcTokenFile": str(file)})
    given: dict[str, Any] = {key: value.format(file) for key, value in settings.items()}
    ess = EmulatedEss(0)
    with pytest.raises(Unauthorized, match="only commands on a workstation"):
        ess.api(read_secret=RotatedSecrets(key=secret), **given).groups([GROUP])
    assert ess.server.requests == []


@each_row(
    "code",
    [
        "AuthenticationFail.OIDCToken.Expired",
        "EntityNotExist.Role",
        "NoPermission",
        "InvalidParameter.OIDCToken",
    ],
)
def test_alicloud_sts_refusal_is_unauthorized_and_shows_no_token(code: str) -> None:
    ess = answering(refusal(code, 400, f"the token {TOKEN} is wrong"))
    with pytest.raises(Unauthorized, match=code) as raised:
        by_token(ess, Sessions(), RotatedSecrets(token=TOKEN))
    assert TOKEN not in "".join(traceback.format_exception(raised.value))
    assert len(ess.server.requests) == 1


def test_alicloud_sts_throttling_is_throttling() -> None:
    ess = answering(lambda _: refusal("Throttling.User"))
    with pytest.raises(Throttled):
        by_token(ess, Sessions(), RotatedSecrets(token=TOKEN))
    assert len(ess.server.requests) == 3


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
    ess = answering(vendor)
    ess.api(
        read_secret=RotatedSecrets(key=text, token=TOKEN),
        credentialsSecret="key",
        oidcTokenSecret="token",
    ).groups([GROUP])
    assert ess.server.requests[0].parameters()["RoleSessionName"] == "mine"
    assert vendor.forms[0]["RoleArn"] == [ROLE]


# -- role of an ECS instance


METADATA = {
    "Code": "Success",
    "AccessKeyId": "STS.9",
    "AccessKeySecret": "s",
    "SecurityToken": "CAIS9",
    "Expiration": "2027-01-15T13:30:00Z",
    "LastUpdated": "2027-01-15T07:30:00Z",
}
ROLES = "/latest/meta-data/ram/security-credentials/"


def by_instance(ess: EmulatedEss, **settings: Any) -> list[str]:
    """Makes a call by the role of the instance, and returns the paths of all requests."""
    ess.server.reply(" DescribeScalingGroups$", groups_page(GROUP))
    ess.api(metadataEndpoint=ess.server.url, **settings).groups([GROUP])
    return [request.path for request in ess.server.requests]


@each_row("protected", [True, False])
def test_alicloud_metadata_service_in_both_modes(protected: bool) -> None:
    def metadata(request: Incoming) -> Answer:
        if request.method == "PUT":
            assert request.headers["x-aliyun-ecs-metadata-token-ttl-seconds"]
            return scripted(200, "meta-token") if protected else scripted(404, "no")
        if protected and request.headers.get("x-aliyun-ecs-metadata-token") != "meta-token":
            return scripted(403, "no")
        if request.path == ROLES:
            return scripted(200, "worker-role\nanother")
        return (
            scripted(200, METADATA)
            if request.path == ROLES + "worker-role"
            else scripted(404, "no")
        )

    ess = EmulatedEss(0)
    ess.server.reply("/latest/", metadata, always=True)
    by_instance(ess)
    assert ess.server.requests[-1].headers["x-acs-security-token"] == "CAIS9"


def test_alicloud_metadata_named_role_is_not_looked_up() -> None:
    ess = EmulatedEss(0)
    ess.server.reply(f"GET {ROLES}mine", scripted(200, METADATA))
    assert by_instance(ess, ramRole="mine") == ["/latest/api/token", ROLES + "mine", "/"]


@each_row(
    ("reply", "cls"),
    [
        (scripted(404, "no"), Unauthorized),
        (scripted(200, ""), Unauthorized),
        (scripted(200, {"Code": "Failed"}), Unauthorized),
        (scripted(500, "no"), Transient),
    ],
)
def test_alicloud_metadata_instance_without_a_role_has_no_credentials(
    reply: Answer, cls: type[OutscalerError]
) -> None:
    ess = EmulatedEss(0)
    ess.server.reply("/latest/", reply, always=True)
    with pytest.raises(cls, match="instance metadata"):
        by_instance(ess)


def test_alicloud_metadata_without_an_answer_is_tried_once() -> None:
    ess = EmulatedEss(0)
    ess.server.reply("/latest/", NO_ANSWER, always=True)
    with pytest.raises(Transient, match="instance metadata"):
        by_instance(ess)
    assert len(ess.server.requests) == 1
    assert ess.slept() == 0.0


# -- secrecy


def test_alicloud_credentials_show_in_no_repr_and_cannot_be_serialized() -> None:
    credential = AlicloudCredential(Secret(KEY_ID), Secret(KEY_SECRET), Secret("CAIS+/=="))
    for shown in (repr(credential), str(credential), repr(parse_secret(KEY, "s"))):
        assert KEY_ID not in shown
        assert KEY_SECRET not in shown
    assert (
        credential.hidden_in(f"{KEY_ID} {KEY_SECRET} CAIS+/== CAIS%2B%2F%3D%3D")
        == "*** *** *** ***"
    )
