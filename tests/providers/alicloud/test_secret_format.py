"""Accepted forms of the secret, and errors of unusable ones."""

from __future__ import annotations

import json

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import SecretUnavailable
from chalicelib.providers.alicloud.credentials import parse_secret
from chalicelib.providers.kit.errors import Transient, Unauthorized
from tests.cases import each_row
from tests.providers.alicloud.emulated import GROUP, KEY, KEY_ID, KEY_SECRET, EmulatedEss
from tests.providers.emulated import RotatedSecrets

ROLE = "acs:ram::1234567890123456:role/outscaler"
PROVIDER = "acs:ram::1234567890123456:oidc-provider/ack"


@each_row(
    "text",
    [
        KEY,
        json.dumps(
            {
                "access-key-id": KEY_ID + "\n",
                "access-key-secret": KEY_SECRET + "\n",
                "region-id": "cn-beijing\n",
            }
        ),
        json.dumps(
            {"ALIBABA_CLOUD_ACCESS_KEY_ID": KEY_ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": KEY_SECRET}
        ),
        json.dumps({"AccessKeyID": KEY_ID, "AccessKeySecret": KEY_SECRET, "securityToken": None}),
        (
            f"[global]\naccess-key-id = {KEY_ID}\nACCESS-KEY-SECRET={KEY_SECRET}\n"
            "region-id=cn-beijing\n"
        ),
        f'[Global]\r\nAccessKeyID="{KEY_ID}"\r\nAccessKeySecret={KEY_SECRET}\r\n',
    ],
)
def test_alicloud_secret_is_read_in_each_form(text: str) -> None:
    found = parse_secret(text, "secret key")
    assert (found.key_id.reveal(), found.key_secret.reveal(), bool(found.token)) == (
        KEY_ID,
        KEY_SECRET,
        False,
    )


@each_row(
    ("text", "problem"),
    [
        ("", "no section"),
        ("LTAI:secret", "neither JSON nor an INI"),
        ("[global\nx", "neither JSON"),
        ("[other]\na=b", "another section"),
        ('{"accessKeyId": 5}', "not text"),
        ('{"accessKeyId": "LT', "not complete"),
        ('{"accessKey": "LTAI"}', "accessKey is not known"),
        ('{"accessKeyId": "LT AI"}', "special characters"),
        ('{"accessKeyId": "a", "access-key-id": "b"}', "twice"),
        ("[global]\naccess-key-id\n", "neither JSON"),
        ('{"LTAI5-SECRET-AS-A-NAME": "x"}', "a field is not known"),
        ('{"accessKeyId": "ключ"}', "special characters"),
    ],
)
def test_alicloud_unusable_secret_is_refused_by_its_field(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as raised:
        parse_secret(text, "secret key")
    assert "LTAI5" not in str(raised.value)


@each_row(
    ("secret", "missing"),
    [
        ({"accessKeyId": KEY_ID}, "accessKeySecret is missing"),
        ({"accessKeySecret": KEY_SECRET}, "accessKeyId is missing"),
        ({"securityToken": "CAIS"}, "accessKeyId is missing"),
        ({"accessKeyId": KEY_ID, "accessKeySecret": "\n"}, "accessKeySecret is missing"),
        ({}, "holds no access key"),
        ({"role-arn": ROLE}, "holds no access key"),
        ({"oidc-provider-arn": PROVIDER, "role-arn": ROLE}, "oidcTokenSecret: is missing"),
        ({"oidc-provider-arn": PROVIDER}, "roleArn: is missing"),
        ({"accessKeyId": KEY_ID, "oidc-provider-arn": PROVIDER}, "two ways"),
    ],
)
def test_alicloud_incomplete_secret_names_the_missing_field_without_a_call(
    secret: dict[str, str], missing: str
) -> None:
    ess = EmulatedEss(0)
    api = ess.api(read_secret=RotatedSecrets(key=json.dumps(secret)))
    with pytest.raises(Unauthorized, match=missing):
        api.groups([GROUP])
    assert ess.server.requests == []


def test_alicloud_secret_is_read_at_the_first_call_only() -> None:
    def unavailable(name: str) -> str:
        raise SecretUnavailable(f"secret {name}: no answer from AWS")

    api = EmulatedEss(0).api(read_secret=unavailable)
    with pytest.raises(Transient, match="no answer from AWS"):
        api.groups([GROUP])


def test_alicloud_missing_secret_needs_an_operator() -> None:
    def absent(name: str) -> str:
        raise BadInput(f"secret {name}", "does not exist", "create it")

    with pytest.raises(Unauthorized, match="does not exist"):
        EmulatedEss(0).api(read_secret=absent).groups([GROUP])
