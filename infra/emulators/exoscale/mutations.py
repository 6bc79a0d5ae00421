"""The two orders that change a pool, with everything that is checked before they are accepted (exoscale.md §3).

An order that is accepted may still come to nothing; that is the operation's to tell (engine.py). There is no token of
idempotency: an order that comes twice is two orders.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.emulators.exoscale import simulation
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.errors import ExoscaleRefusedError
from infra.emulators.exoscale.models import BUSY, Ending, ExoscalePool, Vm, Work


class ExoscaleMutations:
    """Takes orders for one zone."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone

    def scale(self, pool: ExoscalePool, size: int) -> Work:
        """To an absolute size. Whom it takes when there are too many is the vendor's choice: the oldest."""
        self._check(pool)
        if size == 0 and not pool.nodepool and not self._zone.empties_pools:
            raise ExoscaleRefusedError(400, "size: must be greater than 0")
        missing = size - len(pool.staying)
        free = self._zone.free()
        if missing > 0 and free is not None and missing > free and self._zone.refuses_quota:
            raise ExoscaleRefusedError(
                412, f"Quota exceeded for resource instance: usage {self._zone.usage()}, limit {self._zone.limit}"
            )
        return self._carry_out(pool, size, missing, pool.staying[: max(0, -missing)])

    def evict(self, pool: ExoscalePool, ids: Sequence[str]) -> Work:
        """These members, and the size goes down by their number."""
        self._check(pool)
        if not ids:
            raise ExoscaleRefusedError(400, "instances: at least one is needed")
        staying = {vm.id: vm for vm in pool.staying}
        for each in ids:
            if each not in staying:
                raise ExoscaleRefusedError(400, f"Instance {each} is not a member of the instance pool {pool.id}")
        victims = [staying[each] for each in dict.fromkeys(ids)]
        size = max(0, pool.size - len(victims))
        if size == 0 and not pool.nodepool and not self._zone.empties_pools:
            raise ExoscaleRefusedError(400, "an instance pool keeps at least one instance")
        return self._carry_out(pool, size, 0, victims)

    def _check(self, pool: ExoscalePool) -> None:
        if pool.state_now in BUSY:
            raise ExoscaleRefusedError(409, f"The instance pool {pool.id} is busy: {pool.state_now}")

    def _carry_out(self, pool: ExoscalePool, size: int, missing: int, victims: Sequence[Vm]) -> Work:
        zone, now = self._zone, self._zone.clock()
        ending = pool.endings.pop(0) if pool.endings else None
        work = self._new(pool, size, now, grows=missing > 0, ending=ending)
        zone.works[work.id] = pool.work = work
        if ending is None or ending.done:
            if zone.size_at_once:
                pool.size = size
            simulation.grow(zone, pool, work, missing, now)
            simulation.leave(zone, victims, now)
        if zone.times.operation:
            zone.plan(now + zone.times.operation, simulation.finish, work.id)
        else:
            simulation.finish(zone, work.id, now)
        return work

    def _new(self, pool: ExoscalePool, size: int, now: float, *, grows: bool, ending: Ending | None) -> Work:
        if pool.nodepool:
            return Work(
                self._zone.number("work"),
                pool.id,
                "get-sks-nodepool",
                pool.nodepool,
                f"/v2/sks-cluster/{pool.cluster}/nodepool/{pool.nodepool}",
                now,
                size,
                grows,
                ending=ending,
            )
        return Work(
            self._zone.number("work"),
            pool.id,
            "get-instance-pool",
            pool.id,
            f"/v2/instance-pool/{pool.id}",
            now,
            size,
            grows,
            ending=ending,
        )
