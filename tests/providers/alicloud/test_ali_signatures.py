"""Tests the emulator's signature check with the vendor's signature vectors and
every reason for a refusal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest

from infra.emulators.alicloud.authentication import AlicloudAuthenticator
from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.iam import AlicloudKey, AlicloudKeyRing, read_policy
from infra.emulators.alicloud.signing import (
    acs3_request,
    acs3_signature,
    canonical_query,
    rpc_signature,
)
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.vendor_common.http_messages import Incoming

KEY, SECRET = "LTAI-EXAMPLE-KEY-ID", "example-key-secret-0123456789"
AT = 1_768_465_800.0  # 2026-01-15T08:30:00Z
NONCE = "5f2a0b5c7d1e4c0f9a3b6d8e7f001122"
TOKEN_C = "CAISexampleSecurityToken=="
COMMON = {
    "AccessKeyId": KEY,
    "Format": "JSON",
    "RegionId": "cn-hangzhou",
    "SignatureMethod": "HMAC-SHA1",
    "ScalingGroupId": "asg-bp1exampl3group00001",
    "SignatureNonce": NONCE,
    "SignatureVersion": "1.0",
    "Timestamp": "2026-01-15T08:30:00Z",
    "Version": "2014-08-28",
}
A = COMMON | {
    "Action": "ScaleWithAdjustment",
    "ActivityMetadata": '{"cluster-autoscaler/alicloud/managed":"true"}',
    "AdjustmentType": "TotalCapacity",
    "AdjustmentValue": "5",
    "ClientToken": "ca-asg-bp1exampl3group00001-5-0001",
    "SignatureType": "",
    "SyncActivity": "true",
}
B = COMMON | {
    "Action": "DescribeScalingInstances",
    "PageNumber": "1",
    "PageSize": "50",
    "SecurityToken": "CAIS+example/Security*Token~==",
}
C = {
    "ClientToken": "ca-remove-0001",
    "DecreaseDesiredCapacity": "true",
    "InstanceIds.1": "i-bp1exampl3node00001",
    "InstanceIds.2": "i-bp1exampl3node00002",
    "RegionId": "cn-hangzhou",
    "ScalingGroupId": "asg-bp1exampl3group00001",
}
HEADERS = {
    "host": "ess.aliyuncs.com",
    "x-acs-action": "RemoveInstances",
    "x-acs-version": "2022-02-22",
    "x-acs-date": "2026-01-15T08:30:00Z",
    "x-acs-signature-nonce": NONCE,
    "x-acs-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}
SIGNATURE_C = "b961d7ac5a8c2b5a572c875d6a02b37eb3c113250321bfac6ceb02d96dc52740"


def rpc(sent: Mapping[str, str], method: str = "POST", **more: str) -> Incoming:
    return Incoming(method, f"/?{urlencode({**sent, **more})}", {"host": "ess.aliyuncs.com"})


def acs3(sent: Mapping[str, str] = C, signature: str = "", **changed: str) -> Incoming:
    """Returns vector C with changed headers (`_` for `-`), signed as sent
    unless a signature is given."""
    headers = HEADERS | {name.replace("_", "-"): value for name, value in changed.items()}
    bare = Incoming("POST", f"/?{canonical_query(sent.items())}", headers)
    signature = signature or acs3_signature(bare, tuple(headers), SECRET)
    reported = (
        f"ACS3-HMAC-SHA256 Credential={KEY},SignedHeaders={';'.join(sorted(headers))},Signature="
        f"{signature}"
    )
    return Incoming("POST", bare.target, {**headers, "authorization": reported})


def gate(
    ring: AlicloudKeyRing | None = None, at: float = AT
) -> tuple[AlicloudAuthenticator, ManualClock]:
    clock = ManualClock(at)
    if ring is None:
        ring = AlicloudKeyRing()
        ring.add(KEY, SECRET)
    return AlicloudAuthenticator(ring, clock), clock


def refused(guard: AlicloudAuthenticator, incoming: Incoming) -> str:
    with pytest.raises(AlicloudRefusedError) as caught:
        guard.admit(incoming)
    return caught.value.code


def test_alicloud_signature_vector_a_of_the_older_version() -> None:
    assert rpc_signature(rpc(A), SECRET) == "4NgM17HpVCUzBZRqeZMcAnnLwsc="


def test_alicloud_signature_vector_b_with_session_and_special_characters() -> None:
    assert rpc_signature(rpc(B), SECRET) == "8lDCAKe3shTfGt6peubnWVxX6e0="
    assert rpc_signature(rpc(B, "GET"), SECRET) == "Xnmx8O8brvlT9ktBZabCwYjyr5A="


def test_alicloud_signature_vector_c_with_and_without_a_session() -> None:
    plain = acs3()
    digest = hashlib.sha256(acs3_request(plain, tuple(HEADERS)).encode()).hexdigest()
    assert digest == "9c50cb10ae17b3d17ab34dc56b84443c028c51738a6872a2b5d8b4c7e492262f"
    assert acs3_signature(plain, tuple(HEADERS), SECRET) == SIGNATURE_C
    session = acs3(x_acs_accesskey_id=KEY, x_acs_security_token=TOKEN_C)
    signed = (*HEADERS, "x-acs-accesskey-id", "x-acs-security-token")
    digest = hashlib.sha256(acs3_request(session, signed).encode()).hexdigest()
    assert digest == "7ecf49e0c3ec6a52852eb985f8a16fef453eb9f5bbcbe431ff5f08607e7393a8"
    assert (
        acs3_signature(session, signed, SECRET)
        == "0fbc29766146e69b8bb53df0413749e61ab21f13ddf42b0d407ce36d9d1d1ddb"
    )


def test_alicloud_emulator_accepts_the_signature_vectors() -> None:
    assert gate()[0].admit(acs3(signature=SIGNATURE_C)).id == KEY
    assert gate()[0].admit(rpc(A, Signature="4NgM17HpVCUzBZRqeZMcAnnLwsc=")).id == KEY
    ring = AlicloudKeyRing()
    ring.keys[KEY] = AlicloudKey(KEY, SECRET, token=B["SecurityToken"], expires=AT + 1.0)
    assert gate(ring)[0].admit(rpc(B, Signature="8lDCAKe3shTfGt6peubnWVxX6e0=")).id == KEY


def test_alicloud_emulator_refuses_a_signature_with_one_changed_byte() -> None:
    guard, _ = gate()
    assert (
        refused(guard, acs3({**C, "InstanceIds.2": "i-bp1exampl3node00003"}, SIGNATURE_C))
        == "SignatureDoesNotMatch"
    )
    assert (
        refused(guard, acs3(signature=SIGNATURE_C, host="ecs.aliyuncs.com"))
        == "SignatureDoesNotMatch"
    )
    altered = rpc({**A, "AdjustmentValue": "6"}, Signature="4NgM17HpVCUzBZRqeZMcAnnLwsc=")
    assert refused(guard, altered) == "SignatureDoesNotMatch"
    with_body = Incoming("POST", acs3().target, acs3().headers, b"x")
    assert refused(guard, with_body) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("ahead", "good"), [(899.0, True), (901.0, False), (-899.0, True), (-901.0, False)]
)
def test_alicloud_emulator_accepts_time_stamps_within_fifteen_minutes(
    ahead: float, good: bool
) -> None:
    guard, _ = gate(at=AT + ahead)
    if good:
        assert guard.admit(acs3()).id == KEY
    else:
        assert refused(guard, acs3()) == "InvalidTimeStamp.Expired"


def test_alicloud_emulator_accepts_a_nonce_once() -> None:
    guard, clock = gate()
    guard.admit(acs3())
    assert refused(guard, acs3()) == "SignatureNonceUsed"
    assert guard.admit(acs3(x_acs_signature_nonce="another")).id == KEY
    clock.advance(60.0)
    assert refused(guard, acs3()) == "SignatureNonceUsed"


def test_alicloud_emulator_requires_every_significant_header_to_be_signed() -> None:
    sent = acs3(content_type="application/x-www-form-urlencoded")
    reported = sent.headers["authorization"].replace("content-type;", "")
    assert (
        refused(
            gate()[0], Incoming("POST", sent.target, {**sent.headers, "authorization": reported})
        )
        == "IncompleteSignature"
    )
    assert refused(gate()[0], Incoming("POST", sent.target, HEADERS)) == "IncompleteSignature"


def test_alicloud_emulator_refuses_unknown_disabled_and_expired_keys_by_code() -> None:
    ring = AlicloudKeyRing()
    assert refused(gate(ring)[0], acs3()) == "InvalidAccessKeyId.NotFound"
    ring.add(KEY, SECRET).active = False
    assert refused(gate(ring)[0], acs3()) == "InvalidAccessKeyId.Inactive"
    ring.keys[KEY] = AlicloudKey(KEY, SECRET, token=TOKEN_C, expires=AT)
    assert refused(gate(ring)[0], acs3()) == "MissingSecurityToken"
    assert (
        refused(gate(ring)[0], acs3(x_acs_security_token="other"))
        == "InvalidSecurityToken.MismatchWithAccessKey"
    )
    assert (
        refused(gate(ring)[0], acs3(x_acs_security_token=TOKEN_C)) == "InvalidSecurityToken.Expired"
    )


def test_alicloud_emulator_policy_allows_its_actions_and_a_denial_wins() -> None:
    text = """{"Version": "1", "Statement": [
        {"Effect": "Allow", "Action": "ess:*", "Resource": "*"},
        {"Effect": "Deny", "Action": ["ess:RemoveInstances"], "Resource": \
"acs:ess:*:*:scalinggroup/asg-keep"}]}"""
    policy = read_policy(text)
    assert policy.allows("ess:RemoveInstances", "acs:ess:cn-hangzhou:1:scalinggroup/asg-1")
    assert not policy.allows("ess:RemoveInstances", "acs:ess:cn-hangzhou:1:scalinggroup/asg-keep")
    assert not policy.allows("ecs:DescribeInstanceTypes", "*")
    with pytest.raises(ValueError, match="Version"):
        read_policy('{"Version": "2012-10-17", "Statement": []}')


def test_alicloud_role_session_has_its_own_secret() -> None:
    ring = AlicloudKeyRing()
    first, second = (ring.session(None, AT) for _ in range(2))
    assert first.id != second.id
    assert {first.secret, first.token, second.secret, second.token} <= set(ring.secrets())
