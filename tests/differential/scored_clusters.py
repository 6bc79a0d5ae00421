"""Random small clusters in which everything occurs that the scheduler scores and a snapshot can
tell: nodes that lack labels, soft and hard taints, pods of controllers of all kinds that run, end
or have ended, wishes about nodes, soft constraints with policies, required affinity."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
OWNERS = (("ReplicaSet", "web"), ("ReplicaSet", "db"), ("StatefulSet", "log"), ("Job", "job"))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def lists(seed: int) -> dict[str, list[Json]]:
    """Nodes and pods of one cluster, as the API has them."""
    draw = random.Random(seed)
    names = [f"n{number}" for number in range(draw.randint(4, 12))]
    pods = [_pod(draw, f"run-{number}", draw.choice(names)) for number in range(40)]
    pods += [_pod(draw, f"new-{number}") for number in range(12)]
    return {"nodes": [_node(draw, name) for name in names], "pods": pods}


def _node(draw: random.Random, name: str) -> Json:
    labels = {
        HOST: draw.choice((name, name, name, None)),
        ZONE: draw.choice(("z1", "z2", "z3", None)),
        RACK: draw.choice(("r1", "r2", None)),
        "pool": draw.choice(("x", "y")),
    }
    taints = [
        {"key": key, "effect": effect}
        for key, effect, share in (
            ("leaving", "PreferNoSchedule", 0.5),
            ("leaving-2", "PreferNoSchedule", 0.3),
            ("hard", "NoSchedule", 0.2),
        )
        if draw.random() < share
    ]
    offers = {"cpu": str(draw.choice((4, 8, 16))), "memory": f"{draw.choice((8, 32))}Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {key: value for key, value in labels.items() if value is not None},
        },
        "spec": {"taints": taints},
        "status": {
            "allocatable": {**offers, "pods": "110"},
            "capacity": {**offers, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(draw: random.Random, name: str, on: str = "") -> Json:
    owner = draw.choice((*OWNERS, None))
    app = owner[1] if owner else draw.choice(("web", "alone"))
    meta: Json = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": "batch/v1" if owner[0] == "Job" else "apps/v1",
                "kind": owner[0],
                "name": owner[1],
                "uid": owner[1],
                "controller": True,
            }
        ]
    if on and draw.random() < 0.15:
        meta["deletionTimestamp"] = "2026-11-21T07:20:54Z"
    ended = bool(on) and draw.random() < 0.1
    status = {"phase": "Succeeded" if ended else "Running" if on else "Pending"}
    spec = {**_spec(draw), **({"nodeName": on} if on else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def _spec(draw: random.Random) -> Json:
    requests: Mapping[str, str] = {
        key: value
        for key, value in (
            ("cpu", draw.choice(("100m", "500m", "1"))),
            ("memory", draw.choice(("128Mi", "1Gi", "3Gi"))),
        )
        if draw.random() < 0.85
    }
    spec: Json = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if draw.random() < 0.4:
        spec["nodeSelector"] = {"pool": draw.choice(("x", "y"))}
    if draw.random() < 0.3:
        spec["tolerations"] = [{"key": draw.choice(("leaving", "hard")), "operator": "Exists"}]
    affinity: Json = {}
    if draw.random() < 0.3:
        wanted = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}
        affinity["nodeAffinity"] = {PREFERRED: [{"weight": 7, "preference": wanted}]}
    if draw.random() < 0.1:
        affinity["podAffinity"] = {REQUIRED: [_about(draw, draw.choice((ZONE, RACK)))]}
    if affinity:
        spec["affinity"] = affinity
    if draw.random() < 0.5:
        keys = draw.sample((HOST, ZONE, RACK), draw.randint(1, 3))
        spec["topologySpreadConstraints"] = [_constraint(draw, key) for key in keys]
    return spec


def _about(draw: random.Random, key: str) -> Json:
    selector = {"matchLabels": {"app": draw.choice(("web", "db", "alone"))}}
    return {"topologyKey": key, "labelSelector": selector}


def _constraint(draw: random.Random, key: str) -> Json:
    return {
        **_about(draw, key),
        "maxSkew": draw.choice((1, 2, 5)),
        "whenUnsatisfiable": draw.choice(("ScheduleAnyway", "ScheduleAnyway", "DoNotSchedule")),
        "nodeAffinityPolicy": draw.choice(("Honor", "Ignore")),
        "nodeTaintsPolicy": draw.choice(("Honor", "Ignore")),
    }
