"""The node that a group would add: names of its labels, and a node made of a capacity.

Each vendor knows what its machines have. A label, taint or resource that a template has and new
nodes lack would be bought repeatedly for a pod that does not fit, so what Kubernetes would refuse
is left out by every vendor.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint

ARCH, OS, INSTANCE_TYPE = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
)
BETA_INSTANCE_TYPE = "beta.kubernetes.io/instance-type"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
BETA_REGION, BETA_ZONE = (
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
)
GPU = "nvidia.com/gpu"
USUAL_PODS = 110  # of a node, where the vendor says nothing: the kubelet's default


class GroupTemplate(msgspec.Struct, frozen=True):
    """node None: the group cannot be scaled up from zero, and problem is the reason. warnings: what
    the template lacks."""

    node: Node | None
    problem: str = ""
    warnings: tuple[str, ...] = ()


def template_name(group: str) -> str:
    """Return the name of the template node of a group."""
    return f"template-node-for-{group}"


def template_node(
    name: str,
    labels: Mapping[str, str],
    capacity: Mapping[str, int],
    reserve: Mapping[str, int],
    taints: tuple[Taint, ...] = (),
) -> Node:
    """Return the node of a template. labels: besides the host name. reserve: what the kubelet keeps
    of each resource, cpu in millicores and the rest in bytes."""
    return Node(
        name=name,
        labels={**labels, HOSTNAME_LABEL: name},
        capacity=dict(capacity),
        allocatable=without_reserve(capacity, reserve),
        taints=taints,
    )


def without_reserve(capacity: Mapping[str, int], reserve: Mapping[str, int]) -> dict[str, int]:
    """Return what is left for pods of a node's capacity."""
    return {
        resource: max(0, amount - reserve.get(resource, 0)) for resource, amount in capacity.items()
    }
