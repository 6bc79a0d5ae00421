"""NodeResourcesFit: compares requests with what is allocatable and not yet requested by other pods.

Equal amounts fit. A resource that is not requested is not checked, so an overcommitted node still takes a pod without
requests. Every resource that is short is named, with both amounts.
"""

from __future__ import annotations

from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import PODS
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable


def mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows with room for one more pod of the class."""
    del pod_class
    return table.fitting(at)


def shortages(at: int, table: NodeTable, rows: Bools) -> list[tuple[Reason, int]]:
    """Return per resource how many of these rows are short of it."""
    need, found = table.columns.need(at), []
    for column, name in enumerate(table.columns.names):
        short = int((rows & (table.free[:, column] < need[column])).sum()) if need[column] > 0 else 0
        if short:
            best = max(0, int(table.free[rows, column].max()))
            found.append(
                (
                    Reason.of(ReasonCode.TOO_MANY_PODS, offers=best)
                    if name == PODS
                    else Reason.of(ReasonCode.INSUFFICIENT, resource=name, needs=int(need[column]), offers=best),
                    short,
                )
            )
    return found


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason per resource that is short, `Too many pods` first."""
    del pod_class
    need, free = table.columns.need(at), table.free[row]
    short = []
    for column, name in enumerate(table.columns.names):
        if need[column] > 0 and need[column] > free[column]:
            offers = max(0, int(free[column]))
            short.append(
                Reason.of(ReasonCode.TOO_MANY_PODS, offers=int(table.allocatable[row][column]))
                if name == PODS
                else Reason.of(ReasonCode.INSUFFICIENT, resource=name, needs=int(need[column]), offers=offers)
            )
    return tuple(short)
