"""What became of the machines asked for (state.md §5-§7): arrived, failed, or not come in time.

It is judged before anything is decided, as upstream does (state.md §1). Judged afterwards, a group whose machines do
not come would be grown once more by the very pass that finds it out.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import InstanceError
from chalicelib.model.memory import Backoff, GroupMemory, ScaleUpRequest
from chalicelib.model.timeouts import provision_time
from chalicelib.plan.state import backoff
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.plan.state.readiness import Bucket


def resolve_scale_up_requests(world: ClusterState) -> ClusterState:
    """The facts with requests that have come true or run out, and back-off that has begun or is over for good."""
    judged = {facts.id: _Judge(facts, world) for facts in world.groups.values() if not facts.group.error}
    changed = {name: judge.memory for name, judge in judged.items() if judge.memory != world.groups[name].memory}
    if not changed:
        return world
    memory = msgspec.structs.replace(world.memory, groups={**world.memory.groups, **changed})
    timed_out = {name: judge.timed_out for name, judge in judged.items() if judge.timed_out is not None}
    return msgspec.structs.replace(
        build_cluster_state(world.snapshot, world.policy, memory, world.now), timed_out=timed_out
    )


class _Judge:
    """One group. memory: what is to be known of it; timed_out: the request that ran out, if it did just now."""

    def __init__(self, facts: NodeGroupState, world: ClusterState) -> None:
        self.facts, self.world = facts, world
        known = facts.memory
        failed = _shifted(known.backoff, world.now)
        if failed is not None and backoff.stale(failed, world.now, world.options):
            failed = None
        self.timed_out: ScaleUpRequest | None = None
        request, failed = self._errors(self._sane(known.request), failed)
        if request is not None:
            request, failed = self._time(request, failed)
        self.memory: GroupMemory = msgspec.structs.replace(
            known, request=request, backoff=failed, failed_instances=facts.failed
        )

    def _sane(self, request: ScaleUpRequest | None) -> ScaleUpRequest | None:
        """One from the future was written by a clock that was wrong: it would keep its group waiting till then."""
        now = self.world.now
        if request is None or request.since <= now:
            return request
        return ScaleUpRequest(request.increase, now, now + provision_time(self.facts.group, self.world.options))

    def _errors(
        self, request: ScaleUpRequest | None, failed: Backoff | None
    ) -> tuple[ScaleUpRequest | None, Backoff | None]:
        """Errors not counted yet, of machines that we asked for, even where the operation that asks is still under way:
        what failed is not waited for, and the group is backed off. Several at once are one step (case K4)."""
        known = frozenset(self.facts.memory.failed_instances)
        fresh = [name for name in self.facts.failed if name not in known]
        if not fresh or (request is None and not self.facts.growing):
            return request, failed
        errors = [i.error for i in self.facts.group.instances if i.id in fresh and i.error]
        error = min(errors, key=lambda each: each.cls in backoff.FLAT, default=InstanceError(""))
        failed = backoff.fail(failed, self.world.now, self.world.options, error.cls, error.code, error.message)
        left = request.increase - len(fresh) if request is not None else 0
        return (msgspec.structs.replace(request, increase=left) if request is not None and left > 0 else None), failed

    def _time(self, request: ScaleUpRequest, failed: Backoff | None) -> tuple[ScaleUpRequest | None, Backoff | None]:
        """Fulfilled when everything asked for is a node and has started; failed when some of it is no node in time."""
        outstanding = self._outstanding(request)
        if outstanding <= 0 and not self.facts.counts[Bucket.NOT_STARTED]:
            return None, None if self._redeemed(request, failed) else failed
        if outstanding <= 0 or request.expected_at >= self.world.now:
            return request, failed
        self.timed_out = request
        message = f"{outstanding} nodes did not join in time"
        return None, backoff.fail(failed, self.world.now, self.world.options, "Unknown", "timeout", message)

    def _redeemed(self, request: ScaleUpRequest, failed: Backoff | None) -> bool:
        """Whether what was asked for since the last failure has all come: the next failure of a flavour begins its
        sequence anew (huaweicloud-cce.md A9.4). Upstream lets three hours pass, and so does a group without a pool."""
        return self.facts.group.pool is not None and failed is not None and failed.until < request.since

    def _outstanding(self, request: ScaleUpRequest) -> int:
        """Machines that are no nodes yet. Neither back-off nor being late makes one arrive: they are no longer
        upcoming, but the request for them is not fulfilled. One that failed is not waited for, and one that was late
        before this request was made belongs to another."""
        facts, world = self.facts, self.world
        allowed, seen = provision_time(facts.group, world.options), world.memory.unregistered
        before = sum(seen.get(machine, world.now) + allowed < request.since for machine in facts.long_unregistered)
        return facts.target - len(facts.nodes) - len(facts.contested) - len(facts.failed) - before


def _shifted(failed: Backoff | None, now: float) -> Backoff | None:
    """A failure from the future was written by a clock that was wrong: it counts from now, for as long as it was to."""
    if failed is None or failed.last_failed <= now:
        return failed
    return msgspec.structs.replace(failed, last_failed=now, until=now + max(0.0, failed.until - failed.last_failed))
