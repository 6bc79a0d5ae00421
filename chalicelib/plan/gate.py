"""Reasons to grow nothing at all in this pass (scale-up.md §1, state.md §4). Pods keep their place in the answer."""

from __future__ import annotations

from chalicelib.model.plan import Ignored
from chalicelib.model.reason import Code, Reason
from chalicelib.plan.demand import Pending
from chalicelib.plan.world import World


def held_back(world: World, pending: Pending) -> Pending:
    """The same, or nothing wanted and everybody told why."""
    health = world.health
    checks = (
        (not health.healthy,
         Reason.of(Code.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered)),
        (health.ready == 0 and not world.options.scale_up_from_zero,
         Reason.of(Code.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered,
                   option="scaleUpFromZero")),
    )
    reason = next((reason for fails, reason in checks if fails), None)
    if reason is None or not pending.queue:
        return pending
    pods = tuple(sorted(pod.key for demand in pending.queue if demand.counts for pod in demand.pods))
    ignored = (*pending.ignored, Ignored(pods, reason)) if pods else pending.ignored
    return Pending((), ignored, pending.nominated, pending.hold)
