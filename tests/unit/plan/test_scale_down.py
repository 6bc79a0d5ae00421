"""Scale-down through the whole planner: candidates, destinations of their pods,
and the nodes removed now.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.model.selector import Requirement, Selector
from tests.builders import NOW, OLD, ClusterBuilder, cluster, stays
from tests.operations import new_operation

_APP = Selector((Requirement("app", "In", ("rs",)),))


def _one(
    used: str | int = 0,
    *,
    memory: str | int = 0,
    group: dict[str, Any] | None = None,
    **fields: Any,
) -> ClusterBuilder:
    """A 1-cpu node in a group of two; the other node is full."""
    build = (
        cluster()
        .node("n", "1", "4Gi", group="g", **fields)
        .node("full", "1", "4Gi", group="g")
        .group("g", **(group or {}))
    )
    build.running("full", 1, "1", owner="keeper")
    return build.running("n", 1, used, memory) if used or memory else build


@pytest.mark.parametrize(
    ("used", "code"),
    [
        pytest.param("600m", "NotUnderutilized", id="U8-above"),
        pytest.param("500m", "NoPlaceToMovePods", id="U8-equal-is-a-candidate"),
    ],
)
def test_utilization_threshold_decides_whether_a_node_is_a_candidate(used: str, code: str) -> None:
    assert stays(_one(used).plan())["n"] == code


def test_daemonset_pods_may_be_ignored_in_utilization() -> None:
    def build() -> ClusterBuilder:
        return (
            _one(0)
            .running("n", 1, "100m", owner="safe", safe_to_evict="true")
            .running("n", 1, "500m", kind="DaemonSet", owner="ds")
        )

    assert stays(build().plan())["n"] == "NotUnderutilized"
    assert stays(build().plan(ignore_daemonsets_utilization=True))["n"] == "NoPlaceToMovePods"


@pytest.mark.parametrize(
    ("fields", "options", "code"),
    [
        pytest.param(
            {"annotations": {SCALE_DOWN_DISABLED: "true"}},
            {},
            "ScaleDownDisabledAnnotation",
            id="F6",
        ),
        pytest.param(
            {"taints": [Taint(TO_BE_DELETED, "NoSchedule", "1")]},
            {},
            "CurrentlyBeingDeleted",
            id="U10",
        ),
        pytest.param(
            {"ready": False},
            {"scale_down_unready_enabled": False},
            "ScaleDownUnreadyDisabled",
            id="U11",
        ),
        pytest.param({"allocatable": {"cpu": 1000}}, {}, "UnexpectedError", id="U7-no-memory"),
    ],
)
def test_ineligible_nodes_report_their_reason(
    fields: dict[str, Any], options: dict[str, Any], code: str
) -> None:
    build = _one(0, **fields)
    assert stays(build.plan(unneeded=7200, **options))["n"] == code


def test_node_without_a_group_stays() -> None:
    assert stays(cluster().node("n").plan()) == {"n": "NotAutoscaled"}


def test_group_at_its_minimum_loses_no_node() -> None:
    assert stays(cluster().node("n", group="g").group("g", min=1).plan(unneeded=7200)) == {
        "n": "NodeGroupMinSizeReached"
    }


@pytest.mark.parametrize(("age", "goes"), [(600.0, False), (600.5, True)])
def test_unneeded_time_must_exceed_its_threshold(age: float, goes: bool) -> None:
    build = _one()
    plan = build.plan(
        Memory(nodes={"n": NodeMemory(unneeded_since=NOW - age, confirmed_at=NOW - 10)})
    )
    assert plan.unneeded == ("n",)
    assert [r.node for r in plan.removals] == (["n"] if goes else [])
    if not goes:
        assert stays(plan)["n"] == "NotUnneededLongEnough"


def test_node_that_became_unready_keeps_its_timer_with_the_longer_threshold() -> None:
    known = Memory(nodes={"n": NodeMemory(unneeded_since=NOW - 900, confirmed_at=NOW - 10)})
    plan, after = _one(ready=False).decide(known)
    assert stays(plan)["n"] == "NotUnreadyLongEnough"
    assert after.nodes["n"].unneeded_since == NOW - 900


def test_node_found_needed_loses_its_timer() -> None:
    known = Memory(nodes={"n": NodeMemory(unneeded_since=NOW - 900, confirmed_at=NOW - 10)})
    _, after = _one("900m").decide(known)
    assert "n" not in after.nodes


def test_time_without_passes_does_not_count_as_unneeded() -> None:
    seen_long_ago = NodeMemory(unneeded_since=NOW - 5000, confirmed_at=NOW - 4600)
    plan, after = _one().decide(Memory(nodes={"n": seen_long_ago}))
    assert stays(plan)["n"] == "NotUnneededLongEnough"
    assert after.nodes["n"].unneeded_since == NOW - 400, (
        "unneeded for 400 s when it was last seen, and so it still is"
    )


def test_group_minimum_counts_each_selected_node() -> None:
    build = cluster()
    for at in range(5):
        build.node(f"n{at}", group="g")
    plan = build.group("g", min=3).plan(unneeded=7200)
    assert [r.node for r in plan.removals] == ["n0", "n1"]
    assert {code for node, code in stays(plan).items()} == {"NodeGroupMinSizeReached"}


def test_moved_pods_use_room_that_later_removals_do_not_get() -> None:
    build = cluster().node("n1", group="g").node("n2", group="g").node("n3", group="g").group("g")
    build.running("n1", 1, "400m", owner="a").running("n2", 1, "400m", owner="b").running(
        "n3", 1, "550m", owner="c"
    )
    # n1's pod goes to n3, which stays; n3 then has no room for n2's pod.
    plan = build.plan(unneeded=7200)
    assert plan.unneeded == ("n1",)
    assert plan.removals[0].destinations == {plan.removals[0].evict[0]: "n3"}, (
        "rather a node that stays"
    )
    assert stays(plan)["n2"] == "NoPlaceToMovePods"


def test_pod_moved_to_a_node_that_is_removed_too_ends_on_a_third_node() -> None:
    build = (
        cluster().node("n1", group="g").node("n2", group="g").node("n3", "4", group="g").group("g")
    )
    build.running("n1", 1, "400m", owner="a").running("n2", 1, "400m", owner="b").running(
        "n3", 1, "3", owner="c"
    )
    plan = build.plan(unneeded=7200, max_drain_parallelism=5)
    assert {r.node: list(r.destinations.values()) for r in plan.removals} == {
        "n1": ["n3"],
        "n2": ["n3"],
    }


def test_pdb_allowance_is_used_up_within_a_plan() -> None:
    build = (
        cluster().node("n1", group="g").node("n2", group="g").node("n3", "4", group="g").group("g")
    )
    build.running("n1", 1, "100m").running("n2", 1, "100m").running("n3", 1, "3", owner="c").budget(
        "b", 1, _APP
    )
    plan = build.plan(unneeded=7200)
    assert plan.unneeded == ("n1",)
    assert stays(plan)["n2"] == "BlockedByPod"
    assert next(v.pod for v in plan.unremovable if v.node == "n2") == "default/r-00001"


def test_failed_removal_simulation_is_not_repeated_until_its_recheck_timeout() -> None:
    build = _one("500m")
    _, after = build.decide()
    assert stays(build.plan(after, now=NOW + 299))["n"] == "RecentlyUnremovable"
    assert stays(build.plan(after, now=NOW + 300))["n"] == "NoPlaceToMovePods"


def test_parallelism_limits_drains_and_all_removals() -> None:
    build = cluster().node("home", "64", "64Gi")
    for at in range(12):
        build.node(f"e{at:02d}", group="g").node(f"d{at:02d}", group="g").running(
            f"d{at:02d}", 1, "100m"
        )
    plan = build.group("g").plan(unneeded=7200, max_drain_parallelism=5)
    assert [r.kind for r in plan.removals] == ["empty"] * 10
    few = build.plan(unneeded=7200, max_scale_down_parallelism=14, max_drain_parallelism=1)
    assert [r.kind for r in few.removals] == ["empty"] * 12 + ["drain"]


def test_cooldown_blocks_removals_but_not_timers() -> None:
    known = Memory(
        last_scale_up=NOW - 599, nodes={"n": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 10)}
    )
    plan, after = _one().decide(known)
    assert stays(plan)["n"] == "InCooldown"
    assert after.nodes["n"].unneeded_since == OLD
    later = _one().plan(msgspec.structs.replace(after, last_scale_up=NOW - 600))
    assert [r.node for r in later.removals] == ["n"]


def test_cluster_minimum_of_cores_limits_removals() -> None:
    build = cluster()
    for at in range(6):
        build.node(f"n{at}", "2", group="g")
    plan = build.group("g").plan(unneeded=7200, cores_total=(10, 100))
    assert [r.node for r in plan.removals] == ["n0"]
    assert stays(plan)["n1"] == "MinimalResourceLimitExceeded"


def test_node_with_placements_of_pending_pods_stays() -> None:
    plan = _one().pending(1, "100m", owner="new").plan(unneeded=7200)
    assert plan.fits_existing
    assert stays(plan)["n"] == "PromisedToPendingPods"


def test_node_with_an_unreadable_pod_stays() -> None:
    from chalicelib.model.snapshot import MissingData

    build = _one()
    build.more["gaps"] = (
        MissingData(kind="Pod", name="default/x", detail="bad quantity", node="n"),
    )
    assert stays(build.plan(unneeded=7200))["n"] == "UnexpectedError"


def test_nodes_of_an_open_removal_get_no_pending_pods() -> None:
    removing = new_operation(
        id="remove-1",
        cluster="test",
        provider="test",
        group="g",
        kind=OperationKind.DELETE_NODES,
        plan="p",
        created_at=NOW,
        targets=(RemovalTarget("n", "test://g/n"),),
        state=OperationState.WAITING,
    )
    plan = (
        _one().pending(1, "100m", owner="new").plan(Memory(operations=(removing,)), unneeded=7200)
    )
    assert plan.fits_existing == ()
    assert stays(plan)["n"] == "CurrentlyBeingDeleted"


def test_each_removed_node_gets_an_operation_with_instance_and_pods() -> None:
    build = (
        cluster().node("home", "4", "64Gi").node("n", group="g").running("n", 1, "100m").group("g")
    )
    operation = build.plan(unneeded=7200).operations[0]
    assert (operation.spec.kind, operation.spec.group) == (OperationKind.DELETE_NODES, "g")
    assert operation.spec.targets == (
        RemovalTarget("n", "test://g/n", "test://g/n", ("default/r-00000",)),
    )


def test_unhealthy_cluster_removes_nothing_and_keeps_its_timers() -> None:
    build = _one()
    for at in range(9):
        build.node(f"sick{at}", group="sick", ready=False)
    build.group("sick")
    known = Memory(nodes={"n": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 10)})
    plan, after = build.decide(known)
    assert not plan.health.healthy
    assert stays(plan)["n"] == "ClusterUnhealthy"
    assert after.nodes["n"].unneeded_since == OLD, (
        "a pass over an unhealthy cluster keeps all timers"
    )
