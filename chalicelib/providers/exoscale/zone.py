"""TODO"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.providers.errors import NotFound, ProviderError, Throttled, Unauthorized
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import NO_SIZE, ExoscaleInstance, InstancePool, Nodepool, SksCluster
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames, is_id
from chalicelib.providers.exoscale.settings import ExoscaleSettings

ERROR = "error"
INSTANCE_STATES: Mapping[str, InstanceState] = MappingProxyType(
    {
        "starting": InstanceState.CREATING,
        "running": InstanceState.RUNNING,
        "migrating": InstanceState.RUNNING,
        "stopped": InstanceState.RUNNING,  # a node that is not ready is judged by the planner
        "stopping": InstanceState.DELETING,
        "destroying": InstanceState.DELETING,
        "destroyed": InstanceState.DELETING,
        "expunging": InstanceState.DELETING,
        ERROR: InstanceState.CREATING,
    }
)
POOL_BUSY = frozenset({"creating", "scaling-up", "scaling-down", "updating", "destroying"})
NODEPOOL_BUSY = frozenset({"creating", "scaling", "updating", "renewing-token", "deleting"})
OTHERS = frozenset({"creating", "updating", "renewing-token"})
"""The states above that no request of Outscaler causes. Their duration is unknown, so the group is skipped."""
SETTLED = frozenset({"running", "degraded", "suspended", "error"})
"""Pools and Nodepools that create and delete nothing: missing instances do not appear."""
ENDING = frozenset({"destroying", "deleting"})
SUSPENDED = "suspended"
# States of a pool in which evicted members may still be listed while they are being deleted.
SHRINKING = frozenset({"scaling-down", "updating", "destroying", "scaling", "deleting"})


def is_leaving(state: str) -> bool:
    """Whether a machine in that state is gone or being deleted."""
    return INSTANCE_STATES.get(state) is InstanceState.DELETING


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


T = TypeVar("T")

_LISTS = 4
_IN_A_ROW = 2  # consecutive refusals after which no further requests are sent
_MOST_ASKED = 100  # maximum machines read one by one in a pass, with a key that may not read lists


class Zone(msgspec.Struct, frozen=True):
    """instances: the known data of each machine by id; listed: those that name a pool, by pool. clusters None: not
    read, and no_clusters is the reason if they were needed. unread: pools that could not be read, with the reason.
    doubts: warnings about reduced certainty. unsure: pools with a machine whose description cannot be decoded."""

    sites: tuple[ExoscalePool, ...]
    instances: dict[str, ExoscaleInstance]
    listed: dict[str, list[ExoscaleInstance]]
    clusters: tuple[SksCluster, ...] | None
    no_clusters: str = ""
    unread: dict[str, str] = {}
    doubts: tuple[str, ...] = ()
    unsure: frozenset[str] = frozenset()

    @property
    def called(self) -> dict[str, str]:
        """Return names of machines -> their ids, for names that identify one machine."""
        times = Counter(each.name for each in self.instances.values())
        return {each.name: name for name, each in self.instances.items() if each.name and times[each.name] == 1}

    def machines(self, pool: ExoscalePool) -> frozenset[str]:
        """Return the remaining machines of a pool: those that name it, and those that it lists and that are in no
        other."""
        said = {each.id.lower() for each in self.listed.get(pool.id, ())}
        for name in pool.members - said:
            each = self.instances.get(name)
            if each is None or each.manager is None or each.manager.id == pool.id:
                said.add(name)
        return frozenset(
            name for name in said if name not in self.instances or not is_leaving(self.instances[name].state)
        )

    def ours(self, names: ExoscaleGroupNames) -> dict[str, int]:
        """Return pool -> number of its machines that are certainly nodes of the cluster; pools without any are left
        out."""
        managers = {name: each.manager.id for name, each in self.instances.items() if each.manager is not None}
        for site in self.sites:
            for member in site.members:
                managers.setdefault(member, site.id)
        return dict(Counter(managers[name] for name in names if name in managers))


def read_zone(api: ExoscaleApi, settings: ExoscaleSettings, names: ExoscaleGroupNames) -> Zone:
    """Read everything that a pass needs; raises ProviderError if nothing could be read."""
    api.expect(_LISTS)
    reader = _ExoscaleReader(api, settings, names)
    reader.read()
    return reader.zone()


class _ExoscaleReader:
    def __init__(self, api: ExoscaleApi, settings: ExoscaleSettings, names: ExoscaleGroupNames) -> None:
        self._api, self._settings, self._names = api, settings, names
        self._pools: dict[str, InstancePool] = {}
        self._members: set[str] = set()  # of the pools read one by one
        self._instances: dict[str, ExoscaleInstance] = {}
        self._odd: list[ExoscaleInstance] = []
        self._clusters: tuple[SksCluster, ...] | None = None
        self._no_clusters = ""
        self._unread: dict[str, str] = {}
        self._doubts: list[str] = []
        self._stopped: ProviderError | None = None
        self._row = 0

    def zone(self) -> Zone:
        """The zone as read so far."""
        listed: dict[str, list[ExoscaleInstance]] = {}
        for each in self._instances.values():
            if each.manager is not None:
                listed.setdefault(each.manager.id, []).append(each)
        return Zone(
            make_pools(self._pools.values(), self._clusters or ()),
            self._instances,
            listed,
            self._clusters,
            self._no_clusters,
            self._unread,
            tuple(self._doubts),
            self._unsure(),
        )

    def _unsure(self) -> frozenset[str]:
        """Return the pools affected by undecodable machines: those that such machines name, and those with an unlisted
        member."""
        if not self._odd:
            return frozenset()
        short = {
            name
            for name, pool in self._pools.items()
            if any(member.id.lower() not in self._instances for member in pool.instances)
        }
        return frozenset(short | {each.manager.id.lower() for each in self._odd if each.manager is not None})

    def read(self) -> None:
        """Read the lists; single items if the key may not read lists."""
        denied = self._read_pools()
        listed = self._read_instances()
        if denied is None:
            if self._needs_clusters():
                self._read_clusters()
        else:
            self._one_by_one(denied)
        if listed is False:
            self._ask_for_machines()

    def _read_pools(self) -> ProviderError | None:
        try:
            self._pools = {pool.id.lower(): pool for pool in self._api.pools()}
        except ProviderError as error:
            if not is_forbidden(error):
                raise
            self._doubts.append(
                "the API key may not list-instance-pools, so pools are looked for by the nodes; a pool "
                "without a node is seen only if its id is in the policy"
            )
            return error
        return None

    def _read_instances(self) -> bool | None:
        """Return whether the instances are known; None if they cannot be read now and single reads would fail as
        well."""
        try:
            found = self._api.instances()
        except ProviderError as error:
            text = f"the states of machines could not be read: {error.error_class}: {error.message}"
            forbidden = is_forbidden(error)
            self._doubts.append(
                "the API key may not list-instances, so machines are asked for one by one" if forbidden else text
            )
            return False if forbidden else None
        self._instances = {each.id.lower(): each for each in found if each.id}
        self._odd = [each for each in found if not each.id]
        if self._odd:
            self._doubts.append(f"{len(self._odd)} of the machines that the vendor lists cannot be understood")
        return True

    def _read_clusters(self) -> None:
        try:
            self._clusters = self._api.clusters()
        except ProviderError as error:
            self._no_clusters = f"the SKS clusters could not be read: {error.error_class}: {error.message}"

    def _needs_clusters(self) -> bool:
        """Whether SKS clusters must be read: for a pool with our nodes, a named pool, or names that no standalone pool
        has.

        A key for Instance Pools alone may not list clusters, so they are read only if needed."""
        sites = make_pools(self._pools.values(), ())
        sks = [site for site in sites if site.is_sks]
        if self._settings.sks_cluster:
            return True
        if not sks:
            return False
        owners = self.zone().ours(self._names)
        plain = {name for site in sites if not site.is_sks for name in (site.name, *site.exact)}
        return any(each.name not in plain for each in self._settings.groups) or any(site.id in owners for site in sks)

    # -- single items

    def _one_by_one(self, error: ProviderError) -> None:
        self._by_nodepools()
        wanted = [
            each.manager.id
            for name, each in self._instances.items()
            if self._names.node_of(name) is not None and each.manager is not None
        ]
        named = [each.name for each in self._settings.groups if is_id(each.name)]
        for pool in dict.fromkeys([*wanted, *(each for each in named if not self._is_nodepool(each))]):
            self._pool(pool)
        for name in self._names:
            if name not in self._instances and name not in self._members:
                self._machine(name)
        if any(site.is_sks for site in make_pools(self._pools.values(), ())) and self._unasked():
            self._read_clusters()
        if not self._pools and self._clusters is None:
            raise self._stopped if self._stopped is not None else error

    def _unasked(self) -> bool:
        return self._clusters is None and not self._no_clusters

    def _is_nodepool(self, name: str) -> bool:
        return any(nodepool.id.lower() == name for cluster in self._clusters or () for nodepool in cluster.nodepools)

    def _by_nodepools(self) -> None:
        """Read the pools of the SKS clusters that the nodes or the policy name."""
        named, ours = {each.name for each in self._settings.groups}, self._names.nodepools()
        if not (ours or self._settings.sks_cluster or named):
            return
        self._read_clusters()
        for cluster in self._clusters or ():
            home = self._settings.sks_cluster in {cluster.id, cluster.name} or any(
                nodepool.id.lower() in ours for nodepool in cluster.nodepools
            )
            for nodepool in cluster.nodepools:
                called = {
                    nodepool.id.lower(),
                    nodepool.instance_pool.id.lower(),
                    nodepool.name,
                    f"{cluster.name}/{nodepool.name}",
                    f"{cluster.id}/{nodepool.name}",
                }
                if (home or called & named) and nodepool.instance_pool.id:
                    self._pool(nodepool.instance_pool.id)

    def _pool(self, pool: str) -> None:
        name = pool.lower()
        if name in self._pools or name in self._unread:
            return
        found = self._try(lambda: self._api.pool(pool), name)
        if found is not None:
            self._pools[name] = found
            self._members |= {member.id.lower() for member in found.instances}

    def _machine(self, name: str) -> None:
        """Read one machine and its pool, whose other members then need no separate request."""
        instance = self._try(lambda: self._api.instance(name))
        if instance is not None:
            self._instances[name] = instance
            if instance.manager is not None:
                self._pool(instance.manager.id)

    def _ask_for_machines(self) -> None:
        """Read the members that are not nodes, whose state is known only to the vendor. Nodes count as running."""
        waiting = [
            name
            for name in dict.fromkeys(member.id.lower() for pool in self._pools.values() for member in pool.instances)
            if name not in self._instances and self._names.node_of(name) is None
        ]
        for name in waiting[:_MOST_ASKED]:
            instance = self._try(lambda name=name: self._api.instance(name))  # type: ignore[misc]
            if instance is not None:
                self._instances[name] = instance

    def _try(self, question: Callable[[], T], pool: str = "") -> T | None:
        """Return the response; None if there is none. After two consecutive refusals no further requests are sent."""
        try:
            if self._stopped is not None:
                raise self._stopped
            answer = question()
        except NotFound:
            return None
        except ProviderError as error:
            self._row += 1
            if (
                self._row >= _IN_A_ROW
                or isinstance(error, Throttled)
                or (isinstance(error, Unauthorized) and not is_forbidden(error))
            ):
                self._stopped = self._stopped or error
            text = f"could not be read: {error.error_class}: {error.message}"
            if pool:
                self._unread[pool] = text
            elif (doubt := f"some machines {text}") not in self._doubts:
                self._doubts.append(doubt)
            return None
        self._row = 0
        return answer


def living(instances: list[ExoscaleInstance]) -> list[ExoscaleInstance]:
    """Return the machines that are neither gone nor leaving."""
    return [each for each in instances if not is_leaving(each.state)]
