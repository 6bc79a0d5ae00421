"""Objects of every kind that a pass reads, corrupted by seed: wrong types, huge and deep
values, nulls, missing parts.

A corrupted object is one among the valid ones of a random cluster. It may only
change what depends on it.
"""

from __future__ import annotations

import copy
import random
from typing import Any

Json = dict[str, Any]
_META = {
    "name": "hostile",
    "namespace": "hostile",
    "uid": "hostile",
    "labels": {"app": "hostile"},
    "annotations": {"a": "b"},
    "creationTimestamp": "2026-08-01T00:00:00Z",
    "ownerReferences": [
        {"kind": "ReplicaSet", "name": "r", "uid": "u", "apiVersion": "apps/v1", "controller": True}
    ],
}
_SELECTOR = {
    "matchLabels": {"app": "hostile"},
    "matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}],
}
_AMOUNTS = {"cpu": "100m", "memory": "1Gi", "example.com/r": "1"}
_TERM = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": _SELECTOR,
    "namespaces": ["hostile"],
    "namespaceSelector": _SELECTOR,
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
POD_SPEC: Json = {
    "containers": [
        {
            "name": "c",
            "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
            "ports": [{"hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}],
        }
    ],
    "initContainers": [
        {"name": "i", "restartPolicy": "Always", "resources": {"requests": _AMOUNTS}}
    ],
    "nodeSelector": {"disk": "fast"},
    "priority": 5,
    "overhead": {"cpu": "10m"},
    "schedulerName": "default-scheduler",
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "k", "operator": "Gt", "values": ["3"]}],
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["n"]}
                        ],
                    }
                ]
            }
        },
        "podAffinity": {_REQUIRED: [_TERM]},
        "podAntiAffinity": {_REQUIRED: [_TERM]},
    },
    "topologySpreadConstraints": [
        {
            "topologyKey": "topology.kubernetes.io/zone",
            "maxSkew": 1,
            "minDomains": 2,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _SELECTOR,
            "matchLabelKeys": ["app"],
        }
    ],
    "volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
        {
            "name": "e",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        },
        {"name": "r", "rbd": {"pool": "p", "image": "i", "monitors": ["m"]}},
    ],
    "terminationGracePeriodSeconds": 30,
    "hostNetwork": False,
}
_CONDITIONS = [
    {"type": "Ready", "status": "True", "reason": "r", "lastTransitionTime": "2026-08-01T00:00:00Z"}
]
GOOD: dict[str, Json] = {
    "Pod": {
        "spec": POD_SPEC,
        "status": {
            "phase": "Pending",
            "nominatedNodeName": "",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1",
                }
            ],
        },
    },
    "Node": {
        "spec": {
            "providerID": "file://hostile/n",
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            "unschedulable": False,
        },
        "status": {
            "capacity": _AMOUNTS,
            "allocatable": {**_AMOUNTS, "pods": "110"},
            "conditions": _CONDITIONS,
        },
    },
    "Namespace": {},
    "PodDisruptionBudget": {
        "spec": {"selector": _SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1},
    },
    **{
        kind: {
            "spec": {
                "replicas": 2,
                "template": {"metadata": {"labels": {"app": "hostile"}}, "spec": POD_SPEC},
            }
        }
        for kind in ("DaemonSet", "ReplicaSet", "StatefulSet", "Job", "ReplicationController")
    },
    "PersistentVolumeClaim": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s",
            "volumeName": "pv",
            "selector": _SELECTOR,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound"},
    },
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"name": "c", "namespace": "hostile"},
            "storageClassName": "s",
            "csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                    ]
                }
            },
        },
        "status": {"phase": "Bound"},
    },
    "StorageClass": {
        "provisioner": "d",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": ["v"]}]}],
    },
    "CSINode": {"spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}]}},
    "CSIDriver": {"spec": {"storageCapacity": True}},
    "CSIStorageCapacity": {
        "storageClassName": "s",
        "nodeTopology": _SELECTOR,
        "capacity": "1Gi",
        "maximumVolumeSize": "1Gi",
    },
    "ConfigMap": {"data": {"priorities": "10: [g0]\n20: [g.*]"}},
    "HorizontalNodeAutoscaler": {
        "spec": {
            "targetNodepoolIds": ["g0"],
            "rules": [
                {
                    "ruleName": "r",
                    "type": "Cron",
                    "cronTrigger": {"schedule": "0 * * * *"},
                    "action": {"type": "ScaleUp", "unit": "Node", "value": 1},
                }
            ],
        }
    },
}


def good(kind: str) -> Json:
    """An object of a kind as returned by the API, in a namespace of its own."""
    meta = {
        **_META,
        **(
            {"name": "cluster-autoscaler-priority-expander", "namespace": "kube-system"}
            if kind == "ConfigMap"
            else {}
        ),
    }
    return copy.deepcopy({"kind": kind, "apiVersion": "v1", "metadata": meta, **GOOD[kind]})


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": [value]}
    return value


HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    -(2**63),
    10**40,
    1.5,
    -0.0,
    1e300,
    "",
    " ",
    "x" * 100_000,
    "\0",
    "\x1b[2J",
    "💥",
    "\u0661",
    "1e" + "9" * 5_000,
    "9" * 200_000,
    "0." + "0" * 5_000 + "1",
    "1e-9999",
    "NaN",
    "inf",
    "-1",
    "1Ki1",
    str(2**63 - 1),
    "16Ei",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "2026-02-31T00:00:00Z",
    [],
    {},
    [None],
    {"": None},
    {"a": 1},
    [[[]]],
    ["a", "a"],
    {"k" * 5_000: "v"},
    _deep(60),
    [{}] * 300,
    {f"k{at}": "v" for at in range(3_000)},
    [{"key": "k", "operator": "In", "values": ["v"] * 5_000}],
    {f"example.com/r{at}": "1" for at in range(600)},
    {"cpu": str(2**62), "memory": "8Ei", "pods": str(2**62)},
)


def corrupted(kind: str, draw: random.Random) -> Json:
    """A valid object with up to three values removed, replaced or repeated."""
    made = good(kind)
    spoil(made, draw)
    return made


def spoil(made: Json, draw: random.Random) -> None:
    """Removes, replaces or repeats up to three values of an object in place; its kind stays."""
    for _ in range(draw.randint(1, 3)):
        holders = [each for each in _holders(made) if each]
        holder = draw.choice(holders)
        key = (
            draw.choice(sorted(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
        )
        if holder is made and key == "kind":
            continue
        how = draw.random()
        if how < 0.15:
            del holder[key]
        elif how < 0.25 and isinstance(holder, list):
            holder.extend([copy.deepcopy(holder[key])] * 300)
        else:
            holder[key] = copy.deepcopy(draw.choice(HOSTILE))


def _holders(value: Any) -> list[Any]:
    """All mappings and lists in a value, including the value itself."""
    if not isinstance(value, dict | list):
        return []
    parts = value.values() if isinstance(value, dict) else value
    return [value, *(each for part in parts for each in _holders(part))]
