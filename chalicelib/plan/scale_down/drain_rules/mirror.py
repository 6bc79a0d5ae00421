"""Mirror pods belong to their kubelet; they go with the node and are not moved."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import SKIP, DrainContext, Verdict


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod, context
    return SKIP if pod_class.mirror else None
