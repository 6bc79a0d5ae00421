"""Short constructors of the objects in the scheduler's and controllers' tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.emulators.controllers import objects
from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.predicates import fits
from infra.emulators.kube.objects import KubeObject

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def container(cpu: str | None = None, **fields: Any) -> KubeObject:
    return {"name": "c", "resources": {"requests": {"cpu": cpu} if cpu else {}}, **fields}


def pod(
    name: str = "new",
    on: str = "",
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    cpu: str | None = None,
    terminating: bool = False,
    **spec: Any,
) -> KubeObject:
    meta: KubeObject = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    if terminating:
        meta["deletionTimestamp"] = "2026-11-21T07:20:54Z"
    whole = {"containers": [container(cpu)], **spec}
    if on:
        whole["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}


def node(
    name: str = "n1",
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    cpu: str = "1",
    taints: Sequence[KubeObject] = (),
    pods: str = "110",
) -> KubeObject:
    return objects.node(
        name,
        cpu,
        labels={**({ZONE: zone} if zone else {}), **(labels or {})},
        taints=taints,
        pods=pods,
    )


def reasons(
    incoming: KubeObject,
    nodes: Sequence[KubeObject],
    existing: Sequence[KubeObject] = (),
    around: Surroundings | None = None,
) -> dict[str, list[str]]:
    """Returns why the pod does not fit each node, by node."""
    world = ClusterView.of(nodes, existing, around)
    return {each["metadata"]["name"]: fits(each, incoming, world) for each in nodes}


def fitting(
    incoming: KubeObject,
    nodes: Sequence[KubeObject],
    existing: Sequence[KubeObject] = (),
    around: Surroundings | None = None,
) -> set[str]:
    """Returns the nodes that the pod fits."""
    return {name for name, why in reasons(incoming, nodes, existing, around).items() if not why}


def affinity(kind: str, *terms: KubeObject) -> KubeObject:
    """Returns spec.affinity with required terms; kind: podAffinity, podAntiAffinity."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def node_terms(*terms: KubeObject) -> KubeObject:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


def term(app: str, key: str = ZONE, **more: Any) -> KubeObject:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def expression(key: str, operator: str, *values: str) -> KubeObject:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
