"""Removals and metric rules do not oscillate: a node that a metric rule would buy again stays
(docs/reference/scaling-rules.md "Removals and rules")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Rule, RuleObject
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, cluster, stays
from tests.operations import new_operation
from tests.unit.plan.scaling_rules.rule_harness import (
    MINUTE,
    Site,
    VendorPool,
    cpu,
    grown,
    horizontal,
    memory_rule,
)

NEEDS = ReasonCode.RULE_NEEDS_NODE.value


def decided(
    build: ClusterBuilder,
    *rules: Rule,
    memory: Memory | None = None,
    objects: tuple[RuleObject, ...] = (),
    scale_up: ScaleUp | None = None,
    **options: Any,
) -> tuple[Plan, Memory]:
    """Plans one pass in which every unneeded node has been unneeded long enough; ten empty nodes
    and five drains may go at once."""
    given = {"max_drain_parallelism": 5, **options}
    policy = Policy(
        name="test",
        mode=Mode.ACTIVE,
        rules=rules,
        scale_up=scale_up or ScaleUp(),
        options=msgspec.structs.replace(Options(), **given),
    )
    read = msgspec.structs.replace(build.snapshot(), rule_objects=objects)
    return plan_cluster(read, policy, memory or Memory(), NOW, 0, assume_unneeded_for=86400.0)


def goes(build: ClusterBuilder, *rules: Rule, **more: Any) -> list[str]:
    """The removed nodes."""
    return [each.node for each in decided(build, *rules, **more)[0].removals]


def nodes(
    build: ClusterBuilder, group: str, *pods: str, empty: int = 0, **more: Any
) -> ClusterBuilder:
    """A group of nodes of four cores and 16 GiB: one for each pod (cores, each
    with 1 GiB), and empty ones."""
    names = [f"{group}-{at}" for at in range(len(pods) + empty)]
    for name in names:
        build.node(name, "4", "16Gi", group=group, **more.pop("node", {}))
    for name, cores in zip(names, pods, strict=False):
        build.running(name, 1, cores, "1Gi", owner=name)
    return build.group(group, **more)


def test_CCE_A3_2_metric_rule_and_removals_do_not_oscillate() -> None:
    site = Site(cpu(above=70, add=0), scale_down_enabled=True).group("g", 2)
    site.ask("g", ("3600m", "1Gi"), ("3600m", "1Gi"))
    sizes = []
    for _ in range(120):
        plan = site.plan(site.now + MINUTE)
        site.arrive(plan).groups["g"].count -= len(plan.removals)
        sizes.append(site.groups["g"].count)
    assert sizes == [3] * 120


def test_CCE_A3_2_nodes_a_metric_rule_does_not_need_are_removed_for_good() -> None:
    site = Site(cpu(above=70, add=5), scale_down_enabled=True).group("g", 2)
    site.ask("g", ("3600m", "1Gi"), ("3600m", "1Gi"))
    changes = []
    for _ in range(120):
        plan = site.plan(site.now + MINUTE)
        site.arrive(plan).groups["g"].count -= len(plan.removals)
        if grown(plan) or plan.removals:
            changes.append((grown(plan), len(plan.removals)))
    assert changes == [({"g": 5}, 0), ({}, 4)]


@pytest.mark.parametrize(("above", "left"), [(60, 3), (74, 3), (75, 2), (76, 2)])
def test_each_removal_is_counted_in_the_rate_for_the_next_removal(above: int, left: int) -> None:
    build = nodes(cluster(), "g", "3", "3", empty=4)  # 6 cores: 75 % of two nodes, 50 % of three
    plan, _ = decided(build, cpu(above=above))
    assert 6 - len(plan.removals) == left
    held = [
        each.reason for each in plan.unremovable if each.reason.code is ReasonCode.RULE_NEEDS_NODE
    ]
    needed = Reason.of(ReasonCode.RULE_NEEDS_NODE, rule="cpu", metric="cpu", rate=75.0, above=above)
    assert held == [needed] * (left - 2)


def test_explanation_of_a_node_kept_by_a_metric_rule() -> None:
    plan, _ = decided(nodes(cluster(), "g", "3", "3", empty=1), cpu(above=70))
    [reported] = [
        each for each in plan.unremovable if each.reason.code is ReasonCode.RULE_NEEDS_NODE
    ]
    assert (reported.node, sentence(reported.reason)) == (
        "g-2",
        "rule cpu needs it (without it cpu would be at 75%, above 70%)",
    )


def test_every_metric_rule_of_the_pool_counts_and_only_requests_are_measured() -> None:
    build = nodes(cluster(), "g", "3", empty=4)
    # 12 GiB: 75 % of one node, 37.5 % of two; cpu: 75 % and 37.5 %
    build.running("g-0", 1, 0, "11Gi", owner="big")
    assert len(goes(build, cpu(above=80), memory_rule(above=80))) == 4
    assert len(goes(build, cpu(above=80), memory_rule(above=70))) == 3
    assert len(goes(build, cpu(above=70), memory_rule(above=80))) == 3
    assert len(goes(build)) == 4


def test_pool_groups_are_measured_together_and_a_group_rule_keeps_only_its_group() -> None:
    pool = VendorPool("p", "web")
    build = nodes(cluster(), "p/a", "3", "3", pool=pool)
    nodes(build, "p/b", empty=2, pool=pool)
    nodes(build, "other", empty=1)
    assert goes(build, cpu(above=70, groups=("web",))) == ["other-0", "p/b-0"]
    assert goes(build, cpu(above=70, groups=("p/a",))) == ["other-0", "p/b-0", "p/b-1"]
    assert goes(build, cpu(above=70, groups=("p/b", "other"))) == ["other-0", "p/b-0", "p/b-1"]


GOOD = horizontal("hna", cpu(above=70))
BAD = msgspec.structs.replace(GOOD, problems=("spec.rules[0].action: is missing",), rules=())


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"objects": (GOOD,)}, True),
        ({"objects": (BAD,), "memory": Memory(rule_objects={GOOD.key: GOOD})}, True),
        ({"objects": (BAD,)}, False),
        ({"objects": (msgspec.structs.replace(GOOD, disabled=True),)}, False),
        ({"objects": (GOOD,), "scale_up": ScaleUp(rules=False)}, False),
        ({"objects": (GOOD,), "scale_up": ScaleUp(unschedulable_pods=False)}, True),
        # the threshold is not above the one for removals: the rule is in force, with a note
        ({"objects": (GOOD,), "scale_down_utilization_threshold": 0.7}, True),
        ({"objects": (horizontal("hna", cpu(above=70, groups=("nobody",))),)}, False),
    ],
)
def test_only_a_metric_rule_in_force_keeps_nodes(given: dict[str, Any], held: bool) -> None:
    build = nodes(cluster(), "g", "3", "3", empty=1)
    if "scale_down_utilization_threshold" in given:
        build = nodes(cluster(), "g", "3600m", "3", empty=1)
    assert goes(build, **given) == ([] if held else ["g-2"])


def test_daemonset_pods_leave_the_rate_with_their_node_and_other_pods_stay() -> None:
    build = nodes(cluster(), "g", "2", "2", empty=1)
    for at in range(3):
        build.running(
            f"g-{at}", 1, "1", "1Gi", owner="agent", kind="DaemonSet", namespace="kube-system"
        )
    assert goes(build, cpu(above=75)) == ["g-2"]  # 6 of 8 cores, and not 7
    assert goes(build, cpu(above=74)) == []
    static = nodes(cluster(), "g", "3", "3", empty=1).running(
        "g-2", 1, "1", "1Gi", owner=None, mirror=True
    )
    assert goes(static, cpu(above=75)) == ["g-2"]
    moved = nodes(cluster(), "g", "2400m", "2400m", "1200m")
    assert goes(moved, cpu(above=75)) == ["g-2"]
    assert goes(moved, cpu(above=74)) == []


def test_pods_of_leaving_nodes_count_on_the_remaining_nodes() -> None:
    build = nodes(cluster(), "g", "3", "3", "600m", empty=1).running(
        "g-2", 1, "600m", "1Gi", owner="more"
    )
    build.running("g-2", 1, "1", "1Gi", owner="agent", kind="DaemonSet", namespace="kube-system")
    leaving = Memory(
        operations=(
            new_operation(
                id="o",
                cluster="test",
                provider="test",
                group="g",
                kind=OperationKind.DELETE_NODES,
                plan="p",
                created_at=NOW - 60,
                targets=(RemovalTarget("g-2", "test://g/g-2", evict=("default/x",)),),
                state=OperationState.WAITING,
            ),
        )
    )
    assert goes(build, cpu(above=90), memory=leaving) == ["g-3"]  # 7.2 of 8 cores
    assert goes(build, cpu(above=89), memory=leaving) == []


def test_CCE_A3_3_last_unready_node_may_go_since_a_rate_needs_a_ready_node() -> None:
    build = nodes(cluster(), "g", "1")
    nodes(build, "h", "2500m")
    assert goes(build, cpu(above=51)) == ["g-0"]
    unready = nodes(cluster(), "g", "3", "3").node("bad", "4", "16Gi", group="g", ready=False)
    unready.groups.clear()
    # the last node that is not ready is not part of the rate
    assert goes(unready.group("g", max=3), cpu(above=51)) == ["bad"]


def test_rate_of_a_zero_or_max_group_counts_all_its_nodes_leaving_together() -> None:
    atomic = GroupOptions(zero_or_max=True)
    alone = nodes(cluster(), "z", "1", "1", "1", options=atomic)
    nodes(alone, "g", "1900m", "1900m", "1900m")
    assert goes(alone, cpu(above=60, groups=("z",)), scale_down_utilization_threshold=0.4) == [
        "z-0",
        "z-1",
        "z-2",
    ]
    pool = VendorPool("p")
    shared = nodes(cluster(), "p/z", empty=2, options=atomic, pool=pool)
    nodes(shared, "p/g", "3600m", "3600m", empty=1, pool=pool)
    # 7.2 of 20 cores: without p/z 60 %, without p/g-2 45 %
    plan, _ = decided(shared, cpu(above=55, groups=("p",)))
    assert [each.node for each in plan.removals] == ["p/g-2"]
    assert stays(plan)["p/z-0"] == stays(plan)["p/z-1"] == NEEDS
    assert len(goes(shared, cpu(above=60, groups=("p",)))) == 2
    kept = msgspec.structs.replace(atomic, scale_down_unneeded_time=1e9)
    late = nodes(cluster(), "p/z", empty=2, options=kept, pool=pool)
    nodes(late, "p/g", "3", "3", empty=1, pool=pool)
    # nodes that stay for other reasons do not keep further nodes
    assert goes(late, cpu(above=55, groups=("p",))) == ["p/g-2"]


def test_rule_check_runs_after_minimums_and_before_later_checks() -> None:
    def first(
        build: Callable[..., ClusterBuilder] = nodes, memory: Memory | None = None, **group: Any
    ) -> str:
        plan, _ = decided(
            build(cluster(), "g", "3", "3", empty=1, **group), cpu(above=70), memory=memory
        )
        return stays(plan)["g-2"]

    assert first(min=3) == ReasonCode.GROUP_MIN_SIZE.value
    assert first(memory=Memory(last_scale_up=NOW)) == NEEDS


def test_unneeded_time_continues_while_a_metric_rule_keeps_the_node() -> None:
    site = (
        Site(cpu(above=70), scale_down_enabled=True)
        .group("g", 3)
        .ask("g", ("3", "1Gi"), ("3", "1Gi"))
    )
    began = site.now
    for minute in range(30):
        assert not site.plan(began + minute * MINUTE).removals
    assert site.memory.nodes["g-002"].unneeded_since == began
    site.rules = ()
    assert [each.node for each in site.plan(began + 30 * MINUTE).removals] == ["g-002"]
