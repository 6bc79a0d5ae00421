"""LIFE_1 to LIFE_18: nodes that are old, not as their group is defined, or
sick, in the whole planner.

Cases of a vendor's own API (LIFE_8 to LIFE_11, LIFE_16) are tested here with what the provider
reports, and in the tests of the providers with what the vendor says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Pool
from chalicelib.model.memory import (
    NOT_BEGUN,
    GroupMemory,
    Memory,
    NodeMemory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
    ScaleUpRequest,
    SickCondition,
)
from chalicelib.model.node import Condition
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import ABANDONED, Failed
from chalicelib.model.snapshot import MissingData
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.methods.node_lifecycle import MOST_TRIED
from chalicelib.plan.state.sick_old_drifted_nodes import age_limit
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle, RepairAction
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.spot import Spot
from tests.builders import NOW, ClusterBuilder, cluster, having, node
from tests.operations import new_operation
from tests.unit.plan.lifecycle_fixture import (
    AGE,
    DAY,
    DEADLOCK,
    HOUR,
    OLD_NODE,
    READY,
    LifecyclePass,
    decide,
    full_nodes,
    machines,
    policy,
    sick_since,
    unready,
)

# -- age


def test_life_1_each_node_has_its_own_part_of_the_jitter() -> None:
    lifecycle = NodeLifecycle(max_node_age=720 * HOUR)
    limits = [
        round(age_limit("prod", name, lifecycle) / HOUR, 2)
        for name in ("node-a", "node-b", "node-c")
    ]
    assert limits == [651.61, 709.43, 698.12]


def test_life_2_nodes_of_one_minute_do_not_expire_together() -> None:
    lifecycle = NodeLifecycle(max_node_age=720 * HOUR)
    limits = sorted(age_limit("prod", f"node-{at}", lifecycle) / HOUR for at in range(12))
    assert (round(limits[0], 2), round(limits[-1], 2)) == (656.21, 702.72)
    assert max(sum(start <= other <= start + 6 for other in limits) for start in limits) <= 3


def test_a_node_expires_at_its_limit_and_not_before() -> None:
    created = NOW - 30 * DAY
    build = full_nodes("a", created=created)
    assert decide(build, now=NOW - 0.5).plan.lifecycle == ()
    assert decide(build, now=NOW).bought == {"g": 1}


def test_a_machine_older_than_its_node_object_counts() -> None:
    for field in ("created", "born"):
        build = machines(full_nodes("a", created=NOW - DAY), a={field: OLD_NODE})
        assert decide(build).bought == {"g": 1}, field


@pytest.mark.parametrize("born", [NOW - DAY, NOW + DAY, -1.0, 0.0])
def test_a_node_object_older_than_its_machine_keeps_its_age(born: float) -> None:
    assert decide(machines(full_nodes("a"), a={"born": born})).bought == {"g": 1}
    assert (
        decide(machines(full_nodes("a", created=NOW - DAY), a={"born": born})).plan.lifecycle == ()
    )


def test_overdue_counts_from_the_machine_of_a_young_node_object() -> None:
    build = machines(
        full_nodes("a", created=NOW - DAY), a={"born": NOW - 40 * DAY, "busy": "rollout"}
    )
    result = decide(build)
    assert (result.held, result.notes) == ({"a": "GroupBusy"}, ["NodeOverdue"])


def test_life_3_a_budget_limits_how_many_expired_nodes_go_at_once() -> None:
    build = full_nodes(*(f"n-{at:02}" for at in range(20)), created=NOW - DAY)
    build.nodes = [
        msgspec.structs.replace(item, created=OLD_NODE - at) if at < 5 else item
        for at, item in enumerate(build.nodes)
    ]
    result = decide(build, policy(disruption_budgets=()))
    assert result.bought == {"g": 2}
    [row] = result.memory.replacements.values()
    assert row.nodes == ("n-04", "n-03")  # the oldest first
    assert result.held == {
        "n-00": "DisruptionBudget",
        "n-01": "DisruptionBudget",
        "n-02": "DisruptionBudget",
        "n-03": "InReplacement",
        "n-04": "InReplacement",
    }


def test_life_4_an_expired_node_is_replaced_by_one_of_its_own_group_first() -> None:
    build = full_nodes("a")
    first = decide(build)
    assert (first.bought, first.goes) == ({"g": 1}, {})
    [row] = first.memory.replacements.values()
    assert (row.nodes, row.reason, row.state) == (
        ("a",),
        DisruptionReason.EXPIRED,
        ReplacementState.BUYING,
    )
    [operation] = first.plan.operations
    done = msgspec.structs.replace(row, ends={operation.spec.id: ""})
    memory = msgspec.structs.replace(first.memory, replacements={row.id: done})
    later = full_nodes("a")
    later.nodes.append(node("b", "4", "16Gi", group="g", created=NOW + 60.0))
    later.groups.clear()
    later.group("g", template=node("new", "4", "16Gi"))
    second = decide(later, memory=memory, now=NOW + 120.0)
    assert second.goes == {"a": "expired"}
    assert {removal.replacement for removal in second.plan.removals} == {row.id}
    [removal] = second.plan.operations
    assert (removal.spec.kind, removal.spec.reason) == (OperationKind.DELETE_NODES, "expired")


def test_a_new_node_of_a_replacement_that_is_not_ready_drains_nothing() -> None:
    build = full_nodes("a")
    first = decide(build)
    [row] = first.memory.replacements.values()
    [operation] = first.plan.operations
    done = msgspec.structs.replace(row, ends={operation.spec.id: ""})
    later = full_nodes("a")
    later.nodes.append(node("b", "4", "16Gi", group="g", created=NOW + 60.0, ready=False))
    later.groups.clear()
    later.group("g", template=node("new", "4", "16Gi"))
    memory = msgspec.structs.replace(first.memory, replacements={row.id: done})
    assert decide(later, memory=memory, now=NOW + 120.0).goes == {}


def test_life_5_an_expired_node_waits_where_its_group_is_full() -> None:
    result = decide(full_nodes("a", group={"max": 1}), now=NOW)
    assert (result.goes, result.bought, result.held) == ({}, {}, {"a": "MaxNodeGroupSizeReached"})
    assert "NodeOverdue" not in result.notes
    overdue = decide(full_nodes("a", created=NOW - 33 * DAY - 1, group={"max": 1}))
    assert (overdue.goes, overdue.bought) == ({}, {})
    assert "NodeOverdue" in overdue.notes


def test_life_6_an_expired_node_that_nobody_needs_just_goes() -> None:
    build = cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE)
    build.group("g", template=node("new", "4", "16Gi"))
    options = Options(scale_down_unneeded_time=0.0)
    result = decide(build, policy(options=options))
    assert (result.goes, result.bought) == ({"a": "unneeded"}, {})


def test_an_expired_node_whose_pods_fit_elsewhere_goes_without_a_purchase() -> None:
    build = (
        cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE).running("a", 3, "1", "4Gi")
    )
    build.node("b", "4", "16Gi", group="g", created=NOW - DAY).running(
        "b", 1, "1", "4Gi", owner="other"
    )
    build.group("g", template=node("new", "4", "16Gi"))
    result = decide(build, policy(opt={"scale_down_utilization_threshold": 0.1}))
    assert (result.goes, result.bought) == ({"a": "expired"}, {})


def test_a_group_at_its_minimum_gets_the_new_node_first() -> None:
    build = (
        cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE).running("a", 1, "1", "4Gi")
    )
    build.node("b", "4", "16Gi", group="g", created=NOW - DAY).running("b", 1, "1", "4Gi")
    build.group("g", min=2, template=node("new", "4", "16Gi"))
    result = decide(build)
    assert (result.goes, result.bought) == ({}, {"g": 1})


def test_an_old_node_that_only_a_minimum_of_its_pool_keeps_is_replaced() -> None:
    build = cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE)
    build.group("g", template=node("new", "4", "16Gi"), pool=Pool("pool", min=1))
    result = decide(build, policy(options=Options(scale_down_unneeded_time=0.0)))
    assert (result.goes, result.bought) == ({}, {"g": 1})


def test_life_7_a_protected_pod_keeps_its_node_and_the_next_one_goes() -> None:
    build = cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE - 1.0)
    build.running("a", 4, "1", "4Gi", owner="a", do_not_disrupt="true")
    build.node("b", "4", "16Gi", group="g", created=OLD_NODE).running("b", 4, "1", "4Gi", owner="b")
    build.group("g", template=node("new", "4", "16Gi"))
    result = decide(build)
    assert result.held == {"a": "DoNotDisrupt", "b": "InReplacement"}
    ignored = decide(build, policy(msgspec.structs.replace(AGE, annotations=False)))
    assert ignored.held == {"a": "InReplacement", "b": "InReplacement"}


def test_an_old_node_goes_only_inside_a_maintenance_window() -> None:
    closed = policy(maintenance_windows=(Window("0 3 * * *", HOUR),))  # NOW is 08:00 UTC
    result = decide(full_nodes("a"), closed)
    assert (result.bought, result.held) == ({}, {"a": "MaintenanceWindow"})


def test_groups_limit_age_to_the_named_pools() -> None:
    named = msgspec.structs.replace(AGE, groups=("other",))
    assert decide(full_nodes("a"), policy(named)).plan.lifecycle == ()


# -- drift

DRIFT = NodeLifecycle(drift=DriftAction.REPLACE)
OUTDATED = {"outdated": "scaling configuration asc-1, the group's is asc-2"}


@pytest.mark.parametrize(
    ("lifecycle", "held", "noted"),
    [
        pytest.param(NodeLifecycle(), {"a": "NodeDrifted"}, True, id="report"),
        pytest.param(NodeLifecycle(drift=DriftAction.OFF), {}, False, id="off"),
        pytest.param(None, {}, False, id="no lifecycle"),
    ],
)
def test_life_8_drift_is_reported_and_nothing_done(
    lifecycle: NodeLifecycle | None, held: dict[str, str], noted: bool
) -> None:
    result = decide(machines(full_nodes("a"), a=OUTDATED), policy(lifecycle))
    assert (result.bought, result.goes, result.held) == ({}, {}, held)
    assert ("NodeDrifted" in result.notes) is noted


def test_life_8_drift_replaced_is_confirmed_by_a_later_pass() -> None:
    build = machines(full_nodes("a"), a=OUTDATED)
    first = decide(build, policy(DRIFT))
    assert (first.bought, first.held) == ({}, {"a": "NotConfirmedYet"})
    second = decide(build, policy(DRIFT), first.memory, now=NOW + 60.0)
    assert second.bought == {"g": 1}
    [row] = second.memory.replacements.values()
    assert row.reason is DisruptionReason.DRIFTED
    as_defined = decide(full_nodes("a"), policy(DRIFT), first.memory, now=NOW + 60.0)
    assert (as_defined.bought, as_defined.memory.nodes.get("a")) == ({}, None)


@pytest.mark.parametrize(
    "fields",
    [{"busy": "activity asa-1 runs"}, {"scale_down_held": "a rollout is under way"}],
    ids=["activity", "rollout"],
)
def test_life_9_a_group_that_its_vendor_changes_is_left_alone(fields: dict[str, Any]) -> None:
    memory = Memory(nodes={"a": NodeMemory(drifted_since=NOW - HOUR)})
    result = decide(machines(full_nodes("a", group=fields), a=OUTDATED), policy(DRIFT), memory)
    assert (result.bought, result.held) == ({}, {"a": "GroupBusy"})


def test_life_18_a_blocked_node_does_not_hold_the_next_one() -> None:
    build = machines(full_nodes("a", "b"), a=OUTDATED, b=OUTDATED).budget("pdb", 0, having(app="a"))
    memory = Memory(nodes={name: NodeMemory(drifted_since=NOW - HOUR) for name in "ab"})
    result = decide(build, policy(DRIFT), memory)
    assert result.bought == {"g": 1}
    assert result.held == {"a": "BlockedByPod", "b": "InReplacement"}


def test_any_number_of_blocked_nodes_does_not_hold_the_next_one() -> None:
    names = [f"n-{at:03}" for at in range(MOST_TRIED + 20)]
    build = full_nodes(*names, group={"max": 200})
    build.nodes = [
        msgspec.structs.replace(
            item, created=OLD_NODE + (DAY / 2 if item.name == names[-1] else 0.0)
        )
        for item in build.nodes
    ]
    for name in names[:-1]:
        build.budget(f"pdb-{name}", 0, having(app=name))
    result = decide(build)
    assert result.bought == {"g": 1}
    assert result.held[names[-1]] == "InReplacement"
    assert {result.held[name] for name in names[:-1]} == {"BlockedByPod"}


# -- repair

SICK = NodeLifecycle(repair=(READY,), max_unhealthy=1.0, drift=DriftAction.OFF)


@pytest.mark.parametrize(
    ("since", "bought", "held"),
    [(NOW - 1799.0, {}, "NotSickLongEnough"), (NOW - 1800.0, {"g": 1}, "InReplacement")],
    ids=["29m59s", "30m"],
)
def test_life_12_a_node_is_repaired_when_its_time_is_over(
    since: float, bought: dict[str, int], held: str
) -> None:
    build = full_nodes("a", **unready())
    result = decide(build, policy(SICK), Memory(nodes={"a": sick_since(since)}))
    assert (result.bought, result.held) == (bought, {"a": held})


def test_the_time_of_a_sick_node_begins_with_the_first_pass_that_sees_it() -> None:
    build = full_nodes("a", **unready(since=NOW - DAY))
    first = decide(build, policy(SICK))
    assert first.held == {"a": "NotSickLongEnough"}
    assert first.memory.nodes["a"].sick == {"Ready=False,Unknown": SickCondition(NOW, NOW)}


def test_life_13_a_short_flap_does_not_reset_the_time() -> None:
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    memory = Memory()
    began = NOW - 720.0
    for seconds in range(0, 721, 60):
        now = began + seconds
        flapped = now >= began + 310.0
        false = began + 310.0 <= now < began + 340.0
        condition = Condition(
            "KernelDeadlock", "False" if false else "True", "", began + 340.0 if flapped else began
        )
        conditions = (Condition("Ready", "True", "", began), condition)
        result = decide(full_nodes("a", conditions=conditions), policy(lifecycle), memory, now)
        memory = result.memory
        if result.bought:
            break
    assert (seconds, result.bought) == (600, {"g": 1})


def test_a_condition_that_was_away_for_longer_than_a_flap_begins_anew() -> None:
    conditions = (
        Condition("Ready", "True", "", NOW - DAY),
        Condition("KernelDeadlock", "True", "", NOW - 30.0),
    )
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    memory = Memory(nodes={"a": sick_since(NOW - HOUR, "KernelDeadlock=True", seen=NOW - 100.0)})
    result = decide(full_nodes("a", conditions=conditions), policy(lifecycle), memory)
    assert (result.bought, result.held) == ({}, {"a": "NotSickLongEnough"})


def _deadlock(status: str, changed: float) -> dict[str, Any]:
    """Fields of a node with this state of its kernel."""
    ready = Condition("Ready", "True", "", NOW - DAY)
    return {
        "created": NOW - DAY,
        "conditions": (ready, Condition("KernelDeadlock", status, "", changed)),
    }


def test_a_condition_that_swaps_between_sound_statuses_has_ended() -> None:
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    swaps = [("False" if number % 2 else "Unknown", 50.0 * number) for number in range(1, 30)]
    memory, since = Memory(), []
    for status, changed in [("True", -5.0), *swaps, ("True", 1500.0)]:
        now = NOW + changed + 5.0
        result = decide(
            full_nodes("a", **_deadlock(status, NOW + changed)), policy(lifecycle), memory, now
        )
        memory = result.memory
        known = memory.nodes.get("a", NodeMemory()).sick.get("KernelDeadlock=True")
        since.append(known.since - NOW if known is not None else None)
    assert since == [0.0, 0.0, 0.0, *[None] * 27, 1505.0]
    assert result.bought == {}


def test_a_condition_that_lasts_is_not_written_in_each_pass() -> None:
    rule = msgspec.structs.replace(DEADLOCK, flap_time=600.0, after=DAY)
    lifecycle = NodeLifecycle(repair=(rule,), max_unhealthy=1.0, drift=DriftAction.OFF)
    memory, written = Memory(), []
    for minute in range(16):
        now = NOW + 60.0 * minute
        memory = decide(
            full_nodes("a", **_deadlock("True", NOW - 50.0)), policy(lifecycle), memory, now
        ).memory
        known = memory.nodes["a"].sick["KernelDeadlock=True"]
        assert known.since == NOW
        written.append(known.seen_at - NOW)
    assert sorted({*written}) == [0.0, 360.0, 720.0]
    build = full_nodes("a", **_deadlock("False", NOW + 910.0))
    memory = decide(build, policy(lifecycle), memory, NOW + 960.0).memory
    assert memory.nodes["a"].sick == {
        "KernelDeadlock=True": SickCondition(NOW, NOW + 720.0, NOW + 910.0)
    }
    build = full_nodes("a", **_deadlock("True", NOW + 1505.0))
    memory = decide(build, policy(lifecycle), memory, NOW + 1510.0).memory
    assert memory.nodes["a"].sick == {"KernelDeadlock=True": SickCondition(NOW, NOW + 1510.0)}


@pytest.mark.parametrize(
    ("nodes", "sick", "repaired"), [(4, 2, False), (4, 1, True), (10, 2, True), (10, 3, False)]
)
def test_life_14_a_group_with_too_many_sick_nodes_is_not_repaired(
    nodes: int, sick: int, repaired: bool
) -> None:
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), drift=DriftAction.OFF)
    build = full_nodes(*(f"n-{at}" for at in range(nodes)))
    broken = (
        Condition("Ready", "True", "", NOW - DAY),
        Condition("KernelDeadlock", "True", "", NOW - HOUR),
    )
    build.nodes = [
        msgspec.structs.replace(item, conditions=broken) if at < sick else item
        for at, item in enumerate(build.nodes)
    ]
    memory = Memory(
        nodes={f"n-{at}": sick_since(NOW - HOUR, "KernelDeadlock=True") for at in range(sick)}
    )
    result = decide(build, policy(lifecycle), memory)
    assert bool(result.bought) is repaired
    expected = "InReplacement" if repaired else "TooManyUnhealthy"
    assert result.held == {f"n-{at}": expected for at in range(sick)}
    assert ("TooManyUnhealthy" in result.notes) is not repaired


def _deadlocked() -> dict[str, Any]:
    return {
        "conditions": (
            Condition("Ready", "True", "", OLD_NODE),
            Condition("KernelDeadlock", "True", "", NOW - HOUR),
        )
    }


RESTART = NodeLifecycle(
    repair=(msgspec.structs.replace(DEADLOCK, action=RepairAction.RESTART),),
    max_unhealthy=1.0,
    drift=DriftAction.OFF,
)


def _deadlocked_with_room_elsewhere() -> ClusterBuilder:
    """Sick node a, whose pods fit on node b, in a group whose nodes can be restarted."""
    build = full_nodes("a", **_deadlocked()).node("b", "4", "16Gi", group="g")
    build.groups.clear()
    return build.group("g", min=2, restarts=True, template=node("new", "4", "16Gi"))


def test_life_15_a_node_is_restarted_once_and_then_replaced() -> None:
    build = _deadlocked_with_room_elsewhere()
    memory = Memory(nodes={"a": sick_since(NOW - 600.0, "KernelDeadlock=True")})
    first = decide(build, policy(RESTART, opt={"scale_down_utilization_threshold": 0.0}), memory)
    [restart] = first.plan.restarts
    assert (restart.node, restart.condition, len(restart.evict)) == ("a", "KernelDeadlock=True", 4)
    assert (first.goes, first.bought) == ({}, {})
    assert first.memory.nodes["a"].restarted_at == NOW
    soon = decide(build, policy(RESTART), first.memory, now=NOW + 599.0)
    assert (soon.plan.restarts, soon.held) == ((), {"a": "NotSickLongEnough"})
    memory = msgspec.structs.replace(first.memory, nodes={"a": first.memory.nodes["a"]})
    again = memory.nodes["a"].sick["KernelDeadlock=True"]
    sick = msgspec.structs.replace(
        memory.nodes["a"], sick={"KernelDeadlock=True": SickCondition(again.since, NOW + 590.0)}
    )
    memory = msgspec.structs.replace(memory, nodes={"a": sick})
    second = decide(build, policy(RESTART), memory, now=NOW + 600.0)
    assert (second.plan.restarts, second.bought) == ((), {"g": 1})


def test_a_node_is_restarted_again_if_its_vendor_was_not_asked() -> None:
    build = _deadlocked_with_room_elsewhere()
    document = policy(RESTART, opt={"scale_down_utilization_threshold": 0.0})
    first = decide(
        build, document, Memory(nodes={"a": sick_since(NOW - 600.0, "KernelDeadlock=True")})
    )
    [operation] = [
        item for item in first.plan.operations if item.spec.kind is OperationKind.RESTART_NODE
    ]
    patch, _ = memory_updates(
        operation, Failed(ABANDONED, "the mode is shadow"), document.options, NOW + 30.0
    )
    assert patch is not None
    groups = {"g": patch(first.memory.groups["g"])}
    memory = msgspec.structs.replace(first.memory, groups=groups)
    second = decide(build, document, memory, now=NOW + 60.0)
    assert ([restart.node for restart in second.plan.restarts], second.bought) == (["a"], {})
    assert second.memory.nodes["a"].restarted_at == NOW + 60.0
    third = decide(build, document, second.memory, now=NOW + 120.0)  # this one has asked
    assert (third.plan.restarts, third.held) == ((), {"a": "NotSickLongEnough"})
    assert third.memory.groups["g"].not_restarted == {"a": NOW}
    sound = full_nodes("a", group={"restarts": True, "min": 1}, created=NOW)
    later = decide(sound, document, third.memory, now=NOW + DAY)
    assert later.memory.groups["g"].not_restarted == {}


def test_a_provider_that_cannot_restart_says_so() -> None:
    build = full_nodes("a", **_deadlocked())
    memory = Memory(nodes={"a": sick_since(NOW - 600.0, "KernelDeadlock=True")})
    assert decide(build, policy(RESTART), memory).held == {"a": "CannotRestart"}


@pytest.mark.parametrize(
    "fields",
    [{"repaired_by": "MachineHealthCheck default/workers"}, {"busy": "it is Repairing"}],
    ids=["health check", "repairing"],
)
def test_life_16_a_node_that_others_repair_is_left_alone(fields: dict[str, Any]) -> None:
    build = machines(full_nodes("a", **unready()), a=fields)
    result = decide(build, policy(SICK), Memory(nodes={"a": sick_since(NOW - HOUR)}))
    assert (result.bought, result.goes, result.held) == ({}, {}, {"a": "GroupBusy"})


def test_a_health_check_does_not_keep_an_old_node() -> None:
    build = machines(full_nodes("a"), a={"repaired_by": "MachineHealthCheck default/workers"})
    assert decide(build).bought == {"g": 1}


def test_life_17_a_full_group_loses_a_sick_node_first_and_one_at_a_time() -> None:
    build = full_nodes("a", "b", group={"max": 2}, **_deadlocked())
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    memory = Memory(nodes={name: sick_since(NOW - HOUR, "KernelDeadlock=True") for name in "ab"})
    result = decide(build, policy(lifecycle), memory)
    assert (result.goes, result.held) == ({"a": "repair"}, {"b": "RepairedOneByOne"})
    [operation] = result.plan.operations
    left = msgspec.structs.replace(memory, operations=(operation,))
    assert decide(build, policy(lifecycle), left, now=NOW + 60.0).held == {"b": "RepairedOneByOne"}


def test_a_full_group_that_loses_an_unneeded_node_keeps_a_sick_one() -> None:
    """The group is not full any more in the next pass: then the successor comes first."""
    build = (
        cluster()
        .node("a", "4", "16Gi", group="g", **_deadlocked())
        .node("b", "500m", "16Gi", group="g")
    )
    build.running("a", 4, "1", "4Gi", owner="a").group(
        "g", max=2, template=node("new", "4", "16Gi")
    )
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    sick = sick_since(NOW - HOUR, "KernelDeadlock=True")
    memory = Memory(
        nodes={"a": sick, "b": NodeMemory(unneeded_since=NOW - 2e6, confirmed_at=NOW - 60.0)}
    )
    result = decide(build, policy(lifecycle), memory)
    assert (result.goes, result.held) == ({"b": "unneeded"}, {"a": "RepairedOneByOne"})


@pytest.mark.parametrize(("allowed", "goes"), [(3, {}), (4, {"a": "repair"})])
def test_a_sick_node_goes_first_only_if_all_its_pods_may_be_away_at_once(
    allowed: int, goes: dict[str, str]
) -> None:
    build = full_nodes("a", group={"max": 1}, **_deadlocked()).budget("a", allowed, having(app="a"))
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    result = decide(
        build, policy(lifecycle), Memory(nodes={"a": sick_since(NOW - HOUR, "KernelDeadlock=True")})
    )
    assert (result.goes, result.held) == (goes, {} if goes else {"a": "BlockedByPod"})


def test_a_second_sick_node_of_a_full_group_waits_for_the_successor_of_the_first() -> None:
    build = full_nodes("b", group={"max": 2, "target": 2}, **_deadlocked())
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    request = ScaleUpRequest(1, NOW - 30.0, NOW + 870.0)
    memory = Memory(
        nodes={"b": sick_since(NOW - HOUR, "KernelDeadlock=True")},
        groups={"g": GroupMemory(target=2, request=request)},
    )
    result = decide(build, policy(lifecycle), memory)
    assert (result.goes, result.held) == ({}, {"b": "NodeGroupGrowing"})


def test_a_node_that_recovers_before_its_drain_stays() -> None:
    build = full_nodes("a", **_deadlocked())
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    first = decide(
        build, policy(lifecycle), Memory(nodes={"a": sick_since(NOW - HOUR, "KernelDeadlock=True")})
    )
    [row] = first.memory.replacements.values()
    [operation] = first.plan.operations
    memory = msgspec.structs.replace(
        first.memory,
        replacements={row.id: msgspec.structs.replace(row, ends={operation.spec.id: ""})},
    )
    later = full_nodes("a")
    later.nodes.append(node("b", "4", "16Gi", group="g", created=NOW + 60.0))
    later.groups.clear()
    later.group("g", template=node("new", "4", "16Gi"))
    second = decide(later, policy(lifecycle), memory, now=NOW + 120.0)
    assert second.goes == {}
    [failed] = second.memory.replacements.values()
    assert failed.state is ReplacementState.FAILED


def test_repairs_wait_for_no_cooldown_and_old_nodes_do() -> None:
    grown = NOW - 60.0
    sick = full_nodes("a", **_deadlocked())
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), max_unhealthy=1.0, drift=DriftAction.OFF)
    memory = Memory(nodes={"a": sick_since(NOW - HOUR, "KernelDeadlock=True")}, last_scale_up=grown)
    assert decide(sick, policy(lifecycle), memory).bought == {"g": 1}
    assert decide(full_nodes("a"), policy(), Memory(last_scale_up=grown)).held == {
        "a": "InCooldown"
    }


def test_a_sick_node_is_repaired_although_unready_nodes_are_never_scaled_down() -> None:
    build = full_nodes("a", **unready())
    document = policy(SICK, opt={"scale_down_unready_enabled": False})
    assert decide(build, document, Memory(nodes={"a": sick_since(NOW - HOUR)})).bought == {"g": 1}


def test_the_memory_of_sound_nodes_is_empty() -> None:
    result = decide(
        full_nodes("a", created=NOW - DAY),
        policy(SICK),
        Memory(nodes={"a": sick_since(NOW - HOUR, seen=NOW - 61.0)}),
    )
    assert result.memory.nodes == {}


def test_a_policy_without_a_lifecycle_fails_the_replacements_of_an_earlier_one() -> None:
    first = decide(full_nodes("a"))
    [row] = first.memory.replacements.values()
    second = decide(full_nodes("a"), policy(None), first.memory, now=NOW + 60.0)
    [failed] = second.memory.replacements.values()
    assert (failed.id, failed.state) == (row.id, ReplacementState.FAILED)


def test_an_old_node_goes_to_a_dearer_group_only_as_far_as_it_is_worth_it() -> None:
    def result(price: float) -> LifecyclePass:
        types = "node.kubernetes.io/instance-type"
        build = cluster().node("a", "4", "16Gi", group="g", created=OLD_NODE, labels={types: "g"})
        build.running("a", 4, "1", "4Gi", owner="a")
        build.group("g", max=1, template=node("new", "4", "16Gi", labels={types: "g"}))
        build.group("h", template=node("new", "4", "16Gi", labels={types: "h"}))
        prices = NodePrices(instance_types={"g": 0.2, "h": price})
        return decide(build, policy(prices=prices))

    # the disruption of the only node is worth half its price
    assert result(0.29).bought == {"h": 1}
    assert (result(0.31).bought, result(0.31).held) == ({}, {"a": "MaxNodeGroupSizeReached"})


def test_a_spot_group_is_worth_its_spot_price_to_an_old_node() -> None:
    def bought(spot: float) -> dict[str, int]:
        types = "node.kubernetes.io/instance-type"
        build = full_nodes("a", labels={types: "g"}, group={"max": 1})
        build.group(
            "h", spot=True, price=spot, template=node("new", "4", "16Gi", labels={types: "h"})
        )
        prices = NodePrices(instance_types={"g": 0.2, "h": 0.6})
        return decide(build, policy(prices=prices, spot=Spot())).bought

    assert (bought(0.1), bought(0.5)) == ({"h": 1}, {})


def test_a_group_that_grows_buys_no_successor() -> None:
    grow = new_operation(
        id="grow-1",
        cluster="test",
        provider="test",
        group="g",
        kind=OperationKind.SCALE_UP,
        plan="p",
        created_at=NOW - 5.0,
        from_size=1,
        to_size=2,
    )
    result = decide(full_nodes("a"), memory=Memory(operations=(grow,)))
    assert (result.bought, result.held) == ({}, {"a": "NodeGroupGrowing"})


def test_a_replacement_whose_group_has_gone_is_forgotten() -> None:
    for state, ends in (
        (ReplacementState.PROPOSED, {}),
        (ReplacementState.BUYING, {"grow-1": NOT_BEGUN}),
    ):
        row = Replacement(
            id="r",
            state=state,
            nodes=("a",),
            purchases=(PurchasedNodes("other", 1, 0, "grow-1"),),
            price=0,
            disruption=1.0,
            score=0.0,
            proposed_at=NOW - 60.0,
            since=NOW - 60.0,
            bought_at=NOW - 60.0,
            reason=DisruptionReason.EXPIRED,
            ends=ends,
        )
        build = full_nodes("a")
        build.more["gaps"] = (MissingData("provider/x", "it does not answer"),)
        assert (
            row.id not in decide(build, memory=Memory(replacements={"r": row})).memory.replacements
        )


@pytest.mark.parametrize(
    ("limit", "pool"),
    [({"max_nodes_total": 4}, None), ({"cores_total": (0, 16)}, None), ({}, Pool("p", max=4))],
    ids=["nodes", "cores", "pool"],
)
def test_successors_and_nodes_for_pods_share_what_is_left(
    limit: dict[str, Any], pool: Pool | None
) -> None:
    build = full_nodes("a", "b", group={"pool": pool})
    build.pending(1, "4", "1Gi", node_selector={"pool": "h"})
    build.group("h", template=node("new-h", "4", "16Gi", labels={"pool": "h"}), pool=pool)
    bought = decide(build, policy(opt=limit)).bought
    assert bought == {"h": 1, "g": 1}  # two nodes exist, and four are allowed


@pytest.mark.parametrize(
    ("limit", "pool"),
    [({"max_nodes_total": 3}, None), ({"cores_total": (0, 12)}, None), ({}, Pool("p", max=3))],
    ids=["nodes", "cores", "pool"],
)
def test_as_many_successors_are_bought_as_there_is_room(
    limit: dict[str, Any], pool: Pool | None
) -> None:
    assert decide(full_nodes("a", "b", group={"pool": pool}), policy(opt=limit)).bought == {"g": 1}


def test_a_faulty_detector_does_not_buy_a_node_for_each_small_group() -> None:
    build = cluster()
    names = [f"n-{at:02}" for at in range(20)]
    for name in names:
        build.node(name, "4", "16Gi", group=f"g-{name}", **_deadlocked()).running(
            name, 4, "1", "4Gi", owner=name
        )
    for name in names:
        build.group(f"g-{name}", template=node("new", "4", "16Gi"))
    lifecycle = NodeLifecycle(repair=(DEADLOCK,), drift=DriftAction.OFF)
    memory = Memory(nodes={name: sick_since(NOW - HOUR, "KernelDeadlock=True") for name in names})
    result = decide(build, policy(lifecycle, consolidation=Consolidation()), memory)
    assert len(result.bought) == Consolidation().max_replacements


@pytest.mark.parametrize("lost", ["group", "time"])
def test_a_pass_that_cannot_judge_a_node_forgets_nothing_of_it(lost: str) -> None:
    known = NodeMemory(
        sick=sick_since(NOW - HOUR).sick, restarted_at=NOW - HOUR, drifted_since=NOW - HOUR
    )
    build = full_nodes("a", **unready())
    if lost == "group":
        build.groups.clear()
        build.more["gaps"] = (MissingData("provider/test", "it does not answer"),)
        after = decide(build, policy(SICK), Memory(nodes={"a": known})).memory
    else:
        snapshot, memory = build.snapshot(), Memory(nodes={"a": known})
        after = plan_cluster(snapshot, policy(SICK), memory, NOW, 0, clock=lambda: 1e6, within=0.0)[
            1
        ]
    assert after.nodes["a"].restarted_at == known.restarted_at
    assert [item.since for item in after.nodes["a"].sick.values()] == [NOW - HOUR]
