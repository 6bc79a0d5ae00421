"""`outscaler plan`, `explain node` and `cost` show where consolidation ends: which nodes leave and
stay, which are marked, and the price.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cli import explain_node
from chalicelib.cli.explain_view import ExplainContext
from chalicelib.cli.explain_view import as_document as explanation_document
from chalicelib.cli.plan_document import as_document
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.plan_output import summary
from chalicelib.model.cluster_bill import ClusterBill
from chalicelib.model.memory import Memory
from chalicelib.model.plan import ConsolidationReport, Health, HorizonReport, NodeVerdict, Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.views.cost_view import cost_view
from tests.builders import NOW
from tests.unit.plan.consolidation_fixture import fixture, policy, three_halves

TIMES = {"decode": 0.0, "plan": 0.0}
SINCE = NOW - 300.0
GOES, RESERVED, STAYS = "a", "b", "c"
HORIZON = HorizonReport(
    "h1", SINCE, 0.6, 0.4, {GOES: 3, RESERVED: 2}, (GOES, "gone-1"), marked=2, currency="EUR"
)


def horizon_plan(mode: str = "full", horizon: HorizonReport | None = HORIZON) -> Plan:
    """A plan of nodes a, b and c, of which a leaves and b is reserved."""
    needed = Reason.of(ReasonCode.NOT_UNDERUTILIZED)
    verdicts = tuple(NodeVerdict(name, needed) for name in (GOES, RESERVED, STAYS))
    report = ConsolidationReport(mode, horizon=horizon)
    health = Health(registered=3, ready=3)
    return Plan("p", "prod", NOW, unremovable=verdicts, consolidation=report, health=health)


def test_plan_says_how_many_nodes_leave_are_marked_and_the_price_at_the_end() -> None:
    assert (
        "Nodes that leave: 1 of 3, 2 marked, 1 gone already; the others stay. Price at the end: "
        "0.40 EUR an hour, now 0.60 EUR."
    ) in summary(horizon_plan(), TIMES).splitlines()


def test_steer_16_plan_in_shadow_says_which_nodes_would_leave_and_the_price() -> None:
    horizon = msgspec.structs.replace(HORIZON, levels={}, going=(GOES,), marked=0)
    assert (
        "Nodes that would leave: 1 of 3; the others would stay. Price at the end: 0.40 EUR an "
        "hour, now 0.60 EUR."
    ) in summary(horizon_plan("shadow", horizon), TIMES).splitlines()


def test_plan_without_a_horizon_has_no_word_about_an_end() -> None:
    plan = horizon_plan(horizon=None)
    assert "leave" not in summary(plan, TIMES)
    assert "horizon" not in as_document(plan, TIMES)["consolidation"]
    assert cost_view(ClusterBill(), plan).end_of_plan is None


def test_plan_json_has_the_horizon_with_its_instant_as_text() -> None:
    assert as_document(horizon_plan(), TIMES)["consolidation"]["horizon"] == {
        "id": "h1",
        "since": format_time(SINCE),
        "price": 0.6,
        "end": 0.4,
        "currency": "EUR",
        "levels": {GOES: 3, RESERVED: 2},
        "going": [GOES, "gone-1"],
        "marked": 2,
    }


def explained(plan: Plan, name: str) -> dict[str, Any]:
    """The answer of `outscaler explain node`."""
    build = fixture(three_halves())
    case = PlanInputs(build.snapshot(), policy(), Memory(), NOW, 0, None, (), 0.0)
    scene = ExplainContext(case, PlannedCase(plan, Memory(), TIMES))
    return explanation_document(explain_node.answer(scene, name), scene)


@pytest.mark.parametrize(
    ("name", "fate", "leaves", "level"),
    [
        (GOES, "will leave, marked at level 3 by taints with the value h1", True, 3),
        (
            RESERVED,
            (
                "will stay and keep room for pods that may be nowhere else, marked at level 2 by "
                "taints with the value h1"
            ),
            False,
            2,
        ),
        (STAYS, "will stay", False, 0),
    ],
)
def test_explain_node_says_whether_it_leaves_its_marks_and_the_price_at_the_end(
    name: str, fate: str, leaves: bool, level: int
) -> None:
    answer = explained(horizon_plan(), name)
    since = format_time(SINCE)
    line = f"Horizon h1 of {since}: it {fate}; price at the end: 0.40 EUR an hour."
    assert line in answer["says"]
    assert answer["consolidation"]["horizon"] == {
        "id": "h1",
        "since": since,
        "leaves": leaves,
        "level": level,
        "end": 0.4,
    }


def test_steer_16_explain_node_in_shadow_says_that_it_would_leave_without_marks() -> None:
    horizon = msgspec.structs.replace(HORIZON, levels={})
    answer = explained(horizon_plan("shadow", horizon), GOES)
    [said] = [line for line in answer["says"] if line.startswith("Horizon")]
    assert "it would leave; price at the end: 0.40 EUR an hour" in said


def test_explain_node_without_a_horizon_says_nothing_of_one() -> None:
    answer = explained(horizon_plan(horizon=None), GOES)
    assert "horizon" not in answer["consolidation"]
    assert not any("Horizon" in line for line in answer["says"])


def test_cost_has_the_price_at_the_end_of_the_present_plan() -> None:
    end = cost_view(ClusterBill(), horizon_plan()).end_of_plan
    assert end is not None
    assert (end.currency, end.per_hour) == ("EUR", 0.4)
    assert "Price at the end: 0.40 EUR an hour" in end.words
