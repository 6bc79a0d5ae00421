"""One emulated zone of one organisation, with Instance Pools, SKS clusters and their
contents, on a given clock.

It has no HTTP: a test sets up and inspects the zone with this object, while the program under
test uses the API (server.py). Ids come from counters and nothing is random, so two runs are
identical, including ids.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence

from infra.emulators.exoscale.models import (
    BUSY,
    DESTROYING,
    LEAVING,
    RUNNING,
    STARTING,
    UNAVAILABLE,
    Ending,
    ExoscaleCluster,
    ExoscaleDurations,
    ExoscalePool,
    ExoscaleProvisioningFate,
    Kind,
    Nodepool,
    Vm,
    Work,
)
from infra.emulators.exoscale.nodepool_request import NodepoolRequest
from infra.emulators.vendor_common.fault_injection import VendorRefusedError
from infra.emulators.vendor_common.keys import Agenda

ZONE = "ch-gva-2"
MOST_NODEPOOLS = 16
"""Nodepools of one cluster, according to the vendor's document."""
_GIB = 2**30
_NUMBERS = {
    "kind": 0xA1,
    "pool": 0xB2,
    "nodepool": 0xC3,
    "cluster": 0xD4,
    "vm": 0xE5,
    "work": 0xF6,
    "template": 0x17,
}


def example_id(kind: str, number: int) -> str:
    """Return a UUID that is recognisable as an example: it begins with the kind
    and ends with the number."""
    return f"{_NUMBERS[kind]:02x}000000-0000-4000-8000-{number:012d}"


KINDS = tuple(
    Kind(example_id("kind", number), family, size, cpus, memory * _GIB, gpus, authorized, price)
    for number, (family, size, cpus, memory, gpus, authorized, price) in enumerate(
        (
            ("standard", "small", 2, 2, 0, True, 0.02),
            ("standard", "medium", 2, 4, 0, True, 0.04),
            ("standard", "large", 4, 8, 0, True, 0.08),
            ("standard", "extra-large", 4, 16, 0, True, 0.15),
            ("standard", "huge", 8, 32, 0, True, 0.3),
            ("cpu", "extra-large", 8, 16, 0, True, 0.25),
            ("memory", "extra-large", 4, 32, 0, True, 0.2),
            ("gpu3", "small", 12, 56, 1, True, 0.0),
            ("gpua5000", "small", 12, 56, 1, False, 1.2),
        ),
        start=1,
    )
)


class Zone:
    """The zone. lock: acquire it to change anything while a server is running.

    limit: instances of the organisation, -1 for no limit. other_usage: instances in other zones.
    refuses_quota: a scaling beyond the limit is refused at once instead of failing later.
    size_at_once: a pool shows the new size when it is requested instead of when the operation is
    done. heals: seconds after which SKS retries to create missing instances, repeatedly; None for
    never. shows_leaving: instances being deleted are still listed as members. empties_pools: a
    standalone pool can be scaled to 0 (the API document requires a positive size). sold_out:
    instance types of which none can be created, as `family.size`. reboot_endings: of the next
    restarts.

    Of requests to create a Nodepool: nodepool_limit: Nodepools of the organisation, -1 for no
    limit. unique_names: a second Nodepool of a name is refused in its cluster. listing_delay:
    seconds until lists show a new Nodepool, its instances excepted. creation_fates: of the first
    instances of the next Nodepool. creation_endings: ends of the next such operations; without
    `done`, no Nodepool is made.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        name: str = ZONE,
        times: ExoscaleDurations | None = None,
    ) -> None:
        self.clock, self.name, self.times = clock, name, times or ExoscaleDurations()
        self.lock = threading.RLock()
        self.kinds = {kind.id: kind for kind in KINDS}
        self.pools: dict[str, ExoscalePool] = {}
        self.clusters: dict[str, ExoscaleCluster] = {}
        self.vms: dict[str, Vm] = {}
        self.works: dict[str, Work] = {}
        self.limit, self.other_usage = 500, 0
        self.refuses_quota = self.size_at_once = self.shows_leaving = True
        self.empties_pools = False
        self.sold_out: set[str] = set()
        self.heals: float | None = None
        self.reboot_endings: list[Ending] = []
        self.nodepool_limit, self.unique_names, self.listing_delay = -1, False, 0.0
        self.creation_fates: list[ExoscaleProvisioningFate] = []
        self.creation_endings: list[Ending] = []
        self.agenda: Agenda[Zone] = Agenda()
        self._counts = {kind: itertools.count(1) for kind in _NUMBERS}

    # -- test setup

    def add_pool(
        self,
        name: str,
        *,
        size: int = 0,
        type: str = "standard.medium",  # noqa: A002  # the vendor's word
        disk: int = 50,
        labels: Mapping[str, str] | None = None,
    ) -> ExoscalePool:
        """Add a standalone Instance Pool with `size` running instances."""
        with self.lock:
            pool = ExoscalePool(
                self.number("pool"),
                name,
                self.kind(type),
                size,
                disk,
                example_id("template", 1),
                labels=dict(labels or {}),
            )
            self.pools[pool.id] = pool
            self.add_members(pool.id, size)
            return pool

    def add_cluster(self, name: str) -> ExoscaleCluster:
        with self.lock:
            cluster = ExoscaleCluster(self.number("cluster"), name, self.clock())
            self.clusters[cluster.id] = cluster
            return cluster

    def add_nodepool(
        self,
        cluster: str,
        name: str,
        *,
        size: int = 0,
        type: str = "standard.medium",  # noqa: A002  # the vendor's word
        disk: int = 50,
        labels: Mapping[str, str] | None = None,
        taints: Mapping[str, tuple[str, str]] | None = None,
        max_pods: int = 0,
    ) -> Nodepool:
        """Add a Nodepool with its hidden pool. taints: key -> (value, effect)."""
        with self.lock:
            id_ = self.number("nodepool")
            pool = self.add_pool(f"nodepool-{name}-{id_[-4:]}", size=size, type=type, disk=disk)
            pool.nodepool, pool.cluster = id_, cluster
            made = Nodepool(
                id_, name, pool, self.clock(), dict(labels or {}), dict(taints or {}), max_pods
            )
            self.clusters[cluster].nodepools[id_] = made
            return made

    def add_members(self, pool: str, count: int, *, state: str = RUNNING) -> list[str]:
        with self.lock:
            made = [self.make(self.pools[pool], state, self.clock(), None) for _ in range(count)]
            for vm in made:
                vm.served = float("-inf") if state != STARTING else vm.served
            return [vm.id for vm in made]

    def add_lonely(self, state: str = RUNNING) -> str:
        with self.lock:
            number = next(self._counts["vm"])
            vm = Vm(
                example_id("vm", number),
                f"lonely-{number}",
                "",
                self.kind("standard.medium"),
                50,
                state,
                self.clock(),
                number,
                float("-inf"),
            )
            self.vms[vm.id] = vm
            return vm.id

    def update_pool(
        self,
        pool: str,
        *,
        template: str = "",
        type: str = "",  # noqa: A002  # the vendor's word
        disk: int = 0,
    ) -> None:
        """Change what a pool, and its Nodepool, creates from now on; its
        members stay as they are."""
        with self.lock:
            updated = self.pools[pool]
            updated.template = template or updated.template
            updated.kind = self.kind(type) if type else updated.kind
            updated.disk = disk or updated.disk

    def set_state(self, id_: str, state: str) -> None:
        """Set the state of an instance, or of a pool ("": computed from its activity)."""
        with self.lock:
            (self.vms.get(id_) or self.pools[id_]).state = state

    def spoil(self, pool: str, fate: ExoscaleProvisioningFate, times: int = 1) -> None:
        """Give the next `times` instances that the pool requests this fate."""
        with self.lock:
            self.pools[pool].fates += [fate] * times

    def end_next(self, pool: str, ending: Ending, times: int = 1) -> None:
        """Let the next `times` operations on the pool end in this way."""
        with self.lock:
            self.pools[pool].endings += [ending] * times

    def delete_pool(self, pool: str) -> None:
        """Delete the pool with all its instances, as a person would: `destroying` at
        once, gone a while later."""
        with self.lock:
            self.pools[pool].state = "destroying"
            for vm in self.pools[pool].members.values():
                vm.state = "destroying"
            self.agenda.plan(self.clock() + self.times.delete_pool, _drop, pool)

    def vanish(self, vm: str) -> None:
        with self.lock:
            self.forget(vm)

    # -- content

    def number(self, kind: str) -> str:
        return example_id(kind, next(self._counts[kind]))

    def kind(self, name: str) -> Kind:
        """Return an instance type by `family.size`. KeyError if it does not exist."""
        return {each.name: each for each in self.kinds.values()}[name]

    def nodepool(self, pool: ExoscalePool) -> Nodepool | None:
        return self.clusters[pool.cluster].nodepools[pool.nodepool] if pool.nodepool else None

    def make(
        self, pool: ExoscalePool, state: str, at: float, fate: ExoscaleProvisioningFate | None
    ) -> Vm:
        number = next(self._counts["vm"])
        vm = Vm(
            example_id("vm", number),
            f"{pool.prefix}-{pool.id[-4:]}-{number:05d}",
            pool.id,
            pool.kind,
            pool.disk,
            state,
            at,
            number,
            fate=fate,
            template=pool.template,
        )
        self.vms[vm.id] = pool.members[vm.id] = vm
        return vm

    def forget(self, vm: str) -> None:
        gone = self.vms.pop(vm)
        if gone.pool in self.pools:
            self.pools[gone.pool].members.pop(vm, None)

    def usage(self) -> int:
        return self.other_usage + len(self.vms)

    def nodepool_usage(self) -> int:
        return sum(len(cluster.nodepools) for cluster in self.clusters.values())

    def free(self) -> int | None:
        """Return how many more instances the quota allows, None for no limit."""
        return None if self.limit < 0 else max(0, self.limit - self.usage())

    def running(self) -> list[Vm]:
        with self.lock:
            return [vm for vm in self.vms.values() if vm.state not in LEAVING and vm.pool]

    # -- time

    def step(self) -> None:
        with self.lock:
            self.agenda.play_due(self, self.clock())


NO_QUOTA = ExoscaleProvisioningFate("unavailable", "The quota of resource instance is exhausted.")
_DONE = Ending("success", "", "", done=True)


def grow(zone: Zone, pool: ExoscalePool, work: Work | None, count: int, at: float) -> None:
    """Request instances. The reason for unavailable ones is reported at the end of the
    operation."""
    for _ in range(count):
        fate = pool.fates.pop(0) if pool.fates else None
        if fate is None and pool.kind.name in zone.sold_out:
            fate = UNAVAILABLE
        if fate is None and zone.free() == 0:
            fate = NO_QUOTA
        if fate is not None and work is not None:
            work.problems += [fate] if fate.reason else []
        if fate is not None and not fate.made:
            continue
        vm = zone.make(pool, STARTING, at, fate)
        if work is not None:
            work.made += 1
        zone.agenda.plan(at + zone.times.create, _served, vm.id)


def leave(zone: Zone, victims: Sequence[Vm], at: float) -> None:
    for vm in victims:
        vm.state = DESTROYING
        zone.agenda.plan(at + zone.times.destroy, _gone, vm.id)


def _served(zone: Zone, id_: str, at: float) -> None:
    vm = zone.vms.get(id_)
    if vm is None or vm.state != STARTING:
        return
    if vm.fate is not None:
        vm.state = "error"
    else:
        vm.state, vm.served = RUNNING, at


def _gone(zone: Zone, id_: str, _: float) -> None:
    if id_ in zone.vms:
        zone.forget(id_)


def _drop(zone: Zone, id_: str, _: float) -> None:
    """A pool is gone with its instances, and a Nodepool with it."""
    pool = zone.pools.pop(id_)
    for vm in list(pool.members.values()):
        zone.vms.pop(vm.id, None)
    if pool.cluster:
        del zone.clusters[pool.cluster].nodepools[pool.nodepool]


def _show(zone: Zone, id_: str, _: float) -> None:
    """Lists show the Nodepool of this pool from now on."""
    pool = zone.pools.get(id_)
    nodepool = zone.nodepool(pool) if pool is not None else None
    if nodepool is not None:
        nodepool.listed = True


def finish(zone: Zone, id_: str, at: float) -> None:
    work = zone.works[id_]
    pool = zone.pools.get(work.pool)
    ending = work.ending or _verdict(work)
    work.state, work.reason, work.message = ending.state, ending.reason, ending.message
    if pool is None:
        return
    if ending.done or work.ending is None:
        pool.size = work.size
    if zone.heals is not None and pool.nodepool and len(pool.staying) < pool.size:
        zone.agenda.plan(at + zone.heals, _heal, pool.id)


def _verdict(work: Work) -> Ending:
    if not work.problems:
        return _DONE
    first = work.problems[0]
    return Ending("failure", "partial" if work.made else first.reason, first.message)


def _heal(zone: Zone, id_: str, at: float) -> None:
    pool = zone.pools.get(id_)
    if pool is None or zone.heals is None:
        return
    missing = pool.size - len(pool.staying)
    if missing > 0 and pool.state_now == RUNNING:
        grow(zone, pool, None, missing, at)
    if len(pool.staying) < pool.size:
        zone.agenda.plan(at + zone.heals, _heal, id_)


class ExoscaleMutations:
    """Accepts change requests for one zone."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone

    def scale(self, pool: ExoscalePool, size: int) -> Work:
        """Scale to an absolute size. The vendor chooses the instances to
        remove; here the oldest ones."""
        self._check(pool)
        if size == 0 and not pool.nodepool and not self._zone.empties_pools:
            raise VendorRefusedError(400, "size: must be greater than 0")
        missing = size - len(pool.staying)
        self._check_quota(missing)
        return self._carry_out(pool, size, missing, pool.staying[: max(0, -missing)])

    def evict(self, pool: ExoscalePool, ids: Sequence[str]) -> Work:
        self._check(pool)
        if not ids:
            raise VendorRefusedError(400, "instances: at least one is needed")
        staying = {vm.id: vm for vm in pool.staying}
        for each in ids:
            if each not in staying:
                raise VendorRefusedError(
                    400, f"Instance {each} is not a member of the instance pool {pool.id}"
                )
        victims = [staying[each] for each in dict.fromkeys(ids)]
        size = max(0, pool.size - len(victims))
        if size == 0 and not pool.nodepool and not self._zone.empties_pools:
            raise VendorRefusedError(400, "an instance pool keeps at least one instance")
        return self._carry_out(pool, size, 0, victims)

    def create(self, cluster: ExoscaleCluster, request: NodepoolRequest) -> Work:
        """Create a Nodepool with its pool, which requests its first instances as a scaled one
        does. Raises VendorRefusedError."""
        kind = self._usable_kind(request.instance_type.id)
        self._check_nodepools(cluster, request.name)
        self._check_quota(request.size)
        zone, now = self._zone, self._zone.clock()
        nodepool = _add_requested(zone, cluster, kind, request)
        pool = nodepool.pool
        pool.fates, zone.creation_fates = zone.creation_fates, []
        ending = zone.creation_endings.pop(0) if zone.creation_endings else None
        pool.endings += [ending] if ending is not None else []
        work = self._carry_out(pool, request.size, request.size, ())
        work.creates = True
        if ending is not None and not ending.done:
            _drop(zone, pool.id, now)
        elif zone.listing_delay:
            nodepool.listed = False
            zone.agenda.plan(now + zone.listing_delay, _show, pool.id)
        return work

    def label(self, nodepool: Nodepool, labels: Mapping[str, str]) -> Work:
        """Replace the labels of a Nodepool; Nodes that exist keep theirs."""
        self._check(nodepool.pool)
        zone, now = self._zone, self._zone.clock()
        work = self._new(nodepool.pool, nodepool.pool.size, now, grows=False, ending=None)
        zone.works[work.id] = work
        nodepool.labels = dict(labels)
        self._end_after(work, now, zone.times.operation)
        return work

    def delete(self, nodepool: Nodepool) -> Work:
        """Delete a Nodepool with all its members. The operation ends when it is gone."""
        pool = nodepool.pool
        self._check(pool)
        zone, now = self._zone, self._zone.clock()
        ending = pool.endings.pop(0) if pool.endings else None
        work = self._new(pool, 0, now, grows=False, ending=ending)
        zone.works[work.id] = pool.work = work
        if ending is None or ending.done:
            zone.delete_pool(pool.id)
        self._end_after(work, now, zone.times.delete_pool)
        return work

    def reboot(self, vm: Vm) -> Work:
        """Restart an instance that runs."""
        if vm.state != RUNNING:
            raise VendorRefusedError(409, f"The instance {vm.id} is {vm.state}")
        zone, now = self._zone, self._zone.clock()
        ending = zone.reboot_endings.pop(0) if zone.reboot_endings else None
        about = ("get-instance", vm.id, f"/v2/instance/{vm.id}")
        work = Work(zone.number("work"), "", *about, now, 0, grows=False, ending=ending)
        zone.works[work.id] = work
        if ending is None or ending.done:
            vm.reboots.append(now)
        self._end_after(work, now, zone.times.operation)
        return work

    def _usable_kind(self, id_: str) -> Kind:
        kind = self._zone.kinds.get(id_)
        if kind is None:
            raise VendorRefusedError(404, f"Instance type {id_} not found")
        if not kind.authorized:
            raise VendorRefusedError(403, f"Instance type {id_} is not authorized")
        return kind

    def _check_nodepools(self, cluster: ExoscaleCluster, name: str) -> None:
        """Raise VendorRefusedError if the cluster cannot get a further Nodepool of this name."""
        zone = self._zone
        usage, limit = zone.nodepool_usage(), zone.nodepool_limit
        if 0 <= limit <= usage:
            raise VendorRefusedError(412, f"Nodepool quota exceeded: usage {usage}, limit {limit}")
        if len(cluster.nodepools) >= MOST_NODEPOOLS:
            raise VendorRefusedError(412, f"Nodepool limit reached: {MOST_NODEPOOLS} of a cluster")
        names = {nodepool.name for nodepool in cluster.nodepools.values()}
        if zone.unique_names and name in names:
            raise VendorRefusedError(409, f"A Nodepool with the name {name} exists already")

    def _check_quota(self, missing: int) -> None:
        """Raise VendorRefusedError if the quota has no room for that many further instances."""
        free = self._zone.free()
        if missing > 0 and free is not None and missing > free and self._zone.refuses_quota:
            raise VendorRefusedError(
                412,
                (
                    f"Quota exceeded for resource instance: usage {self._zone.usage()}, limit "
                    f"{self._zone.limit}"
                ),
            )

    def _check(self, pool: ExoscalePool) -> None:
        if pool.state_now in BUSY:
            raise VendorRefusedError(409, f"The instance pool {pool.id} is busy: {pool.state_now}")

    def _carry_out(
        self, pool: ExoscalePool, size: int, missing: int, victims: Sequence[Vm]
    ) -> Work:
        zone, now = self._zone, self._zone.clock()
        ending = pool.endings.pop(0) if pool.endings else None
        work = self._new(pool, size, now, grows=missing > 0, ending=ending)
        zone.works[work.id] = pool.work = work
        if ending is None or ending.done:
            if zone.size_at_once:
                pool.size = size
            grow(zone, pool, work, missing, now)
            leave(zone, victims, now)
        self._end_after(work, now, zone.times.operation)
        return work

    def _end_after(self, work: Work, now: float, seconds: float) -> None:
        if seconds:
            self._zone.agenda.plan(now + seconds, finish, work.id)
        else:
            finish(self._zone, work.id, now)

    def _new(
        self, pool: ExoscalePool, size: int, now: float, *, grows: bool, ending: Ending | None
    ) -> Work:
        about = ("get-instance-pool", pool.id, f"/v2/instance-pool/{pool.id}")
        if pool.nodepool:
            link = f"/v2/sks-cluster/{pool.cluster}/nodepool/{pool.nodepool}"
            about = ("get-sks-nodepool", pool.nodepool, link)
        return Work(self._zone.number("work"), pool.id, *about, now, size, grows, ending=ending)


def _add_requested(
    zone: Zone, cluster: ExoscaleCluster, kind: Kind, request: NodepoolRequest
) -> Nodepool:
    """Add the requested Nodepool, still without instances."""
    taints = {key: (taint.value, taint.effect) for key, taint in request.taints.items()}
    nodepool = zone.add_nodepool(
        cluster.id,
        request.name,
        type=kind.name,
        disk=request.disk_size,
        labels=request.labels,
        taints=taints,
        max_pods=request.kubelet_max_pods or 0,
    )
    nodepool.description = request.description
    pool = nodepool.pool
    pool.prefix = request.instance_prefix
    pool.public_ip_assignment = request.public_ip_assignment
    pool.security_groups = tuple(group.id for group in request.security_groups)
    pool.private_networks = tuple(network.id for network in request.private_networks)
    pool.anti_affinity_groups = tuple(group.id for group in request.anti_affinity_groups)
    return nodepool
