"""Amounts of resources: whole numbers by name; cpu in millicores, memory and storage in bytes, the rest in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"

# The extended resources that make a node a GPU node.
GPU_RESOURCES = ("nvidia.com/gpu", "habana.ai/gaudi", "gpu.intel.com/xe", "amd.com/gpu", "microsoft.com/directx")

Amounts = Mapping[str, int]


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return left + right per resource; a missing name is 0."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def largest(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return the larger of the two per resource; a missing name is 0."""
    top = dict(left)
    for name, amount in right.items():
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
