"""Nodes that their vendor takes back: signals, evacuation, and what is bought for
their pods in the same pass.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import (
    BreakerState,
    FailedRemoval,
    GroupMemory,
    InterruptionNotice,
    InterruptionRisk,
    JoinStatistics,
    Memory,
    NodeMemory,
)
from chalicelib.model.node import TO_BE_DELETED, Condition, Taint
from chalicelib.model.operation import (
    NEVER,
    Operation,
    OperationKind,
    OperationSpec,
    OperationStatus,
    RemovalTarget,
)
from chalicelib.model.outcome import NOTICE_TAKEN_BACK, Failed
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import Plan, Removal
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.selector import Selector
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.state.readiness import Bucket
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.spot import InterruptionAction, Spot
from chalicelib.policy.timeouts import RETURN_TIME, leaving_time
from tests.builders import NOW, OLD, ClusterBuilder, cluster, expected, growth, node, stays

CCE = "node-problem-controller.cce.io/SpotPriceNodeReclaimNotification"
NTH = "aws-node-termination-handler/"
READY = Condition("Ready", "True", "", OLD)
SHUT_DOWN = Condition("Ready", "False", "KubeletNotReady", NOW - 5, "node is shutting down")
SPOT = Spot()


def document(
    spot: Spot | None = SPOT, *, options: dict[str, Any] | None = None, **more: Any
) -> Policy:
    """A policy with spec.spot under which no node is removed for being unneeded."""
    fields: dict[str, Any] = {"scale_down_unneeded_time": 1e6, **(options or {})}
    return Policy("test", mode=Mode.ACTIVE, options=Options(**fields), spot=spot, **more)


def decide(
    build: ClusterBuilder,
    policy: Policy | None = None,
    memory: Memory | None = None,
    now: float = NOW,
) -> tuple[Plan, Memory]:
    """A pass over the cluster."""
    return plan_cluster(build.snapshot(), policy or document(), memory or Memory(), now, 0)


def evacuated(plan: Plan) -> dict[str, Removal]:
    """node -> its removal because the vendor takes it back."""
    return {
        removal.node: removal
        for removal in plan.removals
        if removal.reason is DisruptionReason.INTERRUPTED
    }


def at_risk(
    *,
    taints: tuple[str, ...] = (CCE,),
    conditions: tuple[Condition, ...] = (READY,),
    running: int = 2,
    **group: Any,
) -> ClusterBuilder:
    """Spot node a with the signals and pods of one core, in a group that can grow."""
    effects = {CCE: "NoExecute"}
    build = cluster().node(
        "a",
        "4",
        "16Gi",
        group="g",
        taints=[Taint(key, effects.get(key, "NoSchedule")) for key in taints],
        conditions=conditions,
    )
    build.running("a", running, "1", "1Gi")
    fields: dict[str, Any] = {
        "max": 10,
        "spot": True,
        "template": node("new-g", "4", "16Gi"),
        **group,
    }
    return build.group("g", **fields)


def noticed(seen_at: float, leaves_at: float, **more: Any) -> Memory:
    """Node a of group g has had a notice for a while."""
    risk = InterruptionRisk(
        counted_at=NOW,
        nodes=1,
        last_notice=seen_at,
        notices={"a": InterruptionNotice(seen_at, leaves_at)},
    )
    return Memory(groups={"g": GroupMemory(target=1, risk=risk)}, **more)


# --- signals


def test_spot_1_purchase_and_removal_are_in_the_pass_of_the_notice() -> None:
    plan, memory = decide(at_risk())
    removal = evacuated(plan)["a"]
    assert growth(plan) == {"g": (1, 2)}
    assert (removal.kind, len(removal.evict), removal.leaves_at) == (
        "drain",
        2,
        NOW + 300.0 - 120.0,
    )
    assert set(removal.destinations.values()) == {"g/1"}
    [remove] = [op.spec for op in plan.operations if op.spec.kind is OperationKind.DELETE_NODES]
    assert (remove.reason, remove.leaves_at) == ("interrupted", NOW + 180.0)
    risk = memory.groups["g"].risk
    assert risk is not None
    assert risk.notices == {"a": InterruptionNotice(NOW, NOW + 180.0)}
    assert (risk.interruptions, risk.last_notice) == (0.0, NOW)


def test_spot_1_deadline_counts_from_the_first_sight() -> None:
    plan, memory = decide(at_risk(), memory=noticed(NOW - 60.0, NOW + 120.0))
    risk = memory.groups["g"].risk
    assert evacuated(plan)["a"].leaves_at == NOW + 120.0
    assert risk is not None
    assert risk.notices == {"a": InterruptionNotice(NOW - 60.0, NOW + 120.0)}


EXPIRES = Condition("InstanceExpired", "True", "InstanceToBeTerminated", NOW - 40.0)
OFF, OUT_OF_SERVICE = (
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
)
UNREADY = Condition("Ready", "Unknown", "NodeStatusUnknown", NOW - 60.0)
SIGNALS = [
    ("cce", {"taints": (CCE,)}, 180.0),
    ("nth spot", {"taints": (f"{NTH}spot-itn",)}, 120.0),
    ("nth maintenance", {"taints": (f"{NTH}scheduled-maintenance",)}, 120.0),
    ("nth lifecycle", {"taints": (f"{NTH}asg-lifecycle-termination",)}, 120.0),
    ("azure", {"taints": ("remediator.kubernetes.azure.com/unschedulable",)}, 30.0),
    ("earliest of two", {"taints": (CCE, f"{NTH}spot-itn")}, 120.0),
    ("off", {"taints": (OFF,), "conditions": (UNREADY,)}, 0.0),
    ("out of service", {"taints": (OUT_OF_SERVICE,), "conditions": (UNREADY,)}, 0.0),
    ("SPOT_3 ack", {"taints": (), "conditions": (READY, EXPIRES)}, 260.0),
    ("shutting down", {"taints": (), "conditions": (SHUT_DOWN,)}, 0.0),
]


@pytest.mark.parametrize(
    ("build", "seconds"), [row[1:] for row in SIGNALS], ids=[row[0] for row in SIGNALS]
)
def test_each_signal_has_its_deadline(build: dict[str, Any], seconds: float) -> None:
    plan, _ = decide(at_risk(**build))
    assert evacuated(plan)["a"].leaves_at == NOW + seconds


NO_SIGNALS = [
    ("ready although off", {"taints": (OFF,)}),
    ("ready although out of service", {"taints": (OUT_OF_SERVICE,)}),
    ("rebalance recommendation", {"taints": (f"{NTH}rebalance-recommendation",)}),
    (
        "condition False",
        {"taints": (), "conditions": (READY, Condition("InstanceExpired", "False", "x", OLD))},
    ),
    (
        "expired for another reason",
        {"taints": (), "conditions": (READY, Condition("InstanceExpired", "True", "y"))},
    ),
    (
        "merely not ready",
        {"taints": (), "conditions": (Condition("Ready", "False", "x", NOW - 5),)},
    ),
    ("restart on demand", {"taints": (), "conditions": (SHUT_DOWN,), "spot": False}),
]


@pytest.mark.parametrize(
    "build", [row[1] for row in NO_SIGNALS], ids=[row[0] for row in NO_SIGNALS]
)
def test_what_is_no_notice_evacuates_nothing(build: dict[str, Any]) -> None:
    plan, memory = decide(at_risk(**build))
    risk = memory.groups["g"].risk
    assert evacuated(plan) == {}
    assert risk is None or risk.notices == {}


def test_spot_4_the_earliest_of_provider_and_taint_counts() -> None:
    build = cluster()
    for name in "abc":
        build.node(
            name, "4", "16Gi", group="g", taints=[Taint(CCE, "NoExecute")] if name == "c" else []
        )
    build.group("g", spot=True)
    [group] = build.groups
    told = {"a": NOW + 240.0, "c": NOW + 100.0}
    instances = tuple(
        msgspec.structs.replace(i, leaves_at=told.get(i.node, 0.0)) for i in group.instances
    )
    other = Instance("test://elsewhere/x", leaves_at=NOW + 10.0)
    build.groups = [msgspec.structs.replace(group, instances=(*instances, other))]
    plan, _ = decide(build)
    assert {name: removal.leaves_at for name, removal in evacuated(plan).items()} == told


@pytest.mark.parametrize("leaves_at", [NOW + 7 * 86_400.0, float("inf"), float("nan"), -1.0])
def test_time_that_is_far_away_or_none_is_no_notice(leaves_at: float) -> None:
    build = at_risk(taints=())
    [group] = build.groups
    [instance] = group.instances
    instances = (msgspec.structs.replace(instance, leaves_at=leaves_at),)
    build.groups = [msgspec.structs.replace(group, instances=instances)]
    assert decide(build)[0].removals == ()


def test_notice_of_a_node_on_demand_counts_too() -> None:
    plan, memory = decide(at_risk(taints=(f"{NTH}scheduled-maintenance",), spot=False))
    risk = memory.groups["g"].risk
    assert list(evacuated(plan)) == ["a"]
    assert risk is not None
    assert risk.last_notice == 0.0
    after = decide(at_risk(taints=(), spot=False), memory=memory, now=NOW + 60.0)[1]
    assert after.groups["g"].risk is None


def test_node_without_a_known_group_is_left_alone() -> None:
    build = cluster().node("a", "4", "16Gi", taints=[Taint(CCE, "NoExecute")]).running("a", 1, "1")
    plan, _ = decide(build.group("g", spot=True))
    assert plan.removals == ()


def test_contested_node_is_left_alone() -> None:
    build = at_risk()
    twin = node("b", "4", "16Gi", provider_id=build.nodes[0].provider_id)
    build.nodes.append(twin)
    plan, _ = decide(build)
    assert plan.removals == ()


# --- what the policy says


@pytest.mark.parametrize(
    "spot", [None, Spot(interruptions=InterruptionAction.REPORT)], ids=["no spec", "report"]
)
def test_report_only_notes_the_interruption(spot: Spot | None) -> None:
    plan, memory = decide(at_risk(), document(spot))
    note = {"node": "a", "signal": f"taint {CCE}"}
    until = {"until": NOW + 180.0} if spot is not None else {}
    assert [
        reason.params for reason in plan.notes if reason.code.value == "InterruptionReported"
    ] == [note | until]
    assert (plan.removals, plan.scale_ups) == ((), ())
    assert (memory.groups["g"].risk is None) is (spot is None)


def test_names_in_spot_groups_do_not_limit_evacuation() -> None:
    plan, _ = decide(at_risk(), document(Spot(groups=("other",))))
    assert list(evacuated(plan)) == ["a"]


# --- the same pass


def test_spot_7_node_at_risk_is_no_place_for_pods() -> None:
    signs: dict[str, Any] = {"taints": (), "max": 1}
    build = at_risk(running=1, conditions=(READY, EXPIRES), **signs).pending(1, "2", "1Gi")
    plan, _ = decide(build)
    assert (expected(plan), len(plan.unschedulable)) == ({}, 2)
    plan, _ = decide(at_risk(running=1, **signs).pending(1, "2", "1Gi"))
    assert list(expected(plan).values()) == ["a"]


def test_pods_at_risk_do_not_wait_for_others_to_arrive() -> None:
    build = at_risk().pending(1, "1", "1Gi", created=NOW, name="new")
    plan, _ = decide(build)
    assert growth(plan) == {"g": (1, 2)}
    [waiting] = [
        ignored for ignored in plan.ignored if ignored.reason.code is ReasonCode.WAITING_FOR_MORE
    ]
    assert len(waiting.pods) == 1


def test_all_pods_but_those_of_daemons_and_ended_ones_are_evicted() -> None:
    build = at_risk(running=1)
    build.running("a", 1, "100m", name="bare", owner=None)
    build.running("a", 1, "100m", name="kept", safe_to_evict="false", owner="kept")
    build.running("a", 1, "100m", name="protected", do_not_disrupt="true", owner="protected")
    build.running("a", 1, "100m", name="agent", kind="DaemonSet", owner="agent")
    build.running("a", 1, "100m", name="static", mirror=True, owner=None)
    build.running("a", 1, "100m", name="ended", pod={"phase": "Succeeded"})
    build.running("a", 1, "100m", name="dying", pod={"deleted": NOW - 1})
    plan, _ = decide(build)
    names = {key.partition("/")[2].rpartition("-")[0] for key in evacuated(plan)["a"].evict}
    assert names == {"r", "bare", "kept", "protected"}


def test_spot_8_budget_of_zero_does_not_keep_a_node() -> None:
    plan, _ = decide(at_risk().budget("none", 0, Selector()))
    assert len(evacuated(plan)["a"].evict) == 2


LIMITS: list[tuple[str, Policy, Memory]] = [
    ("closed window", document(maintenance_windows=(Window("0 0 1 1 *", 60.0),)), Memory()),
    ("cooldown", document(), Memory(last_scale_up=NOW - 1, last_scale_down=NOW - 1)),
    (
        "budget 0",
        document(disruption_budgets=(DisruptionBudget("none", NodeLimit(nodes=0)),)),
        Memory(),
    ),
    (
        "parallelism",
        document(options={"max_scale_down_parallelism": 0, "max_drain_parallelism": 0}),
        Memory(),
    ),
    (
        "brake",
        document(max_disruption=MaxDisruption(share=0.1)),
        Memory(breaker=BreakerState(tripped_at=NOW - 9)),
    ),
    ("hour is full", document(max_disruption=MaxDisruption(nodes_per_hour=1)), Memory()),
    (
        "operator's pause",
        document(pauses=(Pause(NOW + 900.0, part=PausedPart.REMOVALS),)),
        Memory(),
    ),
    ("scale-down off", document(options={"scale_down_enabled": False}), Memory()),
]


@pytest.mark.parametrize(
    ("policy", "memory"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS]
)
def test_spot_9_nothing_that_limits_removals_holds(policy: Policy, memory: Memory) -> None:
    build = at_risk(min=1).node("b", "4", "16Gi", group="h").group("h")
    plan, _ = decide(build, policy, memory)
    assert list(evacuated(plan)) == ["a"]


def test_spot_9_later_removals_see_it_in_the_hour() -> None:
    policy = document(
        options={"scale_down_unneeded_time": 0.0}, max_disruption=MaxDisruption(nodes_per_hour=1)
    )
    build = (
        at_risk(running=0)
        .node("b", "4", "16Gi", group="h")
        .node("c", "4", "16Gi", group="h")
        .group("h")
    )
    plan, memory = decide(build, policy)
    assert [removal.node for removal in plan.removals] == ["a"]
    assert memory.breaker.removals == ((NOW, 1, 0),)
    assert {stays(plan)[name] for name in "bc"} == {"MaxDisruption"}


def test_spot_9_share_is_used_and_never_trips() -> None:
    policy = document(
        options={"scale_down_unneeded_time": 0.0}, max_disruption=MaxDisruption(share=0.4)
    )
    build = cluster()
    for name in ("a0", "a1", "a2"):
        build.node(name, "4", "16Gi", group="g", taints=[Taint(CCE, "NoExecute")])
    for name in ("b", "c"):
        build.node(name, "4", "16Gi", group="h")
    build.group("g", spot=True).group("h")
    plan, memory = decide(build, policy)
    assert sorted(removal.node for removal in plan.removals) == ["a0", "a1", "a2"]
    assert memory.breaker.tripped_at == 0.0
    assert {stays(plan)[name] for name in "bc"} == {"ParallelismReached"}


def test_disruption_budgets_count_nodes_at_risk_as_out() -> None:
    policy = document(
        options={"scale_down_unneeded_time": 0.0},
        disruption_budgets=(
            DisruptionBudget("one", NodeLimit(nodes=1), reasons=(DisruptionReason.UNNEEDED,)),
        ),
    )
    build = at_risk(running=0).node("b", "4", "16Gi", group="g").node("c", "4", "16Gi", group="g")
    build.groups = []
    plan, _ = decide(build.group("g", spot=True), policy)
    assert [removal.node for removal in plan.removals] == ["a"]
    assert {stays(plan)[name] for name in "bc"} == {"DisruptionBudget"}


def test_spot_10_twenty_of_thirty_leave_in_one_pass() -> None:
    build = cluster()
    for number in range(30):
        lost = number < 20
        conditions = (SHUT_DOWN,) if number < 15 else (READY,)
        taints = [Taint(CCE, "NoExecute")] if lost else []
        build.node(f"n{number:02}", "4", "16Gi", group="g", taints=taints, conditions=conditions)
        build.running(f"n{number:02}", 4, "1", "1Gi")
    build.group("g", spot=True, max=100, template=node("new-g", "4", "16Gi"))
    plan, _ = decide(build)
    assert len(evacuated(plan)) == 20
    assert growth(plan) == {"g": (20, 80)}
    assert plan.health is not None
    assert (plan.health.healthy, plan.health.unready) == (True, 0)


def test_node_at_risk_that_fails_is_out_and_not_unhealthy() -> None:
    build = at_risk(conditions=(SHUT_DOWN,))
    state = build_cluster_state(build.snapshot(), document(), Memory(), NOW)
    assert (state.buckets["a"], state.health.unready, "a" in state.leaving) == (
        Bucket.DELETED,
        0,
        True,
    )


def test_evacuation_happens_without_time_for_anything_else() -> None:
    ticks = iter(range(0, 10_000_000, 1000))
    plan, _ = plan_cluster(
        at_risk().snapshot(),
        document(),
        Memory(),
        NOW,
        0,
        clock=lambda: float(next(ticks)),
        within=1.0,
    )
    assert list(evacuated(plan)) == ["a"]


def test_a_new_node_does_not_get_the_taint_of_an_interrupted_one() -> None:
    plan, _ = decide(at_risk(template=None))
    assert growth(plan) == {"g": (1, 2)}


# --- operations that exist


def removing(reason: str = "", kind: OperationKind = OperationKind.DELETE_NODES) -> Operation:
    """An open operation on node a."""
    return Operation(
        OperationSpec(
            id="op",
            cluster="test",
            provider="test",
            group="g",
            kind=kind,
            plan="p",
            created_at=NOW - 60,
            from_size=1,
            to_size=0,
            deadline=NEVER,
            reason=reason,
            targets=(RemovalTarget(node="a", instance="test://g/a", handle="test://g/a"),),
        ),
        OperationStatus(due_at=NOW, updated_at=NOW),
    )


def test_an_evacuation_under_way_is_not_begun_again() -> None:
    memory = noticed(NOW - 60.0, NOW + 60.0, operations=(removing("interrupted"),))
    plan, after = decide(at_risk(), memory=memory)
    risk = after.groups["g"].risk
    assert plan.removals == ()
    assert risk is not None
    assert list(risk.notices) == ["a"]


@pytest.mark.parametrize("kind", [OperationKind.DELETE_NODES, OperationKind.RESTART_NODE])
def test_machine_that_an_operation_of_ours_stops_is_no_interruption(kind: OperationKind) -> None:
    build = at_risk(taints=(), conditions=(SHUT_DOWN,))
    plan, after = decide(build, memory=Memory(operations=(removing(kind=kind),)))
    risk = after.groups["g"].risk
    assert plan.removals == ()
    assert risk is not None
    assert (risk.notices, risk.last_notice) == ({}, 0.0)


def test_machine_that_another_autoscaler_removes_is_no_interruption() -> None:
    plan, _ = decide(at_risk(taints=(CCE, TO_BE_DELETED)))
    assert evacuated(plan) == {}


def test_machine_that_the_vendor_deletes_already_is_left_alone() -> None:
    build = at_risk(conditions=(SHUT_DOWN,))
    [group] = build.groups
    [instance] = group.instances
    deleting = msgspec.structs.replace(instance, state=InstanceState.DELETING)
    build.groups = [msgspec.structs.replace(group, instances=(deleting,))]
    plan, _ = decide(build, memory=Memory(groups={"g": GroupMemory(target=1)}))
    assert (plan.removals, growth(plan)) == ((), {"g": (1, 2)})


# --- what is bought, and when it comes


def test_spot_5_pods_go_into_room_that_exists_first() -> None:
    build = at_risk().node("b", "1", "4Gi", group="h").group("h", max=1)
    plan, _ = decide(build)
    assert growth(plan) == {"g": (1, 1)}
    assert set(evacuated(plan)["a"].destinations.values()) == {"b", "g/1"}


def joins(*seconds: int) -> GroupMemory:
    """A group whose last nodes were ready after so many seconds."""
    return GroupMemory(joins=JoinStatistics(ready=seconds))


def test_spot_5_group_that_is_ready_in_time_is_preferred_among_equals() -> None:
    build = at_risk(max=1)
    for name in ("h", "i"):
        build.group(name, template=node(f"new-{name}", "4", "16Gi"))
    memory = Memory(groups={"h": joins(2700), "i": joins(60, 90, 100)})
    plan, _ = decide(build, memory=memory)
    assert growth(plan) == {"i": (1, 2)}
    assert not [reason for reason in plan.notes if reason.code.value == "NoReplacementInTime"]


@pytest.mark.parametrize(
    ("memory", "ready"),
    [
        (joins(2000, 2700, 3000), 2700.0),
        (joins(3000, 4000, 2000, 2700), 2700.0),  # nearest rank, no mean of the two in the middle
    ],
)
def test_spot_5_replacement_that_comes_too_late_is_noted(memory: GroupMemory, ready: float) -> None:
    plan, _ = decide(at_risk(), memory=Memory(groups={"g": memory}))
    [note] = [reason for reason in plan.notes if reason.code.value == "NoReplacementInTime"]
    assert note.params == {"node": "a", "until": NOW + 180.0, "ready": ready}


def test_spot_5_nothing_is_forecast_of_a_group_that_has_taught_nothing() -> None:
    plan, _ = decide(at_risk(), memory=Memory(groups={"g": GroupMemory()}))
    assert growth(plan) == {"g": (1, 2)}
    assert not [reason for reason in plan.notes if reason.code.value == "NoReplacementInTime"]


def replaced_by_vendor(**group: Any) -> ClusterBuilder:
    """Node a of a group whose vendor buys another instance when it announces an interruption."""
    return at_risk(replaces_interrupted=True, **group)


@pytest.mark.parametrize(("age", "bought"), [(0.0, {}), (119.0, {}), (120.0, {"g": (1, 2)})])
def test_spot_20_machine_of_the_vendor_counts_for_two_minutes(
    age: float, bought: dict[str, tuple[int, int]]
) -> None:
    plan, _ = decide(
        replaced_by_vendor(), memory=noticed(NOW - age, NOW + 180.0 - age) if age else Memory()
    )
    assert growth(plan) == bought


@pytest.mark.parametrize("still_there", [True, False])
def test_spot_20_machine_that_has_come_counts_until_it_is_a_node(still_there: bool) -> None:
    build = replaced_by_vendor()
    [group] = build.groups
    instances = (*group.instances, Instance("test://g/new", handle="test://g/new"))
    build.groups = [msgspec.structs.replace(group, instances=instances)]
    memory = msgspec.structs.replace(
        noticed(NOW - 150.0, NOW + 30.0), unregistered={"test://g/new": NOW - 60.0}
    )
    if not still_there:
        build.nodes, build.pods = [], []
        build.pending(2, "1", "1Gi")
    plan, _ = decide(build, memory=memory)
    assert growth(plan) == {}


def test_spot_20_counts_each_vendors_machine_once() -> None:
    build = replaced_by_vendor()
    build.node("new", "4", "16Gi", group="g", created=NOW - 30.0, ready=False)
    build.groups = []
    build.group(
        "g", max=10, spot=True, replaces_interrupted=True, template=node("new-g", "4", "16Gi")
    )
    build.running("a", 4, "1", "1Gi")
    state = build_cluster_state(build.snapshot(), document(), noticed(NOW - 60.0, NOW + 120.0), NOW)
    assert state.groups["g"].upcoming == 1


# --- the end of a notice


def test_spot_21_pods_of_a_machine_that_is_gone_are_pending_and_nothing_failed() -> None:
    build = cluster().group("g", max=10, spot=True, target=0, template=node("new-g", "4", "16Gi"))
    plan, memory = decide(build.pending(2, "1", "1Gi"), memory=noticed(NOW - 200.0, NOW - 20.0))
    risk = memory.groups["g"].risk
    assert growth(plan) == {"g": (1, 2)}
    assert (memory.groups["g"].backoff, plan.repairs) == (None, ())
    assert risk is not None
    assert (risk.interruptions, risk.notices) == (1.0, {})


def test_spot_23_notice_that_was_taken_back_is_not_counted() -> None:
    memory = noticed(NOW - 360.0, NOW - 60.0)
    plan, after = decide(at_risk(taints=()), memory=memory)
    risk = after.groups["g"].risk
    assert (plan.removals, plan.scale_ups) == ((), ())
    assert risk is not None
    assert (risk.notices, risk.interruptions) == ({}, 0.0)


def test_spot_23_notice_holds_while_the_node_is_not_ready() -> None:
    unknown = Condition("Ready", "Unknown", "NodeStatusUnknown", NOW - 30.0)
    plan, _ = decide(
        at_risk(taints=(), conditions=(unknown,)), memory=noticed(NOW - 100.0, NOW + 80.0)
    )
    assert evacuated(plan)["a"].leaves_at == NOW + 80.0


def test_interruption_is_planned_once_from_notice_to_end() -> None:
    first, memory = decide(at_risk())
    assert (growth(first), list(evacuated(first))) == ({"g": (1, 2)}, ["a"])
    memory = msgspec.structs.replace(memory, operations=first.operations)
    second, memory = decide(at_risk(target=2), memory=memory, now=NOW + 60.0)
    assert (second.scale_ups, second.removals, second.operations) == ((), (), ())
    # The machine is gone, the new one is ready; its pods wait for the scheduler.
    build = cluster().node("b", "4", "16Gi", group="g", created=NOW + 30.0).pending(2, "1", "1Gi")
    build.group("g", max=10, spot=True, template=node("new-g", "4", "16Gi"))
    memory = msgspec.structs.replace(memory, operations=())
    third, memory = decide(build, memory=memory, now=NOW + 200.0)
    risk = memory.groups["g"].risk
    assert (third.scale_ups, third.removals, third.repairs, set(expected(third).values())) == (
        (),
        (),
        (),
        {"b"},
    )
    assert risk is not None
    assert (risk.interruptions, risk.notices, risk.last_notice) == (1.0, {}, NOW)


def test_verdict_names_deadline_and_signal() -> None:
    memory = noticed(NOW - 60.0, NOW + 120.0, operations=(removing("interrupted"),))
    plan, _ = decide(at_risk(), memory=memory)
    reasons: dict[str, Reason] = {verdict.node: verdict.reason for verdict in plan.unremovable}
    assert reasons["a"].code.value == "NodeAtRisk"
    assert reasons["a"].params == {"signal": f"taint {CCE}", "until": NOW + 120.0}
    assert NodeMemory() == memory.nodes.get("a", NodeMemory())


def test_permanent_signal_is_acted_on_again_after_a_growing_delay_only() -> None:
    build, policy = at_risk(taints=(f"{NTH}spot-itn",)), document()
    memory, began = Memory(), []
    for minute in range(120):
        now = NOW + 60.0 * minute
        for operation in memory.operations:  # its vendor does not take the node
            if now >= leaving_time(operation.spec) + RETURN_TIME:
                failed, _ = memory_updates(
                    operation, Failed(NOTICE_TAKEN_BACK, "is Ready"), policy.options, now
                )
                assert failed is not None
                groups = {"g": failed(memory.groups["g"])}
                memory = msgspec.structs.replace(memory, groups=groups, operations=())
        plan, memory = decide(build, policy, memory, now)
        new = tuple(op for op in plan.operations if op.spec.kind is OperationKind.DELETE_NODES)
        began += [now - NOW for _ in new]
        memory = msgspec.structs.replace(memory, operations=memory.operations + new)
    # Each lasts RETURN_TIME, the first one until its deadline before that.
    pauses = [after - before - RETURN_TIME for before, after in pairwise(began)]
    assert pauses == [120.0 + 300.0, 600.0, 1200.0, 1800.0]


def test_notice_that_was_taken_back_does_not_delay_other_removals() -> None:
    build = (
        cluster()
        .node("a", "4", "16Gi", group="g")
        .node("b", "4", "16Gi", group="g")
        .running("b", 1, "1")
    )
    build.group("g", max=10)
    policy = Policy("test", mode=Mode.ACTIVE, options=Options(scale_down_unneeded_time=0.0))
    removed = []
    for taken_back in (False, True):
        failed = {"a": FailedRemoval(NOW + 600.0, 3, "why", taken_back)}
        memory = Memory(groups={"g": GroupMemory(target=2, failed_removals=failed)})
        removed.append([removal.node for removal in decide(build, policy, memory)[0].removals])
    assert removed == [[], ["a"]]


def test_notices_are_forgotten_once_without_spec_spot() -> None:
    build = at_risk(taints=(), conditions=(UNREADY,))
    memory, policy = noticed(NOW - 60.0, NOW + 60.0), document(None)
    after = decide(build, policy, memory)[1]
    risk = memory.groups["g"].risk
    assert risk is not None
    assert after.groups["g"].risk == msgspec.structs.replace(risk, notices={})
    again = decide(build, policy, after, NOW + 60.0)[1]
    assert again.groups["g"].risk is after.groups["g"].risk
    assert evacuated(decide(build, document(), again, NOW + 120.0)[0]) == {}
    on_demand = Memory(groups={"g": GroupMemory(risk=InterruptionRisk(notices=risk.notices))})
    assert decide(build, policy, on_demand)[1].groups["g"].risk is None


@pytest.mark.parametrize(("age", "holds"), [(86_400.0, True), (86_401.0, False)])
def test_notice_is_forgotten_a_day_after_its_deadline(age: float, holds: bool) -> None:
    build = at_risk(taints=(), conditions=(UNREADY,))
    plan, _ = decide(build, memory=noticed(NOW - age - 120.0, NOW - age))
    assert list(evacuated(plan)) == ["a"] * holds


def test_signal_that_outlasts_its_notice_is_a_new_one() -> None:
    old = NOW - 10 * 86_400.0
    plan, memory = decide(at_risk(), memory=noticed(old, old + 180.0))
    assert evacuated(plan)["a"].leaves_at == NOW + 180.0
    risk = memory.groups["g"].risk
    assert risk is not None
    assert risk.notices == {"a": InterruptionNotice(NOW, NOW + 180.0)}


def test_old_condition_of_a_node_that_stays_is_not_written_in_each_pass() -> None:
    since = NOW - 10 * 86_400.0
    expired = Condition("InstanceExpired", "True", "InstanceToBeTerminated", since)
    build = at_risk(taints=(), conditions=(READY, expired))
    _, first = decide(build, memory=noticed(since, since + 300.0))
    _, second = decide(build, memory=first, now=NOW + 60.0)
    assert first.groups["g"].risk is not None
    assert second.groups["g"].risk is first.groups["g"].risk
