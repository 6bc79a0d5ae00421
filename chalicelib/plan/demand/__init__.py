"""What asks for capacity in a pass: pending pods, scaling rules and headroom, collected from
the cluster state alone.

Here: pending pods, headroom, scaling rules; pods and headroom ask for room, rules ask for nodes.
Not here: the nodes that are planned for them, in this order (plan/scale_up/scale_up_planner.py).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity that its owner asks for. verdict: why no node is added for it in this pass, whatever
    room the limits leave; None if nodes may be added."""

    verdict: Reason | None = None

    @property
    def owner(self) -> str:
        """Who asks, as reports and memory name it: a pod, an entry of
        headroom, a rule on a pool."""
        raise NotImplementedError


def blocking_reason(state: ClusterState) -> Reason | None:
    """Return why no scale-up is allowed in this pass, whatever requests it; None if it is
    allowed."""
    health = state.health
    figures = {"unready": health.unready, "registered": health.registered}
    if not health.healthy:
        return Reason.of(ReasonCode.CLUSTER_UNHEALTHY, **figures)
    if health.ready == 0 and not state.options.scale_up_from_zero:
        return Reason.of(ReasonCode.CLUSTER_UNHEALTHY, **figures, option="scaleUpFromZero")
    return None
