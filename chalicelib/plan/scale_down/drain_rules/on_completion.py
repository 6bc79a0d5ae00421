"""`safe-to-evict: "on-completion"`: the node may be chosen, and waits until the pod is done."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import WAIT, DrainContext, Verdict


def decide(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict | None:
    """scale-down.md §6; None leaves the pod to the next rule."""
    del pod, context
    return WAIT if cls.safe_to_evict == "on-completion" else None
