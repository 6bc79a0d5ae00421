"""`outscaler plan` says which groups of managed pools are opened and grow, with machines and
prices."""

from __future__ import annotations

import io
import json

from chalicelib.cli.output import show
from chalicelib.cli.plan_document import as_document
from chalicelib.cli.plan_output import as_blocks, summary
from chalicelib.model.plan import Plan
from tests.unit.plan.managed_offers import OfferedCluster

TIMES = {"decode": 0.0, "plan": 0.0}


def shown(plan: Plan) -> str:
    out = io.StringIO()
    show(as_blocks(plan, TIMES), out)
    return out.getvalue()


def test_plan_says_which_group_is_opened_with_machine_and_price() -> None:
    plan, _ = OfferedCluster().waiting(8, 1, 4).decided()
    (growth,) = plan.scale_ups
    assert f"\n  open {growth.group}: 2 x s4 z1 on-demand, 0.3800 EUR/h\n" in summary(plan, TIMES)
    (row,) = [line for line in shown(plan).splitlines() if line.startswith(growth.group)][:1]
    assert "open, +2 -> 2" in row


def test_plan_says_of_an_open_group_what_it_buys_without_the_word_open() -> None:
    plan, _ = OfferedCluster().opened("s4", 1).waiting(8, 1, 4).decided()
    (growth,) = plan.scale_ups
    assert not growth.opens
    assert f"\n  {growth.group}: " in summary(plan, TIMES)
    assert " x s4 z1 on-demand, 0." in summary(plan, TIMES)
    assert "open, " not in shown(plan)


def test_plan_says_nothing_of_machines_for_groups_that_a_person_has_made() -> None:
    case = OfferedCluster(catalogue=OfferedCluster().entries[:1])
    case.group("h", max=9, template=case.groups_of_pools()[1][0].template, price=0.01)
    plan, _ = case.waiting(1, 1, 4).decided()
    (growth,) = plan.scale_ups
    assert (growth.group, growth.choice, growth.price) == ("h", None, 0.0)
    assert " x " not in summary(plan, TIMES)


def test_document_has_machine_and_price_of_managed_groups_alone() -> None:
    plan, _ = OfferedCluster().waiting(8, 1, 4).decided()
    document = json.loads(json.dumps(as_document(plan, TIMES)))
    (growth,) = document["scaleUps"]
    assert growth["opens"] is True
    choice = {"declaration": "general", "type": "s4", "zone": "z1", "market": "on-demand"}
    assert growth["choice"] == choice
    assert (growth["price"], growth["currency"]) == (0.38, "EUR")
