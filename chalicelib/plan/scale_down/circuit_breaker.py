"""The circuit breaker: limits how much removals may take, however much is unneeded (Policy.max_disruption).

It has two limits per rolling hour, and a share. The limits only slow removals down: what exceeds them waits. The share
stops all removals: a plan that would remove a large part of the cluster at once is more often the result of a mistake
(a vendor that returns wrong data, a deleted Deployment, a wrong threshold) than intended. Nothing is removed until an
operator has reviewed it (`outscaler release`).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import BreakerState
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.policy import MaxDisruption
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

HOUR = 3600.0
_NODES, _PODS = 1, 2  # positions in BreakerState.removals


def removals_last_hour(breaker: BreakerState, now: float) -> tuple[tuple[float, int, int], ...]:
    """Return the (instant, nodes, pods) of the removals that count now. An instant an hour or more away in the past or
    in the future does not count: after a clock error, removals must not stay blocked for as long as the clock was
    wrong."""
    return tuple(removal for removal in breaker.removals if abs(now - removal[0]) < HOUR)


def nodes_in_removal(state: ClusterState) -> list[RemovalTarget]:
    """Return the targets of open removals."""
    operations = (op for op in state.memory.operations if op.is_open and op.spec.kind is OperationKind.DELETE_NODES)
    return [target for operation in operations for target in operation.spec.targets]


class CircuitBreaker:
    """The circuit breaker's state during one pass.

    - It counts what was planned, whether or not it was completed; operations in flight are included.
    - It counts only pods that must move: DaemonSet pods and pods that go with the node are not counted.
    - While it is released, neither the limits nor the share apply; removals are still counted for the time afterwards.
    - A cluster without maxDisruption stores no state for it.
    """

    def __init__(self, state: ClusterState) -> None:
        self._now, self._allowed = state.now, state.policy.max_disruption
        self._released = state.memory.released_until > state.now
        self._before = state.memory.breaker
        self._counts = self._allowed != MaxDisruption()
        self._removals = removals_last_hour(self._before, self._now) if self._counts else ()
        self._tripped_at = self._before.tripped_at if self._allowed.share > 0 and not self._released else 0.0
        self._wanted = self._before.wanted if self._tripped_at else 0
        registered = {node.name for group in state.groups.values() if not group.group.error for node in group.nodes}
        self._registered = len(registered)
        self._in_removal = len({target.node for target in nodes_in_removal(state)} & registered)
        self._nodes = self._pods = 0
        self._full: dict[int, Reason] = {}

    def check_share(self, nodes: int) -> tuple[Reason | None, Reason | None]:
        """Check the whole plan before any node is removed. nodes: how many it would remove if only parallelism and the
        hourly limits applied. Returns the reason why all removals are blocked, and the trip if the breaker is tripped.

        Nodes that are being removed but are still registered count as well, because the share limits the part of the
        cluster that is missing at one time. At least one node may always be removed. A plan of a single node never
        trips the breaker: while other nodes are being removed, it waits for them (PARALLELISM).
        """
        share = self._allowed.share
        if share <= 0 or self._released:
            return None, None
        most = max(1, int(share * self._registered + 1e-9))
        over = nodes + self._in_removal > most
        if over and not self._tripped_at and nodes > 1:
            self._tripped_at, self._wanted = self._now, nodes + self._in_removal
        if self._tripped_at:
            trip = Reason.of(ReasonCode.DISRUPTION_BRAKE, nodes=self._wanted, of=self._registered, share=share)
            return trip, trip
        return (Reason.of(ReasonCode.PARALLELISM, limit=most) if over and nodes else None), None

    def refuse(self, nodes: int, pods: int) -> Reason | None:
        """Return why a unit (a node or a zero-or-max group) must wait for room in the hour.

        Units do not overtake each other: once a unit waits for room, all later units that need the same room wait
        behind it, so that small units never starve a large one. A unit larger than the whole limit is removed when the
        hour is empty.
        """
        if self._released:
            return None
        for column, limit, need, what in (
            (_NODES, self._allowed.nodes_per_hour, nodes, "nodes per hour"),
            (_PODS, self._allowed.pods_per_hour, pods, "pods per hour"),
        ):
            if limit <= 0 or not need:
                continue
            if column not in self._full and (until := self._wait(column, limit, need)) is not None:
                self._full[column] = Reason.of(ReasonCode.DISRUPTION_LIMIT, what=what, limit=limit, until=until)
            if column in self._full:
                return self._full[column]
        return None

    def take(self, nodes: int, pods: int) -> None:
        """Count a unit that is removed."""
        self._nodes += nodes
        self._pods += pods

    def after(self) -> BreakerState:
        """Return the state for the next pass, unchanged if nothing happened."""
        removals = (*self._removals, *([(self._now, self._nodes, self._pods)] if self._nodes and self._counts else []))
        return msgspec.structs.replace(
            self._before, removals=removals, tripped_at=self._tripped_at, wanted=self._wanted
        )

    def _wait(self, column: int, limit: int, need: int) -> float | None:
        """Return when enough of the counted removals are over an hour old; None where there is room now. An instant in
        the future expires later than in an hour."""
        removals = sorted((*self._removals, (self._now, self._nodes, self._pods)), key=lambda removal: removal[0])
        used = sum(int(removal[column]) for removal in removals)
        if used + need <= limit or (need > limit and not used):
            return None
        for removal in removals:
            used -= int(removal[column])
            if removal[column] and used + min(need, limit) <= limit:
                return removal[0] + HOUR
        return self._now + HOUR
