"""The zone as the vendor reports it: pools with their Nodepools, their states and their
machines, read once per pass.

Instance pools are read first, then instances (so that instances created in between are included),
then SKS clusters if a pool needs them. A key with upstream's list of operations gets 403 for the
first two. The pools are then found through the Nodepools that the nodes name, and through one
machine of each pool, which reveals the pool's other members. The number of calls depends on the
pools, not on the nodes. Any other failure of the instance or cluster list only reduces what is
known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.policy.vendors.exoscale import ExoscaleSettings
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import (
    NO_SIZE,
    ExoscaleInstance,
    InstancePool,
    Nodepool,
    SksCluster,
)
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames, is_id
from chalicelib.providers.kit.errors import NotFound, ProviderError, Throttled, Unauthorized

T = TypeVar("T")

# -- states. Upstream maps most machine states to nothing, so its core never sees them. It does not
# know `updating`, and waits ten minutes for a suspended pool at every call. An unknown state blocks
# nothing here: the machine is judged by its node, and a change of the pool is attempted, which the
# vendor may refuse.

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
SUSPENDED = "suspended"
CREATING, DELETING = "creating", "deleting"
"""States of a Nodepool that is being made, and of one that is going."""
# Busy states that no request of Outscaler causes. Their duration is unknown,
# so the group is skipped.
_CREATIONS = frozenset({CREATING})
_FOREIGN_CHANGES = _CREATIONS | {"updating", "renewing-token"}
# Pools and Nodepools that create and delete nothing: missing instances do not appear.
_SETTLED = frozenset({"running", "degraded", SUSPENDED, ERROR})
_ENDING = frozenset({"destroying", DELETING})
# States of a pool in which evicted members may still be listed while they are being deleted.
_SHRINKING = frozenset({"scaling-down", "updating", "destroying", "scaling", "deleting"})


def is_leaving(state: str) -> bool:
    """Whether a machine in that state is gone or being deleted."""
    return INSTANCE_STATES.get(state) is InstanceState.DELETING


# -- pools


class ExoscalePool(msgspec.Struct, frozen=True):
    """An Instance Pool with the Nodepool that owns it, if SKS created it: one type
    for both kinds of group.

    cluster, nodepool: None for a standalone pool, and for one whose Nodepool is in no cluster that
    was read. own_name: of a group that Outscaler has made, "" of any other. The id is that of the
    Instance Pool for both kinds, as in upstream; users may write the Nodepool's id, its name, or
    cluster/name. Names are not unique, so they are resolved where all pools are known
    (node_groups.py)."""

    pool: InstancePool
    cluster: SksCluster | None = None
    nodepool: Nodepool | None = None
    own_name: str = ""

    @property
    def id(self) -> str:
        """The Instance Pool's id."""
        return self.pool.id

    @property
    def group_id(self) -> str:
        """The group's id: of one that Outscaler has made its name, which stays when it is made
        again."""
        return self.own_name or self.id

    @property
    def is_sks(self) -> bool:
        """Whether SKS owns the pool, which is then changed only through its Nodepool."""
        return self.pool.manager is not None and self.pool.manager.type == "sks-nodepool"

    @property
    def owner(self) -> str:
        """The Nodepool's id; "" for a standalone pool."""
        return self.pool.manager.id.lower() if self.is_sks and self.pool.manager is not None else ""

    @property
    def name(self) -> str:
        """The name that users see: the Nodepool's, because the name of the
        pool behind it is generated."""
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
        return frozenset(member.id.lower() for member in self.pool.instances if member.id)

    @property
    def least(self) -> int:
        """The smallest size that the vendor accepts: 0 is confirmed for SKS only."""
        return max(self.pool.min_available, 0 if self.is_sks else 1)

    @property
    def _states(self) -> frozenset[str]:
        return frozenset(
            {self.pool.state} | ({self.nodepool.state} if self.nodepool is not None else set())
        )

    @property
    def states(self) -> str:
        """The states of pool and Nodepool for messages."""
        return (
            f"{self.pool.state}, Nodepool {self.nodepool.state}"
            if self.nodepool is not None
            else self.pool.state
        )

    @property
    def busy(self) -> bool:
        """Whether the vendor is changing the pool, which then accepts no other change."""
        return self.pool.state in POOL_BUSY or (
            self.nodepool is not None and self.nodepool.state in NODEPOOL_BUSY
        )

    @property
    def being_changed(self) -> str:
        """That the vendor is changing the pool, for messages; "" if it is not."""
        return f"{self.title} is being changed ({self.states})" if self.busy else ""

    @property
    def unsettled(self) -> str:
        """Why the pool's numbers are not final: it is being changed, or has more members than
        its size; "" if they are."""
        if self.busy:
            return self.being_changed
        surplus = len(self.members) > self.target
        return (
            f"{self.title} still has {len(self.members)} machines and the size {self.target}"
            if surplus
            else ""
        )

    @property
    def shrinking(self) -> bool:
        """Whether it is unknown which members will stay: evicted ones may still be listed."""
        return bool(self._states & _SHRINKING) or len(self.members) > self.target

    @property
    def unreadable(self) -> str:
        """Why the pool cannot be used at all; "" if it was decoded."""
        unknown = NO_SIZE in {self.pool.size, self.target}
        return (
            f"{self.title} is described by the vendor in a way that cannot be understood"
            if unknown
            else ""
        )

    @property
    def skipped(self) -> str:
        """Why a pass skips the pool: pods assigned to it would wait until another party's change
        ends; "" if it is not skipped. Nobody else creates a group that Outscaler has made."""
        own_changes = _CREATIONS if self.own_name else frozenset()
        foreign = bool(self._states & (_FOREIGN_CHANGES - own_changes))
        return (
            f"{self.title} is being changed ({self.states}), which this program did not ask for"
            if foreign
            else ""
        )

    @property
    def settled(self) -> bool:
        """Whether nothing is being created or deleted, as far as is known. In an unknown
        state the pool is neither busy nor settled: a change may be requested, and
        missing machines prove nothing."""
        return self._states <= _SETTLED

    @property
    def ending(self) -> bool:
        """Whether the pool is being deleted and is therefore not a group."""
        return bool(self._states & _ENDING)

    @property
    def no_scale_up(self) -> str:
        """Why the pool cannot be scaled up; "" if it can."""
        if self.unreadable:
            return self.unreadable
        if self.pool.state == SUSPENDED:
            return (
                f"{self.title} is suspended by the vendor; see why in the portal, fix the cause "
                "and resume the pool"
            )
        if self.is_sks and self.nodepool is None:
            return (
                f"{self.title} belongs to the Nodepool {self.owner}, which is in no SKS cluster "
                "that could be "
                "read; allow list-sks-clusters to the API key"
            )
        return ""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names that users may write instead of its id."""
        return tuple(sorted({*self.exact_names, self.name} - {"", self.id}))

    @property
    def exact_names(self) -> frozenset[str]:
        """The names that cannot match another cluster's group: ids in lower case, and
        cluster/name."""
        names = {self.id.lower(), self.owner}
        if self.cluster is not None and self.nodepool is not None:
            names |= {
                f"{self.cluster.name}/{self.nodepool.name}",
                f"{self.cluster.id}/{self.nodepool.name}",
            }
        return frozenset(names - {""})


def make_pools(
    pools: Iterable[InstancePool], clusters: Iterable[SksCluster]
) -> tuple[ExoscalePool, ...]:
    """Return every pool with its Nodepool, matched by the pool's manager and not by names."""
    owners = {
        nodepool.id.lower(): (cluster, nodepool)
        for cluster in clusters
        for nodepool in cluster.nodepools
    }
    return tuple(
        ExoscalePool(pool, *owners.get(ExoscalePool(pool).owner, (None, None))) for pool in pools
    )


# -- the zone

_LISTS = 4
_REFUSALS = 2  # consecutive refusals after which no further requests are sent
_MOST_ASKED = 100  # maximum machines read one by one in a pass, with a key that may not read lists


class Zone(msgspec.Struct, frozen=True):
    """instances: the known data of each machine by id; listed: those that name a pool, by pool.
    clusters None: not read, and no_clusters is the reason if they were needed. unread: pools that
    could not be read, with the reason. doubts: warnings about reduced certainty. unsure: pools with
    a machine whose description cannot be decoded."""

    pools: tuple[ExoscalePool, ...]
    instances: dict[str, ExoscaleInstance]
    listed: dict[str, list[ExoscaleInstance]]
    clusters: tuple[SksCluster, ...] | None
    no_clusters: str = ""
    unread: dict[str, str] = {}
    doubts: tuple[str, ...] = ()
    unsure: frozenset[str] = frozenset()

    @property
    def ids_by_name(self) -> dict[str, str]:
        """Return names of machines -> their ids, for names that identify one machine."""
        times = Counter(machine.name for machine in self.instances.values())
        return {
            machine.name: name
            for name, machine in self.instances.items()
            if machine.name and times[machine.name] == 1
        }

    def machines(self, pool: ExoscalePool) -> frozenset[str]:
        """Return the remaining machines of a pool: those that name it, and those that it lists
        and that are in no other."""
        names = {machine.id.lower() for machine in self.listed.get(pool.id, ())}
        for name in pool.members - names:
            machine = self.instances.get(name)
            if machine is None or machine.manager is None or machine.manager.id == pool.id:
                names.add(name)
        return frozenset(
            name
            for name in names
            if name not in self.instances or not is_leaving(self.instances[name].state)
        )

    def nodes_by_pool(self, names: ExoscaleGroupNames) -> dict[str, int]:
        """Return pool -> number of its machines that are certainly nodes of the cluster; pools
        without any are left out."""
        pools = {
            name: machine.manager.id
            for name, machine in self.instances.items()
            if machine.manager is not None
        }
        for pool in self.pools:
            for member in pool.members:
                pools.setdefault(member, pool.id)
        return dict(Counter(pools[name] for name in names if name in pools))


def read_zone(
    api: ExoscaleApi,
    settings: ExoscaleSettings,
    names: ExoscaleGroupNames,
    *,
    managed: bool = False,
) -> Zone:
    """Read everything that a pass needs; raises ProviderError if nothing could be read. managed:
    Outscaler makes Nodepools, so the SKS clusters are needed in any case."""
    api.expect(_LISTS)
    return _ZoneReader(api, settings, names, managed=managed).read()


class _ZoneReader:
    def __init__(
        self,
        api: ExoscaleApi,
        settings: ExoscaleSettings,
        names: ExoscaleGroupNames,
        *,
        managed: bool,
    ) -> None:
        self._api, self._settings, self._names = api, settings, names
        self._managed = managed
        self._pools: dict[str, InstancePool] = {}
        self._members: set[str] = set()  # of the pools read one by one
        self._instances: dict[str, ExoscaleInstance] = {}
        self._undecoded: list[ExoscaleInstance] = []
        self._clusters: tuple[SksCluster, ...] | None = None
        self._no_clusters = ""
        self._unread: dict[str, str] = {}
        self._doubts: list[str] = []
        self._stopped: ProviderError | None = None
        self._refusals = 0

    def read(self) -> Zone:
        """Read the lists; single items if the key may not read lists."""
        forbidden = self._read_pools()
        single_machines = self._read_instances()
        if forbidden is not None:
            self._read_one_by_one(forbidden)
        elif self._needs_clusters():
            self._read_clusters()
        if single_machines:
            self._read_unjoined_machines()
        return self._zone()

    def _zone(self) -> Zone:
        """Return the zone as read so far."""
        listed: dict[str, list[ExoscaleInstance]] = {}
        for machine in self._instances.values():
            if machine.manager is not None:
                listed.setdefault(machine.manager.id, []).append(machine)
        unsure: set[str] = set()
        # affects the pools that such machines name, and those with an unlisted member
        if self._undecoded:
            unsure |= {
                machine.manager.id.lower()
                for machine in self._undecoded
                if machine.manager is not None
            }
            unsure |= {
                name
                for name, pool in self._pools.items()
                if any(member.id.lower() not in self._instances for member in pool.instances)
            }
        return Zone(
            make_pools(self._pools.values(), self._clusters or ()),
            self._instances,
            listed,
            self._clusters,
            self._no_clusters,
            self._unread,
            tuple(self._doubts),
            frozenset(unsure),
        )

    def _read_pools(self) -> ProviderError | None:
        """Read the list of pools; return the refusal if the key may not read it. Raises
        any other ProviderError."""
        try:
            self._pools = {pool.id.lower(): pool for pool in self._api.pools()}
        except ProviderError as error:
            if not is_forbidden(error):
                raise
            self._doubts.append(
                "the API key may not list-instance-pools, so pools are looked for by the nodes; a "
                "pool "
                "without a node is seen only if its id is in the policy"
            )
            return error
        return None

    def _read_instances(self) -> bool:
        """Read the list of instances; return whether machines can be read one by one instead. False
        as well if the list cannot be read now, because single reads would fail too."""
        try:
            machines = self._api.instances()
        except ProviderError as error:
            text = f"the states of machines could not be read: {error.described}"
            forbidden = is_forbidden(error)
            self._doubts.append(
                "the API key may not list-instances, so machines are asked for one by one"
                if forbidden
                else text
            )
            return forbidden
        self._instances = {machine.id.lower(): machine for machine in machines if machine.id}
        self._undecoded = [machine for machine in machines if not machine.id]
        if self._undecoded:
            self._doubts.append(
                f"{len(self._undecoded)} of the machines that the vendor lists cannot be understood"
            )
        return False

    def _read_clusters(self) -> None:
        try:
            self._clusters = self._api.clusters()
        except ProviderError as error:
            self._no_clusters = f"the SKS clusters could not be read: {error.described}"

    def _needs_clusters(self) -> bool:
        """Whether SKS clusters must be read: for a pool with our nodes, a named pool, or names
        that no standalone pool has. A key for Instance Pools alone may not list clusters, so they
        are read only if needed."""
        zone = self._zone()
        sks = [pool for pool in zone.pools if pool.is_sks]
        if self._managed or self._settings.sks_cluster:
            return True
        if not sks:
            return False
        counts = zone.nodes_by_pool(self._names)
        standalone = {
            name
            for pool in zone.pools
            if not pool.is_sks
            for name in (pool.name, *pool.exact_names)
        }
        return any(entry.name not in standalone for entry in self._settings.groups) or any(
            pool.id in counts for pool in sks
        )

    # -- single items

    def _read_one_by_one(self, forbidden: ProviderError) -> None:
        self._read_pools_of_clusters()
        nodepools = {
            nodepool.id.lower()
            for cluster in self._clusters or ()
            for nodepool in cluster.nodepools
        }
        of_nodes = [
            machine.manager.id
            for name, machine in self._instances.items()
            if self._names.node_of(name) is not None and machine.manager is not None
        ]
        named = [
            entry.name
            for entry in self._settings.groups
            if is_id(entry.name) and entry.name not in nodepools
        ]
        for pool in dict.fromkeys([*of_nodes, *named]):
            self._read_pool(pool)
        for name in self._names:
            if name not in self._instances and name not in self._members:
                machine = self._read_machine(name)
                if machine is not None and machine.manager is not None:
                    # its other members then need no request of their own
                    self._read_pool(machine.manager.id)
        not_asked = self._clusters is None and not self._no_clusters
        if not_asked and any(ExoscalePool(pool).is_sks for pool in self._pools.values()):
            self._read_clusters()
        if not self._pools and self._clusters is None:
            raise self._stopped if self._stopped is not None else forbidden

    def _read_pools_of_clusters(self) -> None:
        """Read the pools of the SKS clusters that the nodes or the policy name."""
        named, of_nodes = {entry.name for entry in self._settings.groups}, self._names.nodepools()
        if not (of_nodes or self._settings.sks_cluster or named or self._managed):
            return
        self._read_clusters()
        for cluster in self._clusters or ():
            home = self._settings.sks_cluster in {cluster.id, cluster.name} or any(
                nodepool.id.lower() in of_nodes for nodepool in cluster.nodepools
            )
            for nodepool in cluster.nodepools:
                names = {
                    nodepool.id.lower(),
                    nodepool.instance_pool.id.lower(),
                    nodepool.name,
                    f"{cluster.name}/{nodepool.name}",
                    f"{cluster.id}/{nodepool.name}",
                }
                if (home or names & named) and nodepool.instance_pool.id:
                    self._read_pool(nodepool.instance_pool.id)

    def _read_pool(self, pool: str) -> None:
        name = pool.lower()
        if name in self._pools or name in self._unread:
            return
        answer = self._try(lambda: self._api.pool(pool), name)
        if answer is not None:
            self._pools[name] = answer
            self._members |= {member.id.lower() for member in answer.instances}

    def _read_machine(self, name: str) -> ExoscaleInstance | None:
        machine = self._try(lambda: self._api.instance(name))
        if machine is not None:
            self._instances[name] = machine
        return machine

    def _read_unjoined_machines(self) -> None:
        """Read the members that are not nodes, whose state is known only to the
        vendor. Nodes count as running."""
        members = dict.fromkeys(
            member.id.lower() for pool in self._pools.values() for member in pool.instances
        )
        unknown = [
            name
            for name in members
            if name not in self._instances and self._names.node_of(name) is None
        ]
        for name in unknown[:_MOST_ASKED]:
            self._read_machine(name)

    def _try(self, request: Callable[[], T], pool: str = "") -> T | None:
        """Return the response; None if there is none. After two consecutive refusals no
        further requests are sent."""
        try:
            if self._stopped is not None:
                raise self._stopped
            answer = request()
        except NotFound:
            return None
        except ProviderError as error:
            self._refusals += 1
            if (
                self._refusals >= _REFUSALS
                or isinstance(error, Throttled)
                or (isinstance(error, Unauthorized) and not is_forbidden(error))
            ):
                self._stopped = self._stopped or error
            text = f"could not be read: {error.described}"
            if pool:
                self._unread[pool] = text
            elif (doubt := f"some machines {text}") not in self._doubts:
                self._doubts.append(doubt)
            return None
        self._refusals = 0
        return answer
