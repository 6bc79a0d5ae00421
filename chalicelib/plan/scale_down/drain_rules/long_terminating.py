"""A pod that should have been gone over 30 seconds ago is ignored."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import SKIP, DrainContext, Verdict
from chalicelib.plan.scale_down.utilization import is_long_terminating


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod_class
    return SKIP if is_long_terminating(pod, context.now) else None
