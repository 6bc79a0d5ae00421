"""An Instance Pool and, where SKS made it, the Nodepool that owns it: the two kinds of group as one (exoscale.md §2).

The id is the Instance Pool's for both, as upstream has it; people may write the Nodepool's id, its name, or
cluster/name. Names are not unique, so what a name means is decided where all pools are seen (selection.py).
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
        """Whether SKS owns it: it is changed through its Nodepool only."""
        return self.pool.manager is not None and self.pool.manager.type == _SKS

    @property
    def owner(self) -> str:
        """The Nodepool's id; "" for a standalone pool."""
        return self.pool.manager.id.lower() if self.is_sks and self.pool.manager is not None else ""

    @property
    def name(self) -> str:
        """What people call it: the Nodepool's name, for the pool behind it has one that nobody chose."""
        if not self.is_sks:
            return self.pool.name
        return self.nodepool.name if self.nodepool is not None else ""

    @property
    def title(self) -> str:
        """For messages."""
        if self.nodepool is not None and self.cluster is not None:
            return f"Nodepool {self.nodepool.name} of {self.cluster.name} (pool {self.id})"
        return f"instance pool {self.pool.name or self.id} ({self.id})"

    @property
    def target(self) -> int:
        """The size that the vendor works towards."""
        return self.nodepool.size if self.nodepool is not None else self.pool.size

    @property
    def members(self) -> frozenset[str]:
        """The machines that the pool says it has."""
        return frozenset(each.id.lower() for each in self.pool.instances if each.id)

    @property
    def least(self) -> int:
        """The smallest size that the vendor takes: 0 is proven for SKS only (§3)."""
        return max(self.pool.min_available, 0 if self.is_sks else 1)

    @property
    def states(self) -> str:
        """For messages."""
        return f"{self.pool.state}, Nodepool {self.nodepool.state}" if self.nodepool is not None else self.pool.state

    @property
    def busy(self) -> bool:
        """Whether the vendor is changing it: it takes no other change meanwhile."""
        return self.pool.state in POOL_BUSY or (self.nodepool is not None and self.nodepool.state in NODEPOOL_BUSY)

    @property
    def restless(self) -> str:
        """Why its numbers do not hold: it is being changed, or has more members than its size and is about to be; ""
        where they do."""
        if self.busy:
            return f"{self.title} is being changed ({self.states})"
        surplus = len(self.members) > self.target
        return f"{self.title} still has {len(self.members)} machines and the size {self.target}" if surplus else ""

    @property
    def unread(self) -> str:
        """Why nothing can be done with it at all; "" where it is understood."""
        return (
            f"{self.title} is described by the vendor in a way that cannot be understood"
            if NO_SIZE in {self.pool.size, self.target}
            else ""
        )

    @property
    def skipped(self) -> str:
        """Why a pass leaves it alone, for pods that waited for it would wait as long as somebody else's change takes;
        "" where it does not."""
        nodepool = self.nodepool.state if self.nodepool is not None else ""
        return (
            f"{self.title} is being changed ({self.states}), which this program did not ask for"
            if {self.pool.state, nodepool} & OTHERS
            else ""
        )

    @property
    def settled(self) -> bool:
        """Whether nothing is being made or deleted, as far as is known. An unheard-of state is neither busy nor
        settled: the vendor may be asked for a change, and nothing is concluded from what is missing."""
        return self.pool.state in SETTLED and (self.nodepool is None or self.nodepool.state in SETTLED)

    @property
    def ending(self) -> bool:
        """Whether it is being deleted: no group any more."""
        return self.pool.state in ENDING or (self.nodepool is not None and self.nodepool.state in ENDING)

    @property
    def off(self) -> str:
        """Why it takes no growth; "" where it does (§6, 7)."""
        if self.unread:
            return self.unread
        if self.pool.state == SUSPENDED:
            return f"{self.title} is suspended by the vendor; see why in the portal, mend it and resume the pool"
        if self.is_sks and self.nodepool is None:
            return (
                f"{self.title} belongs to the Nodepool {self.owner}, which is in no SKS cluster that could be "
                "read; allow list-sks-clusters to the API key"
            )
        return ""

    @property
    def aliases(self) -> tuple[str, ...]:
        """What people may call it beside its id."""
        return tuple(sorted({*self.exact, self.name} - {"", self.id}))

    @property
    def exact(self) -> frozenset[str]:
        """The names that can mean no other cluster's group: ids in small letters, and cluster/name."""
        names = {self.id.lower(), self.owner}
        if self.cluster is not None and self.nodepool is not None:
            names |= {f"{self.cluster.name}/{self.nodepool.name}", f"{self.cluster.id}/{self.nodepool.name}"}
        return frozenset(names - {""})


def make_pools(pools: Iterable[InstancePool], clusters: Iterable[SksCluster]) -> tuple[ExoscalePool, ...]:
    """Every pool with its Nodepool, found by the pool's manager and not by names."""
    owners = {nodepool.id.lower(): (cluster, nodepool) for cluster in clusters for nodepool in cluster.nodepools}
    sites = []
    for pool in pools:
        site = ExoscalePool(pool)
        cluster, nodepool = owners.get(site.owner, (None, None))
        sites.append(ExoscalePool(pool, cluster, nodepool))
    return tuple(sites)
