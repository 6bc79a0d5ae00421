"""Checks marks of nodes that leave from outside: of runs in which the scheduler is steered.

    drains    when an operation that consolidates a node comes into the table, all nodes of its
              group that leave have had their marks, or have refused them, or nobody's marks last
    writes    a write that changes marks changes nothing else of its node, and the writes of a
              node's marks are bounded
    end       passes that do not act write nothing but the removal of soft taints

A pass saves its operations before it writes its marks, so marks of the same pass do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from chalicelib.model.memory import Horizon
from chalicelib.model.node import DELETION_CANDIDATE, LEAVING_MARKS
from chalicelib.model.operation import Operation
from chalicelib.plan.removal.consolidation.steering import TRIES
from infra.emulators.kube.objects import KubeObject
from tests.faults.replacement_audit import SKEW, AuditedNode

PASS = "reconcile"
MOST_WRITES = 6
"""Writes of the marks of one node in a day, beside those that people ask for."""


class SteeringAudit:
    """fault, count: of the audit; nodes: as they are now; planned: the open operations and the
    horizon in memory.

    switches: how often people have switched the mode or steering. ended: whether the last switch
    has been made, after which passes write nothing else.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        fault: Callable[[str], None],
        count: Callable[[str], None],
        nodes: Callable[[], Mapping[str, AuditedNode]],
        planned: Callable[[], tuple[list[Operation], Horizon | None]],
    ) -> None:
        self._clock, self._fault, self._count = clock, fault, count
        self._nodes, self._planned = nodes, planned
        self._levels: dict[str, list[tuple[float, int]]] = {}  # node -> (since when, marks)
        self._writes = Counter[str]()
        self._strips = Counter[str]()
        self._operations: set[str] = set()
        self._horizon = ""
        self.switches = 0
        self.ended = False

    def look(self) -> None:
        """Look at new horizons and new operations."""
        operations, horizon = self._planned()
        if horizon is not None and horizon.id != self._horizon:
            self._horizon = horizon.id
            self._count("horizons begun")
        leaving = {target.node for each in operations for target in each.spec.targets}
        for operation in operations:
            spec = operation.spec
            if spec.id in self._operations:
                continue
            self._operations.add(spec.id)
            if spec.reason == "consolidation" and not spec.replacement and horizon is not None:
                for target in spec.targets:
                    self._drain_planned(target.node, spec.created_at, horizon, leaving)

    def _drain_planned(
        self, name: str, planned_at: float, horizon: Horizon, leaving: set[str]
    ) -> None:
        nodes = self._nodes()
        if name not in nodes:
            return
        self._count("drains of a horizon planned")
        if name not in horizon.going:
            self._fault(f"node {name} is drained, and horizon {horizon.id} lets it stay")
        group = nodes[name].group
        members = [other for other in horizon.going if other in nodes]
        unmarked = [
            other
            for other in members
            if nodes[other].group == group and other not in leaving - {name}
            if not self._had_mark(other, planned_at)
        ]
        if unmarked and horizon.missing >= TRIES:
            self._count("drains without marks, which do not last")
        elif unmarked:
            self._fault(f"node {name} is drained before {unmarked} of its group have their marks")

    def _had_mark(self, name: str, planned_at: float) -> bool:
        """Whether a node has its mark now, or has had it since a pass may have looked at it."""
        spans = self._levels.get(name, [(0.0, 0)])
        ends = [since for since, _ in spans[1:]] + [self._clock()]
        return any(
            level and end >= planned_at - SKEW for (_, level), end in zip(spans, ends, strict=True)
        )

    def stripped(self, name: str) -> None:
        """Note that somebody has taken marks off a node."""
        self._strips[name] += 1
        self._note(name, 0)

    def refused(self, name: str) -> None:
        """Note that a webhook has refused a node's mark."""
        self._count("marks refused")
        self._count_write(name)

    def wrote(self, function: str, path: str) -> None:
        """Check a write of any kind: after the last switch passes change nodes only, and tell."""
        tells = any(part in path for part in ("/nodes/", "/events", "/configmaps"))
        if self.ended and function == PASS and not tells:
            self._fault(f"a pass wrote {path} after passes ceased to act")

    def patched(self, before: KubeObject, after: KubeObject, function: str) -> None:
        """Check one write to a node. Operations that had begun before the last switch go on."""
        name = after["metadata"]["name"]
        same = _without_soft_taints(before) == _without_soft_taints(after)
        if self.ended and function == PASS and not same:
            self._fault(f"a pass changed more than soft taints of {name} after it ceased to act")
        if marks_on(before) == marks_on(after):
            return
        if not same:
            self._fault(f"a write of the marks of {name} has changed something else")
        self._count("marks written" if marks_on(after) else "marks taken off")
        self._count_write(name)
        self._note(name, len(marks_on(after)))

    def _note(self, name: str, level: int) -> None:
        self._levels.setdefault(name, []).append((self._clock(), level))

    def _count_write(self, name: str) -> None:
        self._writes[name] += 1
        allowed = MOST_WRITES + 2 * (self._strips[name] + self.switches)
        if self._writes[name] > allowed:
            self._fault(f"the marks of {name} were written {self._writes[name]} times")


def marks_on(node: KubeObject) -> list[str]:
    """The marks of a node."""
    taints = node["spec"].get("taints") or ()
    return [taint["key"] for taint in taints if taint["key"] in LEAVING_MARKS]


def _without_soft_taints(node: KubeObject) -> dict[str, Any]:
    """What a write of marks leaves: the spec, labels and annotations."""
    own = {*LEAVING_MARKS, DELETION_CANDIDATE}
    spec = {**node["spec"]}
    taints = [taint for taint in spec.pop("taints", None) or () if taint["key"] not in own]
    meta = node["metadata"]
    return {
        "spec": spec,
        "taints": taints,
        "notes": (meta.get("labels") or {}, meta.get("annotations") or {}),
    }
