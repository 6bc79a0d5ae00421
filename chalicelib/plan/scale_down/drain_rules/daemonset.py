"""DaemonSet pods go with the node; they are evicted on a best-effort basis and need no other place."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import EVICT, DrainContext, Verdict


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod, context
    return EVICT if pod_class.is_daemonset else None
