"""Feature switches, pinned pods and the cluster health check, tested through the whole planner."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.node import Taint
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Owner
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.plan.plan_builder import IGNORE_TAINT, MOST_WARNINGS
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.builders import NOW, ClusterBuilder, node

ONLY_RULES = ScaleUp(unschedulable_pods=False)


def plan_of(
    build: ClusterBuilder,
    scale_up: ScaleUp | None = None,
    rules: tuple[Rule, ...] = (),
    memory: Memory | None = None,
    **options: Any,
) -> Plan:
    policy = Policy(
        "test",
        options=msgspec.structs.replace(Options(), **options),
        scale_up=scale_up or ScaleUp(),
        rules=rules,
    )
    return plan_cluster(build.snapshot(), policy, memory or Memory(), NOW, 0)[0]


def cluster(*, nodes: int = 1, unready: int = 0, used: str = "0") -> ClusterBuilder:
    """Group g of nodes with 4 cpu; the last ones are not ready."""
    build = ClusterBuilder()
    for at in range(nodes):
        build.node(f"n{at:02}", "4", group="g", ready=at < nodes - unready)
        if used != "0":
            build.running(f"n{at:02}", 1, used, name=f"r{at}")
    return build.group("g", max=50, template=node("t", "4"))


def ignored(plan: Plan) -> dict[ReasonCode, tuple[str, ...]]:
    return {each.reason.code: each.pods for each in plan.ignored}


def test_CCE_A1_1_no_node_is_bought_for_pods_with_unschedulable_pods_off() -> None:
    build = cluster().pending(3, "3")
    assert plan_of(build).scale_ups != ()
    plan = plan_of(build, ONLY_RULES)
    assert plan.scale_ups == ()
    assert len(ignored(plan)[ReasonCode.PODS_OFF]) == 3, "each is told why"
    assert plan.unschedulable == ()


def test_CCE_A1_1_removals_continue_and_the_future_node_of_a_pod_stays() -> None:
    build = cluster(nodes=3)
    assert len(plan_of(build, ONLY_RULES).unneeded) == 3
    plan = plan_of(build.pending(1, "3"), ONLY_RULES)
    assert len(plan.unneeded) == 2, "its place is not given away"
    assert plan.paused is None


def test_CCE_A1_1_rules_and_pods_trigger_scale_ups_independently() -> None:
    rule = Rule("busy", ("g",), metric=Metric.CPU, above=60, add=2)
    build = cluster(nodes=2, used="3")
    assert [(up.to_size, up.rules) for up in plan_of(build, ONLY_RULES, (rule,)).scale_ups] == [
        (4, ("busy",))
    ]
    off = msgspec.structs.replace(ScaleUp(), rules=False)
    assert plan_of(build, off, (rule,)).scale_ups == ()
    assert [up.rules for up in plan_of(build.pending(1, "3"), off, (rule,)).scale_ups] == [()]


PINNED: list[tuple[str, dict[str, Any]]] = [
    (
        "by its name",
        {"required_affinity": (NodeTerm(fields=(Requirement("metadata.name", "In", ("n00",)),)),)},
    ),
    ("by its label", {"node_selector": {"kubernetes.io/hostname": "n00"}}),
    (
        "by affinity to its label",
        {
            "required_affinity": (
                NodeTerm(expressions=(Requirement("kubernetes.io/hostname", "In", ("n00",)),)),
            )
        },
    ),
]


@pytest.mark.parametrize("binding", [each for _, each in PINNED], ids=[name for name, _ in PINNED])
def test_CCE_A1_2_pod_bound_to_one_node_buys_no_other_node(binding: dict[str, Any]) -> None:
    build = cluster(used="3").pending(1, "3", **binding)
    plan = plan_of(build)
    assert plan.scale_ups == ()
    assert [verdict.pods for verdict in plan.unschedulable] == [(build.pods[-1].key,)]


def test_CCE_A1_2_pod_that_names_its_node_is_not_pending() -> None:
    build = cluster().running("n00", 1, "9", pod={"phase": "Pending", "scheduled": ""})
    plan = plan_of(build)
    assert (plan.scale_ups, plan.unschedulable) == ((), ())


@pytest.mark.parametrize(
    ("nodes", "unready", "stops"),
    [(10, 5, True), (4, 2, False), (10, 4, False), (7, 3, False), (8, 4, True)],
)
def test_CCE_16_too_many_unready_nodes_stop_all_scaling(
    nodes: int, unready: int, *, stops: bool
) -> None:
    rule = Rule("busy", ("g",), metric=Metric.CPU, above=60, add=2)
    plan = plan_of(cluster(nodes=nodes, unready=unready, used="3").pending(2, "3"), rules=(rule,))
    assert plan.health.healthy is not stops
    assert (plan.scale_ups == ()) is stops
    assert (ReasonCode.CLUSTER_UNHEALTHY in ignored(plan)) is stops


def test_CCE_A10_unhealthy_cluster_stops_removals_too() -> None:
    assert cluster(nodes=10).plan(unneeded=3600.0).removals != ()
    assert cluster(nodes=10, unready=5).plan(unneeded=3600.0).removals == ()


def avoided(plan: Plan, code: ReasonCode) -> list[dict[str, str | int | float]]:
    return [note.params for note in plan.notes if note.code is code]


def test_CCE_A10_tainted_nodes_count_as_unready_and_cause_a_warning() -> None:
    key = f"{IGNORE_TAINT}gpu"
    build = ClusterBuilder()
    for at in range(8):
        build.node(f"n{at}", "4", group="g", taints=(Taint(key, "NoSchedule"),) if at < 4 else ())
    plan = plan_of(build.group("g", max=50, template=node("t", "4")).pending(9, "3"))
    assert avoided(plan, ReasonCode.AVOID_TAINT) == [
        {"node": f"n{at}", "taint": key} for at in range(4)
    ]
    assert not plan.health.healthy, "such taints alone trip the guard"
    assert plan.scale_ups == ()


def test_CCE_A10_few_warnings_are_given_and_none_for_a_clean_cluster() -> None:
    build = ClusterBuilder()
    for at in range(MOST_WARNINGS + 5):
        build.node(f"n{at:02}", taints=(Taint(f"{IGNORE_TAINT}x", "NoSchedule"),))
    assert len(avoided(plan_of(build), ReasonCode.AVOID_TAINT)) == MOST_WARNINGS
    assert plan_of(cluster()).notes == ()


@pytest.mark.parametrize("said", ["true", "false"])
def test_CCE_A10_eviction_annotation_on_daemonset_pods_causes_a_warning(said: str) -> None:
    build = cluster().running(
        "n00", 2, "1", owner="agent", kind="DaemonSet", enable_ds_eviction=said
    )
    build.running("n00", 1, "1", enable_ds_eviction=said)
    assert build.classes[0].owner == Owner("DaemonSet", "agent", "uid-agent")
    assert [params["pod"] for params in avoided(plan_of(build), ReasonCode.AVOID_ANNOTATION)] == [
        pod.key for pod in build.pods[:2]
    ]
