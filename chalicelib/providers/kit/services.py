"""The services that a provider needs besides its settings: time, waiting, other clusters, and
state shared by functions.

Providers must not import the store or one another. The rate limit of a vendor account and the cache
of seldom-changing data, shared across functions and clusters, come in through the two protocols of
this module. The store implements them; without a table (a plan from files) UnlimitedRateLimiter and
NullCache do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.kit.errors import ProviderError, Transient


class RateLimit(msgspec.Struct, frozen=True):
    """The rate at which all functions together may call one vendor API: `rate` calls per second,
    `burst` at once. key is globally unique for the account and the API
    (`alicloud/LTAI…digest/cn-hangzhou/ess`), never a secret."""

    key: str
    rate: float
    burst: int


class RateLimiter(Protocol):
    """A rate limit of calls that all functions of a deployment share."""

    def take(self, rate_limit: RateLimit, calls: int) -> float:
        """Reserve calls and return 0.0, or return the seconds to wait without reserving.
        Never raises: without a table there is no limit."""

    def hold(self, rate_limit: RateLimit, seconds: float) -> None:
        """Pause these calls for as long as the vendor requested: no function gets a
        call before. Never raises."""


class Cache(Protocol):
    """A cache, shared by all functions, of small values that are expensive to read and seldom
    change (instance types)."""

    def get(self, key: str) -> bytes | None:
        """Return a cached value that has not expired; None otherwise, also if
        the table is unavailable."""

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """Cache a value for this long. Never raises: an uncached value is read
        again. value: at most 300 kB."""


class UnlimitedRateLimiter:
    """No limit, for use without other callers."""

    def take(self, rate_limit: RateLimit, calls: int) -> float:  # noqa: ARG002 - the protocol's parameters
        """See RateLimiter."""
        return 0.0

    def hold(self, rate_limit: RateLimit, seconds: float) -> None:
        """See RateLimiter."""


class NullCache:
    """A cache that stores nothing."""

    def get(self, key: str) -> bytes | None:  # noqa: ARG002 - the protocol's parameter
        """See Cache."""
        return None

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """See Cache."""


def no_other_cluster(_: KubernetesAccess) -> object:
    """A `connect` that refuses every cluster."""
    raise OutscalerError("another cluster cannot be reached from here")


class ProviderServices(msgspec.Struct, frozen=True):
    """connect: returns the client of a cluster for its access settings. sleep: seconds; chance:
    uniform in [0, 1). deployment: which hosts may be called and whether files may be read; by
    default no files, and the vendors' own hosts only."""

    connect: Callable[[KubernetesAccess], object] = no_other_cluster
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    rate_limiter: RateLimiter = UnlimitedRateLimiter()
    cache: Cache = NullCache()
    deployment: Deployment = STRICT


# -- a cluster's API: the kube package and the providers are in one layer and must not import each
# other. Errors of its client are OutscalerErrors with a `status`.


class ListPage(Protocol):
    """One page of a list. first: the list starts, or starts again, and earlier pages are void."""

    @property
    def body(self) -> bytes:
        """The List as the server sent it."""

    @property
    def first(self) -> bool:
        """Whether it is the first page."""


class KubeLists(Protocol):
    """A read-only connection to a cluster."""

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterable[ListPage]:
        """Return a complete list in pages."""


@runtime_checkable
class Identified(Protocol):
    """A connection that reports which cluster it reaches."""

    @property
    def identity(self) -> str:
        """An identifier that is equal for all connections to one cluster and different
        for every other cluster."""


class KubeApi(KubeLists, Protocol):
    """A read-write connection to a cluster."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send one request and return the response body."""


# -- vendor data that seldom changes, in the cache shared by all functions: one row per
# account, region and kind

T = TypeVar("T")

_LARGEST = 250_000  # bytes; the shared cache accepts 300 kB


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """value None: the vendor does not know the name."""

    put: float
    until: float
    value: msgspec.Raw


class TtlCache(Generic[T]):
    """A cache of items of one kind by name. key: determined at the first use,
    because it names the account.

    Each entry has its own expiry, so adding an entry does not change the age of the others. An
    unreadable row is read again from the vendor, a clock that goes back makes no entry live
    forever, and without a shared cache everything works uncached."""

    def __init__(
        self, cache: Cache, key: Callable[[], str], kind: type[T], now: Callable[[], float]
    ) -> None:
        self._cache, self._key, self._now = cache, key, now
        self._values: msgspec.json.Decoder[T | None] = msgspec.json.Decoder(kind | None)
        self._row: dict[str, _Entry] | None = None

    def get(self, names: Iterable[str]) -> dict[str, T | None]:
        """Return the cached items of these names; None: known not to exist. Names that are
        absent must be requested."""
        row, now = self._read(), self._now()
        items: dict[str, T | None] = {}
        for name in names:
            entry = row.get(name)
            if entry is not None and entry.put <= now < entry.until:
                try:
                    items[name] = self._values.decode(entry.value)
                except msgspec.MsgspecError:
                    continue
        return items

    def put(self, things: Mapping[str, T | None], *, known: float, unknown: float) -> None:
        """Add items to the row in one write. known, unknown: seconds to cache existing and missing
        items (0: do not cache)."""
        now = self._now()
        new = {
            name: _Entry(now, now + seconds, msgspec.Raw(msgspec.json.encode(thing)))
            for name, thing in things.items()
            if (seconds := unknown if thing is None else known)
        }
        if not new:
            return
        row = {
            name: entry for name, entry in self._read().items() if entry.put <= now < entry.until
        } | new
        text = msgspec.json.encode(row)
        if len(text) > _LARGEST:
            row, text = new, msgspec.json.encode(new)
        self._row = row
        if len(text) <= _LARGEST:
            self._cache.put(self._key(), text, max(entry.until for entry in row.values()) - now)

    def put_at(self, name: str) -> float:
        """Return when the item was put into the cache, in epoch seconds; 0.0 if it is not there."""
        entry = self._read().get(name)
        return entry.put if entry is not None else 0.0

    def _read(self) -> dict[str, _Entry]:
        if self._row is None:
            text = self._cache.get(self._key())
            try:
                self._row = msgspec.json.decode(text, type=dict[str, _Entry]) if text else {}
            except msgspec.MsgspecError:
                self._row = {}
        return self._row


# -- requests that the vendor cannot tell from their repetition

UNANSWERED = "the answer to the request was lost; whether it was carried out is not known"
_REMEMBERED = 3600.0  # seconds, longer than any operation is repeated


class OneTimeRequests:
    """Makes a request once per operation, where a repetition would do it again and the
    vendor has no idempotency key.

    A row of the shared cache is written before the request, with its answer after it. A request
    without an answer, or one whose function has ended, counts as made. Without a shared cache a
    repeated operation repeats its request."""

    def __init__(self, cache: Cache, vendor: str, now: Callable[[], float]) -> None:
        self._cache, self._vendor, self._now = cache, vendor, now

    def send(self, operation_id: str, request: Callable[[], str]) -> str:
        """Make the request, unless an earlier call of the operation has made it; return its answer,
        "" if it is not known. request: returns what later calls need; raises ProviderError. A
        refusal, and a failure that the vendor itself reports (5xx), lets a later call try again."""
        row = TtlCache(self._cache, lambda: f"{self._vendor}/once/{operation_id}", str, self._now)
        earlier = row.get([operation_id]).get(operation_id)
        if earlier is not None:
            return earlier
        row.put({operation_id: ""}, known=_REMEMBERED, unknown=0.0)
        try:
            answer = request()
        except ProviderError as error:
            if not isinstance(error, Transient) or error.code.startswith("5"):
                row.put({operation_id: None}, known=0.0, unknown=1.0)
            raise
        row.put({operation_id: answer}, known=_REMEMBERED, unknown=0.0)
        return answer
