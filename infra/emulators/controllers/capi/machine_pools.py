"""MachinePools: the requested number of instances, with a Machine for each or without Machines.

The infrastructure provider decides this, so here it is an annotation on the pool. Without Machines,
instances exist only in a list of ids. What a cloud would know about them is stored in another
annotation, so that a restarted simulation continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.model.timestamps import format_time, parse_time
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.machine_deployments import (
    TakeFault,
    default_replicas,
    first_to_go,
    machine_of,
)
from infra.emulators.controllers.capi.machines import (
    Amounts,
    MachineClass,
    MachineTimes,
    initialised,
    joining_node,
    promised,
)
from infra.emulators.controllers.object_writes import (
    by_controller,
    changed,
    erase,
    is_true,
    listed,
    with_conditions,
    write,
    write_status,
)
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.store import ObjectStore

HOW = "local.outscaler/pool"
"""Annotation: `instances` (the default), `machines`, or `heedless`: with Machines, whose
delete-machine annotations are ignored."""
INSTANCES = "local.outscaler/instances"
TEMPLATES = ("localmachinepools", "infrastructure.cluster.x-k8s.io")


class MachinePoolInstance(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server of a pool without Machines. born, leaving: RFC 3339. fault: as for Machines."""

    name: str
    born: str
    fault: str = ""
    leaving: str = ""


class MachinePoolState(msgspec.Struct, frozen=True):
    """The content of the pool's annotation. count: total number of instances ever
    created, for their names."""

    count: int = 0
    instances: tuple[MachinePoolInstance, ...] = ()


def with_machines(pool: KubeObject) -> bool:
    return fields.marks(pool).get(HOW) in {"machines", "heedless"}


class MachinePools:
    """The MachinePool controller and its infrastructure provider, with a management
    store and a workload store."""

    def __init__(
        self,
        store: ObjectStore,
        workload: ObjectStore,
        clock: Callable[[], float],
        times: MachineTimes,
        classes: Mapping[str, MachineClass],
        reserve: Amounts,
        take_fault: TakeFault,
    ) -> None:
        self._store, self._workload, self._clock, self._times = store, workload, clock, times
        self._classes, self._reserve, self._take_fault = classes, reserve, take_fault

    def step(self) -> None:
        pools = listed(self._store, "machinepools", fields.GROUP)
        if not pools:
            return
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        machines = by_controller(listed(self._store, "machines", fields.GROUP))
        for pool in pools:
            if "deletionTimestamp" in pool["metadata"] or fields.is_paused(pool, paused):
                continue
            if pool["spec"].get("replicas") is None:
                replicas = default_replicas(pool)
                write(
                    self._store,
                    "machinepools",
                    changed(pool, "spec", replicas=replicas),
                    fields.GROUP,
                )
            elif with_machines(pool):
                self._of_machines(pool, machines.get(pool["metadata"]["uid"], []))
            else:
                self._of_instances(pool)

    # -- with Machines

    def _of_machines(self, pool: KubeObject, mine: list[KubeObject]) -> None:
        surplus = len(mine) - pool["spec"]["replicas"]
        for _ in range(-surplus):
            fault = self._take_fault(pool["metadata"]["namespace"], pool["metadata"]["name"])
            self._store.create("machines", machine_of(pool, fields.POOL_NAME, fault), fields.GROUP)
        heedless = fields.marks(pool).get(HOW) == "heedless"
        order = sorted(mine, key=_by_deletion) if heedless else first_to_go(mine, "Random")
        for machine in order[: max(0, surplus)]:
            if "deletionTimestamp" not in machine["metadata"]:
                erase(self._store, "machines", machine, fields.GROUP)
        ids = [
            machine["spec"]["providerID"] for machine in mine if machine["spec"].get("providerID")
        ]
        ready = sum(is_true(machine, "Ready") for machine in mine)
        self._tell(pool, ids, len(mine), ready)

    # -- without Machines

    def _of_instances(self, pool: KubeObject) -> None:
        now = self._clock()
        text = fields.marks(pool).get(INSTANCES, "")
        held = msgspec.json.decode(text, type=MachinePoolState) if text else MachinePoolState()
        after = self._grown(pool, self._shrunk(pool, held, now), now)
        for each in after.instances:
            self._bring_up(pool, each, now)
        kept = msgspec.structs.replace(
            after, instances=tuple(each for each in after.instances if not self._is_gone(each, now))
        )
        if kept != held:
            marks = {**fields.marks(pool), INSTANCES: msgspec.json.encode(kept).decode()}
            write(
                self._store,
                "machinepools",
                changed(pool, "metadata", annotations=marks),
                fields.GROUP,
            )
            return  # the next round counts what is written now
        there = [each for each in kept.instances if self._exists(each, now)]
        ready = sum(
            is_true(node, "Ready")
            for each in there
            if (node := self._workload.peek("nodes", each.name))
        )
        self._tell(pool, [self._id(pool, each) for each in there], len(there), ready)

    def _grown(self, pool: KubeObject, held: MachinePoolState, now: float) -> MachinePoolState:
        staying = sum(not each.leaving for each in held.instances)
        made, meta = list(held.instances), pool["metadata"]
        for number in range(held.count, held.count + max(0, pool["spec"]["replicas"] - staying)):
            fault = self._take_fault(meta["namespace"], meta["name"])
            made.append(
                MachinePoolInstance(f"{meta['name']}-{number:04d}", format_time(now), fault)
            )
        return MachinePoolState(held.count + len(made) - len(held.instances), tuple(made))

    def _shrunk(self, pool: KubeObject, held: MachinePoolState, now: float) -> MachinePoolState:
        """Remove surplus instances, oldest first, with or without a Node. A client cannot
        tell this cloud otherwise."""
        staying = [each for each in held.instances if not each.leaving]
        going = {each.name for each in staying[: max(0, len(staying) - pool["spec"]["replicas"])]}
        return MachinePoolState(
            held.count,
            tuple(
                msgspec.structs.replace(each, leaving=format_time(now))
                if each.name in going
                else each
                for each in held.instances
            ),
        )

    def _age(self, instance: MachinePoolInstance, now: float) -> float:
        return (now - parse_time(instance.born)) / (
            self._times.slow_factor if instance.fault == "slow" else 1.0
        )

    def _exists(self, instance: MachinePoolInstance, now: float) -> bool:
        return (
            instance.fault not in fields.FAILURES
            and self._age(instance, now) >= self._times.provision
        )

    def _is_gone(self, instance: MachinePoolInstance, now: float) -> bool:
        if not instance.leaving or now - parse_time(instance.leaving) < self._times.delete:
            return False
        node = self._workload.peek("nodes", instance.name)
        if node is not None:
            erase(self._workload, "nodes", node)
        return True

    def _bring_up(self, pool: KubeObject, instance: MachinePoolInstance, now: float) -> None:
        joins = self._age(instance, now) >= self._times.provision + self._times.join
        if (
            instance.leaving
            or not joins
            or not self._exists(instance, now)
            or instance.fault == "never-joins"
        ):
            return
        machine = self._machine_like(pool, instance)
        node = self._workload.peek("nodes", instance.name)
        if node is None:
            self._workload.create("nodes", joining_node(machine, self._class(pool), self._reserve))
        elif fields.CLUSTER_NAME not in fields.marks(node):
            seen = initialised(
                node, machine, {"kind": pool["kind"], "name": pool["metadata"]["name"]}
            )
            del seen["metadata"]["annotations"][fields.MACHINE]
            write(self._workload, "nodes", seen)

    def _machine_like(self, pool: KubeObject, instance: MachinePoolInstance) -> KubeObject:
        template = clone(pool["spec"]["template"])
        return {
            "metadata": {
                "name": instance.name,
                "namespace": pool["metadata"]["namespace"],
                "labels": dig(template, "metadata", "labels") or {},
            },
            "spec": {
                **template["spec"],
                "clusterName": pool["spec"]["clusterName"],
                "providerID": self._id(pool, instance),
            },
        }

    def _id(self, pool: KubeObject, instance: MachinePoolInstance) -> str:
        return f"local:///{pool['metadata']['namespace']}/{instance.name}"

    def _class(self, pool: KubeObject) -> MachineClass:
        name = pool["spec"]["template"]["spec"]["infrastructureRef"]["name"]
        if name in self._classes:
            return self._classes[name]
        known = listed(self._store, *TEMPLATES, pool["metadata"]["namespace"])
        offered = next(
            (dig(each, "status", "capacity") for each in known if each["metadata"]["name"] == name),
            None,
        )
        return promised(fields.marks(pool), offered or {})

    # -- both kinds

    def _tell(self, pool: KubeObject, ids: Sequence[str], total: int, ready: int) -> None:
        """Write the list of ids, which is in the spec, and the counters."""
        if list(ids) != (pool["spec"].get("providerIDList") or []):
            write(
                self._store,
                "machinepools",
                changed(pool, "spec", providerIDList=list(ids)),
                fields.GROUP,
            )
            return
        asked = pool["spec"]["replicas"]
        phase = "ScalingUp" if total < asked else "ScalingDown" if total > asked else "Running"
        conditions = with_conditions(
            pool, self._clock(), fields.availability(pool, ready, "Available")
        )
        counts = fields.pool_counts(pool, total=total, ready=ready)
        write_status(
            self._store,
            "machinepools",
            pool,
            {**counts, "phase": phase, "conditions": conditions},
            fields.GROUP,
        )


def _by_deletion(machine: KubeObject) -> tuple[bool, str]:
    meta = machine["metadata"]
    return "deletionTimestamp" not in meta, meta["name"]
