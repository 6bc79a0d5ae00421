"""A pod that has ended needs no place: Failed, or Succeeded and not to be restarted."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules.verdict import EVICT, DrainContext, Verdict


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del context
    ended = pod.phase == "Failed" or (pod.phase == "Succeeded" and pod_class.restart_policy in {"Never", "OnFailure"})
    return EVICT if ended else None
