"""Tests credential sources over HTTP: access key, role by key, role by OIDC
token, instance metadata.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.alicloud.credentials import of_this_process
from chalicelib.providers.kit.errors import ProviderError, Unauthorized
from infra.emulators.alicloud.iam import Role
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.alicloud.fixture import SECRET, AlicloudBench, seen

PROVIDER_ARN = "acs:ram::1000000000000001:oidc-provider/outscaler"
ROLE_ARN = "acs:ram::1000000000000001:role/outscaler"
TOKEN = "header.first-identity-token.signature"


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    of_this_process.cache_clear()
    yield
    of_this_process.cache_clear()


@pytest.fixture
def bench() -> Iterator[AlicloudBench]:
    with AlicloudBench() as made:
        yield made


def role(bench: AlicloudBench, *trusts: str) -> None:
    bench.server.ring.roles[ROLE_ARN] = Role(ROLE_ARN, frozenset(trusts))


def by_oidc(bench: AlicloudBench) -> str:
    """Builds a bench whose policy names an OIDC token instead of a key, and its only group."""
    role(bench, PROVIDER_ARN)
    bench.server.ring.identities[PROVIDER_ARN] = {TOKEN}
    bench.texts["oidc-token"] = f"{TOKEN}\n"
    bench.settings |= {
        "credentialsSecret": "",
        "oidcProviderArn": PROVIDER_ARN,
        "roleArn": ROLE_ARN,
        "oidcTokenSecret": "oidc-token",
    }
    return bench.add_group("g", size=2)


def actions(bench: AlicloudBench) -> list[str]:
    return [call.action for call in bench.look()]


def test_alicloud_access_key_suffices_and_unknown_group_error_names_checks(
    bench: AlicloudBench,
) -> None:
    good = bench.add_group("g", size=1)
    bench.bind("asg-unknown", 0, 3)
    groups = {each.id: each for each in bench.provider().observe(bench.nodes()).groups}
    assert not groups[good].error
    assert "asg-unknown" in groups["asg-unknown"].error
    assert "cn-hangzhou" in groups["asg-unknown"].error


def test_alicloud_group_of_another_region_is_not_found(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=1)
    bench.settings["region"] = "cn-beijing"
    assert "cn-beijing" in seen(bench, group).error


def test_alicloud_wrong_clock_is_reported_and_not_retried_forever(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    provider, nodes = bench.provider(), bench.nodes()
    bench.server.faults.next(VendorFault.OLD_TIME, times=-1)
    with pytest.raises(ProviderError) as caught:
        provider.observe(nodes)
    assert caught.value.code == "InvalidTimeStamp.Expired"
    assert len(bench.calls()) == 2  # one retry with a new time stamp


def test_alicloud_oidc_session_is_shared_by_all_passes_of_a_process(bench: AlicloudBench) -> None:
    group = by_oidc(bench)
    assert len(seen(bench, group).instances) == 2
    first = actions(bench)
    assert first[0] == "AssumeRoleWithOIDC"
    assert len(seen(bench, group).instances) == 2
    assert "AssumeRoleWithOIDC" not in actions(bench)


def test_alicloud_oidc_session_is_renewed_early_with_the_current_token(
    bench: AlicloudBench,
) -> None:
    group = by_oidc(bench)
    seen(bench, group)
    bench.texts["oidc-token"] = "header.second-identity-token.signature"
    bench.server.ring.identities[PROVIDER_ARN] = {bench.texts["oidc-token"]}
    bench.settle(3000.0)  # the session is valid for ten more minutes
    bench.calls()
    assert not seen(bench, group).error
    renewed = bench.look()
    assert renewed[0].action == "AssumeRoleWithOIDC"
    assert not renewed[0].code
    assert not [call for call in renewed if call.code]


def test_alicloud_session_that_ends_too_early_is_replaced_once(bench: AlicloudBench) -> None:
    group = by_oidc(bench)
    seen(bench, group)
    for key in bench.server.ring.keys.values():
        if key.token:
            key.expires = bench.now()
    bench.calls()
    assert not seen(bench, group).error
    calls = bench.look()
    assert [call.code for call in calls[:2]] == ["InvalidSecurityToken.Expired", ""]
    assert calls[1].action == "AssumeRoleWithOIDC"


def test_alicloud_sts_refusal_is_a_permission_error_and_hides_the_token(
    bench: AlicloudBench, caplog: pytest.LogCaptureFixture
) -> None:
    by_oidc(bench)
    bench.server.ring.identities.clear()
    nodes = bench.nodes()
    with caplog.at_level(logging.DEBUG), pytest.raises(Unauthorized) as caught:
        bench.provider().observe(nodes)
    assert caught.value.code == "AuthenticationFail.OIDCToken.Invalid"
    said = caplog.text + repr(caught.value) + str(caught.value)
    assert not [secret for secret in (TOKEN, *bench.secrets()) if secret in said]


def test_alicloud_role_is_assumed_with_a_key_that_it_trusts(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=1)
    role(bench, bench.key_id)
    bench.settings["roleArn"] = ROLE_ARN
    assert len(seen(bench, group).instances) == 1
    calls = bench.look()
    assert calls[0].action == "AssumeRole"
    assert {call.key.startswith("STS.") for call in calls[1:]} == {True}


def test_alicloud_role_that_does_not_trust_the_key_is_a_permission_error(
    bench: AlicloudBench,
) -> None:
    bench.add_group("g", size=1)
    role(bench, "LTAI-SOMEBODY-ELSE")
    bench.settings["roleArn"] = ROLE_ARN
    with pytest.raises(Unauthorized):
        bench.provider().observe(bench.nodes())


@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "token-protected"])
def test_alicloud_instance_role_provides_credentials(bench: AlicloudBench, hardened: bool) -> None:
    group = bench.add_group("g", size=2)
    role(bench)
    bench.server.front.metadata.role, bench.server.front.metadata.hardened = ROLE_ARN, hardened
    bench.settings |= {"credentialsSecret": "", "metadataEndpoint": bench.server.url}
    assert len(seen(bench, group).instances) == 2
    assert next(call.method for call in bench.look() if call.action.startswith("metadata")) == "PUT"


def test_alicloud_silent_metadata_service_is_abandoned(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound but not listening, so that connections time out
        bench.settings |= {
            "credentialsSecret": "",
            "metadataEndpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        with pytest.raises(ProviderError):
            bench.provider().observe(())
    assert not bench.calls()


def test_alicloud_incomplete_secret_names_missing_key_and_skips_metadata(
    bench: AlicloudBench,
) -> None:
    bench.add_group("g", size=1)
    bench.texts[SECRET] = '{"accessKeyId": "LTAI-HALF-A-KEY-1"}'
    with pytest.raises(ProviderError, match="accessKeySecret"):
        bench.provider().observe(())
    assert not bench.calls()


def test_alicloud_signed_requests_require_tls_outside_localhost(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    bench.settings["essEndpoint"] = "http://ess.aliyuncs.example"
    with pytest.raises(OutscalerError, match="https"):
        bench.provider().observe(())
    assert not bench.calls()
