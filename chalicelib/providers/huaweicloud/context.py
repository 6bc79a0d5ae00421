"""What every change works with, and the questions that all of them ask first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Unauthorized, Unknown
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.instance_states import cluster_off
from chalicelib.providers.huaweicloud.models import NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.provider_ids import split
from chalicelib.providers.huaweicloud.settings import CceSettings
from chalicelib.providers.huaweicloud.size_bounds import CceRange, group_range, pool_range


class Site(msgspec.Struct, frozen=True):
    """A scale group with its pool, both as just read, and the sizes they may have."""

    pool: NodePool
    group: ScaleGroup
    whole: CceRange
    within: CceRange

    @property
    def title(self) -> str:
        """For people: `pool-a/default`."""
        return f"{self.pool.name or self.pool.id}/{self.group.name}"

    @property
    def size(self) -> int:
        """What the group is to have."""
        return self.group.desired


class CceContext(msgspec.Struct, frozen=True):
    """joined: the cluster's nodes as of now; None where there is no way to the cluster."""

    api: CceApi
    settings: CceSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def site(self, group: str) -> Site:
        """The group as of now; raises NotFound where pool or group are gone, Unknown for what cannot be understood."""
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
        """Whether the sizes are others than a moment ago. Who sends a total asks this last of all: what is asked in
        between is time in which somebody else may change them. Raises ProviderError."""
        now = self.site(group)
        return (now.pool.desired, now.size) != (site.pool.desired, site.size)

    def check_cluster(self) -> None:
        """Raises Conflict while the cluster takes no change, InvalidRequest where waiting does not mend that (B10). A
        key that may not look is no reason to refuse."""
        try:
            phase = self.api.cluster_phase()
        except Unauthorized:
            return
        text, passes = cluster_off(phase)
        if text:
            raise Conflict(text, code=phase) if passes else InvalidRequest(text, code=phase)


def other_size(operation: Operation, site: Site) -> Failed:
    """Somebody else's number stands."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{site.title} has the size {site.size}, but {planned} was planned")
