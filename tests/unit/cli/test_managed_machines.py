"""`outscaler explain pod` and `explain group` say what managed pools have for a pod, and what a
machine is of which no group is open."""

from __future__ import annotations

import io

from chalicelib.cli import explain_pod
from chalicelib.cli.explain_view import ExplainContext, Explanation, as_blocks
from chalicelib.cli.output import show
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.memory import Memory
from tests.builders import NOW
from tests.unit.plan.managed_offers import OfferedCluster


def context_of(case: OfferedCluster, memory: Memory | None = None) -> ExplainContext:
    snapshot, policy = case.offered_snapshot(), case.offered_policy()
    known = memory or Memory()
    inputs = PlanInputs(snapshot, policy, known, NOW, 0, None, (), 0.0)
    plan, after = case.decided(known)
    return ExplainContext(inputs, PlannedCase(plan, after, {}))


def shown(explanation: Explanation, context: ExplainContext) -> str:
    out = io.StringIO()
    show(as_blocks(explanation, context), out)
    return out.getvalue()


def test_explain_pod_shows_what_is_left_of_a_declaration_and_the_cheapest_that_fit() -> None:
    context = context_of(OfferedCluster().waiting(1, 3, 4))
    (growth,) = context.plan.scale_ups
    explanation = explain_pod.answer(context, growth.pods[0])
    words = "5 machine types x zones x markets > 5 candidates > 4 fit the pod."
    assert explanation.says[-1] == f"general: {words}"
    text = shown(explanation, context)
    assert "Cheapest machines that fit" in text
    assert "c4 z1 on-demand   0.1500 EUR" in text
    (pool,) = explanation.data["managedPools"]
    assert [machine["type"] for machine in pool["cheapest"]] == ["c4", "s4", "r4", "s8"]


def test_explain_pod_says_that_it_fits_no_machine_of_a_declaration() -> None:
    context = context_of(OfferedCluster().waiting(1, 64, 4))
    (unplaced,) = context.plan.unschedulable
    explanation = explain_pod.answer(context, unplaced.pods[0])
    assert explanation.says[-1].endswith("> 5 candidates > 0 fit the pod.")
    assert "Cheapest machines" not in shown(explanation, context)
