"""Builds the template of the node that a scale group would add, so that an
empty group can be scaled up.

The planner prefers a real node of the group. Labels that a pool does not choose (subnet, operating
system) are not promised, and neither is a disk, because CCE does not document how much of it pods
can use. What CCE reserves on a node is computed from its cores, memory and pods, by the vendor's
rule since 2023: a template that promised more than a node has would be bought repeatedly for a pod
that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.model.label_syntax import TAINT_EFFECTS
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.resources import CPU, MEMORY, PODS
from chalicelib.providers.huaweicloud.models import Flavor, NodePool, ScaleGroup, has_servers
from chalicelib.providers.huaweicloud.provider_ids import group_id, is_zone
from chalicelib.providers.kit.node_template import (
    ARCH,
    BETA_REGION,
    BETA_ZONE,
    GPU,
    INSTANCE_TYPE,
    OS,
    REGION,
    ZONE,
    GroupTemplate,
    template_name,
)

UNPROMISED = ("node.kubernetes.io/subnetid", "os.architecture", "os.name", "os.version")
"""Labels that are left out of node templates, so that pods cannot select new nodes by them."""
POOL_LABEL = "cce.cloud.com/cce-nodepool"
SPOT_LABEL = "cce.io/is-spot"
GPU_LABEL = "accelerator"
_ENGINE, _BARE = "node.kubernetes.io/container-engine", "node.kubernetes.io/baremetal"
_PASSING = "node.cloudprovider.kubernetes.io/uninitialized"
_MIB = 2**20


def make_template(
    pool: NodePool,
    group: ScaleGroup,
    flavor: Flavor | None,
    region: str,
    reserve: Mapping[str, int],
) -> GroupTemplate:
    """Return the template of a group. flavor: its flavour as ECS describes it, None if ECS has none
    of that name. reserve: the policy's reservation on a node, which replaces the vendor's rule: cpu
    in millicores, the rest in bytes. Raises nothing: what is missing is the problem of the
    template."""
    if flavor is None:
        unknown = f"ECS knows no flavour {group.flavor} in {group.az or region}"
        return GroupTemplate(None, unknown if group.flavor else "it says no flavour")
    if flavor.vcpus <= 0 or flavor.memory_mib <= 0:
        return GroupTemplate(
            None, f"flavour {flavor.name} is described without its cores or memory"
        )
    own = pool.template
    devices = {GPU: flavor.gpu[1]} if flavor.gpu is not None else {}
    devices |= {  # Ascend processors, by the resource name that kubelets report
        f"huawei.com/{name.lower()}": count
        for name, count in flavor.accelerators
        if name.lower().startswith("ascend")
    }
    devices = {name: count for name, count in devices.items() if count > 0}
    capacity = {
        CPU: 1000 * flavor.vcpus,
        MEMORY: flavor.memory_mib * _MIB,
        PODS: max_pods(flavor, own.extend),
        **devices,
    }
    remaining = {**allocatable(flavor, own.extend, own.runtime), **devices}
    remaining |= {
        name: max(0, capacity[name] - amount)
        for name, amount in reserve.items()
        if name in capacity
    }
    host = template_name(group_id(pool.id, group.name).replace("/", "-"))
    taints = tuple(
        Taint(taint.key, taint.effect, taint.value)
        for taint in own.taints
        if taint.key and taint.key != _PASSING and taint.effect in TAINT_EFFECTS
    )
    labels = {key: value for key, value in own.k8s_tags.items() if key not in UNPROMISED}
    labels |= _labels(pool, group, flavor, region) | {HOSTNAME_LABEL: host}
    return GroupTemplate(
        Node(name=host, labels=labels, capacity=capacity, taints=taints, allocatable=remaining)
    )


def is_spot_node(labels: Mapping[str, str]) -> bool:
    """Whether CCE has labelled a node as a spot instance."""
    return labels.get(SPOT_LABEL, "").strip().lower() == "true"


def _labels(pool: NodePool, group: ScaleGroup, flavor: Flavor, region: str) -> dict[str, str]:
    zone = group.az if is_zone(group.az) else ""
    labels = {
        INSTANCE_TYPE: group.flavor,
        REGION: region,
        BETA_REGION: region,
        ZONE: zone,
        BETA_ZONE: zone,
        ARCH: flavor.arch,
        OS: "linux",
        _ENGINE: pool.template.runtime.lower(),
        _BARE: "false" if has_servers(pool) else "true",
        SPOT_LABEL: "true" if pool.template.spot else "",
        POOL_LABEL: pool.name,
        GPU_LABEL: flavor.gpu[0] if flavor.gpu is not None else "",
    }
    return {key: value for key, value in labels.items() if value}


# -- reservations

_EVICTION = 100  # MiB
_SYSTEM, _SYSTEM_PER_GIB = 400, 25  # MiB
_KUBE, _KUBE_PER_POD, _KUBE_PER_DOCKER_POD = 500, 5, 20  # MiB
_CORES = ((1, 60.0), (1, 10.0), (2, 5.0))  # cores, millicores reserved of each
_FURTHER_CORES = 2.5
_PODS = ((64, 110), (32, 80), (16, 60), (8, 40))  # GiB, pods; largest first
_FEWEST_PODS, _MOST_PODS = 20, 1000


def max_pods(flavor: Flavor, extend: Mapping[str, Any]) -> int:
    """Return the maximum number of pods of a node: extendParam.maxPods, otherwise by its memory."""
    own = _number(extend, "maxPods")
    if own is not None and 0 < own <= _MOST_PODS:
        return own
    return next((pods for gib, pods in _PODS if flavor.memory_mib / 1024 >= gib), _FEWEST_PODS)


def allocatable(flavor: Flavor, extend: Mapping[str, Any], runtime: str) -> dict[str, int]:
    """Return cpu in millicores, memory in bytes, and pods. extend: the pool's extendParam, whose
    reservations take precedence (in millicores and MiB). If only one of the two parts of a resource
    is given, the other has its default."""
    pods = max_pods(flavor, extend)
    cpu = 1000 * flavor.vcpus - _reserved_cpu(flavor, extend)
    system, kube = _number(extend, "systemReservedMem"), _number(extend, "kubeReservedMem")
    if system is None:
        system = _SYSTEM + -(-_SYSTEM_PER_GIB * flavor.memory_mib // 1024)
    if kube is None:
        kube = (
            _KUBE + (_KUBE_PER_DOCKER_POD if runtime.lower() == "docker" else _KUBE_PER_POD) * pods
        )
    memory = flavor.memory_mib - system - kube - _EVICTION
    return {CPU: max(0, cpu), MEMORY: max(0, memory) * _MIB, PODS: pods}


def _reserved_cpu(flavor: Flavor, extend: Mapping[str, Any]) -> int:
    """Return the reserved cpu. The rule covers system and Kubernetes together, so with one part
    given the larger sum counts."""
    parts = [_number(extend, name) for name in ("kubeReservedCpu", "systemReservedCpu")]
    own = sum(part for part in parts if part is not None)
    if None not in parts:
        return own
    further, by_rule = flavor.vcpus, 0.0
    for cores, millicores in _CORES:
        by_rule += min(further, cores) * millicores
        further = max(0, further - cores)
    return max(own, -int(-(by_rule + further * _FURTHER_CORES) // 1))


def _number(extend: Mapping[str, Any], name: str) -> int | None:
    """Return an integer of extendParam, which may be text; None for anything else."""
    value = extend.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 8:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
