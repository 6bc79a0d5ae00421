"""Every PodDisruptionBudget that selects the pod must allow one more; what this plan moves already counts."""

from __future__ import annotations

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules.verdict import DrainContext, Verdict, block


def decide(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict | None:
    """scale-down.md §6; None leaves the pod to the next rule."""
    del cls
    spent = next((name for name in context.budgets.spent_by(pod) if context.budgets.left(name) < 1), None)
    return block(Reason.of(ReasonCode.NOT_ENOUGH_PDB, budget=spent)) if spent is not None else None
