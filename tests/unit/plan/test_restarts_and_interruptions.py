"""How passes count restarts and interrupted removals that are open, and the
operations of those that begin.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Memory
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import (
    OPERATION_ANNOTATION,
    UID,
    Operation,
    OperationKind,
    OperationState,
    RemovalTarget,
)
from chalicelib.model.plan import Plan, Removal, Restart
from chalicelib.model.reason import ReasonCode
from chalicelib.plan import planner
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.removal_planner import DisruptionPlan, plan_disruption
from chalicelib.plan.removal.taint_updates import taint_updates
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.timeouts import (
    CONFIRM_TIME,
    RETURN_TIME,
    SLACK,
    STARTUP,
    leaving_time,
    operation_timeout,
)
from tests.builders import NOW, OLD, ClusterBuilder, cluster
from tests.operations import new_operation
from tests.unit.plan.instances_builder import anchored, asked, repaired
from tests.unit.plan.selection_builder import SelectionBuilderPool, goes, why


def opened(kind: OperationKind, group: str, node: str, *evict: str, **fields: Any) -> Operation:
    return new_operation(
        id=f"{kind}-{node}",
        cluster="test",
        provider="test",
        group=group,
        kind=kind,
        plan="p",
        created_at=NOW - 60,
        targets=(RemovalTarget(node, f"test://{group}/{node}", evict=evict),),
        state=OperationState.WAITING,
        **fields,
    )


def restarts(*nodes: str, evict: tuple[str, ...] = ()) -> Memory:
    return Memory(
        operations=tuple(opened(OperationKind.RESTART_NODE, "g", node, *evict) for node in nodes)
    )


def state_with(build: ClusterBuilder, memory: Memory) -> ClusterState:
    return build_cluster_state(build.snapshot(), Policy(name="test", mode=Mode.ACTIVE), memory, NOW)


# -- restarts that are open


def test_node_in_a_restart_takes_no_pods_and_still_counts_in_its_group() -> None:
    pool = SelectionBuilderPool().group("g", 3, others=2)
    state = pool.world(restarts("g-o00"))
    assert state.leaving == state.restarting == frozenset({"g-o00"})
    assert state.groups["g"].leaving == 0
    assert state.groups["g"].target == 5
    assert state.health.removing == 0
    assert RemovalLimits(state).size_of("g") == 5


def test_ended_restart_counts_nowhere() -> None:
    done = restarts("g-o00").operations[0].with_status(state=OperationState.SUCCEEDED)
    state = SelectionBuilderPool().group("g", 1, others=1).world(Memory(operations=(done,)))
    assert state.leaving == state.restarting == frozenset()


def test_restart_takes_a_drain_and_no_removal_from_parallelism() -> None:
    pool = SelectionBuilderPool().group("g", 1, 1, others=1)
    memory = restarts("g-o00", evict=("default/a",))
    picked = pool.pick(memory, max_drain_parallelism=1, max_scale_down_parallelism=1)
    assert goes(picked) == ["g-e00"]
    assert picked.refused["g-d00"].code is ReasonCode.PARALLELISM
    assert goes(
        pool.pick(restarts("g-o00"), max_drain_parallelism=1, max_scale_down_parallelism=2)
    ) == [
        "g-e00",
        "g-d00",
    ]


def test_restart_takes_no_room_of_the_share_and_room_of_disruption_budgets() -> None:
    pool = SelectionBuilderPool().group("g", 1, others=3)
    assert goes(pool.pick(restarts("g-o00"), max_disruption=MaxDisruption(share=0.25))) == ["g-e00"]
    budget = DisruptionBudget("one", reasons=(DisruptionReason.UNNEEDED,), nodes=NodeLimit(1))
    assert goes(pool.pick(budgets=[budget])) == ["g-e00"]
    assert why(pool.pick(restarts("g-o00"), budgets=[budget])) == {ReasonCode.DISRUPTION_BUDGET}


def test_restart_keeps_a_zero_or_max_group_whole() -> None:
    pool = SelectionBuilderPool().group("g", 2, others=1, options=GroupOptions(zero_or_max=True))
    picked = pool.pick(restarts("g-o00"))
    assert goes(picked) == []
    assert why(picked) == {ReasonCode.ATOMIC_FAILED}


def test_restart_does_not_count_as_missing_in_a_minimum_of_the_cluster() -> None:
    pool = SelectionBuilderPool().group("g", 1, others=2)
    assert goes(pool.pick(restarts("g-o00"), cores_total=(2, 100))) == ["g-e00"]
    assert why(pool.pick(restarts("g-o00"), cores_total=(3, 100))) == {
        ReasonCode.MINIMAL_RESOURCE_LIMIT
    }


def test_taint_of_an_open_restart_stays() -> None:
    build = cluster().node(
        "g-1",
        group="g",
        taints=(Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW))),),
        annotations={OPERATION_ANNOTATION: "restart-g-1"},
    )
    state = state_with(build.group("g"), restarts("g-1"))
    assert taint_updates(state, ()) == ()
    assert [update.node for update in taint_updates(state_with(build, Memory()), ())] == ["g-1"]


def test_restart_does_not_hold_back_a_target_that_is_too_high() -> None:
    build = anchored().node("g-0", group="g").group("g", target=3)
    short = Memory(groups={"g": asked(2, 1000)})
    assert repaired(build.plan(short)) == {"g": ("shrink", 3, 1)}
    busy = msgspec.structs.replace(short, operations=restarts("g-0").operations)
    assert repaired(build.plan(busy)) == {"g": ("shrink", 3, 1)}


# -- interrupted removals that are open


def test_interruptions_never_pull_the_brake() -> None:
    pool = SelectionBuilderPool().group("g", 2, others=6)
    fields = {"reason": DisruptionReason.INTERRUPTED.value, "leaves_at": NOW + 60.0}
    gone = [opened(OperationKind.DELETE_NODES, "g", f"g-o0{at}", **fields) for at in range(6)]
    picked = pool.pick(Memory(operations=tuple(gone)), max_disruption=MaxDisruption(share=0.25))
    assert picked.breaker.tripped_at == 0.0
    assert goes(picked) == []  # they are missing, so others wait
    chosen = [msgspec.structs.replace(op.spec, reason="") for op in gone]
    others = tuple(Operation(spec, op.status) for spec, op in zip(chosen, gone, strict=True))
    assert (
        pool.pick(
            Memory(operations=others), max_disruption=MaxDisruption(share=0.25)
        ).breaker.tripped_at
        == NOW
    )


# -- operations that begin


def planned(
    monkeypatch: pytest.MonkeyPatch,
    removals: tuple[Removal, ...] = (),
    restarted: tuple[Restart, ...] = (),
    startup_time: float | None = None,
) -> Plan:
    """Returns the plan of a pass whose disruption decided this."""

    def disruption(*args: Any, **more: Any) -> DisruptionPlan:
        commands = tuple(DisruptionCommand(removal.reason, (removal,)) for removal in removals)
        return msgspec.structs.replace(
            plan_disruption(*args, **more), commands=commands, restarts=restarted
        )

    monkeypatch.setattr(planner, "plan_disruption", disruption)
    build = cluster().node("g-1", group="g", created=OLD).node("g-2", group="g", created=OLD)
    return build.group(
        "g", target=2, options=GroupOptions(max_node_startup_time=startup_time)
    ).plan()


@pytest.mark.parametrize("leaves_at", [NOW + 60.0, 0.0, NOW + 100 * 86400.0])
def test_interrupted_removal_has_the_time_that_its_vendor_gives(
    monkeypatch: pytest.MonkeyPatch, leaves_at: float
) -> None:
    removal = Removal(
        "g-1",
        "g",
        "drain",
        ("default/a",),
        reason=DisruptionReason.INTERRUPTED,
        leaves_at=leaves_at,
    )
    (operation,) = planned(monkeypatch, (removal,)).operations
    spec = operation.spec
    assert (spec.kind, spec.reason, spec.leaves_at, spec.interrupted) == (
        "remove",
        "interrupted",
        leaves_at,
        True,
    )
    assert (spec.from_size, spec.to_size) == (2, 1)
    assert spec.deadline == leaving_time(spec) + RETURN_TIME + CONFIRM_TIME + SLACK
    assert spec.deadline <= NOW + 86400.0 + 840.0


def test_removal_for_another_reason_keeps_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = Removal("g-1", "g", "empty", reason=DisruptionReason.EXPIRED)
    (operation,) = planned(monkeypatch, (removal,)).operations
    assert operation.spec.deadline == NOW + operation_timeout(OperationKind.DELETE_NODES, Options())
    assert not operation.spec.interrupted


@pytest.mark.parametrize(("own", "data"), [(None, {}), (60.0, {STARTUP: "60.0"})])
def test_restart_is_an_operation_that_changes_no_size(
    monkeypatch: pytest.MonkeyPatch, own: float | None, data: dict[str, str]
) -> None:
    restart = Restart("g-1", "g", "KernelDeadlock=True", ("default/a",))
    plan = planned(monkeypatch, restarted=(restart,), startup_time=own)
    assert plan.restarts == (restart,)
    (operation,) = plan.operations
    spec, (target,) = operation.spec, operation.spec.targets
    assert (spec.kind, spec.reason, spec.group) == (OperationKind.RESTART_NODE, "repair", "g")
    assert (spec.from_size, spec.to_size) == (0, 0)
    assert (target.node, target.instance, target.evict) == ("g-1", "test://g/g-1", ("default/a",))
    assert target.handle
    assert operation.status.data == {UID: "uid-g-1", **data}
    assert spec.deadline == NOW + operation_timeout(OperationKind.RESTART_NODE, Options())


def test_restart_is_part_of_what_identifies_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        nothing = planned(patch)
    first = planned(monkeypatch, restarted=(Restart("g-1", "g", "Ready=False"),))
    assert nothing.id != first.id
