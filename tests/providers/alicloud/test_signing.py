"""The vendor's current signature version against known vectors."""

from __future__ import annotations

import hashlib

from chalicelib.model.secret import Secret
from chalicelib.providers.alicloud.signing import (
    canonical_query,
    canonical_request,
    signed_headers,
    unsigned_headers,
)
from tests.cases import each_row

KEY_ID, KEY_SECRET = "LTAI-EXAMPLE-KEY-ID", Secret("example-key-secret-0123456789")
NONCE = "5f2a0b5c7d1e4c0f9a3b6d8e7f001122"
HALF_PAST_EIGHT = 1768465800.0  # 2026-01-15T08:30:00Z
PARAMS = {
    "ScalingGroupId": "asg-bp1exampl3group00001",
    "RegionId": "cn-hangzhou",
    "InstanceIds.2": "i-bp1exampl3node00002",
    "InstanceIds.1": "i-bp1exampl3node00001",
    "DecreaseDesiredCapacity": "true",
    "ClientToken": "ca-remove-0001",
}
QUERY = (
    "ClientToken=ca-remove-0001&DecreaseDesiredCapacity=true&InstanceIds.1=i-bp1exampl3node00001"
    "&InstanceIds.2=i-bp1exampl3node00002&RegionId=cn-hangzhou&ScalingGroupId=asg-"
    "bp1exampl3group00001"
)


def headers() -> dict[str, str]:
    return unsigned_headers(
        host="ess.aliyuncs.com",
        action="RemoveInstances",
        version="2022-02-22",
        now=HALF_PAST_EIGHT,
        nonce=NONCE,
    )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_alicloud_signing_vector_c_without_a_session() -> None:
    assert canonical_query(PARAMS) == QUERY
    assert digest(canonical_request(headers(), QUERY)) == (
        "9c50cb10ae17b3d17ab34dc56b84443c028c51738a6872a2b5d8b4c7e492262f"
    )
    assert signed_headers(headers(), QUERY, key_id=KEY_ID, key_secret=KEY_SECRET)[
        "authorization"
    ] == (
        "ACS3-HMAC-SHA256 Credential=LTAI-EXAMPLE-KEY-ID,"
        "SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-"
        "acs-version,"
        "Signature=b961d7ac5a8c2b5a572c875d6a02b37eb3c113250321bfac6ceb02d96dc52740"
    )


def test_alicloud_signing_vector_c_with_a_session() -> None:
    signed = signed_headers(
        headers(),
        QUERY,
        key_id=KEY_ID,
        key_secret=KEY_SECRET,
        secret=Secret("CAISexampleSecurityToken=="),
    )
    assert signed["x-acs-accesskey-id"] == KEY_ID
    assert signed["x-acs-security-token"] == "CAISexampleSecurityToken=="
    authorization = signed.pop("authorization")
    assert digest(canonical_request(signed, QUERY)) == (
        "7ecf49e0c3ec6a52852eb985f8a16fef453eb9f5bbcbe431ff5f08607e7393a8"
    )
    assert authorization.endswith(
        "Signature=0fbc29766146e69b8bb53df0413749e61ab21f13ddf42b0d407ce36d9d1d1ddb"
    )


@each_row(
    ("text", "encoded"),
    [
        ("a b", "a%20b"),
        ("*", "%2A"),
        ("~-_.", "~-_."),
        ("/:=&+", "%2F%3A%3D%26%2B"),
        ("北京", "%E5%8C%97%E4%BA%AC"),
        ('{"a":"b"}', "%7B%22a%22%3A%22b%22%7D"),
        ("%41", "%2541"),
    ],
)
def test_alicloud_signing_encodes_keys_and_values_by_rfc_3986(text: str, encoded: str) -> None:
    assert canonical_query({text: text}) == f"{encoded}={encoded}"


def test_alicloud_signing_covers_every_header_and_byte() -> None:
    first = signed_headers(
        headers() | {"content-type": "x"}, QUERY, key_id=KEY_ID, key_secret=KEY_SECRET
    )
    other = signed_headers(
        headers() | {"content-type": "y"}, QUERY, key_id=KEY_ID, key_secret=KEY_SECRET
    )
    assert "SignedHeaders=content-type;host;" in first["authorization"]
    assert first["authorization"] != other["authorization"]
