"""Secrets are read again after a minute; while AWS does not answer, the last value is used."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from chalicelib.aws.secrets_manager import SecretsManagerReader
from chalicelib.model.secret import SecretUnavailable
from chalicelib.runtime.runtime import SECRET_KEPT_FOR, SecretCache
from infra.emulators.controllers.clock import ManualClock


class SecretsManager:
    """The part of the client that is used; stops answering on request."""

    def __init__(self) -> None:
        self.value, self.calls, self.silent = "first", 0, False

    def get_secret_value(self, **_: Any) -> dict[str, str]:
        self.calls += 1
        if self.silent:
            raise EndpointConnectionError(endpoint_url="https://secretsmanager.example")
        return {"SecretString": self.value}


def test_secret_is_cached_for_a_minute() -> None:
    manager, clock = SecretsManager(), ManualClock(0.0)
    secrets = SecretCache(SecretsManagerReader(manager), clock)
    assert [secrets("a"), secrets("a")] == ["first", "first"]
    manager.value = "second"
    clock.advance(SECRET_KEPT_FOR - 1)
    assert (secrets("a"), manager.calls) == ("first", 1)
    clock.advance(1)
    assert (secrets("a"), manager.calls) == ("second", 2)
    assert secrets.fresh("a") == "second"


def test_secret_outage_is_bridged_with_the_last_value() -> None:
    manager, clock = SecretsManager(), ManualClock(0.0)
    secrets = SecretCache(SecretsManagerReader(manager), clock)
    assert secrets("a") == "first"
    clock.advance(SECRET_KEPT_FOR)
    manager.silent = True
    assert secrets("a") == "first"
    with pytest.raises(SecretUnavailable):
        secrets("b")
