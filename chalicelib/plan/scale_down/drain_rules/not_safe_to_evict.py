"""`safe-to-evict: "false"` blocks the removal of the node until the annotation is removed. Only the exact value
counts."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import DrainContext, Verdict, block


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod, context
    return block(Reason.of(ReasonCode.NOT_SAFE_TO_EVICT)) if pod_class.safe_to_evict == "false" else None
