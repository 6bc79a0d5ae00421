"""Reads what vendors ask for a machine: amounts and currencies of an answer, and prices from an API
of prices. Other numbers that a vendor states of a kind of machine, such as how often it takes spot
machines back, are read alike.

Prices are an extra. A key may lack the permission, an API may be slow or down, and an answer may
be nonsense: then the machines have no price, and nothing else of the pass changes. So a pass makes
few calls in a short time, and a failure is remembered, for all functions, longer than it takes to
repeat it.

A price that is due to be read again is used until the vendor states a new one, with the
date of its reading. Prices that appear and disappear with the vendor's API would change
decisions back and forth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import isfinite

import msgspec

from chalicelib.model.group import DEAREST, NodeGroup
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    Unauthorized,
)
from chalicelib.providers.kit.http import Limits
from chalicelib.providers.kit.rate_limit import OWN_PACE
from chalicelib.providers.kit.services import TtlCache

LIMITS = Limits(connect=2.0, read=4.0, total=5.0, attempts=1, bytes=2**20)
"""Of one call to an API of prices: a single attempt, as a later pass tries again."""
_FRESH, _SPOT_FRESH = 6 * 3600.0, 3600.0  # seconds until a price is read again
_KEPT = 7 * 86400.0  # seconds for which a price is used that cannot be read again
# seconds until the next attempt, of everything that is an extra as prices are
DENIED_FOR, FAILED_FOR = 6 * 3600.0, 600.0
_UNPRICED = 3600.0
_MOST_CALLS, _LONGEST = 10, 5.0  # per pass: calls, and seconds after which no further one begins
_LONGEST_TEXT, _MOST_DIGITS = 200, 40
_API = ""  # the cache's name of what applies to all machines
_CODE = re.compile(r"[A-Z]{3}\Z", re.ASCII)


def currency_code(text: object) -> str:
    """Return an ISO 4217 code; "" for anything that cannot be one."""
    code = text.strip().upper() if isinstance(text, str) and len(text) < _MOST_DIGITS else ""
    return code if _CODE.match(code) else ""


def price_of(value: object) -> float:
    """Return a price, which may be text; 0.0 for anything that is no possible price."""
    if (
        isinstance(value, str)
        and len(value) <= _MOST_DIGITS
        and value.isascii()
        and "_" not in value
    ):
        try:
            value = float(value)
        except ValueError:
            return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= DEAREST:
        return 0.0
    return float(value) if isfinite(value) else 0.0


def within_limits(names: Iterable[str], now: Callable[[], float]) -> Iterator[str]:
    """Yield the names for which this pass may send a call: few, and for a short time."""
    began = now()
    for name in islice(names, _MOST_CALLS):
        if not 0 <= now() - began < _LONGEST:
            return
        yield name


class VendorPrice(msgspec.Struct, frozen=True, array_like=True):
    """What a vendor asks for a machine per hour. price 0.0: it states none, and error is the
    reason. at: when it was read, epoch seconds. due: when it is to be read again. denied: the
    key may not read prices."""

    price: float = 0.0
    currency: str = ""
    at: float = 0.0
    due: float = 0.0
    error: str = ""
    denied: bool = False


def with_price(
    group: NodeGroup, price: VendorPrice | None, *, spot: bool, error: str = ""
) -> NodeGroup:
    """Return the group with its price. price: None if the vendor was not asked,
    and error is the reason."""
    if price is None or not price.price:
        return msgspec.structs.replace(
            group, spot=spot, price_error=price.error if price is not None else error
        )
    return msgspec.structs.replace(
        group,
        spot=spot,
        price=price.price,
        currency=price.currency,
        priced_at=price.at,
        price_error="",
    )


class PriceReader:
    """Prices of machines of one account in one region, for one pass. ask: sends one call for a
    machine and returns price and currency, None if the vendor states none; raises ProviderError.
    permission: what the key needs for it. subject: what is read, in messages."""

    def __init__(
        self,
        cache: TtlCache[VendorPrice],
        ask: Callable[[str], tuple[float, str] | None],
        now: Callable[[], float],
        *,
        permission: str,
        subject: str = "prices",
    ) -> None:
        self._cache, self._ask, self._now, self._permission = cache, ask, now, permission
        self._subject = subject
        self.denied = ""
        """Why the key may not read prices; "" if it may, or if that is not known."""

    def read(self, names: Iterable[str], *, spot: Iterable[str] = ()) -> dict[str, VendorPrice]:
        """Return a price for every name, from the cache or the vendor. Never raises. spot: the
        names whose prices change often."""
        wanted, often = sorted(set(names)), frozenset(spot)
        cached = self._cache.get([_API, *wanted])
        known = {name: price for name in wanted if (price := cached.get(name)) is not None}
        due = [name for name in wanted if name not in known or known[name].due <= self._now()]
        stopped = cached.get(_API) or VendorPrice()
        if stopped.due <= self._now():
            stopped = self._read_due(due, often, known)
        self.denied = stopped.error if stopped.denied else ""
        missing = VendorPrice(error=stopped.error or "its price is read in a later pass")
        return {name: known.get(name, missing) for name in wanted}

    def _read_due(
        self, due: list[str], often: frozenset[str], known: dict[str, VendorPrice]
    ) -> VendorPrice:
        """Read prices into `known`, and return what stopped that, without
        an error if nothing did."""
        stopped, changed = VendorPrice(), dict[str, VendorPrice]()
        for name in within_limits(due, self._now):
            try:
                price = self._price(name, _SPOT_FRESH if name in often else _FRESH)
            except ProviderError as error:
                stopped = self._stop(error)
                break
            old_price = known.get(name, price)
            if not price.price and old_price.price and self._now() - old_price.at < _KEPT:
                price = msgspec.structs.replace(old_price, due=price.due)
            known[name] = changed[name] = price
        if stopped.due:
            changed[_API] = stopped
        self._cache.put(changed, known=_KEPT, unknown=0.0)
        return stopped

    def _price(self, name: str, fresh: float) -> VendorPrice:
        """Return the price of a machine. Raises ProviderError for a failure that
        is not about this machine."""
        error = "the vendor states no price for it"
        try:
            stated = self._ask(name)
        except (InvalidRequest, NotFound, OutOfStock) as refusal:
            stated, error = None, f"the vendor states no price: {refusal.message}"
        now = self._now()
        if stated is None:
            return VendorPrice(due=now + _UNPRICED, error=error[:_LONGEST_TEXT])
        return VendorPrice(*stated, at=now, due=now + fresh)

    def _stop(self, error: ProviderError) -> VendorPrice:
        """Return the failure of the API. Our own pace is over soon, so it is not remembered."""
        denied = isinstance(error, Unauthorized)
        text = f"{self._subject} could not be read: {error.described}"
        if denied:
            text = (
                f"the key may not read {self._subject} (it needs {self._permission}): "
                f"{error.message}"
            )
        pause = DENIED_FOR if denied else FAILED_FOR
        due = 0.0 if error.code == OWN_PACE else self._now() + pause
        return VendorPrice(due=due, error=text[:_LONGEST_TEXT], denied=denied)
