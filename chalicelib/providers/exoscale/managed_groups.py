"""Groups of Outscaler's own at Exoscale: SKS Nodepools that are a copy of another one, but for
their machines, labels and taints, and bear a mark in the label `outscaler.dev/managed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.catalogue import CatalogueEntry
from chalicelib.model.managed_group import (
    COPY_SOURCE_GONE,
    NAME_TAKEN,
    PREFIX,
    MachineChoice,
    Managed,
    ManagedGroup,
    is_own_name,
    name_in_mark,
)
from chalicelib.policy.settings.managed_pools import ManagedPool, Market
from chalicelib.policy.vendors.exoscale import ExoscaleBounds, ExoscaleSettings
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
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames
from chalicelib.providers.exoscale.zone import DELETING, ExoscalePool, Zone
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.managed_pools import (
    MARK,
    MARKET_LABEL,
    POOL_LABEL,
    CopySource,
    GroupCandidate,
    ManagedPools,
    OwnSize,
    with_kernel,
)
from chalicelib.providers.kit.node_template import GroupTemplate

_OWN_LABELS = frozenset({MARK, POOL_LABEL, MARKET_LABEL})
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
    """The Nodepool that a declaration copies, and its SKS cluster. warning: why it is another one
    than the declaration names."""

    cluster: SksCluster
    nodepool: Nodepool
    warning: str = ""


def copied(
    pool: ManagedPool,
    clusters: Iterable[SksCluster],
    settings: ExoscaleSettings,
    managed: ManagedPools,
) -> OriginalNodepool | str:
    """Return what a declaration copies, or why that cannot be copied. Where the Nodepool that it
    names is gone, the youngest own group takes its place that is what its name says: it has all
    that the declaration has copied. Raises Transient."""
    present = [
        OriginalNodepool(cluster, nodepool)
        for cluster in clusters
        for nodepool in cluster.nodepools
        if settings.sks_cluster in ("", cluster.id, cluster.name)
    ]
    named = [
        original
        for original in present
        if pool.copy_from in _names(original.cluster, original.nodepool)
    ]
    if not named:
        gone = f"{COPY_SOURCE_GONE}: there is no Nodepool {pool.copy_from}"
        own = [
            original for original in present if _is_as_named(original, pool, settings.zone, managed)
        ]
        if not own:
            return gone
        youngest = max(own, key=lambda copy: (copy.nodepool.created_at, copy.nodepool.id))
        warning = f"{gone}; groups are made as {youngest.nodepool.name} is"
        return msgspec.structs.replace(youngest, warning=warning)
    if len(named) > 1:
        return f"{pool.copy_from} is the name of {len(named)} Nodepools; write its id"
    if named[0].nodepool.name.startswith(PREFIX):
        return f"{pool.copy_from} is made by Outscaler itself"
    if named[0].nodepool.is_partial:
        return f"a field of Nodepool {pool.copy_from} cannot be understood"
    return named[0]


def _is_as_named(
    original: OriginalNodepool, pool: ManagedPool, zone: str, managed: ManagedPools
) -> bool:
    """Return whether a Nodepool is an own group of a declaration and what its name says. Raises
    Transient."""
    nodepool = original.nodepool
    if nodepool.is_partial or not managed.is_own(nodepool.name, mark_of(nodepool)):
        return False
    machine = managed.type_by_id(nodepool.instance_type.id)
    choice = MachineChoice(pool.name, machine, zone, _market(nodepool))
    definition = source_of(pool, zone, original).definition
    return ManagedGroup(managed.cluster, choice, definition).name == nodepool.name


def _market(nodepool: Nodepool) -> str:
    return (nodepool.labels or {}).get(MARKET_LABEL, "") or Market.ON_DEMAND.value


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
    stated = {key: value for key, value in definition.items() if value}
    return CopySource(stated, (zone,), disk, warning=original.warning)


def _labels(pool: ManagedPool, nodepool: Nodepool) -> dict[str, str]:
    """Return the labels of a group's nodes, without those of Outscaler."""
    own = {key: text for key, text in (nodepool.labels or {}).items() if key not in _OWN_LABELS}
    return {**own, **pool.labels}


def _taints(pool: ManagedPool, nodepool: Nodepool) -> list[tuple[str, ExoscaleTaint]]:
    if not pool.taints:
        return sorted((nodepool.taints or {}).items())
    return [(taint.key, ExoscaleTaint(taint.value, taint.effect)) for taint in pool.taints]


def new_nodepool(candidate: GroupCandidate, original: OriginalNodepool) -> NewNodepool:
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
    candidate: GroupCandidate, original: OriginalNodepool, zone: str, reserve: Mapping[str, int]
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
    """Return the Nodepools that Outscaler has made for the cluster, without those that are being
    deleted. Of several with one name the first in the order of find_own is used. Raises
    Transient."""
    by_name: dict[str, list[tuple[Nodepool, OwnPool]]] = {}
    for pool in pools:
        mark, nodepool = mark_of(pool.nodepool), pool.nodepool
        if nodepool is not None and not pool.ending and managed.is_own(pool.name, mark):
            by_name.setdefault(pool.name, []).append((nodepool, OwnPool(pool, mark)))
    own: list[OwnPool] = []
    for _, same in sorted(by_name.items()):
        same.sort(key=lambda pair: _first_used(pair[0]))
        own.append(same[0][1])
        own += [msgspec.structs.replace(other, second=True) for _, other in same[1:]]
    return tuple(own)


def _first_used(nodepool: Nodepool) -> tuple[int, str, str]:
    """Return the place of a Nodepool among those of one name: the one with most machines is used,
    then the elder."""
    return -nodepool.size, nodepool.created_at, nodepool.id


def mark_of(nodepool: Nodepool | None) -> str:
    """Return the mark of a Nodepool, "" if it has none."""
    return (nodepool.labels or {}).get(MARK, "") if nodepool is not None else ""


def is_foreign(nodepool: Nodepool | None, managed: ManagedPools) -> bool:
    """Return whether a Nodepool has the name or the mark of an own group and is none of ours,
    because its mark was taken away or is another cluster's. Raises Transient."""
    if nodepool is None:
        return False
    mark = mark_of(nodepool)
    if not mark and not is_own_name(nodepool.name):
        return False
    return not managed.is_own(nodepool.name, mark)


def own_bounds(pool: ExoscalePool) -> ExoscaleBounds:
    """Return the bounds of an own group, with which it only shrinks. How far it grows is decided
    where it is known that it may (with_marks, opening.py)."""
    return ExoscaleBounds(pool.name, 0, max(0, pool.target))


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


def with_names_of_nodes(zone: Zone, names: ExoscaleGroupNames, managed: ManagedPools) -> Zone:
    """Return the zone in which own groups have the names that the marks of their nodes give,
    because no Nodepool could be read. Raises Transient."""
    pools: list[ExoscalePool] = []
    used: set[str] = set()
    for pool in zone.pools:
        nodes = map(names.node_of, zone.machines(pool) if pool.is_sks else ())
        marks = {node.labels.get(MARK, "") for node in nodes if node is not None}
        own = {name_in_mark(managed.cluster, mark) for mark in marks} - {"", *used}
        own_name = min(own, default="")
        used.add(own_name)
        pools.append(msgspec.structs.replace(pool, own_name=own_name))
    return msgspec.structs.replace(zone, pools=tuple(pools))


def choice_of_nodepool(
    nodepool: Nodepool, zone: str, managed: ManagedPools, type_names: Mapping[str, str]
) -> MachineChoice:
    """Return the machines of an own Nodepool; the type is "" if its name is not known. type_names:
    by the ids of instance types. Raises ProviderError."""
    type_id = nodepool.instance_type.id
    name = type_names.get(type_id) or managed.type_by_id(type_id)
    choice = MachineChoice("", name, zone, _market(nodepool))
    return managed.choice_in(nodepool.name, mark_of(nodepool), choice)


def managed_of(
    own: OwnPool,
    zone: str,
    type_names: Mapping[str, str],
    managed: ManagedPools,
    originals: Mapping[str, OriginalNodepool | str],
) -> Managed:
    """Return what is known of an own group. type_names: by the ids of instance types. originals:
    what the declarations copy, by their names. Raises ProviderError."""
    nodepool = own.pool.nodepool
    assert nodepool is not None, "own groups are Nodepools"
    choice = choice_of_nodepool(nodepool, zone, managed, type_names)
    known = managed.managed(own.pool.name, own.mark, choice)
    if own.second:
        return msgspec.structs.replace(known, retiring=SECOND)
    declared = managed.declared(own.pool.name, known.choice)
    if known.retiring or declared is None:
        return known
    changed = changed_fields(nodepool, declared, originals[declared.pool.name])
    return msgspec.structs.replace(known, retiring=changed_by_hand(changed) if changed else "")


def changed_by_hand(fields: Iterable[str]) -> str:
    """Return that somebody has changed these fields of a group."""
    return f"changed by hand: {', '.join(fields)}"


def changed_fields(
    nodepool: Nodepool, candidate: GroupCandidate, original: OriginalNodepool | str
) -> tuple[str, ...]:
    """Return what of an own Nodepool is not as it was made: its mark says that it is what the
    declaration wants, so somebody has changed it since. original: what the declaration copies;
    without it, or if a field could not be decoded, nothing is known to be changed."""
    if isinstance(original, str) or nodepool.is_partial:
        return ()
    made = new_nodepool(candidate, original)
    type_id = made.instance_type.id or nodepool.instance_type.id
    rows = (
        ("labels", nodepool.labels or {}, made.labels),
        ("taints", nodepool.taints or {}, made.taints),
        ("instance type", nodepool.instance_type.id, type_id),
        ("disk", nodepool.disk_size, made.disk_size),
        ("security groups", _ids(nodepool.security_groups), _ids(made.security_groups)),
        ("private networks", _ids(nodepool.private_networks), _ids(made.private_networks)),
        (
            "anti-affinity groups",
            _ids(nodepool.anti_affinity_groups),
            _ids(made.anti_affinity_groups),
        ),
        ("max pods", nodepool.kubelet_max_pods, made.kubelet_max_pods),
    )
    return tuple(field for field, present, wanted in rows if present != wanted)


def _ids(references: Iterable[Ref]) -> frozenset[str]:
    return frozenset(reference.id.lower() for reference in references)


def own_sizes(
    clusters: Iterable[SksCluster], except_id: str, zone: str, managed: ManagedPools
) -> tuple[OwnSize, ...]:
    """Return the sizes of all own groups but one. except_id: of its Nodepool, "" for none. Raises
    ProviderError."""
    return tuple(
        OwnSize(choice_of_nodepool(nodepool, zone, managed, {}), max(0, nodepool.size))
        for cluster in clusters
        for nodepool in cluster.nodepools
        if nodepool.id != except_id
        and nodepool.state != DELETING
        and managed.is_own(nodepool.name, mark_of(nodepool))
    )


def find_own(
    group: str, clusters: Iterable[SksCluster], managed: ManagedPools
) -> tuple[SksCluster, Nodepool] | None:
    """Return the Nodepool of an own group, None if there is none. Raises InvalidRequest if one has
    its name and not its mark, and ProviderError."""
    same = [
        (cluster, nodepool)
        for cluster in clusters
        for nodepool in cluster.nodepools
        if nodepool.name == group and nodepool.state != DELETING
    ]
    own = [pair for pair in same if managed.is_own(group, mark_of(pair[1]))]
    if same and not own:
        raise InvalidRequest(
            f"a Nodepool {group} exists that Outscaler has not made", code=NAME_TAKEN
        )
    own.sort(key=lambda pair: _first_used(pair[1]))
    return own[0] if own else None
