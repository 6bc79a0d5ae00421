"""Builders for the storage objects that the volume tests need, and a cluster read from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.tables import NodeTable, ResourceColumns
from chalicelib.plan.volumes import Volumes

Json = dict[str, Any]
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
DRIVER = "csi.example"


def node(name: str, zone: str = "", **labels: str) -> Json:
    """A Node with enough room for everything."""
    carried = {HOST: name, **({ZONE: zone} if zone else {}), **labels}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": carried},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
    }


def pod(name: str, *volumes: Json, on: str = "", phase: str = "Pending") -> Json:
    """A Pod; its volumes are named v0, v1 …"""
    spec: Json = {
        "containers": [{"name": "c"}],
        "volumes": [{"name": f"v{at}", **volume} for at, volume in enumerate(volumes)],
    }
    if on:
        spec["nodeName"] = on
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
        "status": {"phase": "Running" if on and phase == "Pending" else phase},
    }


def uses(name: str) -> Json:
    """A pod volume that uses the claim of that name."""
    return {"persistentVolumeClaim": {"claimName": name}}


def asks(size: str, storage_class: str = "fast") -> Json:
    """A generic ephemeral pod volume."""
    return {
        "ephemeral": {
            "volumeClaimTemplate": {
                "spec": {
                    "storageClassName": storage_class,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": size}},
                }
            }
        }
    }


def claim(
    name: str = "data",
    volume: str = "",
    storage_class: str = "fast",
    size: str = "10Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    meta: Json | None = None,
    **spec: Any,
) -> Json:
    """A PersistentVolumeClaim; bound if it names a volume."""
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", **(meta or {})},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": list(modes),
            "volumeName": volume,
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


def volume(
    name: str,
    labels: Json | None = None,
    meta: Json | None = None,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """A PersistentVolume."""
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}, **(meta or {})},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            **spec,
        },
        "status": status or {},
    }


def storage_class(
    name: str = "fast", provisioner: str = DRIVER, waits: bool = True, **more: Any
) -> Json:
    """A StorageClass that waits for the first consumer, or not."""
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        **more,
    }


def csi_node(name: str, count: int) -> Json:
    """A CSINode with one driver and its attach limit."""
    return {
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": count}}]},
    }


def affinity(key: str, *values: str) -> Json:
    """spec.nodeAffinity of a volume."""
    return {
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
                ]
            }
        }
    }


def csi(handle: str) -> Json:
    """The source of a PersistentVolume."""
    return {"csi": {"driver": DRIVER, "volumeHandle": handle}}


NO_PROVISIONER = storage_class(provisioner="kubernetes.io/no-provisioner")
PUBLISHES = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}


def left(
    capacity: str | None, zone: str | None = None, largest: str | None = None, of: str = "fast"
) -> Json:
    """A CSIStorageCapacity; zone None: no node matches, empty: all nodes match."""
    topology = (
        {} if zone is None else {"nodeTopology": {"matchLabels": {ZONE: zone}} if zone else {}}
    )
    amounts = {"capacity": capacity, "maximumVolumeSize": largest}
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"{of}-{zone}-{capacity}", "namespace": "csi"},
        "storageClassName": of,
        **topology,
        **{key: value for key, value in amounts.items() if value},
    }


class StorageObjectsCluster:
    """API objects, read by the usual snapshot code; queries concern the pod `p0`."""

    def __init__(self, *objects: Json) -> None:
        self.objects = objects
        folder = SnapshotBuilder()
        folder.add_page(msgspec.json.encode({"kind": "List", "items": objects}), "test")
        self.snapshot: Snapshot = folder.snapshot("test", 0.0)
        assert not self.snapshot.gaps
        self.volumes = Volumes(self.snapshot)
        self.table = NodeTable(self.snapshot.nodes, ResourceColumns(self.snapshot.classes))
        self.classes = {pod.name: pod.cls for pod in self.snapshot.pods}
        self.cls = self.classes["p0"]

    def fitting(self) -> set[str]:
        """Nodes on which the pod's volumes allow it to run, attach limits aside."""
        if self.volumes.nowhere(self.cls):
            return set()
        return {
            self.table.nodes[row].name
            for row in self.volumes.mask(self.cls, self.table).nonzero()[0].tolist()
        }

    def why(self, name: str) -> tuple[Reason, ...]:
        """The reasons against a node."""
        return self.volumes.reasons(self.cls, self.table, self.table.index[name])
