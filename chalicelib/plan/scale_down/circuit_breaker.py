"""The brake: the most that removals may take, however much is not needed (demands.md 25, Policy.max_disruption).

Two limits per rolling hour, and a share. The limits slow down and need nobody: what exceeds them waits. The share
stops: a plan that wants to remove a large part of the cluster at once is more often a mistake (a vendor that answers
rubbish, a deleted deployment, a wrong threshold) than a wish, so nothing goes until a person has looked at it
(`outscaler release`).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import BreakerState
from chalicelib.model.operation import OperationKind
from chalicelib.model.policy import MaxDisruption
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

HOUR = 3600.0
_NODES, _PODS = 1, 2  # positions in Brake.taken


def removals_last_hour(brake: BreakerState, now: float) -> tuple[tuple[float, int, int], ...]:
    """(instant, nodes, pods) of the removals that count now. An instant an hour or more away, to either side, is no
    part of this hour: a clock that once was wrong must not hold removals back for as long as it was wrong."""
    return tuple(one for one in brake.removals if abs(now - one[0]) < HOUR)


class DisruptionBreaker:
    """One pass of the brake.

    - What counts is what was planned, whether it came to an end or not; operations in flight are part of it.
    - Pods are those that must move. DaemonSet pods and what goes with the node count for nothing.
    - While released, neither the limits nor the share hold; what goes is counted all the same, for the time after.
    - A cluster without maxDisruption remembers nothing for it.
    """

    def __init__(self, world: ClusterState) -> None:
        self._now, self._allowed = world.now, world.policy.max_disruption
        self._released = world.memory.released_until > world.now
        self._before = world.memory.breaker
        self._counts = self._allowed != MaxDisruption()
        self._taken = removals_last_hour(self._before, self._now) if self._counts else ()
        pulled = self._before.tripped_at if self._allowed.share > 0 and not self._released else 0.0
        self._pulled, self._wanted = pulled, self._before.wanted if pulled else 0
        readable = [facts for facts in world.groups.values() if not facts.group.error]
        here = {node.name for facts in readable for node in facts.nodes}
        self._registered = len(here)
        self._going = len(
            {
                target.node
                for op in world.memory.operations
                if op.is_open and op.spec.kind is OperationKind.DELETE_NODES
                for target in op.spec.targets
            }
            & here
        )
        self._nodes = self._pods = 0
        self._full: dict[int, Reason] = {}

    def pull(self, wanted: int) -> tuple[Reason | None, Reason | None]:
        """Looks at the whole plan before anything of it goes: how many nodes it would remove if nothing but parallelism
        and the hourly limits held it back. Returns why all of it stays, and the pull itself where the brake is on.

        Nodes on their way out and still registered count too: the part of the cluster that is missing at once is what
        the share is about. At least one node may always go. A plan of a single node never pulls the brake: beside
        others that are on their way it waits for them (PARALLELISM).
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
        """Why a unit (a node, or a zero-or-max group) must wait for room in the hour.

        Nobody overtakes: once one waits for room, all that need the same room wait behind it, so that a large one is
        not passed over for ever by small ones. A unit larger than the whole limit goes when the hour is empty.
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
        """Count a unit that goes."""
        self._nodes += nodes
        self._pods += pods

    def after(self) -> BreakerState:
        """What the next pass must know; the same value as before where nothing happened."""
        taken = (*self._taken, *([self._mine] if self._nodes and self._counts else []))
        return msgspec.structs.replace(self._before, removals=taken, tripped_at=self._pulled, wanted=self._wanted)

    @property
    def _mine(self) -> tuple[float, int, int]:
        return self._now, self._nodes, self._pods

    def _fits(self, at: int, limit: int, need: int) -> bool:
        used = sum(int(one[at]) for one in (*self._taken, self._mine))
        return used + need <= limit or (need > limit and not used)

    def _room_at(self, at: int, limit: int, need: int) -> float:
        """When enough of what was taken is over an hour ago. An instant ahead of now is over later than an hour."""
        entries = sorted((one for one in (*self._taken, self._mine) if one[at]), key=lambda one: one[0])
        used = sum(int(one[at]) for one in entries)
        for one in entries:
            used -= int(one[at])
            if used + min(need, limit) <= limit:
                return one[0] + HOUR
        return self._now + HOUR
