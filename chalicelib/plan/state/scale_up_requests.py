"""Resolves scale-up requests: the requested nodes arrived, failed, or timed out.

This happens before anything is planned, as in Cluster Autoscaler. Otherwise, the pass that detects
the failure would scale up the same group once more. Each purchase is judged by its own date, so
that the group is backed off when the oldest one is late, however often it has grown since. See
docs/reference/node-groups.md "Scale-up requests".
"""

from __future__ import annotations

import math

import msgspec

from chalicelib.model.group import InstanceError
from chalicelib.model.memory import Backoff, GroupMemory, PurchaseRow, ScaleUpRequest
from chalicelib.model.operation import OperationKind
from chalicelib.model.purchases import request_of, still_missing, without_failed
from chalicelib.plan.state import backoff
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.plan.state.readiness import Bucket
from chalicelib.policy.timeouts import provision_time

NOT_JOINED = "timeout"
"""The code of a back-off because nodes did not join in time."""


def resolve_scale_up_requests(state: ClusterState) -> ClusterState:
    """Return the cluster state with requests that were fulfilled or timed out, and with back-off
    that has begun or ended."""
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


def _resolve(
    group: NodeGroupState, state: ClusterState
) -> tuple[GroupMemory, ScaleUpRequest | None]:
    """Return the next memory of a group, and the purchases that timed out in
    this pass as one request."""
    request, failed = group.memory.request, group.memory.backoff
    # A wrong clock wrote what is from the future: such a failure counts from now, for its original
    # duration, and such a request would keep its group waiting until then.
    if failed is not None and failed.last_failed > state.now:
        until = state.now + max(0.0, failed.until - failed.last_failed)
        failed = msgspec.structs.replace(failed, last_failed=state.now, until=until)
    if failed is not None and backoff.stale(failed, state.now, state.options):
        failed = None
    count = _Errors(group, state, failed)
    request, failed = (
        count.without_failed(_not_from_the_future(request, group, state)),
        count.backoff,
    )
    expired: ScaleUpRequest | None = None
    if request is not None:
        request, expired, arrived = _judged(request, group, state)
        if expired is not None:
            message = f"{expired.increase} nodes did not join in time"
            failed = backoff.fail(failed, state.now, state.options, "Unknown", NOT_JOINED, message)
            if group.group.managed is not None:
                failed = backoff.rested(failed, state.now, _attempts_elsewhere(group, state))
        # Everything requested since the last failure has arrived: the next failure of a
        # flavour starts a new back-off sequence. Cluster Autoscaler waits three hours, and so
        # do groups without a pool.
        is_over = request is None and expired is None
        if (
            is_over
            and group.group.pool is not None
            and failed is not None
            and failed.until < arrived
        ):
            failed = None
    memory = msgspec.structs.replace(
        group.memory,
        request=request,
        backoff=failed,
        failed_instances=group.failed,
        failed_early=count.early,
    )
    return memory, expired


def failures_to_join(state: ClusterState) -> dict[str, dict[str, Backoff]]:
    """Return managed pool -> its groups whose nodes did not join in time, since a node of the pool
    has joined for the last time, with their back-offs."""
    pools: dict[str, list[NodeGroupState]] = {}
    for group in state.groups.values():
        if group.group.managed is not None:
            pools.setdefault(declaration_of(group.group), []).append(group)
    failures: dict[str, dict[str, Backoff]] = {}
    for pool, groups in pools.items():
        joined_at = max((node.created for group in groups for node in group.nodes), default=0.0)
        for group in groups:
            failed = group.memory.backoff
            if failed is not None and failed.code == NOT_JOINED and failed.last_failed > joined_at:
                failures.setdefault(pool, {})[group.id] = failed
    return failures


def _attempts_elsewhere(group: NodeGroupState, state: ClusterState) -> int:
    """Return the most failures in a row of another group of a managed pool to let nodes join."""
    failures = failures_to_join(state).get(declaration_of(group.group), {})
    attempts = (
        failed.attempt
        for name, failed in failures.items()
        if name != group.id and not backoff.stale(failed, state.now, state.options)
    )
    return max(attempts, default=0)


def _not_from_the_future(
    request: ScaleUpRequest | None, group: NodeGroupState, state: ClusterState
) -> ScaleUpRequest | None:
    """Return the request with purchases that a wrong clock has dated as if they were made now."""
    if request is None or all(row.since <= state.now for row in request.purchases):
        return request
    expected_at = state.now + provision_time(group.group, state.options)
    rows = (
        row
        if row.since <= state.now
        else msgspec.structs.replace(
            row, since=state.now, expected_at=expected_at, planned_at=min(row.planned_at, state.now)
        )
        for row in request.purchases
    )
    return request_of(rows, request.given_up)


def _judged(
    request: ScaleUpRequest, group: NodeGroupState, state: ClusterState
) -> tuple[ScaleUpRequest | None, ScaleUpRequest | None, float]:
    """Return what is still waited for, what timed out, and when the last purchase
    that has arrived was made.

    A purchase is fulfilled when all its nodes are nodes that have started, and fails when one of
    them is not a node in time. Nodes that join fulfil the oldest purchase first."""
    given_up = min(request.given_up, _without_instance(group))
    rows = request.purchases
    outstanding = _outstanding(group, state, rows[0], given_up)
    missing = still_missing(rows, outstanding)
    unstarted = still_missing(rows, max(0, outstanding) + group.counts[Bucket.STARTING])
    late = [at for at, row in enumerate(rows) if missing[at] and row.expected_at < state.now]
    arrived = [at for at in range(len(rows)) if not unstarted[at]]
    left = [row for at, row in enumerate(rows) if at not in {*late, *arrived}]
    last = max((rows[at].since for at in arrived), default=0.0)
    if not late:
        return request_of(left, given_up), None, last
    nodes, oldest = sum(missing[at] for at in late), rows[late[0]]
    # An instance that exists is told from those of later purchases by its age; what has
    # none stays in the target.
    never_created = max(0, nodes - len(group.long_unregistered))
    given_up = min(given_up + never_created, _without_instance(group))
    return request_of(left, given_up), ScaleUpRequest(nodes, oldest.since, oldest.expected_at), last


class _Errors:
    """Counts new errors of requested instances, even while the operation that requests them is
    still open: failed instances are not waited for, and the group is backed off. Several errors at
    once count as one failure. early: errors of instances whose scale-up is open; it is no purchase
    yet."""

    def __init__(
        self, group: NodeGroupState, state: ClusterState, group_backoff: Backoff | None
    ) -> None:
        counted = frozenset(group.memory.failed_instances)
        fresh = frozenset(name for name in group.failed if name not in counted)
        is_ours = bool(fresh) and (group.memory.request is not None or group.growing)
        self.backoff = group_backoff
        self.early = group.memory.failed_early if group.growing else 0
        self._born: list[float] = []
        if not is_ours:
            return
        instances = {i.id: i for i in group.group.instances if i.id in fresh}
        errors = [instance.error for instance in instances.values() if instance.error]
        error = min(errors, key=lambda error: error.cls in backoff.FLAT, default=InstanceError(""))
        self.backoff = backoff.fail(
            group_backoff, state.now, state.options, error.cls, error.code, error.message
        )
        open_since = _growing_since(group, state)
        for name, instance in sorted(instances.items()):
            born = instance.created or min(
                state.memory.unregistered.get(name, state.now), state.now
            )
            if group.growing and born >= math.floor(open_since):
                self.early += 1
            else:
                self._born.append(born)

    def without_failed(self, request: ScaleUpRequest | None) -> ScaleUpRequest | None:
        """Return the request without the failed instances that it had asked for."""
        if request is None or not self._born:
            return request
        return request_of(without_failed(request.purchases, self._born), request.given_up)


def _growing_since(group: NodeGroupState, state: ClusterState) -> float:
    """Return when the open scale-up of a group was planned."""
    return min(
        (
            operation.spec.created_at
            for operation in state.memory.operations
            if operation.is_open
            and operation.spec.group == group.id
            and operation.spec.kind is OperationKind.SCALE_UP
        ),
        default=state.now,
    )


def _without_instance(group: NodeGroupState) -> int:
    """Return how many nodes of the target have no instance."""
    existing = len(group.nodes) + len(group.contested) + len(group.failed) + len(group.unregistered)
    return max(0, group.target - existing)


def _outstanding(
    group: NodeGroupState, state: ClusterState, oldest_row: PurchaseRow, given_up: int
) -> int:
    """Return how many requested instances are not nodes yet. Back-off or lateness does not make
    one arrive: it is no longer upcoming, but the request is not fulfilled. A failed instance is not
    waited for, and a late one that is older than the oldest purchase belongs to an earlier one."""
    earlier = sum(_born_before(name, oldest_row, group, state) for name in group.long_unregistered)
    return (
        group.target
        - group.registered
        - len(group.contested)
        - len(group.failed)
        - earlier
        - given_up
    )


def _born_before(
    name: str, purchase: PurchaseRow, group: NodeGroupState, state: ClusterState
) -> bool:
    """Return whether an instance was seen before a purchase was planned. Where that instant is
    unknown, an instance counts that was late when it was made."""
    first_seen = state.memory.unregistered.get(name, state.now)
    if purchase.planned_at:
        return first_seen <= purchase.planned_at
    return first_seen + provision_time(group.group, state.options) < purchase.since
