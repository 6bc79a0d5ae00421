"""The provider as the registry builds it."""

from __future__ import annotations

from typing import NoReturn

import pytest

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection

SETTINGS = {"zone": "ch-gva-2", "credentialsSecret": "exo"}


def _unread(name: str) -> NoReturn:
    raise OutscalerError(f"{name} is not read here")


def connection(**settings: str) -> Connection:
    return Connection(
        "ours",
        {**SETTINGS, **settings},
        (GroupPolicy("exoscale", "web"),),
        _unread,
        None,
        lambda: 0.0,
    )


def test_exoscale_provider_is_built_without_reading_or_sending_anything() -> None:
    assert registry.build("exoscale", connection()).name == "exoscale"


def test_exoscale_provider_invalid_settings_are_reported_when_it_is_built() -> None:
    with pytest.raises(BadInput, match=r"providers\.exoscale\.zone"):
        registry.build("exoscale", connection(zone="geneva"))
