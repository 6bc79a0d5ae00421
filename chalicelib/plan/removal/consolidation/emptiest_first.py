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
        names = [at for name in (CPU, MEMORY) if (at := columns.at(name)) is not None]
        self._columns: Ints = np.array(names, dtype=np.int64)
        self._parts: Floats = 1.0 / np.maximum(simulated.table.allocatable[:, self._columns], 1.0)

    def stay(self, row: int) -> None:
        """Let one more node stay."""
        rows = np.append(self._preferred, row)
        self._preferred = rows
        self._kinds = (NodeKind(rows, in_turn=False),)

    def _find(self, kind: NodeKind, request: PodRequest) -> int | None:
        return self._emptiest(kind.rows, request, request.allowed)

    def _find_by_rules(self, kind: NodeKind, request: PodRequest, cls: int) -> int | None:
        return self._emptiest(kind.rows, request, request.allowed & self.neighbours.mask(cls))

    def _emptiest(self, rows: Ints, request: PodRequest, allowed: Bools) -> int | None:
        free = self._simulated.table.free
        fits = (self._simulated.open & allowed)[rows]
        for column, amount in request.needs:
            fits &= free[rows, column] >= amount
        fitting = rows[fits]
        if not len(fitting):
            return None
        amounts = dict(request.needs)
        need = np.array([amounts.get(column, 0) for column in self._columns.tolist()])
        left = (free[fitting[:, None], self._columns] - need) * self._parts[fitting]
        return int(fitting[int(left.sum(axis=1).argmax())])
