"""The shared context of all changes, and the checks that all of them make first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed
from chalicelib.policy.vendors.huaweicloud import CceSettings
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Unauthorized, Unknown
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.instance_states import cluster_off
from chalicelib.providers.huaweicloud.models import NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.provider_ids import split
from chalicelib.providers.huaweicloud.size_bounds import CceRange, group_range, pool_range


class Site(msgspec.Struct, frozen=True):
    """A scale group with its pool, both as just read, and their size bounds."""

    pool: NodePool
    group: ScaleGroup
    whole: CceRange
    within: CceRange

    @property
    def title(self) -> str:
        """The description for messages: `pool-a/default`."""
        return f"{self.pool.name or self.pool.id}/{self.group.name}"

    @property
    def size(self) -> int:
        """The desired size of the group."""
        return self.group.desired


class CceContext(msgspec.Struct, frozen=True):
    """joined: lists the cluster's current nodes; None if the cluster cannot be reached."""

    api: CceApi
    settings: CceSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def site(self, group: str) -> Site:
        """Return the current group; raises NotFound if pool or group are gone, Unknown if it cannot be decoded."""
        uid, name = split(group)
        pool = self.api.pool(uid)
        if pool.error:
            raise Unknown(f"node pool {uid}: {pool.error}", code="Shape")
        found = pool.group(name)
        if found is None:
            raise NotFound(f"node pool {pool.name or uid} has no scale group {name}")
        if found.error:
            raise Unknown(f"{pool.name or uid}/{name}: {found.error}", code="Shape")
        return Site(pool, found, pool_range(pool, self.settings), group_range(pool, found, self.settings))

    def moved(self, group: str, site: Site) -> bool:
        """Return whether the sizes have changed since they were read. Raises ProviderError.

        Called immediately before a total is sent, because any request in between is time in which the sizes may change.
        """
        now = self.site(group)
        return (now.pool.desired, now.size) != (site.pool.desired, site.size)

    def check_cluster(self) -> None:
        """Raise Conflict while the cluster accepts no change, InvalidRequest if waiting cannot resolve that.

        A key without the permission to read the phase is not a reason to refuse."""
        try:
            phase = self.api.cluster_phase()
        except Unauthorized:
            return
        text, passes = cluster_off(phase)
        if text:
            raise Conflict(text, code=phase) if passes else InvalidRequest(text, code=phase)


def other_size(operation: Operation, site: Site) -> Failed:
    """Return the failure for a size that was changed outside this operation."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{site.title} has the size {site.size}, but {planned} was planned")
