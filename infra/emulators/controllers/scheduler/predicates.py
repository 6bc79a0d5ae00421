"""All predicates in the scheduler's order, and the check whether a pod fits a node.

As in the real scheduler, the first predicate that rejects a node gives the reasons. Therefore a tainted node is never
reported as short of cpu.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.emulators.controllers.scheduler import node_local, volumes
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.node_local import NodeCheck, Nowhere, Predicate
from infra.emulators.controllers.scheduler.pod_affinity import inter_pod_affinity
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, read_node, read_pod
from infra.emulators.controllers.scheduler.topology_spread import topology_spread

Json = Mapping[str, Any]

PREDICATES: tuple[tuple[str, Predicate], ...] = (
    ("NodeUnschedulable", node_local.node_unschedulable),
    ("NodeName", node_local.node_name),
    ("TaintToleration", node_local.taint_toleration),
    ("NodeAffinity", node_local.node_affinity),
    ("NodePorts", node_local.node_ports),
    ("NodeResourcesFit", node_local.node_resources_fit),
    ("VolumeRestrictions", volumes.volume_restrictions),
    ("NodeVolumeLimits", volumes.node_volume_limits),
    ("VolumeBinding", volumes.volume_binding),
    ("VolumeZone", volumes.volume_zone),
    ("PodTopologySpread", topology_spread),
    ("InterPodAffinity", inter_pod_affinity),
    ("DynamicResources", node_local.dynamic_resources),
)

Verdict = Callable[[NodeView], list[str]]


def judge(pod: PodView, world: ClusterView) -> Verdict | Nowhere:
    """Return a function from a node to the reasons against it, empty if the pod fits; or Nowhere if it fits no node.

    Counts over the cluster view are taken once, here, so call the function before anything else is placed.
    """
    checks: list[NodeCheck] = []
    for _, predicate in PREDICATES:
        check = predicate(pod, world)
        if isinstance(check, Nowhere):
            return check
        if check is not None:
            checks.append(check)

    def verdict(node: NodeView) -> list[str]:
        return next((reasons for reasons in (check(node) for check in checks) if reasons), [])

    return verdict


def fits(node: Json, pod: Json, world: ClusterView) -> list[str]:
    """Return why a pod does not fit a node of the cluster view, in the scheduler's words; empty if it fits.

    node, pod: core/v1 objects. The view must contain the node (its used resources and domains are looked up by name)
    and must not contain the pod.
    """
    verdict = judge(read_pod(pod), world)
    return [verdict.reason] if isinstance(verdict, Nowhere) else verdict(read_node(node))
