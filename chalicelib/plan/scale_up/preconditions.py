"""Reasons to grow nothing at all for pods in this pass (scale-up.md §1, state.md §4; huaweicloud-cce.md A1.1). Pods
keep their place in the answer.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.plan import IgnoredPods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pending_pods import PendingPods


def blocking_reason(world: ClusterState) -> Reason | None:
    """Why nothing is grown in this pass, whoever wants it; None if it may be."""
    health = world.health
    checks = (
        (
            not health.healthy,
            Reason.of(ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered),
        ),
        (
            health.ready == 0 and not world.options.scale_up_from_zero,
            Reason.of(
                ReasonCode.CLUSTER_UNHEALTHY,
                unready=health.unready,
                registered=health.registered,
                option="scaleUpFromZero",
            ),
        ),
    )
    return next((reason for fails, reason in checks if fails), None)


def apply_preconditions(world: ClusterState, pending: PendingPods) -> PendingPods:
    """The same, or nothing wanted and everybody told why."""
    reason = blocking_reason(world)
    if not pending.queue:
        return pending
    if reason is not None:
        return PendingPods((), _with(pending, reason), pending.nominated, pending.hold)
    return pending if world.policy.scale_up.unschedulable_pods else _put_aside(pending)


def _put_aside(pending: PendingPods) -> PendingPods:
    """Only rules make groups grow (A1.1): pods take the room that there is, and keep a node that they will come to."""
    queue = tuple(msgspec.structs.replace(demand, counts=False) for demand in pending.queue)
    return msgspec.structs.replace(pending, queue=queue, ignored=_with(pending, Reason.of(ReasonCode.PODS_OFF)))


def _with(pending: PendingPods, reason: Reason) -> tuple[IgnoredPods, ...]:
    """What is ignored, and with it all pods that a node might have been bought for."""
    pods = tuple(sorted(pod.key for demand in pending.queue if demand.counts for pod in demand.pods))
    return (*pending.ignored, IgnoredPods(pods, reason)) if pods else pending.ignored
