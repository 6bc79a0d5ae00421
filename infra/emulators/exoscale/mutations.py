"""The two requests that change a pool, with all checks before they are accepted.

An accepted request may still fail; its operation reports that (simulation.py). There is no idempotency token, so a
repeated request is executed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.emulators.exoscale import simulation
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import BUSY, Ending, ExoscalePool, Vm, Work
from infra.emulators.vendor_common.errors import VendorRefusedError


class ExoscaleMutations:
    """Accepts change requests for one zone."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone

    def scale(self, pool: ExoscalePool, size: int) -> Work:
        """Scale to an absolute size. The vendor chooses the instances to remove; here the oldest ones."""
        self._check(pool)
        if size == 0 and not pool.nodepool and not self._zone.empties_pools:
            raise VendorRefusedError(400, "size: must be greater than 0")
        missing = size - len(pool.staying)
        free = self._zone.free()
        if missing > 0 and free is not None and missing > free and self._zone.refuses_quota:
            raise VendorRefusedError(
                412, f"Quota exceeded for resource instance: usage {self._zone.usage()}, limit {self._zone.limit}"
            )
        return self._carry_out(pool, size, missing, pool.staying[: max(0, -missing)])

    def evict(self, pool: ExoscalePool, ids: Sequence[str]) -> Work:
        """Evict these members and reduce the size by their number."""
        self._check(pool)
        if not ids:
            raise VendorRefusedError(400, "instances: at least one is needed")
        staying = {vm.id: vm for vm in pool.staying}
        for each in ids:
            if each not in staying:
                raise VendorRefusedError(400, f"Instance {each} is not a member of the instance pool {pool.id}")
        victims = [staying[each] for each in dict.fromkeys(ids)]
        size = max(0, pool.size - len(victims))
        if size == 0 and not pool.nodepool and not self._zone.empties_pools:
            raise VendorRefusedError(400, "an instance pool keeps at least one instance")
        return self._carry_out(pool, size, 0, victims)

    def _check(self, pool: ExoscalePool) -> None:
        if pool.state_now in BUSY:
            raise VendorRefusedError(409, f"The instance pool {pool.id} is busy: {pool.state_now}")

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
            zone.agenda.plan(now + zone.times.operation, simulation.finish, work.id)
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
