"""The circuit breaker: limits how much removals may take, however much is unneeded (Policy.max_disruption).

It has two limits per rolling hour, and a share. The limits only slow removals down: what exceeds them waits. The share
stops all removals: a plan that would remove a large part of the cluster at once is more often the result of a mistake
(a vendor that returns wrong data, a deleted Deployment, a wrong threshold) than intended. Nothing is removed until an
operator has reviewed it (`outscaler release`).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import BreakerState
from chalicelib.model.operation import OperationKind
from chalicelib.model.policy import MaxDisruption
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

HOUR = 3600.0
_NODES, _PODS = 1, 2  # positions in BreakerState.removals


def removals_last_hour(breaker: BreakerState, now: float) -> tuple[tuple[float, int, int], ...]:
    """Return the (instant, nodes, pods) of the removals that count now. An instant an hour or more away in the past or
    in the future does not count: after a clock error, removals must not stay blocked for as long as the clock was
    wrong."""
    return tuple(one for one in breaker.removals if abs(now - one[0]) < HOUR)


class DisruptionBreaker:
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
        self._taken = removals_last_hour(self._before, self._now) if self._counts else ()
        pulled = self._before.tripped_at if self._allowed.share > 0 and not self._released else 0.0
        self._pulled, self._wanted = pulled, self._before.wanted if pulled else 0
        readable = [facts for facts in state.groups.values() if not facts.group.error]
        here = {node.name for facts in readable for node in facts.nodes}
        self._registered = len(here)
        self._going = len(
            {
                target.node
                for op in state.memory.operations
                if op.is_open and op.spec.kind is OperationKind.DELETE_NODES
                for target in op.spec.targets
            }
            & here
        )
        self._nodes = self._pods = 0
        self._full: dict[int, Reason] = {}

    def pull(self, wanted: int) -> tuple[Reason | None, Reason | None]:
        """Check the whole plan before any node is removed: count how many nodes it would remove if only parallelism and
        the hourly limits applied. Returns the reason why all removals are blocked, and the trip if the breaker is
        tripped.

        Nodes that are being removed but are still registered count as well, because the share limits the part of the
        cluster that is missing at one time. At least one node may always be removed. A plan of a single node never
        trips the breaker: while other nodes are being removed, it waits for them (PARALLELISM).
        """
        share = self._allowed.share
        if share <= 0 or self._released:
            return None, None
        most = max(1, int(share * self._registered + 1e-9))
        over = wanted + self._going > most
        if over and not self._pulled and wanted > 1:
            self._pulled, self._wanted = self._now, wanted + self._going
        if self._pulled:
            on = Reason.of(ReasonCode.DISRUPTION_BRAKE, nodes=self._wanted, of=self._registered, share=share)
            return on, on
        return (Reason.of(ReasonCode.PARALLELISM, limit=most) if over and wanted else None), None

    def refuse(self, nodes: int, pods: int) -> Reason | None:
        """Return why a unit (a node or a zero-or-max group) must wait for room in the hour.

        Units do not overtake each other: once a unit waits for room, all later units that need the same room wait
        behind it, so that small units never starve a large one. A unit larger than the whole limit is removed when the
        hour is empty.
        """
        if self._released:
            return None
        for at, limit, need, what in (
            (_NODES, self._allowed.nodes_per_hour, nodes, "nodes per hour"),
            (_PODS, self._allowed.pods_per_hour, pods, "pods per hour"),
        ):
            if limit <= 0 or not need:
                continue
            if at not in self._full and not self._fits(at, limit, need):
                self._full[at] = Reason.of(
                    ReasonCode.DISRUPTION_LIMIT, what=what, limit=limit, until=self._room_at(at, limit, need)
                )
            if at in self._full:
                return self._full[at]
        return None

    def take(self, nodes: int, pods: int) -> None:
        """Count a unit that is removed."""
        self._nodes += nodes
        self._pods += pods

    def after(self) -> BreakerState:
        """Return the state for the next pass, unchanged if nothing happened."""
        taken = (*self._taken, *([self._mine] if self._nodes and self._counts else []))
        return msgspec.structs.replace(self._before, removals=taken, tripped_at=self._pulled, wanted=self._wanted)

    @property
    def _mine(self) -> tuple[float, int, int]:
        return self._now, self._nodes, self._pods

    def _fits(self, at: int, limit: int, need: int) -> bool:
        used = sum(int(one[at]) for one in (*self._taken, self._mine))
        return used + need <= limit or (need > limit and not used)

    def _room_at(self, at: int, limit: int, need: int) -> float:
        """Return when enough of the counted removals are over an hour old. An instant in the future expires later than
        in an hour."""
        entries = sorted((one for one in (*self._taken, self._mine) if one[at]), key=lambda one: one[0])
        used = sum(int(one[at]) for one in entries)
        for one in entries:
            used -= int(one[at])
            if used + min(need, limit) <= limit:
                return one[0] + HOUR
        return self._now + HOUR
