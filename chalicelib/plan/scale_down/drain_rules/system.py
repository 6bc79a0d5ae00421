"""A kube-system pod that no PodDisruptionBudget selects blocks removal. blockingSystemPodDistruptionTimeout limits this
to the first time of the pod: an older one is movable, and later rules are skipped."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import MOVABLE, DrainContext, Verdict, block


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod_class
    if not context.options.skip_nodes_with_system_pods or pod.namespace != "kube-system" or context.budgets.of(pod.cls):
        return None
    if context.now - pod.created > context.options.blocking_system_pod_disruption_timeout:
        return MOVABLE
    return block(Reason.of(ReasonCode.KUBE_SYSTEM))
