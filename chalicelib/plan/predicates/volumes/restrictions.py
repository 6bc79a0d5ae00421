"""VolumeRestrictions for disks that pods name directly: one disk, one writer per node."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from chalicelib.model.pod import Volume
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable


def conflict(wanted: Collection[Volume], held: Collection[Volume]) -> bool:
    """Return whether a pod with `disks` conflicts with pods on the same node that use these other disks."""
    return any(_same(one, other) for one in wanted for other in held)


def _same(volume: Volume, other_volume: Volume) -> bool:
    """Return whether two disks conflict. An EBS volume is exclusive to one pod, even for reading; other disks may be
    shared for reading. RBD images are equal only if they have a monitor in common."""
    if (volume.kind, volume.disk) != (other_volume.kind, other_volume.disk):
        return False
    if volume.kind == "rbd" and not set(volume.monitors) & set(other_volume.monitors):
        return False
    return volume.kind == "awsElasticBlockStore" or not (volume.read_only and other_volume.read_only)


def mask(wanted: Collection[Volume], held: Mapping[str, Collection[Volume]], table: NodeTable) -> Bools:
    """Return the rows without a conflict with the pods that run there. held: node -> the disks of its pods."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for node, disks in held.items() if wanted else ():
        row = table.index.get(node)
        if row is not None and conflict(wanted, disks):
            allowed[row] = False
    return allowed
