"""DaemonSet pods go with the node; they are evicted as far as possible and need no other place."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import EVICT, DrainContext, Verdict


def decide(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict | None:
    """scale-down.md §6; None leaves the pod to the next rule."""
    del pod, context
    return EVICT if cls.is_daemonset else None
