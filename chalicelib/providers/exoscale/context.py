"""The shared context of all changes, and the checks that all of them make first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed
from chalicelib.policy.vendors.exoscale import ExoscaleBounds, ExoscaleSettings
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Unknown
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.models import Work
from chalicelib.providers.exoscale.pools import ExoscalePool, make_pools


class ExoscaleContext(msgspec.Struct, frozen=True):
    """joined: lists the cluster's current nodes; None if the cluster cannot be reached."""

    api: ExoscaleApi
    settings: ExoscaleSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def site(self, group: str) -> ExoscalePool:
        """Return the current pool with its Nodepool.

        Raises NotFound also for one that is being deleted, Unknown for one whose numbers cannot be decoded."""
        pool = self.api.pool(group)
        site = ExoscalePool(pool)
        if site.is_sks:
            site = make_pools([pool], self.api.clusters())[0]
        if site.unread:
            raise Unknown(site.unread, code="Shape")
        if site.ending:
            raise NotFound(f"{site.title} is being deleted")
        return site

    def bounds(self, pool: ExoscalePool) -> ExoscaleBounds | None:
        """Return the policy's bounds of a pool.

        The pass has verified that a bare name means this pool. If it were another cluster's, no change would have been
        planned."""
        exact = (each for each in self.settings.groups if each.name in pool.exact)
        return next(exact, None) or next((each for each in self.settings.groups if each.name == pool.name), None)

    def check_idle(self, pool: ExoscalePool) -> None:
        """Raise Conflict while the vendor is changing the pool.

        The data just read may already be outdated, and the pool accepts no second change (it would refuse it as busy).
        """
        if pool.restless:
            raise Conflict(pool.restless, code="busy")

    def scale(self, pool: ExoscalePool, size: int) -> Work:
        """Set the size with the call for its kind of pool; raises ProviderError."""
        if not pool.is_sks:
            return self.api.scale_pool(pool.id, size)
        return self.api.scale_nodepool(*self._owner(pool), size)

    def evict(self, pool: ExoscalePool, instances: Sequence[str]) -> Work:
        """Remove these members with the call for its kind of pool; raises ProviderError."""
        if not pool.is_sks:
            return self.api.evict_pool(pool.id, instances)
        return self.api.evict_nodepool(*self._owner(pool), instances)

    def _owner(self, pool: ExoscalePool) -> tuple[str, str]:
        if pool.cluster is None or pool.nodepool is None:
            raise InvalidRequest(pool.off)
        return pool.cluster.id, pool.nodepool.id


def other_size(operation: Operation, pool: ExoscalePool) -> Failed:
    """Return the failure for a size that was changed outside this operation."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{pool.title} has the size {pool.target}, but {planned} was planned")
