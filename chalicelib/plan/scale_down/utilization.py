"""Computes the utilization of every node: requests divided by allocatable, the larger of cpu and memory.

On a GPU node only the GPU counts. DaemonSet and mirror pods may be excluded from both sides; a pod that has been
terminating for long is excluded from the requests. Computed for all nodes at once, from the pass's index of pods by
node.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.model.resources import CPU, GPU_RESOURCES, MEMORY
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pending_pods import is_expendable
from chalicelib.plan.tables import OVERFULL, Bools, Ints

_NAMES = (CPU, MEMORY, *GPU_RESOURCES)
_DAEMON, _MIRROR = 1, 2  # kinds of pods as bit flags; 0: neither
_KINDS = 4


class Utilization(msgspec.Struct, frozen=True):
    """The deciding resource and its share; gpu: whether the GPU threshold applies."""

    resource: str
    share: float
    gpu: bool = False


def is_long_terminating(pod: Pod, now: float) -> bool:
    """Return whether deletionTimestamp + grace + 30 s is past."""
    return bool(pod.deleted) and pod.deleted + pod.deletion_grace + 30.0 < now


class Usage:
    """The requests of the pods of every node, by kind of pod; expendable pods are not counted."""

    def __init__(self, state: ClusterState) -> None:
        options, occupancy, classes = state.options, state.occupancy, state.snapshot.classes
        self._options, self._index, self._lacking = options, occupancy.index, state.lacking
        asks = np.array(
            [*([cls.requests.get(name, 0) for name in _NAMES] for cls in classes), [0] * len(_NAMES)], dtype=np.float64
        )
        kinds = np.array([*(_DAEMON * cls.is_daemonset + _MIRROR * cls.mirror for cls in classes), 0], dtype=np.int64)
        expendable = np.array([*(is_expendable(cls, options) for cls in classes), False], dtype=np.bool_)
        counted: Bools = (occupancy.where >= 0) & ~expendable[occupancy.cls]
        gone: Bools = np.zeros(len(counted), dtype=np.bool_)
        for at, pod in occupancy.pods(counted & occupancy.dying):
            gone[at] = is_long_terminating(pod, state.now)

        def sums(which: Bools) -> Ints:
            place = occupancy.where[which] * _KINDS + kinds[occupancy.cls[which]]
            size = len(occupancy.index) * _KINDS
            amounts = np.array(
                [
                    np.bincount(place, weights=asks[occupancy.cls[which], name], minlength=size)
                    for name in range(len(_NAMES))
                ]
            )
            whole: Ints = np.minimum(amounts, OVERFULL).astype(np.int64).reshape(len(_NAMES), -1, _KINDS)
            return whole

        self._all = sums(counted)
        self._live = self._all - sums(gone) if gone.any() else self._all

    def of(self, node: Node, *, ignore_daemonsets: bool) -> Utilization | None:
        """Return a node's utilization, None if it has no allocatable cpu or memory."""
        gpu = next((name for name in GPU_RESOURCES if node.allocatable.get(name)), None)
        if gpu is None and node.name in self._lacking:
            return Utilization(GPU_RESOURCES[0], 0.0, gpu=True)
        at = self._index[node.name]
        skipped = (_DAEMON if ignore_daemonsets else 0) | (
            _MIRROR if self._options.ignore_mirror_pods_utilization else 0
        )
        shares = []
        for name in (gpu,) if gpu else (CPU, MEMORY):
            row = _NAMES.index(name)
            used = left_out = 0
            for kind in range(_KINDS):
                if kind & skipped:
                    left_out += int(self._all[row, at, kind])
                else:
                    used += int(self._live[row, at, kind])
            room = node.allocatable.get(name, 0) - left_out
            if room <= 0:
                return None
            shares.append((used / room, name))
        share, name = max(shares, key=lambda pair: pair[0])
        return Utilization(name, share, gpu=gpu is not None)

    def share(self, node: Node) -> float:
        """Return how full a node is by the requests of all its pods: the largest share of cpu, memory or GPUs; 1 if
        unknown."""
        at = self._index[node.name]
        asked = self._all[:, at].sum(axis=1)
        shares = [float(asked[row]) / room for row, name in enumerate(_NAMES) if (room := node.allocatable.get(name))]
        return max(shares, default=1.0)
