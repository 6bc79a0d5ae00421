"""Pending pods: which pods count, their order, and the verdict on pods that do not count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.memory import Memory
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW, ClusterBuilder, cluster, growth, node


def _ignored(build: ClusterBuilder, **options: Any) -> list[ReasonCode]:
    return [i.reason.code for i in build.plan(**options).ignored]


def _one(build: ClusterBuilder, **fields: Any) -> ClusterBuilder:
    build.pods[-1] = msgspec.structs.replace(build.pods[-1], **fields)
    return build


def _pending() -> ClusterBuilder:
    return cluster().node("n", "8").group("g", template=node("t", "8")).pending(1, "1")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param(
            {"scheduled_reason": "SchedulingGated"}, ReasonCode.SCHEDULING_GATED, id="Q1-gated"
        ),
        pytest.param(
            {"scheduled": "", "scheduled_reason": ""}, ReasonCode.NOT_YET_SEEN, id="Q1-no-condition"
        ),
        pytest.param({"nominated": "n"}, ReasonCode.NOMINATED, id="Q1-nominated"),
        pytest.param({"deleted": NOW}, ReasonCode.TERMINATING, id="Q1-terminating"),
    ],
)
def test_pods_that_are_not_pending(fields: dict[str, Any], code: ReasonCode) -> None:
    assert _ignored(_one(_pending(), **fields)) == [code]


def test_pod_of_a_bypassed_scheduler_counts_before_the_scheduler_processed_it() -> None:
    build = _one(
        cluster().node("n", "8").pending(1, "1", scheduler="fast"),
        scheduled="",
        scheduled_reason="",
    )
    assert len(build.plan(bypassed_scheduler_names=("fast",)).fits_existing) == 1


def test_nominated_pod_takes_room_on_its_node() -> None:
    build = _one(cluster().node("n", "1").pending(1, "1", name="first"), nominated="n").pending(
        1, "1", name="second"
    )
    assert build.plan().fits_existing == ()


@pytest.mark.parametrize(
    ("fields", "cls", "code", "takes"),
    [
        pytest.param({}, {"priority": -10}, ReasonCode.NOMINATED, True, id="just-above-the-cutoff"),
        pytest.param({}, {"priority": -11}, ReasonCode.EXPENDABLE, False, id="expendable"),
        pytest.param(
            {"scheduled_reason": "SchedulingGated"},
            {"gates": ("later",)},
            ReasonCode.SCHEDULING_GATED,
            False,
            id="gated",
        ),
        pytest.param({"deleted": NOW}, {}, ReasonCode.TERMINATING, False, id="terminating"),
        pytest.param(
            {}, {"scheduler": "fast"}, ReasonCode.NOMINATED, True, id="of-a-bypassed-scheduler"
        ),
        pytest.param(
            {"scheduled": "", "scheduled_reason": ""},
            {"scheduler": "fast"},
            ReasonCode.NOMINATED,
            True,
            id="of-a-bypassed-scheduler-that-has-not-spoken",
        ),
        pytest.param(
            {"scheduled": "", "scheduled_reason": ""},
            {"scheduler": "fast", "priority": -11},
            ReasonCode.EXPENDABLE,
            False,
            id="expendable-and-of-a-bypassed-scheduler",
        ),
        pytest.param(
            {"scheduled": "", "scheduled_reason": ""},
            {},
            ReasonCode.NOMINATED,
            True,
            id="being-bound",
        ),
        pytest.param(
            {"scheduled": "", "scheduled_reason": ""},
            {"priority": -11},
            ReasonCode.NOT_YET_SEEN,
            False,
            id="being-bound-and-expendable",
        ),
    ],
)
def test_only_a_placeable_nominated_pod_takes_room_on_its_node(
    fields: dict[str, Any], cls: dict[str, Any], code: ReasonCode, takes: bool
) -> None:
    build = _one(
        cluster().node("n", "1").pending(1, "1", name="first", owner="a", **cls),
        nominated="n",
        **fields,
    )
    plan = build.pending(1, "1", name="second").plan(bypassed_scheduler_names=("fast",))
    assert [each.reason.code for each in plan.ignored] == [code]
    assert bool(plan.fits_existing) is not takes


@pytest.mark.parametrize(("priority", "counts"), [(-11, False), (-10, True), (None, True)])
def test_priority_cutoff_is_exclusive(priority: int | None, counts: bool) -> None:
    build = cluster().node("n", "8").pending(1, "1", priority=priority)
    assert (len(build.plan().fits_existing) == 1) is counts


def _left(build: ClusterBuilder) -> list[str]:
    return [pod for verdict in build.plan().unschedulable for pod in verdict.pods]


def test_pending_pods_without_priorities_keep_queue_order() -> None:
    build = cluster().node("n", "2")
    for cpu in ("200m", "500m", "1800m"):
        build.pending(1, cpu, name=f"p{len(build.pods)}", owner=cpu)
    assert _left(build) == ["default/p2-00002"]


def test_pending_pods_of_higher_priority_come_first() -> None:
    build = cluster().node("n", "2").pending(1, "200m", name="low", owner="a")
    build.pending(1, "500m", name="mid", owner="b", priority=10).pending(
        1, "1800m", name="top", owner="c", priority=20
    )
    assert _left(build) == ["default/mid-00001"]


@pytest.mark.parametrize(("used", "left"), [("500m", 1), ("1500m", 2)])
def test_pods_that_exceed_the_room_left_on_nodes_stay_pending(used: str, left: int) -> None:
    build = cluster().node("n", "2").running("n", 1, used).pending(1, "1000m", name="a", owner="a")
    assert len(_left(build.pending(2, "300m", name="b", owner="b"))) == left


@pytest.mark.parametrize(
    ("age", "flag", "annotation", "kept"),
    [
        pytest.param(60, 0, "", True, id="no-delay"),
        pytest.param(60, 0, "5m", False, id="annotation"),
        pytest.param(60, 300, "", False, id="flag"),
        pytest.param(180, 300, "2m", False, id="a-shorter-annotation-is-ignored"),
        pytest.param(60, 0, "error", True, id="an-unreadable-annotation-is-ignored"),
        pytest.param(300, 300, "", False, id="exactly-the-delay-is-too-young"),
    ],
)
def test_young_pods_are_not_yet_counted_as_pending(
    age: float, flag: float, annotation: str, kept: bool
) -> None:
    build = cluster().node("n", "8").pending(1, "1", created=NOW - age, scale_up_delay=annotation)
    assert (len(build.plan(new_pod_scale_up_delay=flag).fits_existing) == 1) is kept


@pytest.mark.parametrize(
    ("ages", "gpu", "waits"),
    [
        pytest.param((1.0,), 0, True, id="all-very-new"),
        pytest.param((1.0, 1.9), 0, True, id="still-arriving"),
        pytest.param((1.0996, 1.9), 0, False, id="a-pass-that-waited-looks-a-fraction-early"),
        pytest.param((1.2, 1.9), 0, False, id="no-longer-arriving"),
        pytest.param((1.0, 3.0), 0, False, id="one-is-older"),
        pytest.param((20.0,), 1, True, id="gpu-pods-wait-longer"),
        pytest.param((31.0,), 1, False, id="gpu-pods-have-waited"),
    ],
)
def test_very_new_pods_wait_for_further_pods(
    ages: tuple[float, ...], gpu: int, waits: bool
) -> None:
    build = cluster().node("n", "8", extra={"nvidia.com/gpu": 8})
    for age in ages:
        build.pending(1, "1", created=NOW - age, extra={"nvidia.com/gpu": gpu} if gpu else {})
    assert (_ignored(build) == [ReasonCode.WAITING_FOR_MORE]) is waits


@pytest.mark.parametrize(
    ("ages", "growth", "waits"),
    [
        pytest.param((0.5, 60.0), 1.0, True, id="still-arriving"),
        pytest.param((1.2, 60.0), 1.0, False, id="no-longer-arriving"),
        pytest.param((0.5, 60.0), 2.0, False, id="the-growth-was-too-long-ago"),
    ],
)
def test_pods_that_arrive_after_a_growth_wait_for_further_pods(
    ages: tuple[float, ...], growth: float, waits: bool
) -> None:
    build = cluster().node("n", "8")
    for age in ages:
        build.pending(1, "1", created=NOW - age)
    plan = build.plan(Memory(last_scale_up=NOW - growth))
    assert (
        [ignored.reason.code for ignored in plan.ignored] == [ReasonCode.WAITING_FOR_MORE]
    ) is waits
    assert (plan.waits_for_pods > 0) is waits


def test_daemonset_pods_never_trigger_a_scale_up() -> None:
    owned = cluster().node("n", "8").pending(1, "1", kind="DaemonSet")
    marked = cluster().node("n", "8").pending(1, "1", kind="Custom", daemonset_annotation="true")
    assert _ignored(owned) == _ignored(marked) == [ReasonCode.DAEMONSET_POD]


def test_pods_of_a_draining_node_are_planned_for() -> None:
    build = cluster().node("n", "1", group="g", taints=[Taint(TO_BE_DELETED, "NoSchedule", "1")])
    build.running("n", 2, "500m").daemonset("ds", "100m")
    build.running("n", 1, "100m", kind="DaemonSet", owner="ds", namespace="kube-system").group("g")
    assert growth(build.plan()) == {"g": (2, 2)}, (
        "a new node has the DaemonSet's pod too: 900m left, one pod each"
    )


def test_pending_pods_do_not_depend_on_input_order() -> None:
    build = (
        cluster().group("a", template=node("t", "2")).group("b", template=node("u", "4", "64Gi"))
    )
    for at in range(20):
        build.pending(3, f"{100 * (at % 7) + 50}m", name=f"p{at}", owner=f"rs{at}")
    first = build.plan()
    build.pods.reverse()
    build.groups.reverse()
    again = build.plan()
    assert msgspec.json.encode(again.scale_ups) == msgspec.json.encode(first.scale_ups)
    assert msgspec.json.encode(again.unschedulable) == msgspec.json.encode(first.unschedulable)


# -- equivalent pods are evaluated once


def _pod(name: str, owner: str = "", cpu: str = "4", **spec: Any) -> dict[str, Any]:
    owners = (
        [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}] if owner else []
    )
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}, **spec}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }


@pytest.mark.parametrize(
    ("pods", "groups"),
    [
        pytest.param([_pod("a", "rs"), _pod("b", "rs"), _pod("c", "rs")], [3], id="Q10-siblings"),
        pytest.param(
            [_pod("a", "rs"), _pod("b", "rs"), _pod("c", "rs", "5")],
            [2, 1],
            id="Q10-one-asks-for-more",
        ),
        pytest.param(
            [_pod("a", "rs", env=[{"name": "K", "value": "1"}]), _pod("b", "rs")],
            [2],
            id="Q10-env-is-ignored",
        ),
        pytest.param(
            [_pod(f"p{at}", "rs", f"{at + 4}") for at in range(20)],
            [1] * 20,
            id="Q10-twenty-distinct-specs",
        ),
        pytest.param(
            [_pod(f"p{at:02d}", "rs", f"{at // 2 + 4}") for at in range(40)],
            [2] * 20,
            id="Q10-siblings-after-the-tenth-spec",
        ),
    ],
)
def test_equivalent_pods_form_one_group(pods: list[dict[str, Any]], groups: list[int]) -> None:
    """Upstream opens at most ten groups per controller and does not group later pods; here one
    group holds all of them."""
    snapshot = _read(pods)
    plan, _ = plan_cluster(snapshot, Policy(name="test"), Memory(), NOW, 0)
    assert [len(verdict.pods) for verdict in plan.unschedulable] == groups


def test_equivalent_bare_pods_are_evaluated_once() -> None:
    """Upstream makes a group for each bare pod. The requests are equal, so the result is the
    same."""
    plan, _ = plan_cluster(_read([_pod("a"), _pod("b")]), Policy(name="test"), Memory(), NOW, 0)
    assert [verdict.pods for verdict in plan.unschedulable] == [("default/a", "default/b")]


def _read(pods: list[dict[str, Any]]) -> Snapshot:
    folder = SnapshotBuilder()
    folder.add_page(msgspec.json.encode({"kind": "List", "items": pods}), "test")
    return folder.snapshot("test", NOW)


def test_ignored_pods_are_reported_by_reason_then_by_name() -> None:
    build = cluster().node("n", "8")
    for name in ("c", "a", "b"):
        build.pending(1, "1", name=name, owner=name, scheduler=f"of-{name}")
    ignored = build.plan(allowed_scheduler_names=("default",)).ignored
    assert [each.pods for each in ignored] == [
        ("default/a-00001",),
        ("default/b-00002",),
        ("default/c-00000",),
    ]
