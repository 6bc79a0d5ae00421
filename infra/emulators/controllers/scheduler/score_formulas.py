"""Score formulas of kube-scheduler's default profile, its weights, rounding, ties and sampling.

Every formula scores all sampled nodes of one decision at once, in whole numbers from 0 to 100, and
rounds where the scheduler does. It reads counts and amounts only, so that the emulated scheduler
and the referee of the benchmarks use the same formulas. "Most" and "least" are of the sampled
nodes, not of the cluster.

Sources: `pkg/scheduler` of https://github.com/kubernetes/kubernetes (release 1.36), the plugins in
`framework/plugins`, the weights in `apis/config/v1/default_plugins.go`, and
https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins. DynamicResources is
left out: it scores the same for all nodes unless a pod claims devices.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST = 100
"""Best score of a plugin before its weight (MaxNodeScore)."""
TAINTS, NODES, SPREAD, PODS = (
    "TaintToleration",
    "NodeAffinity",
    "PodTopologySpread",
    "InterPodAffinity",
)
FIT, BALANCE, IMAGES = "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"
WEIGHTS = {TAINTS: 3, NODES: 2, SPREAD: 2, PODS: 2, FIT: 1, BALANCE: 1, IMAGES: 1}

UNASKED = {"cpu": 100, "memory": 200 << 20}
"""Millicores and bytes that a container counts as in `score_least_allocated` if it does not
request the resource (`util/pod_resources.go`)."""
HOST_LABEL = "kubernetes.io/hostname"
DEFAULT_SPREAD = ((HOST_LABEL, 3), ("topology.kubernetes.io/zone", 5))
"""Topology key and maxSkew of the constraints of a pod without any
(https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#internal-default-constraints)."""
OWNERS_WITH_SELECTOR = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})
"""Kinds of controllers whose pods the default constraints spread
(`framework/plugins/helper/spread.go`)."""
HARD_AFFINITY_WEIGHT = 1
"""Weight of a running pod's required affinity towards the new pod (hardPodAffinityWeight)."""
IMAGE_BYTES = 23 << 20, 1000 << 20
"""Bytes of images that score 0, and bytes for each container that score 100."""

FEW_NODES = 100
"""The scheduler scores at least as many nodes (minFeasibleNodesToFind)."""


# -- plugins


def _shares_of_most(counts: Ints) -> Ints:
    """Scale counts to 0..100 of the largest, rounded down (`helper/normalize_score.go`)."""
    most = int(counts.max(initial=0))
    return MOST * counts // most if most else np.zeros_like(counts)


def score_taints(untolerated: Ints) -> Ints:
    """TaintToleration. untolerated: PreferNoSchedule taints of each node without a toleration.

    The share is rounded before it is subtracted: with at most 3 taints, nodes with 0, 1, 2 and 3
    score 100, 67, 34 and 0.
    """
    return MOST - _shares_of_most(untolerated)


def score_node_affinity(weights: Ints) -> Ints:
    """NodeAffinity. weights: sum of the weights of the preferred terms that each node matches."""
    return _shares_of_most(weights)


def score_least_allocated(requested: Ints, allocatable: Ints) -> Ints:
    """NodeResourcesFit with LeastAllocated: the mean free share, the mean rounded down as well.

    requested: millicores and bytes of all pods with the new one, (nodes, 2), containers without a
    request counted as `UNASKED`; allocatable: likewise. A resource of which a node has none is not
    counted there; one that is exceeded scores 0.
    """
    free = np.maximum(allocatable - requested, 0)
    shares: Ints = free * MOST // np.maximum(allocatable, 1)
    offered = np.maximum((allocatable > 0).sum(axis=1), 1)
    scores: Ints = shares.sum(axis=1) // offered
    return scores


def _balance(requested: Ints, allocatable: Ints) -> Ints:
    """Return how near the shares of cpu and memory are to each other, cut off to 0..100."""
    shares = np.minimum(requested / np.maximum(allocatable, 1), 1.0)
    both = (allocatable > 0).all(axis=1)
    deviation: Floats = np.where(both, np.abs((shares[:, 0] - shares[:, 1]) / 2), 0.0)
    return ((1.0 - deviation) * MOST).astype(np.int64)


def score_balanced_allocation(before: Ints, pod: Ints, allocatable: Ints) -> Ints:
    """NodeResourcesBalancedAllocation of 1.36 and later: the change of a node's balance by the pod.

    before: requested millicores and bytes without the new pod, (nodes, 2), true requests; pod: of
    the new pod, (2,). Servers up to 1.35 score the balance with the pod itself, without the
    comparison: other numbers on nearly every node, and often another choice. A pod that requests
    neither resource is not scored.
    """
    change = _balance(before + pod, allocatable) - _balance(before, allocatable)
    # Go's division cuts off towards zero, but the dividend is never negative here.
    return MOST // 2 + (MOST // 2 + change) // 2


class SpreadCounts(NamedTuple):
    """One soft constraint. pods: matching pods in the domain of each node, -1 for a node without
    the label; size: number of domains; max_skew: as in the constraint."""

    pods: Ints
    size: int
    max_skew: int


def count_by_domain(
    domains: Ints, pods: Ints, scored: Ints, able: Bools | None = None
) -> tuple[Ints, int]:
    """Count matching pods per domain of a key other than the hostname.

    domains: of each node of the cluster, -1 without the label; pods: matching pods on each of these
    nodes, 0 where the constraint does not count the node; scored: positions of the sampled nodes;
    able: those of them that are not ignored, None for all. Returns the pods in the domain of
    each sampled node (-1 without the label), and how many domains the able ones are in; those
    without the label count as one.
    """
    own = domains[scored]
    # Domain -1 has the first place. The sums are exact: floats hold whole numbers up to 2 ** 53.
    sums = np.bincount(domains + 1, weights=pods).astype(np.int64)
    size = np.count_nonzero(np.bincount((own if able is None else own[able]) + 1))
    return np.where(own < 0, -1, sums[own + 1]), int(size)


def score_spread(constraints: Iterable[SpreadCounts], able: Bools | None = None) -> Ints:
    """PodTopologySpread: fewer matching pods in a node's domains score higher
    (`podtopologyspread/scoring.go`).

    A domain's pods weigh ln(number of domains + 2); the sum is rounded half up. able: nodes that
    have all labels of the pod's own constraints, None for all; the others score 0.
    """
    listed = tuple(constraints)
    total: Floats = np.zeros(len(listed[0].pods), dtype=np.float64)
    for constraint in listed:
        cost = constraint.pods * math.log(constraint.size + 2) + float(constraint.max_skew - 1)
        total += np.where(constraint.pods < 0, 0.0, cost)
    whole: Floats = np.floor(total)
    raw: Ints = (whole + (total - whole >= 0.5)).astype(np.int64)
    counted = raw if able is None else raw[able]
    if not len(counted):
        return np.zeros_like(raw)
    least, most = int(counted.min()), int(counted.max())
    scores: Ints = MOST * (most + least - raw) // most if most else np.full_like(raw, MOST)
    return scores if able is None else np.where(able, scores, 0)


def score_pod_affinity(weights: Ints) -> Ints:
    """InterPodAffinity. weights: of each node the sum over its domains, negative for
    anti-affinity. All 0 where they are equal."""
    least, most = int(weights.min()), int(weights.max())
    if most == least:
        return np.zeros_like(weights)
    # In this order: 100 * x / y rounds differently.
    scores: Ints = (float(MOST) * ((weights - least) / float(most - least))).astype(np.int64)
    return scores


def scale_image_bytes(size: int, holders: int, nodes: int) -> int:
    """Return what an image of this size counts as where it is present. holders: nodes of the
    cluster that have it, of all nodes: an image that few have shall not draw all pods there."""
    return int(size * (holders / nodes))


def score_images(present: Ints, containers: int) -> Ints:
    """ImageLocality. present: scaled bytes of the pod's images on each node; containers: of the
    pod, init containers too."""
    low, high = IMAGE_BYTES[0], IMAGE_BYTES[1] * containers
    return MOST * (np.clip(present, low, high) - low) // (high - low)


def apply_weights(scores: Mapping[str, Ints]) -> dict[str, Ints]:
    """Multiply the scores of plugins by their weights."""
    return {name: WEIGHTS[name] * amounts for name, amounts in scores.items()}


# -- choice


def choose(totals: Ints) -> int:
    """Return the position of the winner. totals: sums of the weighted scores, in the order in which
    the nodes were scored.

    Equals are not drawn evenly: the winner is the root of the heap that `container/heap` of Go
    builds from the list (`selectHost` in `schedule_one.go`). A node stays above equal children, and
    a left child is preferred to an equal right one, so it is the first of the best in preorder
    of the binary tree: the one whose path, the number's binary digits after the first, comes first
    as text. Older servers draw one of the best evenly.
    """
    best: list[int] = np.flatnonzero(totals == totals.max()).tolist()
    return best[0] if len(best) == 1 else min(best, key=lambda at: f"{at + 1:b}"[1:])


def count_nodes_to_find(nodes: int, percentage: int = 0) -> int:
    """Return after how many nodes that fit the scheduler stops to look for more
    (https://kubernetes.io/docs/reference/scheduling/config/#percentage-of-nodes-to-score).

    nodes: all nodes of the cluster; percentage: percentageOfNodesToScore, 0 for the default, which
    falls from 50 by 1 for every 125 nodes, down to 5.
    """
    if nodes < FEW_NODES:
        return nodes
    percent = percentage or max(5, 50 - nodes // 125)
    return max(FEW_NODES, nodes * percent // 100)


def sort_by_tree(zones: Sequence[Hashable]) -> list[int]:
    """Return the positions of nodes in the order in which the scheduler looks at them: the zones
    in turn (`backend/cache/node_tree.go`). zones: of each node, in the order in which the
    nodes were added."""
    of_zone: dict[Hashable, list[int]] = {}
    turns = []
    for at, zone in enumerate(zones):
        members = of_zone.setdefault(zone, [])
        turns.append(len(members))
        members.append(at)
    rank = {zone: number for number, zone in enumerate(of_zone)}
    return sorted(range(len(zones)), key=lambda at: (turns[at], rank[zones[at]]))


class NodeSampling:
    """The part of the cluster that one scheduler looks at, decision by decision.

    It starts where the decision before ended and stops when it has enough nodes
    (`findNodesThatPassFilters` in `schedule_one.go`). The real one has 16 workers that race, so it
    may take nodes from somewhat further on, and its order within a sample is by chance. Not here:
    a pod that may only run on named nodes (`metadata.name`) moves the start by these nodes only.

    percentage: percentageOfNodesToScore, 0 for the default. seed: draws the order within a sample,
    on which ties depend; None: the order in which the nodes are looked at. start: position in the
    tree order at which the next decision starts.
    """

    def __init__(self, percentage: int = 0, seed: int | None = None) -> None:
        self._percentage = percentage
        self._draw = None if seed is None else np.random.default_rng(seed)
        self.start = 0

    def take(self, fits: Bools) -> Ints:
        """Return the positions of the nodes that are scored, in the order scored. fits: which
        nodes take the pod, in tree order."""
        count = len(fits)
        if not count:
            return np.zeros(0, dtype=np.int64)
        start = self.start % count
        fitting = np.flatnonzero(fits)
        later = np.searchsorted(fitting, start)
        in_turn = np.concatenate([fitting[later:], fitting[:later]])
        wanted = count_nodes_to_find(count, self._percentage)
        # It notices that it has enough when it comes to one more.
        evaluated = int(in_turn[wanted] - start) % count if len(in_turn) > wanted else count
        self.start = (start + evaluated) % count
        sample = in_turn[:wanted]
        return sample if self._draw is None else self._draw.permutation(sample)
