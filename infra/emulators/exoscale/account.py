"""One emulated zone of one organisation: Instance Pools, SKS clusters and what is in them, on a clock that is given.

No HTTP in here: a test sets the scene and looks at the outcome with this object, while the program under test comes in
over the wire (server.py). Everything is counted, nothing drawn, so two runs are the same to the letter of their ids.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Mapping

from infra.emulators.exoscale import simulation
from infra.emulators.exoscale.models import (
    LEAVING,
    RUNNING,
    STARTING,
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

ZONE = "ch-gva-2"
Play = Callable[["Zone", str, float], None]
_GIB = 2**30
_NUMBERS = {"kind": 0xA1, "pool": 0xB2, "nodepool": 0xC3, "cluster": 0xD4, "vm": 0xE5, "work": 0xF6, "template": 0x17}


def example_id(kind: str, number: int) -> str:
    """A UUID that looks like an example: the kind is in its beginning, the number at its end."""
    return f"{_NUMBERS[kind]:02x}000000-0000-4000-8000-{number:012d}"


KINDS = tuple(
    Kind(example_id("kind", number), family, size, cpus, memory * _GIB, gpus, authorized)
    for number, (family, size, cpus, memory, gpus, authorized) in enumerate(
        (
            ("standard", "small", 2, 2, 0, True),
            ("standard", "medium", 2, 4, 0, True),
            ("standard", "large", 4, 8, 0, True),
            ("standard", "extra-large", 4, 16, 0, True),
            ("standard", "huge", 8, 32, 0, True),
            ("cpu", "extra-large", 8, 16, 0, True),
            ("memory", "extra-large", 4, 32, 0, True),
            ("gpu3", "small", 12, 56, 1, True),
            ("gpua5000", "small", 12, 56, 1, False),
        ),
        start=1,
    )
)


class Zone:
    """The zone. lock: hold it to change anything while a server is running.

    limit: instances of the organisation, -1 for no limit; other_usage: those in other zones. refuses_quota: a scaling
    past it is refused at once instead of failing later. size_at_once: a pool shows the wanted size as soon as it is
    asked for it instead of when that is done. heals: seconds after which SKS tries again for instances that are
    missing, and again; None for never. shows_leaving: instances on their way out are still listed as members.
    empties_pools: a standalone pool may be scaled to nothing (the document says that its size is positive).
    """

    def __init__(self, clock: Callable[[], float], *, name: str = ZONE, times: ExoscaleDurations | None = None) -> None:
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
        self.heals: float | None = None
        self.agenda: list[tuple[float, int, Play, str]] = []
        self._planned = itertools.count()
        self._counts = {kind: itertools.count(1) for kind in _NUMBERS}

    # -- the scene

    def add_pool(
        self,
        name: str,
        *,
        size: int = 0,
        type: str = "standard.medium",  # noqa: A002  # the vendor's word
        disk: int = 50,
        labels: Mapping[str, str] | None = None,
    ) -> ExoscalePool:
        """A standalone Instance Pool with `size` running instances."""
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
        """An SKS cluster without Nodepools."""
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
        """A Nodepool with its hidden pool. taints: key -> (value, effect)."""
        with self.lock:
            id_ = self.number("nodepool")
            pool = self.add_pool(f"nodepool-{name}-{id_[-4:]}", size=size, type=type, disk=disk)
            pool.nodepool, pool.cluster = id_, cluster
            made = Nodepool(id_, name, pool, self.clock(), dict(labels or {}), dict(taints or {}), max_pods)
            self.clusters[cluster].nodepools[id_] = made
            return made

    def add_members(self, pool: str, count: int, *, state: str = RUNNING) -> list[str]:
        """Instances that are there already, as if from long ago; the pool's size is left as it is. Their ids."""
        with self.lock:
            made = [self.make(self.pools[pool], state, self.clock(), None) for _ in range(count)]
            for vm in made:
                vm.served = float("-inf") if state != STARTING else vm.served
            return [vm.id for vm in made]

    def add_lonely(self, state: str = RUNNING) -> str:
        """An instance that no pool manages; its id."""
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

    def set_state(self, id_: str, state: str) -> None:
        """Of an instance, or of a pool ("": what follows from what goes on in it)."""
        with self.lock:
            (self.vms.get(id_) or self.pools[id_]).state = state

    def spoil(self, pool: str, fate: ExoscaleProvisioningFate, times: int = 1) -> None:
        """The next `times` instances that the pool asks for meet this fate."""
        with self.lock:
            self.pools[pool].fates += [fate] * times

    def end_next(self, pool: str, ending: Ending, times: int = 1) -> None:
        """The next `times` operations on the pool end in this way."""
        with self.lock:
            self.pools[pool].endings += [ending] * times

    def delete_pool(self, pool: str) -> None:
        """Somebody deletes the pool with all that is in it: `destroying` at once, gone a while later."""
        with self.lock:
            self.pools[pool].state = "destroying"
            for vm in self.pools[pool].members.values():
                vm.state = "destroying"
            self.plan(self.clock() + self.times.delete_pool, simulation.drop, pool)

    def vanish(self, vm: str) -> None:
        """An instance is gone from one moment to the next; its pool's size is left as it is."""
        with self.lock:
            self.forget(vm)

    # -- what is in it

    def number(self, kind: str) -> str:
        """A fresh id of that kind."""
        return example_id(kind, next(self._counts[kind]))

    def kind(self, name: str) -> Kind:
        """An instance type by `family.size`. KeyError if there is none."""
        return {each.name: each for each in self.kinds.values()}[name]

    def nodepool(self, pool: ExoscalePool) -> Nodepool | None:
        """Whose hidden pool it is."""
        return self.clusters[pool.cluster].nodepools[pool.nodepool] if pool.nodepool else None

    def make(self, pool: ExoscalePool, state: str, at: float, fate: ExoscaleProvisioningFate | None) -> Vm:
        """One more member."""
        number = next(self._counts["vm"])
        vm = Vm(
            example_id("vm", number),
            f"pool-{pool.id[-4:]}-{number:05d}",
            pool.id,
            pool.kind,
            pool.disk,
            state,
            at,
            number,
            fate=fate,
        )
        self.vms[vm.id] = pool.members[vm.id] = vm
        return vm

    def forget(self, vm: str) -> None:
        """An instance is no more."""
        gone = self.vms.pop(vm)
        if gone.pool in self.pools:
            self.pools[gone.pool].members.pop(vm, None)

    def usage(self) -> int:
        """Instances of the organisation."""
        return self.other_usage + len(self.vms)

    def free(self) -> int | None:
        """How many more the quota allows; None: any number."""
        return None if self.limit < 0 else max(0, self.limit - self.usage())

    def running(self) -> list[Vm]:
        """Instances that run or could, of all pools."""
        with self.lock:
            return [vm for vm in self.vms.values() if vm.state not in LEAVING and vm.pool]

    # -- time

    def plan(self, at: float, play: Play, subject: str) -> None:
        """Something to come."""
        heapq.heappush(self.agenda, (at, next(self._planned), play, subject))

    def step(self) -> None:
        """All that is due by now."""
        with self.lock:
            simulation.advance(self, self.clock())
