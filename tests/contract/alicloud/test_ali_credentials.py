"""Ways to credentials, over the wire: key, role by key, role by OIDC token, metadata (alicloud.md §8, 1 to 4)."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.alicloud.credentials import of_this_process
from chalicelib.providers.errors import ProviderError, Unauthorized
from infra.emulators.alicloud.iam import Role
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.contract.alicloud.fixtures import seen
from tests.contract.provider_fixtures.alicloud import SECRET, AlicloudBench

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
    """A bench whose policy names an OIDC token instead of a key; its one group."""
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


def test_ALI_1_a_key_is_enough_and_an_unknown_group_says_what_to_check(bench: AlicloudBench) -> None:
    good = bench.add_group("g", size=1)
    bench.bind("asg-unknown", 0, 3)
    groups = {each.id: each for each in bench.provider().observe(bench.nodes()).groups}
    assert not groups[good].error
    assert "asg-unknown" in groups["asg-unknown"].error
    assert "cn-hangzhou" in groups["asg-unknown"].error


def test_ALI_1_a_group_of_another_region_is_not_found(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=1)
    bench.settings["region"] = "cn-beijing"
    assert "cn-beijing" in seen(bench, group).error


def test_ALI_2_a_clock_that_is_wrong_is_told_by_name_and_not_asked_for_ever(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    provider, nodes = bench.provider(), bench.nodes()
    bench.server.faults.next(VendorFault.OLD_TIME, times=-1)
    with pytest.raises(ProviderError) as caught:
        provider.observe(nodes)
    assert caught.value.code == "InvalidTimeStamp.Expired"
    assert len(bench.calls()) == 2  # once more with a new time stamp, and no more


def test_ALI_3_an_oidc_token_becomes_a_session_that_all_passes_of_a_process_share(bench: AlicloudBench) -> None:
    group = by_oidc(bench)
    assert len(seen(bench, group).instances) == 2
    first = actions(bench)
    assert first[0] == "AssumeRoleWithOIDC"
    assert len(seen(bench, group).instances) == 2
    assert "AssumeRoleWithOIDC" not in actions(bench)


def test_ALI_3_the_session_is_renewed_before_its_end_with_the_token_of_that_time(bench: AlicloudBench) -> None:
    group = by_oidc(bench)
    seen(bench, group)
    bench.texts["oidc-token"] = "header.second-identity-token.signature"
    bench.server.ring.identities[PROVIDER_ARN] = {bench.texts["oidc-token"]}
    bench.settle(3000.0)  # the session would be good for ten minutes more
    bench.calls()
    assert not seen(bench, group).error
    renewed = bench.look()
    assert renewed[0].action == "AssumeRoleWithOIDC"
    assert not renewed[0].code
    assert not [call for call in renewed if call.code]


def test_ALI_3_a_session_that_ended_too_early_is_replaced_once(bench: AlicloudBench) -> None:
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


def test_ALI_3_what_sts_refuses_is_a_matter_of_permissions_and_shows_no_token(
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


def test_ALI_3_a_role_is_taken_with_a_key_that_it_trusts(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=1)
    role(bench, bench.key_id)
    bench.settings["roleArn"] = ROLE_ARN
    assert len(seen(bench, group).instances) == 1
    calls = bench.look()
    assert calls[0].action == "AssumeRole"
    assert {call.key.startswith("STS.") for call in calls[1:]} == {True}


def test_ALI_3_a_role_that_does_not_trust_the_key_is_a_matter_of_permissions(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    role(bench, "LTAI-SOMEBODY-ELSE")
    bench.settings["roleArn"] = ROLE_ARN
    with pytest.raises(Unauthorized):
        bench.provider().observe(bench.nodes())


@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "token-protected"])
def test_ALI_4_an_instance_role_gives_credentials(bench: AlicloudBench, hardened: bool) -> None:
    group = bench.add_group("g", size=2)
    role(bench)
    bench.server.front.metadata.role, bench.server.front.metadata.hardened = ROLE_ARN, hardened
    bench.settings |= {"credentialsSecret": "", "metadataEndpoint": bench.server.url}
    assert len(seen(bench, group).instances) == 2
    assert next(call.method for call in bench.look() if call.action.startswith("metadata")) == "PUT"


def test_ALI_4_metadata_that_does_not_answer_is_given_up_within_three_seconds(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers
        bench.settings |= {"credentialsSecret": "", "metadataEndpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        began = time.monotonic()
        with pytest.raises(ProviderError):
            bench.provider().observe(())
        assert time.monotonic() - began < 3.0
    assert not bench.calls()


def test_ALI_DEFECT_16_a_half_filled_secret_names_what_is_missing_and_asks_no_metadata(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    bench.texts[SECRET] = '{"accessKeyId": "LTAI-HALF-A-KEY-1"}'
    with pytest.raises(ProviderError, match="accessKeySecret"):
        bench.provider().observe(())
    assert not bench.calls()


def test_ALI_DEFECT_1_the_signature_never_travels_without_tls_beyond_this_machine(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    bench.settings["essEndpoint"] = "http://ess.aliyuncs.example"
    with pytest.raises(OutscalerError, match="https"):
        bench.provider().observe(())
    assert not bench.calls()
