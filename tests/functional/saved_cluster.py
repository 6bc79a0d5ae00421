"""A small cluster saved as files, for tests of the command line: every pod in it
has a different verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NOW = "2026-11-21T07:20:54Z"
LONG_AGO = "2026-11-20T07:00:00Z"
ZONE = "topology.kubernetes.io/zone"


def node(name: str, group: str, cpu: str = "2", **labels: str) -> dict[str, Any]:
    offers = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"providerID": f"example://{group}/{name}"},
        "status": {
            "allocatable": offers,
            "capacity": offers,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
        },
    }


def pod(
    name: str,
    cpu: str,
    *,
    on: str = "",
    owner: str = "ReplicaSet/rs",
    namespace: str = "shop",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A running pod where `on` names a node, otherwise one that the scheduler rejected.
    owner: empty for a bare pod."""
    kind, _, controller = owner.partition("/")
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/2 nodes",
        "reason": "SchedulingGated" if spec.get("schedulingGates") else "Unschedulable",
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": LONG_AGO,
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": [
                {"kind": kind, "name": controller, "uid": f"u-{controller}", "controller": True}
            ]
            if owner
            else [],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running"} if on else {"phase": "Pending", "conditions": [refused]},
    }


def workload(
    kind: str, name: str, replicas: int = 1, owner: str = "", namespace: str = "shop"
) -> dict[str, Any]:
    above, _, top = owner.partition("/")
    references = (
        [{"kind": above, "name": top, "uid": f"u-{top}", "controller": True}] if owner else []
    )
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"u-{name}",
            "ownerReferences": references,
        },
        "spec": {"replicas": replicas},
    }


def save(
    folder: Path,
    nodes: Iterable[Any],
    pods: Iterable[Any],
    groups: Iterable[Any],
    workloads: Iterable[Any] = (),
) -> Path:
    """Writes the folder that `outscaler plan --snapshot` reads."""
    folder.mkdir()
    for kind, items in (("nodes", nodes), ("pods", pods), ("workloads", workloads), ("pdbs", ())):
        (folder / f"{kind}.json").write_text(json.dumps({"kind": "List", "items": list(items)}))
    (folder / "manifest.json").write_text(json.dumps({"nodeGroups": list(groups)}))
    (folder / "captured-at").write_text(NOW + "\n")
    return folder


def shop(folder: Path) -> Path:
    """Two full nodes in group a (at its maximum), an empty group b, and pods
    for every type of verdict."""
    return save(
        folder,
        nodes=[node("a-0", "a", **{ZONE: "z1"}), node("a-1", "a", **{ZONE: "z1"})],
        pods=[
            pod(
                "api-0",
                "1200m",
                on="a-0",
                owner="ReplicaSet/api-1",
                labels={"app": "api", ZONE: "z1"},
            ),
            pod("lone", "300m", on="a-0", owner=""),
            pod("logs-0", "100m", on="a-0", owner="DaemonSet/logs"),
            pod(
                "static",
                "100m",
                on="a-0",
                owner="Node/a-0",
                annotations={"kubernetes.io/config.mirror": "x"},
            ),
            pod("db-0", "1900m", on="a-1", owner="StatefulSet/db"),
            pod("web-0", "1500m", owner="ReplicaSet/web-1"),
            pod("web-1", "1500m", owner="ReplicaSet/web-1"),
            pod("huge", "40"),
            pod("small", "150m"),
            pod("gated", "1", schedulingGates=[{"name": "quota"}]),
            pod("web-0", "10", namespace="other"),
        ],
        groups=[
            {"id": "a", "min": 0, "max": 2, "size": 2, "template": node("t", "a")},
            {"id": "b", "min": 0, "max": 5, "size": 0, "template": node("t", "b")},
        ],
        workloads=[
            workload("ReplicaSet", "api-1", 1, "Deployment/api"),
            workload("ReplicaSet", "web-1", 2),
            workload("StatefulSet", "db"),
            workload("ReplicaSet", "rs", 3),
        ],
    )
