"""A pod that no controller would recreate blocks removal; by default, so does a pod of an unknown kind of
controller."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import KNOWN_CONTROLLERS, DrainContext, Verdict, block


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod
    if pod_class.owner is None:
        return block(Reason.of(ReasonCode.NOT_REPLICATED))
    if context.options.skip_nodes_with_custom_controller_pods and pod_class.owner.kind not in KNOWN_CONTROLLERS:
        return block(Reason.of(ReasonCode.NOT_REPLICATED, controller=f"{pod_class.owner.kind}/{pod_class.owner.name}"))
    return None
