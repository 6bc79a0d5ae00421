"""`safe-to-evict: "false"` holds the node until somebody removes the annotation. Only the exact value counts."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import DrainContext, Verdict, block


def decide(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict | None:
    """scale-down.md §6; None leaves the pod to the next rule."""
    del pod, context
    return block(Reason.of(ReasonCode.NOT_SAFE_TO_EVICT)) if cls.safe_to_evict == "false" else None
