"""The services that a provider needs besides its settings: time, waiting, other clusters, and state shared by
functions.

Providers must not import the store or one another. The rate limit of a vendor account and the cache of seldom-changing
data, shared across functions and clusters, come in through the two protocols of this module. The store implements them;
without a table (a plan from files) UnlimitedRateLimiter and NullCache do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy import KubernetesAccess
from chalicelib.model.policy_permissions import STRICT, Deployment


class RateLimit(msgspec.Struct, frozen=True):
    """The rate at which all functions together may call one vendor API: `rate` calls per second, `burst` at once. key
    is globally unique for the account and the API (`alicloud/LTAI…digest/cn-hangzhou/ess`), never a secret."""

    key: str
    rate: float
    burst: int


class RateLimiter(Protocol):
    """A call budget that all functions of a deployment share."""

    def take(self, rate_limit: RateLimit, calls: int) -> float:
        """Reserve calls and return 0.0, or return the seconds to wait without reserving. Never raises: without a table
        there is no limit."""

    def hold(self, rate_limit: RateLimit, seconds: float) -> None:
        """Pause this budget for as long as the vendor requested: no function gets a call before. Never raises."""


class Cache(Protocol):
    """A cache, shared by all functions, of small values that are expensive to read and seldom change (instance
    types)."""

    def get(self, key: str) -> bytes | None:
        """Return a cached value that has not expired; None otherwise, also if the table is unavailable."""

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """Cache a value for this long. Never raises: an uncached value is read again. value: at most 300 kB."""


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
    """connect: returns the client of a cluster for its access settings. sleep: seconds; chance: uniform in [0, 1).
    deployment: which hosts may be called and whether files may be read; by default no files, and the vendors' own
    hosts only."""

    connect: Callable[[KubernetesAccess], object] = no_other_cluster
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    rate_limiter: RateLimiter = UnlimitedRateLimiter()
    cache: Cache = NullCache()
    deployment: Deployment = STRICT
