"""Machines: provisioned after some time, registered as a Node later, and removed some
time after their deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.quantity import parse_amount
from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.kubelet import NOT_READY, with_taint
from infra.emulators.controllers.object_writes import (
    changed,
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

Amounts = Mapping[str, str]
_RESOURCES = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral-disk": "ephemeral-storage",
    "maxPods": "pods",
}
_DOMAINS = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


class MachineClass(msgspec.Struct, frozen=True):
    """Properties of machines of one infrastructure template. allocatable: empty for
    capacity minus the reserve."""

    capacity: Amounts
    allocatable: Amounts = {}
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()


def managed(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the Machine's labels that Cluster API syncs to the Node, with complete keys."""

    def kept(key: str) -> bool:
        domain, slash, _ = key.partition("/")
        return bool(slash) and (
            domain == "node-role.kubernetes.io"
            or domain in _DOMAINS
            or domain.endswith(tuple(f".{d}" for d in _DOMAINS))
        )

    return {key: value for key, value in labels.items() if kept(key)}


def _pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _taints(text: str) -> Iterable[KubeObject]:
    """Parse `key=value:Effect` or `key:Effect`, comma-separated."""
    for part in filter(None, text.split(",")):
        head, _, effect = part.partition(":")
        key, _, value = head.partition("=")
        yield {"key": key, "effect": effect, **({"value": value} if value else {})}


def promised(annotations: Mapping[str, str], offered: Amounts) -> MachineClass:
    """Return the machine that a group's capacity annotations describe, with missing values from its
    infrastructure template; 110 pods unless an annotation says otherwise."""
    said = {
        key.removeprefix(fields.CAPACITY): value
        for key, value in annotations.items()
        if key.startswith(fields.CAPACITY)
    }
    annotated = {name: said[key] for key, name in _RESOURCES.items() if said.get(key)}
    capacity = {
        **{name: str(amount) for name, amount in offered.items()},
        "pods": "110",
        **annotated,
    }
    if said.get("gpu-type") and said.get("gpu-count"):
        capacity[said["gpu-type"]] = said["gpu-count"]
    return MachineClass(
        capacity=capacity,
        labels=_pairs(said.get("labels", "")),
        taints=tuple(_taints(said.get("taints", ""))),
    )


def _less(amounts: Amounts, reserve: Amounts) -> dict[str, str]:
    """Return allocatable as a kubelet formats it: millicores and Ki."""
    left = dict(amounts)
    for name, amount in reserve.items():
        if name in amounts:
            whole = max(0, parse_amount(name, amounts[name]) - parse_amount(name, amount))
            left[name] = f"{whole}m" if name == "cpu" else f"{whole // 1024}Ki"
    return left


def joining_node(machine: KubeObject, kind: MachineClass, reserve: Amounts) -> KubeObject:
    """Return the Node as its kubelet registers it: not ready, and tainted until
    Cluster API has processed it."""
    name = machine["metadata"]["name"]
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        **kind.labels,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": machine["spec"]["providerID"],
            "taints": [
                dict(NOT_READY),
                dict(fields.UNINITIALIZED),
                *map(dict, kind.taints),
                *(
                    {k: t[k] for k in ("key", "value", "effect") if k in t}
                    for t in machine["spec"].get("taints") or ()
                ),
            ],
        },
        "status": {
            "capacity": dict(kind.capacity),
            "allocatable": dict(kind.allocatable) or _less(kind.capacity, reserve),
            "nodeInfo": {
                "architecture": labels["kubernetes.io/arch"],
                "operatingSystem": "linux",
                "kubeletVersion": dig(machine, "spec", "version") or "",
            },
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def initialised(node: KubeObject, machine: KubeObject, owner: KubeObject | None) -> KubeObject:
    """Return the Node after Cluster API has processed it: annotations that refer to its Machine,
    labels, no start-up taint."""
    meta, machine_meta = node["metadata"], machine["metadata"]
    marks = {
        fields.CLUSTER_NAME: machine["spec"]["clusterName"],
        fields.CLUSTER_NAMESPACE: machine_meta["namespace"],
        fields.MACHINE: machine_meta["name"],
    }
    if owner is not None:
        marks |= {fields.OWNER_KIND: owner["kind"], fields.OWNER_NAME: owner["name"]}
    # Cluster API copies this label from the status of the infrastructure's
    # object, which is not emulated.
    interruptible = (
        {fields.INTERRUPTIBLE: ""}
        if fields.INTERRUPTIBLE in (machine_meta.get("labels") or {})
        else {}
    )
    start_up = fields.UNINITIALIZED["key"]
    taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != start_up]
    return {
        **node,
        "spec": {**node["spec"], "taints": taints},
        "metadata": {
            **meta,
            "annotations": {**(meta.get("annotations") or {}), **marks},
            "labels": {
                **(meta.get("labels") or {}),
                **managed(machine_meta.get("labels") or {}),
                **interruptible,
            },
        },
    }


def outdated_sets(machine_sets: Iterable[KubeObject]) -> frozenset[str]:
    """Return the uids of MachineSets that are of an earlier revision than another one of
    their MachineDeployment."""
    revisions: dict[str, dict[str, int]] = {}
    for machine_set in machine_sets:
        owner, text = controller_of(machine_set), fields.marks(machine_set).get(fields.REVISION, "")
        if owner is not None and text.isdigit():
            revisions.setdefault(owner["uid"], {})[machine_set["metadata"]["uid"]] = int(text)
    return frozenset(
        uid
        for by_set in revisions.values()
        for uid, revision in by_set.items()
        if revision < max(by_set.values())
    )


TEMPLATES = ("localmachinetemplates", "infrastructure.cluster.x-k8s.io")
FAULTS = ("never-joins", "slow", *fields.FAILURES)


class MachineTimes(msgspec.Struct, frozen=True):
    """Durations in seconds: until the server exists (provision), from then until its Node appears
    (join), from the Machine's deletion until both are gone (delete). A slow machine takes
    slow_factor times as long to appear."""

    provision: float = 20.0
    join: float = 30.0
    delete: float = 10.0
    slow_factor: float = 10.0


class Machines:
    """The Machine controller of a management store and a workload store (often the same).

    classes: infrastructureRef name -> properties of such machines; without an entry, the
    group's annotations apply reserve: what the kubelet reserves, for machines whose class
    does not define allocatable
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
        # (namespace, name) -> a Machine and its Node that need no action until
        # one of them is replaced.
        self._rest: dict[tuple[str, str], tuple[KubeObject, KubeObject | None]] = {}
        self._outdated: frozenset[str] = frozenset()  # uids of MachineSets of earlier revisions

    def step(self) -> None:
        now = self._clock()
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        before, self._rest = self._rest, {}
        outdated = outdated_sets(listed(self._store, "machinesets", fields.GROUP))
        if outdated != self._outdated:
            self._outdated, before = outdated, {}
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
        self,
        machine: KubeObject,
        now: float,
        *,
        infrastructure: bool,
        ready: bool,
        reason: str = "",
        message: str = "",
    ) -> list[KubeObject]:
        """Set the conditions. reason, message: why provisioning failed, if it did."""
        wanted = [
            fields.condition(
                machine, "InfrastructureReady", value=infrastructure, reason=reason, message=message
            )
        ]
        wanted += [
            fields.condition(machine, type_, value=ready) for type_ in ("NodeHealthy", "Ready")
        ]
        return with_conditions(machine, now, *wanted)

    def _fail(self, machine: KubeObject, now: float, reason: str, message: str) -> None:
        conditions = self._conditions(
            machine, now, infrastructure=False, ready=False, reason=reason, message=message
        )
        status = {
            "phase": "Provisioning",
            **fields.failure(machine, reason, message),
            "conditions": conditions,
        }
        self._put_status(machine, status)

    def _provision(self, machine: KubeObject, now: float, *, done: bool) -> None:
        conditions = self._conditions(machine, now, infrastructure=done, ready=False)
        if not done:
            self._put_status(machine, {"phase": "Provisioning", "conditions": conditions})
            return
        meta, status = machine["metadata"], {"phase": "Provisioned", **fields.provisioned(machine)}
        made = changed(machine, "spec", providerID=f"local:///{meta['namespace']}/{meta['name']}")
        write(
            self._store,
            "machines",
            changed(made, "status", conditions=conditions, **status),
            fields.GROUP,
        )

    def _join(self, machine: KubeObject) -> None:
        """Register the Node as the kubelet does; then Cluster API finds it by
        providerID and completes it."""
        name = machine["metadata"]["name"]
        node = self._workload.peek("nodes", name)
        if node is None:
            made = joining_node(machine, self._class(machine), self._reserve)
            self._workload.create("nodes", made)
            return
        if write(self._workload, "nodes", initialised(node, machine, controller_of(machine))):
            self._put_status(
                machine, {"phase": "Running", "nodeRef": fields.node_ref(machine, node)}
            )

    def _class(self, machine: KubeObject) -> MachineClass:
        """Return the class from the table, otherwise from the group's annotations and its
        infrastructure template, in this precedence."""
        template, namespace = (
            machine["spec"]["infrastructureRef"]["name"],
            machine["metadata"]["namespace"],
        )
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
        if node is not None and (taints := self._other_taints(machine, node)) is not None:
            write(self._workload, "nodes", changed(node, "spec", taints=taints))
        elif is_true(machine, "Ready") != ready:
            self._put_status(
                machine,
                {"conditions": self._conditions(machine, now, infrastructure=True, ready=ready)},
            )
        elif fields.marks(machine).get(fields.FAULT) not in fields.FAILURES:
            # this fault takes effect only later
            self._rest[(machine["metadata"]["namespace"], machine["metadata"]["name"])] = (
                machine,
                node,
            )

    def _other_taints(self, machine: KubeObject, node: KubeObject) -> list[KubeObject] | None:
        """Return the Node's taints with, or without, that of an outdated
        Machine; None if they are right."""
        owner = controller_of(machine)
        present = owner is not None and owner["uid"] in self._outdated
        taints = node["spec"].get("taints") or []
        wanted = with_taint(taints, fields.OUTDATED, present=present)
        return None if len(wanted) == len(taints) else wanted

    def _delete(self, machine: KubeObject, now: float) -> None:
        """Cordon the Node at once and remove it together with the Machine."""
        node = self._workload.peek(
            "nodes", fields.node_name(machine) or machine["metadata"]["name"]
        )
        if now - parse_time(machine["metadata"]["deletionTimestamp"]) >= self._times.delete:
            if node is not None:
                erase(self._workload, "nodes", node)
            kept = [f for f in machine["metadata"].get("finalizers") or () if f != fields.FINALIZER]
            write(
                self._store, "machines", changed(machine, "metadata", finalizers=kept), fields.GROUP
            )
            return
        if dig(machine, "status", "phase") != "Deleting":
            self._put_status(machine, {"phase": "Deleting"})
        if node is not None and not node["spec"].get("unschedulable"):
            write(self._workload, "nodes", changed(node, "spec", unschedulable=True))
