"""The Node of a Machine, as the cloud and the kubelet report it.

It does not use the planner's templates, because the emulated machine is the reality that templates predict. With a
machine class, it can differ from what the group's annotations promise, as in real clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.kubelet import NOT_READY
from infra.emulators.kube.objects import KubeObject, dig

Amounts = Mapping[str, str]
_RESOURCES = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
_DOMAINS = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


class MachineClass(msgspec.Struct, frozen=True):
    """Properties of machines of one infrastructure template. allocatable: empty for capacity minus the reserve."""

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
    """Return the machine that a group's capacity annotations describe, with missing values from its infrastructure
    template; 110 pods unless an annotation says otherwise."""
    said = {
        key.removeprefix(fields.CAPACITY): value
        for key, value in annotations.items()
        if key.startswith(fields.CAPACITY)
    }
    annotated = {name: said[key] for key, name in _RESOURCES.items() if said.get(key)}
    capacity = {**{name: str(amount) for name, amount in offered.items()}, "pods": "110", **annotated}
    if said.get("gpu-type") and said.get("gpu-count"):
        capacity[said["gpu-type"]] = said["gpu-count"]
    return MachineClass(
        capacity=capacity, labels=_pairs(said.get("labels", "")), taints=tuple(_taints(said.get("taints", "")))
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
    """Return the Node as its kubelet registers it: not ready, and tainted until Cluster API has processed it."""
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
                *({k: t[k] for k in ("key", "value", "effect") if k in t} for t in machine["spec"].get("taints") or ()),
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
    """Return the Node after Cluster API has processed it: annotations that refer to its Machine, labels, no start-up
    taint."""
    meta, machine_meta = node["metadata"], machine["metadata"]
    marks = {
        fields.CLUSTER_NAME: machine["spec"]["clusterName"],
        fields.CLUSTER_NAMESPACE: machine_meta["namespace"],
        fields.MACHINE: machine_meta["name"],
    }
    if owner is not None:
        marks |= {fields.OWNER_KIND: owner["kind"], fields.OWNER_NAME: owner["name"]}
    start_up = fields.UNINITIALIZED["key"]
    taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != start_up]
    return {
        **node,
        "spec": {**node["spec"], "taints": taints},
        "metadata": {
            **meta,
            "annotations": {**(meta.get("annotations") or {}), **marks},
            "labels": {**(meta.get("labels") or {}), **managed(machine_meta.get("labels") or {})},
        },
    }
