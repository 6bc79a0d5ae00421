"""VolumeRestrictions for disks that pods name directly: one disk, one writer per node (scale-up.md §5.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from chalicelib.model.pod import Volume
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable


def conflict(wanted: Collection[Volume], held: Collection[Volume]) -> bool:
    """Whether a pod with these disks cannot be beside pods that hold those."""
    return any(_same(one, other) for one in wanted for other in held)


def _same(one: Volume, other: Volume) -> bool:
    """An EBS volume is for one pod, even to read; others may be read by many. Images of rbd are the same only where
    they come from the same monitors."""
    if (one.kind, one.disk) != (other.kind, other.disk):
        return False
    if one.kind == "rbd" and not set(one.monitors) & set(other.monitors):
        return False
    return one.kind == "awsElasticBlockStore" or not (one.read_only and other.read_only)


def mask(wanted: Collection[Volume], held: Mapping[str, Collection[Volume]], table: NodeTable) -> Bools:
    """Rows without a conflict with the pods that run there. held: node -> the disks of its pods."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for node, disks in held.items() if wanted else ():
        row = table.index.get(node)
        if row is not None and conflict(wanted, disks):
            allowed[row] = False
    return allowed
