"""An Instance Pool with the Nodepool that owns it, if SKS created it: one type for both kinds of group.

The id is that of the Instance Pool for both, as in upstream; users may write the Nodepool's id, its name, or
cluster/name. Names are not unique, so they are resolved where all pools are known (group_selection.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.providers.exoscale.instance_states import ENDING, NODEPOOL_BUSY, OTHERS, POOL_BUSY, SETTLED, SUSPENDED
from chalicelib.providers.exoscale.models import NO_SIZE, InstancePool, Nodepool, SksCluster

_SKS = "sks-nodepool"


class ExoscalePool(msgspec.Struct, frozen=True):
    """cluster, nodepool: None for a standalone pool, and for one whose Nodepool is in no cluster that was read."""

    pool: InstancePool
    cluster: SksCluster | None = None
    nodepool: Nodepool | None = None

    @property
    def id(self) -> str:
        """The group's id."""
        return self.pool.id

    @property
    def is_sks(self) -> bool:
        """Whether SKS owns the pool, which is then changed only through its Nodepool."""
        return self.pool.manager is not None and self.pool.manager.type == _SKS

    @property
    def owner(self) -> str:
        """The Nodepool's id; "" for a standalone pool."""
        return self.pool.manager.id.lower() if self.is_sks and self.pool.manager is not None else ""

    @property
    def name(self) -> str:
        """The name that users see: the Nodepool's, because the name of the pool behind it is generated."""
        if not self.is_sks:
            return self.pool.name
        return self.nodepool.name if self.nodepool is not None else ""

    @property
    def title(self) -> str:
        """The pool's description for messages."""
        if self.nodepool is not None and self.cluster is not None:
            return f"Nodepool {self.nodepool.name} of {self.cluster.name} (pool {self.id})"
        return f"instance pool {self.pool.name or self.id} ({self.id})"

    @property
    def target(self) -> int:
        """The size that the vendor works towards."""
        return self.nodepool.size if self.nodepool is not None else self.pool.size

    @property
    def members(self) -> frozenset[str]:
        """The machines that the pool lists."""
        return frozenset(each.id.lower() for each in self.pool.instances if each.id)

    @property
    def least(self) -> int:
        """The smallest size that the vendor accepts: 0 is confirmed for SKS only."""
        return max(self.pool.min_available, 0 if self.is_sks else 1)

    @property
    def states(self) -> str:
        """The states of pool and Nodepool for messages."""
        return f"{self.pool.state}, Nodepool {self.nodepool.state}" if self.nodepool is not None else self.pool.state

    @property
    def busy(self) -> bool:
        """Whether the vendor is changing the pool, which then accepts no other change."""
        return self.pool.state in POOL_BUSY or (self.nodepool is not None and self.nodepool.state in NODEPOOL_BUSY)

    @property
    def restless(self) -> str:
        """Why the pool's numbers are not final: it is being changed, or has more members than its size; "" if they
        are."""
        if self.busy:
            return f"{self.title} is being changed ({self.states})"
        surplus = len(self.members) > self.target
        return f"{self.title} still has {len(self.members)} machines and the size {self.target}" if surplus else ""

    @property
    def unread(self) -> str:
        """Why the pool cannot be used at all; "" if it was decoded."""
        return (
            f"{self.title} is described by the vendor in a way that cannot be understood"
            if NO_SIZE in {self.pool.size, self.target}
            else ""
        )

    @property
    def skipped(self) -> str:
        """Why a pass skips the pool: pods assigned to it would wait until another party's change ends; "" if it is not
        skipped."""
        nodepool = self.nodepool.state if self.nodepool is not None else ""
        return (
            f"{self.title} is being changed ({self.states}), which this program did not ask for"
            if {self.pool.state, nodepool} & OTHERS
            else ""
        )

    @property
    def settled(self) -> bool:
        """Whether nothing is being created or deleted, as far as is known.

        In an unknown state the pool is neither busy nor settled: a change may be requested, and missing machines prove
        nothing."""
        return self.pool.state in SETTLED and (self.nodepool is None or self.nodepool.state in SETTLED)

    @property
    def ending(self) -> bool:
        """Whether the pool is being deleted and is therefore not a group."""
        return self.pool.state in ENDING or (self.nodepool is not None and self.nodepool.state in ENDING)

    @property
    def off(self) -> str:
        """Why the pool cannot be scaled up; "" if it can."""
        if self.unread:
            return self.unread
        if self.pool.state == SUSPENDED:
            return f"{self.title} is suspended by the vendor; see why in the portal, fix the cause and resume the pool"
        if self.is_sks and self.nodepool is None:
            return (
                f"{self.title} belongs to the Nodepool {self.owner}, which is in no SKS cluster that could be "
                "read; allow list-sks-clusters to the API key"
            )
        return ""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names that users may write instead of its id."""
        return tuple(sorted({*self.exact, self.name} - {"", self.id}))

    @property
    def exact(self) -> frozenset[str]:
        """The names that cannot match another cluster's group: ids in lower case, and cluster/name."""
        names = {self.id.lower(), self.owner}
        if self.cluster is not None and self.nodepool is not None:
            names |= {f"{self.cluster.name}/{self.nodepool.name}", f"{self.cluster.id}/{self.nodepool.name}"}
        return frozenset(names - {""})


def make_pools(pools: Iterable[InstancePool], clusters: Iterable[SksCluster]) -> tuple[ExoscalePool, ...]:
    """Return every pool with its Nodepool, matched by the pool's manager and not by names."""
    owners = {nodepool.id.lower(): (cluster, nodepool) for cluster in clusters for nodepool in cluster.nodepools}
    sites = []
    for pool in pools:
        site = ExoscalePool(pool)
        cluster, nodepool = owners.get(site.owner, (None, None))
        sites.append(ExoscalePool(pool, cluster, nodepool))
    return tuple(sites)
