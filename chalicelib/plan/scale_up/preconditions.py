"""Preconditions for scaling up for pending pods in this pass. When one fails, pods keep their place in the report."""

from __future__ import annotations

import msgspec

from chalicelib.model.plan import IgnoredPods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pending_pods import PendingPods


def blocking_reason(state: ClusterState) -> Reason | None:
    """Return why no scale-up is allowed in this pass, whatever requests it; None if it is allowed."""
    health = state.health
    checks = (
        (
            not health.healthy,
            Reason.of(ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered),
        ),
        (
            health.ready == 0 and not state.options.scale_up_from_zero,
            Reason.of(
                ReasonCode.CLUSTER_UNHEALTHY,
                unready=health.unready,
                registered=health.registered,
                option="scaleUpFromZero",
            ),
        ),
    )
    return next((reason for fails, reason in checks if fails), None)


def apply_preconditions(state: ClusterState, pending: PendingPods) -> PendingPods:
    """Apply the preconditions: if one fails, drop all demand and give every pod the reason."""
    reason = blocking_reason(state)
    if not pending.queue:
        return pending
    if reason is not None:
        return PendingPods((), _with(pending, reason), pending.nominated, pending.hold)
    return pending if state.policy.scale_up.unschedulable_pods else _put_aside(pending)


def _put_aside(pending: PendingPods) -> PendingPods:
    """Handle rules-only scale-up: pods use the existing room and keep a node that they will run on, but buy no
    nodes."""
    queue = tuple(msgspec.structs.replace(demand, counts=False) for demand in pending.queue)
    return msgspec.structs.replace(pending, queue=queue, ignored=_with(pending, Reason.of(ReasonCode.PODS_OFF)))


def _with(pending: PendingPods, reason: Reason) -> tuple[IgnoredPods, ...]:
    """Return the ignored pods, including all pods for which a node might have been bought."""
    pods = tuple(sorted(pod.key for demand in pending.queue if demand.counts for pod in demand.pods))
    return (*pending.ignored, IgnoredPods(pods, reason)) if pods else pending.ignored
