"""The Node that a Machine becomes: what the cloud and the kubelet would say about it.

Why here and not in the planner's terms: the emulated machine is the truth that templates are promises about. With a
machine class the truth can differ from what the group's annotations promise, as it does in life.
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
    """What machines of one infrastructure template are. allocatable: empty for capacity less the reserve."""

    capacity: Amounts
    allocatable: Amounts = {}
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()


def managed(labels: Mapping[str, str]) -> dict[str, str]:
    """The Machine's labels that Cluster API keeps on the Node, keys whole (clusterapi.md §5)."""

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
    """`key=value:Effect` or `key:Effect`, comma-separated."""
    for part in filter(None, text.split(",")):
        head, _, effect = part.partition(":")
        key, _, value = head.partition("=")
        yield {"key": key, "effect": effect, **({"value": value} if value else {})}


def promised(annotations: Mapping[str, str], offered: Amounts) -> MachineClass:
    """The machine that a group's capacity annotations describe, over what its infrastructure template offers;
    110 pods unless the annotations say otherwise."""
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


def _less(capacity: Amounts, reserve: Amounts) -> dict[str, str]:
    """Allocatable as a kubelet prints it: millicores and Ki."""
    left = dict(capacity)
    for name, amount in reserve.items():
        if name in capacity:
            whole = max(0, parse_amount(name, capacity[name]) - parse_amount(name, amount))
            left[name] = f"{whole}m" if name == "cpu" else f"{whole // 1024}Ki"
    return left


def joining_node(machine: KubeObject, kind: MachineClass, reserve: Amounts) -> KubeObject:
    """The Node as its kubelet registers it: not ready, and tainted until Cluster API has seen it."""
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
    """The Node once Cluster API has seen it: annotations that lead to its Machine, labels, no start-up taint."""
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
