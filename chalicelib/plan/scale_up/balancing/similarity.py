"""Which node groups are alike (scale-up.md §9): their templates, compared as upstream does, ratios and labels included.

Taints are not compared: that the sample pods fit covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.model.pod import PodClass
from chalicelib.model.policy import Options
from chalicelib.model.resources import MEMORY
from chalicelib.plan.scale_up.limits import may_grow
from chalicelib.plan.state.cluster_state import NodeGroupState

# They differ between groups that are alike in all that matters: names, zones, and marks of nobody's interest.
_GENERIC = (
    "kubernetes.io/hostname",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "beta.kubernetes.io/fluentd-ds-ready",
    "kops.k8s.io/instancegroup",
)
# The clouds' own words for the same: the zone, the group, the machine, and what a rollout changes. All of them hold for
# every provider, because Cluster API's groups may run on any cloud.
_OF_CLOUDS = (
    "alibabacloud.com/ecs-instance-id",
    "alibabacloud.com/nodepool-id",
    "node.alibabacloud.com/nodepool-id",
    "alpha.eksctl.io/instance-id",
    "alpha.eksctl.io/nodegroup-name",
    "eks.amazonaws.com/nodegroup",
    "eks.amazonaws.com/sourceLaunchTemplateId",
    "eks.amazonaws.com/sourceLaunchTemplateVersion",
    "k8s.amazonaws.com/eniConfig",
    "lifecycle",
    "topology.k8s.aws/zone-id",
    "agentpool",
    "kubernetes.azure.com/agentpool",
    "aksEngineVersion",
    "creationSource",
    "poolName",
    "resourceNameSuffix",
    "kubernetes.azure.com/node-image-version",
    "kubernetes.azure.com/consolidated-additional-properties",
    "node.exoscale.net/nodepool-id",
    "node.gardener.cloud/machine-name",
    "worker.gardener.cloud/kubernetes-version",
    "topology.gke.io/zone",
    "csi.hetzner.cloud/location",
    "cce.cloud.com/cce-nodepool",
    "kubernetes.io/availablezone",
    "node.kubernetes.io/subnetid",
    "ibm-cloud.kubernetes.io/worker-id",
    "vpc-block-csi-driver-labels",
    "ibm-cloud.kubernetes.io/vpc-instance-id",
    "node.cluster.x-k8s.io/esxi-host",
)
IGNORED_LABELS = frozenset(_GENERIC + _OF_CLOUDS)

Takes = Callable[[NodeGroupState], bool]


class _Profile(msgspec.Struct, frozen=True):
    """What of a template is compared. free: allocatable less what its own pods ask."""

    labels: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    free: Mapping[str, int]


class Likeness:
    """Compares the groups of one pass; keep one for the pass, it works every template out only once."""

    def __init__(self, classes: Sequence[PodClass], options: Options) -> None:
        self._classes = classes
        self._options = options
        self._ignored = IGNORED_LABELS.union(options.balancing_ignore_label)
        self._profiles: dict[str, _Profile] = {}

    def similar(
        self, best: NodeGroupState, others: Sequence[NodeGroupState], takes: Takes | None = None
    ) -> list[NodeGroupState]:
        """The groups like `best` that may be grown beside it, by id. takes: whether the pods that best was chosen for
        fit an empty node of a group; where it is not given, they do."""
        if best.template is None or best.group.options.zero_or_max:
            return []
        mine = self._profile(best)
        able = (
            facts for facts in others if facts.id != best.id and may_grow(facts) and not facts.group.options.zero_or_max
        )
        alike = (facts for facts in able if self._alike(mine, self._profile(facts)))
        return sorted((facts for facts in alike if takes is None or takes(facts)), key=lambda facts: facts.id)

    def _profile(self, facts: NodeGroupState) -> _Profile:
        known = self._profiles.get(facts.id)
        if known is None:
            assert facts.template is not None
            node = facts.template.node
            free = dict(node.allocatable)
            for cls in facts.template.daemons:
                for name, amount in self._classes[cls].requests.items():
                    free[name] = free.get(name, 0) - amount
            labels = {
                key: value for key, value in node.labels.items() if key not in self._ignored and not _of_csi_driver(key)
            }
            if self._options.balancing_label:
                labels = {key: node.labels[key] for key in self._options.balancing_label if key in node.labels}
            known = self._profiles[facts.id] = _Profile(
                labels, node.capacity or node.allocatable, node.allocatable, free
            )
        return known

    def _alike(self, left: _Profile, right: _Profile) -> bool:
        options = self._options
        if options.balancing_label:  # these labels alone decide, and a group without one of them is like no other
            return len(left.labels) == len(set(options.balancing_label)) and left.labels == right.labels
        return (
            left.labels == right.labels
            and left.capacity.keys() == right.capacity.keys()
            and all(
                _near(amount, right.capacity[name], options.memory_difference_ratio if name == MEMORY else 0.0)
                for name, amount in left.capacity.items()
            )
            and _all_near(left.allocatable, right.allocatable, options.max_allocatable_difference_ratio)
            and _all_near(left.free, right.free, options.max_free_difference_ratio)
        )


def similar_groups(
    best: NodeGroupState,
    others: Sequence[NodeGroupState],
    classes: Sequence[PodClass],
    options: Options,
    takes: Takes | None = None,
) -> list[NodeGroupState]:
    """`Likeness.similar` for a single question."""
    return Likeness(classes, options).similar(best, others, takes)


def _of_csi_driver(key: str) -> bool:
    """Whether a label is `topology.<CSI driver>/…`: where the node reaches volumes of a driver, whose name has a part
    `csi` by convention. Pods that need such a place are asked about each group by themselves (`takes`)."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and domain.startswith("topology.") and "csi" in domain.split(".")


def _all_near(left: Mapping[str, int], right: Mapping[str, int], ratio: float) -> bool:
    return left.keys() == right.keys() and all(_near(amount, right[name], ratio) for name, amount in left.items())


def _near(left: int, right: int, ratio: float) -> bool:
    """The difference is at most this share of the larger (upstream's help text says: of the smaller; it is not)."""
    larger, smaller = max(left, right), min(left, right)
    return larger - smaller <= ratio * abs(larger)
