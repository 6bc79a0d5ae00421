"""Cluster API's controllers, with faults that a test or the demo can inject.

They turn replicas into Machines and Machines into Nodes, with the fields, labels, owners and timing
that an autoscaler observes. They validate nothing, because that is the task of the webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.machine_deployments import MachineDeployments, MachineSets
from infra.emulators.controllers.capi.machine_health_checks import MachineHealthChecks
from infra.emulators.controllers.capi.machine_pools import MachinePools
from infra.emulators.controllers.capi.machines import (
    FAULTS,
    Amounts,
    MachineClass,
    Machines,
    MachineTimes,
)
from infra.emulators.controllers.object_writes import (
    Moved,
    erase,
    is_true,
    listed,
    with_conditions,
    write_status,
)
from infra.emulators.kube.store import ObjectStore

KINDS = ("machinedeployments", "machinesets", "machinepools")


class Pausing:
    """Sets the condition `Paused` of all objects that are, or were, paused."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        """Correct the condition of v1beta2 objects. An object that was never paused has none."""
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        for plural in KINDS:
            for obj in listed(self._store, plural, fields.GROUP):
                rests = fields.is_paused(obj, paused)
                if fields.old_version(obj) or rests == is_true(obj, "Paused"):
                    continue
                told = fields.condition(obj, "Paused", value=rests)
                conditions = with_conditions(obj, self._clock(), told)
                write_status(self._store, plural, obj, {"conditions": conditions}, fields.GROUP)


class CapiControllerSettings(msgspec.Struct, frozen=True):
    """Times and machine classes. classes: by infrastructureRef name. reserve: what kubelets
    of other machines reserve."""

    times: MachineTimes = MachineTimes()
    classes: Mapping[str, MachineClass] = {}
    reserve: Amounts = msgspec.field(default_factory=lambda: {"cpu": "100m", "memory": "512Mi"})


class ClusterApi:
    """The controllers of one management cluster. workload: the store that its Nodes
    join, by default the same."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Callable[[], float],
        settings: CapiControllerSettings | None = None,
        workload: ObjectStore | None = None,
    ) -> None:
        settings = settings or CapiControllerSettings()
        cluster = workload or store
        self._faults: dict[tuple[str, str], list[str]] = {}
        deployments, sets, machines, pools, clusters = (
            (plural, fields.GROUP)
            for plural in (
                "machinedeployments",
                "machinesets",
                "machines",
                "machinepools",
                "clusters",
            )
        )
        self._deployments = Moved(
            MachineDeployments(store, clock).step, store, (deployments, sets, machines, clusters)
        )
        self._sets = Moved(
            MachineSets(store, clock, self._take_fault).step, store, (sets, machines, clusters)
        )
        self._store = store
        self._health_checks = MachineHealthChecks(store, cluster, clock)
        self._pausing = Moved(
            Pausing(store, clock).step, store, (deployments, sets, pools, clusters)
        )
        self._machines = Machines(
            store, cluster, clock, settings.times, settings.classes, settings.reserve
        )
        self._pools = MachinePools(
            store,
            cluster,
            clock,
            settings.times,
            settings.classes,
            settings.reserve,
            self._take_fault,
        )

    def fail_next(self, group: str, kind: str, count: int = 1) -> None:
        """Inject a fault into the next `count` Machines of a group.

        group: `MachineDeployment/<namespace>/<name>` or `<namespace>/<name>`, also of a pool
        kind:  never-joins | slow | provisioning-failure | out-of-stock | quota;
               ValueError for any other
        """
        if kind not in FAULTS:
            raise ValueError(f"fault {kind!r}: one of {', '.join(FAULTS)}")
        namespace, name = group.split("/")[-2:]
        self._faults.setdefault((namespace, name), []).extend([kind] * count)

    def take_away(self, machine: str) -> None:
        """Let the infrastructure take back a Machine, `<namespace>/<name>`: a handler of its
        notices deletes the Machine, so the server and the Node go without any drain, and the
        MachineSet creates another one."""
        namespace, name = machine.split("/")
        held = self._store.peek("machines", name, namespace, fields.GROUP)
        assert held is not None, "a Machine that exists"
        erase(self._store, "machines", held, fields.GROUP)

    def change_template(self, group: str, version: str) -> None:
        """Give a MachineDeployment, `<namespace>/<name>`, a template of
        another Kubernetes version."""
        namespace, name = group.split("/")[-2:]
        held = self._store.get("machinedeployments", name, namespace, fields.GROUP)
        assert held is not None, "a MachineDeployment that exists"
        held["spec"]["template"]["spec"]["version"] = version
        self._store.update("machinedeployments", held, fields.GROUP)

    def _take_fault(self, namespace: str, name: str) -> str:
        waiting = self._faults.get((namespace, name))
        return waiting.pop(0) if waiting else ""

    def step(self) -> None:
        self._health_checks.step()
        self._deployments.step()
        self._sets.step()
        self._pools.step()
        self._machines.step()
        self._pausing.step()
