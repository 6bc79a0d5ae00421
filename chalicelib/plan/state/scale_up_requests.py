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
    changed: dict[str, GroupMemory] = {}
    timed_out: dict[str, ScaleUpRequest] = {}
    for group in state.groups.values():
        if group.group.error:
            continue
        memory, expired = _resolve(group, state)
        if memory != group.memory:
            changed[group.id] = memory
        if expired is not None:
            timed_out[group.id] = expired
    if not changed:
        return state
    memory_after = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    resolved = build_cluster_state(state.snapshot, state.policy, memory_after, state.now)
    return msgspec.structs.replace(resolved, timed_out=timed_out)


def _resolve(group: NodeGroupState, state: ClusterState) -> tuple[GroupMemory, ScaleUpRequest | None]:
    """Return the next memory of a group, and the request that timed out in this pass."""
    request, failed = group.memory.request, group.memory.backoff
    # A wrong clock wrote what is from the future: such a failure counts from now, for its original duration, and such a
    # request would keep its group waiting until then.
    if failed is not None and failed.last_failed > state.now:
        until = state.now + max(0.0, failed.until - failed.last_failed)
        failed = msgspec.structs.replace(failed, last_failed=state.now, until=until)
    if failed is not None and backoff.stale(failed, state.now, state.options):
        failed = None
    if request is not None and request.since > state.now:
        expected_at = state.now + provision_time(group.group, state.options)
        request = ScaleUpRequest(request.increase, state.now, expected_at)
    request, failed = _count_errors(group, state, request, failed)
    expired: ScaleUpRequest | None = None
    if request is not None:
        # Fulfilled when everything requested is a node and has started; failed when some of it is not a node in time.
        outstanding = _outstanding(group, state, request)
        if outstanding <= 0 and not group.counts[Bucket.NOT_STARTED]:
            # Everything requested since the last failure has arrived: the next failure of a flavour starts a new
            # back-off sequence. Cluster Autoscaler waits three hours, and so do groups without a pool.
            if group.group.pool is not None and failed is not None and failed.until < request.since:
                failed = None
            request = None
        elif outstanding > 0 and request.expected_at < state.now:
            message = f"{outstanding} nodes did not join in time"
            failed = backoff.fail(failed, state.now, state.options, "Unknown", "timeout", message)
            expired, request = request, None
    memory = msgspec.structs.replace(group.memory, request=request, backoff=failed, failed_instances=group.failed)
    return memory, expired


def _count_errors(
    group: NodeGroupState, state: ClusterState, request: ScaleUpRequest | None, group_backoff: Backoff | None
) -> tuple[ScaleUpRequest | None, Backoff | None]:
    """Count new errors of requested instances, even while the operation that requests them is still open: failed
    instances are not waited for, and the group is backed off. Several errors at once count as one failure."""
    counted = frozenset(group.memory.failed_instances)
    fresh = [name for name in group.failed if name not in counted]
    if not fresh or (request is None and not group.growing):
        return request, group_backoff
    errors = [instance.error for instance in group.group.instances if instance.id in fresh and instance.error]
    error = min(errors, key=lambda error: error.cls in backoff.FLAT, default=InstanceError(""))
    group_backoff = backoff.fail(group_backoff, state.now, state.options, error.cls, error.code, error.message)
    rest = request.increase - len(fresh) if request is not None else 0
    request = msgspec.structs.replace(request, increase=rest) if request is not None and rest > 0 else None
    return request, group_backoff


def _outstanding(group: NodeGroupState, state: ClusterState, request: ScaleUpRequest) -> int:
    """Return how many requested instances are not nodes yet. Back-off or lateness does not make one arrive: it is no
    longer upcoming, but the request is not fulfilled. A failed instance is not waited for, and one that was late before
    this request was made belongs to an earlier request."""
    allowed, first_seen = provision_time(group.group, state.options), state.memory.unregistered
    earlier = sum(first_seen.get(name, state.now) + allowed < request.since for name in group.long_unregistered)
    return group.target - group.registered - len(group.contested) - len(group.failed) - earlier
