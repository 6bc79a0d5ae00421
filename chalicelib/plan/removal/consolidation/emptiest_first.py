"""Places for the pods of nodes that leave, on nodes that stay: each pod on the node that is then
the emptiest, as a scheduler does that marks keep off the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.removal.pod_destinations import NodeKind, PodDestinations, PodRequest
from chalicelib.plan.tables import Bools, Floats, Ints

if TYPE_CHECKING:
    from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster

_NO_ROWS: Ints = np.array([], dtype=np.int64)


class EmptiestFirst(PodDestinations):
    """Room on the rows of nodes that stay."""

    def __init__(self, simulated: SimulatedCluster, staying: Ints) -> None:
        super().__init__(simulated, staying, _NO_ROWS)
        columns = simulated.table.columns
        self._columns = [at for name in (CPU, MEMORY) if (at := columns.at(name)) is not None]
        self._parts: Floats = 1.0 / np.maximum(simulated.table.allocatable[:, self._columns], 1.0)
        self._allowed: dict[int, Ints] = {}  # rows that pass a request's constant predicates

    def stay(self, row: int) -> None:
        """Let one more node stay."""
        rows = np.append(self._preferred, row)
        self._preferred = rows
        self._kinds = (NodeKind(rows, in_turn=False),)
        self._allowed.clear()

    def _find(self, kind: NodeKind, request: PodRequest) -> int | None:
        return self._emptiest(kind, request, self._simulated.open)

    def _find_by_rules(self, kind: NodeKind, request: PodRequest, cls: int) -> int | None:
        return self._emptiest(kind, request, self._simulated.open & self.neighbours.mask(cls))

    def _emptiest(self, kind: NodeKind, request: PodRequest, allowed: Bools) -> int | None:
        if id(request) not in self._allowed:
            self._allowed[id(request)] = kind.rows[request.allowed[kind.rows]]
        rows = self._allowed[id(request)]
        free = self._simulated.table.free
        fits = allowed[rows]
        for column, amount in request.needs:
            fits &= free[rows, column] >= amount
        rows = rows[fits]
        if not len(rows):
            return None
        needs = dict(request.needs)
        left: Floats = np.zeros(len(rows))
        for part, column in enumerate(self._columns):
            left += (free[rows, column] - needs.get(column, 0)) * self._parts[rows, part]
        return int(rows[int(left.argmax())])
