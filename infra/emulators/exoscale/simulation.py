"""Simulates the zone: instances with start-up times, operations that fail later, SKS that replaces missing instances.

The rules follow the vendor's documentation. Due events are on the zone's agenda and happen at their own time and in
order, however late they are processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.emulators.exoscale.models import (
    DESTROYING,
    RUNNING,
    STARTING,
    Ending,
    ExoscalePool,
    ExoscaleProvisioningFate,
    Vm,
    Work,
)

if TYPE_CHECKING:
    from infra.emulators.exoscale.account import Zone

NO_QUOTA = ExoscaleProvisioningFate("unavailable", "The quota of resource instance is exhausted.")
_DONE = Ending("success", "", "", done=True)


def grow(zone: Zone, pool: ExoscalePool, work: Work | None, count: int, at: float) -> None:
    """Request instances. The reason for unavailable ones is reported at the end of the operation."""
    for _ in range(count):
        fate = pool.fates.pop(0) if pool.fates else None
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
    """Start to delete these instances."""
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


def finish(zone: Zone, id_: str, at: float) -> None:
    """End an operation."""
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
    """Let SKS retry to create missing instances."""
    pool = zone.pools.get(id_)
    if pool is None or zone.heals is None:
        return
    missing = pool.size - len(pool.staying)
    if missing > 0 and pool.state_now == RUNNING:
        grow(zone, pool, None, missing, at)
    if len(pool.staying) < pool.size:
        zone.agenda.plan(at + zone.heals, _heal, id_)
