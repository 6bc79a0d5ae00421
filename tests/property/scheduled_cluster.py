"""A random cluster after the scheduler has bound all pods that fit the existing nodes.

Random clusters have pending pods that would fit existing nodes, which in real clusters lasts only
moments. Most plans are made after the scheduler has rejected all pending pods, so placements are
also measured for such clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.property.clusters import RandomCluster
from tests.property.scheduler_draws import Drawing
from tests.property.scheduler_view import SchedulerView


def settled(cluster: RandomCluster, seed: int) -> RandomCluster:
    """The cluster with all pods bound that the scheduler accepts in one history. Pods with claims
    stay pending, because binding of volumes is not simulated here."""
    stage = SchedulerView(cluster)
    bare = [
        key
        for key, pod in stage.wanted.items()
        if not pod.raw["spec"].get("nodeName") and not _claims(pod.raw)
    ]
    places = Drawing(stage, [], bare).at_rest(seed)
    pods = [
        _bound(pod, places.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"))
        for pod in cluster.lists["pods"]
    ]
    return msgspec.structs.replace(cluster, lists={**cluster.lists, "pods": pods})


def _claims(pod: Mapping[str, Any]) -> bool:
    return any(
        volume.keys() & {"persistentVolumeClaim", "ephemeral"}
        for volume in pod["spec"].get("volumes", ())
    )


def _bound(pod: dict[str, Any], node: str | None) -> dict[str, Any]:
    if node is None:
        return pod
    done = {"type": "PodScheduled", "status": "True"}
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**pod["status"], "phase": "Running", "conditions": [done]},
    }
