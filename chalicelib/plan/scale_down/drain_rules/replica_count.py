"""Requires that the controller exists and has enough replicas. This rule comes before "safe to evict" because a pod
whose controller is gone would not be recreated. It applies only with skipNodesWithCustomControllerPods, and to
controller kinds that could be read. A controller of another API group is never read, so the rule does not apply to
it."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import DrainContext, Verdict, block


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    if pod_class.owner is None or not context.options.skip_nodes_with_custom_controller_pods:
        return None
    kind, name = pod_class.owner.kind, pod_class.owner.name
    if kind not in context.controller_kinds or not pod_class.owner.built_in:
        return None
    controller = context.controllers.get((kind, pod.namespace, name))
    if controller is None:
        return block(Reason.of(ReasonCode.CONTROLLER_NOT_FOUND, controller=f"{kind}/{name}"))
    least = context.options.min_replica_count
    if kind in {"ReplicaSet", "ReplicationController"} and (controller.replicas or 0) < least:
        return block(Reason.of(ReasonCode.MIN_REPLICAS, replicas=controller.replicas or 0, min=least))
    return None
