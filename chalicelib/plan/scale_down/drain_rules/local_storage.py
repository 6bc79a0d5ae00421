"""Pods with hostPath or emptyDir volumes block removal because data on the node would be lost, unless the volume is
named in `safe-to-evict-local-volumes` (comma-separated, without trimming) or is in memory."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import DrainContext, Verdict, block


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod
    if not context.options.skip_nodes_with_local_storage:
        return None
    exempt = pod_class.safe_local_volumes.split(",")
    held = next(
        (v.name for v in pod_class.volumes if v.kind in {"hostPath", "emptyDir"} and v.name not in exempt), None
    )
    return block(Reason.of(ReasonCode.LOCAL_STORAGE, volume=held)) if held is not None else None
