"""Resolves scale-up requests: the requested nodes arrived, failed, or timed out.

This happens before anything is planned, as in Cluster Autoscaler. Otherwise, the pass that detects the failure would
scale up the same group once more. See docs/reference/node-groups.md "Scale-up requests".
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import InstanceError
from chalicelib.model.memory import Backoff, GroupMemory, ScaleUpRequest
from chalicelib.model.timeouts import provision_time
from chalicelib.plan.state import backoff
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.plan.state.readiness import Bucket


def resolve_scale_up_requests(state: ClusterState) -> ClusterState:
    """Return the cluster state with requests that were fulfilled or timed out, and with back-off that has begun or
    ended."""
    judged = {facts.id: _Judge(facts, state) for facts in state.groups.values() if not facts.group.error}
    changed = {name: judge.memory for name, judge in judged.items() if judge.memory != state.groups[name].memory}
    if not changed:
        return state
    memory = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    timed_out = {name: judge.timed_out for name, judge in judged.items() if judge.timed_out is not None}
    return msgspec.structs.replace(
        build_cluster_state(state.snapshot, state.policy, memory, state.now), timed_out=timed_out
    )


class _Judge:
    """Judges one group. memory: its next memory; timed_out: the request that timed out in this pass."""

    def __init__(self, group: NodeGroupState, state: ClusterState) -> None:
        self.facts, self.state = group, state
        known = group.memory
        failed = _shifted(known.backoff, state.now)
        if failed is not None and backoff.stale(failed, state.now, state.options):
            failed = None
        self.timed_out: ScaleUpRequest | None = None
        request, failed = self._errors(self._sane(known.request), failed)
        if request is not None:
            request, failed = self._time(request, failed)
        self.memory: GroupMemory = msgspec.structs.replace(
            known, request=request, backoff=failed, failed_instances=group.failed
        )

    def _sane(self, request: ScaleUpRequest | None) -> ScaleUpRequest | None:
        """Return the request, without one from the future: a wrong clock wrote it, and it would keep its group waiting
        until then."""
        now = self.state.now
        if request is None or request.since <= now:
            return request
        return ScaleUpRequest(request.increase, now, now + provision_time(self.facts.group, self.state.options))

    def _errors(
        self, request: ScaleUpRequest | None, failed: Backoff | None
    ) -> tuple[ScaleUpRequest | None, Backoff | None]:
        """Count new errors of requested instances, even while the operation that requests them is still open: failed
        instances are not waited for, and the group is backed off. Several errors at once count as one failure."""
        known = frozenset(self.facts.memory.failed_instances)
        fresh = [name for name in self.facts.failed if name not in known]
        if not fresh or (request is None and not self.facts.growing):
            return request, failed
        errors = [i.error for i in self.facts.group.instances if i.id in fresh and i.error]
        error = min(errors, key=lambda each: each.cls in backoff.FLAT, default=InstanceError(""))
        failed = backoff.fail(failed, self.state.now, self.state.options, error.cls, error.code, error.message)
        left = request.increase - len(fresh) if request is not None else 0
        return (msgspec.structs.replace(request, increase=left) if request is not None and left > 0 else None), failed

    def _time(self, request: ScaleUpRequest, failed: Backoff | None) -> tuple[ScaleUpRequest | None, Backoff | None]:
        """Resolve the request: fulfilled when everything requested is a node and has started; failed when some of it is
        not a node in time."""
        outstanding = self._outstanding(request)
        if outstanding <= 0 and not self.facts.counts[Bucket.NOT_STARTED]:
            return None, None if self._redeemed(request, failed) else failed
        if outstanding <= 0 or request.expected_at >= self.state.now:
            return request, failed
        self.timed_out = request
        message = f"{outstanding} nodes did not join in time"
        return None, backoff.fail(failed, self.state.now, self.state.options, "Unknown", "timeout", message)

    def _redeemed(self, request: ScaleUpRequest, backoff: Backoff | None) -> bool:
        """Return whether everything requested since the last failure has arrived; then the next failure of a flavour
        starts a new back-off sequence. Cluster Autoscaler waits three hours, and so do groups without a pool."""
        return self.facts.group.pool is not None and backoff is not None and backoff.until < request.since

    def _outstanding(self, request: ScaleUpRequest) -> int:
        """Return how many requested instances are not nodes yet. Back-off or lateness does not make one arrive: it is
        no longer upcoming, but the request is not fulfilled. A failed instance is not waited for, and one that was
        late before this request was made belongs to an earlier request."""
        facts, state = self.facts, self.state
        allowed, seen = provision_time(facts.group, state.options), state.memory.unregistered
        before = sum(seen.get(machine, state.now) + allowed < request.since for machine in facts.long_unregistered)
        return facts.target - len(facts.nodes) - len(facts.contested) - len(facts.failed) - before


def _shifted(backoff: Backoff | None, now: float) -> Backoff | None:
    """Correct a failure from the future, which a wrong clock wrote: it counts from now, for its original duration."""
    if backoff is None or backoff.last_failed <= now:
        return backoff
    return msgspec.structs.replace(backoff, last_failed=now, until=now + max(0.0, backoff.until - backoff.last_failed))
