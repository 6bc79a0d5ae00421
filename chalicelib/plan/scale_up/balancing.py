"""Distributes new nodes over similar node groups.

Groups are compared by their templates as Cluster Autoscaler does, ratios and labels included.
Taints are not compared: the check that the sample pods fit covers them; the caller makes it.
Zero-or-max groups are never balanced.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.pod import PodClass
from chalicelib.model.resources import MEMORY
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter, may_grow
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.csi_topology import is_csi_topology
from chalicelib.plan.state.local_storage import STORAGE_OF
from chalicelib.plan.state.node_labels import own_keys
from chalicelib.plan.state.zones import SEVERAL_ZONES
from chalicelib.policy.settings.cluster_options import Options


def free_capacity(sizes: Iterable[tuple[int, int]]) -> int:
    """Return how many nodes groups of these (target, max) can still take together. A group over its
    maximum does not reduce the room of the others. 0 means that no node may be added (Cluster
    Autoscaler returns -1 because its 0 means "no limit")."""
    return sum(max(0, most - target) for target, most in sizes)


def split(total: int, targets: Sequence[tuple[int, int]]) -> list[int]:
    """Return new targets for groups of these (target, max), in the same order, when they
    get `total` nodes together.

    The smallest group that is not full gets the next node; among equals, the first one. Nodes that
    no group can take are dropped.
    """
    new_targets = [target for target, _ in targets]
    open_groups = [(target, at) for at, (target, most) in enumerate(targets) if target < most]
    heapq.heapify(open_groups)
    for _ in range(min(total, free_capacity(targets))):
        smallest, at = heapq.heappop(open_groups)
        target = smallest + 1
        new_targets[at] = target
        _, most = targets[at]
        if target < most:
            heapq.heappush(open_groups, (target, at))
    return new_targets


def balance(
    total: int,
    best_group: NodeGroupState,
    similar: Sequence[NodeGroupState],
    limiter: ResourceLimiter,
    grown: Mapping[str, int] | None = None,
) -> list[tuple[str, int]]:
    """Return group -> nodes when `total` nodes of the best group are spread over
    it and its similar groups.

    The cluster's limits first cap the total. Then they and the pool's maximum cap each share in
    turn, smallest group first. Nodes cut from a share are not given to other groups, and a group
    without room for a single node is left out from the start. A zero-or-max group is never
    balanced. grown: nodes that the pass already gave each group. The limiter is not changed: the
    caller spends the room.
    """
    assert best_group.template is not None
    spare = limiter.copy()
    room = limiter.room(best_group.template.node)
    if best_group.group.options.zero_or_max:
        return [(best_group.id, total)] if 0 < total <= room else []
    with_template = [
        (group, group.template.node)
        for group in (best_group, *similar)
        if group.template is not None
    ]
    with_room = [
        (group, node) for group, node in with_template if _room_for(group, node, spare) > 0
    ]
    before = grown or {}
    sizes = [group.target + before.get(group.id, 0) for group, _ in with_room]
    most = [group.group.max for group, _ in with_room]
    new_sizes = split(min(total, room), list(zip(sizes, most, strict=True)))
    smallest_first = sorted(range(len(sizes)), key=sizes.__getitem__)
    shares: list[tuple[str, int]] = []
    for at in smallest_first:
        group, node = with_room[at]
        share = min(new_sizes[at] - sizes[at], _room_for(group, node, spare))
        if share > 0:
            spare.take(node, share, group.group)
            shares.append((group.id, share))
    return shares


def _room_for(group: NodeGroupState, node: Node, limiter: ResourceLimiter) -> int:
    """Return for how many such nodes of the group the cluster and the pool have room."""
    return min(limiter.room(node), limiter.pool_room(group.group))


# Labels that differ between similar groups: host names, zones, and labels
# without effect on scheduling.
_GENERIC = (
    "kubernetes.io/hostname", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region", "beta.kubernetes.io/fluentd-ds-ready",
    "kops.k8s.io/instancegroup",
)  # fmt: skip
# The clouds' own labels for the zone, the group, the instance and what a rollout changes. All of
# them are ignored for every provider because groups of Cluster API may run on any cloud.
_OF_CLOUDS = (
    "alibabacloud.com/ecs-instance-id", "alibabacloud.com/nodepool-id",
    "node.alibabacloud.com/nodepool-id", "alpha.eksctl.io/instance-id",
    "alpha.eksctl.io/nodegroup-name", "eks.amazonaws.com/nodegroup",
    "eks.amazonaws.com/sourceLaunchTemplateId", "eks.amazonaws.com/sourceLaunchTemplateVersion",
    "k8s.amazonaws.com/eniConfig", "lifecycle", "topology.k8s.aws/zone-id", "agentpool",
    "kubernetes.azure.com/agentpool", "aksEngineVersion", "creationSource", "poolName",
    "resourceNameSuffix", "kubernetes.azure.com/node-image-version",
    "kubernetes.azure.com/consolidated-additional-properties", "node.exoscale.net/nodepool-id",
    "node.gardener.cloud/machine-name", "worker.gardener.cloud/kubernetes-version",
    "topology.gke.io/zone", "csi.hetzner.cloud/location", "cce.cloud.com/cce-nodepool",
    "kubernetes.io/availablezone", "node.kubernetes.io/subnetid",
    "ibm-cloud.kubernetes.io/worker-id", "vpc-block-csi-driver-labels",
    "ibm-cloud.kubernetes.io/vpc-instance-id", "node.cluster.x-k8s.io/esxi-host",
)  # fmt: skip
IGNORED_LABELS = frozenset((SEVERAL_ZONES, STORAGE_OF, *_GENERIC, *_OF_CLOUDS))

Takes = Callable[[NodeGroupState], bool]


class _Profile(msgspec.Struct, frozen=True):
    """The compared parts of a template. free: allocatable less the requests of
    the template's own pods."""

    labels: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    free: Mapping[str, int]


class Likeness:
    """Compares the groups of one pass. Keep one instance per pass: it profiles
    every template only once."""

    def __init__(self, classes: Sequence[PodClass], options: Options) -> None:
        self._classes = classes
        self._options = options
        self._ignored = IGNORED_LABELS.union(options.balancing_ignore_label)
        self._profiles: dict[str, _Profile] = {}

    def similar(
        self,
        best_group: NodeGroupState,
        others: Sequence[NodeGroupState],
        takes: Takes | None = None,
    ) -> list[NodeGroupState]:
        """Return the groups similar to `best_group` that may grow together with it, by id. takes:
        tells whether the pods that `best_group` was chosen for fit an empty node of a group;
        without it, all groups are taken to fit."""
        if best_group.template is None or best_group.group.options.zero_or_max:
            return []
        profile = self._profile(best_group)
        similar: list[NodeGroupState] = []
        for group in others:
            if group.id == best_group.id or not may_grow(group):
                continue
            if group.group.options.zero_or_max:
                continue
            is_alike = self._are_alike(profile, self._profile(group))
            if is_alike and (takes is None or takes(group)):
                similar.append(group)
        return sorted(similar, key=lambda group: group.id)

    def _profile(self, group: NodeGroupState) -> _Profile:
        if group.id not in self._profiles:
            assert group.template is not None
            node = group.template.node
            free = dict(node.allocatable)
            for cls in group.template.daemons:
                for name, amount in self._classes[cls].requests.items():
                    free[name] = free.get(name, 0) - amount
            labels = self._compared_labels(node)
            capacity = node.capacity or node.allocatable
            self._profiles[group.id] = _Profile(labels, capacity, node.allocatable, free)
        return self._profiles[group.id]

    def _compared_labels(self, node: Node) -> dict[str, str]:
        labels = node.labels
        compared: Iterable[str] = self._options.balancing_label
        if not compared:
            # Pods that need a place of a CSI driver are checked for each group separately
            # (`takes`), and labels of one node differ between all nodes.
            ignored = self._ignored | own_keys(labels)
            compared = (key for key in labels if key not in ignored and not is_csi_topology(key))
        return {key: labels[key] for key in compared if key in labels}

    def _are_alike(self, profile: _Profile, other: _Profile) -> bool:
        options = self._options
        if profile.labels != other.labels:
            return False
        # only these labels are compared; a group without one of them is similar to no other group
        if options.balancing_label:
            return len(profile.labels) == len(set(options.balancing_label))
        if not _have_near_capacity(profile, other, options.memory_difference_ratio):
            return False
        ratio = options.max_allocatable_difference_ratio
        if not _all_near(profile.allocatable, other.allocatable, ratio):
            return False
        return _all_near(profile.free, other.free, options.max_free_difference_ratio)


def _have_near_capacity(profile: _Profile, other: _Profile, memory_ratio: float) -> bool:
    """Return whether the capacities are equal, but for a share of the memory."""
    if profile.capacity.keys() != other.capacity.keys():
        return False
    ratios = {MEMORY: memory_ratio}
    return all(
        _near(amount, other.capacity[name], ratios.get(name, 0.0))
        for name, amount in profile.capacity.items()
    )


def _all_near(left: Mapping[str, int], right: Mapping[str, int], ratio: float) -> bool:
    if left.keys() != right.keys():
        return False
    return all(_near(amount, right[name], ratio) for name, amount in left.items())


def _near(left: int, right: int, ratio: float) -> bool:
    """Return whether the difference is at most this share of the larger value. Cluster Autoscaler's
    help text says "of the smaller", but its code uses the larger."""
    larger, smaller = max(left, right), min(left, right)
    return larger - smaller <= ratio * abs(larger)
