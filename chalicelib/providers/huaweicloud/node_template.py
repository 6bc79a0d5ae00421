"""Builds the template of the node that a scale group would add, so that an empty group can be scaled up.

The planner prefers a real node of the group. Labels that a pool does not choose (subnet, operating system) are not
promised, and neither is a disk, because CCE does not document how much of it pods can use.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.resources import CPU, MEMORY, PODS
from chalicelib.providers.huaweicloud.allocatable import allocatable, max_pods
from chalicelib.providers.huaweicloud.models import Flavor, NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.provider_ids import group_id, is_zone

UNPROMISED = ("node.kubernetes.io/subnetid", "os.architecture", "os.name", "os.version")
"""Labels that are left out of node templates, so that pods cannot select new nodes by them."""
POOL_LABEL = "cce.cloud.com/cce-nodepool"
GPU, GPU_LABEL = "nvidia.com/gpu", "accelerator"
_TYPE, _ARCH, _OS = "node.kubernetes.io/instance-type", "kubernetes.io/arch", "kubernetes.io/os"
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_BETA_REGION, _BETA_ZONE = "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"
_ENGINE, _BARE = "node.kubernetes.io/container-engine", "node.kubernetes.io/baremetal"
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_PASSING = "node.cloudprovider.kubernetes.io/uninitialized"
_MIB = 2**20


class CceTemplate(msgspec.Struct, frozen=True):
    """node None: the group cannot be scaled up from zero, and problem is the reason."""

    node: Node | None
    problem: str = ""


def make_template(
    pool: NodePool,
    group: ScaleGroup,
    flavor: Flavor | None,
    region: str,
    reserve: Mapping[str, int],
) -> CceTemplate:
    """Return the template of a group.

    flavor: its flavour as ECS describes it, None if ECS has none of that name. reserve: the policy's reservation on a
    node, which replaces the vendor's rule."""
    if flavor is None:
        return CceTemplate(
            None,
            f"ECS knows no flavour {group.flavor} in {group.az or region}" if group.flavor else "it says no flavour",
        )
    if flavor.vcpus <= 0 or flavor.memory_mib <= 0:
        return CceTemplate(None, f"flavour {flavor.name} is described without its cores or memory")
    own = pool.template
    devices = _devices(flavor)
    capacity = {
        CPU: 1000 * flavor.vcpus,
        MEMORY: flavor.memory_mib * _MIB,
        PODS: max_pods(flavor, own.extend),
        **devices,
    }
    left = {**allocatable(flavor, own.extend, own.runtime), **devices}
    left |= {name: max(0, capacity[name] - amount) for name, amount in reserve.items() if name in capacity}
    host = f"template-node-for-{group_id(pool.id, group.name)}".replace("/", "-")
    taints = tuple(
        Taint(each.key, each.effect, each.value)
        for each in own.taints
        if each.key and each.key != _PASSING and each.effect in _EFFECTS
    )
    labels = {key: value for key, value in own.k8s_tags.items() if key not in UNPROMISED}
    labels |= _labels(pool, group, flavor, region) | {HOSTNAME_LABEL: host}
    return CceTemplate(Node(name=host, labels=labels, capacity=capacity, taints=taints, allocatable=left))


def _devices(flavor: Flavor) -> dict[str, int]:
    """Return GPUs and Ascend processors, by the resource name that kubelets report."""
    found = {GPU: flavor.gpu[1]} if flavor.gpu is not None else {}
    for name, count in flavor.accelerators:
        if name.lower().startswith("ascend"):
            found[f"huawei.com/{name.lower()}"] = count
    return {name: count for name, count in found.items() if count > 0}


def _labels(pool: NodePool, group: ScaleGroup, flavor: Flavor, region: str) -> dict[str, str]:
    zone = group.az if is_zone(group.az) else ""
    labels = {
        _TYPE: group.flavor,
        _REGION: region,
        _BETA_REGION: region,
        _ZONE: zone,
        _BETA_ZONE: zone,
        _ARCH: flavor.arch,
        _OS: "linux",
        _ENGINE: pool.template.runtime.lower(),
        _BARE: "false" if pool.type in {"", "vm"} else "true",
        POOL_LABEL: pool.name,
        GPU_LABEL: flavor.gpu[0] if flavor.gpu is not None else "",
    }
    return {key: value for key, value in labels.items() if value}
