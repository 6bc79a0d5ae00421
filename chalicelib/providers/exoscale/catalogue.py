"""The instance types of a zone, and their prices from the vendor's public list.

The list is the same for all zones. It names a type by its size, and by its family where that is not
`standard`: `running_medium`, `running_gpu3_small`. The price of a type does not contain its disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import InstanceType
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError
from chalicelib.providers.kit.http import VendorResponse
from chalicelib.providers.kit.price_reader import price_of

CURRENCIES = ("CHF", "EUR", "USD")
_USUAL_FAMILY = "standard"
_DISK = "volume"


def read_catalogue(api: ExoscaleApi, currency: str) -> Catalogue:
    """Return the types that the organisation may use in the API's zone. Without the price list they
    have no prices. currency: one of CURRENCIES. Raises ProviderError."""
    if currency not in CURRENCIES:
        problem = f"there is no price list in {currency}, but in {', '.join(CURRENCIES)}"
        raise InvalidRequest(problem, code="Currency")
    prices: Mapping[str, float] = {}
    gaps: tuple[str, ...] = ()
    instance_types = api.all_instance_types()
    try:
        prices = read_prices(api.price_list(), currency)
    except ProviderError as error:
        gaps = (f"prices: {error}",)
    entries = [
        _entry(instance_type, api.zone, prices)
        for instance_type in instance_types
        if _is_sold(instance_type, api.zone)
    ]
    entries.sort(key=lambda entry: entry.name)
    return Catalogue(currency, tuple(entries), prices.get(_DISK), gaps)


def catalogue_currency(wanted: str) -> str:
    """Return the currency of prices for a policy's, "" for none."""
    return wanted if wanted in CURRENCIES else "EUR"


def read_prices(response: VendorResponse, currency: str) -> dict[str, float]:
    """Return the prices of the list by their names. Raises Unknown if it has none in this
    currency, Transient if it is not JSON."""
    body: Mapping[str, Any] = response.read_object()
    rows = body.get(currency.lower())
    if not isinstance(rows, dict):
        raise response.shape_error(f"it has no prices in {currency}")
    return {name: price for name, value in rows.items() if (price := price_of(value))}


def _is_sold(instance_type: InstanceType, zone: str) -> bool:
    zones = instance_type.zones or (zone,)
    is_named = bool(instance_type.family and instance_type.size)
    has_room = instance_type.cpus > 0 and instance_type.memory > 0
    return is_named and has_room and instance_type.authorized and zone in zones


def _entry(instance_type: InstanceType, zone: str, prices: Mapping[str, float]) -> CatalogueEntry:
    family, size = instance_type.family, instance_type.size
    in_list = size if family == _USUAL_FAMILY else f"{family}_{size}"
    return CatalogueEntry(
        name=f"{family}.{size}",
        family=family,
        zone=zone,
        cores=instance_type.cpus,
        memory=instance_type.memory,
        gpus=instance_type.gpus,
        vendor_id=instance_type.id,
        price=prices.get(f"running_{in_list}".replace("-", "_").lower()),
    )
