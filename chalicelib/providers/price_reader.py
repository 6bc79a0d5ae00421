"""Reads what vendors ask for a machine: amounts and currencies of an answer, and prices from an API of prices.

Prices are an extra. A key may lack the permission, an API may be slow or down, and an answer may be nonsense: then the
machines have no price, and nothing else of the pass changes. So a pass makes few calls in a short time, and a failure
is remembered, for all functions, longer than it takes to repeat it.

A price that is due to be read again is used until the vendor states a new one, with the date of its reading. Prices
that appear and disappear with the vendor's API would change decisions back and forth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import isfinite

import msgspec

from chalicelib.model.group import DEAREST
from chalicelib.providers.errors import InvalidRequest, NotFound, OutOfStock, ProviderError, Unauthorized
from chalicelib.providers.http import Limits
from chalicelib.providers.rate_limit import OWN_PACE
from chalicelib.providers.services import TtlCache

LIMITS = Limits(connect=2.0, read=4.0, total=5.0, attempts=1, bytes=2**20)
"""Of one call to an API of prices: a single attempt, as a later pass tries again."""
_FRESH, _SPOT_FRESH = 6 * 3600.0, 3600.0  # seconds until a price is read again
_KEPT = 7 * 86400.0  # seconds for which a price is used that cannot be read again
_DENIED, _FAILED, _UNPRICED = 6 * 3600.0, 600.0, 3600.0  # seconds until the next attempt
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
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and value.isascii() and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= DEAREST:
        return 0.0
    return float(value) if isfinite(value) else 0.0


class VendorPrice(msgspec.Struct, frozen=True, array_like=True):
    """What a vendor asks for a machine per hour. price 0.0: it states none, and error is the reason. at: when it was
    read, epoch seconds. due: when it is to be read again. denied: the
    key may not read prices."""

    price: float = 0.0
    currency: str = ""
    at: float = 0.0
    due: float = 0.0
    error: str = ""
    denied: bool = False


class PriceReader:
    """Prices of machines of one account in one region, for one pass. lot: machines per call. ask: sends one call for
    some machines and returns (price, currency) by name, without those that have none; raises ProviderError.
    permission: what the key needs for it."""

    def __init__(
        self,
        cache: TtlCache[VendorPrice],
        ask: Callable[[list[str]], dict[str, tuple[float, str]]],
        now: Callable[[], float],
        *,
        permission: str,
        lot: int = 1,
    ) -> None:
        self._cache, self._ask, self._now = cache, ask, now
        self._permission, self._lot = permission, lot
        self.denied = ""
        """Why the key may not read prices; "" if it may, or if that is not known."""

    def read(self, names: Iterable[str], *, spot: Iterable[str] = ()) -> dict[str, VendorPrice]:
        """Return a price for every name, from the cache or the vendor. Never raises. spot: the names whose prices
        change often."""
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

    def _read_due(self, due: list[str], often: frozenset[str], known: dict[str, VendorPrice]) -> VendorPrice:
        """Read prices into `known`, and return what stopped that, without an error if nothing did."""
        began, stopped, new = self._now(), VendorPrice(), dict[str, VendorPrice]()
        for number, at in enumerate(range(0, len(due), self._lot)):
            if number == _MOST_CALLS or not 0 <= self._now() - began < _LONGEST:
                break
            lot = due[at : at + self._lot]
            try:
                stated = self._ask(lot)
            except (InvalidRequest, NotFound, OutOfStock) as error:  # about these machines, not about the API
                new |= {name: self._unpriced(f"the vendor states no price: {error.message}") for name in lot}
            except ProviderError as error:
                stopped = self._stop(error)
                break
            else:
                new |= {
                    name: self._priced(*stated[name], _SPOT_FRESH if name in often else _FRESH)
                    if name in stated
                    else self._unpriced("the vendor states no price for it")
                    for name in lot
                }
        for name, price in new.items():
            if price.price or not known.get(name, price).price:
                known[name] = price
            else:  # it had a price: that is used until it is too old
                known[name] = msgspec.structs.replace(known[name], due=price.due)
        changed = {name: known[name] for name in new} | ({_API: stopped} if stopped.due else {})
        self._cache.put(changed, known=_KEPT, unknown=0.0)
        return stopped

    def _priced(self, price: float, currency: str, fresh: float) -> VendorPrice:
        now = self._now()
        return VendorPrice(price, currency, now, now + fresh)

    def _unpriced(self, error: str) -> VendorPrice:
        return VendorPrice(due=self._now() + _UNPRICED, error=error[:_LONGEST_TEXT])

    def _stop(self, error: ProviderError) -> VendorPrice:
        """Return the failure of the API. Our own pace is over soon, so it is not remembered."""
        denied = isinstance(error, Unauthorized)
        text = f"prices could not be read: {error.error_class}: {error.message}"
        if denied:
            text = f"the key may not read prices (it needs {self._permission}): {error.message}"
        due = 0.0 if error.code == OWN_PACE else self._now() + (_DENIED if denied else _FAILED)
        return VendorPrice(due=due, error=text[:_LONGEST_TEXT], denied=denied)
