"""MachineSets: create the requested number of Machines and remove surplus ones in Cluster API's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import (
    by_controller,
    erase,
    is_true,
    listed,
    owned_by,
    with_conditions,
    write_status,
)
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.objects import condition as held_condition
from infra.emulators.kube.store import ObjectStore

TakeFault = Callable[[str, str], str]  # (namespace, deployment name) -> the fault of the next Machine


def _unhealthy(machine: KubeObject) -> bool:
    healthy = held_condition(machine, "NodeHealthy")
    return (
        not fields.node_name(machine)
        or dig(machine, "status", "phase") == "Failed"
        or (healthy is not None and healthy["status"] != "True")
    )


def first_to_go(machines: Sequence[KubeObject], order: str) -> list[KubeObject]:
    """Sort Machines for removal: already deleting, annotated delete-machine, unhealthy or without a Node, then by the
    set's delete order, then by name.

    Random order is replaced by order of name, so that two runs are identical.
    """

    def rank(machine: KubeObject) -> tuple[int, float, str]:
        meta = machine["metadata"]
        created = parse_time(meta["creationTimestamp"])
        if "deletionTimestamp" in meta:
            level = 0
        elif fields.DELETE_MACHINE in fields.marks(machine):
            level = 1
        elif _unhealthy(machine):
            level = 2
        else:
            level = 3
        age = {"Newest": -created, "Oldest": created}.get(order, 0.0)
        return level, age if level == 3 else 0.0, meta["name"]

    return sorted(machines, key=rank)


class MachineSets:
    """The MachineSet controller of one store. take_fault: called once for every new Machine, returns "" for no
    fault."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float], take_fault: TakeFault) -> None:
        self._store, self._clock, self._take_fault = store, clock, take_fault

    def step(self) -> None:
        """Create and delete Machines until each set has the requested number, and update counters."""
        machines = by_controller(listed(self._store, "machines", fields.GROUP))
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        for owner in listed(self._store, "machinesets", fields.GROUP):
            if "deletionTimestamp" in owner["metadata"] or fields.is_paused(owner, paused):
                continue
            mine = machines.get(owner["metadata"]["uid"], [])
            self._match(owner, mine)
            ready = sum(is_true(machine, "Ready") for machine in mine)
            counts = fields.counts(owner, total=len(mine), ready=ready, current=len(mine))
            state = fields.availability(owner, ready, "MachinesReady")
            conditions = with_conditions(owner, self._clock(), state)
            write_status(self._store, "machinesets", owner, {**counts, "conditions": conditions}, fields.GROUP)

    def _match(self, owner: KubeObject, mine: list[KubeObject]) -> None:
        """Adjust the number of Machines. Machines being deleted count until they are gone, so annotations and deletions
        add up."""
        surplus = len(mine) - owner["spec"].get("replicas", 1)
        for _ in range(-surplus):
            self._store.create("machines", self._new_machine(owner), fields.GROUP)
        for machine in first_to_go(mine, fields.delete_order(owner))[: max(0, surplus)]:
            if "deletionTimestamp" not in machine["metadata"]:
                erase(self._store, "machines", machine, fields.GROUP)

    def _new_machine(self, owner: KubeObject) -> KubeObject:
        meta, template = owner["metadata"], clone(owner["spec"]["template"])
        labels = {
            **(dig(template, "metadata", "labels") or {}),
            fields.SET_NAME: meta["name"],
            fields.CLUSTER_NAME: owner["spec"]["clusterName"],
        }
        marks = dict(dig(template, "metadata", "annotations") or {})
        fault = self._take_fault(meta["namespace"], labels.get(fields.DEPLOYMENT_NAME, meta["name"]))
        if fault:
            marks[fields.FAULT] = fault
        return {
            "apiVersion": owner["apiVersion"],
            "metadata": {
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": marks,
                "ownerReferences": owned_by(owner),
                "finalizers": [fields.FINALIZER],
            },
            "spec": {**template["spec"], "clusterName": owner["spec"]["clusterName"]},
            "status": {"phase": "Pending"},
        }
