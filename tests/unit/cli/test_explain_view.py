"""Explanations of hand-written plans: the output of `outscaler explain` for each kind of
verdict.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from chalicelib.cli import (
    explain_group,
    explain_node,
    explain_pod,
    explain_view,
    plan_document,
    plan_output,
)
from chalicelib.cli.explain_view import ExplainContext, Explanation
from chalicelib.cli.output import Table, show
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory, ScaleUpRequest
from chalicelib.model.plan import (
    GroupVerdict,
    IgnoredPods,
    NodeVerdict,
    Plan,
    PodPlacement,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.scale_up import ScaleUp as ScaleUpPolicy
from tests.builders import NOW, ClusterBuilder, cluster


def shop() -> ClusterBuilder:
    return (
        cluster()
        .node("n-1", group="g")
        .node("n-2", group="g")
        .running("n-1", name="run")
        .pending(3, "500m", name="web")
        .group("g", max=10)
    )


def scene(build: ClusterBuilder, memory: Memory | None = None, **plan: Any) -> ExplainContext:
    made = Plan(
        "plan-1", "test", NOW, **{"groups": (GroupVerdict("g", "test", 0, 10, 2, ready=2),), **plan}
    )
    case = PlanInputs(build.snapshot(), Policy(name="test"), Memory(), NOW, 0, None, (), 0.0)
    return ExplainContext(case, PlannedCase(made, memory or Memory(), {"decode": 0.0, "plan": 0.0}))


def web(build: ClusterBuilder) -> tuple[str, ...]:
    return tuple(pod.key for pod in build.pods if not pod.node)


def said(answer: Explanation) -> str:
    return " ".join(answer.says)


def rows(answer: Explanation, title: str) -> tuple[tuple[str, ...], ...]:
    return next(table.rows for table in answer.tables if table.title == title)


# -- pods ------------------------------------------------------------------------------------------


def test_explain_pod_on_a_new_node_names_node_number_and_scale_up() -> None:
    build = shop()
    made = scene(
        build,
        scale_ups=(ScaleUp("g", "test", 3, 5, 10, web(build)),),
        promises=(
            PodPlacement(web(build)[:2], group="g", number=1),
            PodPlacement(web(build)[2:], group="g", number=2),
        ),
    )
    answer = explain_pod.answer(made, web(build)[2])
    assert said(answer) == (
        f"Pod {web(build)[2]} is expected on new node 2 of group g, which grows 3 -> 5 (max 10)."
    )
    assert (answer.data["verdict"], answer.data["number"]) == ("newNode", 2)
    assert answer.data["growth"] == {"group": "g", "from": 3, "to": 5, "max": 10}


def test_explain_fitting_pod_names_its_node_and_whether_it_exists() -> None:
    build = shop()
    one, two, three = web(build)
    made = scene(
        build,
        fits_existing=web(build),
        promises=(PodPlacement((one,), node="n-2"), PodPlacement((two,), node="upcoming-g-1")),
    )
    assert (
        said(explain_pod.answer(made, one))
        == f"Pod {one} fits on node n-2: nothing is grown for it."
    )
    assert "fits on node upcoming-g-1, which is on its way" in said(explain_pod.answer(made, two))
    assert explain_pod.answer(made, two).data["upcoming"] is True
    assert "fits on a node that exists or is on its way" in said(explain_pod.answer(made, three))


def test_explain_groups_with_equal_reasons_share_a_row() -> None:
    build = shop()
    short = Reason.of(ReasonCode.INSUFFICIENT, resource="cpu", needs=8000, offers=3900)
    verdict = UnschedulablePods(
        web(build),
        {"a": (short,), "b": (short,), "c": (Reason.of(ReasonCode.MAX_NODES_TOTAL, max=9),)},
    )
    answer = explain_pod.answer(scene(build, unschedulable=(verdict,)), web(build)[0])
    assert said(answer) == (
        f"Pod {web(build)[0]} has no place, like 2 others of its class: c: max total nodes in "
        "cluster reached (maxNodesTotal 9); 2 other groups: too little cpu 2."
    )
    assert rows(answer, "Node groups") == (
        ("a, b", "Insufficient cpu (needs 8, template offers 3900m)"),
        ("c", "max total nodes in cluster reached (maxNodesTotal 9)"),
    )


def test_explain_pod_without_any_groups_says_so() -> None:
    build = shop()
    answer = explain_pod.answer(
        scene(build, unschedulable=(UnschedulablePods(web(build)),)), web(build)[0]
    )
    assert said(answer).endswith("others of its class: there are no node groups.")


def test_explain_pod_of_a_leaving_node_shows_both_verdicts() -> None:
    build = shop()
    name = next(pod.key for pod in build.pods if pod.node)
    made = scene(
        build,
        unremovable=(NodeVerdict("n-1", Reason.of(ReasonCode.BEING_DELETED)),),
        scale_ups=(ScaleUp("g", "test", 2, 3, 10, (name,)),),
    )
    answer = explain_pod.answer(made, name)
    assert answer.says == (
        f"Pod {name} runs on node n-1. The node stays: currently being deleted.",
        (
            "It will want another node, and is expected on a new node of group g, which grows 2 -> "
            "3 (max 10)."
        ),
    )
    assert (answer.data["verdict"], answer.data["again"]) == ("runs", "newNode")


def test_explain_pod_absent_from_the_plan_does_not_crash() -> None:
    build = shop()
    answer = explain_pod.answer(scene(build), web(build)[0])
    assert answer.data["verdict"] == "unknown"


def test_explain_reports_missing_data_that_affects_the_verdict() -> None:
    build = shop()
    namespaces = MissingData(
        "Namespace", "forbidden", affected_decisions=("inter-pod affinity by namespaceSelector",)
    )
    budgets = MissingData(
        "PodDisruptionBudget", "forbidden", affected_decisions=("BlockedByPod NotEnoughPdb",)
    )
    provider = MissingData("provider/clusterapi", "Unauthorized")
    claims = MissingData(
        "StorageClass", "forbidden", affected_decisions=("scale-up: pods with claims",)
    )
    other = MissingData("Pod", "no name", name="shop/odd", node="n-1")
    made = scene(
        build,
        gaps=(namespaces, budgets, provider, claims, other),
        ignored=(IgnoredPods(web(build), Reason.of(ReasonCode.NOT_YET_SEEN)),),
    )
    assert explain_pod.answer(made, web(build)[0]).gaps == (namespaces, provider, claims)
    assert explain_node.answer(made, "n-1").gaps == (namespaces, budgets, provider, other)
    assert explain_node.answer(made, "n-2").gaps == (namespaces, budgets, provider)
    assert explain_group.answer(made, "g").gaps == (namespaces, provider, claims)


def test_explain_shows_the_notes_of_the_plan_with_every_verdict() -> None:
    build = shop()
    made = scene(build, notes=(Reason.of(ReasonCode.TIME_BUDGET, seconds=10.0),))
    document = explain_view.as_document(explain_group.answer(made, "g"), made)
    assert document["notes"][0]["code"] == "TimeBudget"
    titles = [
        each.title
        for each in explain_view.as_blocks(explain_group.answer(made, "g"), made)
        if isinstance(each, Table)
    ]
    assert "Notes" in titles


# -- nodes -----------------------------------------------------------------------------------------


def test_explain_node_lists_the_pods_expected_on_it() -> None:
    build = shop()
    made = scene(
        build,
        fits_existing=web(build),
        promises=(PodPlacement(web(build), node="n-2"),),
        unremovable=(NodeVerdict("n-2", Reason.of(ReasonCode.PROMISED, pod=web(build)[0])),),
    )
    answer = explain_node.answer(made, "n-2")
    assert answer.data["expected"] == list(web(build))
    assert answer.says[-1] == "3 pending pods are expected on it."


def test_explain_node_counts_a_single_expected_pod_in_words() -> None:
    build = shop()
    made = scene(
        build,
        promises=(
            PodPlacement(web(build)[:1], node="n-2"),
            PodPlacement(web(build)[1:2], node="upcoming-g-1"),
        ),
        unremovable=(NodeVerdict("n-2", Reason.of(ReasonCode.PROMISED, pod=web(build)[0])),),
    )
    assert explain_node.answer(made, "n-2").says[-1] == "1 pending pod is expected on it."
    upcoming = explain_node.answer(made, "upcoming-g-1").says
    assert upcoming == ("Node upcoming-g-1 is on its way; 1 pending pod is expected on it.",)


def test_explain_upcoming_node_is_known_by_its_expected_pods() -> None:
    build = shop()
    made = scene(build, promises=(PodPlacement(web(build), node="upcoming-g-1"),))
    answer = explain_node.answer(made, "upcoming-g-1")
    assert (answer.data["verdict"], answer.data["expected"]) == ("upcoming", list(web(build)))


def test_explain_unneeded_node_says_what_it_waits_for() -> None:
    waits = NodeVerdict(
        "n-2", Reason.of(ReasonCode.IN_COOLDOWN, which="after a scale-up", until=NOW + 60)
    )
    answer = explain_node.answer(scene(shop(), unneeded=("n-2",), unremovable=(waits,)), "n-2")
    assert (answer.data["verdict"], answer.data["reason"]["code"]) == ("unneeded", "InCooldown")


# -- groups ----------------------------------------------------------------------------------------


def test_explain_group_shows_the_pods_on_each_new_node() -> None:
    build = shop()
    made = scene(
        build,
        scale_ups=(ScaleUp("g", "test", 2, 4, 10, web(build)),),
        promises=(
            PodPlacement(web(build)[:2], group="g", number=1),
            PodPlacement(web(build)[2:], group="g", number=2),
        ),
    )
    answer = explain_group.answer(made, "g")
    assert answer.data["promises"] == [
        {"number": 1, "pods": list(web(build)[:2])},
        {"number": 2, "pods": list(web(build)[2:])},
    ]
    assert [row[1:3] for row in rows(answer, "New nodes")] == [("1", "2"), ("2", "1")]


def test_explain_unchosen_group_shows_its_best_option() -> None:
    verdict = GroupVerdict("g", "test", 0, 10, 2, option_nodes=3, option_pods=9, waste=0.25)
    answer = explain_group.answer(scene(shop(), groups=(verdict,)), "g")
    assert answer.data["verdict"] == "notChosen"
    assert said(answer) == (
        "Node group g is not grown: it could have taken 9 pods on 3 new nodes, waste 0.25, but "
        "another was chosen."
    )


def test_explain_group_says_what_it_waits_for() -> None:
    memory = Memory(groups={"g": GroupMemory(request=ScaleUpRequest(2, NOW - 60, NOW + 840))})
    answer = explain_group.answer(scene(shop(), memory), "g")
    assert answer.data["waitingFor"]["nodes"] == 2
    assert dict(answer.facts)["waiting for"].startswith("2 nodes until ")


def test_explain_group_says_that_a_cold_start_knows_nothing() -> None:
    answer = explain_group.answer(scene(shop()), "g")
    facts = dict(answer.facts)
    assert facts["ready time"] == "nothing is known yet: no node has joined whose request is known"
    assert facts["failures"] == "nothing is known yet: no node has joined or failed"
    assert facts["given up after"] == "15m"
    assert "expected price" not in facts
    assert answer.data["learned"] == {
        "times": 0,
        "readySeconds": None,
        "joined": 0.0,
        "failed": 0.0,
        "failureRate": None,
        "starting": 0,
        "sinceTimeout": 0,
        "timeoutSeconds": 900.0,
        "timeoutLearned": False,
    }


@pytest.mark.parametrize(
    ("since_timeout", "learned", "given_up"),
    [
        (20, False, "15m"),
        (20, True, "7m15s (learnt: 1.5 times p99, at least 2m)"),
        (19, True, "15m (nothing is learnt yet: 20 joins since the last time-out are needed)"),
    ],
)
def test_explain_group_shows_what_it_has_taught(
    since_timeout: int, learned: bool, given_up: str
) -> None:
    joins = JoinStatistics(
        ready=(170,) * 10 + (180,) * 9 + (290,),
        joined=98,
        failed=2,
        counted_at=NOW,
        since_timeout=since_timeout,
    )
    verdict = GroupVerdict("g", "test", 0, 10, 2, price=100_000, expected_price=102_210)
    made = scene(shop(), Memory(groups={"g": GroupMemory(joins=joins)}), groups=(verdict,))
    policy = msgspec.structs.replace(
        made.case.policy, scale_up=ScaleUpPolicy(learned_timeouts=learned)
    )
    made = msgspec.structs.replace(made, case=msgspec.structs.replace(made.case, policy=policy))
    answer = explain_group.answer(made, "g")
    facts = dict(answer.facts)
    assert facts["ready time"] == "median 2m50s, p95 3m, p99 4m50s, of 20 joins"
    assert facts["failures"] == "2%: 2 failed and 98 joined, halved every 7 days"
    assert facts["given up after"] == given_up
    assert facts["expected price"] == "0.10221"
    assert answer.data["learned"]["readySeconds"] == {"median": 170, "p95": 180, "p99": 290}
    assert answer.data["learned"]["expectedPerHour"] == 0.10221


def test_explain_result_is_serializable_data() -> None:
    build = shop()
    made = scene(build, ignored=(IgnoredPods(web(build), Reason.of(ReasonCode.NOT_YET_SEEN)),))
    for answer in (
        explain_pod.answer(made, web(build)[0]),
        explain_node.answer(made, "n-1"),
        explain_group.answer(made, "g"),
    ):
        assert msgspec.json.encode(explain_view.as_document(answer, made))


def test_plan_shows_price_and_expected_price_where_they_were_weighed() -> None:
    verdicts = (
        GroupVerdict(
            "web",
            "test",
            0,
            10,
            2,
            option_nodes=1,
            option_pods=2,
            price=100_000,
            expected_price=104_751,
        ),
        GroupVerdict("plain", "test", 0, 10, 2, option_nodes=1, option_pods=2),
    )
    plan = msgspec.structs.replace(shop().plan(), groups=verdicts)
    timings = {"decode": 0.0, "plan": 0.0}
    options = {
        group["group"]: group["option"]
        for group in plan_document.as_document(plan, timings)["groups"]
    }
    assert (options["web"]["pricePerHour"], options["web"]["expectedPerHour"]) == (0.1, 0.104751)
    assert options["plain"] == {"nodes": 1, "pods": 2, "waste": 0.0}
    shown = io.StringIO()
    show(plan_output.as_blocks(plan, timings), shown)
    assert "1 for 2 pods, waste 0.00, 0.1 an hour, expected 0.104751" in shown.getvalue()
