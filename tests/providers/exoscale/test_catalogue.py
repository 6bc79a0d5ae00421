"""The list of instance types: rows that cannot be read, and types that cannot be bought here."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.providers.exoscale.catalogue import read_catalogue
from chalicelib.providers.kit.errors import ProviderError, Unauthorized
from infra.emulators.exoscale.account import example_id
from infra.emulators.vendor_common.http_messages import scripted
from tests.providers.exoscale.fixture import ExoscaleFixture, opened

TYPE = {"family": "standard", "size": "medium", "cpus": 2, "memory": 2**32, "authorized": True}


def row(number: int = 1, **fields: Any) -> dict[str, Any]:
    return TYPE | {"id": example_id("kind", number)} | fields


def names(zone: ExoscaleFixture, *rows: object) -> list[str]:
    zone.server.reply("GET /v2/instance-type$", scripted(200, {"instance-types": list(rows)}))
    return [entry.name for entry in read_catalogue(zone.api(), "EUR").entries]


ODD_ROWS = {
    "no object": 7,
    "no id": TYPE,
    "no name": row(2, size=""),
    "no family": row(2, family=""),
    "no cores": row(2, cpus=0),
    "negative memory": row(2, memory=-1),
    "not a number": row(2, cpus="many"),
    "not for this organisation": row(2, authorized=False),
    "another zone": row(2, zones=["de-fra-1"]),
}


@pytest.mark.parametrize("odd", ODD_ROWS.values(), ids=ODD_ROWS)
def test_type_that_cannot_be_read_or_bought_hides_no_other(odd: object) -> None:
    assert names(opened(), row(), odd, row(3, size="large")) == [
        "standard.large",
        "standard.medium",
    ]


def test_list_of_which_nothing_can_be_read_is_an_error() -> None:
    with pytest.raises(ProviderError, match="nothing in it has an id"):
        names(opened(), 7, None)


def test_key_without_the_right_is_told_apart() -> None:
    zone = opened()
    zone.deny("list-instance-types")
    with pytest.raises(Unauthorized):
        read_catalogue(zone.api(), "EUR")
