"""Reads the state of a zone for one pass: complete lists, or single items if the key may not read lists.

Instance pools are read first, then instances (so that instances created in between are included), then SKS clusters if
a pool needs them.

A key with upstream's list of operations gets 403 for the first two. The pools are then found through the Nodepools that
the nodes name, and through one machine of each pool, which reveals the pool's other members. The number of calls
depends on the pools, not on the nodes. Any other failure of the instance or cluster list only reduces what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

from chalicelib.policy.vendors.exoscale import ExoscaleSettings
from chalicelib.providers.errors import NotFound, ProviderError, Throttled, Unauthorized
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.instance_states import is_leaving
from chalicelib.providers.exoscale.models import ExoscaleInstance, InstancePool, SksCluster
from chalicelib.providers.exoscale.pools import ExoscalePool, make_pools
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames, is_id

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
