"""NodePorts: a host port can be used once per node, protocol and address."""

from __future__ import annotations

import numpy as np

from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable


def mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows on which every requested port is free."""
    del at
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    if pod_class.ports:
        for row in table.ports:
            allowed[row] = table.port_clash(row, pod_class.ports) is None
    return allowed


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason that names the port in use."""
    del at
    port = table.port_clash(row, pod_class.ports)
    return (Reason.of(ReasonCode.PORTS, port=f"{port.port}/{port.protocol}"),) if port else ()
