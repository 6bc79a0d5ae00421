"""The objects of each attack that one tenant can make in its namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


NOW = 1_790_000_000.0


NODES, FULL, GROUPS, VICTIMS = 80, 60, 8, 40


ROOT = Path(__file__).parents[2]


def pod(
    name: str, namespace: str = "tenant", *, node: str = "", labels: Json | None = None, **spec: Any
) -> Json:
    """A pod that the scheduler rejected, or one that runs on a node."""
    spec = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        **spec,
    }
    status: Json = (
        {"phase": "Running"}
        if node
        else {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }
    )
    return {
        "kind": "Pod",
        "status": status,
        "spec": {**spec, "nodeName": node} if node else spec,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "labels": labels or {"app": name},
            "creationTimestamp": "2026-09-01T00:00:00Z",
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
            ],
        },
    }


def node(at: int, **status: Any) -> Json:
    """A ready node of one of the groups."""
    group = at % GROUPS
    return {
        "kind": "Node",
        "spec": {"providerID": f"file://g{group}/n{at}"},
        "metadata": {
            "name": f"n{at}",
            "creationTimestamp": "2026-08-01T00:00:00Z",
            "labels": labels_of(f"n{at}", group),
        },
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            **status,
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-08-01T00:05:00Z"}
            ],
        },
    }


def labels_of(name: str, group: int) -> dict[str, str]:
    """The labels of the group's nodes."""
    return {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"z{group % 3}",
        "group": f"g{group}",
    }


def affinity(*terms: Json, kind: str = "podAntiAffinity") -> Json:
    """A required rule about other pods."""
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def term(at: object, key: str = "kubernetes.io/hostname", **more: Any) -> Json:
    """One term with a unique selector that no index finds."""
    return {
        "topologyKey": key,
        **more,
        "labelSelector": {"matchExpressions": [{"key": f"k{at}", "operator": "DoesNotExist"}]},
    }


def _wide(at: int, expressions: int) -> Json:
    """One term whose selector evaluates all its expressions before it selects a pod."""
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchExpressions": [
                {"key": f"k{each}", "operator": "NotIn", "values": [f"v{at}"]}
                for each in range(expressions)
            ]
        },
    }


def _ported(at: int, ports: int) -> Json:
    held = [{"hostPort": 1_000 + at * 7 % 400 + port, "protocol": "TCP"} for port in range(ports)]
    return pod(f"p{at}", containers=[{"ports": held, "resources": {"requests": {"cpu": "100m"}}}])


def _asking(at: int, names: int, *, shared: bool = False) -> Json:
    asked = {f"example.com/r-{'' if shared else at}-{name}": "1" for name in range(names)}
    return pod(f"p{at}", containers=[{"resources": {"requests": {"cpu": "100m"}, "limits": asked}}])


def _spread(at: int, many: int, key: str = "topology.kubernetes.io/zone") -> Json:
    return pod(
        f"p{at}",
        topologySpreadConstraints=[
            {
                "topologyKey": key,
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {
                    "matchExpressions": [{"key": f"k{at}-{each}", "operator": "DoesNotExist"}]
                },
            }
            for each in range(many)
        ],
    )


def _node_terms(at: int, terms: int, values: int) -> Json:
    wanted = [
        {
            "matchExpressions": [
                {
                    "key": "group",
                    "operator": "In",
                    "values": [f"v{at}-{each}-{value}" for value in range(values)],
                }
            ]
        }
        for each in range(terms)
    ]
    return pod(
        f"p{at}",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}
            }
        },
    )


def _budget(at: int) -> Json:
    wanted = [
        {"key": f"k{each}", "operator": "NotIn", "values": [f"v{at}-{value}" for value in range(5)]}
        for each in range(20)
    ]
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"b{at}", "namespace": "tenant"},
        "spec": {"selector": {"matchExpressions": wanted}},
        "status": {"disruptionsAllowed": 1},
    }


def _claim(at: int) -> Json:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"c{at}", "namespace": "tenant"},
        "spec": {
            "storageClassName": "slow",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


_CLASS = {
    "kind": "StorageClass",
    "metadata": {"name": "slow"},
    "provisioner": "csi.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def _claiming(at: int, claims: int) -> Json:
    return pod(
        f"p{at}",
        volumes=[
            {"name": f"v{each}", "persistentVolumeClaim": {"claimName": f"c{at * 7 + each}"}}
            for each in range(claims)
        ],
    )


def _volume(at: int) -> Json:
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv{at}"},
        "status": {"phase": "Available"},
        "spec": {
            "storageClassName": "slow",
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example.com", "volumeHandle": f"h{at}"},
        },
    }


def _ephemeral(at: int, volumes: int, expressions: int) -> Json:
    return pod(
        f"p{at}",
        volumes=[
            {
                "name": f"v{each}",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "storageClassName": "slow",
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                            "selector": _wide(at * 1_000 + each, expressions)["labelSelector"],
                        }
                    }
                },
            }
            for each in range(volumes)
        ],
    )


def _namespaces(count: int) -> list[Json]:
    return [
        {
            "kind": "Namespace",
            "metadata": {"name": f"ns{at}", "labels": {f"l{each}": "x" for each in range(20)}},
        }
        for at in range(count)
    ]


_ANY: Json = {"labelSelector": {}}


CASES: dict[str, Callable[[], Iterable[Json]]] = {
    "plain": lambda: [pod(f"p{at}", labels={"app": "a"}) for at in range(800)],
    "own-labels": lambda: [pod(f"p{at}") for at in range(800)],
    "own-requests": lambda: [
        pod(f"p{at}", containers=[{"resources": {"requests": {"cpu": f"{at + 1}m"}}}])
        for at in range(800)
    ],
    "host-ports-500": lambda: [_ported(at, 500) for at in range(300)],
    "host-ports-at-the-limit": lambda: [_ported(at, 100) for at in range(300)],
    "anti-affinity-50": lambda: [
        pod(f"p{at}", **affinity(*(term(f"{at}-{each}") for each in range(50))))
        for at in range(800)
    ],
    "anti-affinity-at-the-limit": lambda: [
        pod(f"p{at}", **affinity(*(term(f"{at}-{each}") for each in range(20))))
        for at in range(800)
    ],
    "anti-affinity-of-all-zones": lambda: [
        pod(
            f"p{at}",
            **affinity(
                *(
                    term(
                        f"{at}-{each}",
                        ("kubernetes.io/hostname", "group")[each % 2],
                        namespaceSelector={},
                    )
                    for each in range(5)
                )
            ),
        )
        for at in range(800)
    ],
    "anti-affinity-that-runs": lambda: [
        pod(
            f"p{at}",
            node=f"n{at % NODES}",
            **affinity(*(term(f"{at}-{each}") for each in range(20))),
        )
        for at in range(800)
    ],
    "anti-affinity-of-own-kind": lambda: [
        pod(f"p{at}", **affinity({"topologyKey": "kubernetes.io/hostname", **_ANY}))
        for at in range(800)
    ],
    "anti-affinity-of-200-expressions": lambda: [
        pod(f"p{at}", **affinity(_wide(at, 200))) for at in range(2_000)
    ],
    "namespace-selectors-of-190-expressions": lambda: [
        pod(
            f"p{at}", **affinity({**term(at), "namespaceSelector": _wide(at, 190)["labelSelector"]})
        )
        for at in range(2_000)
    ],
    "affinity-20": lambda: [
        pod(f"p{at}", **affinity(*(term(f"{at}-{each}") for each in range(20)), kind="podAffinity"))
        for at in range(800)
    ],
    "resource-names-100": lambda: [_asking(at, 100) for at in range(500)],
    "resource-names-200": lambda: [_asking(at, 200) for at in range(1_000)],
    "resource-names-at-the-limit": lambda: [_asking(at, 29) for at in range(800)],
    "resource-names-shared": lambda: [_asking(at, 29, shared=True) for at in range(800)],
    "spread-50": lambda: [_spread(at, 50) for at in range(800)],
    "spread-at-the-limit": lambda: [_spread(at, 20) for at in range(800)],
    "spread-by-host": lambda: [_spread(at, 5, "kubernetes.io/hostname") for at in range(800)],
    "tolerations-1000": lambda: [
        pod(
            f"p{at}",
            tolerations=[{"key": f"t{at}-{each}", "operator": "Exists"} for each in range(1_000)],
        )
        for at in range(500)
    ],
    "tolerations-at-the-limit": lambda: [
        pod(
            f"p{at}",
            tolerations=[{"key": f"t{at}-{each}", "operator": "Exists"} for each in range(250)],
        )
        for at in range(800)
    ],
    "node-affinity-200": lambda: [_node_terms(at, 200, 500) for at in range(20)],
    "node-affinity-at-the-limit": lambda: [_node_terms(at, 100, 50) for at in range(400)],
    "annotations-of-1-mb": lambda: [
        {
            **each,
            "metadata": {
                **each["metadata"],
                "annotations": {
                    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": f"{at}"
                    + "x," * 100_000
                },
            },
        }
        for at, each in enumerate(pod(f"p{at}") for at in range(50))
    ],
    "volumes-2000": lambda: [_claiming(at, 2_000) for at in range(50)],
    "volumes-at-the-limit": lambda: [
        _CLASS,
        *(_claim(at) for at in range(2_000)),
        *(_claiming(at, 250) for at in range(100)),
    ],
    "selectors-of-ephemeral-claims": lambda: [
        _CLASS,
        *(_volume(at) for at in range(300)),
        *(_ephemeral(at, 5, 200) for at in range(400)),
    ],
    "selectors-of-ephemeral-claims-at-the-limit": lambda: [
        _CLASS,
        *(_volume(at) for at in range(300)),
        *(_ephemeral(at, 5, 10) for at in range(800)),
    ],
    "containers-10000": lambda: [
        pod(
            f"p{at}",
            containers=[
                {"resources": {"requests": {f"example.com/r{at}-{each}": "1"}}}
                for each in range(10_000)
            ],
        )
        for at in range(10)
    ],
    "budgets-5000": lambda: [
        *(_budget(at) for at in range(5_000)),
        *(pod(f"p{at}", node=f"n{at % NODES}") for at in range(800)),
    ],
    "namespaces-2000": lambda: [
        *_namespaces(2_000),
        *(
            pod(
                f"p{at}",
                **affinity(
                    *(
                        term(
                            f"{at}-{each}",
                            namespaceSelector={
                                "matchExpressions": [{"key": f"l{each}", "operator": "Exists"}]
                            },
                        )
                        for each in range(20)
                    )
                ),
            )
            for at in range(400)
        ),
    ],
    "nodes-of-1000-taints": lambda: [
        *(_tainted(at) for at in range(40)),
        *(
            pod(
                f"p{at}",
                tolerations=[{"key": f"x{each}", "operator": "Exists"} for each in range(200)],
                labels={"app": f"p{at}"},
            )
            for at in range(400)
        ),
    ],
    "priorities-all-different": lambda: [pod(f"p{at}", priority=at) for at in range(800)],
    "gpus-of-nobody": lambda: [
        pod(f"p{at}", containers=[{"resources": {"limits": {"nvidia.com/gpu": f"{2**62}"}}}])
        for at in range(800)
    ],
}


def _tainted(at: int) -> Json:
    made = node(at)
    made["metadata"]["labels"].update({f"l{each}": f"{at}" for each in range(1_000)})
    made["spec"]["taints"] = [
        {"key": f"t{at}-{each}", "effect": "NoSchedule"} for each in range(1_000)
    ]
    return made
