"""TaintToleration: every NoSchedule or NoExecute taint needs a matching toleration; PreferNoSchedule never blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chalicelib.model.node import Taint
from chalicelib.model.pod import PodClass, Toleration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable

BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint: effect empty or equal; key equal, or empty with Exists; operator
    Exists, or Equal with the same value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key != taint.key and not (toleration.key == "" and toleration.operator == "Exists"):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator == "Equal" and toleration.value == taint.value


def untolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> Taint | None:
    """Return the first blocking taint without a matching toleration."""
    return next(
        (taint for taint in taints if taint.effect in BLOCKING and not any(tolerates(t, taint) for t in tolerations)),
        None,
    )


def mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows whose taints are all tolerated; computed once per distinct set of taints."""
    del at
    ids, sets = table.taint_sets()
    # Each taint is checked once, however many sets contain it.
    barred = {
        taint
        for taint in {taint for taints in sets for taint in taints}
        if untolerated(pod_class.tolerations, (taint,)) is not None
    }
    verdicts = np.fromiter((barred.isdisjoint(taints) for taints in sets), dtype=np.bool_, count=len(sets))
    allowed: Bools = verdicts[ids]
    return allowed


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason that names the first taint that is not tolerated."""
    del at
    taint = untolerated(pod_class.tolerations, table.nodes[row].taints)
    return (Reason.of(ReasonCode.UNTOLERATED_TAINT, taint=str(taint)),) if taint else ()
