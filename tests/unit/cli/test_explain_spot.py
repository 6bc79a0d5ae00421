"""`outscaler explain` of spot groups and of nodes that their vendor takes back or that
should go for another reason.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cli import explain_group, explain_node
from chalicelib.cli.explain_view import ExplainContext, Explanation
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.memory import GroupMemory, InterruptionNotice, InterruptionRisk, Memory
from chalicelib.model.node import Condition, Taint
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import InterruptionAction, RebalanceAction, Spot
from tests.builders import NOW, ClusterBuilder, cluster, node

TYPE = "node.kubernetes.io/instance-type"
NOTICE = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")
RECOMMENDATION = Taint("aws-node-termination-handler/rebalance-recommendation", "NoSchedule")
RISK = InterruptionRisk(
    interruptions=3.0, hours=500.0, counted_at=NOW - 60, nodes=2, last_notice=NOW - 600
)
ACTING = Policy(
    "test", mode=Mode.ACTIVE, spot=Spot(), prices=NodePrices(spot={"sp": 0.04}, currency="EUR")
)


def build(*, announced: bool = False, **fields: Any) -> ClusterBuilder:
    """Two spot nodes, one of them with a notice if `announced`, and a node on demand."""
    taints = (NOTICE,) if announced else ()
    made = cluster().node("s-1", "4", group="sp", labels={TYPE: "sp"}, taints=taints, **fields)
    made.node("s-2", "4", group="sp", labels={TYPE: "sp"}).node("o-1", "4", group="od")
    made.running("s-1", 3, "1").running("s-2", 3, "1").running("o-1", 3, "1")
    made.group("sp", max=5, spot=True, template=node("new", "4", labels={TYPE: "sp"}))
    return made.group("od", max=5)


def context(
    made: ClusterBuilder, policy: Policy = ACTING, risk: InterruptionRisk | None = RISK
) -> ExplainContext:
    snapshot, memory = made.snapshot(), Memory(groups={"sp": GroupMemory(risk=risk)})
    plan, after = plan_cluster(snapshot, policy, memory, NOW, 0)
    return ExplainContext(
        PlanInputs(snapshot, policy, memory, NOW, 0, None, (), 0.0),
        PlannedCase(plan, after, {}),
    )


def of_group(name: str, scene: ExplainContext) -> Explanation:
    return explain_group.answer(scene, name)


def test_spot_group_shows_its_risk_the_price_of_it_and_until_when_it_is_avoided() -> None:
    answer = of_group("sp", context(build()))
    facts = dict(answer.facts)
    assert facts["spot"] == (
        "3 interruptions in 500 node hours, halved every 7 days; 2.4 a month is expected of a node"
    )
    assert facts["last notice"].endswith(", 10m ago")
    # (1 + 3) / (720 + 500) interruptions an hour, at 0.04 / 2 for 24 hours
    assert facts["price of the risk"] == "0.0016 EUR an hour and node"
    assert facts["avoided until"]
    assert answer.data["spot"]["perMonth"] == 2.3607
    assert answer.data["spot"]["premium"] == pytest.approx(4 / 1220 * 0.48, abs=1e-6)


def test_group_on_demand_has_no_risk() -> None:
    answer = of_group("od", context(build()))
    assert answer.data["spot"] is None
    assert "price of the risk" not in dict(answer.facts)


def test_spot_group_is_not_avoided_after_its_time() -> None:
    facts = dict(of_group("sp", context(build(), risk=InterruptionRisk(counted_at=NOW))).facts)
    assert (facts["last notice"], facts["avoided until"]) == ("none", "")


def test_announced_node_says_when_its_vendor_takes_it_and_what_happens() -> None:
    answer = explain_node.answer(context(build(announced=True)), "s-1")
    said = " ".join(answer.says)
    assert ", in 2m: its pods are evicted as their budgets permit, and nothing is forced." in said
    assert (answer.data["spot"], answer.data["notice"]["leavesAt"]) == (
        True,
        "2027-01-15T08:02:00Z",
    )
    assert dict(of_group("sp", context(build(announced=True))).facts)["nodes with a notice"] == "1"


def test_announced_node_says_that_nothing_is_done_where_the_policy_only_reports() -> None:
    reporting = Policy("test", mode=Mode.ACTIVE, spot=Spot(interruptions=InterruptionAction.REPORT))
    said = " ".join(explain_node.answer(context(build(announced=True), reporting), "s-1").says)
    assert "nothing is done about it, as spec.spot.interruptions says." in said


def test_announced_node_that_is_still_there_was_to_be_taken_back() -> None:
    late = InterruptionRisk(
        notices={"s-1": InterruptionNotice(NOW - 300, NOW - 180)}, counted_at=NOW
    )
    scene = context(build(announced=True), risk=late)
    said = " ".join(explain_node.answer(scene, "s-1").says)
    assert "Its vendor was to take it back at 2027-01-15T07:57:00Z, 3m ago: " in said


def test_recommended_node_says_so_only_where_the_policy_asks_for_it() -> None:
    made = (
        cluster()
        .node("s-1", "4", group="sp", labels={TYPE: "sp"}, taints=(RECOMMENDATION,))
        .node("s-2", group="sp")
    )
    made.running("s-1", 3, "1").group("sp", max=5, spot=True)
    says = "Its vendor recommends to leave it: new pods avoid it{} (spec.spot.rebalance)."
    preferring = msgspec.structs.replace(ACTING, spot=Spot(rebalance=RebalanceAction.PREFER))
    full = msgspec.structs.replace(
        preferring, consolidation=Consolidation(mode=ConsolidationMode.FULL)
    )
    assert says.format("") in explain_node.answer(context(made, preferring), "s-1").says
    first = says.format(", and consolidation takes it first")
    assert first in explain_node.answer(context(made, full), "s-1").says
    for policy, name in ((ACTING, "s-1"), (full, "s-2")):
        assert "recommends" not in " ".join(explain_node.answer(context(made, policy), name).says)


def test_node_without_a_notice_has_none() -> None:
    scene = context(build(announced=True))
    spot, on_demand = (explain_node.answer(scene, name) for name in ("s-2", "o-1"))
    assert (spot.data["spot"], on_demand.data["spot"]) == (True, False)
    assert "notice" not in spot.data | on_demand.data


def test_group_counts_its_nodes_that_should_go() -> None:
    aging = Policy(
        "test", mode=Mode.ACTIVE, spot=Spot(), node_lifecycle=NodeLifecycle(max_node_age=86_400.0)
    )
    answer = of_group("sp", context(build(created=NOW - 864_000), aging))
    assert answer.data["due"] == {"expired": 1}
    assert dict(answer.facts)["nodes that should go"] == "1 too old"


def test_group_counts_nodes_that_are_not_sick_for_long_enough_apart() -> None:
    lifecycle = NodeLifecycle(repair=(RepairRule("KernelDeadlock", 600.0),))
    caring = Policy("test", mode=Mode.ACTIVE, spot=Spot(), node_lifecycle=lifecycle)
    sick = Condition("KernelDeadlock", "True", changed=NOW - 60)
    scene = context(build(conditions=(Condition("Ready", "True"), sick)), caring)
    answer = of_group("sp", scene)
    assert answer.data["due"] == {"NotSickLongEnough": 1}
    assert dict(answer.facts)["nodes that should go"] == "1 sick not for long enough yet"


def test_group_whose_renewal_rests_says_which_new_node_is_no_better() -> None:
    made, detail = build(), "its vendor calls it old"
    note = Reason.of(
        ReasonCode.RENEWAL_RESTS,
        group="sp",
        renewed="expired",
        until=NOW + 7200,
        node="s-9",
        detail=detail,
    )
    plan, after = plan_cluster(made.snapshot(), ACTING, Memory(), NOW, 0)
    inputs = PlanInputs(made.snapshot(), ACTING, Memory(), NOW, 0, None, (), 0.0)
    scene = ExplainContext(
        inputs, PlannedCase(msgspec.structs.replace(plan, notes=(note,)), after, {})
    )
    said = dict(of_group("sp", scene).facts)["renewal"]
    assert "s-9" in said
    assert detail in said
    assert "renewal" not in dict(of_group("od", scene).facts)


def test_group_that_only_the_policy_calls_spot_has_the_price_and_the_risk_of_spot() -> None:
    made = build()
    made.groups[0] = msgspec.structs.replace(made.groups[0], spot=False)
    prices = NodePrices(instance_types={"sp": 0.10}, spot={"sp": 0.04})
    scene = context(made, msgspec.structs.replace(ACTING, spot=Spot(groups=("sp",)), prices=prices))
    answer = of_group("sp", scene)
    assert answer.data["price"]["perHour"] == 0.04
    assert answer.data["spot"] is not None
    assert explain_node.answer(scene, "s-2").data["spot"] is True
