"""The row in which a deployment says what its functions permit policies to name."""

from __future__ import annotations

import pytest

from chalicelib.model.policy_permissions import Deployment
from chalicelib.store.errors import StoreError
from chalicelib.store.tables import DEPLOYMENT_PARTITION, SETTINGS_ITEM, SettingsRow
from tests.unit.store.support import StoreFixture

SETTINGS = Deployment(
    secret_prefix="outscaler/dev/",
    shared_secrets=frozenset({"outscaler/shared/exoscale", "ssm:/outscaler/shared/alicloud"}),
    endpoints=frozenset({"api.example.com", "proxy.example.com:8443"}),
)


def test_deployment_that_has_published_nothing_is_none(bench: StoreFixture) -> None:
    row = bench.store.policy_table.delete(DEPLOYMENT_PARTITION, SETTINGS_ITEM)
    bench.store.policy_table.write(row)
    assert bench.store.deployment_settings().read() is None


def test_published_settings_are_read_as_the_functions_have_them(bench: StoreFixture) -> None:
    bench.store.deployment_settings().publish(SETTINGS)
    assert bench.store.deployment_settings().read() == SETTINGS


def test_published_settings_are_replaced_by_the_next_deployment(bench: StoreFixture) -> None:
    bench.store.deployment_settings().publish(SETTINGS)
    bench.store.deployment_settings().publish(Deployment(secret_prefix="other/", loopback=True))
    assert bench.store.deployment_settings().read() == Deployment(
        secret_prefix="other/", loopback=True
    )


def test_row_of_settings_is_no_cluster(bench: StoreFixture) -> None:
    bench.store.deployment_settings().publish(SETTINGS)
    assert DEPLOYMENT_PARTITION not in bench.store.policies.names()
    assert bench.store.pauses.all_current() == {}


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"secretPrefix": 1}', '{"secretPrefix": "no end"}', '{"sharedSecrets": ""}'],
)
def test_row_of_settings_that_cannot_be_read_is_an_error(bench: StoreFixture, text: str) -> None:
    table = bench.store.policy_table
    table.write(table.put(SettingsRow(DEPLOYMENT_PARTITION, SETTINGS_ITEM, text=text)))
    with pytest.raises(StoreError, match=r"published|environment: OUTSCALER_SECRET_PREFIX"):
        bench.store.deployment_settings().read()


def test_settings_of_a_later_release_keep_what_this_one_knows(bench: StoreFixture) -> None:
    table = bench.store.policy_table
    text = '{"secretPrefix": "outscaler/dev/", "further": [1]}'
    table.write(table.put(SettingsRow(DEPLOYMENT_PARTITION, SETTINGS_ITEM, text=text)))
    assert bench.store.deployment_settings().read() == Deployment(secret_prefix="outscaler/dev/")
