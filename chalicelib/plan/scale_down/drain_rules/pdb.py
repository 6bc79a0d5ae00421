"""Requires that every PodDisruptionBudget that selects the pod allows one more disruption; pods that this plan moves
already count."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import DrainContext, Verdict, block


def decide(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Return the verdict, or None to leave the pod to the next rule."""
    del pod_class
    spent = next((name for name in context.budgets.spent_by(pod) if context.budgets.left(name) < 1), None)
    return block(Reason.of(ReasonCode.NOT_ENOUGH_PDB, budget=spent)) if spent is not None else None
