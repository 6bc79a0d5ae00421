"""`outscaler explain pod` and `explain group` say what managed pools have for a pod, and what a
machine is of which no group is open."""

from __future__ import annotations

import io

import msgspec

from chalicelib.cli import explain_group, explain_pod
from chalicelib.cli.explain_view import ExplainContext, Explanation, as_blocks
from chalicelib.cli.output import show
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.policy.settings.managed_pools import PoolLimits
from tests.builders import NOW
from tests.unit.plan.managed_offers import GENERAL, OfferedCluster, entry


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
    assert "which is opened with 1 x c4 z1 on-demand." in explanation.says[0]
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


def name_of(case: OfferedCluster, kind: str) -> str:
    """The name of the group of a type that could be opened."""
    groups = case.groups_of_pools()[1]
    names = {group.managed.choice.instance_type: group.id for group in groups if group.managed}
    return names[kind]


def test_explain_group_says_of_a_machine_that_another_one_is_better() -> None:
    types = entry("s4", price=0.19), entry("old", price=0.25)
    case = OfferedCluster(catalogue=types).waiting(1, 1, 1)
    context = context_of(case)
    explanation = explain_group.answer(context, name_of(case, "old"))
    assert explanation.says == (
        (
            f"Group {name_of(case, 'old')} is not open: machine old z1 on-demand of managed pool "
            "general."
        ),
        (
            "Another machine of its managed pool has at least the room at no higher price (s4 z1 "
            "on-demand, 0.1900 EUR an hour)."
        ),
    )
    assert explanation.data["verdict"] == "notOpen"
    assert [reason["code"] for reason in explanation.data["reasons"]] == ["CandidateDominated"]
    text = shown(explanation, context)
    assert "price an hour   0.2500 EUR" in text


def test_explain_group_says_of_a_machine_that_its_group_would_be_opened() -> None:
    case = OfferedCluster().waiting(8, 1, 4)
    explanation = explain_group.answer(context_of(case), name_of(case, "s4"))
    assert explanation.says[1] == "It would be opened now with 2 nodes, for 8 pods."
    assert explanation.data["verdict"] == "opens"


def test_explain_group_says_that_a_machine_is_kept_by_a_limit_or_a_back_off() -> None:
    limited = msgspec.structs.replace(GENERAL, limits=PoolLimits(nodes=1))
    case = OfferedCluster(limited).opened("s8", 1)
    says = explain_group.answer(context_of(case), name_of(case, "r4")).says
    assert says[1] == "Limit of its managed pool reached (general: nodes 1 of 1)."
    failed = Backoff(until=NOW + 600, duration=600, last_failed=NOW, cls="OutOfStock")
    case = OfferedCluster()
    name = name_of(case, "r4")
    memory = Memory(groups={name: GroupMemory(backoff=failed)})
    (_, why) = explain_group.answer(context_of(case, memory), name).says
    assert "OutOfStock" in why


def test_explain_group_says_of_a_machine_that_nothing_needs_it() -> None:
    case = OfferedCluster()
    (_, why) = explain_group.answer(context_of(case), name_of(case, "r4")).says
    assert why == "It could be opened; nothing needs it now, or others are cheaper."
