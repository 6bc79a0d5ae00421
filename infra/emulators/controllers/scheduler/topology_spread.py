"""Required topology spread constraints (DoNotSchedule). ScheduleAnyway is not read here."""

from __future__ import annotations

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.node_local import NodeCheck, matches_node_affinity
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, Spread
from infra.emulators.controllers.scheduler.selectors import selects, untolerated

MISMATCH = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL = f"{MISMATCH} (missing required label)"


class _Counted(msgspec.Struct, frozen=True):
    constraint: Spread
    counts: dict[str, int]  # domain -> matching pods
    self_match: int

    def minimum(self) -> int:
        """Return the smallest count, or 0 while there are fewer domains than minDomains."""
        return min(self.counts.values()) if len(self.counts) >= self.constraint.min_domains else 0


def _counts_node(pod: PodView, constraint: Spread, node: NodeView) -> bool:
    if not all(c.topology_key in node.labels for c in pod.spread):
        return False
    if constraint.honor_affinity and not matches_node_affinity(pod, node):
        return False
    return not (constraint.honor_taints and untolerated(node.taints, pod.tolerations))


def _matching(pod: PodView, constraint: Spread, others: list[PodView]) -> int:
    if not constraint.selector:  # an absent or empty selector matches no pod
        return 0
    return sum(
        other.namespace == pod.namespace and not other.terminating and selects(constraint.selector, other.labels)
        for other in others
    )


def _count(pod: PodView, constraint: Spread, world: ClusterView) -> _Counted:
    counts: dict[str, int] = {}
    for node in world.nodes.values():
        if _counts_node(pod, constraint, node):
            domain = node.labels[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + _matching(pod, constraint, world.pods_on(node.name))
    return _Counted(constraint, counts, int(selects(constraint.selector, pod.labels)))


def topology_spread(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check that skew = pods in the node's domain + this one - the minimum over domains is at most maxSkew."""
    if not pod.spread:
        return None
    counted = [(c, c.minimum()) for c in (_count(pod, constraint, world) for constraint in pod.spread)]

    def check(node: NodeView) -> list[str]:
        for each, minimum in counted:
            domain = node.labels.get(each.constraint.topology_key)
            if domain is None:
                return [MISSING_LABEL]
            if each.counts.get(domain, 0) + each.self_match - minimum > each.constraint.max_skew:
                return [MISMATCH]
        return []

    return check
