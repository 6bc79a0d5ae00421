"""The filters of kube-scheduler, one per file, in the scheduler's order.

Here: `mask` of a class over all rows, and `reasons` for one row. The first filter that fails gives the reason;
NodeResourcesFit names every resource that is short. Not here: filters over other pods (simulation/pod_topology).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason
from chalicelib.plan.predicates import (
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable

Mask = Callable[[int, PodClass, NodeTable], Bools]
Why = Callable[[int, PodClass, NodeTable, int], tuple[Reason, ...]]

# Predicates that depend on the node alone: their masks are valid for the whole pass.
STATIC: tuple[tuple[str, Mask, Why], ...] = (
    ("NodeUnschedulable", node_unschedulable.mask, node_unschedulable.reasons),
    ("TaintToleration", taint_toleration.mask, taint_toleration.reasons),
    ("NodeAffinity", node_affinity.mask, node_affinity.reasons),
)
# Predicates whose result changes as pods are placed.
CHANGING: tuple[tuple[str, Mask, Why], ...] = (
    ("NodePorts", node_ports.mask, node_ports.reasons),
    ("NodeResourcesFit", node_resources_fit.mask, node_resources_fit.reasons),
)
TABLE = STATIC + CHANGING


def static_mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows that a class may use, regardless of resources and ports."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for _, mask, _ in STATIC:
        allowed &= mask(at, pod_class, table)
    return allowed


def tally(at: int, pod_class: PodClass, table: NodeTable, rows: Bools) -> tuple[list[tuple[Reason, int]], Bools]:
    """Count how many of these rows each predicate rejects, as the scheduler reports it (`9 Insufficient cpu`), and
    return the rows that pass all of them. The first failing predicate of a row counts; a row short of two resources
    counts for both."""
    counts: list[tuple[Reason, int]] = []
    left = rows.copy()
    for name, mask, why in TABLE:
        failing = left & ~mask(at, pod_class, table)
        if not failing.any():
            continue
        if name == "NodeResourcesFit":
            counts += node_resources_fit.shortages(at, table, failing)
        else:
            counts.append((why(at, pod_class, table, int(np.flatnonzero(failing)[0]))[0], int(failing.sum())))
        left &= ~failing
    return counts, left


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return why a row does not take one more pod of a class: the first failing predicate's reasons, () if it fits."""
    for _, _, why in TABLE:
        found = why(at, pod_class, table, row)
        if found:
            return found
    return ()
