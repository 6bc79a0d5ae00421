"""`safe-to-evict: "on-completion"`: the node may be selected, and the removal waits until the pod has completed."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import WAIT, DrainContext, Verdict


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod, context
    return WAIT if pod_class.safe_to_evict == "on-completion" else None
