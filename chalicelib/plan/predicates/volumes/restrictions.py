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


def _same(one: Volume, other: Volume) -> bool:
    """Return whether two disks conflict. An EBS volume is exclusive to one pod, even for reading; other disks may be
    shared for reading. RBD images are equal only if they have a monitor in common."""
    if (one.kind, one.disk) != (other.kind, other.disk):
        return False
    if one.kind == "rbd" and not set(one.monitors) & set(other.monitors):
        return False
    return one.kind == "awsElasticBlockStore" or not (one.read_only and other.read_only)


def mask(wanted: Collection[Volume], held: Mapping[str, Collection[Volume]], table: NodeTable) -> Bools:
    """Return the rows without a conflict with the pods that run there. held: node -> the disks of its pods."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for node, disks in held.items() if wanted else ():
        row = table.index.get(node)
        if row is not None and conflict(wanted, disks):
            allowed[row] = False
    return allowed
