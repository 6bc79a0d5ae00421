"""How much of a node is asked for (scale-down.md §4): requests over allocatable, the larger of cpu and memory.

On a GPU node only the GPU counts. DaemonSet and mirror pods may be left out of both sides; a pod that has been
terminating for long is left out of what is used.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.policy import Options
from chalicelib.model.resources import CPU, GPU_RESOURCES, MEMORY
from chalicelib.plan.readiness import GPU_LABELS


class Utilization(msgspec.Struct, frozen=True):
    """The deciding resource and its share; gpu: whether the GPU threshold applies."""

    resource: str
    share: float
    gpu: bool = False


def is_long_terminating(pod: Pod, now: float) -> bool:
    """deletionTimestamp + grace + 30 s is past (scale-down.md §6 rule 2)."""
    return bool(pod.deleted) and pod.deleted + pod.deletion_grace + 30.0 < now


def utilization(node: Node, pods: Iterable[tuple[Pod, PodClass]], options: Options, *, ignore_daemonsets: bool,
                now: float) -> Utilization | None:
    """The node's utilisation, None if it has no allocatable cpu or memory to compare with."""
    gpu = next((name for name in GPU_RESOURCES if node.allocatable.get(name)), None)
    if gpu is None and any(label in node.labels for label in GPU_LABELS):
        return Utilization(GPU_RESOURCES[0], 0.0, gpu=True)
    names = (gpu,) if gpu else (CPU, MEMORY)
    used, left_out = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pod, cls in pods:
        skipped = (ignore_daemonsets and cls.is_daemonset) or (options.ignore_mirror_pods_utilization and cls.mirror)
        side = left_out if skipped else used
        if not skipped and is_long_terminating(pod, now):
            continue
        for name in names:
            side[name] += cls.requests.get(name, 0)
    shares = []
    for name in names:
        room = node.allocatable.get(name, 0) - left_out[name]
        if room <= 0:
            return None
        shares.append((used[name] / room, name))
    share, name = max(shares, key=lambda pair: pair[0])
    return Utilization(name, share, gpu=gpu is not None)
