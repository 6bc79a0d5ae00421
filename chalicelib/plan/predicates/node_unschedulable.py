"""NodeUnschedulable: a cordoned node takes only pods that tolerate `node.kubernetes.io/unschedulable:NoSchedule`."""

from __future__ import annotations

import numpy as np

from chalicelib.model.node import Taint
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.predicates.taint_toleration import tolerates
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable

_CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


def mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows that are not cordoned, or all rows if the class tolerates the taint."""
    del at
    if any(tolerates(toleration, _CORDON) for toleration in pod_class.tolerations):
        return np.ones(len(table), dtype=np.bool_)
    return ~table.cordoned


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason if the row is cordoned and the class does not tolerate the taint."""
    del at
    if table.nodes[row].unschedulable and not any(tolerates(t, _CORDON) for t in pod_class.tolerations):
        return (Reason.of(ReasonCode.UNSCHEDULABLE_NODE),)
    return ()
