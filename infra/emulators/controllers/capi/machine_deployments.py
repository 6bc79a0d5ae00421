"""MachineDeployments: one MachineSet per Machine template, with the size that
the deployment requests.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import (
    by_controller,
    changed,
    erase,
    is_true,
    listed,
    owned_by,
    with_conditions,
    write,
    write_status,
)
from infra.emulators.controllers.workloads import SetSize, exchange, share
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.objects import condition as held_condition
from infra.emulators.kube.store import ObjectStore

# (namespace, deployment name) -> the fault of the next Machine
TakeFault = Callable[[str, str], str]


def _unhealthy(machine: KubeObject) -> bool:
    healthy = held_condition(machine, "NodeHealthy")
    return (
        not fields.node_name(machine)
        or dig(machine, "status", "phase") == "Failed"
        or (healthy is not None and healthy["status"] != "True")
    )


def first_to_go(machines: Sequence[KubeObject], order: str) -> list[KubeObject]:
    """Sort Machines for removal: already deleting, annotated delete-machine, unhealthy or without a
    Node, then by the set's delete order, then by name.

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


def machine_of(owner: KubeObject, name_label: str, fault: str) -> KubeObject:
    """Return a new Machine of a set or pool. name_label: the label with the owner's
    name. fault: "" for none."""
    meta, template = owner["metadata"], clone(owner["spec"]["template"])
    labels = {
        **(dig(template, "metadata", "labels") or {}),
        name_label: meta["name"],
        fields.CLUSTER_NAME: owner["spec"]["clusterName"],
    }
    marks = {
        **(dig(template, "metadata", "annotations") or {}),
        **({fields.FAULT: fault} if fault else {}),
    }
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


class MachineSets:
    """The MachineSet controller of one store. take_fault: called once for every new Machine,
    returns "" for no fault."""

    def __init__(
        self, store: ObjectStore, clock: Callable[[], float], take_fault: TakeFault
    ) -> None:
        self._store, self._clock, self._take_fault = store, clock, take_fault

    def step(self) -> None:
        """Create and delete Machines until each set has the requested
        number, and update counters."""
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
            write_status(
                self._store,
                "machinesets",
                owner,
                {**counts, "conditions": conditions},
                fields.GROUP,
            )

    def _match(self, owner: KubeObject, mine: list[KubeObject]) -> None:
        """Adjust the number of Machines. Machines being deleted count until they are gone, so
        annotations and deletions add up."""
        surplus = len(mine) - owner["spec"].get("replicas", 1)
        for _ in range(-surplus):
            self._store.create("machines", self._new_machine(owner), fields.GROUP)
        for machine in first_to_go(mine, fields.delete_order(owner))[: max(0, surplus)]:
            if "deletionTimestamp" not in machine["metadata"]:
                erase(self._store, "machines", machine, fields.GROUP)

    def _new_machine(self, owner: KubeObject) -> KubeObject:
        labels = dig(owner, "spec", "template", "metadata", "labels") or {}
        meta = owner["metadata"]
        fault = self._take_fault(
            meta["namespace"], labels.get(fields.DEPLOYMENT_NAME, meta["name"])
        )
        return machine_of(owner, fields.SET_NAME, fault)


def _bound(deployment: KubeObject, key: str) -> int | None:
    text = fields.marks(deployment).get(key, "")
    return int(text) if text.isdigit() else None


def default_replicas(deployment: KubeObject) -> int:
    """Return the value that Cluster API's webhook sets for a missing
    spec.replicas: the lower bound, or 1."""
    low, high = _bound(deployment, fields.MIN_SIZE), _bound(deployment, fields.MAX_SIZE)
    return 1 if low is None or high is None else low


_OURS = frozenset({fields.TEMPLATE_HASH, fields.DEPLOYMENT_NAME, fields.CLUSTER_NAME})


def _template(obj: KubeObject) -> KubeObject:
    """Return the template (READ ONLY) as its author wrote it, without what the controller adds
    to distinguish rollouts."""
    template: KubeObject = obj["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key not in _OURS}
    kept = {key: value for key, value in meta.items() if key != "annotations"}
    return {**template, "metadata": {**kept, "labels": labels}}


def _revision(machine_set: KubeObject) -> int:
    text = fields.marks(machine_set).get(fields.REVISION, "")
    return int(text) if text.isdigit() else 0


class MachineDeployments:
    """The MachineDeployment controller of one store."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        """Update defaults, sets, sizes and counters of every deployment that is not paused."""
        sets = by_controller(listed(self._store, "machinesets", fields.GROUP))
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        for deployment in listed(self._store, "machinedeployments", fields.GROUP):
            if "deletionTimestamp" in deployment["metadata"] or fields.is_paused(
                deployment, paused
            ):
                continue
            if not self._complete(deployment):
                continue  # just written; the next round sees all of it
            mine = sets.get(deployment["metadata"]["uid"], [])
            self._size(deployment, mine)
            self._count(deployment, mine)

    def _complete(self, deployment: KubeObject) -> bool:
        """Set replicas, selector and labels as the webhooks default them. Returns False
        if something was missing."""
        if _is_complete(deployment):
            return True  # the usual case; it avoids an expensive copy
        whole = clone(deployment)
        spec, name = whole["spec"], whole["metadata"]["name"]
        if spec.get("replicas") is None:
            spec["replicas"] = default_replicas(deployment)
        own = {fields.CLUSTER_NAME: spec["clusterName"], fields.DEPLOYMENT_NAME: name}
        for holder in (
            spec.setdefault("selector", {}).setdefault("matchLabels", {}),
            spec["template"].setdefault("metadata", {}).setdefault("labels", {}),
        ):
            holder.update(own)
        whole["metadata"].setdefault("labels", {}).setdefault(
            fields.CLUSTER_NAME, spec["clusterName"]
        )
        if whole == deployment:
            return True
        write(self._store, "machinedeployments", whole, fields.GROUP)
        return False

    def _size(self, deployment: KubeObject, sets: list[KubeObject]) -> None:
        current = self._newest(deployment, sets)
        if current is None and not deployment["spec"].get("paused"):
            self._store.create("machinesets", self._new_set(deployment, sets), fields.GROUP)
            return
        sizes = self._sizes(deployment, current, sets)
        for each in sets:
            replicas = sizes.get(each["metadata"]["name"])
            if replicas is not None and each["spec"]["replicas"] != replicas:
                write(
                    self._store,
                    "machinesets",
                    changed(each, "spec", replicas=replicas),
                    fields.GROUP,
                )
        if current is None:
            return
        handed = {**fields.marks(current), **fields.inherited(deployment)}
        newest = max(map(_revision, sets))
        if _revision(current) < newest:  # an earlier template again: its set becomes the newest one
            handed[fields.REVISION] = str(newest + 1)
        if handed != fields.marks(current):
            write(
                self._store,
                "machinesets",
                changed(current, "metadata", annotations=handed),
                fields.GROUP,
            )

    def _sizes(
        self, deployment: KubeObject, current: KubeObject | None, sets: list[KubeObject]
    ) -> dict[str, int]:
        size = deployment["spec"]["replicas"]
        surge = share(fields.max_surge(deployment), size, up=True)
        old = [_size_of(s) for s in sets if s is not current and s["spec"]["replicas"]]
        if current is None or deployment["spec"].get("paused"):
            newest = [_size_of(current)] if current is not None else []
            return proportional(size, surge, newest, old)
        if fields.on_delete(deployment):
            machines = by_controller(listed(self._store, "machines", fields.GROUP))
            staying = {
                s["metadata"]["name"]: sum(
                    "deletionTimestamp" not in m["metadata"]
                    for m in machines.get(s["metadata"]["uid"], ())
                )
                for s in sets
            }
            return on_delete(size, _size_of(current), sorted(old, key=lambda s: s.name), staying)
        return exchange(size, max(1, surge), 0, _size_of(current), old)

    def _newest(self, deployment: KubeObject, sets: list[KubeObject]) -> KubeObject | None:
        wanted = _template(deployment)
        return next((s for s in sets if _template(s) == wanted), None)

    def _new_set(self, deployment: KubeObject, sets: list[KubeObject]) -> KubeObject:
        meta, spec = deployment["metadata"], deployment["spec"]
        short = f"{zlib.crc32(msgspec.json.encode(_template(deployment), order='sorted')):08x}"
        template, selector = clone(spec["template"]), clone(spec["selector"])
        own = {
            fields.CLUSTER_NAME: spec["clusterName"],
            fields.DEPLOYMENT_NAME: meta["name"],
            fields.TEMPLATE_HASH: short,
        }
        template.setdefault("metadata", {}).setdefault("labels", {}).update(own)
        selector.setdefault("matchLabels", {}).update(own)
        made: KubeObject = {
            "apiVersion": deployment["apiVersion"],
            "metadata": {
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": owned_by(deployment),
                "annotations": {
                    **fields.inherited(deployment),
                    fields.REVISION: str(1 + max(map(_revision, sets), default=0)),
                },
            },
            "spec": {
                "clusterName": spec["clusterName"],
                "replicas": 0 if sets else spec["replicas"],
                "selector": selector,
                "template": template,
            },
        }
        if spec.get("deletion"):
            made["spec"]["deletion"] = clone(spec["deletion"])
        policy = dig(spec, "strategy", "rollingUpdate", "deletePolicy")
        if policy:
            made["spec"]["deletePolicy"] = policy
        return made

    def _count(self, deployment: KubeObject, sets: list[KubeObject]) -> None:
        total = sum(dig(s, "status", "replicas") or 0 for s in sets)
        ready = sum(dig(s, "status", "readyReplicas") or 0 for s in sets)
        current = self._newest(deployment, sets)
        size = deployment["spec"]["replicas"]
        phase = (
            "ScalingUp"
            if total < size or ready < size
            else "ScalingDown"
            if total > size
            else "Running"
        )
        status = fields.counts(
            deployment,
            total=total,
            ready=ready,
            current=(dig(current, "status", "replicas") or 0) if current else 0,
        )
        conditions = with_conditions(
            deployment, self._clock(), fields.availability(deployment, ready, "Available")
        )
        status |= {"phase": phase, "conditions": conditions}
        write_status(self._store, "machinedeployments", deployment, status, fields.GROUP)


def _is_complete(deployment: KubeObject) -> bool:
    """Return whether _complete would add nothing. If in doubt, return False."""
    spec, meta = deployment["spec"], deployment["metadata"]
    name, cluster = meta["name"], spec["clusterName"]
    holders = (dig(spec, "selector", "matchLabels"), dig(spec, "template", "metadata", "labels"))
    return (
        spec.get("replicas") is not None
        and fields.CLUSTER_NAME in (meta.get("labels") or ())
        and all(
            isinstance(each, dict)
            and each.get(fields.CLUSTER_NAME) == cluster
            and each.get(fields.DEPLOYMENT_NAME) == name
            for each in holders
        )
    )


def _size_of(machine_set: KubeObject) -> SetSize:
    return SetSize(
        machine_set["metadata"]["name"],
        machine_set["spec"]["replicas"],
        dig(machine_set, "status", "readyReplicas") or 0,
    )


def on_delete(
    size: int, new: SetSize, old: Sequence[SetSize], staying: Mapping[str, int]
) -> dict[str, int]:
    """Strategy OnDelete: an old set shrinks as its Machines are deleted, and the new set
    replaces them. A surplus is removed from the old sets in their order. staying: each set's
    Machines that are not being deleted."""
    sizes = {each.name: min(each.asked, staying.get(each.name, 0)) for each in old}
    surplus = max(0, new.asked + sum(sizes.values()) - size)
    for each in old:
        fewer = min(sizes[each.name], surplus)
        sizes[each.name] -= fewer
        surplus -= fewer
    missing = max(0, size - new.asked - sum(sizes.values()))
    return {new.name: min(new.asked + missing, size), **sizes}


def proportional(
    size: int, surge: int, new: Sequence[SetSize], old: Sequence[SetSize]
) -> dict[str, int]:
    """spec.paused: a single set with replicas follows the deployment's size. Several sets share the
    difference in proportion to their sizes, and the largest one takes the remainder of rounding.
    new: the set of the current template, if there is one."""
    asking = sorted(
        (each for each in (*new, *old) if each.asked), key=lambda each: (-each.asked, each.name)
    )
    if len(asking) < 2:
        return {each.name: size for each in (asking or new)[:1]}
    total = sum(each.asked for each in asking)
    difference = (size + surge if size else 0) - total
    shares = {each.name: int(difference * each.asked / total) for each in asking}
    shares[asking[0].name] += difference - sum(shares.values())
    return {each.name: max(0, each.asked + shares[each.name]) for each in asking}
