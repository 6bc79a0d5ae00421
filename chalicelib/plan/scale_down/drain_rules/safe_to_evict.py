"""`safe-to-evict: "true"` makes a pod movable whatever later rules say, including PodDisruptionBudgets; the eviction
itself still checks those."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import MOVABLE, DrainContext, Verdict


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod, context
    return MOVABLE if pod_class.safe_to_evict == "true" else None
