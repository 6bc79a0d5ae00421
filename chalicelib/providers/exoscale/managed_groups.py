"""Groups of Outscaler's own at Exoscale: SKS Nodepools that are a copy of another one, but for
their machines, labels and taints, and bear a mark in the label `outscaler.dev/managed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.catalogue import CatalogueEntry
from chalicelib.model.managed_group import PREFIX, MachineChoice, Managed
from chalicelib.policy.settings.managed_pools import ManagedPool, Market
from chalicelib.policy.vendors.exoscale import ExoscaleBounds
from chalicelib.providers.exoscale.decoding import (
    ExoscaleTaint,
    InstancePool,
    InstanceType,
    Manager,
    NewNodepool,
    Nodepool,
    Ref,
    SksCluster,
)
from chalicelib.providers.exoscale.node_template import make_template
from chalicelib.providers.exoscale.zone import ExoscalePool, Zone
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.managed_pools import (
    MARK,
    MARKET_LABEL,
    POOL_LABEL,
    CopySource,
    ManagedPools,
    PoolCandidate,
    with_kernel,
)
from chalicelib.providers.kit.node_template import GroupTemplate

_OWN_LABELS = frozenset({MARK, POOL_LABEL, MARKET_LABEL})
NAME_TAKEN, MANAGED_CHANGED = "NameTaken", "ManagedChanged"
"""Codes of errors: a Nodepool has the name of an own group and not its mark; an own group is not
what it was made as."""
SECOND = "a second group of this name exists, which is used"
_DESCRIPTION = "made by Outscaler for managed pool {}"


class ListedClusters:
    """The SKS clusters as they were listed first in a pass or step."""

    def __init__(self, read: Callable[[], Sequence[SksCluster]]) -> None:
        self._read = read
        self._clusters: Sequence[SksCluster] | None = None

    def note(self, clusters: Sequence[SksCluster]) -> None:
        """Keep what was listed elsewhere."""
        self._clusters = clusters

    def get(self) -> Sequence[SksCluster]:
        """Return the clusters. Raises ProviderError."""
        if self._clusters is None:
            self._clusters = self._read()
        return self._clusters


class OriginalNodepool(msgspec.Struct, frozen=True):
    """The Nodepool that a declaration copies, and its SKS cluster."""

    cluster: SksCluster
    nodepool: Nodepool


def copied(
    pool: ManagedPool, clusters: Iterable[SksCluster], setting: str
) -> OriginalNodepool | str:
    """Return what a declaration copies, or why that cannot be copied. setting: id or name of the
    cluster's SKS cluster, "" if the policy does not name it."""
    named = [
        OriginalNodepool(cluster, nodepool)
        for cluster in clusters
        for nodepool in cluster.nodepools
        if pool.copy_from in _names(cluster, nodepool) and setting in ("", cluster.id, cluster.name)
    ]
    if not named:
        return f"there is no Nodepool {pool.copy_from}"
    if len(named) > 1:
        return f"{pool.copy_from} is the name of {len(named)} Nodepools; write its id"
    if named[0].nodepool.name.startswith(PREFIX):
        return f"{pool.copy_from} is made by Outscaler itself"
    if named[0].nodepool.is_partial:
        return f"a field of Nodepool {pool.copy_from} cannot be understood"
    return named[0]


def _names(cluster: SksCluster, nodepool: Nodepool) -> frozenset[str]:
    names = {nodepool.id, nodepool.instance_pool.id, nodepool.name}
    names |= {f"{cluster.name}/{nodepool.name}", f"{cluster.id}/{nodepool.name}"}
    return frozenset(names - {""})


def source_of(pool: ManagedPool, zone: str, original: OriginalNodepool | str) -> CopySource:
    """Return what a declaration takes from the Nodepool that it copies. original: it, or why it
    cannot be copied."""
    if isinstance(original, str):
        return CopySource(problem=original)
    nodepool = original.nodepool
    disk = pool.disk or nodepool.disk_size
    definition: dict[str, Any] = {
        "diskSize": disk,
        "labels": _labels(pool, nodepool),
        "taints": {key: [taint.value, taint.effect] for key, taint in _taints(pool, nodepool)},
        "securityGroups": sorted(group.id for group in nodepool.security_groups),
        "privateNetworks": sorted(network.id for network in nodepool.private_networks),
        "antiAffinityGroups": sorted(group.id for group in nodepool.anti_affinity_groups),
        "maxPods": nodepool.kubelet_max_pods,
        "publicIp": nodepool.public_ip_assignment,
    }
    return CopySource({key: value for key, value in definition.items() if value}, (zone,), disk)


def _labels(pool: ManagedPool, nodepool: Nodepool) -> dict[str, str]:
    """Return the labels of a group's nodes, without those of Outscaler."""
    own = {key: text for key, text in (nodepool.labels or {}).items() if key not in _OWN_LABELS}
    return {**own, **pool.labels}


def _taints(pool: ManagedPool, nodepool: Nodepool) -> list[tuple[str, ExoscaleTaint]]:
    if not pool.taints:
        return sorted((nodepool.taints or {}).items())
    return [(taint.key, ExoscaleTaint(taint.value, taint.effect)) for taint in pool.taints]


def new_nodepool(candidate: PoolCandidate, original: OriginalNodepool) -> NewNodepool:
    """Return the Nodepool that opens a candidate, with one machine: the vendor makes none without.
    It is grown once it is known to exist, so that a second creation costs one machine at most."""
    pool, nodepool, entry = candidate.pool, original.nodepool, candidate.machine.entry
    marks = {
        POOL_LABEL: pool.name,
        MARKET_LABEL: candidate.machine.market.value,
        MARK: candidate.group.mark,
    }
    return NewNodepool(
        candidate.group.name,
        1,
        pool.disk or nodepool.disk_size,
        Ref(entry.vendor_id),
        description=_DESCRIPTION.format(pool.name),
        instance_prefix=nodepool.instance_prefix,
        public_ip_assignment=nodepool.public_ip_assignment,
        kubelet_max_pods=nodepool.kubelet_max_pods,
        labels={**_labels(pool, nodepool), **marks},
        taints=dict(_taints(pool, nodepool)),
        security_groups=nodepool.security_groups,
        private_networks=nodepool.private_networks,
        anti_affinity_groups=nodepool.anti_affinity_groups,
    )


def candidate_template(
    candidate: PoolCandidate, original: OriginalNodepool, zone: str, reserve: Mapping[str, int]
) -> GroupTemplate:
    """Return the node of a group that does not exist yet."""
    new, entry = new_nodepool(candidate, original), candidate.machine.entry
    nodepool = Nodepool(
        "",
        new.name,
        instance_type=new.instance_type,
        disk_size=new.disk_size,
        kubelet_max_pods=new.kubelet_max_pods,
        labels=new.labels,
        taints=new.taints,
    )
    pool = ExoscalePool(
        InstancePool(new.name, manager=Manager("", "sks-nodepool")), original.cluster, nodepool
    )
    types = {entry.vendor_id: instance_type_of(entry)}
    return make_template(pool, types, zone, with_kernel(reserve, entry.memory))


def instance_type_of(entry: CatalogueEntry) -> InstanceType:
    """Return as much of an instance type as the catalogue has."""
    size = entry.name.removeprefix(f"{entry.family}.")
    return InstanceType(entry.vendor_id, entry.family, size, entry.cores, entry.memory, entry.gpus)


# -- groups that exist


class OwnPool(msgspec.Struct, frozen=True):
    """An own group that exists. second: another one of its name is used."""

    pool: ExoscalePool
    mark: str
    second: bool = False


def own_pools(pools: Iterable[ExoscalePool], managed: ManagedPools) -> tuple[OwnPool, ...]:
    """Return the Nodepools that Outscaler has made for the cluster. Of several with one name the
    one with most machines is used, then the one with the lowest id. Raises Transient."""
    by_name: dict[str, list[OwnPool]] = {}
    for pool in pools:
        mark = mark_of(pool.nodepool)
        if pool.name.startswith(PREFIX) and managed.is_own(pool.name, mark):
            by_name.setdefault(pool.name, []).append(OwnPool(pool, mark))
    own: list[OwnPool] = []
    for _, same in sorted(by_name.items()):
        same.sort(key=lambda own_pool: (-own_pool.pool.target, own_pool.pool.id))
        own += [same[0], *(msgspec.structs.replace(other, second=True) for other in same[1:])]
    return tuple(own)


def mark_of(nodepool: Nodepool | None) -> str:
    """Return the mark of a Nodepool, "" if it has none."""
    return (nodepool.labels or {}).get(MARK, "") if nodepool is not None else ""


def own_bounds(pool: ExoscalePool, managed: ManagedPools) -> ExoscaleBounds:
    """Return the bounds of an own group. One that is no candidate any more does not grow. Raises
    ProviderError."""
    candidate = managed.candidates.get(pool.own_name)
    most = candidate.pool.limits.nodes if candidate is not None else pool.target
    return ExoscaleBounds(pool.name, 0, max(most, pool.target))


def with_own_names(zone: Zone, managed: ManagedPools) -> tuple[Zone, tuple[OwnPool, ...]]:
    """Return the zone in which own groups have their names, and these groups. Raises Transient."""
    own = own_pools(zone.pools, managed)
    names = {each.pool.id: each.pool.name for each in own if not each.second}
    pools = tuple(
        msgspec.structs.replace(pool, own_name=names.get(pool.id, "")) for pool in zone.pools
    )
    named = {pool.id: pool for pool in pools}
    own = tuple(msgspec.structs.replace(each, pool=named[each.pool.id]) for each in own)
    return msgspec.structs.replace(zone, pools=pools), own


def managed_of(
    own: OwnPool, zone: str, type_names: Mapping[str, str], managed: ManagedPools
) -> Managed:
    """Return what is known of an own group. type_names: by the ids of instance types. Raises
    ProviderError."""
    nodepool = own.pool.nodepool
    type_id = nodepool.instance_type.id if nodepool is not None else ""
    choice = MachineChoice("", type_names.get(type_id, type_id), zone, Market.ON_DEMAND.value)
    known = managed.managed(own.pool.name, own.mark, choice)
    return msgspec.structs.replace(known, retiring=SECOND) if own.second else known


def find_own(
    group: str, clusters: Iterable[SksCluster], managed: ManagedPools
) -> tuple[SksCluster, Nodepool] | None:
    """Return the Nodepool of an own group, None if there is none. Raises InvalidRequest if one has
    its name and not its mark, and ProviderError."""
    same = [
        (cluster, nodepool)
        for cluster in clusters
        for nodepool in cluster.nodepools
        if nodepool.name == group and nodepool.state != "deleting"
    ]
    own = [pair for pair in same if managed.is_own(group, mark_of(pair[1]))]
    if same and not own:
        raise InvalidRequest(
            f"a Nodepool {group} exists that Outscaler has not made", code=NAME_TAKEN
        )
    own.sort(key=lambda pair: (-pair[1].size, pair[1].id))
    return own[0] if own else None
