"""Health of the cluster, groups and zones: missing, upcoming and unready nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import Backoff, GroupMemory, Memory, NodeMemory
from chalicelib.model.node import TO_BE_DELETED, Condition, Taint
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.readiness import Bucket, works
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.reasons.text import sentence
from tests.builders import NOW, OLD, ClusterBuilder, cluster, growth, node, stays
from tests.unit.plan.instances_builder import (
    HOUR,
    STOCK,
    anchored,
    asked,
    facts_of,
    filled,
    group_verdict,
    operation,
    seen,
    with_machines,
    world_of,
)

GPU = {"cluster-api/accelerator": "t4"}


# -- expected nodes


@pytest.mark.parametrize(
    ("target", "request_of", "late", "least"),
    [
        pytest.param(10, 3, 0, 7, id="C1-a-request"),
        pytest.param(20, 5, 0, 15, id="C1-another"),
        pytest.param(10, 0, 2, 8, id="C1-late"),
        pytest.param(20, 0, 3, 17, id="C1-late-too"),
        pytest.param(10, 3, 2, 5, id="C2-both"),
        pytest.param(20, 5, 4, 11, id="C2-both-too"),
    ],
)
def test_number_of_missing_nodes_by_target_and_scale_up_request(
    target: int, request_of: int, late: int, least: int
) -> None:
    build = with_machines(anchored(), "g", late, target=target)
    groups = {"g": asked(request_of, 60)} if request_of else {}
    assert facts_of(build, seen(build, HOUR, groups)).missing == least


def test_instances_within_their_provision_time_and_open_removals_are_not_missing() -> None:
    build = with_machines(anchored(), "g", 4, target=10)
    known = seen(build, 60)
    assert facts_of(build, known).missing == 10
    going = operation(
        OperationKind.DELETE_NODES, "g", RemovalTarget("a", "i-a"), RemovalTarget("b", "i-b")
    )
    assert facts_of(build, msgspec.structs.replace(known, operations=(going,))).missing == 10


@pytest.mark.parametrize(
    ("nodes", "target", "wanted", "coming"),
    [
        pytest.param([{}], 7, 6, 6, id="six-asked-for"),
        pytest.param([{"ready": False}], 2, 1, 1, id="an-unready-one-is-here"),
        pytest.param([{}, {"ready": False, "created": NOW - 60}], 2, 1, 1, id="one-is-starting"),
    ],
)
def test_upcoming_nodes_are_requested_and_not_yet_registered(
    nodes: list[dict[str, Any]], target: int, wanted: int, coming: int
) -> None:
    build = cluster()
    for at, fields in enumerate(nodes):
        build.node(f"n{at}", group="g", **fields)
    build.group("g", target=target)
    known = asked(wanted, 60)
    failed = Backoff(duration=300, until=NOW + 60, last_failed=NOW - 240)
    starting = sum("created" in fields for fields in nodes)
    assert facts_of(build, Memory(groups={"g": known})).upcoming == coming
    assert facts_of(build).upcoming == starting, "without a request only what has joined"
    backed_off = msgspec.structs.replace(known, backoff=failed)
    assert facts_of(build, Memory(groups={"g": backed_off})).upcoming == starting


@pytest.mark.parametrize("error", ["", "403 Forbidden"])
def test_nodes_of_an_open_purchase_are_upcoming_while_the_vendor_does_not_answer(
    error: str,
) -> None:
    build = cluster().group("g", target=0, error=error)
    grown = operation(OperationKind.SCALE_UP, "g").with_spec(from_size=0, to_size=2)
    known = Memory(operations=(grown,))
    assert facts_of(build, known).upcoming == 2


def test_failed_or_late_instance_is_not_upcoming() -> None:
    build = with_machines(anchored(), "g", 2, error=STOCK, target=5)
    assert (
        facts_of(
            build,
            Memory(groups={"g": asked(5, 60, failed_instances=("test://g/m-0", "test://g/m-1"))}),
        ).upcoming
        == 3
    )
    build = with_machines(anchored(), "g", 2, target=5)
    assert facts_of(build, seen(build, HOUR, {"g": asked(5, 60)})).upcoming == 3


@pytest.mark.parametrize(
    ("fields", "coming"),
    [
        pytest.param({"taints": (Taint(TO_BE_DELETED, "NoSchedule"),)}, 1, id="tainted-by-us"),
        pytest.param({"ready": False}, 1, id="not-ready"),
        pytest.param({}, 0, id="its-kubelet-still-reports"),
    ],
)
def test_node_whose_instance_is_being_deleted_takes_no_place_of_a_requested_one(
    fields: dict[str, Any], coming: int
) -> None:
    """The target does not count it any more: it would hide a node that is bought while it goes, and
    its pods would be bought for twice."""
    build = cluster().node("stays", group="g").node("goes", group="g", **fields)
    build.group("g", target=2)
    machines = build.groups[-1].instances
    build.groups[-1] = msgspec.structs.replace(
        build.groups[-1],
        instances=(machines[0], msgspec.structs.replace(machines[1], state=InstanceState.DELETING)),
    )
    state = facts_of(build, Memory(groups={"g": asked(1, 2)}))
    assert state.upcoming == coming
    assert (state.memory.request is not None) == bool(coming)


def test_node_without_provider_id_is_not_the_one_that_a_vendor_deletes() -> None:
    """A machine in deletion whose node is not known has no name in common with it."""
    build = cluster().node("stays", group="g")
    build.node("unreadable", group="g", ready=False, taints=(Taint(TO_BE_DELETED, "NoSchedule"),))
    build.group("g", target=2)
    build.nodes[-1] = msgspec.structs.replace(build.nodes[-1], provider_id="")
    deleting = Instance("test://g/old", InstanceState.DELETING)
    build.groups[-1] = msgspec.structs.replace(
        build.groups[-1], instances=(*build.groups[-1].instances, deleting)
    )
    assert facts_of(build).registered == 2


# -- health


@pytest.mark.parametrize(
    ("unready", "of", "options", "healthy"),
    [
        pytest.param(
            2,
            2,
            {"ok_total_unready_count": 1, "max_total_unready_percentage": 10.0},
            False,
            id="2-of-2",
        ),
        pytest.param(3, 3, {}, True, id="three-are-always-tolerated"),
        pytest.param(4, 10, {}, True, id="4-of-10"),
        pytest.param(9, 20, {}, True, id="exactly-45-percent"),
        pytest.param(5, 10, {}, False, id="5-of-10"),
    ],
)
def test_cluster_is_unhealthy_above_both_unready_thresholds(
    unready: int, of: int, options: dict[str, Any], *, healthy: bool
) -> None:
    build = cluster()
    for at in range(of):
        build.node(f"n{at}", group="g", ready=at >= unready)
    assert world_of(build.group("g"), **options).health.healthy is healthy


def _with_ungrouped_nodes(unhealthy: int) -> ClusterBuilder:
    """A busy group, a spare node, and ten nodes without a group, some of them unready."""
    build = (
        filled(cluster(), "g", 4, cpu="2", memory="8Gi")
        .running("g-0", 1, "1900m")
        .group("g", template=node("t", "2"))
    )
    for at in range(10):
        build.node(
            f"stranger-{at}", "1", ready=at >= unhealthy, taints=[Taint("theirs", "NoSchedule")]
        )
    return build.pending(9, "1500m")


# Sixty percent unready nodes outside our groups do not make our groups unhealthy
# (kubernetes/autoscaler issue 10161).
def test_unready_nodes_without_a_group_change_no_plan() -> None:
    known = Memory(
        nodes={f"g-{at}": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 60) for at in range(4)}
    )
    plans = [_with_ungrouped_nodes(unhealthy).decide(known) for unhealthy in (0, 6)]
    (well, after), (unhealthy, after_unhealthy) = plans
    assert unhealthy.health.healthy
    assert growth(unhealthy) == growth(well) != {}
    assert (unhealthy.removals, unhealthy.unneeded, unhealthy.groups) == (
        well.removals,
        well.unneeded,
        well.groups,
    )
    assert after_unhealthy.nodes == after.nodes


@pytest.mark.parametrize(
    "options", [{}, {"ok_total_unready_count": 1, "max_total_unready_percentage": 10.0}]
)
def test_group_that_misses_most_of_its_nodes_is_frozen(options: dict[str, Any]) -> None:
    build = cluster().node("n", group="g").group("g", target=5)
    facts = facts_of(build, **options)
    assert not facts.healthy
    assert facts.frozen is not None
    assert sentence(facts.frozen).endswith("(4 nodes are missing)")
    assert facts_of(build, Memory(groups={"g": asked(4, 60)}), **options).healthy


def test_mostly_unready_group_is_frozen_and_other_groups_are_not() -> None:
    build = cluster()
    for at in range(6):
        build.node(f"bad-{at}", group="bad", ready=at == 0)
    filled(build, "good", 8, cpu="2").group("bad", template=node("t", "1")).group(
        "good", template=node("t", "2")
    )
    build.running("good-0", 8, "200m").pending(1, "2")
    plan = build.plan(unneeded=7200)
    assert plan.health.healthy
    assert stays(plan)["bad-0"] == "NodeGroupUnhealthy"
    skipped = group_verdict(plan, "bad").skipped
    assert skipped is not None
    assert sentence(skipped) == "not ready for scale-up (5 of 6 nodes are unready)"
    assert (group_verdict(plan, "bad").healthy, group_verdict(plan, "good").healthy) == (
        False,
        True,
    )
    assert plan.removals, "the other group goes on"


def _zones() -> ClusterBuilder:
    """Two groups in zone a, one of which extends into b, and one in b; most of a is
    unready, the cluster is healthy."""
    build = cluster()
    for at in range(6):
        build.node(f"a-{at}", "2", group="a", zone="a", ready=at == 0)
    build.node("ab-a", "2", group="ab", zone="a").node("ab-b", "2", group="ab", zone="b")
    return filled(build, "b", 9, cpu="2", zone="b").group("a").group("ab").group("b")


def test_unhealthy_zone_freezes_only_groups_with_nodes_in_it() -> None:
    build = _zones().group("empty", template=node("t", "64", zone="a")).pending(1, "2")
    plan = build.plan()
    assert plan.health.healthy
    assert plan.health.sick_zones == ("a",)
    assert {verdict.group: verdict.healthy for verdict in plan.groups} == {
        "a": False,
        "ab": True,
        "b": True,
        "empty": False,
    }
    empty = group_verdict(plan, "empty").skipped
    assert empty is not None
    assert (empty.code, empty.params["detail"]) == (
        ReasonCode.GROUP_UNHEALTHY,
        "5 of 7 nodes in zone a are unready",
    )


def test_unhealthy_zone_or_cluster_pauses_unneeded_timers_without_resetting_them() -> None:
    build = _zones()
    known = Memory(
        nodes={
            name: NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 60) for name in ("a-0", "b-0")
        }
    )
    _, after = build.decide(known)
    assert after.nodes["a-0"] == NodeMemory(unneeded_since=OLD + 60, confirmed_at=NOW), "paused"
    assert after.nodes["b-0"].unneeded_since == OLD
    for at in range(40):
        build.node(f"c-{at}", group="c", ready=False)
    plan, after = build.group("c").decide(known)
    assert not plan.health.healthy
    assert after.nodes["b-0"].unneeded_since == OLD


def test_removal_of_many_nodes_does_not_freeze_their_group() -> None:
    build = filled(cluster(), "g", 3)
    for at in range(5):
        build.node(
            f"going-{at}",
            group="g",
            taints=[Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", "1")],
        )
    facts = facts_of(build.group("g"))
    assert (facts.counts[Bucket.DELETED], facts.missing, facts.frozen) == (5, 0, None)


# -- readiness states


@pytest.mark.parametrize(("age", "bucket"), [(600, Bucket.STARTING), (1200, Bucket.UNREADY)])
def test_group_start_up_time_applies_to_nodes_of_that_group_only(
    age: float, bucket: Bucket
) -> None:
    build = cluster().node("aa", group="slow", ready=False, created=NOW - age)
    build.node("zz", ready=False, created=NOW - age)
    with_machines(build, "slow", max_node_startup_time=7200.0)
    found = world_of(build).buckets
    assert found["aa"] is Bucket.STARTING
    assert found["zz"] is bucket, "upstream lets the node before it decide"


def _going(build: ClusterBuilder) -> ClusterBuilder:
    """The vendor is deleting every instance of the last group."""
    group = build.groups[-1]
    build.groups[-1] = msgspec.structs.replace(
        group,
        instances=tuple(
            msgspec.structs.replace(i, state=InstanceState.DELETING) for i in group.instances
        ),
    )
    return build


def test_node_without_its_instance_is_being_deleted_and_not_unready() -> None:
    build = _going(cluster().node("n", group="g", ready=False).group("g"))
    health = world_of(build).health
    assert (health.being_deleted, health.unready) == (1, 0)
    build = cluster().node("n", group="none", ready=False).group("g")
    removed = operation(OperationKind.DELETE_NODES, "g", RemovalTarget("n", "test://none/n"))
    health = world_of(build, Memory(operations=(removed,))).health
    assert (health.being_deleted, health.unready) == (1, 0)


def test_reporting_kubelet_overrides_a_vendor_that_reports_deletion() -> None:
    facts = facts_of(_going(cluster().node("n", group="g").group("g")))
    assert (facts.counts[Bucket.READY], facts.counts[Bucket.DELETED]) == (1, 0)


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (("Ready", "True"), 1),
        (("Ready", "False"), 0),
    ],
)
def test_nodes_that_only_lack_their_device_are_counted_separately(
    conditions: tuple[str, str], count: int
) -> None:
    build = (
        cluster().node("n", group="g", labels=GPU, conditions=(Condition(*conditions),)).group("g")
    )
    health = world_of(build).health
    assert (health.unready, health.resource_unready) == (1, count)


def _gpu_node(age: float) -> ClusterBuilder:
    template = node("t", "8", "64Gi", labels=GPU, extra={"nvidia.com/gpu": 1})
    build = cluster().node(
        "n", "8", "64Gi", group="g", labels=GPU, created=NOW - age, ready_since=NOW - age
    )
    return build.group("g", template=template).pending(1, "1", extra={"nvidia.com/gpu": 1})


# The driver takes three minutes to install.
def test_gpu_node_without_its_gpu_is_starting_until_its_start_up_time_ends() -> None:
    for known in (Memory(), Memory(groups={"g": asked(1, 200)})):
        plan = _gpu_node(180).plan(known)
        assert (growth(plan), len(plan.fits_existing), plan.health.upcoming) == ({}, 1, 1)
    assert growth(_gpu_node(901).plan()) == {"g": (1, 1)}


def test_node_with_a_startup_taint_counts_like_its_template() -> None:
    taint = Taint("startup-taint.cluster-autoscaler.kubernetes.io/cni", "NoSchedule")
    build = cluster().node("n", "2", group="g", taints=[taint], created=NOW - 120)
    build.group("g", template=node("t", "2")).pending(2, "1")
    assert (growth(build.plan()), len(build.plan().fits_existing)) == ({}, 2)


# -- reported state


def test_plan_reports_the_state_of_every_group_and_of_the_cluster() -> None:
    build = filled(cluster(), "g", 2, cpu="2", memory="8Gi").node(
        "starting", "2", "8Gi", group="g", ready=False, created=NOW - 60
    )
    build.node("odd", "1", "1Gi", conditions=(Condition("Suspended", "True"),))
    with_machines(build, "g", 3, target=6)
    known = seen(build, 60, {"g": asked(4, 120)})
    known.unregistered["test://g/m-0"] = NOW - HOUR
    plan = build.plan(known, unneeded=7200)
    reported = group_verdict(plan)
    assert (reported.counts, reported.unregistered, reported.long_unregistered) == (
        {"ready": 2, "notStarted": 1},
        2,
        1,
    )
    assert (reported.in_progress, reported.backoff, reported.candidates, reported.healthy) == (
        True,
        None,
        len(plan.unneeded),
        True,
    )
    health = plan.health
    assert (health.registered, health.ready, health.not_started, health.suspended) == (4, 2, 1, 1)
    assert (health.unregistered, health.long_unregistered, health.upcoming) == (
        2,
        1,
        reported.upcoming,
    )
    assert (health.cpu, health.memory) == (7000, 25 * 2**30)


def test_plan_reports_backoff_with_its_end_and_error_code() -> None:
    failed = Backoff(
        duration=300,
        until=NOW + 60,
        last_failed=NOW - 240,
        cls="OutOfStock",
        code="X1",
        message="none",
    )
    reported = group_verdict(
        cluster().group("g").plan(Memory(groups={"g": GroupMemory(backoff=failed)}))
    ).backoff
    assert reported is not None
    assert (reported.code, reported.params) == (
        ReasonCode.GROUP_BACKOFF,
        {"until": NOW + 60, "error": "none", "code": "X1", "class": "OutOfStock"},
    )


def test_group_with_impossible_vendor_data_is_left_unchanged() -> None:
    plan = anchored().group("g", target=-3, template=node("t", "8")).pending(1, "1").plan()
    assert (growth(plan), plan.repairs) == ({}, ())
    skipped = group_verdict(plan).skipped
    assert skipped is not None
    assert skipped.code is ReasonCode.GROUP_UNREADABLE


@pytest.mark.parametrize("kind", ["DiskPressure", "NetworkUnavailable"])
@pytest.mark.parametrize(("status", "ready"), [("True", False), ("False", True), ("Unknown", True)])
def test_ready_node_under_disk_pressure_or_without_network_does_not_work(
    kind: str, status: str, ready: bool
) -> None:
    working = node("n")
    assert (
        works(
            msgspec.structs.replace(
                working, conditions=(*working.conditions, Condition(kind, status))
            ),
            Options(),
        )
        is ready
    )
