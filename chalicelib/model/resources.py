"""Amounts of resources: whole numbers by name; cpu in millicores, memory and storage in
bytes, the rest in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"

# The extended resources that make a node a GPU node.
GPU_RESOURCES = (
    "nvidia.com/gpu",
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "amd.com/gpu",
    "microsoft.com/directx",
)
# Labels that announce a device before its driver works: those of the five providers, and of
# clouds. Exoscale has none.
ANNOUNCING_LABELS = (
    "cluster-api/accelerator",
    "aliyun.accelerator/nvidia_name",
    "cherryservers.com/gpu",
    "accelerator",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
)
# Labels whose value is the GPU type of a node. The last one is set by a driver that works,
# so it announces nothing.
GPU_LABELS = (*ANNOUNCING_LABELS, "nvidia.com/gpu.product")
# Parts of the names of other extended resources that are devices or shares of one, such as
# aliyun.com/gpu-mem, nvidia.com/mig-1g.5gb and huawei.com/ascend-310.
_DEVICES = ("gpu", "npu", "tpu", "mig-", "ascend", "neuron", "gaudi")

Amounts = Mapping[str, int]


@lru_cache(maxsize=256)
def is_device(name: str) -> bool:
    """Return whether a resource is an accelerator: a whole device or a share of one."""
    return "/" in name and (name in GPU_RESOURCES or any(word in name.lower() for word in _DEVICES))


def offers_device(amounts: Amounts) -> bool:
    """Return whether there is an accelerator of any kind among the amounts."""
    return any(amount > 0 and "/" in name and is_device(name) for name, amount in amounts.items())


def add(amounts: Amounts, other_amounts: Amounts) -> dict[str, int]:
    """Return left + right per resource; a missing name is 0."""
    total = dict(amounts)
    for name, amount in other_amounts.items():
        total[name] = total.get(name, 0) + amount
    return total


def largest(amounts: Amounts, other_amounts: Amounts) -> dict[str, int]:
    """Return the larger of the two per resource; a missing name is 0."""
    top = dict(amounts)
    for name, amount in other_amounts.items():
        if amount > top.get(name, 0):
            top[name] = amount
    return top


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of all parts."""
    amounts: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            amounts[name] = amounts.get(name, 0) + amount
    return amounts
