"""Node preferences of the real scheduler: its default score plugins, their weights, and ties.

The planner's placements must hold wherever the scheduler puts the pods. kube-scheduler adds up
seven plugins, each normalized to 0..100, and selects randomly among the nodes with the best sum.
ImageLocality is omitted, because no object here names the images of a node. No code is shared with
the planner.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView
from infra.emulators.controllers.scheduler.predicates import matches_node_affinity
from infra.emulators.controllers.scheduler.selectors import (
    Expression,
    read_expressions,
    read_selector,
    selects,
)

Json = Mapping[str, Any]
Scores = list[float]

_BEST = 100.0
_UNASKED = {"cpu": 100, "memory": 200 << 20}  # assumed for a container without a request
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# default spread constraints of pods without any: topology key, maxSkew
_BY_DEFAULT = ((_HOST, 3), (_ZONE, 5))
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_HARD_AFFINITY = 1  # weight of a running pod's required affinity towards the new pod


def _counted(pod: PodView) -> list[int]:
    """Return the millicores and bytes that a pod counts as."""
    return [pod.requests.get(name, 0) or least for name, least in _UNASKED.items()]


def _least_allocated(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Scores:
    """Score the mean free share of cpu and memory (NodeResourcesFit, LeastAllocated)."""
    mine, scores = _counted(pod), []
    for node in nodes:
        total = [0, 0]
        for other in world.pods_on(node.name):
            cpu, memory = _counted(other)
            total[0], total[1] = total[0] + cpu, total[1] + memory
        shares = []
        for name, used, own in zip(_UNASKED, total, mine, strict=True):
            have = node.allocatable.get(name, 0)
            if have:
                shares.append(max(0, have - used - own) * 100 // have)
        scores.append(float(sum(shares) // len(shares)) if shares else 0.0)
    return scores


def _balanced(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Scores:
    """Score how close the used shares of cpu and memory are to each other."""
    if not any(pod.requests.get(name) for name in _UNASKED):
        return [0.0] * len(nodes)
    scores = []
    for node in nodes:
        used = world.used(node.name)
        shares = [
            min(1.0, (used[name] + pod.requests.get(name, 0)) / have)
            for name in _UNASKED
            if (have := node.allocatable.get(name, 0))
        ]
        scores.append(float(int((1 - (max(shares) - min(shares)) / 2) * _BEST)) if shares else 0.0)
    return scores


def _taints(pod: PodView, nodes: Sequence[NodeView], _world: ClusterView) -> Scores:
    return _share(
        [
            sum(
                taint.effect == "PreferNoSchedule"
                and not any(t.accepts(taint) for t in pod.tolerations)
                for taint in node.taints
            )
            for node in nodes
        ],
        reverse=True,
    )


def _node_affinity(pod: PodView, nodes: Sequence[NodeView], _world: ClusterView) -> Scores:
    terms = ((pod.raw["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        _PREFERRED
    ) or ()
    if not terms:
        return [0.0] * len(nodes)
    read = [
        (
            term["weight"],
            read_expressions(term["preference"].get("matchExpressions")),
            read_expressions(term["preference"].get("matchFields")),
        )
        for term in terms
    ]
    return _share(
        [
            sum(
                weight
                for weight, labels, fields in read
                if (labels or fields)
                and _all(labels, node.labels)
                and _all(fields, {"metadata.name": node.name})
            )
            for node in nodes
        ]
    )


def _all(expressions: Iterable[Expression], labels: Mapping[str, str]) -> bool:
    return all(each.holds(labels) for each in expressions)


def _share(counts: Sequence[float], *, reverse: bool = False) -> Scores:
    """Scale counts to 0..100 of the largest."""
    most = max(counts, default=0)
    if not most:
        return [_BEST if reverse else 0.0] * len(counts)
    scores = [float(int(_BEST * count / most)) for count in counts]
    return [_BEST - score for score in scores] if reverse else scores


# -- between pods


def _weighed(pod: PodView, kind: str) -> list[tuple[int, Json]]:
    """Return preferred terms of a pod with their weights, negative for anti-affinity."""
    rules = (pod.raw["spec"].get("affinity") or {}).get(kind) or {}
    sign = 1 if kind == "podAffinity" else -1
    return [
        (sign * each["weight"], each["podAffinityTerm"]) for each in rules.get(_PREFERRED) or ()
    ]


def _means(term: Json, owner: PodView, other: PodView, world: ClusterView) -> bool:
    named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
    inside = other.namespace in (named or (() if chosen is not None else (owner.namespace,)))
    if not inside and chosen is not None:
        inside = selects(read_selector(chosen), world.namespace_labels(other.namespace))
    return inside and selects(read_selector(term.get("labelSelector")), other.labels)


def _pod_affinity(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Scores:
    """Score preferred terms of the pod and of running pods, and required
    affinity of running pods."""
    mine = [*_weighed(pod, "podAffinity"), *_weighed(pod, "podAntiAffinity")]
    weights: dict[tuple[str, str], int] = {}

    def add(node: NodeView, term: Json, weight: int) -> None:
        key = term.get("topologyKey", "")
        if key in node.labels:
            weights[key, node.labels[key]] = weights.get((key, node.labels[key]), 0) + weight

    for node, other in world.placed():
        for weight, term in mine:
            if _means(term, pod, other, world):
                add(node, term, weight)
        if "affinity" not in other.raw["spec"]:
            continue
        theirs = [*_weighed(other, "podAffinity"), *_weighed(other, "podAntiAffinity")]
        hard = (other.raw["spec"]["affinity"].get("podAffinity") or {}).get(_REQUIRED) or ()
        for weight, term in (*theirs, *((_HARD_AFFINITY, term) for term in hard)):
            if _means(term, other, pod, world):
                add(node, term, weight)
    raw = [
        sum(weight for (key, value), weight in weights.items() if node.labels.get(key) == value)
        for node in nodes
    ]
    low, high = min(raw, default=0), max(raw, default=0)
    return [float(int(_BEST * (each - low) / (high - low))) if high > low else 0.0 for each in raw]


def _owner(pod: PodView) -> tuple[str, str] | None:
    return next(
        ((each["kind"], each["name"]) for each in pod.raw["metadata"].get("ownerReferences") or ()),
        None,
    )


def _spread(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Scores:
    """Score ScheduleAnyway constraints. A pod without any constraint is spread over
    hosts and zones by its owner."""
    given = pod.raw["spec"].get("topologySpreadConstraints") or ()
    soft = [
        (each["topologyKey"], each.get("maxSkew") or 1, read_selector(each.get("labelSelector")))
        for each in given
        if each.get("whenUnsatisfiable") == "ScheduleAnyway"
    ]
    owner = _owner(pod)
    if not soft and (given or owner is None):
        return [0.0] * len(nodes)
    constraints = soft or [(key, skew, None) for key, skew in _BY_DEFAULT]
    able = [not given or all(key in node.labels for key, _, _ in constraints) for node in nodes]
    raw = [0.0] * len(nodes)
    for key, skew, selector in constraints:
        domains = {
            node.labels[key]
            for node, can in zip(nodes, able, strict=True)
            if can and key in node.labels
        }
        size = len(nodes) if key == _HOST else len(domains)
        counts = dict.fromkeys(domains, 0)
        for node, other in world.placed():
            here = node.labels.get(key, "")
            if (
                here in counts
                and other.namespace == pod.namespace
                and not other.terminating
                and (selects(selector, other.labels) if given else _owner(other) == owner)
                and (not given or matches_node_affinity(pod, node))
            ):
                counts[here] += 1
        for at, node in enumerate(nodes):
            if able[at] and key in node.labels:
                raw[at] += counts[node.labels[key]] * math.log(size + 2) + skew - 1
    rounded = [float(round(each)) for each, can in zip(raw, able, strict=True) if can]
    if not rounded:
        return [0.0] * len(nodes)
    low, high = min(rounded), max(rounded)
    return [
        0.0
        if not can
        else _BEST
        if not high
        else float(int(_BEST * (high + low - round(each)) / high))
        for each, can in zip(raw, able, strict=True)
    ]


#: Plugins with kube-scheduler's default weights.
PLUGINS = (
    (_taints, 3),
    (_node_affinity, 2),
    (_spread, 2),
    (_pod_affinity, 2),
    (_least_allocated, 1),
    (_balanced, 1),
)


def scores(pod: PodView, nodes: Sequence[NodeView], world: ClusterView) -> Scores:
    """Return the weighted sum per node. nodes: all nodes that the pod fits."""
    total = [0.0] * len(nodes)
    for plugin, weight in PLUGINS:
        total = [
            have + weight * score
            for have, score in zip(total, plugin(pod, nodes, world), strict=True)
        ]
    return total


def best(
    pod: PodView, nodes: Sequence[NodeView], world: ClusterView, draw: random.Random
) -> NodeView:
    if len(nodes) == 1:
        return nodes[0]
    found = scores(pod, nodes, world)
    most = max(found)
    return draw.choice([node for node, score in zip(nodes, found, strict=True) if score == most])
