"""Plain Kubernetes objects for random clusters: nodes, pods, workloads, and storage objects."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.model.timestamps import format_time

Json = dict[str, Any]

NOW = 1_780_000_000.0
HOST, ZONE, REGION = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
DRIVER, LOCAL_DRIVER, DISK_ZONE = (
    "disk.example.com",
    "local.example.com",
    "topology.disk.example.com/zone",
)
STARTUP = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/net", "effect": "NoSchedule"}
READY, CORDONED, UNREADY, STARTING, LEAVING = "ready", "cordoned", "unready", "starting", "leaving"
_MARKS: Mapping[str, Sequence[Json]] = {
    STARTING: [STARTUP],
    LEAVING: [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}],
    UNREADY: [
        {"key": "node.kubernetes.io/not-ready", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ],
    CORDONED: [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
}
_AGE = {STARTING: 120.0}  # seconds; all other objects are a day old
_DAY = 86_400.0


def chance(draw: random.Random, share: float) -> bool:
    """True with this probability; 0 draws false, so that hypothesis shrinks
    towards simpler clusters."""
    return draw.random() >= 1.0 - share


def instant(age: float) -> str:
    """That many seconds before now, in the API's format."""
    return format_time(NOW - age)


def node(
    name: str,
    group: str,
    offer: Mapping[str, str],
    labels: Mapping[str, str],
    taints: Sequence[Json],
    state: str = READY,
    reserved: tuple[int, int] = (80, 300),
) -> Json:
    """A node of a group in a given state. offer: its capacity; reserved: millicores and
    MiB not available to pods."""
    cpu, memory = (
        int(offer["cpu"]) * 1000 - reserved[0],
        int(offer["memory"].removesuffix("Gi")) * 1024 - reserved[1],
    )
    spec: Json = {"providerID": f"made://{group}/{name}"}
    if taints or state in _MARKS:
        spec["taints"] = [*taints, *_MARKS.get(state, ())]
    if state == CORDONED:
        spec["unschedulable"] = True
    born = instant(_AGE.get(state, _DAY))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {**labels, HOST: name},
            "creationTimestamp": born,
        },
        "spec": spec,
        "status": {
            "capacity": dict(offer),
            "allocatable": {**offer, "cpu": f"{cpu}m", "memory": f"{memory}Mi"},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False" if state == UNREADY else "True",
                    "lastTransitionTime": born,
                }
            ],
        },
    }


def container(
    cpu: int, memory: int = 0, more: Mapping[str, str] | None = None, **fields: Any
) -> Json:
    """cpu in millicores, memory in MiB, 0: no request; more: other resources."""
    asked = {
        **({"cpu": f"{cpu}m"} if cpu else {}),
        **({"memory": f"{memory}Mi"} if memory else {}),
        **(more or {}),
    }
    return {"name": "c", "image": "i", "resources": {"requests": asked}, **fields}


def pod(
    name: str,
    namespace: str,
    spec: Mapping[str, Any],
    labels: Mapping[str, str],
    owner: tuple[str, str] | None,
    on: str = "",
    age: float = 3600.0,
) -> Json:
    """A pod running on a node, or rejected by the scheduler. owner: kind
    and name of its controller."""
    meta: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"pod-{namespace}-{name}",
        "labels": dict(labels),
        "creationTimestamp": instant(age),
    }
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": owner[0],
                "name": owner[1],
                "controller": True,
                "uid": f"{namespace}.{owner[1]}",
            }
        ]
    said: Json = (
        {"type": "PodScheduled", "status": "True"}
        if on
        else {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"schedulerName": "default-scheduler", **spec, **({"nodeName": on} if on else {})},
        "status": {"phase": "Running" if on else "Pending", "conditions": [said]},
    }


def workload(
    kind: str,
    name: str,
    namespace: str,
    replicas: int | None,
    spec: Mapping[str, Any],
    labels: Mapping[str, str],
) -> Json:
    """The controller of some pods."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}.{name}",
            "creationTimestamp": instant(_DAY),
        },
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": dict(spec)},
        },
    }


def namespace(name: str, labels: Mapping[str, str]) -> Json:
    """A namespace with the one label that every namespace has."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "uid": f"ns-{name}",
            "labels": {"kubernetes.io/metadata.name": name, **labels},
        },
    }


def priorities(text: str) -> Json:
    """The ConfigMap of the priority expander."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"priorities": text},
        "metadata": {
            "name": "cluster-autoscaler-priority-expander",
            "namespace": "kube-system",
            "uid": "wishes",
        },
    }


def claim(
    name: str,
    space: str,
    storage_class: str,
    modes: Sequence[str],
    volume: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """A PersistentVolumeClaim of 10 GiB, bound if it names a volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": space,
            "uid": f"claim-{space}-{name}",
            "annotations": {
                **({"pv.kubernetes.io/bind-completed": "yes"} if volume else {}),
                **(annotations or {}),
            },
        },
        "spec": {
            "storageClassName": storage_class,
            "accessModes": list(modes),
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "10Gi"}},
            **({"volumeName": volume} if volume else {}),
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(
    name: str,
    storage_class: str,
    modes: Sequence[str],
    zone: str,
    *,
    claimed: tuple[str, str] | None = None,
    how: str = "affinity",
    driver: str = DRIVER,
) -> Json:
    """A PersistentVolume of 20 GiB in a zone. how: the zone is given by its node affinity, or by a
    label. claimed: namespace and name of its claim."""
    spec: Json = {
        "storageClassName": storage_class,
        "accessModes": list(modes),
        "capacity": {"storage": "20Gi"},
        "volumeMode": "Filesystem",
        "csi": {"driver": driver, "volumeHandle": f"handle-{name}"},
    }
    labels = {}
    if how == "affinity":
        spec["nodeAffinity"] = {
            "required": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": ZONE, "operator": "In", "values": zone.split("__")}
                        ]
                    }
                ]
            }
        }
    else:
        labels = {ZONE: zone}
    if claimed is not None:
        spec["claimRef"] = {
            "namespace": claimed[0],
            "name": claimed[1],
            "uid": f"claim-{claimed[0]}-{claimed[1]}",
        }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"volume-{name}", "labels": labels},
        "spec": spec,
        "status": {"phase": "Bound" if claimed else "Available"},
    }


def storage_class(name: str, provisioner: str, *, waits: bool, zones: Sequence[str] = ()) -> Json:
    """zones: allowedTopologies."""
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else None
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "uid": f"class-{name}"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        **({"allowedTopologies": allowed} if allowed else {}),
    }


def csi_driver(*, publishes: bool) -> Json:
    """publishes: whether it reports storage capacity."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER, "uid": "driver"},
        "spec": {"storageCapacity": publishes},
    }


def capacity(made_by: str, zone: str, left: str) -> Json:
    """The storage capacity of a storage class in a zone."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {
            "name": f"{made_by}-{zone}",
            "namespace": "kube-system",
            "uid": f"room-{made_by}-{zone}",
        },
        "storageClassName": made_by,
        "nodeTopology": {"matchLabels": {DISK_ZONE: zone}},
        "capacity": left,
    }


def csi_node(name: str, most: int) -> Json:
    """The number of volumes that the only driver attaches to the node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "uid": f"csi-{name}"},
        "spec": {
            "drivers": [
                {
                    "name": DRIVER,
                    "nodeID": name,
                    "topologyKeys": [ZONE],
                    "allocatable": {"count": most},
                }
            ]
        },
    }
