"""Checks that removals respect the cluster's minimums of cores, memory and GPUs.

This is the counterpart of limits.py and counts the same way: cores rounded up per node, no virtual-kubelet nodes. Nodes
that are being removed count as gone, so that two passes never use the same room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY
from chalicelib.plan.state.cluster_state import ClusterState


class ClusterMinimums:
    """The room above each minimum, reduced by every node that is taken."""

    def __init__(self, state: ClusterState) -> None:
        options = state.options
        least = {CPU: options.cores_total[0], MEMORY: options.memory_total[0]}
        for kind, fewest, _ in options.gpu_total:
            least[kind] = max(fewest, least.get(kind, 0))
        self._room = {name: -amount for name, amount in least.items() if amount > 0}
        for node in state.snapshot.nodes if self._room else ():
            if node.name not in state.leaving and node.labels.get("type") != "virtual-kubelet":
                for name, amount in self._amounts(node).items():
                    self._room[name] += amount

    def refuse(self, node: Node) -> Reason | None:
        """Return why a node is still needed for a minimum. A node that has nothing of a resource does not affect that
        minimum."""
        short = [name for name, amount in self._amounts(node).items() if amount > max(0, self._room[name])]
        return Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources=", ".join(sorted(short))) if short else None

    def take(self, node: Node) -> None:
        """Count a node that is removed."""
        for name, amount in self._amounts(node).items():
            self._room[name] -= amount

    def checkpoint(self) -> Mapping[str, int]:
        """Return a checkpoint for `back_to`."""
        return dict(self._room)

    def rollback(self, mark: Mapping[str, int]) -> None:
        """Restore the state of a checkpoint."""
        self._room = dict(mark)

    def _amounts(self, node: Node) -> dict[str, int]:
        """Return what a node counts for each resource with a minimum: cores, bytes, GPUs of a label's type."""
        if not self._room:
            return {}
        source = node.capacity or node.allocatable
        known = {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
        if self._room.keys() <= known.keys():
            return {name: known[name] for name in self._room}
        types = {node.labels[label] for label in GPU_LABELS if label in node.labels}
        gpus = next((source[name] for name in GPU_RESOURCES if source.get(name)), 0)
        return {name: known.get(name, source.get(name, 0) or (gpus if name in types else 0)) for name in self._room}
