"""Who shares a budget of calls: those who sign with the same long-lived credential; to
know its id is not enough.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest

from chalicelib.model.secret import Secret
from chalicelib.providers.kit.credential_source import account_digest
from chalicelib.providers.kit.errors import ProviderError
from tests.providers.alicloud.emulated import KEY_ID, answering, groups_page
from tests.providers.cherryservers.emulated import EmulatedCloud
from tests.providers.emulated import RecordedLimits
from tests.providers.exoscale.fixture import opened
from tests.providers.huaweicloud.emulated import EmulatedCce


def of_alicloud(name: str, secret: str, token: str = "") -> str:
    """The budget's key of a call with that credential. The vendor may refuse it."""
    limits = RecordedLimits()
    text = {"accessKeyId": name, "accessKeySecret": secret, "securityToken": token}
    api = answering(lambda _: groups_page("asg-1")).api(
        limits=limits, read_secret=lambda _: json.dumps(text)
    )
    with suppress(ProviderError):
        api.groups(["asg-1"])
    return limits.granted[0][0]


def of_exoscale(name: str, secret: str) -> str:
    """See of_alicloud."""
    zone = opened()
    zone._pacer = limits = RecordedLimits()  # type: ignore[assignment]
    with suppress(ProviderError):
        zone.api(lambda _: json.dumps({"apiKey": name, "apiSecret": secret})).pools()
    return limits.granted[0][0]


def of_huawei(name: str, secret: str, token: str = "") -> str:
    """See of_alicloud."""
    cce = EmulatedCce()
    cce.rate_limiter = limits = RecordedLimits()
    text = {"accessKey": name, "secretKey": secret, "securityToken": token}
    with suppress(ProviderError):
        cce.api(lambda _: json.dumps(text)).pools()
    return limits.granted[0][0]


def of_cherry(name: str, secret: str) -> str:
    """See of_alicloud; the vendor's token has no id, only a beginning."""
    cloud = EmulatedCloud()
    cloud._pacer = limits = RecordedLimits()  # type: ignore[assignment]
    with suppress(ProviderError):
        cloud.api(lambda _: f"{name}.{secret}").servers()
    return limits.granted[0][0]


VENDORS: list[Callable[[str, str], str]] = [of_alicloud, of_exoscale, of_huawei, of_cherry]


@pytest.mark.parametrize("budget_of", VENDORS)
def test_budget_of_a_key_is_not_shared_by_who_knows_its_id_only(
    budget_of: Callable[[str, str], str],
) -> None:
    own, same = budget_of("EXOID", "a-long-secret"), budget_of("EXOID", "a-long-secret")
    stranger = budget_of("EXOID", "any-other-secret")
    assert own == same
    assert own != stranger
    assert "a-long-secret" not in own
    assert "EXOID" not in own


@pytest.mark.parametrize("budget_of", [of_alicloud, of_huawei])
def test_budget_of_a_temporary_key_in_a_secret_does_not_change_with_it(
    budget_of: Callable[..., str],
) -> None:
    first, renewed = (
        budget_of("id-1", "secret-1", "token-1"),
        budget_of("id-2", "secret-2", "token-2"),
    )
    assert first == renewed
    assert first != budget_of("id-1", "secret-1")


def test_account_digest_depends_on_each_part_and_on_where_it_ends() -> None:
    secret = Secret("secret")
    digests = [
        account_digest(secret, "ab", "c"),
        account_digest(secret, "a", "bc"),
        account_digest(secret, "ab"),
        account_digest(secret, "ab", "c", ""),
        account_digest(Secret("secret2"), "ab", "c"),
        account_digest(None, "ab", "c"),
    ]
    assert len(set(digests)) == len(digests)
    assert KEY_ID not in "".join(digests)
