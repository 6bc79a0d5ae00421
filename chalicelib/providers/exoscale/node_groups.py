"""Builds the cluster's node groups from the state of the zone: which pools are groups,
their bounds and instances.

Every pass reads everything again in a few calls, independent of the number of nodes and of earlier
passes. A group that cannot be read carries its error and does not affect the others.

    the policy names                groups are
    pools (nodeGroups, nodes)       only these
    its SKS cluster (sksCluster)    the Nodepools that the vendor lists for it, and named pools
    pools, and autoDiscovery        these, and those of the next line
    neither                         the Nodepools of the SKS cluster with most nodes, and standalone
                                    pools with a node; all of them only discovered
                                    (NodeGroup.discovered), unless most machines of the SKS cluster
                                    are nodes of this cluster

A node's own claims must not make another pool a group: one node with the id of another
cluster's machine must not claim that cluster's pools. A node counts here only if nothing
contradicts it (provider_ids.py).

A name matches at most one pool. Once the cluster's own SKS cluster is known, a bare name means one
of its Nodepools; a name that is still ambiguous is reported as an error. Pools of unknown clusters
are not changed. Until then a bare name may match another cluster's Nodepool, whose machines would
all seem never to have joined. They are therefore protected: the group may scale up from zero, and
none of its running machines is deleted as unregistered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import msgspec

from chalicelib.model.group import Instance, InstanceError, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import instant
from chalicelib.policy.vendors.exoscale import LEAST, PROVIDER, ExoscaleBounds, ExoscaleSettings
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import ExoscaleInstance, InstanceType, Quota, SksCluster
from chalicelib.providers.exoscale.managed_groups import (
    ListedClusters,
    OwnPool,
    candidate_template,
    copied,
    find_own,
    is_foreign,
    managed_of,
    own_bounds,
    with_names_of_nodes,
    with_own_names,
)
from chalicelib.providers.exoscale.node_template import make_template, type_of
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames, placeholder_id
from chalicelib.providers.exoscale.zone import (
    ERROR,
    INSTANCE_STATES,
    ExoscalePool,
    Zone,
    is_leaving,
    read_zone,
)
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError
from chalicelib.providers.kit.group_builder import (
    GroupBuilder,
    instance_state,
    placeholder_handle,
    placeholders,
)
from chalicelib.providers.kit.managed_pools import (
    ManagedPools,
    candidate_group,
    pool_of,
    with_kernel,
    with_outdated,
)

_FOREIGN = (
    "has the name or the mark of a group that Outscaler has made, but not for this cluster, or its "
    "label outscaler.dev/managed was changed: it is left alone; name it in nodeGroups to scale it"
)
_MOST_FORMER_TYPES = 5  # instance types of members alone that are read, for their names
_CHANGING = frozenset({"migrating"})  # states in which the vendor works on a machine that stays
_BROKEN = InstanceError(
    "Unknown", "instance-error", "the machine is in the state error at Exoscale"
)


def observe(
    api: ExoscaleApi,
    settings: ExoscaleSettings,
    nodes: Sequence[Node],
    managed: ManagedPools,
    listed: ListedClusters,
) -> Observation:
    """Return all groups of the cluster; raises ProviderError if the zone cannot be read at all.
    managed: the declarations of managed pools; listed: receives the SKS clusters."""
    unchecked = ExoscaleGroupNames(nodes)
    zone = read_zone(api, settings, unchecked, managed=bool(managed.pools))
    if zone.clusters is not None:
        listed.note(zone.clusters)
    zone, own = with_own_names(zone, managed)
    if managed.pools and zone.clusters is None:
        zone = with_names_of_nodes(zone, unchecked, managed)
    names = unchecked.knowing(zone.ids_by_name)
    selector = _ExoscaleSelector(zone, settings, zone.nodes_by_pool(names), own, managed)
    selections = selector.select()
    builder = _ExoscaleGroupBuilder(api, settings, names, zone)
    for name, warning in selector.warnings:
        builder.warn(name, warning)
    builder.gaps += [MissingData(f"provider/{PROVIDER}", doubt) for doubt in zone.doubts]
    if zone.no_clusters and (
        managed.pools
        or settings.sks_cluster
        or any(selection.pool.is_sks for selection in selections)
    ):
        builder.gaps.append(
            MissingData(
                f"provider/{PROVIDER}",
                zone.no_clusters,
                affected_decisions=("the groups of SKS clusters",),
            )
        )
    builder.read_types(selections)
    groups = (
        *(builder.build(selection) for selection in selections),
        *(builder.unread(pool, why) for pool, why in sorted(zone.unread.items())),
    )
    clusters = zone.clusters or ()
    groups = builder.with_marks(groups, own, managed, clusters)
    if not managed.pools or zone.clusters is None:
        return Observation(groups, tuple(builder.gaps))
    candidates = builder.candidates(managed, zone.clusters)
    sold = managed.selections(builder.quota())
    for warning in sorted({selection.warning for selection in sold} - {""}):
        builder.warn("", warning)
    return Observation(groups, tuple(builder.gaps), candidates, sold)


# -- bounds. Upstream takes a quota of -1, which means unlimited, as a maximum of -1, ignores what
# the account already uses, and sets the maximum to 0 whenever the quota cannot be read.


class _AccountQuota:
    """The account's quota, read once on first use."""

    def __init__(self, api: ExoscaleApi) -> None:
        self._api = api
        self.problem = ""

    @cached_property
    def quota(self) -> Quota | None:
        """None if it cannot be read; `problem` is the reason."""
        try:
            return self._api.quota()
        except ProviderError as error:
            self.problem = f"the quota could not be read: {error.described}"
        return None

    def is_used_up(self) -> bool:
        """Whether the account has reached its limit, as far as is known."""
        return self.quota is not None and self.quota.left is not None and self.quota.left <= 0


class ExoscaleRange(msgspec.Struct, frozen=True):
    """The minimum and maximum number of machines. doubt: why the bounds differ from the policy's or
    are unknown; error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


def least_of(pool: ExoscalePool, bounds: ExoscaleBounds | None) -> int:
    """Return the minimum size of a group: the policy's, or 1, and never less
    than the vendor accepts."""
    return max(bounds.min if bounds is not None else LEAST, pool.least)


def _size_range(
    pool: ExoscalePool, bounds: ExoscaleBounds | None, account: _AccountQuota, unlimited: int
) -> ExoscaleRange:
    """Return the bounds of a group: the policy's, otherwise what the account's quota leaves.
    unlimited: the maximum without a quota."""
    least = least_of(pool, bounds)
    doubts = []
    if bounds is not None and bounds.min < least:
        doubts.append(f"{pool.title} keeps {least}, not the policy's minimum of {bounds.min}")
    if bounds is not None and bounds.max is not None:
        if bounds.max >= least:
            return ExoscaleRange(least, bounds.max, "; ".join(doubts))
        error = (
            f"{pool.title} has at least {least} and the policy's maximum is {bounds.max}; change "
            "the policy"
        )
        return ExoscaleRange(bounds.min, bounds.max, error=error)
    most, quota = pool.target, account.quota
    if quota is None:
        doubts.append(f"its maximum is its size, for {account.problem}; give it one in the policy")
    else:
        most = max(most, unlimited) if quota.left is None else most + max(0, quota.left)
    return ExoscaleRange(least, max(most, least), "; ".join(doubts))


# -- instances


def _missing_machines(pool: ExoscalePool, zone: Zone) -> int:
    """Return the number of machines that are desired, do not exist and will not be created; 0 while
    the vendor works on it. The larger of the pool's own list and the machine list counts, because
    the two are not read at one instant. Machines below the vendor's minimum size do not count,
    because the size cannot be lowered for them."""
    if not pool.settled:
        return 0
    listed = sum(not is_leaving(machine.state) for machine in zone.listed.get(pool.id, ()))
    return max(0, min(pool.target, pool.pool.size) - max(len(pool.members), listed, pool.least))


def outdated(
    machine: ExoscaleInstance, pool: ExoscalePool, types: Mapping[str, InstanceType | None]
) -> str:
    """Return in what a machine differs from one that its pool would create now; "" in nothing that
    is known. types: instance types by id, for their names.

    Pool and Nodepool are described separately. Only what differs from both counts: if a
    change of the Nodepool never reached its pool, machines would otherwise be replaced by
    equal ones, again and again."""
    makers = (pool.pool,) if pool.nodepool is None else (pool.nodepool, pool.pool)

    def named(id_: str) -> str:
        kind = types.get(id_)
        return f"{kind.family}.{kind.size}" if kind is not None else id_

    rows = (
        ("template", machine.template.id, [maker.template.id for maker in makers]),
        ("instance type", machine.instance_type.id, [maker.instance_type.id for maker in makers]),
        ("disk", f"{machine.disk_size or ''}", [f"{maker.disk_size or ''}" for maker in makers]),
    )
    differences = []
    for what, own, current in rows:
        known = [text for text in current if text]
        if own and known and own.lower() not in {text.lower() for text in known}:
            unit = " GiB" if what == "disk" else ""
            differences.append(f"{what} {named(own)}{unit}, the group's is {named(known[0])}{unit}")
    return "; ".join(differences)


def _instances(
    pool: ExoscalePool,
    zone: Zone,
    names: ExoscaleGroupNames,
    held: str,
    types: Mapping[str, InstanceType | None],
) -> tuple[Instance, ...]:
    """Return all machines of the pool by id: those that name the pool, and those that it lists and
    that are in no other. held: why machines that are not nodes must not be deleted, unless the
    vendor itself reports them as broken."""
    states = {machine.id.lower(): machine.state for machine in zone.listed.get(pool.id, ())}
    for name in pool.members - states.keys():
        machine = zone.instances.get(name)
        if machine is None or machine.manager is None:
            states[name] = "" if machine is None else machine.state
    machines = {name: zone.instances.get(name, ExoscaleInstance(name)) for name in sorted(states)}
    return tuple(
        msgspec.structs.replace(
            _instance(machine, name, states[name], names, held),
            outdated="" if is_leaving(states[name]) else outdated(machine, pool, types),
            busy=states[name] if states[name] in _CHANGING else "",
        )
        for name, machine in machines.items()
    )


def _instance(
    machine: ExoscaleInstance, name: str, state: str, names: ExoscaleGroupNames, held: str
) -> Instance:
    """Build one instance. In an unknown state it is running if it is a node, otherwise it
    is being created."""
    node = names.node_of(name)
    reported = INSTANCE_STATES.get(state, InstanceState.CREATING)
    if node is not None:
        held = ""
    elif machine.name and names.may_be(machine.name):
        held = (
            f"the node {machine.name} has no providerID and the name of a machine of this group, "
            "so it may be that "
            "machine; let the vendor's cloud controller write it"
        )
    elif state == ERROR:
        held = ""
    return Instance(
        names.spell(name),
        instance_state(reported, is_node=node is not None),
        _BROKEN if state == ERROR and node is None else None,
        handle=name,
        node=node.name if node is not None else "",
        held=held,
        created=instant(machine.created_at),
        claimants=names.claimants(name),
    )


def _placeholders(pool: ExoscalePool, count: int, *, quota: bool) -> tuple[Instance, ...]:
    """Return one placeholder per missing machine. quota: the account has reached its limit."""
    text = (
        f"{pool.title} has the size {pool.target}, and {count} of its machines are not being made"
    )
    error = (
        InstanceError(
            "QuotaExceeded", "quota", f"{text}: the account's quota of instances is used up"
        )
        if quota
        else InstanceError("OutOfStock", "unavailable", text)
    )
    return placeholders(
        count, error, lambda number: placeholder_handle(pool.group_id, number), placeholder_id
    )


# -- selection


class ExoscaleSelection(msgspec.Struct, frozen=True):
    """A pool that is a group. bounds None: no policy entry names it. error: why it must not
    be changed; held: why its machines that are not nodes must not be deleted. discovered:
    only nodes make it a group."""

    pool: ExoscalePool
    bounds: ExoscaleBounds | None = None
    error: str = ""
    held: str = ""
    discovered: bool = False


class _ExoscaleSelector:
    """node_counts: pool -> number of its machines that are nodes of this cluster. warnings: (entry,
    problem), found by `select`; the entry is "" for the settings."""

    def __init__(
        self,
        zone: Zone,
        settings: ExoscaleSettings,
        node_counts: Mapping[str, int],
        own: Sequence[OwnPool],
        managed: ManagedPools,
    ) -> None:
        self._zone, self._settings, self._node_counts = zone, settings, node_counts
        self._own = {each.pool.id for each in own}
        self._foreign = {pool.id for pool in zone.pools if is_foreign(pool.nodepool, managed)}
        self._pools = [pool for pool in zone.pools if not pool.ending]
        self._by_exact_name = _by_name(
            (name, pool) for pool in self._pools for name in pool.exact_names
        )
        self._by_bare_name = _by_name((pool.name, pool) for pool in self._pools if pool.name)
        self._ambiguous: dict[str, str] = {}
        self._chosen: dict[str, ExoscaleSelection] = {}
        self.warnings: list[tuple[str, str]] = []
        self._discovers = settings.auto_discovery or not settings.groups
        self._home_is_named = False  # the policy names the SKS cluster, and nothing contradicts it
        self._home = self._home_cluster()
        self._known_clusters = self._home or frozenset(
            pool.cluster.id
            for entry in settings.groups
            for pool in self._by_exact_name.get(entry.name, ())
            if pool.cluster is not None
        )

    def select(self) -> tuple[ExoscaleSelection, ...]:
        """Return the groups, those of the policy's entries first and in their order."""
        self._resolve_entries()
        for pool in self._pools:
            if pool.own_name or pool.id in self._own:
                self._chosen[pool.id] = ExoscaleSelection(pool, own_bounds(pool))
        self._discover()
        return tuple(self._chosen.values())

    def _home_cluster(self) -> frozenset[str]:
        """Return this cluster's SKS cluster: the one that the policy names, otherwise the one with
        most nodes; none in a tie."""
        counts = Counter[str]()
        for pool in self._pools:
            if pool.cluster is not None and self._node_counts.get(pool.id):
                counts[pool.cluster.id] += self._node_counts[pool.id]
        # Nodes of a pool that no list contains might belong to a cluster that has
        # more nodes than any other.
        read = {pool.id for pool in self._zone.pools} | self._zone.unread.keys()
        most = max(counts.values(), default=0)
        if sum(count for name, count in self._node_counts.items() if name not in read) >= most:
            most = 0
        largest = frozenset(name for name, count in counts.items() if count == most)
        setting = self._settings.sks_cluster
        if setting and self._zone.clusters is not None:
            named = [
                cluster.id
                for cluster in self._zone.clusters
                if setting in {cluster.id, cluster.name}
            ]
            foreign = len(named) == 1 and counts[named[0]] < most
            if len(named) == 1 and not foreign:
                self._home_is_named = True
                return frozenset(named)
            # If the setting were followed, machines of the other cluster would be deleted, because
            # few of them are nodes of this cluster.
            text = (
                f"its nodes are of {', '.join(sorted(largest))} and not of {setting}; correct it"
                if foreign
                else (
                    f"it is the name of {len(named)} SKS clusters: {', '.join(sorted(named))}; "
                    "write the id"
                )
                if named
                else f"there is no SKS cluster {setting} in {self._settings.zone}"
            )
            self.warnings.append(("", f"providers.exoscale.sksCluster: {text}"))
        return largest if len(largest) == 1 else frozenset()

    def _is_home(self, pool: ExoscalePool) -> bool:
        return pool.cluster is not None and pool.cluster.id in self._home

    def _resolve_entries(self) -> None:
        """Resolve the entries to pools; ids and cluster/name before bare names, as
        in ExoscaleContext.bounds."""
        for entry in sorted(
            self._settings.groups, key=lambda entry: entry.name not in self._by_exact_name
        ):
            pools = self._pools_named(entry.name)
            if not pools:
                if entry.name not in self._zone.unread:
                    self.warnings.append((entry.name, self._unmatched(entry.name)))
            elif len(pools) > 1:
                titles = ", ".join(pool.title for pool in pools)
                text = (
                    f"{entry.name} means {len(pools)} groups: {titles}; write the id, or "
                    "cluster/name, of one"
                )
                self.warnings.append((entry.name, text))
                self._ambiguous |= dict.fromkeys((pool.id for pool in pools), text)
            elif (pool := pools[0]).id in self._chosen:
                bounds = self._chosen[pool.id].bounds
                first = bounds.name if bounds is not None else pool.id
                text = (
                    f"{entry.name} is the same group as {first}, which decides; take one of the "
                    "two out"
                )
                self.warnings.append((entry.name, text))
            else:
                self._chosen[pool.id] = ExoscaleSelection(
                    pool, entry, held=self._held(entry.name, pool)
                )

    def _discover(self) -> None:
        """Add the pools that belong to the cluster without being named, and the warnings
        about those that do not."""
        for pool in sorted(self._pools, key=lambda pool: (pool.name, pool.id)):
            if pool.id in self._chosen:
                continue
            if pool.id in self._foreign:
                self.warnings.append((pool.id, f"{pool.title} {_FOREIGN}"))
                continue
            count, error = self._node_counts.get(pool.id, 0), self._ambiguous.get(pool.id, "")
            if (error and count) or self._is_group(pool, count):
                discovered = not (self._home_is_named or self._has_most_machines(pool))
                self._chosen[pool.id] = ExoscaleSelection(pool, None, error, discovered=discovered)
            elif count:
                self.warnings.append((pool.id, self._left_alone(pool, count)))

    def _is_group(self, pool: ExoscalePool, count: int) -> bool:
        """Whether a pool that no entry names is a group. A Nodepool whose cluster could not be read
        is kept with an error, so that it does not count as deleted."""
        if pool.is_sks and pool.cluster is None:
            return count > 0 and (self._discovers or bool(self._settings.sks_cluster))
        home_group = self._is_home(pool) and (count > 0 or self._settings.scale_from_zero)
        if self._home_is_named:
            return home_group
        return self._discovers and (home_group or (not pool.is_sks and count > 0))

    def _has_most_machines(self, pool: ExoscalePool) -> bool:
        """Whether most machines of the Nodepool's SKS cluster are nodes of this cluster."""
        if pool.cluster is None or not self._is_home(pool):
            return False
        pools = [
            other
            for other in self._pools
            if other.cluster is not None and other.cluster.id == pool.cluster.id
        ]
        nodes = sum(self._node_counts.get(other.id, 0) for other in pools)
        return 2 * nodes > sum(len(self._zone.machines(other)) for other in pools)

    def _left_alone(self, pool: ExoscalePool, count: int) -> str:
        nodes = (
            f"{count} of the machines of {pool.title} {'is a node' if count == 1 else 'are nodes'} "
            "of this cluster"
        )
        if self._home_is_named or (pool.is_sks and self._discovers):
            return (
                f"{nodes}, and its SKS cluster is not the one that is scaled here, so it is left "
                "alone; look where "
                "these nodes come from, or name the pool in nodeGroups"
            )
        remedy = "name it, or set sksCluster or autoDiscovery"
        return f"{nodes}, and the policy names other pools, so it is left alone; {remedy}"

    def _pools_named(self, name: str) -> Sequence[ExoscalePool]:
        if name in self._by_exact_name:
            return self._by_exact_name[name]
        pools = [
            pool
            for pool in self._by_bare_name.get(name, ())
            if pool.cluster is None or not self._home or self._is_home(pool)
        ]
        return [
            pool for pool in pools if self._node_counts.get(pool.id) or self._is_home(pool)
        ] or pools

    def _held(self, name: str, pool: ExoscalePool) -> str:
        if (
            pool.cluster is None
            or name in pool.exact_names
            or pool.cluster.id in self._known_clusters
        ):
            return ""
        return (
            f"nothing says that the SKS cluster {pool.cluster.name} is this cluster, so "
            f"{pool.name} may be "
            f"another's; write {pool.cluster.name}/{pool.name}, or set "
            "providers.exoscale.sksCluster"
        )

    def _unmatched(self, name: str) -> str:
        text = f"no Nodepool and no instance pool of {self._settings.zone} is called {name}"
        foreign = [
            pool.cluster.name
            for pool in self._by_bare_name.get(name, ())
            if pool.cluster is not None
        ]
        ending = any(
            name == pool.name or name in pool.exact_names
            for pool in self._zone.pools
            if pool.ending
        )
        rows = (
            (ending, "; the one that was is being deleted"),
            (
                bool(foreign),
                f"; another SKS cluster has one, to mean it write {''.join(foreign[:1])}/{name}",
            ),
            (bool(self._zone.no_clusters), f" ({self._zone.no_clusters})"),
        )
        return text + next(
            (more for applies, more in rows if applies), "; correct the name, or take it out"
        )


def _by_name(pairs: Iterable[tuple[str, ExoscalePool]]) -> dict[str, list[ExoscalePool]]:
    pools: dict[str, list[ExoscalePool]] = {}
    for name, pool in pairs:
        pools.setdefault(name, []).append(pool)
    return pools


# -- groups


class _ExoscaleGroupBuilder(GroupBuilder):
    def __init__(
        self, api: ExoscaleApi, settings: ExoscaleSettings, names: ExoscaleGroupNames, zone: Zone
    ) -> None:
        super().__init__(PROVIDER)
        self._api, self._settings, self._names, self._zone = api, settings, names, zone
        self._account = _AccountQuota(api)
        self._types: Mapping[str, InstanceType | None] = {}
        self._types_problem = ""

    def read_types(self, selections: Sequence[ExoscaleSelection]) -> None:
        """Read the instance types of all groups, and a few that only members have."""
        types = sorted({type_of(selection.pool) for selection in selections} - {""})
        try:
            self._types = self._api.instance_types(types) if types else {}
        except ProviderError as error:
            self._types_problem = f"instance types could not be read: {error.described}"
            return
        members = [
            machine
            for selection in selections
            for machine in self._zone.listed.get(selection.pool.id, ())
        ]
        former = sorted({machine.instance_type.id for machine in members} - {"", *types})[
            :_MOST_FORMER_TYPES
        ]
        with suppress(ProviderError):  # only their names are wanted
            self._types = {**self._types, **(self._api.instance_types(former) if former else {})}

    def build(self, selection: ExoscaleSelection) -> NodeGroup:
        """Build the node group of a pool."""
        pool = selection.pool
        sizes = _size_range(pool, selection.bounds, self._account, self._settings.unlimited_max)
        if sizes.doubt:
            self.warn(pool.id, sizes.doubt)
        template = make_template(
            pool, self._types, self._settings.zone, self._reserve(pool), self._types_problem
        )
        instances = _instances(pool, self._zone, self._names, selection.held, self._types)
        for warning in (
            *template.warnings,
            *sorted({instance.held for instance in instances} - {""})[:1],
        ):
            self.warn(pool.id, warning)
        if missing := _missing_machines(pool, self._zone):
            instances += _placeholders(pool, missing, quota=self._account.is_used_up())
        unsure = (
            (
                f"{pool.title} has a machine that the vendor describes in a way that cannot be "
                "understood"
            )
            if pool.id.lower() in self._zone.unsure
            else ""
        )
        return NodeGroup(
            id=pool.group_id,
            provider=PROVIDER,
            min=sizes.min,
            max=sizes.max,
            target=max(0, pool.target),
            instances=instances,
            template=template.node,
            template_error=template.problem,
            states_taints=pool.nodepool is not None,
            error=selection.error or pool.no_scale_up or unsure or pool.skipped or sizes.error,
            priority=selection.bounds.priority if selection.bounds is not None else 0,
            aliases=pool.aliases,
            discovered=selection.discovered,
            name=pool.name,
            restarts=True,
            busy=pool.being_changed,
        )

    def quota(self) -> dict[str, int]:
        """Return what the account's quota leaves, as of PoolSelection: of instances, the only
        resource whose meaning for machines is documented."""
        quota = self._account.quota
        return {} if quota is None or quota.left is None else {"nodes": max(0, quota.left)}

    def _reserve(self, pool: ExoscalePool) -> Mapping[str, int]:
        """Return what a node of a pool reserves; one of an own group as much as of the candidate
        that it was, so that it holds the pods for which it was opened."""
        instance_type = self._types.get(type_of(pool))
        if not pool.own_name or instance_type is None:
            return self._settings.reserve
        return with_kernel(self._settings.reserve, instance_type.memory)

    def with_marks(
        self,
        groups: Iterable[NodeGroup],
        own: Iterable[OwnPool],
        managed: ManagedPools,
        clusters: Sequence[SksCluster],
    ) -> tuple[NodeGroup, ...]:
        """Return the groups; own ones with their declaration, price and maximum. Raises
        ProviderError."""
        type_names = {
            id_: f"{kind.family}.{kind.size}"
            for id_, kind in self._types.items()
            if kind is not None
        }
        stored = managed.shelf.last()
        originals = {
            pool.name: copied(pool, clusters, self._settings, managed) for pool in managed.pools
        }
        of_pool = {each.pool.group_id: each for each in own}
        marked = []
        for group in groups:
            each = of_pool.get(group.id)
            if each is None:
                marked.append(group)
                continue
            state = managed_of(each, self._settings.zone, type_names, managed, originals)
            candidate = None
            if not state.retiring:
                candidate = managed.growable(group.id, state.choice)
            most = candidate.pool.limits.nodes if candidate is not None else 0
            price = managed.price_of(state.choice)
            marked.append(
                msgspec.structs.replace(
                    group,
                    max=max(most, group.target),
                    pool=pool_of(state.choice.declaration),
                    managed=state,
                    instances=with_outdated(group.instances, state.retiring),
                    price=price,
                    currency=stored.catalogue.currency if stored is not None and price else "",
                    priced_at=stored.read_at if stored is not None and price else 0.0,
                )
            )
        return tuple(marked)

    def candidates(
        self, managed: ManagedPools, clusters: Sequence[SksCluster]
    ) -> tuple[NodeGroup, ...]:
        """Return the groups that could be opened. Raises ProviderError."""
        stored = managed.shelf.read()
        if stored is None:
            return ()
        used = {nodepool.name for cluster in clusters for nodepool in cluster.nodepools}
        settings = self._settings
        originals = {pool.name: copied(pool, clusters, settings, managed) for pool in managed.pools}
        groups = []
        for name, candidate in managed.candidates.items():
            original = originals[candidate.pool.name]
            if isinstance(original, str):
                continue
            if name in used:
                self._warn_of_name(name, clusters, managed)
                continue
            template = candidate_template(candidate, original, settings.zone, settings.reserve)
            currency = stored.catalogue.currency
            groups.append(candidate_group(candidate, template, currency, stored.read_at))
        return tuple(groups)

    def _warn_of_name(
        self, name: str, clusters: Sequence[SksCluster], managed: ManagedPools
    ) -> None:
        try:
            find_own(name, clusters, managed)
        except InvalidRequest as taken:
            self.warn(name, f"{taken.message}: it is left alone, and no group is opened there")

    def unread(self, pool: str, why: str) -> NodeGroup:
        """Build the node group of a pool of which only the id is known."""
        unnamed = ExoscaleBounds(pool, LEAST, None)
        bounds = next((entry for entry in self._settings.groups if entry.name == pool), unnamed)
        return NodeGroup(
            id=pool,
            provider=PROVIDER,
            min=bounds.min,
            max=bounds.max if bounds.max is not None else bounds.min,
            error=f"instance pool {pool} {why}",
            priority=bounds.priority,
        )
