"""Node preferences of the real scheduler: its default score plugins, their weights, and ties.

The planner's placements must hold wherever the scheduler puts the pods. Here the counts are read
from a cluster's objects; score_formulas.py has the formulas. No code is shared with the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from infra.emulators.controllers.scheduler import score_formulas as formulas
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, Spread
from infra.emulators.controllers.scheduler.predicates import (
    count_matching,
    counts_node,
    has_keys,
    term_selects,
)
from infra.emulators.controllers.scheduler.score_formulas import Ints, SpreadCounts
from infra.emulators.controllers.scheduler.selectors import Selector, pairs, selects

Plugin = Callable[[PodView, Sequence[NodeView], ClusterView], Ints | None]
"""(pod, nodes, cluster) -> scores of the nodes, None if it does not score this pod."""
CountPods = Callable[[NodeView], int]

_RESOURCES = ("cpu", "memory")
_ZONE = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


def _integers(values: Iterable[object]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _amounts(rows: Iterable[dict[str, int]]) -> Ints:
    """Return millicores and bytes, (rows, 2)."""
    return _integers([row.get(name, 0) for name in _RESOURCES] for row in rows).reshape(-1, 2)


def _taints(pod: PodView, nodes: Sequence[NodeView], _world: ClusterView) -> Ints:
    def untolerated(node: NodeView) -> int:
        return sum(
            taint.effect == "PreferNoSchedule"
            and not any(toleration.accepts(taint) for toleration in pod.tolerations)
            for taint in node.taints
        )

    return formulas.score_taints(_integers(map(untolerated, nodes)))


def _node_affinity(pod: PodView, nodes: Sequence[NodeView], _world: ClusterView) -> Ints | None:
    if not pod.preferred_nodes:
        return None
    weights = (
        sum(wish.weight for wish in pod.preferred_nodes if wish.term.holds(node.labels, node.name))
        for node in nodes
    )
    return formulas.score_node_affinity(_integers(weights))


def _fit(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Ints:
    used = _amounts(world.counted(node.name) for node in nodes) + _amounts([pod.counted_requests])
    return formulas.score_least_allocated(used, _amounts(node.allocatable for node in nodes))


def _balance(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Ints | None:
    own = _amounts([pod.requests])[0]
    if not own.any():
        return None
    used = _amounts(world.used(node.name) for node in nodes)
    return formulas.score_balanced_allocation(
        used, own, _amounts(node.allocatable for node in nodes)
    )


def _images(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Ints:
    holders = {
        image: sum(image in node.images for node in world.nodes.values())
        for image in set(pod.images)
    }

    def present(node: NodeView) -> int:
        return sum(
            formulas.scale_image_bytes(node.images[image], holders[image], len(world.nodes))
            for image in pod.images
            if image in node.images
        )

    return formulas.score_images(_integers(map(present, nodes)), len(pod.images))


# -- between pods


def _pod_affinity(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Ints | None:
    """Score preferred terms of the pod and of running pods, and required affinity of running
    pods."""
    weights = Counter[tuple[str, str]]()
    touched = False
    for node, other in world.placed():
        terms = [
            (wish.weight, wish.term)
            for wish in pod.preferred_pods
            if term_selects(wish.term, other, world)
        ]
        terms += [
            (wish.weight, wish.term)
            for wish in other.preferred_pods
            if term_selects(wish.term, pod, world)
        ]
        terms += [
            (formulas.HARD_AFFINITY_WEIGHT, term)
            for term in other.affinity
            if term_selects(term, pod, world)
        ]
        for weight, term in terms:
            if term.topology_key in node.labels:
                weights[term.topology_key, node.labels[term.topology_key]] += weight
                touched = True
    if not touched:
        return None
    sums = (
        sum(weight for (key, value), weight in weights.items() if node.labels.get(key) == value)
        for node in nodes
    )
    return formulas.score_pod_affinity(_integers(sums))


def _default_selector(pod: PodView, world: ClusterView) -> Selector:
    """Return what selects the pods that the default constraints count: the selectors of all
    Services of the pod, and that of its ReplicaSet if that is known."""
    merged: dict[str, str] = {}
    for service in world.services:
        inside = service["metadata"].get("namespace", "default") == pod.namespace
        wanted = service["spec"].get("selector") or {}
        if inside and wanted.items() <= pod.labels.items():
            merged.update(wanted)
    kind, name = pod.owner or ("", "")
    of_owner = world.owner_selectors.get((kind, pod.namespace, name)) or ()
    return (*pairs(merged), *of_owner)


def _default_count(pod: PodView, world: ClusterView) -> CountPods | None:
    """Return what counts the pods on a node that the default constraints spread, None if there
    are none. Where a pod's controller is not among the objects, those of the same controller
    are counted: its selector selects just them."""
    selector = _default_selector(pod, world)
    (kind, name), namespace = pod.owner or ("", ""), pod.namespace
    read = (kind, namespace, name) in world.owner_selectors
    by_owner = kind in formulas.OWNERS_WITH_SELECTOR and not read
    if not selector and not by_owner:
        return None

    def count(node: NodeView) -> int:
        return sum(
            other.namespace == namespace
            and not other.terminating
            and (not by_owner or other.owner == (kind, name))
            and selects(selector, other.labels)
            for other in world.pods_on(node.name)
        )

    return count


def _spread(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Ints | None:
    """Score ScheduleAnyway constraints. A pod without any constraint is spread over hosts and
    zones with the pods of its controller and Services."""
    if pod.defaults_spread:
        count = _default_count(pod, world)
        if count is None:
            return None
        defaults = (
            Spread(key, skew, 1, None, honor_affinity=True, honor_taints=False)
            for key, skew in formulas.DEFAULT_SPREAD
        )
        counting = _SpreadCounting(pod, nodes, world, ())
        return formulas.score_spread([counting.of(constraint, count) for constraint in defaults])
    if not pod.soft_spread:
        return None
    counting = _SpreadCounting(pod, nodes, world, pod.soft_spread)

    def own(constraint: Spread) -> SpreadCounts:
        return counting.of(
            constraint, lambda node: count_matching(pod, constraint, world.pods_on(node.name))
        )

    return formulas.score_spread(map(own, pod.soft_spread), counting.able)


class _SpreadCounting:
    """Counts matching pods for constraints of one pod. needed: constraints of which a node must
    have all labels; able: which of the scored nodes have them."""

    def __init__(
        self,
        pod: PodView,
        nodes: Sequence[NodeView],
        world: ClusterView,
        needed: Sequence[Spread],
    ) -> None:
        self._pod, self._needed = pod, needed
        self._all = list(world.nodes.values())
        position = {node.name: at for at, node in enumerate(self._all)}
        self._scored = _integers(position[node.name] for node in nodes)
        self.able = np.array([has_keys(needed, node) for node in nodes], dtype=np.bool_)

    def of(self, constraint: Spread, count: CountPods) -> SpreadCounts:
        """Return the counts of one constraint."""
        key, max_skew = constraint.topology_key, constraint.max_skew
        if key == formulas.HOST_LABEL:
            # of the node, not of its label's value, whatever the policies
            scored = (self._all[at] for at in self._scored.tolist())
            own = _integers(count(node) if key in node.labels else -1 for node in scored)
            return SpreadCounts(own, int(self.able.sum()), max_skew)
        codes: dict[str, int] = {}
        domains = _integers(
            codes.setdefault(node.labels[key], len(codes)) if key in node.labels else -1
            for node in self._all
        )
        pods = _integers(count(node) if self._counts(constraint, node) else 0 for node in self._all)
        in_domain, size = formulas.count_by_domain(domains, pods, self._scored, self.able)
        return SpreadCounts(in_domain, size, max_skew)

    def _counts(self, constraint: Spread, node: NodeView) -> bool:
        return has_keys(self._needed, node) and counts_node(self._pod, constraint, node)


PLUGINS: dict[str, Plugin] = {
    formulas.TAINTS: _taints,
    formulas.NODES: _node_affinity,
    formulas.SPREAD: _spread,
    formulas.PODS: _pod_affinity,
    formulas.FIT: _fit,
    formulas.BALANCE: _balance,
    formulas.IMAGES: _images,
}
"""The plugins by their names in the scheduler's configuration."""


def plugin_scores(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> dict[str, Ints]:
    """Return the weighted scores of every plugin that scores this pod. nodes: the sampled nodes
    that the pod fits."""
    scores = {name: plugin(pod, nodes, world) for name, plugin in PLUGINS.items()}
    return formulas.apply_weights({name: own for name, own in scores.items() if own is not None})


def best(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> NodeView:
    """Return the scheduler's choice. nodes: those that the pod fits, in the order scored."""
    if len(nodes) == 1:
        return nodes[0]
    totals = sum(plugin_scores(pod, nodes, world).values(), np.zeros(len(nodes), dtype=np.int64))
    return nodes[formulas.choose(totals)]


class DefaultProfile:
    """Chooses nodes as a kube-scheduler with the default profile does, its sample included.

    percentage: percentageOfNodesToScore, 0 for the default; seed: as in NodeSampling.
    """

    def __init__(self, percentage: int = 0, seed: int | None = None) -> None:
        self._sampling = formulas.NodeSampling(percentage, seed)

    def __call__(self, pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> NodeView:
        """Return the node for a pod. nodes: all those that it fits."""
        listed = list(world.nodes.values())
        zones = [tuple(node.labels.get(key, "") for key in _ZONE) for node in listed]
        order = formulas.sort_by_tree(zones)
        fitting = {node.name for node in nodes}
        fits = np.array([listed[at].name in fitting for at in order], dtype=np.bool_)
        sample = self._sampling.take(fits).tolist()
        return best(pod, [listed[order[at]] for at in sample], world)
