"""`outscaler plan` and `explain node` show what consolidation does, what it saves,
and why other nodes stay.
"""

from __future__ import annotations

import io
from typing import Any

from chalicelib.cli import explain_group, explain_node
from chalicelib.cli.explain_node import remedy
from chalicelib.cli.explain_view import ExplainContext
from chalicelib.cli.explain_view import as_document as explanation_document
from chalicelib.cli.output import show
from chalicelib.cli.plan_document import as_document
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.plan_output import as_blocks, summary
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder
from tests.cases import each_row
from tests.unit.plan.consolidation_fixture import (
    TYPES,
    Result,
    decide,
    fixture,
    one_beside_a_full_one,
    policy,
    three_halves,
)

TIMES = {"decode": 0.0, "plan": 0.0}
EUROS = NodePrices(
    instance_types={kind: price for kind, (_, _, price) in TYPES.items()}, currency="EUR"
)


def shown(plan: Plan) -> str:
    out = io.StringIO()
    show(as_blocks(plan, TIMES), out)
    return out.getvalue()


def test_plan_shows_a_replacement_with_what_it_saves_and_its_state() -> None:
    plan = decide(fixture(one_beside_a_full_one()), policy(more={"prices": EUROS})).plan
    text = shown(plan)
    assert "Consolidation saves 0.10 EUR an hour by 1 move." in text
    assert "Replace a by 1 of s" in text
    assert "saves 0.10 EUR an hour (50%), score 1.00" in text
    assert "buying new nodes" in text
    assert "for 0 pods and 1 replacement" in text
    assert any(line.startswith("b ") and "NotWorthDisruption" in line for line in text.splitlines())
    assert "InReplacement" not in text


def test_plan_shows_drains_into_room_that_exists_and_that_they_are_not_unneeded() -> None:
    plan = decide(fixture(three_halves())).plan
    text = shown(plan)
    assert "Drain a into room that exists" in text
    assert "begins now" in text
    assert "Remove 0 of" in summary(plan, TIMES)
    [first, second] = as_document(plan, TIMES)["scaleDowns"]
    assert {first["reason"], second["reason"]} == {"consolidation"}


def test_plan_in_shadow_says_what_would_be_saved() -> None:
    plan = decide(fixture(one_beside_a_full_one()), mode=ConsolidationMode.SHADOW).plan
    assert (
        "Consolidation would save 0.10 an hour by 1 move (mode shadow: nothing is done)."
        in summary(plan, TIMES)
    )
    assert "would save 0.10 an hour (50%)" in shown(plan)
    assert as_document(plan, TIMES)["scaleUps"] == []


def test_plan_without_prices_says_so_and_shows_no_price_of_zero() -> None:
    plan = decide(fixture(three_halves()), policy(more={"prices": None})).plan
    text = shown(plan)
    assert "Consolidation knows no price of a node, so it does nothing (spec.prices)." in text
    [pool] = [line.split() for line in text.splitlines() if line.startswith("pool ")]
    assert pool == ["pool", "unknown", "-", "-", "3"]


def test_plan_json_has_moves_pools_and_reasons_of_consolidation() -> None:
    plan = decide(fixture(one_beside_a_full_one()), policy(more={"prices": EUROS})).plan
    data = as_document(plan, TIMES)
    found = data["consolidation"]
    assert found["mode"] == "full"
    [move] = found["moves"]
    assert (move["nodes"], move["buys"]) == (["a"], [{"group": "s", "nodes": 1, "price": 0.1}])
    assert (move["price"], move["saves"], move["score"], move["state"]) == (0.2, 0.1, 1.0, "buying")
    assert (move["currency"], move["pool"]) == ("EUR", "pool")
    assert [(pool["pool"], pool["price"], pool["disruption"]) for pool in found["pools"]] == [
        ("pool", 0.4, 12.0)
    ]
    codes = {row["node"]: row["code"] for row in found["stays"]}
    assert codes == {"a": "InReplacement", "b": "NotWorthDisruption"}
    [growth] = data["scaleUps"]
    assert growth["replacement"] == move["replacement"] != ""


def test_plan_without_consolidation_has_no_word_about_it() -> None:
    plan = decide(fixture(one_beside_a_full_one()), mode=ConsolidationMode.OFF).plan
    assert "consolidation" not in as_document(plan, TIMES)
    assert "onsolidat" not in shown(plan)


def test_plan_names_a_reason_once_if_it_also_keeps_the_node_from_removal() -> None:
    build = fixture({"a": ("m", ((2, "500m", "2Gi"),)), "b": ("m", ((8, "500m", "2Gi"),))})
    build.nodes[0].annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] = "true"
    text = shown(decide(build).plan)
    assert text.count("ScaleDownDisabledAnnotation") == 1


def explained(result: Result, build: ClusterBuilder, name: str) -> dict[str, Any]:
    """The answer of `outscaler explain node`."""
    case = PlanInputs(build.snapshot(), policy(), Memory(), NOW, 0, None, (), 0.0)
    scene = ExplainContext(case, PlannedCase(result.plan, result.memory, TIMES))
    return explanation_document(explain_node.answer(scene, name), scene)


def test_explain_node_shows_the_move_and_the_history_of_its_replacement() -> None:
    build = fixture(one_beside_a_full_one())
    answer = explained(decide(build), build, "a")
    [said] = [line for line in answer["says"] if line.startswith("Consolidation")]
    assert said == (
        "Consolidation: Replace a by 1 of s: saves 0.10 an hour (50%), score 1.00; buying new "
        "nodes."
    )
    [row] = answer["consolidation"]["replacements"]
    assert (row["state"], row["nodes"], row["buys"], row["done"], row["of"]) == (
        "buying",
        ("a",),
        {"s": 1},
        0,
        3,
    )
    assert answer["consolidation"]["move"]["replacement"] == row["id"]
    assert len(row["operations"]) == 1
    assert not any(line.startswith("What helps") for line in answer["says"]), "it goes"


def test_explain_node_says_why_it_is_not_consolidated_and_what_helps() -> None:
    build = fixture(one_beside_a_full_one())
    answer = explained(decide(build), build, "b")
    says = " ".join(answer["says"])
    assert "It is not consolidated: the saving is not worth the disruption" in says
    assert "What helps: nothing, or raise consolidation.aggressiveness." in says
    assert answer["consolidation"]["reason"]["code"] == "NotWorthDisruption"


def test_explain_node_says_that_it_is_removed_for_consolidation() -> None:
    build = fixture(three_halves())
    answer = explained(decide(build), build, "a")
    assert answer["says"][0] == "Node a would be removed now for consolidation, evicting 2 pods."
    assert (answer["removedFor"], answer["verdict"]) == ("consolidation", "removed")


def test_every_reason_of_consolidation_has_advice() -> None:
    codes = list(ReasonCode)
    own = codes[
        codes.index(ReasonCode.CONSOLIDATION_OFF) : codes.index(ReasonCode.REPLACEMENT_FAILED) + 1
    ]
    assert len(own) == 22
    silent = [code for code in own if not remedy(Reason.of(code), "prod")]
    assert silent == [ReasonCode.MARKS_MISSING], "a note on the whole cluster"


@each_row(
    ("changes", "group", "bought", "why"),
    [
        ({}, "s", 1, ""),
        ({}, "l", 0, ""),
        ({"mode": ConsolidationMode.REMOVE}, "s", 0, "mode remove buys nothing"),
        ({"groups": ("m",)}, "s", 0, "consolidation.groups does not name it"),
    ],
)
def test_explain_group_says_whether_consolidation_buys_its_nodes(
    changes: dict[str, Any], group: str, bought: int, why: str
) -> None:
    build = fixture(one_beside_a_full_one(), pool=None)
    document = policy(**changes)
    result = decide(build, document)
    case = PlanInputs(build.snapshot(), document, Memory(), NOW, 0, None, (), 0.0)
    scene = ExplainContext(case, PlannedCase(result.plan, result.memory, TIMES))
    answer = explanation_document(explain_group.answer(scene, group), scene)
    assert answer["consolidation"] == {"buys": bought} | ({"notBought": why} if why else {})
