"""`safe-to-evict: "true"` lets a pod go whatever comes later in the table, budgets included: the eviction itself still
asks them."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import MOVABLE, DrainContext, Verdict


def decide(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict | None:
    """scale-down.md §6; None leaves the pod to the next rule."""
    del pod, context
    return MOVABLE if cls.safe_to_evict == "true" else None
