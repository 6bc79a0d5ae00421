"""Required affinity and anti-affinity between pods, in both directions (Kubernetes scheduler InterPodAffinity)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.node_local import NodeCheck
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodTerm, PodView
from infra.emulators.controllers.scheduler.selectors import selects

NO_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

Places = Counter[tuple[str, str]]  # (topology key, value) -> matching pods there


def _term_selects(term: PodTerm, pod: PodView, world: ClusterView) -> bool:
    in_namespace = pod.namespace in term.namespaces or selects(
        term.namespace_selector, world.namespace_labels(pod.namespace)
    )
    return in_namespace and selects(term.selector, pod.labels)


def _all_select(terms: Iterable[PodTerm], pod: PodView, world: ClusterView) -> bool:
    return all(_term_selects(term, pod, world) for term in terms)


def _attracting(pod: PodView, world: ClusterView) -> Places:
    """Return domains with a pod that matches all of the pod's affinity terms."""
    places: Places = Counter()
    if pod.affinity:
        for node, other in world.placed():
            if _all_select(pod.affinity, other, world):
                places.update(
                    (term.topology_key, node.labels[term.topology_key])
                    for term in pod.affinity
                    if term.topology_key in node.labels
                )
    return places


def _repelling(pod: PodView, world: ClusterView) -> Places:
    """Return domains with a pod that one of the pod's anti-affinity terms matches."""
    places: Places = Counter()
    if pod.anti_affinity:
        for node, other in world.placed():
            places.update(
                (term.topology_key, node.labels[term.topology_key])
                for term in pod.anti_affinity
                if term.topology_key in node.labels and _term_selects(term, other, world)
            )
    return places


def _forbidden(pod: PodView, world: ClusterView) -> Places:
    """Return domains with a pod whose anti-affinity term matches this pod."""
    places: Places = Counter()
    for node, other in world.placed():
        places.update(
            (term.topology_key, node.labels[term.topology_key])
            for term in other.anti_affinity
            if term.topology_key in node.labels and _term_selects(term, pod, world)
        )
    return places


def _holds_any(node: NodeView, places: Places) -> bool:
    return any(node.labels.get(key) == value for key, value in places)


def inter_pod_affinity(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check affinity, then anti-affinity, then the anti-affinity of existing pods; the first failure is the reason.

    A pod with affinity to itself may go to any node with the topology keys while no matching pod is placed.
    """
    attracting, repelling, forbidden = _attracting(pod, world), _repelling(pod, world), _forbidden(pod, world)
    if not (pod.affinity or repelling or forbidden):
        return None
    first_of_its_kind = not attracting and _all_select(pod.affinity, pod, world)

    def attracted(node: NodeView) -> bool:
        keys = {term.topology_key for term in pod.affinity}
        if not all(key in node.labels for key in keys):
            return False
        return first_of_its_kind or all((key, node.labels[key]) in attracting for key in keys)

    def check(node: NodeView) -> list[str]:
        if pod.affinity and not attracted(node):
            return [NO_AFFINITY]
        if _holds_any(node, repelling):
            return [ANTI_AFFINITY]
        return [EXISTING_ANTI_AFFINITY] if _holds_any(node, forbidden) else []

    return check
