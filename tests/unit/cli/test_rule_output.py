"""Rules and headroom in the output of `plan` and `explain group`, omitted where there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli import explain_group, plan_document, plan_output
from chalicelib.cli.explain_view import ExplainContext, Explanation
from chalicelib.cli.main import main
from chalicelib.cli.output import Block, Table
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.group import NodeGroup, Pool
from chalicelib.model.memory import Memory
from chalicelib.model.plan import GroupVerdict, HeadroomVerdict, Plan, RuleVerdict, ScaleUp
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Rule, RuleObject
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.scale_up import ScaleUp as MayGrow
from tests.unit.cluster.test_horizontal_node_autoscalers import rule_object
from tests.unit.cluster.test_saved_cluster import _group, _node, _write

AT = 1795245654.0  # 2026-11-21T07:20:54Z
TIMES = {"decode": 0.0, "plan": 0.0}
EVENING = RuleVerdict("evening", "pool-1", "kube-system/a", nodes=2, due=AT - 54)
QUIET = RuleVerdict("morning", "pool-1", reason=Reason.of(ReasonCode.RULE_NOT_DUE, until=AT + 60))
BUSY = RuleVerdict(
    "busy",
    "other",
    rate=66.326,
    reason=Reason.of(ReasonCode.RULE_BELOW, metric="cpu", rate=66.3, above=70),
)


def plan(**parts: Any) -> Plan:
    return Plan(
        "plan-1", "test", AT, groups=(GroupVerdict("g", "test", 0, 10, 2, ready=2),), **parts
    )


def table(blocks: list[Block] | tuple[Table, ...], title: str) -> Table:
    return next(each for each in blocks if isinstance(each, Table) and each.title == title)


def test_cli_plan_without_rules_and_headroom_omits_them() -> None:
    made = plan(scale_ups=(ScaleUp("g", "test", 2, 3, 10, ("shop/web",)),))
    document = plan_document.as_document(made, TIMES)
    assert {"rules", "headroom"} & {*document, *document["scaleUps"][0]} == set()
    blocks = plan_output.as_blocks(made, TIMES)
    assert {"Rules", "Headroom"} & {
        each.title for each in blocks if isinstance(each, Table)
    } == set()
    assert table(blocks, "Node groups").rows[0][4] == "shop/web"


def test_cli_plan_shows_rules_with_their_nodes_and_refusals() -> None:
    made = plan(rules=(EVENING, QUIET, BUSY))
    assert plan_document.as_document(made, TIMES)["rules"] == [
        {
            "rule": "evening",
            "pool": "pool-1",
            "source": "kube-system/a",
            "nodes": 2,
            "due": "2026-11-21T07:20:00Z",
        },
        {
            "rule": "morning",
            "pool": "pool-1",
            "source": "",
            "nodes": 0,
            "code": "RuleNotDue",
            "message": "not due (next at 2026-11-21T07:21:54Z)",
            "next": "2026-11-21T07:21:54Z",
        },
        {
            "rule": "busy",
            "pool": "other",
            "source": "",
            "nodes": 0,
            "rate": 66.33,
            "code": "RuleBelowThreshold",
            "message": "the allocation rate is not above the threshold (cpu 66.3%, above 70%)",
        },
    ]
    assert [row[:5] for row in table(plan_output.as_blocks(made, TIMES), "Rules").rows] == [
        ("evening", "pool-1", "kube-system/a", "+2", "due 2026-11-21T07:20:00Z"),
        ("morning", "pool-1", "policy", "-", "-"),
        ("busy", "other", "policy", "-", "66.3%"),
    ]


def test_cli_plan_shows_headroom_with_reasons_for_the_missing_part() -> None:
    verdict = HeadroomVerdict(
        "spare", 5, held=2, added=1, reasons={"g": Reason.of(ReasonCode.GROUP_MAX_SIZE, max=3)}
    )
    made = plan(headroom=(verdict,))
    [answer] = plan_document.as_document(made, TIMES)["headroom"]
    assert {key: answer[key] for key in ("name", "wanted", "held", "added")} == {
        "name": "spare",
        "wanted": 5,
        "held": 2,
        "added": 1,
    }
    assert answer["reasons"]["g"]["code"] == "MaxNodeGroupSizeReached"
    [row] = table(plan_output.as_blocks(made, TIMES), "Headroom").rows
    assert row[:4] == ("spare", "5", "2", "+1")


def test_cli_plan_scale_up_shows_its_purpose() -> None:
    made = plan(
        scale_ups=(ScaleUp("g", "test", 2, 5, 10, ("shop/web",), ("evening", "busy"), ("spare",)),)
    )
    assert plan_document.as_document(made, TIMES)["scaleUps"] == [
        {
            "group": "g",
            "from": 2,
            "to": 5,
            "pods": ["shop/web"],
            "rules": ["evening", "busy"],
            "headroom": ["spare"],
        }
    ]
    assert table(plan_output.as_blocks(made, TIMES), "Node groups").rows[0][4] == (
        "shop/web; rules evening, busy; headroom spare"
    )
    assert "for 1 pod and 2 rules and headroom;" in plan_output.summary(made, TIMES)


def explained(made: Plan, policy: Policy | None = None, *objects: RuleObject) -> Explanation:
    group = NodeGroup("g", "test", 0, 10, 2, pool=Pool("pool-1"))
    case = PlanInputs(
        Snapshot("test", AT, groups=(group,)),
        policy or Policy("test"),
        Memory(),
        AT,
        0,
        None,
        (),
        0.0,
    )
    memory = Memory(rule_objects={each.key: each for each in objects})
    return explain_group.answer(ExplainContext(case, PlannedCase(made, memory, TIMES)), "g")


def test_cli_explains_a_group_that_grows_only_for_a_rule() -> None:
    [said] = explained(
        plan(scale_ups=(ScaleUp("g", "test", 2, 4, 10, rules=("kube-system/a/evening",)),))
    ).says
    assert said == "Node group g grows 2 -> 4 (max 10) for rule kube-system/a/evening."


def test_explain_group_shows_the_rules_of_its_pool_and_their_next_times() -> None:
    policy = Policy(
        "test",
        rules=(Rule("morning", ("g",), cron="0 9 * * *", time_zone="Europe/Zurich", add=1),),
        scale_up=MayGrow(cron_time_zone="Asia/Shanghai"),
    )
    rule = Rule("evening", ("pool-1",), cron="47 20 * * *", add=2, source="kube-system/a")
    answer = explained(
        plan(rules=(EVENING, QUIET, BUSY)), policy, RuleObject("kube-system", "a", rules=(rule,))
    )
    shown = table(answer.tables, "Rules")
    at = shown.columns.index("next")
    assert [(row[0], row[at]) for row in shown.rows] == [
        ("evening", "2026-11-21T12:47:00Z"),
        ("morning", "2026-11-21T08:00:00Z"),
    ], "not the other pool's"
    assert [each["next"] for each in answer.data["rules"]] == [
        "2026-11-21T12:47:00Z",
        "2026-11-21T08:00:00Z",
    ]


def test_explain_group_without_rules_shows_none() -> None:
    answer = explained(plan(rules=(BUSY,)))
    assert "rules" not in answer.data
    assert table(answer.tables, "Rules").rows == ()


@pytest.mark.parametrize(("option", "grown"), [("", [2]), ("horizontalNodeAutoscalers: false", [])])
def test_CCE_A2_plan_obeys_saved_rule_objects_unless_the_policy_forbids_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, grown: list[int]
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    ready = [{"type": "Ready", "status": "True"}]
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop"},
        "status": {"phase": "Running"},
        "spec": {
            "nodeName": "a-0",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}],
        },
    }
    made = rule_object("a", targetNodepoolIds=["a"])
    made["spec"]["rules"][0]["metricTrigger"]["metricValue"] = "60"
    _write(
        folder,
        [_node(conditions=ready), pod, {"kind": "HorizontalNodeAutoscaler", **made}],
        [_group(max=9)],
    )
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: c}\nspec:\n"
        "  kubernetes: {kubeconfigSecret: outscaler/c/kubeconfig}\n  providers: {clusterapi: {}}\n"
        f"  scaleUp: {{{option}}}\n"
    )
    code = main(
        [
            "plan",
            "--snapshot",
            str(folder),
            "--policy",
            str(tmp_path / "policy.yaml"),
            "-o",
            "json",
            "--now",
            "2026-11-21T07:20:54Z",
        ]
    )
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [up["to"] - up["from"] for up in answer["scaleUps"]] == grown
    assert [rule["source"] for rule in answer.get("rules", [])] == ["kube-system/a"] * len(grown)
