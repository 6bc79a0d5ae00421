"""Computes the size bounds of a group: from the policy, otherwise from the account's quota.

Upstream takes a quota of -1, which means unlimited, as a maximum of -1, ignores what the account already uses, and sets
the maximum to 0 whenever the quota cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.policy.vendors.exoscale import LEAST, ExoscaleBounds
from chalicelib.providers.errors import ProviderError
from chalicelib.providers.exoscale.models import Quota
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.zone_state import Zone, living

NO_LIMIT = -1


class ExoscaleRange(msgspec.Struct, frozen=True):
    """doubt: why the bounds differ from the policy's or are unknown; error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


class Room:
    """The account's quota, read once on first use."""

    def __init__(self, ask: Callable[[], Quota]) -> None:
        self._ask = ask
        self._quota: Quota | None = None
        self._asked = False
        self.problem = ""

    def quota(self) -> Quota | None:
        """None if it cannot be read; `problem` is the reason."""
        if not self._asked:
            self._asked = True
            try:
                self._quota = self._ask()
            except ProviderError as error:
                self.problem = f"the quota could not be read: {error.error_class}: {error.message}"
        return self._quota

    def full(self) -> bool:
        """Whether the account has reached its limit, as far as is known."""
        quota = self.quota()
        return quota is not None and quota.limit != NO_LIMIT and quota.usage >= quota.limit


def most_of(target: int, quota: Quota, unlimited: int) -> int:
    """Return the size up to which the account allows a group of that size to scale. unlimited: the limit without a
    quota."""
    if quota.limit == NO_LIMIT:
        return max(target, unlimited)
    return target + max(0, quota.limit - quota.usage)


def least_of(pool: ExoscalePool, bounds: ExoscaleBounds | None) -> int:
    """Return the minimum size of a group: the policy's, or 1, and never less than the vendor accepts."""
    return max(bounds.min if bounds is not None else LEAST, pool.least)


def range_of(pool: ExoscalePool, bounds: ExoscaleBounds | None, room: Room, unlimited: int) -> ExoscaleRange:
    """Return the bounds of a group."""
    least = least_of(pool, bounds)
    said = f"the policy's minimum of {bounds.min}" if bounds is not None else ""
    doubts = [f"{pool.title} keeps {least}, not {said}"] if bounds is not None and bounds.min < least else []
    if bounds is not None and bounds.max is not None:
        if bounds.max < least:
            return ExoscaleRange(
                bounds.min,
                bounds.max,
                error=(
                    f"{pool.title} has at least {least} and the policy's maximum is {bounds.max}; change the policy"
                ),
            )
        return ExoscaleRange(least, bounds.max, "; ".join(doubts))
    quota = room.quota()
    if quota is None:
        doubts.append(f"its maximum is its size, for {room.problem}; give it one in the policy")
    most = pool.target if quota is None else most_of(pool.target, quota, unlimited)
    return ExoscaleRange(least, max(most, least), "; ".join(doubts))


def occupied(pool: ExoscalePool, zone: Zone) -> int:
    """Return the smallest size at which no machine has to be deleted.

    The larger of the pool's own list and the machine list is used, because the two are not read at one instant."""
    return max(len(pool.members), len(living(zone.listed.get(pool.id, []))))


def missing(pool: ExoscalePool, there: int) -> int:
    """Return the number of machines that are desired, do not exist and will not be created; 0 while the vendor works on
    it.

    Machines below the vendor's minimum size do not count, because the size cannot be lowered for them."""
    if not pool.settled:
        return 0
    return max(0, min(pool.target, pool.pool.size) - max(there, pool.least))
