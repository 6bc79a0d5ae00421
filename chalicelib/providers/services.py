"""What a provider needs from outside besides its settings: time, patience, other clusters, and what functions share.

Providers may not know the store, nor one another. What they share across functions and clusters, the pace at which one
vendor account may be called and what seldom changes there, comes in through the two protocols of this module; the store
fulfils them (store/paces.py, store/shelf.py), and where there is no table (a plan by hand) `Unpaced` and `Bare` do.
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
    """How often one vendor API may be called by all functions together: `rate` calls per second, `burst` at once.

    key names the account and the API in the world (`alicloud/LTAI…digest/cn-hangzhou/ess`), never a secret.
    """

    key: str
    rate: float
    burst: int


class RateLimiter(Protocol):
    """A budget of calls that all functions of a deployment draw from."""

    def take(self, pace: RateLimit, calls: int) -> float:
        """Seconds to wait before these calls may be made, 0.0 for at once; then they are booked. More than 0.0: nothing
        was booked, come back later. Never raises: without a table there is no limit."""

    def hold(self, pace: RateLimit, seconds: float) -> None:
        """The vendor asked for a pause: nobody gets a call of this budget before it is over. Never raises."""


class Cache(Protocol):
    """Small things that are dear to ask for and seldom change (instance types), shared by all functions."""

    def get(self, key: str) -> bytes | None:
        """What was put there and is not too old; None otherwise, also where the table does not answer."""

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """Keep it for so long. Never raises: what cannot be kept is asked for again. value: at most 300 kB."""


class UnlimitedRateLimiter:
    """No limit, for where nobody else calls."""

    def take(self, pace: RateLimit, calls: int) -> float:
        """See Pacer."""
        del pace, calls
        return 0.0

    def hold(self, pace: RateLimit, seconds: float) -> None:
        """See Pacer."""
        del pace, seconds


class NullCache:
    """A shelf that keeps nothing."""

    def get(self, key: str) -> bytes | None:
        """See Shelf."""
        del key
        return None

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """See Shelf."""
        del key, value, seconds


def no_other_cluster(access: KubernetesAccess) -> object:
    """A connect that refuses."""
    del access
    raise OutscalerError("another cluster cannot be reached from here")


class ProviderServices(msgspec.Struct, frozen=True):
    """connect: a cluster's client by the way to it. sleep: seconds; chance: uniform in [0, 1). deployment: which hosts
    may be called and whether files may be read; by default no files, and the vendors' own hosts only."""

    connect: Callable[[KubernetesAccess], object] = no_other_cluster
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    rate_limiter: RateLimiter = UnlimitedRateLimiter()
    cache: Cache = NullCache()
    deployment: Deployment = STRICT
