"""MachineHealthChecks: a Machine whose Node has an unhealthy condition for too long is deleted,
so that its MachineSet creates another one. They read conditions of Nodes only, and obey their
limit of unhealthy Machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from chalicelib.model.quantity import parse_duration
from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import controller_of, erase, listed
from infra.emulators.controllers.workloads import share
from infra.emulators.kube.objects import KubeObject, condition, dig
from infra.emulators.kube.store import ObjectStore


class MachineHealthChecks:
    """The MachineHealthCheck controller of a management store and a
    workload store (often the same)."""

    def __init__(
        self, store: ObjectStore, workload: ObjectStore, clock: Callable[[], float]
    ) -> None:
        self._store, self._workload, self._clock = store, workload, clock

    def step(self) -> None:
        """Delete what has been unhealthy for long enough."""
        for check in listed(self._store, "machinehealthchecks", fields.GROUP):
            if fields.PAUSED in fields.marks(check):
                continue
            machines = list(self._selected(check))
            unhealthy = [machine for machine in machines if self._is_unhealthy(machine, check)]
            if len(unhealthy) <= share(_limit(check), len(machines), up=False):
                for machine in unhealthy:
                    erase(self._store, "machines", machine, fields.GROUP)

    def _selected(self, check: KubeObject) -> Iterator[KubeObject]:
        """Return the Machines of MachineSets that the check's selector
        matches; matchLabels only."""
        wanted = dig(check, "spec", "selector", "matchLabels") or {}
        for machine in listed(
            self._store, "machines", fields.GROUP, check["metadata"]["namespace"]
        ):
            labels, owner = machine["metadata"].get("labels") or {}, controller_of(machine)
            if (
                wanted
                and wanted.items() <= labels.items()
                and machine["spec"]["clusterName"] == check["spec"]["clusterName"]
                and owner is not None
                and owner["kind"] == "MachineSet"
                and not {fields.SKIP_REMEDIATION, fields.PAUSED} & fields.marks(machine).keys()
                and "deletionTimestamp" not in machine["metadata"]
            ):
                yield machine

    def _is_unhealthy(self, machine: KubeObject, check: KubeObject) -> bool:
        node = self._workload.peek("nodes", fields.node_name(machine))
        return node is not None and any(
            (held := condition(node, type_)) is not None
            and held["status"] == status
            and self._clock() - parse_time(held["lastTransitionTime"]) >= seconds
            for type_, status, seconds in _conditions(check)
        )


def _conditions(check: KubeObject) -> Iterable[tuple[str, str, float]]:
    """Return type, status and seconds of the unhealthy conditions."""
    if fields.old_version(check):
        listed_ = dig(check, "spec", "unhealthyConditions") or ()
        return [(each["type"], each["status"], parse_duration(each["timeout"])) for each in listed_]
    listed_ = dig(check, "spec", "checks", "unhealthyNodeConditions") or ()
    return [(each["type"], each["status"], float(each["timeoutSeconds"])) for each in listed_]


def _limit(check: KubeObject) -> int | str:
    """Return how many of its Machines may be unhealthy, by default all."""
    old, new = ("maxUnhealthy",), ("remediation", "triggerIf", "unhealthyLessThanOrEqualTo")
    limit: int | str | None = dig(check, "spec", *(old if fields.old_version(check) else new))
    return "100%" if limit is None else limit
