"""Predicates about one node and the pods on it: name, cordon, taints, affinity, ports, resources, devices.

Each predicate takes the pod and the cluster view. It returns a check that is called for every node, None if the pod has
no such requirement, or Nowhere. A check returns the scheduler's own text of the reason, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import HostPort, NodeView, PodView
from infra.emulators.controllers.scheduler.selectors import SelectorTaint, any_term, untolerated


class Nowhere(msgspec.Struct, frozen=True):
    """The pod fits no node at all; the scheduler's message contains only this reason."""

    reason: str


NodeCheck = Callable[[NodeView], list[str]]
Predicate = Callable[[PodView, ClusterView], NodeCheck | Nowhere | None]

_CORDON = SelectorTaint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def node_unschedulable(pod: PodView, _world: ClusterView) -> NodeCheck:
    """Reject a cordoned node, unless the pod tolerates the corresponding taint."""
    refuses = untolerated((_CORDON,), pod.tolerations)

    def check(node: NodeView) -> list[str]:
        return ["node(s) were unschedulable"] if node.unschedulable and refuses else []

    return check


def node_name(pod: PodView, _world: ClusterView) -> NodeCheck | None:
    """Reject a node if spec.nodeName names another one."""
    if not pod.node:
        return None

    def check(node: NodeView) -> list[str]:
        return [] if node.name == pod.node else ["node(s) didn't match the requested node name"]

    return check


def taint_toleration(pod: PodView, _world: ClusterView) -> NodeCheck:
    """Reject a node with a NoSchedule or NoExecute taint that no toleration matches."""

    def check(node: NodeView) -> list[str]:
        return ["node(s) had untolerated taint(s)"] if untolerated(node.taints, pod.tolerations) else []

    return check


def matches_node_affinity(pod: PodView, node: NodeView) -> bool:
    """Return whether the node has all nodeSelector pairs and matches one of the required terms, if there are any."""
    return all(e.holds(node.labels) for e in pod.node_selector) and any_term(pod.node_terms, node.labels, node.name)


def node_affinity(pod: PodView, _world: ClusterView) -> NodeCheck | None:
    """Check nodeSelector and required node affinity."""
    if not pod.node_selector and pod.node_terms is None:
        return None

    def check(node: NodeView) -> list[str]:
        return [] if matches_node_affinity(pod, node) else ["node(s) didn't match Pod's node affinity/selector"]

    return check


def _clash(one: HostPort, other: HostPort) -> bool:
    return (
        one.protocol == other.protocol
        and one.port == other.port
        and (one.ip == other.ip or "0.0.0.0" in {one.ip, other.ip})
    )


def node_ports(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check host ports. They conflict with the same protocol and port, and the same address or a wildcard address."""
    if not pod.ports:
        return None

    def check(node: NodeView) -> list[str]:
        taken = (port for other in world.pods_on(node.name) for port in other.ports)
        clash = any(_clash(mine, theirs) for theirs in taken for mine in pod.ports)
        return ["node(s) didn't have free ports for the requested pod ports"] if clash else []

    return check


def node_resources_fit(pod: PodView, world: ClusterView) -> NodeCheck:
    """Check room for the pod and for all resources it requests. Other resources are ignored, so an overcommitted node
    still takes a pod without requests."""
    asked = {name: amount for name, amount in pod.requests.items() if amount > 0}

    def check(node: NodeView) -> list[str]:
        reasons = []
        if len(world.pods_on(node.name)) + 1 > node.allocatable.get("pods", 0):
            reasons.append("Too many pods")
        used = world.used(node.name)
        reasons += [
            f"Insufficient {name}"
            for name, amount in asked.items()
            if amount > node.allocatable.get(name, 0) - used[name]
        ]
        return reasons

    return check


def dynamic_resources(pod: PodView, _world: ClusterView) -> NodeCheck | None:
    """Reject all nodes for a pod with device claims, because these are not simulated."""
    if not pod.asks_devices:
        return None

    def check(_node: NodeView) -> list[str]:
        return ["cannot allocate all claims"]

    return check
