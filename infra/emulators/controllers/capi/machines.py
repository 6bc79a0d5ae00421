"""Machines: provisioned after some time, registered as a Node later, and removed some time after their deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.nodes import Amounts, MachineClass, initialised, joining_node, promised
from infra.emulators.controllers.object_writes import (
    controller_of,
    erase,
    is_true,
    listed,
    with_conditions,
    write,
    write_status,
)
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.store import ObjectStore

TEMPLATES = ("localmachinetemplates", "infrastructure.cluster.x-k8s.io")
FAULTS = ("never-joins", "slow", *fields.FAILURES)


class MachineTimes(msgspec.Struct, frozen=True):
    """Durations in seconds: until the server exists (provision), from then until its Node appears (join), from the
    Machine's deletion until both are gone (delete). A slow machine takes slow_factor times as long to appear."""

    provision: float = 20.0
    join: float = 30.0
    delete: float = 10.0
    slow_factor: float = 10.0


class Machines:
    """The Machine controller of a management store and a workload store (often the same).

    classes: infrastructureRef name -> properties of such machines; without an entry, the group's annotations apply
    reserve: what the kubelet reserves, for machines whose class does not define allocatable
    """

    def __init__(
        self,
        store: ObjectStore,
        workload: ObjectStore,
        clock: Callable[[], float],
        times: MachineTimes,
        classes: Mapping[str, MachineClass],
        reserve: Amounts,
    ) -> None:
        self._store, self._workload, self._clock, self._times = store, workload, clock, times
        self._classes, self._reserve = classes, reserve
        # (namespace, name) -> a Machine and its Node that need no action until one of them is replaced.
        self._rest: dict[tuple[str, str], tuple[KubeObject, KubeObject | None]] = {}

    def step(self) -> None:
        """Advance every Machine as far as time allows."""
        now = self._clock()
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        before, self._rest = self._rest, {}
        for machine in listed(self._store, "machines", fields.GROUP):
            meta = machine["metadata"]
            key = (meta["namespace"], meta["name"])
            rests = before.get(key)
            if rests is not None and rests[0] is machine and self._node_of(machine) is rests[1]:
                self._rest[key] = rests
            elif "deletionTimestamp" in meta:
                self._delete(machine, now)
            elif not fields.is_paused(machine, paused):
                self._bring_up(machine, now)

    def _node_of(self, machine: KubeObject) -> KubeObject | None:
        return self._workload.peek("nodes", fields.node_name(machine))

    def _bring_up(self, machine: KubeObject, now: float) -> None:
        fault = fields.marks(machine).get(fields.FAULT, "")
        factor = self._times.slow_factor if fault == "slow" else 1.0
        age = now - parse_time(machine["metadata"]["creationTimestamp"])
        exists = age >= self._times.provision * factor
        if exists and fault in fields.FAILURES:
            self._fail(machine, now, *fields.FAILURES[fault])
        elif not machine["spec"].get("providerID"):
            self._provision(machine, now, done=exists)
        elif fields.node_name(machine):
            self._watch(machine, now)
        elif age >= (self._times.provision + self._times.join) * factor and fault != "never-joins":
            self._join(machine)

    def _put_status(self, machine: KubeObject, status: KubeObject) -> None:
        write_status(self._store, "machines", machine, status, fields.GROUP)

    def _conditions(
        self, machine: KubeObject, now: float, *, infrastructure: bool, ready: bool, reason: str = "", message: str = ""
    ) -> list[KubeObject]:
        """Set the conditions. reason, message: why provisioning failed, if it did."""
        wanted = [
            fields.condition(machine, "InfrastructureReady", value=infrastructure, reason=reason, message=message)
        ]
        wanted += [fields.condition(machine, type_, value=ready) for type_ in ("NodeHealthy", "Ready")]
        return with_conditions(machine, now, *wanted)

    def _fail(self, machine: KubeObject, now: float, reason: str, message: str) -> None:
        conditions = self._conditions(machine, now, infrastructure=False, ready=False, reason=reason, message=message)
        status = {"phase": "Provisioning", **fields.failure(machine, reason, message), "conditions": conditions}
        self._put_status(machine, status)

    def _provision(self, machine: KubeObject, now: float, *, done: bool) -> None:
        conditions = self._conditions(machine, now, infrastructure=done, ready=False)
        if not done:
            self._put_status(machine, {"phase": "Provisioning", "conditions": conditions})
            return
        meta = machine["metadata"]
        write(
            self._store,
            "machines",
            {
                **machine,
                "spec": {**machine["spec"], "providerID": f"local:///{meta['namespace']}/{meta['name']}"},
                "status": {
                    **(machine.get("status") or {}),
                    "phase": "Provisioned",
                    "conditions": conditions,
                    **fields.provisioned(machine),
                },
            },
            fields.GROUP,
        )

    def _join(self, machine: KubeObject) -> None:
        """Register the Node as the kubelet does; then Cluster API finds it by providerID and completes it."""
        name = machine["metadata"]["name"]
        node = self._workload.peek("nodes", name)
        if node is None:
            made = joining_node(machine, self._class(machine), self._reserve)
            self._workload.create("nodes", made)
            return
        if write(self._workload, "nodes", initialised(node, machine, controller_of(machine))):
            self._put_status(machine, {"phase": "Running", "nodeRef": fields.node_ref(machine, node)})

    def _class(self, machine: KubeObject) -> MachineClass:
        """Return the class from the table, otherwise from the group's annotations and its infrastructure template, in
        this precedence."""
        template, namespace = machine["spec"]["infrastructureRef"]["name"], machine["metadata"]["namespace"]
        if template in self._classes:
            return self._classes[template]
        owner = controller_of(machine)
        kind = "machinepools" if owner and owner["kind"] == "MachinePool" else "machinesets"
        found = owner and self._store.peek(kind, owner["name"], namespace, fields.GROUP)
        offered = next(
            (
                dig(each, "status", "capacity")
                for each in listed(self._store, *TEMPLATES, namespace)
                if each["metadata"]["name"] == template
            ),
            None,
        )
        return promised(fields.marks(found) if found else {}, offered or {})

    def _watch(self, machine: KubeObject, now: float) -> None:
        node = self._node_of(machine)
        ready = node is not None and is_true(node, "Ready")
        if is_true(machine, "Ready") != ready:
            self._put_status(machine, {"conditions": self._conditions(machine, now, infrastructure=True, ready=ready)})
        elif fields.marks(machine).get(fields.FAULT) not in fields.FAILURES:  # this fault takes effect only later
            self._rest[(machine["metadata"]["namespace"], machine["metadata"]["name"])] = (machine, node)

    def _delete(self, machine: KubeObject, now: float) -> None:
        """Cordon the Node at once and remove it together with the Machine."""
        node = self._workload.peek("nodes", fields.node_name(machine) or machine["metadata"]["name"])
        if now - parse_time(machine["metadata"]["deletionTimestamp"]) >= self._times.delete:
            if node is not None:
                erase(self._workload, "nodes", node)
            kept = [f for f in machine["metadata"].get("finalizers") or () if f != fields.FINALIZER]
            write(
                self._store,
                "machines",
                {**machine, "metadata": {**machine["metadata"], "finalizers": kept}},
                fields.GROUP,
            )
            return
        if dig(machine, "status", "phase") != "Deleting":
            self._put_status(machine, {"phase": "Deleting"})
        if node is not None and not node["spec"].get("unschedulable"):
            write(self._workload, "nodes", {**node, "spec": {**node["spec"], "unschedulable": True}})
