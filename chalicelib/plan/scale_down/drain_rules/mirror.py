"""Mirror pods belong to their kubelet; they go with the node and are made again with the next one."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import SKIP, DrainContext, Verdict


def decide(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict | None:
    """scale-down.md §6; None leaves the pod to the next rule."""
    del pod, context
    return SKIP if cls.mirror else None
