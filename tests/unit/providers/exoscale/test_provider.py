"""The provider as the registry builds it, and the errors that leave it (providers/base.py)."""

from __future__ import annotations

from typing import NoReturn

import pytest

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.base import Connection
from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.exoscale.decoding import NO_SIZE
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    A,
    FakeApiPool,
    FakeExoscaleApi,
    grow,
    operation,
    provider,
    remove,
    uuid,
)

SETTINGS = {"zone": "ch-gva-2", "credentialsSecret": "exo"}


def _unread(name: str) -> NoReturn:
    raise OutscalerError(f"{name} is not read here")


def connection(**settings: str) -> Connection:
    return Connection("ours", {**SETTINGS, **settings}, (GroupPolicy("exoscale", "web"),), _unread, None, lambda: 0.0)


def test_exoscale_provider_is_built_without_reading_or_sending_anything() -> None:
    assert registry.build("exoscale", connection()).name == "exoscale"


def test_exoscale_provider_invalid_settings_are_reported_when_it_is_built() -> None:
    with pytest.raises(BadInput, match=r"providers\.exoscale\.zone"):
        registry.build("exoscale", connection(zone="geneva"))


def asked() -> tuple[FakeExoscaleApi, list[tuple[str, Operation]]]:
    """Every kind of change, for a group of three that is to grow by one."""
    api = FakeExoscaleApi(FakeApiPool(size=3))
    api.all[A].size = 4
    polled = operation(OperationKind.DECREASE_TARGET, A, 4, 3)
    return api, [
        ("scale_up", grow(4, 5)),
        ("delete_nodes", remove(4, api.all[A].members[0])),
        ("decrease_target", polled),
        ("poll", grow(4, 5)),
        ("poll", polled),
        ("poll", remove(4, api.all[A].members[0])),
    ]


@each_row("error", [Throttled("429", retry_after=9.0), Transient("500"), Conflict("409")])
def test_exoscale_provider_raises_temporary_errors_of_every_change(error: ProviderError) -> None:
    api, changes = asked()
    for verb, each in changes:
        api.trouble["pool"] = [error]
        with pytest.raises(type(error)):
            getattr(provider(api), verb)(each)


@each_row("cls", [NotFound, Unauthorized, InvalidRequest, QuotaExceeded, OutOfStock, Unknown])
def test_exoscale_provider_returns_permanent_errors_with_class_and_code(cls: type[ProviderError]) -> None:
    api, changes = asked()
    for verb, each in changes:
        api.trouble["clusters"] = [cls("the vendor says no", code="V")]
        outcome = getattr(provider(api), verb)(each)
        assert isinstance(outcome, Failed)
        if not (
            cls is NotFound and each.spec.kind is OperationKind.DELETE_NODES
        ):  # then the provider checks whether its machines are gone
            assert (outcome.error_class, outcome.code) == (cls.__name__, "V")


def test_exoscale_provider_operation_on_an_unknown_group_does_not_crash() -> None:
    api = FakeExoscaleApi()
    for verb, each in asked()[1]:
        outcome = getattr(provider(api), verb)(each)
        assert (
            outcome.facts["removed"] == 1
            if each.spec.kind is OperationKind.DELETE_NODES
            else outcome.error_class == "NotFound"
        )
    assert provider(api).cancel_delete(remove(3, uuid(1, "i"))) is False


def test_exoscale_provider_pool_with_invalid_numbers_is_untouched() -> None:
    """Its Nodepool comes from a list in which it has no size (decoding.py)."""
    api, changes = asked()
    api.all[A].nodepool["size"] = NO_SIZE
    for verb, each in changes:
        outcome = getattr(provider(api), verb)(each)
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unknown"
    assert not api.writes()
