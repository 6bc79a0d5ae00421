"""Computes what CCE reserves on a node from its cores, memory and pods, by the vendor's rule since 2023.

A template that promised more than a node has would be bought repeatedly for a pod that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.model.resources import CPU, MEMORY, PODS
from chalicelib.providers.huaweicloud.models import Flavor

_MIB = 2**20
_EVICTION = 100  # MiB
_SYSTEM, _SYSTEM_PER_GIB = 400, 25  # MiB
_KUBE, _KUBE_PER_POD = 500, {"docker": 20}  # MiB
_KUBE_PER_POD_ELSE = 5
_CORES = ((1, 60.0), (1, 10.0), (2, 5.0))  # cores, millicores reserved of each
_CORES_ELSE = 2.5
_PODS = ((64, 110), (32, 80), (16, 60), (8, 40))  # GiB, pods; largest first
_PODS_ELSE = 20
_MOST_PODS = 1000


def max_pods(flavor: Flavor, extend: Mapping[str, Any]) -> int:
    """Return the maximum number of pods of a node: extendParam.maxPods, otherwise by its memory."""
    own = _number(extend, "maxPods")
    if own is not None and 0 < own <= _MOST_PODS:
        return own
    gib = flavor.memory_mib / 1024
    return next((pods for least, pods in _PODS if gib >= least), _PODS_ELSE)


def allocatable(flavor: Flavor, extend: Mapping[str, Any], runtime: str) -> dict[str, int]:
    """Return cpu in millicores, memory in bytes, and pods.

    extend: the pool's extendParam, whose reservations take precedence (in millicores and MiB). If only one of the two
    parts of a resource is given, the other has its default."""
    pods = max_pods(flavor, extend)
    cpu = 1000 * flavor.vcpus - _cpu(flavor, extend)
    memory = flavor.memory_mib - _memory(flavor, extend, pods, runtime) - _EVICTION
    return {CPU: max(0, cpu), MEMORY: max(0, memory) * _MIB, PODS: pods}


def _cpu(flavor: Flavor, extend: Mapping[str, Any]) -> int:
    """Return the reserved cpu. The rule covers system and Kubernetes together, so with one part given the larger sum
    counts."""
    said = [_number(extend, name) for name in ("kubeReservedCpu", "systemReservedCpu")]
    given = sum(each for each in said if each is not None)
    if None not in said:
        return given
    left, kept = flavor.vcpus, 0.0
    for cores, each in _CORES:
        kept += min(left, cores) * each
        left = max(0, left - cores)
    return max(given, -int(-(kept + left * _CORES_ELSE) // 1))


def _memory(flavor: Flavor, extend: Mapping[str, Any], pods: int, runtime: str) -> int:
    system, kube = _number(extend, "systemReservedMem"), _number(extend, "kubeReservedMem")
    if system is None:
        system = _SYSTEM + -(-_SYSTEM_PER_GIB * flavor.memory_mib // 1024)
    if kube is None:
        kube = _KUBE + _KUBE_PER_POD.get(runtime.lower(), _KUBE_PER_POD_ELSE) * pods
    return system + kube


def _number(extend: Mapping[str, Any], name: str) -> int | None:
    """Return an integer of extendParam, which may be text; None for anything else."""
    value = extend.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 8:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
