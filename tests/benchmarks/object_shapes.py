"""Objects of realistic sizes for benchmarks of reading: managed fields,
probes, volumes and conditions.

The names contain placeholders: @N the number of a node, @P of a pod, @R of a ReplicaSet.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def managed(name: str, size: int) -> list[Json]:
    fields: Json = {f"f:field-{number}": {"f:value": {}, ".": {}} for number in range(size)}
    return [
        {
            "manager": name,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": fields},
        }
    ]


def node() -> Json:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "metadata": {
            "name": "node-@N",
            "uid": "uid-node-@N",
            "resourceVersion": "1",
            "labels": {
                "kubernetes.io/hostname": "node-@N",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": "zone-1",
                "node.kubernetes.io/instance-type": "m.8",
            },
            "managedFields": managed("kubelet", 40),
        },
        "spec": {"providerID": "memory://node-@N"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {
                    "type": kind,
                    "status": str(kind == "Ready"),
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [
                {
                    "names": [f"registry.example/team/image-{number}@sha256:{'0' * 64}"],
                    "sizeBytes": 100_000_000,
                }
                for number in range(50)
            ],
        },
    }


def pod() -> Json:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    return {
        "metadata": {
            "name": "web-@R-@P",
            "namespace": "default",
            "uid": "uid-pod-@P",
            "resourceVersion": "1",
            "labels": {"app": "web-@R", "pod-template-hash": "@R"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-@R",
                    "uid": "uid-set-@R",
                    "controller": True,
                }
            ],
            "managedFields": managed("kube-controller-manager", 40) + managed("kubelet", 25),
        },
        "spec": {
            "nodeName": "node-@N",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{word}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for word in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example/team/web:1.0",
                    "livenessProbe": probe,
                    "readinessProbe": probe,
                    "env": [
                        {"name": f"SETTING_{number}", "value": "x" * 40} for number in range(12)
                    ],
                    "volumeMounts": [
                        {"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}
                    ],
                    "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}},
                }
            ],
            "volumes": [
                {
                    "name": "token",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": "web",
                    "ready": True,
                    "restartCount": 0,
                    "containerID": "c" * 70,
                    "imageID": "i" * 100,
                }
            ],
        },
    }


def replica_set() -> Json:
    return {
        "metadata": {
            "name": "web-@R",
            "namespace": "default",
            "uid": "uid-set-@R",
            "labels": {"app": "web-@R"},
            "managedFields": managed("kube-controller-manager", 30),
        },
        "spec": {"replicas": 10, "selector": {"matchLabels": {"app": "web-@R"}}},
        "status": {"replicas": 10, "readyReplicas": 10},
    }
